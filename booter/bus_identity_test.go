package booter

import (
	"errors"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/bus"
)

func TestImpostorFromAWrongAddress(t *testing.T) {
	b := startBus(t, busOptions{}, newFakeControl())
	b.machine(t, b.options(uuidA, macA, ipA), keyA, silent)
	session := b.control.await(t, "survey", nil).session
	_, err := bus.Dial(t.Context(), b.options(uuidA, macA, ipB))
	if err == nil || !strings.Contains(err.Error(), "403") {
		t.Fatalf("the impostor is told %v", err)
	}
	c := b.control.await(t, "changed", nil).c
	if c.Session != "" || c.Lost != "" || c.MAC != macA || c.Source != ipB || !strings.Contains(c.Reason, ipA) {
		t.Errorf("told %+v", c)
	}
	if got := b.sessions(); len(got) != 1 || got[0] != session {
		t.Errorf("sessions %v, want %s untouched", got, session)
	}
	if n := b.Counters()["bus_refused_names"]; n != 1 {
		t.Errorf("counted %d", n)
	}
}

func TestUnknownMACIsRefused(t *testing.T) {
	b := startBus(t, busOptions{}, newFakeControl())
	for _, mac := range []string{"52:54:00:ff:ff:ff", "nonsense", ""} {
		if _, err := bus.Dial(t.Context(), b.options(uuidA, mac, ipA)); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("%q: %v", mac, err)
		}
	}
	for _, uuid := range []string{"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "x"} {
		if _, err := bus.Dial(t.Context(), b.options(uuid, macA, ipA)); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("%q: %v", uuid, err)
		}
	}
}

func TestWrongPassword(t *testing.T) {
	b := startBus(t, busOptions{}, newFakeControl())
	for _, user := range []string{"muster", "other", ""} {
		o := b.options(uuidA, macA, ipA)
		o.User, o.Password = user, "S3cret"
		if _, err := bus.Dial(t.Context(), o); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("%q: %v", user, err)
		}
	}
}

// TestTakeover: from the right address, the newest connection holds the name,
// and the one before is closed. That is how a half-open connection is
// replaced, and an impostor that owns the address looks the same: the session
// is another, and the control plane hears of it.
func TestTakeover(t *testing.T) {
	b := startBus(t, busOptions{}, newFakeControl())
	old, err := bus.Dial(t.Context(), b.options(uuidA, macA, ipA))
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Publish("ur.sysinfo."+uuidA+".1", sysinfo(uuidA, keyA)); err != nil {
		t.Fatal(err)
	}
	first := b.control.await(t, "announce", nil).session
	b.machine(t, b.options(uuidA, macA, ipA), keyB, silent)
	second := b.control.await(t, "announce", func(s said) bool { return s.session != first })
	if second.a.PublicKey != keyB {
		t.Errorf("the newcomer announced %+v", second.a)
	}
	for err == nil { // the survey may have been sent to it before
		_, err = old.Next(t.Context())
	}
	if !errors.Is(err, bus.ErrClosed) || !strings.Contains(err.Error(), "320") {
		t.Errorf("the old connection ended with %v", err)
	}
	if _, _, _, ok := b.Holder(first); ok {
		t.Error("the old session is still alive")
	}
	if err := b.Send(first, "1", "#!/bin/sh\n", nil); err == nil {
		t.Error("a script goes to the old session")
	}
	if b.control.count("changed") != 0 {
		t.Errorf("a takeover is told by its announcement alone: %s", b.control.all())
	}
}

// TestTwoMachinesOneUUID: both are told apart by their MACs, and a script goes
// to the one whose session is named.
func TestTwoMachinesOneUUID(t *testing.T) {
	b := startBus(t, busOptions{}, newFakeControl())
	ma := b.machine(t, b.options(uuidA, macA, ipA), keyA, silent)
	mb := b.machine(t, b.options(uuidA, macB, ipB), keyB, silent)
	b.until(t, "two sessions", func() bool { return len(b.sessions()) == 2 })
	sa := b.control.await(t, "survey", func(s said) bool { u, m, _, _ := b.Holder(s.session); return u == uuidA && m == macA }).session
	sb := b.control.await(t, "survey", func(s said) bool { return s.session != sa }).session
	<-ma.ran
	<-mb.ran
	answer, forget := b.Expect("id1", uuidA, macB, sb, keyB)
	defer forget()
	if err := b.Send(sb, "id1", "#!/bin/sh\necho hi\n", map[string]string{"A": "b"}); err != nil {
		t.Fatal(err)
	}
	if m := <-mb.ran; m.ID != "id1" || m.Script != "#!/bin/sh\necho hi\n" || m.Env["A"] != "b" {
		t.Errorf("ran %+v", m)
	}
	if r := <-answer; r.Status != "0" {
		t.Errorf("answer %+v", r)
	}
	select {
	case m := <-ma.ran:
		t.Errorf("the other machine ran %+v", m)
	default:
	}
}

// TestIdentityChecks: none of these reaches the control plane.
func TestIdentityChecks(t *testing.T) {
	b := startBus(t, busOptions{AskAfter: time.Hour}, newFakeControl())
	b.control.survey = false
	conn, err := bus.Dial(t.Context(), b.options(uuidA, macA, ipA))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	bad := [][2]string{
		{"ur.sysinfo." + uuidA + ".1", `[]`}, {"ur.sysinfo." + uuidA + ".1", `null`}, {"ur.sysinfo." + uuidA + ".1", ``}, {"ur.sysinfo." + uuidA + ".1", `{`},
		{"ur.sysinfo." + uuidA + ".1", `"` + uuidA + `"`}, {"ur.sysinfo." + uuidA + ".1", `{}`}, {"ur.sysinfo." + uuidA + ".1", `{"UUID":7}`},
		{"ur.sysinfo." + uuidA + ".1", `{"uuid":"` + uuidA + `"}`}, // JSON keys are exact
		{"ur.sysinfo." + uuidA + ".1", string(sysinfo(uuidB, keyA))},
		{"ur.sysinfo." + uuidB + ".1", string(sysinfo(uuidB, keyA))}, // consistent, but not this queue's
		{"ur.sysinfo." + uuidA + ".1", string(sysinfo("00000000-0000-0000-0000-000000000000", keyA))},
		{"ur.sysinfo.x.1", string(sysinfo(uuidA, keyA))}, {"ur.startup." + uuidB, string(sysinfo(uuidA, keyA))},
		{"ur.sysinfo." + uuidA + ".1", string(sysinfo(uuidA, "AAAA"))}, {"ur.sysinfo." + uuidA + ".1", string(sysinfo(uuidA, strings.Repeat("A", 43)+"="))},
		{"ur.sysinfo." + uuidA + ".1", `{"UUID":"` + uuidA + `","Muster":[]}`},
		{"ur.sysinfo." + uuidA + ".1", `{"UUID":"` + uuidA + `","x":"` + strings.Repeat("x", maxSysinfo) + `"}`},
		{"ur.execute-reply." + uuidB + ".1", `{}`}, {"ur.execute-reply." + uuidA + ".1", `[]`},
	}
	for _, m := range bad {
		if err := conn.Publish(m[0], []byte(m[1])); err != nil {
			t.Fatal(err)
		}
	}
	// neither for us nor refused: no machine speaks to another over us
	conn.Publish("ur.execute."+uuidB+".1", []byte(`{"type":"script","script":"#!/bin/sh\n"}`))
	if err := conn.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := conn.Publish("ur.sysinfo."+uuidA+".1", sysinfo(strings.ToUpper(uuidA), keyA)); err != nil {
		t.Fatal(err)
	}
	b.control.await(t, "announce", nil)
	if n := b.Counters()["bus_refused_messages"]; n != int64(len(bad)) {
		t.Errorf("%d of %d refused", n, len(bad))
	}
	if b.control.count("announce") != 1 {
		t.Errorf("announced: %s", b.control.all())
	}
	// another key on the same connection is another machine's
	conn.Publish("ur.sysinfo."+uuidA+".2", sysinfo(uuidA, keyB))
	if err := conn.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := b.Counters()["bus_refused_messages"]; n != int64(len(bad)+1) {
		t.Errorf("%d refused, with the second key", n)
	}
}

// TestReservationMoves: a machine whose address is reserved for it no more is
// not heard any longer.
func TestReservationMoves(t *testing.T) {
	b := startBus(t, busOptions{}, newFakeControl())
	conn, err := bus.Dial(t.Context(), b.options(uuidA, macA, ipA))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Next(t.Context()); err != nil { // it is asked who it is
		t.Fatal(err)
	}
	r := reserved(macA, ipB)
	r.Seq = 2
	b.dir.Apply(1, muster.BooterFeed{Seq: 2, Records: []muster.BootRecord{r}})
	if _, err := conn.Next(t.Context()); !errors.Is(err, bus.ErrClosed) || !strings.Contains(err.Error(), ipB) {
		t.Errorf("it hears %v", err)
	}
}
