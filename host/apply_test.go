package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"muster.internal/resource"
)

func declare(t rapid.TB, text string) *resource.Declaration {
	t.Helper()
	d, err := resource.Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return &d
}

func apply(t rapid.TB, m *machine, l *ledger, text string, more ...func(*Work)) resource.Report {
	t.Helper()
	w := Work{Declaration: declare(t, text), Names: map[string]string{"hostname": "db1"}, Trigger: "declaration"}
	for _, f := range more {
		f(&w)
	}
	r, err := Apply(w, m, l)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func local(w *Work)  { w.Local = true }
func dryRun(w *Work) { w.DryRun = true }

// lines spells a report, without what is long.
func lines(r resource.Report) string {
	b := new(strings.Builder)
	for _, l := range r.Lines {
		fmt.Fprintf(b, "%s %s", l.Outcome, l.Ref)
		if l.Did != "" {
			fmt.Fprintf(b, " %s", l.Did)
		}
		if l.Drift {
			b.WriteString(" drift")
		}
		if l.Fought {
			b.WriteString(" fought")
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func expect(t *testing.T, r resource.Report, outcome resource.Outcome, want ...string) {
	t.Helper()
	if diff := cmp.Diff(strings.Join(want, "\n"), lines(r)); diff != "" {
		t.Error(diff)
	}
	if r.Outcome != outcome {
		t.Errorf("the outcome is %s, not %s", r.Outcome, outcome)
	}
}

const base = `{"resources":[
 {"directory":{"path":"/etc/app"}},
 {"file":{"path":"/etc/app/a","content":"1"}},
 {"package":{"name":"chrony"}},
 {"service":{"name":"chrony","restart_on":["file:/etc/app/a"]}}]}`

func TestApply(t *testing.T) {
	m := newFake()
	l := newLedger(m.plug)
	expect(t, apply(t, m, l, base), "changed",
		"changed directory:/etc/app created", "changed file:/etc/app/a created", "changed package:chrony created",
		// Its package started it, and nobody knows whether it read the file.
		"changed service:chrony.service restarted")
	m.log = nil
	expect(t, apply(t, m, l, base), "ok", "ok directory:/etc/app", "ok file:/etc/app/a", "ok package:chrony", "ok service:chrony.service")
	if len(m.log) != 0 {
		t.Errorf("nothing was to be done, and it did %v", m.log)
	}
	// A changed file restarts its service, once.
	starts := m.starts["service:chrony.service"]
	expect(t, apply(t, m, l, strings.Replace(base, `"1"`, `"2"`, 1)), "changed",
		"ok directory:/etc/app", "changed file:/etc/app/a updated", "ok package:chrony", "changed service:chrony.service restarted")
	if n := m.starts["service:chrony.service"] - starts; n != 1 {
		t.Errorf("%d restarts, not one", n)
	}
	// Declared no longer: by the table, the package stays.
	expect(t, apply(t, m, l, `{"resources":[]}`), "changed",
		"changed service:chrony.service stopped", "changed file:/etc/app/a removed", "changed directory:/etc/app removed", "ok package:chrony forgotten")
	if len(l.now) != 0 || m.there["package:chrony"] == nil {
		t.Errorf("left: %v, %v", l.now, m.there)
	}
}

// A service that its package starts was made by this apply, which was not cut
// short, whatever its intent says.
func TestServiceStartedByItsPackage(t *testing.T) {
	m := newFake()
	l := newLedger(m.plug)
	r := apply(t, m, l, `{"resources":[{"package":{"name":"chrony"}},{"service":{"name":"chrony"}}]}`)
	expect(t, r, "changed", "changed package:chrony created", "changed service:chrony.service created")
	if why := r.Lines[1].Reason; why != "" {
		t.Errorf("it gives the reason %q", why)
	}
	if o, _ := l.Get("service:chrony.service"); o.Begun {
		t.Error("its record says that it is not finished")
	}
}

// What was there before is not touched, and says so.
func TestApplyKeepsWhatIsNotOurs(t *testing.T) {
	m := newFake()
	l := newLedger(m.plug)
	theirs := map[resource.Ref]resource.State{
		"directory:/etc/app":     {"type": "directory", "mode": "0700", "owner": "app", "group": "app"},
		"file:/etc/app/a":        {"type": "file", "mode": "0644", "owner": "root", "group": "root", "content": resource.Hash("theirs")},
		"package:chrony":         {"type": "installed", "version": "4.3"},
		"service:chrony.service": {"enabled": "yes", "running": "yes"},
	}
	m.there = maps.Clone(theirs)
	for range 2 {
		expect(t, apply(t, m, l, base), "kept",
			"kept directory:/etc/app", "kept file:/etc/app/a", "ok package:chrony", "ok service:chrony.service")
	}
	apply(t, m, l, `{"resources":[]}`)
	if diff := cmp.Diff(theirs, m.there); diff != "" || len(m.log) != 0 {
		t.Errorf("%v %s", m.log, diff)
	}
}

const adopting = `{"resources":[{"file":{"path":"/etc/a","content":"ours"},"adopt":true},{"service":{"name":"web"},"adopt":true}]}`

func theirs() *machine {
	m := newFake()
	m.there["file:/etc/a"] = resource.State{"type": "file", "mode": "0600", "owner": "root", "group": "root", "content": resource.Hash("theirs")}
	m.there["service:web.service"] = resource.State{"enabled": "yes", "running": "yes"}
	return m
}

// Adopting keeps the original first, and changes nothing where the machine
// differs, until a person says so. Undeclared, all is as it was found.
func TestAdopt(t *testing.T) {
	m := theirs()
	was := maps.Clone(m.there)
	l := newLedger(m.plug)
	for range 2 {
		expect(t, apply(t, m, l, adopting), "kept", "kept file:/etc/a adopted", "ok service:web.service")
	}
	if diff := cmp.Diff([]string{"keep file:/etc/a"}, m.log); diff != "" {
		t.Error(diff)
	}
	take := func(w *Work) { w.Resolve = map[resource.Ref]resource.Resolution{"file:/etc/a": resource.ResolveTake} }
	expect(t, apply(t, m, l, adopting, take), "changed", "changed file:/etc/a updated", "ok service:web.service")
	expect(t, apply(t, m, l, adopting), "ok", "ok file:/etc/a", "ok service:web.service")
	expect(t, apply(t, m, l, `{"resources":[]}`), "changed", "changed service:web.service restored", "changed file:/etc/a restored")
	if diff := cmp.Diff(was, m.there); diff != "" {
		t.Error(diff)
	}
}

func TestAdoptKeep(t *testing.T) {
	m := theirs()
	was := maps.Clone(m.there)
	l := newLedger(m.plug)
	apply(t, m, l, adopting)
	keep := func(w *Work) { w.Resolve = map[resource.Ref]resource.Resolution{"file:/etc/a": resource.ResolveKeep} }
	expect(t, apply(t, m, l, adopting, keep), "kept", "kept file:/etc/a", "ok service:web.service")
	if o := l.now["file:/etc/a"]; o.Conflict || o.Origin != resource.OriginFound {
		t.Errorf("%+v", o)
	}
	// It is a word that stays.
	for range 2 {
		expect(t, apply(t, m, l, adopting), "kept", "kept file:/etc/a", "ok service:web.service")
		if o := l.now["file:/etc/a"]; o.Conflict || o.Resolved != resource.ResolveKeep {
			t.Errorf("%+v", o)
		}
	}
	apply(t, m, l, `{"resources":[]}`)
	if diff := cmp.Diff(was, m.there); diff != "" {
		t.Error(diff)
	}
}

// A word that comes with a declaration counts until a newer one, or a person at
// the machine, says otherwise; without any, what was said before does.
func TestResolveDeclared(t *testing.T) {
	m := theirs()
	was := maps.Clone(m.there)
	l := newLedger(m.plug)
	at := func(generation int, word string) string {
		s := strings.Replace(adopting, `"adopt":true`, `"adopt":true,"resolve":"`+word+`"`, 1)
		if word == "" {
			s = adopting
		}
		return strings.Replace(s, `{"resources"`, fmt.Sprintf(`{"generation":%d,"resources"`, generation), 1)
	}
	by := func(word resource.Resolution) func(*Work) {
		return func(w *Work) { w.Resolve = map[resource.Ref]resource.Resolution{"file:/etc/a": word} }
	}
	const kept, taken, same = "kept file:/etc/a", "changed file:/etc/a updated", "ok file:/etc/a"
	for _, c := range []struct {
		text string
		how  []func(*Work)
		want string
	}{
		{at(1, ""), nil, "kept file:/etc/a adopted"},
		{at(2, "keep"), nil, kept},
		{at(2, "keep"), nil, kept},
		{at(3, ""), nil, kept},
		{at(3, ""), []func(*Work){by("take")}, taken},
		{at(3, ""), nil, same},
	} {
		if got, _, _ := strings.Cut(lines(apply(t, m, l, c.text, c.how...)), "\n"); got != c.want {
			t.Errorf("%s: %q, not %q", c.text, got, c.want)
		}
	}
	apply(t, m, l, `{"generation":4,"resources":[]}`)
	if diff := cmp.Diff(was, m.there); diff != "" {
		t.Error(diff)
	}
	for _, c := range []struct {
		text string
		how  []func(*Work)
		want string
	}{
		{at(5, "take"), []func(*Work){by("keep")}, kept},
		{at(5, "take"), nil, kept}, // the person at the machine spoke last
		{at(6, "take"), nil, taken},
		{at(7, "keep"), nil, same}, // there is no conflict any more
	} {
		if got, _, _ := strings.Cut(lines(apply(t, m, l, c.text, c.how...)), "\n"); got != c.want {
			t.Errorf("%s: %q, not %q", c.text, got, c.want)
		}
	}
}

// The same change by somebody else is undone twice and then left; another one
// is undone again, and a person's word ends the truce.
func TestDrift(t *testing.T) {
	m := newFake()
	l := newLedger(m.plug)
	text := `{"resources":[{"file":{"path":"/etc/a","content":"ours"}}]}`
	apply(t, m, l, text)
	change := func(content string) {
		m.there["file:/etc/a"]["content"] = resource.Hash(content)
		m.now = m.now.Add(10 * time.Minute)
	}
	for _, c := range []struct{ by, want string }{
		{"puppet", "changed file:/etc/a updated drift"},
		{"puppet", "changed file:/etc/a updated drift fought"},
		{"puppet", "kept file:/etc/a drift fought"},
		{"puppet", "kept file:/etc/a drift fought"},
		{"a person", "changed file:/etc/a updated drift"},
	} {
		change(c.by)
		if got := lines(apply(t, m, l, text)); got != c.want {
			t.Errorf("after %s: %s, not %s", c.by, got, c.want)
		}
	}
	change("a person")
	apply(t, m, l, text)
	change("a person")
	apply(t, m, l, text)
	if got := lines(apply(t, m, l, text, local)); got != "changed file:/etc/a updated drift fought" {
		t.Error(got)
	}
	m.now = m.now.Add(25 * time.Hour)
	change("a person")
	if got := lines(apply(t, m, l, text)); got != "changed file:/etc/a updated drift" {
		t.Errorf("a day later: %s", got)
	}
}

// A failure stops only what depends on it.
func TestFailureStopsDependents(t *testing.T) {
	m := newFake()
	m.broken["directory:/etc/app"] = "the disk is full"
	r := apply(t, m, newLedger(m.plug), `{"resources":[
	 {"directory":{"path":"/etc/app"}},{"file":{"path":"/etc/app/x/a","content":"1"}},
	 {"file":{"path":"/etc/b"}},{"service":{"name":"web"},"after":["file:/etc/app/x/a"]},{"service":{"name":"db"}}]}`)
	expect(t, r, "failed", "failed directory:/etc/app", "unknown file:/etc/app/x/a", "changed file:/etc/b created", "unknown service:web.service", "changed service:db.service created")
	if got := r.Lines[1].Reason; got != "not tried: it depends on directory:/etc/app, which did not work" {
		t.Error(got)
	}
}

// What a person applies by hand stays until a declaration names it.
func TestLocal(t *testing.T) {
	m := newFake()
	l := newLedger(m.plug)
	apply(t, m, l, base)
	expect(t, apply(t, m, l, `{"resources":[{"file":{"path":"/etc/mine","content":"1"}}]}`, local), "changed", "changed file:/etc/mine created")
	apply(t, m, l, base)
	if m.there["file:/etc/mine"] == nil || !l.now["file:/etc/mine"].Local {
		t.Error("what was applied by hand is gone")
	}
	expect(t, apply(t, m, l, `{"resources":[]}`, func(w *Work) { w.Trigger = resource.TriggerRetire; w.DryRun = true }), "kept",
		"kept file:/etc/mine", "changed service:chrony.service stopped", "changed file:/etc/app/a removed", "changed directory:/etc/app removed", "ok package:chrony forgotten")
	apply(t, m, l, `{"resources":[{"file":{"path":"/etc/mine","content":"1"}}]}`)
	if l.now["file:/etc/mine"].Local {
		t.Error("a declaration names it, and it is local still")
	}
	apply(t, m, l, `{"resources":[]}`)
	if m.there["file:/etc/mine"] != nil {
		t.Error("declared no longer, and there")
	}
}

func TestDryRun(t *testing.T) {
	m := theirs()
	l := newLedger(m.plug)
	expect(t, apply(t, m, l, base, dryRun), "changed",
		"changed directory:/etc/app created", "changed file:/etc/app/a created", "changed package:chrony created", "changed service:chrony.service created")
	expect(t, apply(t, m, l, adopting, dryRun), "kept", "kept file:/etc/a adopted", "ok service:web.service")
	if len(m.log) != 0 || len(l.now) != 0 {
		t.Errorf("a dry run did %v and wrote %v", m.log, l.now)
	}
}

// An action without "unless" runs once; cut short, it is not run twice.
func TestAction(t *testing.T) {
	m := newFake()
	l := newLedger(m.plug)
	text := `{"resources":[{"action":{"name":"migrate","command":["x"]}}]}`
	expect(t, apply(t, m, l, text), "changed", "changed action:migrate ran")
	expect(t, apply(t, m, l, text), "ok", "ok action:migrate")
	expect(t, apply(t, m, l, strings.Replace(text, `"x"`, `"y"`, 1)), "changed", "changed action:migrate ran")
	l.now["action:migrate"] = resource.Owned{Ref: "action:migrate", Applied: resource.State{"command": "x"}, Begun: true}
	expect(t, apply(t, m, l, text), "unknown", "unknown action:migrate")
	if m.done["migrate"] != 2 {
		t.Errorf("it ran %d times", m.done["migrate"])
	}
	// One that was cut short by hand, and says that it is done, is the link's.
	l.now["action:migrate"] = resource.Owned{Ref: "action:migrate", Applied: resource.State{"command": "x"}, Begun: true, Local: true}
	expect(t, apply(t, m, l, strings.Replace(text, `"command"`, `"unless":["x"],"command"`, 1)), "ok", "ok action:migrate")
	if o := l.now["action:migrate"]; o.Begun || o.Local {
		t.Errorf("%+v", o)
	}
	expect(t, apply(t, m, l, `{"resources":[]}`), "ok", "ok action:migrate forgotten")
}

// Whatever instant the power goes, and however often: what was there before
// stays, what is declared comes to stand, no service misses a restart, and an
// empty declaration leaves the machine as it was found.
func TestCrashAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := theirs()
		m.there["directory:/srv"] = resource.State{"type": "directory", "mode": "0711", "owner": "root", "group": "root"}
		found := maps.Clone(m.there)
		l := newLedger(m.plug)
		generations := []string{
			`{"generation":1,"resources":[{"directory":{"path":"/srv"}},{"file":{"path":"/srv/a","content":"1"}},{"package":{"name":"db"}},{"service":{"name":"db","restart_on":["file:/srv/a"]}},
			 {"file":{"path":"/etc/a","content":"ours"},"adopt":true},{"action":{"name":"once","command":["x"],"unless":["y"]}}]}`,
			`{"generation":2,"resources":[{"directory":{"path":"/srv"}},{"file":{"path":"/srv/a","content":"2","mode":"0600"}},{"file":{"path":"/srv/b","content":"2"}},{"package":{"name":"db"}},{"service":{"name":"db","restart_on":["file:/srv/a"]}},
			 {"service":{"name":"web"},"adopt":true}]}`,
			`{"generation":3,"resources":[{"file":{"path":"/srv/a","content":"3"}},{"package":{"name":"db"}},{"service":{"name":"db","restart_on":["file:/srv/a"]}},{"container":{"name":"cc","image":"i"}}]}`,
		}
		for _, text := range generations {
			d := declare(t, text)
			for range rapid.IntRange(0, 3).Draw(t, "crashes") {
				m.left = rapid.IntRange(0, 40).Draw(t, "effects")
				if _, err := Apply(Work{Declaration: d}, m, l); err != nil && !errors.Is(err, errCut) {
					t.Fatal(err)
				}
				m.left = 1 << 30
				crash(t, m, l)
			}
			r, err := Apply(Work{Declaration: d}, m, l)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range r.Lines {
				if x.Outcome == "failed" || x.Outcome == "unknown" || x.Drift {
					t.Fatalf("%s\n%+v", text, x)
				}
			}
			if a := m.there["file:/srv/a"]["content"]; m.reads["service:db.service"] != a {
				t.Fatal("the service has not read its file as it is now")
			}
			if again, _ := Apply(Work{Declaration: d}, m, l); again.Sum()["changed"] != 0 {
				t.Fatalf("it does not come to rest: %s", lines(again))
			}
			for ref := range found {
				if o, is := l.now[ref]; (!is || o.Conflict || o.Origin == "found") && !maps.Equal(m.there[ref], found[ref]) {
					t.Fatalf("%s was there before and is changed: %v", ref, m.there[ref])
				}
			}
		}
		for range rapid.IntRange(0, 3).Draw(t, "crashes") {
			m.left = rapid.IntRange(0, 20).Draw(t, "effects")
			_, _ = Apply(Work{Declaration: declare(t, `{"resources":[]}`)}, m, l)
			m.left = 1 << 30
			crash(t, m, l)
		}
		if _, err := Apply(Work{Declaration: declare(t, `{"resources":[]}`)}, m, l); err != nil {
			t.Fatal(err)
		}
		delete(m.there, "package:db") // forgotten, as the table says
		if s := m.there["service:db.service"]; s["running"] != "no" {
			t.Fatalf("the service runs: %v", s)
		}
		delete(m.there, "service:db.service")
		if diff := cmp.Diff(found, m.there); diff != "" || len(l.now) != 0 {
			t.Fatalf("not as it was found: %s%v", diff, l.now)
		}
	})
}

// crash kills the host, or cuts the power: then files may go back to how they stood
// when all was made durable last.
func crash(t *rapid.T, m *machine, l *ledger) {
	if rapid.Bool().Draw(t, "the power goes, too") {
		m.powerCut(func(ref resource.Ref) bool { return rapid.Bool().Draw(t, string(ref)+" goes back") })
	}
	l.crash(rapid.Bool().Draw(t, "the journal got further"))
}

// A crash between a file's repair and its service's restart forgets no restart,
// even though the file is then as it was declared all along.
func TestCrashBeforeRestart(t *testing.T) {
	m := newFake()
	l := newLedger(m.plug)
	text := `{"resources":[{"file":{"path":"/srv/a","content":"1"}},{"service":{"name":"db","restart_on":["file:/srv/a"]}}]}`
	apply(t, m, l, text)
	m.there["file:/srv/a"]["content"] = resource.Hash("by hand")
	m.start("service:db.service") // reads what was changed
	for left := 0; m.reads["service:db.service"] != resource.Hash("1"); left++ {
		if left > 100 {
			t.Fatal("the service never read the repaired file")
		}
		m.left = left
		_, err := Apply(Work{Declaration: declare(t, text)}, m, l)
		m.left = 1 << 30
		l.crash(false)
		if err == nil && m.reads["service:db.service"] != resource.Hash("1") {
			t.Fatalf("after a crash at effect %d the restart is forgotten", left-1)
		}
	}
}

// Something else came to the place after the host said that nothing was there.
func TestIntentOverrun(t *testing.T) {
	text := `{"resources":[{"file":{"path":"/etc/a","content":"ours"}}]}`
	for _, next := range []string{text, `{"resources":[]}`} {
		m := newFake()
		l := newLedger(m.plug)
		m.left = 2 // the intent and its sync
		if _, err := Apply(Work{Declaration: declare(t, text)}, m, l); err == nil || !l.now["file:/etc/a"].Begun {
			t.Fatalf("%v %+v", err, l.now)
		}
		m.left = 1 << 30
		theirs := resource.State{"type": "file", "mode": "0644", "owner": "root", "group": "root", "content": resource.Hash("theirs")}
		m.there["file:/etc/a"] = maps.Clone(theirs)
		if r := apply(t, m, l, next); r.Outcome != "kept" {
			t.Errorf("%+v", r)
		}
		if diff := cmp.Diff(theirs, m.there["file:/etc/a"]); diff != "" || len(l.now) != 0 {
			t.Errorf("%s %v", diff, l.now)
		}
	}
}

// What is gone already, never was changed, or is something else by now is not
// removed.
func TestRemoveLooksFirst(t *testing.T) {
	ours := resource.State{"type": "file", "mode": "0644", "owner": "root", "group": "root", "content": resource.Hash("1")}
	for _, c := range []struct {
		o    resource.Owned
		is   resource.State
		want string
	}{
		{resource.Owned{Ref: "file:/a", Origin: "created", Applied: ours}, nil, "ok file:/a forgotten"},
		{resource.Owned{Ref: "file:/a", Origin: "adopted", Applied: ours, Conflict: true}, ours, "ok file:/a forgotten"},
		{resource.Owned{Ref: "file:/a", Origin: "created", Applied: ours}, resource.State{"type": "directory"}, "kept file:/a forgotten"},
		{resource.Owned{Ref: "file:/a", Origin: "found", Applied: ours}, ours, "ok file:/a forgotten"},
	} {
		m := newFake()
		l := newLedger(m.plug)
		l.now["file:/a"] = c.o
		if c.is != nil {
			m.there["file:/a"] = c.is
		}
		if got := lines(apply(t, m, l, `{"resources":[]}`)); got != c.want {
			t.Errorf("%+v: %s, not %s", c.o, got, c.want)
		}
		if len(m.log) != 0 || len(l.now) != 0 {
			t.Errorf("it did %v, and knows %v", m.log, l.now)
		}
	}
}

// A directory is the host's as long as something in it is, and goes after it.
func TestRemoveDirectoryAfterWhatIsInIt(t *testing.T) {
	m := newFake()
	l := newLedger(m.plug)
	apply(t, m, l, `{"resources":[{"directory":{"path":"/a"}},{"directory":{"path":"/a/b"}},{"file":{"path":"/a/b/c"}}]}`)
	m.broken["file:/a/b/c"] = "input/output error"
	expect(t, apply(t, m, l, `{"resources":[]}`), "failed", "failed file:/a/b/c", "ok directory:/a/b", "ok directory:/a")
	delete(m.broken, "file:/a/b/c")
	expect(t, apply(t, m, l, `{"resources":[{"file":{"path":"/a/b/c"}}]}`), "ok", "ok directory:/a/b", "ok directory:/a", "ok file:/a/b/c")
	for _, more := range []func(*Work){dryRun, func(*Work) {}} {
		expect(t, apply(t, m, l, `{"resources":[]}`, more), "changed", "changed file:/a/b/c removed", "changed directory:/a/b removed", "changed directory:/a removed")
	}
	if len(m.there) != 0 || len(l.now) != 0 {
		t.Errorf("left: %v, %v", m.there, l.now)
	}
}

// What cannot be removed now is tried again, and is not forgotten meanwhile.
func TestRemoveAgain(t *testing.T) {
	m := newFake()
	l := newLedger(m.plug)
	apply(t, m, l, `{"resources":[{"file":{"path":"/a"}}]}`)
	m.broken["file:/a"] = "read-only file system"
	expect(t, apply(t, m, l, `{"resources":[]}`), "failed", "failed file:/a")
	delete(m.broken, "file:/a")
	expect(t, apply(t, m, l, `{"resources":[]}`), "changed", "changed file:/a removed")
}

// A container cannot be looked at before its runtime, which the same
// declaration brings, is up. Then nothing is there, and it is made.
func TestSeenOnlyInItsTurn(t *testing.T) {
	const text = `{"resources":[{"package":{"name":"podman"}},{"container":{"name":"web","image":"i"}}]}`
	m := newFake()
	l := newLedger(m.plug)
	m.blind["container:web"] = 1
	expect(t, apply(t, m, l, text), resource.OutcomeChanged, "changed package:podman created", "changed container:web created")
	if o, known := l.durable["container:web"]; !known || o.Begun || o.Origin != resource.OriginCreated {
		t.Errorf("%+v", o)
	}
	m.there["container:other"] = resource.State{"image": "theirs:1"}
	m.blind["container:other"] = 1
	expect(t, apply(t, m, l, `{"resources":[{"container":{"name":"other","image":"i"}}]}`, local), resource.OutcomeKept, "kept container:other")
}

// The host is never told to stop or restart itself, whoever says so and
// whatever is recorded.
func TestItself(t *testing.T) {
	m := newFake()
	l := newLedger(m.plug)
	for _, more := range [][]func(*Work){nil, {local}, {dryRun}} {
		r := apply(t, m, l, `{"resources":[{"file":{"path":"/etc/f","content":"x"}},{"service":{"name":"muster-host","running":false,"restart_on":["file:/etc/f"]},"adopt":true}]}`, more...)
		if line := r.Lines[1]; line.Outcome != resource.OutcomeFailed || !strings.Contains(line.Reason, "it is this host") {
			t.Errorf("%+v", line)
		}
	}
	if o, known := l.Get(self); known {
		t.Errorf("it owns itself: %+v", o)
	}
	m.there[self] = resource.State{resource.FieldEnabled: "yes", resource.FieldRunning: "yes"}
	line := Remove(resource.Owned{Ref: self, Origin: resource.OriginCreated, Applied: resource.State{resource.FieldRunning: "yes"}}, m, false)
	if line.Outcome != resource.OutcomeOK || line.Did != "forgotten" {
		t.Errorf("%+v", line)
	}
}

// What a newer control plane declares and this version does not know fails
// alone. What depends on it is not tried, and what it may stand for stays.
func TestApplyUnread(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{`{"resources":[{"file":{"path":"/a","acl":1}},{"service":{"name":"s"},"after":["file:/a"]},{"package":{"name":"p"}}]}`,
			[]string{"changed file:/b removed", "failed file:/a", "unknown service:s.service", "changed package:p created"}},
		{`{"resources":[{"directory":{"path":"/d","acl":1}},{"file":{"path":"/d/x"}},{"file":{"path":"/a"}}]}`,
			[]string{"changed file:/b removed", "failed directory:/d", "unknown file:/d/x", "ok file:/a"}},
		{`{"resources":[{"link":{"path":"/b"}},{"file":{"path":"/c"}},{"file":{"path":"/e"},"after":["link:/b"]}]}`,
			[]string{"kept file:/b", "kept file:/a", "failed link:/b", "changed file:/c created", "unknown file:/e"}},
	} {
		m := newFake()
		l := newLedger(m.plug)
		apply(t, m, l, `{"resources":[{"file":{"path":"/a"}},{"file":{"path":"/b"}}]}`)
		var d resource.Declaration
		if err := errors.Join(json.Unmarshal([]byte(c.text), &d), d.Check()); err != nil {
			t.Fatal(err)
		}
		r := apply(t, m, l, `{"resources":[]}`, func(w *Work) { w.Declaration = &d })
		expect(t, r, resource.OutcomeFailed, c.want...)
		for _, line := range r.Lines {
			if line.Outcome == resource.OutcomeFailed && !strings.Contains(line.Reason, "this version of muster-host does not know") {
				t.Errorf("%+v", line)
			}
		}
		if m.there["file:/a"] == nil || l.now["file:/a"].Origin != resource.OriginCreated {
			t.Errorf("after %s it holds %v", c.text, m.there)
		}
	}
}
