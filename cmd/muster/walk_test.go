package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	muster "muster.internal"
	"muster.internal/lab"
	"muster.internal/lifecycle"
)

// owed are events with a verb that the walk does not show yet, each with what
// it waits for. A new verb stands here or in testdata/walk.txt.
var owed = map[muster.Event]string{
	lifecycle.Readmit:        "its commands",
	lifecycle.GracefulRemove: "its commands",
	lifecycle.Expunge:        "its commands",
	lifecycle.RemoveDisk:     "its commands",
	lifecycle.KeepDisk:       "its commands",
	lifecycle.ExpungeDisk:    "its commands",
	"accept":                 "two machines of one identity",
	"separate":               "two machines of one identity",
	"move_nic":               "two machines of one identity",
	"forget":                 "two machines of one identity",
}

// unwalked are transitions of events that are walked from another state.
var unwalked = map[string]string{
	"factory_reset on 'approved'": "a second node; it is walked from disabled",
	"resume on 'graceful_remove'": "a removal that takes long enough to be taken back: placements",
	"set on ''":                   "a record that nobody reported, only to hold an argument: as enroll on one",
	"decommission on ''":          "the same record, to keep a card out before it is seen",
}

// TestWalkDocs takes real machines' control plane, booter and simulated
// machines through their lives with the commands of testdata/walk.txt alone,
// and writes down what is said as docs/walk.md. It fails when an operator could
// make a change that the walk does not.
func TestWalkDocs(t *testing.T) {
	w := newWalk(t)
	script, err := os.ReadFile("testdata/walk.txt")
	if err != nil {
		t.Fatal(err)
	}
	w.script(string(script))
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

// covered compares what happened with the lifecycles' own rows.
func (w *walk) covered() {
	walked := map[muster.Event]bool{}
	for k := range w.walked {
		event, _, _ := strings.Cut(k, " on ")
		walked[muster.Event(event)] = true
	}
	n := 0
	for _, x := range lifecycle.Transitions(lifecycle.Operator) {
		key := fmt.Sprintf("%s on '%s'", x.Event, x.From)
		switch {
		case x.Verb == "": // nobody can say it
		case owed[x.Event] != "":
			if walked[x.Event] {
				w.t.Errorf("%s is walked: take it out of owed", x.Event)
			}
		case w.walked[key]:
			n++
			if unwalked[key] != "" {
				w.t.Errorf("%s is walked: take it out of unwalked", key)
			}
		case unwalked[key] == "":
			w.t.Errorf("no step of testdata/walk.txt makes an operator's %s, which leads to '%s'", key, x.To)
		}
	}
	w.t.Logf("%d transitions by operators were walked; %d events are owed", n, len(owed))
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
	t      *testing.T
	dev    *lab.Dev
	vars   map[string]string // of the environment
	dir    string
	host   string // muster-host, built
	page   strings.Builder
	names  map[string]string // from volatile words to those of the page
	ids    int               // that were given names
	code   string            // claim code
	ended  chan error        // the muster-host that runs
	walked map[string]bool   // "EVENT on 'STATE'"
	seq    int64             // of the audit, as far as it was read
	hold   chan struct{}     // closed: bundles may be taken
}

// slowly keeps bundles back while it is told to, as a slow machine would.
type slowly struct {
	muster.ForBooter
	w *walk
}

func (s slowly) TakeBundle(ctx context.Context, uuid string, r muster.TakeRequest) (muster.TakenBundle, error) {
	select {
	case <-s.w.holding():
	case <-ctx.Done():
		return muster.TakenBundle{}, ctx.Err()
	}
	return s.ForBooter.TakeBundle(ctx, uuid, r)
}

var holdMu sync.Mutex

func (w *walk) holding() chan struct{} {
	holdMu.Lock()
	defer holdMu.Unlock()
	return w.hold
}

func newWalk(t *testing.T) *walk {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command to build muster-host with")
	}
	w := &walk{t: t, dir: t.TempDir(), names: map[string]string{}, walked: map[string]bool{}, hold: make(chan struct{})}
	close(w.hold)
	w.host = filepath.Join(w.dir, "muster-host")
	if out, err := exec.Command("go", "build", "-o", w.host, "../muster-host").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ctx, stop := context.WithCancel(context.Background())
	var err error
	w.dev, err = lab.OpenDev(ctx, lab.DevConfig{Machines: 3, API: "127.0.0.1:0", Dir: filepath.Join(w.dir, "dev"), Hurry: 20,
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

// direct does what happens beside the command line.
func (w *walk) direct(what string) {
	switch what {
	case "bundles wait":
		holdMu.Lock()
		w.hold = make(chan struct{})
		holdMu.Unlock()
	case "bundles go":
		holdMu.Lock()
		close(w.hold)
		holdMu.Unlock()
	case "muster-host register":
		w.register()
	case "muster-host ends":
		select {
		case <-w.ended:
		case <-time.After(time.Minute):
			w.t.Fatal("muster-host register does not end")
		}
	case "forget credential":
		os.Remove(filepath.Join(w.dir, "state", "credential"))
	default:
		w.t.Fatalf("no stage direction %q", what)
	}
}

const claimant = "c1a1ab1e-0009-4000-8000-000000000009"

// register starts a real muster-host that asks for a code.
func (w *walk) register() {
	before := w.states()
	cmd := exec.Command(w.host, "register", "--url", w.vars["MUSTER_URL"], "--ca", w.vars["MUSTER_CA"], "--state", filepath.Join(w.dir, "state"), "--uuid", claimant)
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.ended = make(chan error, 1)
	code := make(chan string, 1)
	ended := w.ended
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if _, c, ok := strings.Cut(lines.Text(), "Claim code:  "); ok {
				code <- c
			}
		}
		ended <- cmd.Wait()
	}()
	w.t.Cleanup(func() { cmd.Process.Kill() })
	select {
	case w.code = <-code:
	case <-ended:
		w.t.Fatal("muster-host register ended without a code")
	case <-time.After(time.Minute):
		w.t.Fatal("muster-host register shows no code")
	}
	w.names[w.code] = "4K7-9PQ"
	w.note(before)
	w.page.WriteString("\n```console\nmachine# muster-host register --url https://muster.example:8443 --ca ca.pem\n\n    Claim code:  4K7-9PQ\n\n```\n\n")
}

func (w *walk) step(s step) {
	before := w.states()
	limit, tick := time.After(time.Minute), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		code, out := w.muster(s)
		if s.until == nil && code != s.code {
			w.t.Fatalf("%s: exit code %d, want %d\n%s", s.command, code, s.code, out)
		}
		if s.until == nil || code == s.code && s.until.MatchString(out) {
			w.note(before)
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

// muster runs the command line in this process.
func (w *walk) muster(s step) (int, string) {
	args := strings.Fields(strings.ReplaceAll(s.command, "CODE", w.code))
	var out bytes.Buffer
	in := strings.NewReader(s.typed)
	code := run(w.t.Context(), env{stdin: in, stdout: &out, stderr: &out, getenv: func(k string) string { return w.vars[k] }, now: time.Now,
		dial: dial, abs: func(p string) string { return p }, configDir: filepath.Join(w.dir, "config"),
		readSecret: func(string) (string, error) { return readLine(in) }}, args[1:])
	return code, out.String()
}

// show writes the command and what it said.
func (w *walk) show(s step, out string) {
	fmt.Fprintf(&w.page, "\n```console\n$ %s\n%s", strings.ReplaceAll(s.command, "CODE", "4K7-9PQ"), w.calm(out))
	if s.code != 0 {
		fmt.Fprintf(&w.page, "(exit code %d)\n", s.code)
	}
	w.page.WriteString("```\n\n")
}

var (
	anyUUID   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	anyTime   = regexp.MustCompile(`20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?`)
	anyAgo    = regexp.MustCompile(`\b\d+s( ago)?\b|\bnow\b`)
	anyHash   = regexp.MustCompile(`[0-9a-f]{64}`)
	anyCount  = regexp.MustCompile(`\b\d+ (entries)|(entry|to) \d+\b`)
	cellBreak = regexp.MustCompile(` {2,}`)
)

// calm replaces what differs from run to run, and sets tables anew.
func (w *walk) calm(out string) string {
	var pairs []string
	for from, to := range w.names {
		pairs = append(pairs, from, to)
	}
	out = strings.NewReplacer(append(pairs, w.dir, "/tmp/walk")...).Replace(out) // in one pass: addresses may change places
	out = anyUUID.ReplaceAllStringFunc(out, func(id string) string {
		if strings.HasPrefix(id, "5ca1ab1e") || id == claimant {
			return id
		}
		if w.names[id] == "" {
			w.ids++
			w.names[id] = fmt.Sprintf("01980000-0000-7000-8000-%012d", w.ids)
		}
		return w.names[id]
	})
	out = anyTime.ReplaceAllString(out, "2026-03-01T12:00:00Z")
	out = anyAgo.ReplaceAllString(out, "now")
	out = anyHash.ReplaceAllString(out, "…")
	out = anyCount.ReplaceAllStringFunc(out, func(s string) string { return regexp.MustCompile(`\d+`).ReplaceAllString(s, "N") })
	return realign(out)
}

// realign sets the cells of consecutive lines with as many cells in columns.
func realign(out string) string {
	lines := strings.SplitAfter(out, "\n")
	var b strings.Builder
	for i := 0; i < len(lines); {
		cells := cellBreak.Split(strings.TrimRight(lines[i], "\n"), -1)
		end := i + 1
		rows := [][]string{cells}
		for ; end < len(lines) && len(cells) > 1; end++ {
			next := cellBreak.Split(strings.TrimRight(lines[end], "\n"), -1)
			if strings.ToUpper(lines[i]) == lines[i] && len(next) == len(cells)-1 && len(next) > 1 {
				next = append(next, "") // the last column is empty here
			}
			if len(next) != len(cells) {
				break
			}
			rows = append(rows, next)
		}
		if len(rows) == 1 || strings.HasPrefix(lines[i], " ") {
			b.WriteString(lines[i])
			i++
			continue
		}
		for _, row := range rows {
			padded := make([]string, len(row))
			for c, cell := range row {
				width := 0
				for _, r := range rows {
					width = max(width, len([]rune(r[c])))
				}
				padded[c] = cell + strings.Repeat(" ", width-len([]rune(cell))+2)
			}
			b.WriteString(strings.TrimRight(strings.Join(padded, ""), " ") + "\n")
		}
		i = end
	}
	return b.String()
}

// states is how everything stands, by the audit's subjects.
func (w *walk) states() map[string]string {
	f, all := w.dev.Fleet(), map[string]string{}
	ctx := w.t.Context()
	regs, err := f.Registrations(ctx, muster.RegistrationFilter{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range regs {
		all["registration/"+r.ServerUUID] = string(r.State)
	}
	recs, err := f.BootRecords(ctx, muster.BootFilter{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range recs {
		all["boot-record/"+r.MAC] = string(r.State)
		all["mode/"+r.MAC] = string(r.Mode)
		// The machines are given addresses in the order in which they ask.
		if n, err := strconv.Atoi(strings.TrimPrefix(r.MAC, "52:54:00:77:00:")); err == nil && r.Address != "" {
			fixed := fmt.Sprintf("127.77.0.%d", 15+n)
			w.names[r.Address+"/16"], w.names[", address "+r.Address+"\n"] = fixed+"/16", ", address "+fixed+"\n"
		}
		if all["image/"+r.MAC] = ""; r.AssignedPI != nil {
			all["image/"+r.MAC] = "assigned"
		}
	}
	nodes, err := f.Nodes(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range nodes {
		all["node/"+n.ID] = string(n.Policy)
	}
	return all
}

// note writes down which changes the audit holds that an operator has made
// since, and from which state.
func (w *walk) note(before map[string]string) {
	after := w.states()
	entries, err := w.dev.Fleet().Audit(w.t.Context(), muster.AuditFilter{After: w.seq})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range entries {
		w.seq = max(w.seq, e.Seq)
		if !strings.HasPrefix(e.Actor, "operator:") {
			continue
		}
		mac, ofRecord := strings.CutPrefix(e.Subject, "boot-record/")
		if !ofRecord || e.Action != string(lifecycle.SetRecord) {
			w.walked[fmt.Sprintf("%s on '%s'", e.Action, before[e.Subject])] = true
			continue
		}
		for kind, events := range map[string]map[string]muster.Event{
			"mode/":  {"rescue": lifecycle.RescueOn, "normal": lifecycle.RescueOff},
			"image/": {"assigned": lifecycle.Pin, "": lifecycle.Unpin},
		} {
			was, is := before[kind+mac], after[kind+mac]
			if was != is {
				w.walked[fmt.Sprintf("%s on '%s'", events[is], was)] = true
			}
		}
	}
}
