package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster.internal/credential"
	"muster.internal/setup"
)

// A version that fails is replaced by the proven one, once and for all, however
// often it comes back and wherever the power goes in between.
func TestRollback(t *testing.T) {
	b := newBench(t)
	b.state = t.TempDir()
	program := filepath.Join(b.dir, "muster-host")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	look := func(result string) string {
		t.Helper()
		t.Setenv("SERVICE_RESULT", result)
		code, out := b.run("", "rollback", "--program", program)
		if code != 0 {
			t.Fatalf("status %d: %s", code, out)
		}
		text, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	there := func(file string) bool { _, err := os.Lstat(filepath.Join(b.state, file)); return err == nil }
	write(program, "one")
	if is := look(""); is != "one" || there(candidateFile) { // nothing is proven yet
		t.Errorf("%q is installed", is)
	}
	write(filepath.Join(b.state, provenFile), "one")
	look("")
	write(program, "two")
	if is := look(""); is != "two" || !there(candidateFile) {
		t.Errorf("%q is installed, on trial: %v", is, there(candidateFile))
	}
	look("success") // somebody stopped it
	for i, want := range []string{"two", "two", "one"} {
		if is := look("signal"); is != want {
			t.Errorf("after failure %d %q is installed", i+1, is)
		}
	}
	if info, err := os.Stat(program); err != nil || info.Mode().Perm() != 0o755 || there(candidateFile) || !there(rolledBackFile) {
		t.Errorf("%v %v", info, err)
	}
	kept, _ := os.ReadFile(filepath.Join(b.state, rolledBackFile))
	// The package manager brings it back; or the power went before it was replaced.
	for range 2 {
		write(program, "two")
		if is := look(""); is != "one" {
			t.Errorf("%q is installed again", is)
		}
	}
	if now, _ := os.ReadFile(filepath.Join(b.state, rolledBackFile)); string(now) != string(kept) || !strings.Contains(string(now), "failed 3 times") {
		t.Errorf("it is said that %s, before %s", now, kept)
	}
	// What is kept is torn: it is as if there were none, and another one is tried.
	write(filepath.Join(b.state, rolledBackFile), `{"digest":`)
	write(program, "three")
	if is := look(""); is != "three" {
		t.Errorf("%q is installed", is)
	}
}

// A version that is not linked in time is to blame only if the one before it can
// link.
func TestRollbackWhileNobodyIsThere(t *testing.T) {
	p, b := newTruePlane(t, nil), newBench(t)
	p.node(b)
	program := filepath.Join(b.dir, "muster-host")
	r := b.start(nil)
	r.until(t, "it has a certificate", func() bool {
		id, err := credential.LoadIdentity(identityFile(b.state))
		return err == nil && id.Certificate != nil
	})
	r.stop()
	for path, text := range map[string]string{program: "two", filepath.Join(b.state, provenFile): "one"} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	look := func() (string, string) {
		_, out := b.run("", "rollback", "--program", program, "--within", "0s")
		text, _ := os.ReadFile(program)
		return string(text), out
	}
	c, err := credential.Load(credentialFile(b.state))
	if err != nil {
		t.Fatal(err)
	}
	away := c
	away.URL = "https://127.0.0.1:1"
	for _, k := range []struct {
		c          setup.Credential
		want, says string
	}{{away, "two", "neither can this one"}, {c, "one", "was rolled back: it was not linked within 0s, and the version before it can"}} {
		if err := credential.Store(credentialFile(b.state), k.c); err != nil {
			t.Fatal(err)
		}
		if is, out := look(); is != k.want || !strings.Contains(out, k.says) {
			t.Errorf("%s: %q is installed: %s", k.c.URL, is, out)
		}
	}
}

// A version that is linked at last, while the one before it looks whether it
// could be, stays.
func TestRollbackTooLate(t *testing.T) {
	t.Parallel()
	p, b := newLinkPlane(t), newBench(t)
	r := b.start(p)
	p.until("it polls", func() bool { return len(p.polls) > 0 })
	r.stop()
	program, proven := filepath.Join(b.dir, "muster-host"), filepath.Join(b.state, provenFile)
	for path, text := range map[string]string{program: "two", proven: "one"} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.mu.Lock()
	p.onOwned = func() { os.WriteFile(proven, []byte("two"), 0o755) }
	p.mu.Unlock()
	code, out := b.run("", "rollback", "--program", program, "--within", "0s")
	if is, _ := os.ReadFile(program); code != 0 || string(is) != "two" {
		t.Errorf("status %d, %q is installed: %s", code, is, out)
	}
	if _, err := os.Lstat(filepath.Join(b.state, rolledBackFile)); err == nil {
		t.Error("it is said to have been rolled back")
	}
}
