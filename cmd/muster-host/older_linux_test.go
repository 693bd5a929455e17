package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/resource"
)

// older builds a muster-host that knows no directories, and of files no secrets.
func older(t *testing.T) (program string) {
	t.Helper()
	dir := t.TempDir()
	file, err := filepath.Abs("../../resource/resource.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, known := range [][2]string{{`json:"directory,omitempty"`, `json:"-"`}, {`json:"secret,omitempty"`, `json:"-"`}, {"{KindFile, KindDirectory,", "{KindFile,"}} {
		if !strings.Contains(string(text), known[0]) {
			t.Fatalf("%s has no %s", file, known[0])
		}
		text = []byte(strings.Replace(string(text), known[0], known[1], 1))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: filepath.Join(dir, "resource.go")}})
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "muster-host")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "resource.go"), text, 0o600), os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600)); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// With a real control plane and an older host, which applies what it knows, says
// what it does not, and removes nothing that this may stand for. The version
// that comes after it goes on from there, without being told again.
func TestAnOlderHostForReal(t *testing.T) {
	needReal(t)
	program := older(t)
	p, b := newTruePlane(t, nil), newBench(t)
	id := p.node(b)
	p.declare(b, id, "resources: [{file: {path: DIR/gone, OWNED}}, {file: {path: DIR/key, content: old, OWNED}}]")
	r := new(process)
	r.done = make(chan int, 1)
	c := exec.CommandContext(t.Context(), program, "run", "--state", b.state)
	c.Stdout, c.Stderr = &r.out, &r.out
	r.end = func() { _ = c.Process.Signal(os.Interrupt) }
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = c.Wait()
		r.done <- c.ProcessState.ExitCode()
	}()
	t.Cleanup(func() { r.stop() })
	if n := p.reported(r, id, 1, ""); n.Report.Outcome != resource.OutcomeChanged {
		t.Errorf("%+v", n.Report)
	}
	p.declare(b, id, `resources: [{file: {path: DIR/motd, content: two, OWNED}}, {file: {path: DIR/key, content: new, secret: true, OWNED}},
 {directory: {path: DIR/d, OWNED}}, {file: {path: DIR/d/in, OWNED}}]`)
	got := p.reported(r, id, 2, "").Report
	text := ""
	for _, l := range got.Lines {
		text += strings.ReplaceAll(l.Text(), b.dir, "DIR")
	}
	if want := `kept     file:DIR/gone: it is declared no longer, but directory:DIR/d may stand for it, which this version of muster-host does not know; it is looked at again by one that does
changed  file:DIR/motd  created
failed   file:DIR/key: this version of muster-host does not know the field "secret"; update it
failed   directory:DIR/d: this version of muster-host does not know the kind "directory"; update it
unknown  file:DIR/d/in: not tried: it depends on directory:DIR/d, which did not work
`; text != want || got.Outcome != resource.OutcomeFailed {
		t.Errorf("%s: %s", got.Outcome, text)
	}
	if code, text := r.stop(); code != 0 {
		t.Errorf("status %d: %s", code, text)
	}
	key, gone := filepath.Join(b.dir, "key"), filepath.Join(b.dir, "gone")
	if is, err := os.ReadFile(key); err != nil || string(is) != "old" {
		t.Errorf("%q, %v", is, err)
	}
	if _, err := os.Stat(gone); err != nil {
		t.Error(err)
	}
	now := b.start(nil)
	now.until(t, "the newer version has made it so", func() bool {
		n, err := p.admin.NodeReport(t.Context(), id)
		return err == nil && n.Report.Generation == 2 && n.Report.Version == muster.Build && n.Report.Outcome == resource.OutcomeChanged
	})
	if is, err := os.ReadFile(key); err != nil || string(is) != "new" {
		t.Errorf("%q, %v", is, err)
	}
	if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
