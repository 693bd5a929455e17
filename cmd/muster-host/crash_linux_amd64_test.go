package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster.internal/host"
	"muster.internal/resource"
)

// asHost makes this test program be muster-host, as a process that can be
// killed: traced, or free.
const asHost = "MUSTER_TEST_AS_HOST"

func TestMain(m *testing.M) {
	systemCommands["declared"] = declared
	if as := os.Getenv(asHost); as != "" {
		if as == "traced" {
			if err := stopAtCalls(); err != nil {
				fatal(err)
			}
		}
		os.Exit(command(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// declared applies a file as one that came over the link: what it does not name
// is removed.
func declared(_ context.Context, e *env) error {
	dir := ""
	args, err := e.flagsAndArgs("declared", "FILE", 1, func(f *flag.FlagSet) { f.StringVar(&dir, "state", "", "") })
	if err != nil {
		return err
	}
	text, err := e.read(args[0])
	if err != nil {
		return err
	}
	d, err := resource.Parse(args[0], text)
	if err != nil {
		return err
	}
	return e.applied(dir, host.Work{Declaration: &d, Trigger: "declaration", Version: "test"})
}

// What the machine was before the host came, and what it is told to be.
const (
	generation1 = `{"generation":1,"resources":[
 {"directory":{"path":"DIR/app",OWNED}},
 {"directory":{"path":"DIR/app/sub","mode":"0700",OWNED}},
 {"file":{"path":"DIR/app/a","content":"one\n",OWNED}},
 {"file":{"path":"DIR/app/sub/b","content":"two\n","mode":"0600",OWNED}},
 {"file":{"path":"DIR/etc/kept","content":"ours\n",OWNED}},
 {"file":{"path":"DIR/etc/adopted","content":"as found\n","mode":"0600",OWNED},"adopt":true},
 {"directory":{"path":"DIR/etc/dir","mode":"0750",OWNED},"adopt":true},
 {"action":{"name":"first","command":["/bin/sh","-c","echo 1 >>DIR/ran1"],"unless":["test","-s","DIR/ran1"]}}]}`
	// Changed, taken away and new: a file, a directory, what was adopted.
	generation2 = `{"generation":2,"resources":[
 {"directory":{"path":"DIR/app","mode":"0750",OWNED}},
 {"file":{"path":"DIR/app/a","content":"one, and more\n",OWNED}},
 {"directory":{"path":"DIR/app/new",OWNED}},
 {"file":{"path":"DIR/app/new/c","content":"three\n",OWNED}},
 {"file":{"path":"DIR/etc/kept","content":"ours\n",OWNED}},
 {"file":{"path":"DIR/etc/adopted","content":"ours\n",OWNED},"adopt":true},
 {"directory":{"path":"DIR/etc/dir","mode":"0700",OWNED},"adopt":true},
 {"action":{"name":"second","command":["/bin/sh","-c","echo 2 >>DIR/ran2"],"unless":["test","-s","DIR/ran2"]}}]}`
	nothing = `{"generation":3,"resources":[]}`
)

// A step is one run of the host.
type step struct {
	name string
	args []string
}

var (
	linked = []step{{"first", []string{"declared", "DIR.1"}}, {"second", []string{"declared", "DIR.2"}}, {"nothing", []string{"declared", "DIR.3"}}}
	byHand = []step{{"first by hand", []string{"apply", "DIR.1"}}, {"second by hand", []string{"apply", "DIR.2"}}, {"restore", []string{"restore", "DIR/etc/adopted"}}}
)

// A wreck is a machine on which the host is killed and hindered, over and over.
type wreck struct {
	*testing.T
	dir, root, state string
	found            map[string]string // what stood there before the host came
	untouched        string            // what must not be touched, by its numbers
	tracer           tracer
	stride           map[fate]int
	counts           map[fate]int
}

func newWreck(t *testing.T) *wreck {
	dir := newBench(t).dir
	w := &wreck{T: t, dir: dir, root: filepath.Join(dir, "root"), counts: map[fate]int{}}
	w.state = filepath.Join(w.root, "state")
	w.tracer.watch = w.root
	for _, d := range []struct {
		name string
		mode fs.FileMode
	}{{"", 0o755}, {"etc", 0o755}, {"etc/dir", 0o750}, {"theirs", 0o711}} {
		w.must(os.Mkdir(filepath.Join(w.root, d.name), d.mode))
		w.must(os.Chmod(filepath.Join(w.root, d.name), d.mode))
	}
	for name, text := range map[string]string{"etc/kept": "theirs\n", "etc/adopted": "as found\n", "etc/dir/theirs": "x", "theirs/theirs": "y"} {
		w.must(os.WriteFile(filepath.Join(w.root, name), []byte(text), 0o600))
	}
	for i, text := range []string{generation1, generation2, nothing} {
		text = strings.ReplaceAll(text, "DIR", w.root)
		text = strings.ReplaceAll(text, "OWNED", fmt.Sprintf(`"owner":"%d","group":"%d"`, os.Getuid(), os.Getgid()))
		w.must(os.WriteFile(fmt.Sprintf("%s.%d", w.root, i+1), []byte(text), 0o600))
	}
	w.found = w.tree()
	return w
}

func (w *wreck) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *wreck) arguments(s step) []string {
	args := append(slices.Clone(s.args), "--state", w.state)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "DIR", w.root)
	}
	return args
}

// do runs a step in this process, whole.
func (w *wreck) do(s step) (int, string) {
	var out bytes.Buffer
	code := command(context.Background(), w.arguments(s), nil, &out, &out)
	return code, out.String()
}

// tree is what stands there, but for the state and what actions made: whose it
// is and what it holds.
func (w *wreck) tree() map[string]string {
	w.Helper()
	all := map[string]string{}
	w.must(filepath.WalkDir(w.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(w.root, path)
		if name == "state" {
			return fs.SkipDir
		}
		if strings.HasPrefix(name, "ran") {
			return nil
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		var text []byte
		if !d.IsDir() {
			if text, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		st := i.Sys().(*syscall.Stat_t)
		all[name] = fmt.Sprintf("%v %d:%d %q", i.Mode(), st.Uid, st.Gid, text)
		return nil
	}))
	return all
}

// theirs tells whether what is not the host's was so much as written anew.
func (w *wreck) theirs() string {
	b := new(strings.Builder)
	for _, name := range []string{"etc/kept", "etc/dir/theirs", "theirs/theirs", "theirs"} {
		i, err := os.Lstat(filepath.Join(w.root, name))
		w.must(err)
		st := i.Sys().(*syscall.Stat_t)
		fmt.Fprintln(b, name, st.Ino, st.Ctim)
	}
	return b.String()
}

// copy puts a place where another was.
func (w *wreck) copy(from, to string) {
	w.Helper()
	w.must(os.RemoveAll(to))
	w.must(os.CopyFS(to, os.DirFS(from)))
	w.must(filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		return os.Chmod(to+strings.TrimPrefix(path, from), i.Mode().Perm()) // whatever the umask
	}))
	if to == w.root {
		w.untouched = w.theirs()
	}
}

// befall runs a step as a process whose n-th call of those that the fate is for
// it befalls, and the later ones when it lasts. It returns the first of them.
func (w *wreck) befall(s step, n int, f fate) (at point, status syscall.WaitStatus, text string) {
	w.Helper()
	seen := 0
	status, text = w.watched(s, func(p point) fate {
		if !f.for_(p) {
			return pass
		}
		if seen++; seen == n {
			at = p
		}
		if seen == n || seen > n && f.lasts() {
			return f
		}
		return pass
	})
	return at, status, text
}

// watched runs a step as a process that something may befall at its calls.
func (w *wreck) watched(s step, decide func(point) fate) (syscall.WaitStatus, string) {
	w.Helper()
	w.tracer.decide = decide
	out, err := os.Create(filepath.Join(w.dir, "out"))
	w.must(err)
	defer out.Close()
	self, err := os.Executable()
	w.must(err)
	env := append(os.Environ(), asHost+"=traced", "GOMAXPROCS=1")
	w.tracer.run(w.T, append([]string{self}, w.arguments(s)...), env, out)
	b, err := os.ReadFile(out.Name())
	w.must(err)
	return syscall.WaitStatus(w.tracer.status), string(b)
}

// for_ tells which calls a fate can befall.
func (f fate) for_(p point) bool {
	switch f {
	case tear:
		return p.call.name == "write" && p.length > 1
	case enospc:
		return p.creates || slices.Contains([]string{"write", "mkdirat", "renameat", "renameat2", "fsync", "fdatasync"}, p.call.name)
	case eio:
		return true
	}
	return p.call.changes
}

func (f fate) lasts() bool { return f == enospc || f == erofs }

// step tries every fate at each point of a step, and leaves the place as it is
// after the step.
func (w *wreck) step(s step) {
	before, beforeTree := filepath.Join(w.dir, "before"), w.tree()
	w.copy(w.root, before)
	code, text := w.do(s)
	if code != 0 && code != exitIncomplete {
		w.Fatalf("%s: status %d: %s", s.name, code, text)
	}
	afterTree := w.tree()
	after := filepath.Join(w.dir, "after")
	w.copy(w.root, after)
	for f := kill; f <= erofs; f++ {
		for n := 1; ; n += w.stride[f] {
			w.copy(before, w.root)
			at, status, text := w.befall(s, n, f)
			if at.number == 0 {
				break
			}
			w.counts[f]++
			what := fmt.Sprintf("%s, %s at %v", s.name, f, at)
			if f == kill || f == tear {
				if !status.Signaled() {
					w.Errorf("%s: it was not killed: %v %s", what, status, text)
				}
				if w.stride[f] == 1 || n%2 == 0 { // and while it recovers, too
					w.befall(s, n*7%(n+13)+1, f)
				}
			} else {
				w.hindered(what, at, f, status, text, afterTree)
			}
			w.whole(what, beforeTree, afterTree)
			w.recovers(what, s, code, afterTree)
			if w.Failed() {
				w.FailNow()
			}
		}
	}
	w.copy(after, w.root)
}

// hindered judges a run in which calls failed: it ends by itself, says so
// unless all is as it should be, and leaves nothing half-made.
func (w *wreck) hindered(what string, at point, f fate, status syscall.WaitStatus, text string, after map[string]string) {
	if !status.Exited() || text == "" || strings.Contains(text, "goroutine ") {
		w.Errorf("%s: %v %s", what, status, text)
	}
	if status.ExitStatus() == 0 {
		if diff := cmp.Diff(after, w.tree()); diff != "" {
			w.Errorf("%s: it said nothing of it: %s\n%s", what, text, diff)
		}
	}
	if f == eio && at.call.name != "unlinkat" {
		w.tidy(what)
	}
}

// whole tells whether each thing is as it was or as it is to be.
func (w *wreck) whole(what string, before, after map[string]string) {
	for name, is := range w.tree() {
		if is != before[name] && is != after[name] && !strings.Contains(name, "muster-new") {
			w.Errorf("%s: %s is neither old nor new: %s", what, name, is)
		}
	}
}

// tidy tells whether anything was left lying about, or anything touched that is
// not the host's.
func (w *wreck) tidy(what string) {
	if now := w.theirs(); now != w.untouched {
		w.Errorf("%s: what is not the host's was touched:\n%s%s", what, w.untouched, now)
	}
	w.must(filepath.WalkDir(w.root, func(path string, _ fs.DirEntry, err error) error {
		if base := filepath.Base(path); strings.HasPrefix(base, ".") || strings.HasSuffix(base, ".new") {
			w.Errorf("%s: left behind: %s", what, path)
		}
		return err
	}))
}

// recovers runs the step again, which must end as if nothing had happened, and
// then takes all back; and takes all back at once.
func (w *wreck) recovers(what string, s step, code int, after map[string]string) {
	w.Helper()
	if owned, text := w.do(step{args: []string{"owned", "--output", "json"}}); owned != 0 || !json.Valid([]byte(text)) {
		w.Errorf("%s: the record cannot be read: %s", what, text)
	}
	wrecked := filepath.Join(w.dir, "wrecked")
	w.copy(w.root, wrecked)
	back := linked[2:]
	if s.args[0] != "declared" {
		back = linked // what was made by hand must become the link's first
	}
	w.takenBack(what+", then nothing", back)
	w.copy(wrecked, w.root)
	for range 2 {
		again, text := w.do(s)
		if again != code && !(s.args[0] == "restore" && strings.Contains(text, "not adopted")) {
			w.Errorf("%s: again: status %d, not %d: %s", what, again, code, text)
		}
		if diff := cmp.Diff(after, w.tree()); diff != "" {
			w.Errorf("%s: again: %s\n%s", what, text, diff)
		}
	}
	w.tidy(what + ", again")
	if again, text := w.do(s); strings.Contains(text, "changed") {
		w.Errorf("%s: there is no end to it: %d %s", what, again, text)
	}
	w.takenBack(what+", again", back)
}

// takenBack declares nothing, at last: all is as it was found.
func (w *wreck) takenBack(what string, by []step) {
	w.Helper()
	var said strings.Builder
	for _, s := range by {
		_, text := w.do(s)
		said.WriteString(text)
	}
	if diff := cmp.Diff(w.found, w.tree()); diff != "" {
		w.Errorf("%s: not as it was found:\n%s%s", what, &said, diff)
	}
	if _, text := w.do(step{args: []string{"owned", "--output", "json"}}); strings.TrimSpace(text) != "[]" {
		w.Errorf("%s: still owned: %s", what, text)
	}
	w.tidy(what)
}

// The host is killed, and hindered, at every call that it makes. Nothing is
// lost, nobody else's is touched, and the next run ends as if it had not been.
func TestApplyCutShort(t *testing.T) {
	w := newWreck(t)
	if os.Getenv("MUSTER_SOAK") == "" { // a few points of the step that has something of everything
		w.stride = map[fate]int{kill: 19, tear: 23, enospc: 37, eio: 97, erofs: 53}
		w.do(linked[0])
		w.step(linked[1])
	} else {
		w.stride = map[fate]int{kill: 1, tear: 1, enospc: 1, eio: 1, erofs: 1}
		empty := filepath.Join(w.dir, "empty")
		w.copy(w.root, empty)
		for _, s := range linked {
			w.step(s)
		}
		w.copy(empty, w.root)
		for _, s := range byHand {
			w.step(s)
		}
	}
	total := 0
	for _, n := range w.counts {
		total += n
	}
	t.Logf("%d points: %v", total, w.counts)
}

// What was renamed, made, removed or given another access lasts before the record
// says so: else it goes back in a power cut, and is taken for somebody else's change.
func TestLastsBeforeItIsRecorded(t *testing.T) {
	w := newWreck(t)
	pending, last, changed := map[string]bool{}, map[string]bool{}, 0
	watch := func(p point) fate {
		inState := strings.HasPrefix(p.path+"/", w.state+"/")
		switch p.call.name {
		case "renameat2", "mkdirat":
			if !inState {
				pending[filepath.Dir(p.path)] = true
				changed++
			}
		case "unlinkat":
			if !inState && !strings.HasSuffix(p.path, "muster-new") {
				delete(pending, p.path) // nothing is in it any more
				pending[filepath.Dir(p.path)] = true
				changed++
			}
		case "fsync":
			delete(pending, p.path)
		case "write":
			if strings.HasPrefix(p.path, filepath.Join(w.state, "owned.")) && len(pending) > 0 && !maps.Equal(last, pending) {
				t.Errorf("%v: it is recorded, and these may go back: %v", p, pending)
				last = maps.Clone(pending)
			}
		}
		return pass
	}
	for _, s := range linked {
		if status, out := w.watched(s, watch); status.ExitStatus() != 0 && status.ExitStatus() != exitIncomplete {
			t.Fatalf("%s: %v %s", s.name, status, out)
		}
	}
	if len(pending) > 0 || changed < 10 {
		t.Errorf("%d changes, and at the end these may go back: %v", changed, pending)
	}
}
