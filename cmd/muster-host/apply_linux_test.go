package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"muster.internal/resource"
	"muster.internal/state"
)

// A bench is a place to apply things at, with what the program says there.
type bench struct {
	t     *testing.T
	dir   string
	state string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t, dir, filepath.Join(dir, "state")}
}

// run runs a command with DIR in its input and arguments as this place.
func (b *bench) run(in string, args ...string) (int, string) {
	b.t.Helper()
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "DIR", b.dir)
	}
	in = b.fill(in)
	var out bytes.Buffer
	code := command(context.Background(), append(args, "--state", b.state), strings.NewReader(in), &out, &out)
	return code, strings.ReplaceAll(out.String(), b.dir, "DIR")
}

// fill puts this place and who works here into a declaration.
func (b *bench) fill(in string) string {
	in = strings.ReplaceAll(in, "DIR", b.dir)
	return strings.ReplaceAll(in, "OWNED", fmt.Sprintf(`owner: "%d", group: "%d"`, os.Getuid(), os.Getgid()))
}

func (b *bench) expect(in string, code int, want string, args ...string) {
	b.t.Helper()
	if got, text := b.run(in, args...); got != code || text != want {
		b.t.Errorf("%q: status %d, not %d\n got: %s\nwant: %s", args, got, code, text, want)
	}
}

const hello = `
resources:
- directory: {path: DIR/etc, OWNED}
- file: {path: DIR/etc/motd, content: "hello\n", OWNED}
`

func TestApplyFile(t *testing.T) {
	b := newBench(t)
	b.expect(hello, 0, `changed  directory:DIR/etc  created
changed  file:DIR/etc/motd  created
    --- DIR/etc/motd
    +++ DIR/etc/motd (declared)
    @@ -0,0 +1,1 @@
    +hello
would be: changed (2 changed)
`, "apply", "-", "--dry-run")
	if _, err := os.Lstat(filepath.Join(b.dir, "etc")); err == nil {
		t.Error("a dry run made something")
	}
	b.expect(hello, 0, "changed  directory:DIR/etc  created\nchanged  file:DIR/etc/motd  created\noutcome: changed (2 changed)\n", "apply", "-")
	b.expect(hello, 0, "outcome: ok (2 ok)\n", "apply", "-")
	motd := filepath.Join(b.dir, "etc", "motd")
	if err := os.WriteFile(motd, []byte("hello\nby hand\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.expect(hello, 0, `changed  file:DIR/etc/motd  updated: it was as declared, and somebody else has changed it
    --- DIR/etc/motd
    +++ DIR/etc/motd (declared)
    @@ -1,2 +1,1 @@
     hello
    -by hand
would be: changed (1 ok, 1 changed)
`, "apply", "-", "--dry-run")
	b.expect(hello, 0, "changed  file:DIR/etc/motd  updated: it was as declared, and somebody else has changed it\noutcome: changed (1 ok, 1 changed)\n", "apply", "-")
	if text, _ := os.ReadFile(motd); string(text) != "hello\n" {
		t.Errorf("it holds %q", text)
	}
	if code, text := b.run("", "owned"); code != 0 || !strings.Contains(text, "file:DIR/etc/motd  created") || !strings.Contains(text, "local") {
		t.Errorf("%d %s", code, text)
	}
}

// What is not the host's is kept and makes the apply incomplete; adopting it
// keeps the original, and restore gives it back.
func TestApplyAdoptRestore(t *testing.T) {
	b := newBench(t)
	path := filepath.Join(b.dir, "theirs")
	if err := os.WriteFile(path, []byte("theirs\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := "resources: [{file: {path: DIR/theirs, content: \"ours\\n\", mode: \"0600\", OWNED}ADOPT}]"
	code, text := b.run(strings.Replace(file, "ADOPT", "", 1), "apply", "-")
	if code != exitIncomplete || !strings.Contains(text, `kept     file:DIR/theirs: this file was there before and is not the host's; "adopt": true would take it over`) || !strings.Contains(text, "-theirs\n    +ours") {
		t.Errorf("%d %s", code, text)
	}
	adopting := strings.Replace(file, "ADOPT", ", adopt: true", 1)
	if code, text := b.run(adopting, "apply", "-"); code != exitIncomplete || !strings.Contains(text, "kept     file:DIR/theirs  adopted") {
		t.Errorf("%d %s", code, text)
	}
	if code, text := b.run(strings.ReplaceAll(adopting, "ours", "theirs"), "apply", "-"); code != 0 {
		t.Errorf("now it is as declared: %d %s", code, text)
	}
	os.WriteFile(path, []byte("changed\n"), 0o644)
	b.expect("", 0, "file:DIR/theirs is again as it was found, and no longer the host's\n", "restore", "DIR/theirs")
	if text, _ := os.ReadFile(path); string(text) != "theirs\n" {
		t.Errorf("it holds %q", text)
	}
	b.expect("", exitFailed, "muster-host: file:DIR/theirs was found by this host, not adopted: there is no original of it\n", "restore", "DIR/theirs")
	b.expect("", exitFailed, "muster-host: this host owns no file:DIR/other; `muster-host owned` lists what it does\n", "restore", "DIR/other")
}

// What is at a path and is no file is neither taken over as one nor read: a
// device may have no end, and a FIFO waits for ever.
func TestAdoptWhatIsNoFile(t *testing.T) {
	for what, plant := range map[string]func(path string) error{
		"directory": func(path string) error { return os.MkdirAll(path+"/full", 0o755) },
		"symlink":   func(path string) error { return os.Symlink("/etc/hostname", path) },
		"other": func(path string) error {
			if os.Getuid() == 0 {
				return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))) // /dev/zero
			}
			return unix.Mkfifo(path, 0o600)
		},
	} {
		b := newBench(t)
		if err := plant(filepath.Join(b.dir, "theirs")); err != nil {
			t.Fatal(err)
		}
		file := `resources: [{file: {path: DIR/theirs, content: "ours\n", OWNED}ADOPT}]`
		code, text := b.run(strings.Replace(file, "ADOPT", "", 1), "apply", "-")
		if code != exitIncomplete || !strings.Contains(text, "is not the host's") || strings.Contains(text, "+ours") {
			t.Errorf("%s: %d %s", what, code, text)
		}
		want := fmt.Sprintf("failed   file:DIR/theirs: what is there is no file (its type is %s), so it cannot be taken over\n", what)
		adopt := strings.Replace(file, "ADOPT", ", adopt: true", 1)
		b.expect(adopt, exitFailed, want+"would be: failed (1 failed)\n", "apply", "-", "--dry-run")
		b.expect(adopt, exitFailed, want+"outcome: failed (1 failed)\n", "apply", "-")
		b.expect("", 0, "RESOURCE  ORIGIN  SINCE  GENERATION  ORIGINAL\n", "owned")
	}
}

// A secret content is shown nowhere.
func TestApplyShowsNoSecret(t *testing.T) {
	b := newBench(t)
	secret := "resources: [{file: {path: DIR/key, content: hunter2, secret: true, OWNED}}]"
	for _, args := range [][]string{{"apply", "-", "--dry-run"}, {"apply", "-"}, {"apply", "-", "--output", "json"}, {"owned", "--output", "json"}} {
		if code, text := b.run(secret, args...); code != 0 || strings.Contains(text, "hunter2") {
			t.Errorf("%q: %d %s", args, code, text)
		}
	}
}

func TestApplyBadInput(t *testing.T) {
	b := newBench(t)
	b.expect("", exitUsage, "muster-host apply: which FILE?\n", "apply")
	b.expect("{}", exitFailed, "muster-host: -: it has no \"resources\"; a declaration that names nothing says \"resources\":[]\n", "apply", "-")
	b.expect("", exitFailed, "muster-host: open DIR/none: no such file or directory\n", "apply", "DIR/none")
	b.expect(`{"confirm":"2m","resources":[]}`, exitFailed, "muster-host: -: confirm: only what comes from a control plane can be confirmed by it\n", "apply", "-")
	b.expect("resources: [{file: {path: DIR/a, mode: 644}}]", exitFailed, "muster-host: -: resource 1 (file:DIR/a): file.mode: must be a text, in quotes, not a number\n", "apply", "-")
	d, err := state.Open(b.state, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
}

// The report as JSON is what the link and the briefing read.
func TestApplyJSON(t *testing.T) {
	b := newBench(t)
	code, text := b.run(hello, "apply", "-", "--output", "json")
	var r resource.Report
	if err := json.Unmarshal([]byte(text), &r); err != nil || code != 0 || r.Outcome != resource.OutcomeChanged || len(r.Lines) != 2 || r.Trigger != "local" || r.Finished.Before(r.Started) {
		t.Errorf("%d %v %s", code, err, text)
	}
}

// A conflict ends with a person's word, and only then.
func TestAdoptResolve(t *testing.T) {
	for word, want := range map[string]string{"take": "ours\n", "keep": "theirs\n"} {
		b := newBench(t)
		path, file := filepath.Join(b.dir, "theirs"), filepath.Join(b.dir, "declared.yaml")
		os.WriteFile(path, []byte("theirs\n"), 0o600)
		os.WriteFile(file, []byte(b.fill(`resources: [{file: {path: DIR/theirs, content: "ours\n", mode: "0600", OWNED}, adopt: true}]`)), 0o600)
		if code, text := b.run("", "apply", file); code != exitIncomplete {
			t.Fatalf("%d %s", code, text)
		}
		if code, text := b.run("", "adopt", "resolve", "DIR/theirs", word); code != exitFailed || !strings.Contains(text, "--file") {
			t.Errorf("%s without its declaration: %d %s", word, code, text)
		}
		if code, text := b.run("", "adopt", "resolve", "DIR/theirs", "both"); code != exitUsage {
			t.Errorf("%d %s", code, text)
		}
		b.run("", "adopt", "resolve", "DIR/theirs", word, "--file", file)
		if text, _ := os.ReadFile(path); string(text) != want {
			t.Errorf("%s: it holds %q", word, text)
		}
		if word == "keep" { // and what was kept can be taken later
			if code, text := b.run("", "apply", file); code != exitIncomplete || !strings.Contains(text, "as a person decided") {
				t.Errorf("applied again: %d %s", code, text)
			}
			b.run("", "adopt", "resolve", "DIR/theirs", "take", "--file", file)
			if text, _ := os.ReadFile(path); string(text) != "ours\n" {
				t.Errorf("taken later: it holds %q", text)
			}
		}
		if code, text := b.run("", "adopt", "resolve", "DIR/theirs", word, "--file", file); code != exitFailed || !strings.Contains(text, "in no conflict") {
			t.Errorf("%s again: %d %s", word, code, text)
		}
	}
	b := newBench(t)
	b.expect("", exitFailed, "muster-host: nothing was applied here yet\n", "briefing")
}
