package booter

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"muster.internal"
	"muster.internal/setup"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// TestDecideTable: what is done, step by step.
func TestDecideTable(t *testing.T) {
	install := func(epoch int64, taken bool) *muster.Install {
		return &muster.Install{ServerUUID: uuidA, Epoch: epoch, Session: "s", Taken: taken, Deadline: noon.Add(time.Hour)}
	}
	at := func(s step) *entry {
		return &entry{ServerUUID: uuidA, Epoch: 2, Step: s, At: noon, GiveUp: noon.Add(time.Hour)}
	}
	late := noon.Add(2 * time.Hour)
	for _, c := range []struct {
		name string
		s    situation
		want action
	}{
		{"nothing at all", situation{}, actWait},
		{"approved, the machine is here", situation{install: install(2, false), alive: true}, actTake},
		{"approved, the machine is gone", situation{install: install(2, false)}, actWait},
		{"taken by somebody else", situation{install: install(2, true), alive: true}, actWait},
		{"approved, but an older script runs", situation{install: install(2, false), alive: true, running: true}, actFail},
		{"taking, the answer was lost", situation{entry: at(stepTaking), install: install(2, true), alive: true}, actTake},
		{"taking, restarted", situation{entry: at(stepTaking), install: install(2, false)}, actFail},
		{"taking, voided", situation{entry: at(stepTaking), fresh: true, alive: true}, actForget},
		{"taking, the directory is old", situation{entry: at(stepTaking)}, actFail},
		{"taken", situation{entry: at(stepTaken), install: install(2, true), alive: true, holding: true}, actSend},
		{"taken, the machine is gone", situation{entry: at(stepTaken), install: install(2, true), holding: true}, actFail},
		{"taken, restarted", situation{entry: at(stepTaken), install: install(2, true), alive: true}, actFail},
		{"taken, voided", situation{entry: at(stepTaken), fresh: true, alive: true, holding: true}, actForget},
		{"sent", situation{entry: at(stepSent), install: install(2, true), alive: true, running: true}, actWait},
		{"sent, the machine is gone", situation{entry: at(stepSent), install: install(2, true)}, actWait},
		{"sent, proved by a refresh", situation{entry: at(stepSent), fresh: true}, actForget},
		{"sent, the directory is old", situation{entry: at(stepSent)}, actWait},
		{"sent, no answer in time", situation{entry: at(stepSent), install: install(2, true), now: late}, actFail},
		{"sent, approved anew", situation{entry: at(stepSent), install: install(3, false), alive: true}, actForget},
		{"sent, an older install is shown", situation{entry: at(stepSent), install: install(1, false), fresh: true}, actWait},
		{"outcome", situation{entry: at(stepOutcome), install: install(2, true)}, actReport},
		{"outcome, already over", situation{entry: at(stepOutcome), fresh: true}, actReport},
		{"reported, the feed lags", situation{entry: at(stepReported), install: install(2, true), fresh: true}, actWait},
		{"reported, the feed agrees", situation{entry: at(stepReported), fresh: true}, actForget},
		{"reported, the feed never agrees", situation{entry: at(stepReported), install: install(1, false), now: late}, actForget},
	} {
		if c.s.now.IsZero() {
			c.s.now = noon
		}
		if got, _ := decide(c.s); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestDecidePromises goes through every situation there is.
func TestDecidePromises(t *testing.T) {
	bools := []bool{false, true}
	n := 0
	for _, st := range []step{"", stepTaking, stepTaken, stepSent, stepOutcome, stepReported} {
		for _, epoch := range []int64{0, 1, 2, 3} { // 0: no install
			for bits := range 64 {
				bit := func(i int) bool { return bools[bits>>i&1] }
				s := situation{fresh: bit(0), alive: bit(1), holding: bit(2), running: bit(3), now: noon}
				if bit(4) {
					s.now = noon.Add(100 * time.Hour)
				}
				if st != "" {
					s.entry = &entry{ServerUUID: uuidA, Epoch: 2, Step: st, At: noon, GiveUp: noon.Add(time.Hour)}
				}
				if epoch > 0 {
					s.install = &muster.Install{ServerUUID: uuidA, Epoch: epoch, Session: "s", Taken: bit(5)}
				}
				n++
				a, why := decide(s)
				where := fmt.Sprintf("%+v, entry %+v, install %+v: %s", s, s.entry, s.install, a)
				over := s.install == nil && s.fresh || epoch > 2
				if a == actSend && (st != stepTaken || !s.alive || !s.holding || over) {
					t.Errorf("sends without permission: %s", where)
				}
				if a == actTake && (!s.alive || st != "" && (st != stepTaking || over) || st == "" && (epoch == 0 || s.install.Taken || s.running)) {
					t.Errorf("takes without permission: %s", where)
				}
				if (a == actFail) != (why != "") {
					t.Errorf("a failure and its reason come together: %s", where)
				}
				if st == stepOutcome && a != actReport || a == actReport && st != stepOutcome {
					t.Errorf("what ended is reported: %s", where)
				}
				if a == actForget && (st == "" || st == stepOutcome) {
					t.Errorf("forgets what was not reported: %s", where)
				}
				if st == stepSent && a != actWait && a != actFail && a != actForget {
					t.Errorf("does something again: %s", where)
				}
				if bit(4) && st != "" && a == actWait {
					t.Errorf("waits for ever: %s", where)
				}
			}
		}
	}
	if n != 6*4*64 {
		t.Errorf("%d situations", n)
	}
}

func TestOutcome(t *testing.T) {
	proof := strings.Repeat("ab", 32)
	good := setup.Sentinel(7, proof)
	for _, c := range []struct {
		name   string
		r      busReply
		ok     bool
		reason string
	}{
		{"success", busReply{Status: "0", Stdout: "building\n" + good + "\n"}, true, ""},
		{"success, though the status says otherwise", busReply{Status: "1", Stdout: good}, true, ""},
		{"success, by a name for a status", busReply{Status: "ENOENT", Stdout: good + "\r\n"}, true, ""},
		{"status 0 is not success", busReply{Status: "0", Stdout: "all went well\n"}, false, "the script ended with status 0 and without a word of success: all went well"},
		{"sentinel on stderr is none", busReply{Status: "0", Stderr: good}, false, "the script ended with status 0 and without a word of success: " + good},
		{"another epoch", busReply{Status: "0", Stdout: setup.Sentinel(6, proof)}, false, "the machine reports the success of setup 6, which is not the one that was sent (7)"},
		{"two sentinels", busReply{Status: "0", Stdout: good + "\n" + setup.Sentinel(7, strings.Repeat("cd", 32))}, false, ""},
		{"failure", busReply{Status: "1", Stdout: setup.FailureLine("a foreign pool zones is on /dev/vdb"), Stderr: "zpool: no\n"}, false, "a foreign pool zones is on /dev/vdb"},
		{"failure on stderr", busReply{Status: "1", Stderr: setup.FailureLine("no clock")}, false, "no clock"},
		{"killed", busReply{Status: "1", Stdout: "wiping\n"}, false, "the script ended with status 1 and without a word of success: wiping"},
		{"no interpreter", busReply{Status: "ENOENT"}, false, "the script ended with status ENOENT and without a word of success: it said nothing"},
	} {
		o, ok := outcome(7, c.r)
		if ok != c.ok || ok && o.Proof != proof || !ok && o.Proof != "" || o.Epoch != 7 {
			t.Errorf("%s: %v %+v", c.name, ok, o)
		}
		if c.reason != "" && o.Reason != c.reason || !ok && (o.Reason == "" || len(o.Reason) > setup.MaxReason) {
			t.Errorf("%s: reason %q", c.name, o.Reason)
		}
		if strings.Contains(o.Log+o.Stdout+o.Stderr, proof) {
			t.Errorf("%s: the proof is in the log", c.name)
		}
	}
	o, _ := outcome(7, busReply{Status: "1", Stdout: strings.Repeat("é\x00\xff line\n", 10000), Stderr: "last"})
	if len(o.Log) > maxLog || !strings.HasSuffix(o.Log, "last\n") || strings.Contains(o.Log, "\x00") || o.Log != strings.ToValidUTF8(o.Log, "") {
		t.Errorf("log of %d bytes: %.40q", len(o.Log), o.Log)
	}
}

func FuzzOutcome(f *testing.F) {
	f.Add("0", setup.Sentinel(7, strings.Repeat("ab", 32)), "")
	f.Add("1", setup.FailureLine("x"), "\xff\x00")
	f.Fuzz(func(t *testing.T, status, stdout, stderr string) {
		o, ok := outcome(7, busReply{Status: status, Stdout: stdout, Stderr: stderr})
		if ok != (o.Proof != "") || ok == (o.Reason != "") || len(o.Reason) > setup.MaxReason || len(o.Log) > maxLog || strings.ContainsRune(o.Log, 0) {
			t.Fatalf("%v %+v", ok, o)
		}
	})
}

func TestTail(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{{"abc", 5, "abc"}, {"abcdef", 3, "def"}, {"aéb", 2, "b"}, {"aéb", 3, "éb"}, {"", 0, ""}} {
		if d := cmp.Diff(c.want, tail(c.in, c.n)); d != "" {
			t.Errorf("tail(%q, %d): %s", c.in, c.n, d)
		}
	}
}
