package booter

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"muster.internal"
	"muster.internal/amqp"
	"muster.internal/bus"
)

// inTime runs a bus in a bubble where time passes by itself.
func inTime(t *testing.T, test func(t *testing.T, b *testBus, l *pipeListener)) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		b := serveBus(t, l, busOptions{}, newFakeControl())
		defer b.stop()
		test(t, b, l)
	})
}

func (b *testBus) piped(l *pipeListener, uuid, mac, source string) bus.Options {
	o := b.options(uuid, mac, source)
	o.Connect = l.from(source)
	return o
}

// rawAgent writes the bytes of a stock agent's start and reads every answer
// until stopped; then it is as dead as a machine without power.
func rawAgent(t *testing.T, l *pipeListener, heartbeat uint16) net.Conn {
	t.Helper()
	c, err := l.from(ipA)(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	q := "ur.request." + uuidA + "." + macA
	b := []byte(amqp.Header)
	for _, m := range []amqp.Method{
		&amqp.ConnectionStartOK{Mechanism: "AMQPLAIN", Response: amqp.Login("AMQPLAIN", "muster", "s3cret"), Locale: "en_US"},
		&amqp.ConnectionTuneOK{FrameMax: amqp.FrameMax, Heartbeat: heartbeat}, &amqp.ConnectionOpen{VirtualHost: "/"},
	} {
		b = amqp.AppendMethod(b, 0, m)
	}
	for _, m := range []amqp.Method{
		&amqp.ChannelOpen{}, &amqp.QueueDeclare{Queue: q},
		&amqp.QueueBind{Queue: q, Exchange: "amq.topic", Key: "ur.execute." + uuidA + "-" + macA + ".*"},
		&amqp.QueueBind{Queue: q, Exchange: "amq.topic", Key: "ur.broadcast.*.*"}, &amqp.BasicConsume{Queue: q},
		&amqp.BasicPublish{Exchange: "amq.topic", Key: "ur.startup." + uuidA},
	} {
		b = amqp.AppendMethod(b, 1, m)
	}
	b = amqp.AppendContent(b, 1, amqp.JSON, sysinfo(uuidA, keyA), amqp.FrameMax)
	go c.Write(b)
	return c
}

// TestSilentMachine: twice its heartbeat without a word, and it is gone; until
// then it hears from us at least every 15 seconds.
func TestSilentMachine(t *testing.T) {
	inTime(t, func(t *testing.T, b *testBus, l *pipeListener) {
		b.control.survey = false
		c := rawAgent(t, l, 30)
		start := time.Now()
		last, longest := start, time.Duration(0)
		buf := make([]byte, 4096)
		for {
			_, err := c.Read(buf)
			if err != nil {
				break
			}
			longest, last = max(longest, time.Since(last)), time.Now()
		}
		if d := time.Since(start); d < 59*time.Second || d > 62*time.Second {
			t.Errorf("closed after %v", d)
		}
		if longest > 15*time.Second {
			t.Errorf("%v without a heartbeat", longest)
		}
		synctest.Wait()
		if b.control.count("changed") != 1 || b.Counters()["bus_silent"] != 1 {
			t.Errorf("told %s", b.control.all())
		}
	})
}

// TestHalfOpen: the old connection's peer is gone without a word; the machine
// comes back and has its name at once.
func TestHalfOpen(t *testing.T) {
	inTime(t, func(t *testing.T, b *testBus, l *pipeListener) {
		b.control.survey = false
		dead := rawAgent(t, l, 30)
		go io.CopyN(io.Discard, dead, 600) // reads the handshake's answers, then nothing any more
		synctest.Wait()
		start := time.Now()
		m := b.machine(t, b.piped(l, uuidA, macA, ipA), keyA, silent)
		synctest.Wait()
		if b.control.count("announce") != 2 || time.Since(start) != 0 {
			t.Errorf("after %v: %s", time.Since(start), b.control.all())
		}
		time.Sleep(2 * writeTimeout) // in the bubble: until the dead end has been given up
		synctest.Wait()
		b.mu.Lock()
		n := len(b.conns)
		b.mu.Unlock()
		if n != 1 || len(b.sessions()) != 1 {
			t.Errorf("%d connections, sessions %v", n, b.sessions())
		}
		m.stop()
		dead.Close()
	})
}

// TestSlowReader: who does not read what is sent to it holds up nobody, and
// not for long.
func TestSlowReader(t *testing.T) {
	inTime(t, func(t *testing.T, b *testBus, l *pipeListener) {
		c, err := l.from(ipA)(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte(amqp.Header)); err != nil {
			t.Fatal(err)
		}
		m := b.machine(t, b.piped(l, uuidB, macB, ipB), keyB, silent)
		synctest.Wait()
		if b.control.count("announce") != 1 {
			t.Error("another machine has to wait for it")
		}
		time.Sleep(writeTimeout + time.Second)
		synctest.Wait()
		b.mu.Lock()
		n := len(b.conns)
		b.mu.Unlock()
		if n != 1 || b.Counters()["bus_slow_readers"] != 1 {
			t.Errorf("%d connections, counters %v", n, b.Counters())
		}
		m.stop()
	})
}

// TestNobodyLogsIn: a connection that says nothing, or that dawdles, is closed.
func TestNobodyLogsIn(t *testing.T) {
	for _, dawdle := range []bool{false, true} {
		inTime(t, func(t *testing.T, b *testBus, l *pipeListener) {
			c, err := l.from(ipA)(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			start := time.Now()
			if dawdle {
				go func() {
					for _, ch := range amqp.Header[:7] {
						c.Write([]byte{byte(ch)})
						time.Sleep(20 * time.Second)
					}
				}()
			}
			io.Copy(io.Discard, c)
			if d := time.Since(start); d != time.Minute {
				t.Errorf("dawdling %v: closed after %v", dawdle, d)
			}
			time.Sleep(5 * time.Minute)
		})
	}
}

// TestNameWithoutIdentity: who takes a name and never says who it is loses it,
// and the control plane is told.
func TestNameWithoutIdentity(t *testing.T) {
	inTime(t, func(t *testing.T, b *testBus, l *pipeListener) {
		conn, err := bus.Dial(t.Context(), b.piped(l, uuidA, macA, ipA))
		if err != nil {
			t.Fatal(err)
		}
		asked, start := 0, time.Now()
		for {
			d, err := conn.Next(t.Context())
			if err != nil {
				if !errors.Is(err, bus.ErrClosed) {
					t.Error(err)
				}
				break
			}
			if strings.HasPrefix(d.Key, broadcastKey) {
				asked++
			}
		}
		if d := time.Since(start); d < identifyBy || d > identifyBy+15*time.Second || asked < 5 {
			t.Errorf("asked %d times, closed after %v", asked, d)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if b.control.count("announce") != 0 || b.control.count("changed") != 1 {
			t.Errorf("told %s", b.control.all())
		}
	})
}

// TestBusWhileControlPlaneIsAway: the announcement is repeated until it is heard, and an
// impostor's refusal too; what comes of a minute's words is told at the end.
func TestBusWhileControlPlaneIsAway(t *testing.T) {
	inTime(t, func(t *testing.T, b *testBus, l *pipeListener) {
		b.control.setDown(true)
		m := b.machine(t, b.piped(l, uuidA, macA, ipA), keyA, silent)
		bus.Dial(t.Context(), b.piped(l, uuidA, macA, ipB))
		time.Sleep(10 * time.Minute)
		b.control.setDown(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if a, s, c := b.control.count("announce"), b.control.count("survey"), b.control.count("changed"); a < 1 || s != 1 || c != 1 {
			t.Errorf("heard %s", b.control.all())
		}
		// and while all is well, once a minute
		before := b.control.count("announce")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := b.control.count("announce") - before; n < 9 || n > 11 {
			t.Errorf("%d announcements in ten minutes", n)
		}
		m.stop()
	})
}

// TestRefusedAnnouncement: a clear no is not repeated until the machine speaks
// again.
func TestRefusedAnnouncement(t *testing.T) {
	inTime(t, func(t *testing.T, b *testBus, l *pipeListener) {
		b.control.refuse["announce"] = muster.Problemf(muster.CodeConflict, "another machine has that UUID")
		m := b.machine(t, b.piped(l, uuidA, macA, ipA), keyA, silent)
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if n := b.control.count("announce"); n < 1 || n > 3 {
			t.Errorf("%d announcements within a minute of being refused", n)
		}
		if b.control.count("survey") != 0 {
			t.Error("a machine without registration is surveyed")
		}
		m.stop()
	})
}

// TestClosedDoor: a machine that may not announce itself yet is neither cut off
// nor forgotten; it gets in once an enrollment window is open.
func TestClosedDoor(t *testing.T) {
	inTime(t, func(t *testing.T, b *testBus, l *pipeListener) {
		b.control.mu.Lock()
		b.control.survey = false
		b.control.refuse["announce"] = muster.Problemf(muster.CodeForbidden, "no enrollment window has a free slot")
		b.control.mu.Unlock()
		m := b.machine(t, b.piped(l, uuidA, macA, ipA), keyA, silent)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		refused := b.control.count("announce")
		if refused < 4 || refused > 8 {
			t.Errorf("%d announcements in five minutes", refused)
		}
		session := b.control.await(t, "announce", nil).session
		b.control.mu.Lock()
		delete(b.control.refuse, "announce")
		b.control.mu.Unlock()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		b.control.mu.Lock()
		for _, s := range b.control.heard {
			if s.what == "announce" && s.session != session {
				t.Errorf("it had to connect again: %s", s.session)
			}
		}
		b.control.mu.Unlock()
		if n := b.control.count("announce"); n <= refused {
			t.Errorf("%d announcements, none since the window opened", n)
		}
		m.stop()
	})
}

// TestOrderOfNews: that a session is lost is told before its successor is
// announced, however long the control plane is away in between.
func TestOrderOfNews(t *testing.T) {
	inTime(t, func(t *testing.T, b *testBus, l *pipeListener) {
		b.control.survey = false
		m := b.machine(t, b.piped(l, uuidA, macA, ipA), keyA, silent)
		synctest.Wait()
		first := b.control.await(t, "announce", nil).session
		b.control.setDown(true)
		m.stop()
		time.Sleep(time.Minute)
		m = b.machine(t, b.piped(l, uuidA, macA, ipA), keyB, silent)
		time.Sleep(time.Minute)
		b.control.setDown(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		b.control.mu.Lock()
		var order []string
		for _, s := range b.control.heard {
			switch {
			case s.what == "changed" && s.c.Lost == first:
				order = append(order, "lost")
			case s.what == "announce" && s.session != first:
				order = append(order, "successor")
			}
		}
		b.control.mu.Unlock()
		if len(order) < 2 || order[0] != "lost" || order[1] != "successor" {
			t.Errorf("order %v in %s", order, b.control.all())
		}
		m.stop()
	})
}

// TestGoodbye: when the booter stops, machines are told, and nothing is
// reported as lost: the next booter process will hear them again.
func TestGoodbye(t *testing.T) {
	inTime(t, func(t *testing.T, b *testBus, l *pipeListener) {
		b.control.survey = false
		conn, err := bus.Dial(context.Background(), b.piped(l, uuidA, macA, ipA))
		if err != nil {
			t.Fatal(err)
		}
		conn.Publish("ur.sysinfo."+uuidA+".1", sysinfo(uuidA, keyA))
		synctest.Wait()
		b.stop()
		for err == nil {
			_, err = conn.Next(context.Background())
		}
		if !errors.Is(err, bus.ErrClosed) || b.control.count("announce") != 1 || b.control.count("changed") != 0 {
			t.Errorf("%v, told %s", err, b.control.all())
		}
	})
}
