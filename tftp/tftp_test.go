package tftp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseRequest(t *testing.T) {
	tests := []struct {
		in   string
		want string // of %+v; "" means an error
	}{
		{"\x00\x01a/b\x00octet\x00", "{Write:false Name:a/b Mode:octet BlkSize:0 Window:0 Timeout:0 TSize:false}"},
		{"\x00\x02x\x00octet\x00", "{Write:true Name:x Mode:octet BlkSize:0 Window:0 Timeout:0 TSize:false}"},
		{"\x00\x01x\x00octet\x00tsize\x000\x00blksize\x001468\x00windowsize\x004\x00", "{Write:false Name:x Mode:octet BlkSize:1468 Window:4 Timeout:0 TSize:true}"},
		{"\x00\x01x\x00octet\x00BLKSIZE\x0065464\x00timeout\x003\x00", "{Write:false Name:x Mode:octet BlkSize:65464 Window:0 Timeout:3 TSize:false}"},
		{"\x00\x01x\x00octet\x00blksize\x007\x00windowsize\x000\x00timeout\x00256\x00foo\x00bar\x00", "{Write:false Name:x Mode:octet BlkSize:0 Window:0 Timeout:0 TSize:false}"},
		{"\x00\x01x\x00octet\x00blksize\x0099999999999\x00", "{Write:false Name:x Mode:octet BlkSize:0 Window:0 Timeout:0 TSize:false}"},
		{"\x00\x01x\x00octet\x00blksize\x00512\x00blksize\x001024\x00", "{Write:false Name:x Mode:octet BlkSize:512 Window:0 Timeout:0 TSize:false}"},
		{"", ""}, {"\x00\x01", ""}, {"\x00\x01\x00octet\x00", ""}, {"\x00\x01x\x00octet", ""}, {"\x00\x01x", ""},
		{"\x00\x03x\x00octet\x00", ""}, {"\x00\x01x\x00octet\x00blksize\x00", ""}, {"\x00\x01x\x00octet\x00blksize\x00512", ""},
		{"\x00\x01" + strings.Repeat("x", 600) + "\x00octet\x00", ""},
	}
	for _, tt := range tests {
		r, err := ParseRequest([]byte(tt.in))
		if got := fmt.Sprintf("%+v", r); (err == nil) != (tt.want != "") || err == nil && got != tt.want {
			t.Errorf("%q: %s, %v", tt.in, got, err)
		}
	}
}

func TestNegotiate(t *testing.T) {
	tests := []struct {
		r           Request
		blk, window int
		timeout     time.Duration
		options     bool
		oack        string
	}{
		{Request{}, 512, 1, time.Second, false, "\x00\x06"},
		{Request{BlkSize: 1468, Window: 4, TSize: true}, 1468, 4, time.Second, true, "\x00\x06tsize\x001000\x00blksize\x001468\x00windowsize\x004\x00"},
		{Request{BlkSize: 65464, Window: 65535}, 1468, 44, time.Second, true, "\x00\x06blksize\x001468\x00windowsize\x0044\x00"},
		{Request{BlkSize: 8, Window: 1000, Timeout: 5}, 8, 64, 5 * time.Second, true, "\x00\x06blksize\x008\x00windowsize\x0064\x00timeout\x005\x00"},
	}
	for _, tt := range tests {
		n := Negotiate(tt.r)
		if n.BlkSize != tt.blk || n.Window != tt.window || n.Timeout != tt.timeout || n.Options != tt.options {
			t.Errorf("%+v: %+v", tt.r, n)
		}
		if got := string(n.AppendOACK(nil, 1000)); got != tt.oack {
			t.Errorf("%+v: OACK %q", tt.r, got)
		}
		if n.Window*n.SegmentSize() > maxWindowBytes {
			t.Errorf("%+v: a window does not fit one send", tt.r)
		}
	}
}

func TestSender(t *testing.T) {
	// 10 blocks of 512 bytes, the last one empty, windows of 4.
	s := NewSender(9*512, Negotiate(Request{Window: 4}))
	steps := []struct {
		name string
		do   func() Step
		want Step
	}{
		{"start", s.Start, Step{Do: Offer}},
		{"time is up: offer again", s.Timeout, Step{Do: Offer}},
		{"an ACK for what was never sent", func() Step { return s.Ack(1) }, Step{}},
		{"the OACK is acknowledged", func() Step { return s.Ack(0) }, Step{Send, 1, 4}},
		{"a duplicate sends nothing", func() Step { return s.Ack(0) }, Step{}},
		{"block 3 was lost", func() Step { return s.Ack(2) }, Step{Send, 3, 4}},
		{"told again: nothing", func() Step { return s.Ack(2) }, Step{}},
		{"an old ACK: nothing", func() Step { return s.Ack(1) }, Step{}},
		{"an ACK from the future: nothing", func() Step { return s.Ack(7) }, Step{}},
		{"the window arrived", func() Step { return s.Ack(6) }, Step{Send, 7, 4}},
		{"time is up: the window again", s.Timeout, Step{Send, 7, 4}},
		{"all arrived", func() Step { return s.Ack(10) }, Step{Do: Finish}},
	}
	for _, st := range steps {
		if got := st.do(); got != st.want {
			t.Fatalf("%s: %+v, want %+v", st.name, got, st.want)
		}
	}
}

// A client may ask for a timeout of minutes; it cannot hold a transfer that
// long by saying nothing.
func TestPatienceHasAnEnd(t *testing.T) {
	s := NewSender(100, Negotiate(Request{Timeout: 255}))
	s.Start()
	waited := s.Patience()
	for s.Timeout().Do != GiveUp {
		waited += s.Patience()
	}
	if waited > 2*time.Minute {
		t.Errorf("a silent client is waited for %v", waited)
	}
}

func TestSenderGivesUp(t *testing.T) {
	s := NewSender(100, Negotiate(Request{}))
	s.Start()
	last := time.Duration(0)
	for range MaxTries {
		if p := s.Patience(); p < last {
			t.Errorf("patience went from %v to %v", last, p)
		} else {
			last = p
		}
		if st := s.Timeout(); st.Do != Send {
			t.Fatalf("%+v", st)
		}
	}
	if st := s.Timeout(); st.Do != GiveUp {
		t.Errorf("%+v after %d tries", st, MaxTries+1)
	}
}

// TestTransfer sends files of every awkward size over a network that loses,
// doubles and reorders, and counts what was sent.
func TestTransfer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := Request{Name: "x", Mode: "octet"}
		if rapid.Bool().Draw(t, "options") {
			req.BlkSize = rapid.SampledFrom([]int{8, 512, 1468}).Draw(t, "blksize")
			req.Window = rapid.IntRange(0, 70).Draw(t, "window")
			req.TSize = rapid.Bool().Draw(t, "tsize")
		}
		terms := Negotiate(req)
		size := rapid.IntRange(0, 40).Draw(t, "blocks")*terms.BlkSize + rapid.SampledFrom([]int{0, 1, -1}).Draw(t, "odd")
		content := bytes.Repeat([]byte("muster"), max(0, size)/6+1)[:max(0, size)]
		loss := rapid.SampledFrom([]float64{0, 0.05, 0.3}).Draw(t, "loss")
		seed := rapid.Uint64().Draw(t, "seed")
		got, sent := run(t, req, content, loss, seed)
		if !bytes.Equal(got, content) {
			t.Fatalf("%d bytes arrived of %d", len(got), len(content))
		}
		if blocks := len(content)/terms.BlkSize + 1; loss == 0 && sent != blocks {
			t.Fatalf("%d packets for %d blocks on a network that loses nothing", sent, blocks)
		}
	})
}

// run is a network in one goroutine: it returns what arrived and how many DATA
// packets the sender sent.
func run(t interface{ Fatal(...any) }, req Request, content []byte, loss float64, seed uint64) (data []byte, sent int) {
	dice := rand.New(rand.NewPCG(seed, 1))
	terms := Negotiate(req)
	s := NewSender(int64(len(content)), terms)
	r := NewReceiver(req, int64(len(content)))
	var toClient, toServer [][]byte
	post := func(q *[][]byte, b []byte) {
		if loss > 0 && dice.Float64() < loss {
			return
		}
		*q = append(*q, b)
		if loss > 0 && dice.Float64() < loss { // doubled and late
			*q = append(*q, b)
			i := dice.IntN(len(*q))
			(*q)[i], (*q)[len(*q)-1] = (*q)[len(*q)-1], (*q)[i]
		}
	}
	do := func(st Step) bool {
		switch st.Do {
		case Offer:
			post(&toClient, terms.AppendOACK(nil, int64(len(content))))
		case Send:
			sent += st.Count
			all := terms.AppendBlocks(nil, content, st)
			for len(all) > 0 {
				n := min(len(all), terms.SegmentSize())
				post(&toClient, all[:n])
				all = all[n:]
			}
		case Finish, GiveUp:
			return true
		}
		return false
	}
	over := do(s.Start())
	for range 1000000 {
		switch {
		case over:
			return r.Data, sent
		case len(toClient) > 0:
			p, err := Parse(toClient[0])
			if err != nil {
				t.Fatal(err)
			}
			toClient = toClient[1:]
			answer, err := r.Receive(nil, p)
			if err != nil {
				t.Fatal(err)
			}
			if len(answer) > 0 {
				post(&toServer, answer)
			}
		case len(toServer) > 0:
			p, err := Parse(toServer[0])
			if err != nil || p.Op != OpAck {
				t.Fatal(p, err)
			}
			toServer = toServer[1:]
			over = do(s.Ack(p.Block))
		case r.Done && loss > 0: // the last ACK is lost: the client has gone, content
			return r.Data, sent
		default:
			s.tries = 0 // this network comes back
			over = do(s.Timeout())
		}
	}
	t.Fatal("the transfer does not end")
	return nil, 0
}

func TestRollover(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 70000*8/16)
	for _, window := range []int{0, 16} {
		got, sent := run(t, Request{BlkSize: 8, Window: window}, content, 0, 1)
		if !bytes.Equal(got, content) || sent != 70001 {
			t.Errorf("window %d: %d bytes of %d in %d packets", window, len(got), len(content), sent)
		}
	}
}

func TestReceiverRefusesMoreThanAgreed(t *testing.T) {
	r := NewReceiver(Request{}, 100)
	if _, err := r.Receive(nil, Packet{Op: OpData, Block: 1, Data: make([]byte, 512)}); err == nil {
		t.Error("512 bytes of at most 100 were taken")
	}
	r = NewReceiver(Request{}, 10000)
	if _, err := r.Receive(nil, Packet{Op: OpData, Block: 1, Data: make([]byte, 513)}); err == nil {
		t.Error("a block longer than agreed was taken")
	}
	if _, err := r.Receive(nil, Packet{Op: OpError, Code: 1, Text: "no"}); err == nil || !strings.Contains(err.Error(), "no") {
		t.Error(err)
	}
}

func TestSteadyStateMakesNoGarbage(t *testing.T) {
	content := make([]byte, 1<<20)
	terms := Negotiate(Request{BlkSize: 1468, Window: 16})
	buf := make([]byte, 0, maxWindowBytes)
	s := NewSender(int64(len(content)), terms)
	s.Start()
	st := s.Ack(0)
	if n := testing.AllocsPerRun(20, func() {
		buf = terms.AppendBlocks(buf[:0], content, st)
		p, err := Parse([]byte{0, OpAck, byte(s.sent >> 8), byte(s.sent)})
		if err != nil {
			t.Fatal(err)
		}
		st = s.Ack(p.Block)
	}); n != 0 {
		t.Errorf("%v allocations for each window", n)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("\x00\x01x\x00octet\x00tsize\x000\x00blksize\x001468\x00windowsize\x004\x00"))
	f.Add([]byte("\x00\x06tsize\x001000\x00blksize\x001468\x00"))
	f.Add(AppendData(nil, 7, []byte("data")))
	f.Add(AppendError(nil, CodeNotFound, "no such file"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := ParseRequest(b); err == nil {
			again := AppendRequest(nil, r)
			if r2, err := ParseRequest(again); len(again) <= maxRequest && (err != nil || r2 != r) {
				t.Fatalf("%+v, %+v, %v", r, r2, err)
			}
			n := Negotiate(r)
			if n.BlkSize > MaxBlkSize || n.BlkSize < 8 || n.Window < 1 || n.Window*n.SegmentSize() > maxWindowBytes {
				t.Fatalf("granted %+v", n)
			}
		}
		p, err := Parse(b)
		if err != nil {
			return
		}
		r := NewReceiver(Request{}, 1<<16)
		r.Receive(nil, p)
		s := NewSender(1<<20, Negotiate(Request{Window: 64}))
		s.Start()
		s.Ack(p.Block)
		if st := s.Ack(p.Block + 1); st.Count > 64 || st.First+int64(st.Count) > s.blocks+1 {
			t.Fatalf("%+v", st)
		}
	})
}
