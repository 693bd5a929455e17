package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster.internal/host"
)

// cut runs a command of the host as a process that is killed at the n-th call that
// changes something below this place, or at one that the caller calls the last.
func (b *bench) cut(n int, last func(point) bool, env []string, args ...string) (at point, over bool, text string) {
	b.t.Helper()
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(b.t.TempDir(), "out"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer out.Close()
	seen := 0
	tr := tracer{watch: b.dir, decide: func(p point) fate {
		if p.call.changes {
			seen++
		}
		if over = over || last != nil && last(p); seen < n && !over || !p.call.changes {
			return pass
		}
		at = p
		return kill
	}}
	tr.run(b.t, append(append([]string{self}, args...), "--state", b.state), append(append(os.Environ(), asHost+"=traced"), env...), out)
	said, err := os.ReadFile(out.Name())
	if err != nil {
		b.t.Fatal(err)
	}
	return at, over || at.number == 0, string(said)
}

// Killed anywhere while it is let in, a machine is let in in the end, as one node:
// by the same token while that was not used, else by one for that node.
func TestEnrolCutShortForReal(t *testing.T) {
	needReal(t)
	t.Parallel()
	for n, over := 1, false; !over; n += 5 {
		p, b := newTruePlane(t, nil), newBench(t)
		token := filepath.Join(t.TempDir(), "token")
		word := p.token("")
		if err := os.WriteFile(token, []byte(word), 0o600); err != nil {
			t.Fatal(err)
		}
		var at point
		var text string
		at, over, text = b.cut(n, nil, nil, "enrol", "--token", "@"+token, "--uuid", machine)
		switch code, out := b.enrol(word); code {
		case 0, exitEnrolled:
		case exitTokenUsed:
			if code, out := b.enrol(p.token(p.live())); code != 0 {
				t.Errorf("killed at %v, then with another token: %d %s", at, code, out)
			}
		default:
			t.Errorf("killed at %v (%s), then: %d %s", at, text, code, out)
		}
		id := p.live()
		r := b.start(nil)
		r.until(t, fmt.Sprintf("it is linked after it was killed at %v", at), func() bool { return p.asks(id) })
		r.stop()
		p.Close()
	}
}

// Killed anywhere while it gives everything up, a host goes on with that when it is
// started again, and the node is decommissioned.
func TestRetireCutShortForReal(t *testing.T) {
	needReal(t)
	t.Parallel()
	for n, over := 5, false; !over; n += 28 {
		p, b := newTruePlane(t, nil), newBench(t)
		id := p.node(b)
		p.declare(b, id, strings.ReplaceAll(oneFile, "GENERATION", "one"))
		r := b.start(nil)
		p.reported(r, id, 1, "")
		r.until(t, "it is mirrored", func() bool { o, err := p.admin.NodeOwned(t.Context(), id); return err == nil && len(o.Owned) == 1 })
		r.stop()
		p.order(id, "retire")
		var at point
		at, over, _ = b.cut(n, func(p point) bool { return p.call.name == "unlinkat" && p.path == credentialFile(b.state) }, nil, "run")
		r = b.start(nil)
		r.until(t, fmt.Sprintf("it is decommissioned after it was killed at %v", at), func() bool { return p.live() == "" })
		r.until(t, "it is hosted again", func() bool { _, err := os.Lstat(credentialFile(b.state)); return err != nil })
		if r.stop(); b.motd() != "" {
			t.Errorf("killed at %v: left %q", at, b.motd())
		}
		p.Close()
	}
}

// Killed anywhere while it puts the version before in the place of a bad one, it
// does so the next time, and says why.
func TestRollbackCutShortForReal(t *testing.T) {
	needReal(t)
	t.Parallel()
	points := 0
	for n, over := 1, false; !over; n += 3 {
		b := newBench(t)
		program := filepath.Join(b.dir, "muster-host")
		for path, text := range map[string]string{program: "two", filepath.Join(b.state, provenFile): "one"} {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		digest, err := digestFile(program)
		if err != nil {
			t.Fatal(err)
		}
		boot, err := bootID()
		if err != nil {
			t.Fatal(err)
		}
		if err := storeFile(filepath.Join(b.state, candidateFile), host.Candidate{Digest: digest, Since: momentOf(boot), Failures: 2}); err != nil {
			t.Fatal(err)
		}
		failed := []string{"SERVICE_RESULT=signal"}
		var at point
		at, over, _ = b.cut(n, nil, failed, "rollback", "--program", program)
		if text, err := os.ReadFile(program); string(text) != "two" && string(text) != "one" {
			t.Errorf("killed at %v: the program is %q, %v", at, text, err)
		}
		points++
		b.cut(1<<30, nil, failed, "rollback", "--program", program) // it fails again, or is proven
		if text, _ := os.ReadFile(program); string(text) != "one" {
			t.Errorf("killed at %v: after another failure the program is %q", at, text)
		}
		var said host.RolledBack
		text, err := os.ReadFile(filepath.Join(b.state, rolledBackFile))
		if err != nil || json.Unmarshal(text, &said) != nil || said.Digest != digest || said.Reason == "" {
			t.Errorf("killed at %v: it says %s, %v", at, text, err)
		}
	}
	if points < 4 {
		t.Errorf("%d points", points)
	}
}
