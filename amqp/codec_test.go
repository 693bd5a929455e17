package amqp

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// everyMethod has one value of each method, with something in every field.
func everyMethod() []Method {
	table := Table{
		{"S", "text"}, {"I", int32(-5)}, {"D", Decimal{2, 314}}, {"d", math.Pi}, {"f", float32(1.5)},
		{"T", Timestamp(1764500000)}, {"F", Table{{"inner", true}}}, {"l", int64(-1 << 40)}, {"t", false},
		{"x", []byte{0, 1, 2}}, {"A", []any{"a", int32(1), Table{{"deep", []any{}}}}}, {"S", "the name again"},
	}
	return []Method{
		&ConnectionStart{0, 9, table, "AMQPLAIN PLAIN", "en_US"},
		&ConnectionStartOK{table, "PLAIN", "\x00u\x00p", "en_US"},
		&ConnectionTune{2047, FrameMax, 30}, &ConnectionTuneOK{0, FrameMax, 30},
		&ConnectionOpen{"/", "r", true}, &ConnectionOpenOK{"r"},
		&ConnectionClose{403, "no", 10, 11}, &ConnectionCloseOK{},
		&ChannelOpen{"r"}, &ChannelOpenOK{"r"}, &ChannelFlow{true}, &ChannelFlowOK{false},
		&ChannelClose{404, "none", 50, 20}, &ChannelCloseOK{},
		&ExchangeDeclare{1, "amq.topic", "topic", true, false, true, false, true, table}, &ExchangeDeclareOK{},
		&QueueDeclare{1, "q", false, true, false, true, true, table}, &QueueDeclareOK{"q", 3, 4},
		&QueueBind{1, "q", "e", "k.*", true, table}, &QueueBindOK{},
		&QueuePurge{1, "q", true}, &QueuePurgeOK{7}, &QueueDelete{1, "q", true, false, true}, &QueueDeleteOK{7},
		&QueueUnbind{1, "q", "e", "k", table}, &QueueUnbindOK{},
		&BasicQos{0, 1, true}, &BasicQosOK{},
		&BasicConsume{1, "q", "t", true, false, true, false, table}, &BasicConsumeOK{"t"},
		&BasicCancel{"t", true}, &BasicCancelOK{"t"},
		&BasicPublish{1, "e", "k", true, true}, &BasicDeliver{"t", 1 << 60, true, "e", "k"},
		&BasicAck{9, true}, &BasicReject{9, true}, &BasicNack{9, true, true},
	}
}

func TestMethodsReadWhatTheyWrite(t *testing.T) {
	seen := map[uint32]bool{}
	for _, m := range everyMethod() {
		seen[m.id()] = true
		b := AppendMethod(nil, 7, m)
		f, n, err := ParseFrame(b, FrameMax)
		if err != nil || n != len(b) || f.Channel != 7 || f.Type != FrameMethod {
			t.Fatalf("%T: frame %+v, %d of %d bytes, %v", m, f, n, len(b), err)
		}
		got, err := ParseMethod(f.Payload)
		if err != nil {
			t.Fatalf("%T: %v", m, err)
		}
		if d := cmp.Diff(m, got); d != "" {
			t.Errorf("%T: %s", m, d)
		}
		for cut := range f.Payload {
			if _, err := ParseMethod(f.Payload[:cut]); err == nil {
				t.Errorf("%T: %d of %d bytes are taken for a whole method", m, cut, len(f.Payload))
			}
		}
		if _, err := ParseMethod(append(f.Payload[:len(f.Payload):len(f.Payload)], 0)); err == nil {
			t.Errorf("%T: a byte too many is ignored", m)
		}
	}
	for id := uint32(0); id < 100<<16; id++ {
		if (newMethod(id) != nil) != seen[id] {
			t.Errorf("method %d.%d is not in the list of this test", id>>16, id&0xffff)
		}
		if id&0xffff == 200 {
			id |= 0xffff
		}
	}
}

func TestMethodErrors(t *testing.T) {
	for _, c := range []struct {
		name    string
		payload string
		code    uint16
	}{
		{"nothing", "", SyntaxError},
		{"half an id", "\x00\x0a\x00", SyntaxError},
		{"tx.select", "\x00\x5a\x00\x0a", NotImplemented},
		{"basic.get", "\x00\x3c\x00\x46", NotImplemented},
		{"undefined flag", "\x00\x14\x00\x14\x02", SyntaxError},
		{"table beyond the end", "\x00\x0a\x00\x0b\x00\x00\xff\xff", SyntaxError},
		{"field beyond its table", "\x00\x0a\x00\x0b\x00\x00\x00\x04\x01aS\x00", SyntaxError},
		{"unknown field type", "\x00\x0a\x00\x0b\x00\x00\x00\x03\x01aZ\x00\x00\x00\x00\x00\x00", SyntaxError},
		{"string of 4 GiB", "\x00\x0a\x00\x0b\x00\x00\x00\x00\x05PLAIN\xff\xff\xff\xff", SyntaxError},
	} {
		_, err := ParseMethod([]byte(c.payload))
		if e, ok := err.(*Error); !ok || e.Code != c.code {
			t.Errorf("%s: %v, want code %d", c.name, err, c.code)
		}
	}
	deep := Table{}
	for range 20 {
		deep = Table{{"t", deep}}
	}
	c := coder{writing: true}
	c.tableBody(&deep, 100)
	in := coder{b: c.b}
	var got Table
	if in.tableBody(&got, maxDepth); in.err == nil {
		t.Error("a table twenty deep is read")
	}
}

func TestFrames(t *testing.T) {
	big := AppendFrame(nil, Frame{Type: FrameBody, Channel: 1, Payload: make([]byte, FrameMax)})
	if _, n, err := ParseFrame(big, FrameMax); err != nil || n != FrameMax+8 {
		t.Errorf("a body whose frame is 8 bytes over frame-max: %d, %v", n, err)
	}
	over := AppendFrame(nil, Frame{Type: FrameBody, Channel: 1, Payload: make([]byte, FrameMax+1)})
	if _, _, err := ParseFrame(over[:7], FrameMax); err == nil {
		t.Error("a frame 9 bytes over frame-max is accepted")
	}
	for name, b := range map[string]string{
		"type 4": "\x04\x00\x00\x00\x00\x00\x00\xce", "wrong end": "\x08\x00\x00\x00\x00\x00\x00\xcd", "HTTP": "GET / HTTP/1.1\r\n",
	} {
		if _, _, err := ParseFrame([]byte(b), FrameMax); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestSplitterDoesNotCareAboutPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream []byte
		var want []string
		for range rapid.IntRange(0, 8).Draw(t, "frames") {
			p := rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "payload")
			want = append(want, string(p))
			stream = AppendFrame(stream, Frame{Type: FrameBody, Channel: 3, Payload: p})
		}
		var s Splitter
		var got []string
		for len(stream) > 0 {
			n := rapid.IntRange(1, len(stream)).Draw(t, "piece")
			s.Push(stream[:n])
			stream = stream[n:]
			for {
				f, ok, err := s.Next()
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				got = append(got, string(f.Payload))
			}
		}
		if !cmp.Equal(want, got) || s.Buffered() != 0 {
			t.Fatalf("%d frames of %d, %d bytes left", len(got), len(want), s.Buffered())
		}
	})
}

func TestContent(t *testing.T) {
	all := Properties{
		Flags: 0xfffc, ContentType: "application/json", ContentEncoding: "utf-8", Headers: Table{{"h", int64(1)}}, DeliveryMode: 2,
		Priority: 3, CorrelationID: "c", ReplyTo: "r", Expiration: "60000", MessageID: "m", Timestamp: 1, Type: "t", UserID: "u",
		AppID: "a", ClusterID: "k",
	}
	body := bytes.Repeat([]byte("0123456789"), 30000)
	for _, p := range []Properties{{}, JSON, all} {
		for _, size := range []int{0, 1, 4088, 4089, 300000} {
			b := AppendContent(nil, 2, p, body[:size], 4096)
			var a Assembly
			if err := a.Begin("e", "k"); err != nil {
				t.Fatal(err)
			}
			for done := false; !done; {
				f, n, err := ParseFrame(b, 4096-8)
				if err != nil || n == 0 {
					t.Fatal(n, err)
				}
				b = b[n:]
				if f.Type == FrameHeader {
					done, err = a.Header(f.Payload, 1<<20)
				} else {
					done, err = a.Body(f.Payload)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			m, ok := a.Take()
			if want := (Message{"e", "k", p, body[:size]}); !ok || len(b) > 0 || !bytes.Equal(m.Body, want.Body) || !cmp.Equal(m.Properties, p) {
				t.Errorf("%d bytes: %+v", size, m.Properties)
			}
		}
	}
}

func TestContentHeaderErrors(t *testing.T) {
	for name, b := range map[string]string{
		"weight":              "\x00\x3c\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
		"continued flags":     "\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01",
		"short":               "\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80",
		"bytes at the end":    "\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
		"type beyond the end": "\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x00\xff",
	} {
		if _, err := ParseHeader([]byte(b)); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, key string
		want         bool
	}{
		{"ur.execute.*.*", "ur.execute.a.b", true}, {"ur.execute.*.*", "ur.execute.a", false},
		{"ur.broadcast.*.*", "ur.broadcast.sysinfo.77", true}, {"#", "", true}, {"#", "a.b", true}, {"*", "", false},
		{"ur.sysinfo.#", "ur.sysinfo", true}, {"ur.sysinfo.#", "ur.sysinfo.a.b", true}, {"#.b", "a.b", true}, {"#.b", "a.b.c", false},
		{"a.#.b.#.c", "a.x.b.b.c", true}, {"a.*", "a.", true}, {"", "", true}, {"", "a", false}, {"A", "a", false}, {"*.#.*", "a", false},
	} {
		if got := Match(c.pattern, c.key); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.pattern, c.key, got)
		}
	}
}

// TestMatchAgainstDefinition compares with the definition written as recursion.
func TestMatchAgainstDefinition(t *testing.T) {
	var slow func(p, k []string) bool
	slow = func(p, k []string) bool {
		switch {
		case len(p) == 0:
			return len(k) == 0
		case p[0] == "#":
			return slow(p[1:], k) || len(k) > 0 && slow(p, k[1:])
		}
		return len(k) > 0 && (p[0] == "*" || p[0] == k[0]) && slow(p[1:], k[1:])
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*", "#", ""}), 1, 7).Draw(t, "pattern")
		k := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", ""}), 1, 7).Draw(t, "key")
		ps, ks := strings.Join(p, "."), strings.Join(k, ".")
		if ps == "" || ks == "" {
			return // no word or one empty word: tabled above
		}
		if Match(ps, ks) != slow(p, k) {
			t.Fatalf("Match(%q, %q) = %v", ps, ks, Match(ps, ks))
		}
	})
	if Match(strings.Repeat("#.a.", 60)+"b", strings.Repeat("a.", 120)+"c") {
		t.Error("an impossible match was found")
	}
}
