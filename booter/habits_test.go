package booter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"muster.internal/amqp"
	"muster.internal/setup"
)

// TestHabits are a stock agent's habits, and those of what is no agent at all,
// each with what the bus makes of it.
func TestHabits(t *testing.T) {
	for _, h := range []struct {
		habit string
		test  func(t *testing.T, b *testBus, l *pipeListener)
	}{
		{"the start is answered method by method", func(t *testing.T, b *testBus, l *pipeListener) {
			s := startStock(t, l, uuidA, macA, ipA)
			settle()
			tags := ""
			for _, c := range answered[*amqp.BasicConsumeOK](s) {
				tags += c.Tag + " "
			}
			got := fmt.Sprintf("%d channels, %d queues, %d bindings, %d qos, tags %s", len(answered[*amqp.ChannelOpenOK](s)), len(answered[*amqp.QueueDeclareOK](s)),
				len(answered[*amqp.QueueBindOK](s)), len(answered[*amqp.BasicQosOK](s)), tags)
			if got != "3 channels, 2 queues, 4 bindings, 2 qos, tags node-amqp-1 node-amqp-ping " || s.over() {
				t.Error(got)
			}
		}},
		{"the AMQPLAIN table in another order, with more in it", func(t *testing.T, b *testBus, l *pipeListener) {
			s := connectStock(t, l, uuidA, macA, ipA)
			s.raw([]byte(amqp.Header))
			table := "\x05extraS\x00\x00\x00\x01x\x08PASSWORDS\x00\x00\x00\x06s3cret\x05LOGINS\x00\x00\x00\x06muster"
			s.send(0, &amqp.ConnectionStartOK{Mechanism: "AMQPLAIN", Response: table, Locale: "en_US"})
			s.send(0, &amqp.ConnectionTuneOK{FrameMax: amqp.FrameMax, Heartbeat: 30}, &amqp.ConnectionOpen{VirtualHost: "/"})
			settle()
			if len(answered[*amqp.ConnectionOpenOK](s)) != 1 {
				t.Errorf("answered %v", s.answers)
			}
		}},
		{"a reconnection says nothing, and is asked", func(t *testing.T, b *testBus, l *pipeListener) {
			s := startStock(t, l, uuidA, macA, ipA)
			time.Sleep(5 * time.Second)
			asked := s.heard("ur.broadcast.sysinfo.")
			if len(asked) != 1 || string(asked[0].Body) != "{}" || asked[0].ContentType != "application/json" || strings.Count(asked[0].Key, ".") != 3 {
				t.Fatalf("asked %+v", asked)
			}
			s.publish("ur.execute-reply."+uuidA+"."+id(asked[0].Key), sysinfo(uuidA, ""))
			if a := b.control.await(t, "announce", nil).a; a.ServerUUID != uuidA || a.MAC != macA || a.Source != ipA {
				t.Errorf("announced %+v", a)
			}
		}},
		{"bindings are sent twice", func(t *testing.T, b *testBus, l *pipeListener) {
			s := startStock(t, l, uuidA, macA, ipA)
			s.bindings(2)
			time.Sleep(5 * time.Second)
			if n := len(s.heard("ur.broadcast")); n != 1 || len(answered[*amqp.QueueBindOK](s)) != 7 {
				t.Errorf("%d copies, %d bindings answered", n, len(answered[*amqp.QueueBindOK](s)))
			}
		}},
		{"each reconnection opens one more ping channel", func(t *testing.T, b *testBus, l *pipeListener) {
			s := startStock(t, l, uuidA, macA, ipA)
			s.sysinfo()
			for ch := uint16(4); ch < 204; ch++ {
				s.ping(ch)
			}
			settle()
			if n := len(answered[*amqp.ChannelOpenOK](s)); n != 203 || s.over() || len(b.sessions()) != 1 {
				t.Errorf("%d channels, over %v", n, s.over())
			}
		}},
		{"frames are eight bytes larger than agreed", func(t *testing.T, b *testBus, l *pipeListener) {
			s := startStock(t, l, uuidA, macA, ipA)
			s.publish("ur.startup."+uuidA, []byte(`{"UUID":"`+uuidA+`","x":"`+strings.Repeat("x", 3*amqp.FrameMax)+`"}`))
			if a := b.control.await(t, "announce", nil).a; len(a.Sysinfo) < 3*amqp.FrameMax {
				t.Errorf("%d bytes", len(a.Sysinfo))
			}
		}},
		{"frames nine bytes larger are refused", func(t *testing.T, b *testBus, l *pipeListener) {
			s := startStock(t, l, uuidA, macA, ipA)
			x := amqp.AppendMethod(nil, 1, &amqp.BasicPublish{Exchange: "amq.topic", Key: "ur.startup." + uuidA})
			s.raw(amqp.AppendContent(x, 1, amqp.JSON, bytes.Repeat([]byte("x"), amqp.FrameMax+1), amqp.FrameMax+9))
			settle()
			if c := answered[*amqp.ConnectionClose](s); len(c) != 1 || c[0].Code != amqp.FrameError {
				t.Errorf("closed with %+v", c)
			}
		}},
		{"what is said before the queue is named", func(t *testing.T, b *testBus, l *pipeListener) {
			s := connectStock(t, l, uuidA, macA, ipA)
			s.login()
			s.sysinfo() // the first ur.sysinfo is published before the queues are there
			s.listen(2)
			b.control.await(t, "announce", nil)
		}},
		{"a message is acknowledged before it runs; two run at once", func(t *testing.T, b *testBus, l *pipeListener) {
			s := startStock(t, l, uuidA, macA, ipA)
			s.sysinfo()
			session := b.control.await(t, "announce", nil).session
			one, forget1 := b.Expect("id1", uuidA, macA, session, "")
			two, forget2 := b.Expect("id2", uuidA, macA, session, "")
			defer forget1()
			defer forget2()
			if b.Send(session, "id1", "#!/bin/sh\n", nil) != nil || b.Send(session, "id2", "#!/bin/sh\n", nil) != nil {
				t.Fatal("not sent")
			}
			settle()
			if n := len(s.heard("ur.execute.")); n != 2 {
				t.Fatalf("%d of 2 delivered with prefetch 1", n)
			}
			s.publish("ur.execute-reply."+uuidA+".id2", []byte(`{"exit_status":0,"stdout":"","stderr":""}`))
			s.publish("ur.execute-reply."+uuidA+".id1", []byte(`{"exit_status":3,"stdout":"","stderr":""}`))
			if r1, r2 := <-one, <-two; r1.Status != "3" || r2.Status != "0" {
				t.Errorf("%+v %+v", r1, r2)
			}
		}},
		{"answers as they come", func(t *testing.T, b *testBus, l *pipeListener) {
			s := startStock(t, l, uuidA, macA, ipA)
			s.sysinfo()
			session := b.control.await(t, "announce", nil).session
			for n, c := range []struct{ body, status, stdout, stderr string }{
				{`{"exit_status":"ENOENT","stdout":"","stderr":"spawn ENOENT"}`, "ENOENT", "", "spawn ENOENT"},
				{`{"exit_status":1,"stdout":"killed"}`, "1", "killed", ""},
				{`{"exit_status":0,"stdout":"after exit 113","stderr":""}`, "0", "after exit 113", ""},
				{`{"exit_status":"ERR_CHILD_PROCESS_STDIO_MAXBUFFER","stdout":"` + strings.Repeat("y", 5<<20) + `","stderr":""}`, "ERR_CHILD_PROCESS_STDIO_MAXBUFFER", strings.Repeat("y", 5<<20), ""},
				{"{\"exit_status\":0,\"stdout\":\"a\xff\xfeb\",\"stderr\":\"\"}", "0", "a��b", ""},
				{`{"exit_status":null,"stdout":null}`, "null", "", ""},
			} {
				rid := fmt.Sprint("id", n)
				answer, forget := b.Expect(rid, uuidA, macA, session, "")
				s.publish("ur.execute-reply."+uuidA+"."+rid, []byte(c.body))
				if r := <-answer; r.Status != c.status || r.Stdout != c.stdout || r.Stderr != c.stderr {
					t.Errorf("%.60s: %s %.60q %q", c.body, r.Status, r.Stdout, r.Stderr)
				}
				forget()
			}
		}},
		{"an empty execute is published after a 405", func(t *testing.T, b *testBus, l *pipeListener) {
			s := startStock(t, l, uuidA, macA, ipA)
			other := startStock(t, l, uuidB, macB, ipB)
			s.sysinfo()
			s.publish("ur.execute."+uuidA+".77", []byte("{}"))
			s.publish("ur.execute."+uuidB+".78", []byte(`{"type":"script","script":"#!/bin/sh\n"}`))
			settle()
			if len(s.heard("ur.execute."))+len(other.heard("ur.execute.")) != 0 || s.over() || b.Counters()["bus_refused_messages"] != 0 {
				t.Error("it reached a machine, or ended the connection")
			}
		}},
		{"the acknowledgement of a ping has no dot before the client", func(t *testing.T, b *testBus, l *pipeListener) {
			s := startStock(t, l, uuidA, macA, ipA)
			s.sysinfo()
			s.publish("ur.ackcnapi-1."+uuidA, []byte(`{"req_id":"5","timestamp":"2026-11-30T00:00:00.000Z"}`))
			settle()
			if s.over() || b.Counters()["bus_refused_messages"] != 0 {
				t.Error("it is refused")
			}
		}},
		{"a half-open connection is taken over by the newest", func(t *testing.T, b *testBus, l *pipeListener) {
			old := startStock(t, l, uuidA, macA, ipA)
			old.sysinfo()
			settle()
			fresh := startStock(t, l, uuidA, macA, ipA)
			settle()
			c := answered[*amqp.ConnectionClose](old)
			if len(c) != 1 || c[0].Code != amqp.ConnectionForced || fresh.over() || len(answered[*amqp.ChannelClose](fresh)) != 0 {
				t.Errorf("the old one: %+v; the new one is over: %v", c, fresh.over())
			}
		}},
		{"a connection.close gets no close-ok", func(t *testing.T, b *testBus, l *pipeListener) {
			s := startStock(t, l, uuidA, macA, ipA)
			s.sysinfo()
			b.find(b.control.await(t, "announce", nil).session).close(amqp.ConnectionForced, "because")
			time.Sleep(3 * lingerFor)
			if !s.over() {
				t.Error("it is waited for")
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			if len(b.conns) != 0 {
				t.Errorf("%d connections are left", len(b.conns))
			}
		}},
		{"heartbeats every 30 seconds keep it", func(t *testing.T, b *testBus, l *pipeListener) {
			s := startStock(t, l, uuidA, macA, ipA)
			s.sysinfo()
			for range 40 {
				time.Sleep(30 * time.Second)
				s.raw(amqp.AppendHeartbeat(nil))
			}
			settle()
			s.mu.Lock()
			beats := s.beats
			s.mu.Unlock()
			if s.over() || beats < 75 || beats > 81 {
				t.Errorf("over %v after 20 minutes, %d heartbeats heard", s.over(), beats)
			}
		}},
		{"a channel.close of ours is answered, and the channel opened anew", func(t *testing.T, b *testBus, l *pipeListener) {
			s := startStock(t, l, uuidA, macA, ipA)
			s.sysinfo()
			s.publish("ur.execute-reply."+uuidA+".1", bytes.Repeat([]byte("x"), 7<<20))
			settle()
			c := answered[*amqp.ChannelClose](s)
			if len(c) != 1 || c[0].Code != amqp.ContentTooLarge || s.over() {
				t.Fatalf("closed %+v, over %v", c, s.over())
			}
			s.send(1, &amqp.ChannelOpen{})
			s.sysinfo()
			settle()
			if s.over() || len(b.sessions()) != 1 {
				t.Error("it cannot go on")
			}
		}},
		{"a script without a type that it knows gets no answer", func(t *testing.T, b *testBus, l *pipeListener) {
			b.control.survey = true
			s := startStock(t, l, uuidA, macA, ipA)
			for range 16 { // it beats, and says nothing of the survey
				s.sysinfo()
				time.Sleep(25 * time.Second)
			}
			if s.over() || b.control.count("survey") != 0 || b.Counters()["bus_refused_announcements"] == 0 || len(s.heard("ur.execute.")) == 0 {
				t.Errorf("over %v, %v", s.over(), b.Counters())
			}
		}},
		{"two machines with one UUID: the one whose session is named", func(t *testing.T, b *testBus, l *pipeListener) {
			one, two := startStock(t, l, uuidA, macA, ipA), startStock(t, l, uuidA, macB, ipB)
			one.sysinfo()
			two.sysinfo()
			session := b.control.await(t, "announce", func(s said) bool { return s.a.MAC == macB }).session
			settle()
			if err := b.Send(session, "1", setup.Script, map[string]string{"A": "b"}); err != nil {
				t.Fatal(err)
			}
			settle()
			got := two.heard("ur.execute.")
			if len(got) != 1 || got[0].Key != "ur.execute."+uuidA+"-"+macB+".1" || len(one.heard("ur.execute.")) != 0 {
				t.Errorf("two: %+v, one: %+v", got, one.heard("ur.execute."))
			}
		}},
		{"no connection with no-ack is kept from hearing", func(t *testing.T, b *testBus, l *pipeListener) {
			s := startStock(t, l, uuidA, macA, ipA)
			s.mute = true // takes deliveries, acknowledges nothing: with no-ack off the next one waits
			s.sysinfo()
			session := b.control.await(t, "announce", nil).session
			for n := range 3 {
				if err := b.Send(session, fmt.Sprint(n), "#!/bin/sh\n", nil); err != nil {
					t.Fatal(err)
				}
			}
			settle()
			if n := len(s.heard("ur.execute.")); n != 1 {
				t.Errorf("%d deliveries without an acknowledgement, prefetch 1", n)
			}
		}},

		{"junk instead of a protocol header", func(t *testing.T, b *testBus, l *pipeListener) {
			for _, junk := range []string{"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "AMQP\x00\x01\x00\x00", "AMQP\x01\x01\x09\x01"} {
				c, err := l.from(ipA)(t.Context(), "")
				if err != nil {
					t.Fatal(err)
				}
				go c.Write([]byte(junk))
				buf := make([]byte, 16)
				if n, err := c.Read(buf); string(buf[:n]) != amqp.Header {
					t.Errorf("%q is answered with %q, %v", junk, buf[:n], err)
				}
				c.Close()
			}
		}},
		{"slow words after the header", func(t *testing.T, b *testBus, l *pipeListener) {
			s := connectStock(t, l, uuidA, macA, ipA)
			s.raw([]byte(amqp.Header))
			start := time.Now()
			b2 := amqp.AppendMethod(nil, 0, &amqp.ConnectionStartOK{Mechanism: "AMQPLAIN", Response: amqp.Login("AMQPLAIN", "muster", "s3cret"), Locale: "en_US"})
			for i := 0; i < len(b2) && !s.over(); i++ {
				s.raw(b2[i : i+1])
				time.Sleep(5 * time.Second)
			}
			if d := time.Since(start); !s.over() || d > 70*time.Second {
				t.Errorf("over %v after %v", s.over(), d)
			}
		}},
		{"a frame that claims four gigabytes", func(t *testing.T, b *testBus, l *pipeListener) {
			s := startStock(t, l, uuidA, macA, ipA)
			s.raw(binary.BigEndian.AppendUint32([]byte{amqp.FrameBody, 0, 1}, 0xffffffff))
			settle()
			if c := answered[*amqp.ConnectionClose](s); len(c) != 1 || c[0].Code != amqp.FrameError {
				t.Errorf("closed with %+v", c)
			}
		}},
		{"bodies that claim much and send little", func(t *testing.T, b *testBus, l *pipeListener) {
			s := startStock(t, l, uuidA, macA, ipA)
			for ch := uint16(10); ch < 400; ch++ {
				s.send(ch, &amqp.ChannelOpen{}, &amqp.BasicPublish{Exchange: "amq.topic", Key: "x"})
				head := binary.BigEndian.AppendUint64([]byte{0, 60, 0, 0}, 6<<20)
				s.raw(amqp.AppendFrame(nil, amqp.Frame{Type: amqp.FrameHeader, Channel: ch, Payload: append(head, 0, 0)}))
			}
			settle()
			b.mu.Lock()
			held := b.buffered
			b.mu.Unlock()
			if held > 4<<20 {
				t.Errorf("%d bytes are held", held)
			}
		}},
		{"tables too deep and too long", func(t *testing.T, b *testBus, l *pipeListener) {
			deep, long := "", ""
			for range 1000 {
				deep = "\x01xF" + string(binary.BigEndian.AppendUint32(nil, uint32(len(deep)))) + deep
			}
			for range 30000 {
				long += "\x01xV"
			}
			for _, table := range []string{deep, long} {
				s := connectStock(t, l, uuidA, macA, ipA)
				s.raw([]byte(amqp.Header))
				head := binary.BigEndian.AppendUint32([]byte{0, 10, 0, 11}, uint32(len(table)))
				s.raw(amqp.AppendFrame(nil, amqp.Frame{Type: amqp.FrameMethod, Payload: append(head, table+"\x08AMQPLAIN\x00\x00\x00\x00\x05en_US"...)}))
				settle()
				if c := answered[*amqp.ConnectionClose](s); len(c) != 1 || len(answered[*amqp.ConnectionTune](s)) != 0 {
					t.Errorf("answered %v", s.answers)
				}
			}
		}},
		{"no exclusive queue, no vhost but /", func(t *testing.T, b *testBus, l *pipeListener) {
			s := connectStock(t, l, uuidA, macA, ipA)
			s.raw([]byte(amqp.Header))
			s.send(0, &amqp.ConnectionStartOK{Mechanism: "AMQPLAIN", Response: amqp.Login("AMQPLAIN", "muster", "s3cret"), Locale: "en_US"},
				&amqp.ConnectionTuneOK{FrameMax: amqp.FrameMax, Heartbeat: 30}, &amqp.ConnectionOpen{VirtualHost: "/other"})
			settle()
			if c := answered[*amqp.ConnectionClose](s); len(c) != 1 || c[0].Code != amqp.NotAllowed {
				t.Errorf("closed with %+v", c)
			}
		}},
	} {
		t.Run(strings.ReplaceAll(h.habit, " ", "_"), func(t *testing.T) {
			inTime(t, func(t *testing.T, b *testBus, l *pipeListener) {
				b.control.survey = false
				h.test(t, b, l)
				b.stop()
			})
		})
	}
}

// settle waits until nothing moves any more, at one moment.
func settle() { synctest.Wait() }
