package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	muster "muster.internal"
	"muster.internal/lab"
)

// TestWalkDocs takes real machines' control plane, booter and simulated
// machines through their lives with the commands of testdata/walk.txt alone,
// and writes down what is said as docs/walk.md. It fails when an operator could
// make a change that the walk does not, or anything else that the lifecycles know
// of does not happen in it.
func TestWalkDocs(t *testing.T) {
	w := newWalk(t)
	script, err := os.ReadFile("testdata/walk.txt")
	if err != nil {
		t.Fatal(err)
	}
	w.script(string(script))
	w.leftOut()
	const path = "../../docs/walk.md"
	got := regexp.MustCompile(`\n{3,}`).ReplaceAllString(w.page.String(), "\n\n")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, _ := os.ReadFile(path); got != string(want) {
		t.Errorf("%s is stale: make generate; the walk says now\n%s", path, firstDifference(got, string(want)))
	}
	w.covered()
}

func firstDifference(got, want string) string {
	g, o := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i, line := range g {
		if i >= len(o) || line != o[i] {
			return strings.Join(g[max(0, i-3):min(len(g), i+6)], "\n")
		}
	}
	return "(less than before)"
}

// A walk is one run through the script.
type walk struct {
	stage
	t        *testing.T
	dev      *lab.Dev
	vars     map[string]string // of the environment
	dir      string
	host     string // muster-host, built
	page     strings.Builder
	names    map[string]string // from volatile words to those of the page
	numbered int               // ids that were given names
	tokens   int               // that were issued
	ids      map[string]string // what the script's words in capitals stand for
	ended    chan error        // the muster-host that runs
	walked   map[string]bool   // "EVENT on 'STATE'", by an operator
	happened map[muster.Event]bool
	seq      int64 // of the audit, as far as it was read
}

func newWalk(t *testing.T) *walk {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command to build muster-host with")
	}
	w := &walk{t: t, dir: t.TempDir(), names: map[string]string{}, ids: map[string]string{}, walked: map[string]bool{}, happened: map[muster.Event]bool{}}
	w.stage.hold = make(chan struct{})
	close(w.stage.hold)
	w.host = filepath.Join(w.dir, "muster-host")
	if out, err := exec.Command("go", "build", "-o", w.host, "../muster-host").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ctx, stop := context.WithCancel(context.Background())
	var err error
	w.dev, err = lab.OpenDev(ctx, lab.DevConfig{Machines: 4, API: "127.0.0.1:0", Dir: filepath.Join(w.dir, "dev"), Hurry: 20, Now: w.stage.now, Hardware: w.hardware,
		Between: func(f muster.ForBooter) muster.ForBooter { return slowly{f, w} }})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- w.dev.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if name, err := os.Hostname(); err == nil {
		w.names["("+name+")"] = "(db1)"
		w.names[claimant[:8]+"  "+name+" "] = claimant[:8] + "  db1 "
	}
	w.vars = sourced(t, w.dev.Env())
	return w
}

// A step is a command, what is typed, and what is waited for.
type step struct {
	command, typed string
	until          *regexp.Regexp
	code           int
}

// script reads lines: "$ COMMAND", then "< TYPED", "~ UNTIL IT SAYS" or
// "! EXIT CODE" about it; "@ …" is a stage direction; all else is the page's.
func (w *walk) script(text string) {
	var s *step
	flush := func() {
		if s != nil {
			w.step(*s)
		}
		s = nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		mark, rest, _ := strings.Cut(line, " ")
		switch mark {
		case "$":
			flush()
			s = &step{command: rest}
		case "<":
			s.typed = rest + "\n"
		case "~":
			s.until = regexp.MustCompile(rest)
		case "!":
			code, err := strconv.Atoi(rest)
			if err != nil {
				w.t.Fatal(err)
			}
			s.code = code
		case "@":
			flush()
			w.direct(rest)
		default:
			flush()
			w.page.WriteString(line + "\n")
		}
	}
	flush()
}

func (w *walk) step(s step) {
	was := w.states()
	limit, tick := time.After(3*time.Minute), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		code, out := w.muster(s)
		if s.until == nil && code != s.code {
			w.t.Fatalf("%s: exit code %d, want %d\n%s", s.command, code, s.code, out)
		}
		if s.until == nil || code == s.code && s.until.MatchString(out) {
			w.note(was)
			w.show(s, out)
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			w.t.Fatalf("%s never says %s:\n%s", s.command, s.until, out)
		}
	}
}

// capitals are the script's words for what it cannot know.
var capitals = regexp.MustCompile(`(CODE|TOKEN|NODE\(\w+\)|DISK\([\w-]+\))`)

func (w *walk) resolved(text string) string {
	return capitals.ReplaceAllStringFunc(text, func(word string) string {
		if w.ids[word] == "" {
			w.t.Fatalf("%q: nothing is known of %s", text, word)
		}
		return w.ids[word]
	})
}

// muster runs the command line in this process.
func (w *walk) muster(s step) (int, string) {
	var out bytes.Buffer
	in := strings.NewReader(w.resolved(s.typed))
	code := run(w.t.Context(), env{stdin: in, stdout: &out, stderr: &out, getenv: func(k string) string { return w.vars[k] }, now: w.stage.now,
		dial: dial, abs: func(p string) string { return p }, configDir: filepath.Join(w.dir, "config"),
		readSecret: func(string) (string, error) { return readLine(in) }}, strings.Fields(w.resolved(s.command))[1:])
	return code, out.String()
}

var issued = regexp.MustCompile(`(?s)enrolment token (\w+), good once.*(musen1_\S+)`)

// show writes the command and what it said.
func (w *walk) show(s step, out string) {
	if m := issued.FindStringSubmatch(out); m != nil { // shown once
		w.tokens++
		w.ids["TOKEN"], w.ids["WORD"] = m[1], m[2]
		w.names[m[1]], w.names[m[2]] = fmt.Sprintf("q2qywnguwzb%d", w.tokens), "musen1_…"
	}
	fmt.Fprintf(&w.page, "\n```console\n$ %s\n%s", w.calm(w.resolved(s.command)), w.calm(out))
	if s.code != 0 {
		fmt.Fprintf(&w.page, "(exit code %d)\n", s.code)
	}
	w.page.WriteString("```\n\n")
}
