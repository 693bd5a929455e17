package bus

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"muster.internal/amqp"
	"muster.internal/setup"
)

const (
	uuid = "564d9f2e-6d6c-4b4a-9a53-0c2b1a6f7d10"
	mac  = "52:54:00:aa:00:01"
)

func TestWhatAnAgentSays(t *testing.T) {
	inTime(t, nothing, func(t *testing.T, b *booter, _ <-chan error) {
		keys, bodies := b.all("ur.")
		if len(keys) != 2 || keys[0] != "ur.startup."+uuid || !strings.HasPrefix(keys[1], "ur.sysinfo."+uuid+".") || bodies[0] != bodies[1] {
			t.Errorf("at the start: %q %q", keys, bodies)
		}
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		if keys, _ := b.all("ur.sysinfo."); len(keys) != 11 {
			t.Errorf("%d announcements in ten minutes", len(keys)-1)
		}
		if len(b.dialled()) != 1 {
			t.Errorf("dialled %d times, though the booter sent heartbeats", len(b.dialled()))
		}
		b.deliver("ur.broadcast.sysinfo.77", "{}")
		b.deliver("ur.broadcast.other.78", "{}")
		b.deliver("ur.ping."+uuid, `{"client_id":"cn","id":"5"}`)
		synctest.Wait()
		if keys, bodies := b.all("ur.execute-reply."); len(keys) != 1 || keys[0] != "ur.execute-reply."+uuid+".77" || bodies[0] != `{"UUID":"`+uuid+`"}` {
			t.Errorf("to a broadcast: %q %q", keys, bodies)
		}
		if keys, bodies := b.all("ur.ack"); len(keys) != 1 || keys[0] != "ur.ackcn."+uuid || !strings.Contains(bodies[0], `"req_id":"5"`) {
			t.Errorf("to a ping: %q %q", keys, bodies)
		}
	})
}

func TestExecute(t *testing.T) {
	var mu sync.Mutex
	var ran []Message
	inTime(t, func(_ context.Context, m Message) Reply {
		mu.Lock()
		ran = append(ran, m)
		mu.Unlock()
		time.Sleep(time.Minute) // in the bubble: the connection goes on living
		return Reply{ExitStatus: 3, Stdout: "out\xff", Stderr: "err"}
	}, func(t *testing.T, b *booter, _ <-chan error) {
		script := `{"type":"script","script":"#!/bin/sh\n","env":{"A":"b"}}`
		b.deliver("ur.execute."+uuid+"-"+mac+".id1", script)
		b.deliver("ur.execute."+uuid+".id2", `{"type":"script","script":"x"}`)
		b.deliver("ur.execute."+uuid+".id1", script) // again
		b.deliver("ur.execute."+uuid+".id3", `{"type":"file","file":"/bin/true"}`)
		b.deliver("ur.execute."+uuid+".id4", `{}`)
		b.deliver("ur.execute."+uuid+".id5", `not JSON`)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(ran) != 2 {
			t.Fatalf("ran %+v", ran)
		}
		if ran[0].ID != "id1" {
			ran[0], ran[1] = ran[1], ran[0]
		}
		if ran[0].Script != "#!/bin/sh\n" || ran[0].Env["A"] != "b" || ran[1].ID != "id2" || ran[1].Env != nil {
			t.Errorf("ran %+v", ran)
		}
		time.Sleep(2 * time.Minute)
		keys, bodies := b.all("ur.execute-reply.")
		if len(keys) != 2 || bodies[0] != `{"exit_status":3,"stdout":"out\ufffd","stderr":"err"}` {
			t.Errorf("answered %q %q", keys, bodies)
		}
	})
}

// TestReboot: 113 is answered with 0, and the agent ends a second after the
// booter has read that.
func TestReboot(t *testing.T) {
	inTime(t, func(context.Context, Message) Reply { return Reply{ExitStatus: setup.ExitReboot, Stdout: "done"} },
		func(t *testing.T, b *booter, ended <-chan error) {
			start := time.Now()
			b.deliver("ur.execute."+uuid+".id1", `{"type":"script","script":"x"}`)
			if err := <-ended; err != ErrReboot {
				t.Errorf("ended with %v", err)
			}
			_, bodies := b.all("ur.execute-reply.")
			if d := time.Since(start); d != time.Second || len(bodies) != 1 || bodies[0] != `{"exit_status":0,"stdout":"done","stderr":""}` {
				t.Errorf("after %v: %q", d, bodies)
			}
		})
}

// TestRebootWithoutBooter: nobody reads the answer; the machine restarts all
// the same, for its next boot is proof too.
func TestRebootWithoutBooter(t *testing.T) {
	inTime(t, func(context.Context, Message) Reply {
		time.Sleep(time.Minute)
		return Reply{ExitStatus: setup.ExitReboot}
	}, func(t *testing.T, b *booter, ended <-chan error) {
		b.deliver("ur.execute."+uuid+".id1", `{"type":"script","script":"x"}`)
		synctest.Wait()
		b.mu.Lock()
		b.deaf = true
		b.conn.Close()
		b.mu.Unlock()
		start := time.Now()
		if err := <-ended; err != ErrReboot {
			t.Errorf("ended with %v", err)
		}
		if d := time.Since(start); d != time.Minute+11*time.Second {
			t.Errorf("after %v", d)
		}
	})
}

// TestReconnect: soon after an error, later after a goodbye; the startup is
// not said again, the answers are, with their ids.
func TestReconnect(t *testing.T) {
	inTime(t, func(_ context.Context, m Message) Reply { return Reply{Stdout: m.ID} }, func(t *testing.T, b *booter, _ <-chan error) {
		b.deliver("ur.execute."+uuid+".id1", `{"type":"script","script":"x"}`)
		synctest.Wait()
		b.mu.Lock()
		b.conn.Close()
		b.mu.Unlock()
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		b.do(func(s *amqp.Session) { s.Close(amqp.ConnectionForced, "the booter stops") })
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if d := b.dialled(); len(d) != 3 || d[1].Sub(d[0]) != time.Second || d[2].Sub(d[1]) != 30*time.Second+500*time.Millisecond {
			t.Errorf("dialled at %v", d)
		}
		if keys, _ := b.all("ur.startup."); len(keys) != 1 {
			t.Errorf("started %d times", len(keys))
		}
		keys, _ := b.all("ur.")
		last := keys[len(keys)-2:]
		if !strings.HasPrefix(last[0], "ur.sysinfo.") || last[1] != "ur.execute-reply."+uuid+".id1" {
			t.Errorf("at last: %q", last)
		}
		if keys, _ := b.all("ur.execute-reply."); len(keys) != 3 {
			t.Errorf("answered %q", keys)
		}
	})
}

// TestBooterAway: attempts grow rarer, up to one in half a minute.
func TestBooterAway(t *testing.T) {
	inTime(t, nothing, func(t *testing.T, b *booter, _ <-chan error) {
		b.mu.Lock()
		b.deaf = true
		b.conn.Close()
		b.mu.Unlock()
		time.Sleep(10 * time.Minute)
		b.mu.Lock()
		n := len(b.dials)
		b.deaf = false
		b.mu.Unlock()
		if n < 20 || n > 30 {
			t.Errorf("%d attempts in ten minutes", n)
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if keys, _ := b.all("ur.sysinfo."); len(keys) != 2 {
			t.Errorf("announced %q", keys)
		}
	})
}

// TestSilentBooter: two heartbeats without a word, and the agent tries anew.
func TestSilentBooter(t *testing.T) {
	inTime(t, nothing, func(t *testing.T, b *booter, _ <-chan error) {
		b.mu.Lock()
		b.mute = true
		b.mu.Unlock()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if len(b.dialled()) != 1 {
			t.Error("gave up too early")
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if len(b.dialled()) != 2 {
			t.Errorf("dialled %d times", len(b.dialled()))
		}
	})
}

func TestDialGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		go io.Copy(io.Discard, far)
		start := time.Now()
		_, err := Dial(t.Context(), Options{Connect: func(context.Context, string) (net.Conn, error) { return near, nil }})
		if err == nil || time.Since(start) != dialTimeout {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

func TestWrongPassword(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &booter{t: t}
		_, err := Dial(t.Context(), Options{User: "u", Password: "wrong", UUID: uuid, MAC: mac, Connect: b.connect})
		if !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "403") || strings.Contains(err.Error(), "wrong user or password: wrong") {
			t.Error(err)
		}
	})
}

func TestReplyFits(t *testing.T) {
	for _, unit := range []string{"x", "\x01", "\xff", "é", "\"", "line\n"} {
		for _, n := range []int{0, 1, 50 << 10, MaxOutput + 1} {
			out := strings.Repeat(unit, n/len(unit)) + "END"
			b := encode(Reply{ExitStatus: 1, Stdout: out, Stderr: out})
			var got struct{ Stdout string }
			if len(b) > maxReply || !utf8.Valid(b) || json.Unmarshal(b, &got) != nil || !strings.HasSuffix(got.Stdout, "END") {
				t.Errorf("%d bytes of %q make a reply of %d", n, unit, len(b))
			}
			if n < 100<<10 && unit != "\xff" && got.Stdout != out {
				t.Errorf("%d bytes of %q were cut", n, unit)
			}
		}
	}
}

// TestKeptRepliesAreBounded: the newest is always there.
func TestKeptRepliesAreBounded(t *testing.T) {
	a := &Agent{}
	for i := range 20 {
		a.keep(reply{key: string(rune('a' + i)), body: make([]byte, (i%7)<<20)})
		size := 0
		for _, r := range a.replies {
			size += len(r.body)
		}
		if n := len(a.replies); n == 0 || n > keptReplies || a.replies[n-1].key != string(rune('a'+i)) || n > 1 && size > maxReply {
			t.Fatalf("after %d: %d replies, %d bytes", i, n, size)
		}
	}
}

// FuzzServer: whatever a server says, the client neither panics nor hangs.
func FuzzServer(f *testing.F) {
	var hello []byte
	for _, m := range []amqp.Method{&amqp.ConnectionStart{Minor: 9}, &amqp.ConnectionTune{FrameMax: amqp.FrameMax}, &amqp.ConnectionOpenOK{}} {
		hello = amqp.AppendMethod(hello, 0, m)
	}
	f.Add(hello)
	f.Add(amqp.AppendMethod(hello, 0, &amqp.ConnectionClose{Code: 320}))
	full := hello
	for _, m := range []struct {
		c uint16
		m amqp.Method
	}{{1, &amqp.ChannelOpenOK{}}, {2, &amqp.ChannelOpenOK{}}, {2, &amqp.QueueDeclareOK{}}, {2, &amqp.QueueBindOK{}}, {2, &amqp.QueueBindOK{}}, {2, &amqp.QueueBindOK{}},
		{2, &amqp.BasicQosOK{}}, {2, &amqp.BasicConsumeOK{}}, {3, &amqp.ChannelOpenOK{}}, {3, &amqp.QueueDeclareOK{}}, {3, &amqp.BasicQosOK{}}, {3, &amqp.QueueBindOK{}}, {3, &amqp.BasicConsumeOK{}},
		{2, &amqp.BasicDeliver{Key: "ur.execute." + uuid + ".1", DeliveryTag: 1}}} {
		full = amqp.AppendMethod(full, m.c, m.m)
	}
	f.Add(amqp.AppendContent(full, 2, amqp.JSON, []byte("{}"), amqp.FrameMax))
	f.Fuzz(func(t *testing.T, said []byte) {
		synctest.Test(t, func(t *testing.T) {
			defer time.Sleep(2 * time.Second) // in the bubble: until all is over
			near, far := net.Pipe()
			defer far.Close()
			go io.Copy(io.Discard, far)
			go func() { far.Write(said); time.Sleep(time.Second); far.Close() }()
			c, err := Dial(t.Context(), Options{UUID: uuid, MAC: mac, Connect: func(context.Context, string) (net.Conn, error) { return near, nil }})
			if err != nil {
				return
			}
			for err == nil {
				_, err = c.Next(t.Context())
			}
			c.Close()
		})
	})
}
