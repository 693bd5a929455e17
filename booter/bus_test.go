package booter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"muster.internal"
	"muster.internal/bus"
)

func silent(bus.Message) bus.Reply { return bus.Reply{} }

func TestAnnounceAndSurvey(t *testing.T) {
	b := startBus(t, busOptions{}, newFakeControl())
	b.machine(t, b.options(uuidA, macA, ipA), keyA, silent)
	a := b.control.await(t, "announce", nil).a
	if a.ServerUUID != uuidA || a.MAC != macA || a.Source != ipA || a.PublicKey != keyA || a.Booter != "booter-1" || len(a.Session) != 32 {
		t.Errorf("announced %+v", a)
	}
	s := b.control.await(t, "survey", nil)
	if s.session != a.Session || len(s.s.Disks) != 1 || s.s.Disks[0].Serial != "S1" {
		t.Errorf("surveyed %+v", s.s)
	}
	uuid, mac, key, ok := b.Holder(a.Session)
	if !ok || uuid != uuidA || mac != macA || key != keyA {
		t.Errorf("held by %s %s %s %v", uuid, mac, key, ok)
	}
	if _, _, _, ok := b.Holder("00000000000000000000000000000000"); ok {
		t.Error("a session that never was is held")
	}
}

// TestAnswerAfterReconnect: an answer may come by a later connection, if the
// machine is the same and so is its key.
func TestAnswerAfterReconnect(t *testing.T) {
	for _, c := range []struct {
		name, uuid, mac, ip, key string
		ok                       bool
	}{
		{"same boot", uuidA, macA, ipA, keyA, true},
		{"another boot", uuidA, macA, ipA, keyB, false},
		{"no key", uuidA, macA, ipA, "", false},
		{"another NIC", uuidA, macB, ipB, keyA, false},
		{"another machine", uuidB, macB, ipB, keyA, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := startBus(t, busOptions{}, newFakeControl())
			b.control.survey = false
			answer, forget := b.Expect("id1", uuidA, macA, "a session that is gone", keyA)
			defer forget()
			conn, err := bus.Dial(t.Context(), b.options(c.uuid, c.mac, c.ip))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			// the answer first: it must wait until we know whose it is
			if err := conn.Publish("ur.execute-reply."+c.uuid+".id1", []byte(`{"exit_status":3,"stdout":"out","stderr":"err"}`)); err != nil {
				t.Fatal(err)
			}
			if err := conn.Publish("ur.sysinfo."+c.uuid+".1", sysinfo(c.uuid, c.key)); err != nil {
				t.Fatal(err)
			}
			if err := conn.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !c.ok {
				b.control.await(t, "announce", nil) // so that it has been dealt with
				if n := b.Counters()["bus_refused_answers"]; n != 1 {
					t.Errorf("%d refused", n)
				}
				select {
				case r := <-answer:
					t.Errorf("accepted %+v", r)
				default:
				}
				return
			}
			if r := <-answer; r != (busReply{"id1", "3", "out", "err"}) {
				t.Errorf("accepted %+v", r)
			}
		})
	}
}

func TestFiveMebibytes(t *testing.T) {
	b := startBus(t, busOptions{}, newFakeControl())
	b.control.survey = false
	out := strings.Repeat("x", 8<<20) + "end\n"
	b.machine(t, b.options(uuidA, macA, ipA), keyA, func(bus.Message) bus.Reply { return bus.Reply{Stdout: out, Stderr: strings.Repeat("\x01", 4<<20)} })
	session := b.control.await(t, "announce", nil).session
	b.until(t, "a session", func() bool { return len(b.sessions()) == 1 })
	answer, forget := b.Expect("id1", uuidA, macA, session, keyA)
	defer forget()
	if err := b.Send(session, "id1", "#!/bin/sh\n", nil); err != nil {
		t.Fatal(err)
	}
	if r := <-answer; !strings.HasSuffix(r.Stdout, "xend\n") || len(r.Stdout) < 100<<10 {
		t.Errorf("%d bytes of output", len(r.Stdout))
	}
	// what a stock agent sends at its limit passes, beyond ours the channel closes
	conn, err := bus.Dial(t.Context(), b.options(uuidB, macB, ipB))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reply := func(n int) error {
		return conn.Publish("ur.execute-reply."+uuidB+".1", []byte(`{"exit_status":"ERR_CHILD_PROCESS_STDIO_MAXBUFFER","stdout":"`+strings.Repeat("y", n)+`"}`))
	}
	if err := errors.Join(reply(5<<20), conn.Sync(t.Context())); err != nil {
		t.Errorf("5 MiB: %v", err)
	}
	reply(7 << 20)
	if err := conn.Sync(t.Context()); err == nil || !strings.Contains(err.Error(), "311") {
		t.Errorf("7 MiB: %v", err)
	}
}

// TestAnswersOfNobodyAreCounted: what is kept until a machine says who it is
// counts among what all of them may make us hold.
func TestAnswersOfNobodyAreCounted(t *testing.T) {
	b := startBus(t, busOptions{MaxBuffered: 4 << 20}, newFakeControl())
	conn, err := bus.Dial(t.Context(), b.options(uuidA, macA, ipA))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer := []byte(`{"exit_status":0,"stdout":"` + strings.Repeat("y", 3<<20) + `"}`)
	err = errors.Join(conn.Publish("ur.execute-reply."+uuidA+".1", answer), conn.Sync(t.Context()))
	if err != nil {
		t.Errorf("the first: %v", err)
	}
	conn.Publish("ur.execute-reply."+uuidA+".2", answer)
	if err := conn.Sync(t.Context()); err == nil {
		t.Error("6 MiB are kept of 4")
	}
	b.until(t, "nothing is held", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.buffered == 0 })
}

// TestRefusalsDisplaceNoNews: whoever is refused may name any machine; that a
// machine's session has ended is told all the same.
func TestRefusalsDisplaceNoNews(t *testing.T) {
	s := newSessionChanges()
	for i := range 2 * maxPending {
		s.add(change{uuid: fmt.Sprint("made up ", i)})
	}
	s.announced(uuidA+"."+macA, "s1")
	s.add(change{uuid: uuidA, name: uuidA + "." + macA})
	if got := s.take(uuidA); len(got) != 1 || got[0].Lost != "s1" {
		t.Errorf("told %+v", got)
	}
	if n := len(s.machines()); n != maxPending {
		t.Errorf("%d machines are remembered", n)
	}
}

// TestManyMachines: two hundred at once, all announced; nothing is left when
// they are gone.
func TestManyMachines(t *testing.T) {
	const n = 200
	before := runtime.NumGoroutine()
	d := newDirectory()
	var records []muster.BootRecord
	for i := range n {
		records = append(records, reserved(fmt.Sprintf("52:54:00:bb:00:%02x", i), fmt.Sprintf("127.0.6.%d", i+1)))
	}
	d.Apply(0, muster.BooterFeed{Seq: 1, Records: records})
	b := startBus(t, busOptions{Machines: d}, newFakeControl())
	b.control.survey = false
	var ms []*machine
	for i, r := range records {
		ms = append(ms, b.machine(t, b.options(fmt.Sprintf("564d9f2e-6d6c-4b4a-9a53-0000000000%02x", i), r.MAC, r.Address), keyA, silent))
	}
	b.until(t, "all sessions", func() bool { return len(b.sessions()) == n })
	for i := range n {
		b.control.await(t, "announce", func(s said) bool { return s.a.MAC == records[i].MAC })
	}
	for _, m := range ms[:n/2] {
		m.stop()
	}
	b.until(t, "half of them gone", func() bool { return len(b.sessions()) == n/2 })
	b.stop()
	for _, m := range ms[n/2:] {
		m.stop()
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); runtime.Gosched() {
		if runtime.NumGoroutine() <= before+2 { // those that told us they are done may still be leaving
			return
		}
	}
	buf := make([]byte, 1<<16)
	t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
}

func TestLostSessionIsTold(t *testing.T) {
	b := startBus(t, busOptions{}, newFakeControl())
	m := b.machine(t, b.options(uuidA, macA, ipA), keyA, silent)
	session := b.control.await(t, "survey", nil).session
	m.stop()
	if c := b.control.await(t, "changed", nil).c; c.Lost != session || c.Session != "" || c.MAC != macA {
		t.Errorf("told %+v", c)
	}
}

func TestConnectionLimits(t *testing.T) {
	b := startBus(t, busOptions{MaxConnections: 5, MaxPerSource: 3}, newFakeControl())
	open := func(source string) (net.Conn, bool) {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}).Dial("tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.Write([]byte("AMQP\x00\x00\x09\x01"))
		_, err = c.Read(make([]byte, 1))
		return c, err == nil
	}
	var got []bool
	for _, source := range []string{ipA, ipA, ipA, ipA, ipB, ipB, "127.0.5.9"} {
		_, ok := open(source)
		got = append(got, ok)
	}
	if want := []bool{true, true, true, false, true, true, false}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("let in: %v, want %v", got, want)
	}
}

// TestOracleAgent: RabbitMQ's client plays the stock agent, by PLAIN.
func TestOracleAgent(t *testing.T) {
	b := startBus(t, busOptions{}, newFakeControl())
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ipA)}}
	conn, err := amqp091.DialConfig("amqp://muster:s3cret@"+b.addr+"/", amqp091.Config{Dial: dialer.Dial, Heartbeat: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ch, err := conn.Channel()
	check(err)
	name := "ur.request." + strings.ToUpper(uuidA) + "." + macA // keys are spelled as the machine spells them
	_, err = ch.QueueDeclare(name, false, true, true, false, nil)
	check(err)
	check(ch.QueueBind(name, "ur.execute."+strings.ToUpper(uuidA)+"-"+macA+".*", "amq.topic", false, nil))
	check(ch.QueueBind(name, "ur.broadcast.*.*", "amq.topic", false, nil))
	check(ch.Qos(1, 0, false))
	in, err := ch.Consume(name, "", false, true, false, false, nil)
	check(err)
	// it says nothing by itself, as after a reconnect: so it is asked
	d := <-in
	id, is := strings.CutPrefix(d.RoutingKey, "ur.broadcast.sysinfo.")
	if !is || d.ContentType != "application/json" {
		t.Fatalf("asked by %+v", d)
	}
	check(d.Ack(false))
	check(ch.Publish("amq.topic", "ur.execute-reply."+uuidA+"."+id, false, false, amqp091.Publishing{ContentType: "application/json", Body: []byte(`{"UUID":"` + uuidA + `"}`)}))
	a := b.control.await(t, "announce", nil).a
	if a.ServerUUID != uuidA || a.PublicKey != "" {
		t.Errorf("announced %+v", a)
	}
	d = <-in
	var m struct{ Type, Script string }
	check(json.Unmarshal(d.Body, &m))
	if m.Type != "script" || !strings.HasPrefix(d.RoutingKey, "ur.execute."+strings.ToUpper(uuidA)+"-"+macA+".") {
		t.Errorf("survey %s %+v", d.RoutingKey, m)
	}
	id = d.RoutingKey[strings.LastIndex(d.RoutingKey, ".")+1:]
	check(d.Ack(false))
	check(ch.Publish("amq.topic", "ur.execute-reply."+uuidA+"."+id, false, false, amqp091.Publishing{Body: []byte(`{"exit_status":0,"stdout":"[]\n"}`)}))
	if s := b.control.await(t, "survey", nil).s; s.Session != a.Session || len(s.Disks) != 0 {
		t.Errorf("surveyed %+v", s)
	}
}

func TestParseReply(t *testing.T) {
	for in, want := range map[string]busReply{
		`{"exit_status":0,"stdout":"o","stderr":"e"}`: {"i", "0", "o", "e"},
		`{"exit_status":1,"stdout":"killed"}`:         {"i", "1", "killed", ""},
		`{"exit_status":"ENOENT","stderr":"e"}`:       {"i", "ENOENT", "", "e"},
		`{"stdout":"o"}`:                              {"i", "unknown", "o", ""},
		`{"exit_status":113,"stdout":"o"}`:            {"i", "113", "o", ""},
	} {
		if got, err := parseReply("i", []byte(in)); err != nil || got != want {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{``, `[]`, `{"stdout":1}`, `{`, `"x"`} {
		if _, err := parseReply("i", []byte(in)); err == nil {
			t.Errorf("%q is accepted", in)
		}
	}
}

func FuzzBusMessages(f *testing.F) {
	f.Add("ur.sysinfo."+uuidA+".1", []byte(sysinfo(uuidA, keyA)))
	f.Add("ur.execute-reply."+uuidA+".1", []byte(`{"exit_status":"x","stdout":"[]"}`))
	f.Add("ur.startup."+uuidA, []byte(`{"UUID":"`+uuidA+`","Muster":null}`))
	f.Fuzz(func(t *testing.T, key string, body []byte) {
		_, err := parseSysinfo(uuidA, body)
		if err == nil {
			var m map[string]any
			if json.Unmarshal(body, &m) != nil || !strings.EqualFold(strings.TrimSpace(m["UUID"].(string)), uuidA) {
				t.Fatalf("accepted %s", body)
			}
		}
		if r, err := parseReply("i", body); err == nil {
			parseSurvey(r)
		}
	})
}

func TestBackoffIsBounded(t *testing.T) {
	for n := range 50 {
		if d := backoff(n); d <= 0 || d > 33*time.Second {
			t.Errorf("attempt %d waits %v", n, d)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := persist(ctx, func() error { return errors.New("away") }, func(error) {}); err == nil {
		t.Error("persist goes on after its context")
	}
	n := 0
	err := persist(t.Context(), func() error { n++; return muster.Problemf(muster.CodeConflict, "no") }, func(error) {})
	if n != 1 || !muster.IsCode(err, muster.CodeConflict) {
		t.Errorf("%d attempts, %v", n, err)
	}
}
