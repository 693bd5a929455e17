package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/credential"
	tokens "muster.internal/enrol"
	"muster.internal/host"
	"muster.internal/lifecycle"
	"muster.internal/setup"
	"muster.internal/state"
)

// files are the names and contents in a directory.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, f := range entries {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[f.Name()] = string(text)
	}
	return all
}

// changed spells a token anew with something else in it.
func changed(t *testing.T, word string, change func(*tokens.Token)) string {
	t.Helper()
	tok, err := tokens.Decode(word)
	if err != nil {
		t.Fatal(err)
	}
	change(&tok)
	s, err := tok.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Whatever is wrong with a token or a machine has its sentence and its status,
// and leaves the machine as it was.
func TestEnrolSaysWhatIsWrong(t *testing.T) {
	var ahead atomic.Int64
	p := newTruePlane(t, func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
	other := newTruePlane(t, nil)
	b := newBench(t)
	used := p.token("")
	if code, out := b.enrol(used); code != 0 {
		t.Fatal(out)
	}
	revoked := p.token("")
	tok, err := tokens.Decode(revoked)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.admin.RevokeEnrolmentToken(t.Context(), tok.ID); err != nil {
		t.Fatal(err)
	}
	short, err := p.admin.IssueEnrolmentToken(t.Context(), muster.NewEnrolmentToken{ExpiresIn: 60})
	if err != nil {
		t.Fatal(err)
	}
	good := p.token("")
	for name, k := range map[string]struct {
		token    string
		enrolled bool // the machine is
		ahead    time.Duration
		code     int
		says     string
	}{
		"truncated":             {good[:len(good)-7], false, 0, exitTokenDamaged, "cut short or mistyped"},
		"forged":                {changed(t, good, func(t *tokens.Token) { t.Secret[3]++ }), false, 0, exitTokenUnknown, "not known"},
		"of another":            {changed(t, good, func(t *tokens.Token) { t.ID = strings.Repeat("a", 12) }), false, 0, exitTokenUnknown, "not known"},
		"another fingerprint":   {changed(t, good, func(t *tokens.Token) { t.Fingerprint[3]++ }), false, 0, exitUntrusted, "nothing was sent: "},
		"no route":              {changed(t, good, func(t *tokens.Token) { t.URL = "https://127.0.0.1:1" }), false, 0, exitUnreachable, "cannot reach the control plane at https://127.0.0.1:1"},
		"used":                  {used, false, 0, exitTokenUsed, "used already, by this machine: if it lost the answer, have an operator issue another for its node (muster token issue --as"},
		"revoked":               {revoked, false, 0, exitTokenRevoked, "was revoked"},
		"expired":               {short.Token, false, 10 * time.Minute, exitTokenExpired, "expired at"},
		"enrolled here":         {good, true, 0, exitEnrolled, "of the token's control plane"},
		"enrolled elsewhere":    {other.token(""), true, 0, exitEnrolled, "of another control plane than the token's, " + p.URL()},
		"a live node not named": {good, false, 0, exitRefused, "for the node (--as " + p.live()},
	} {
		t.Run(name, func(t *testing.T) {
			c := newBench(t)
			if k.enrolled {
				c.state = b.state
			}
			before := files(t, c.state)
			ahead.Store(int64(k.ahead))
			defer ahead.Store(0)
			code, out := c.enrol(k.token)
			if code != k.code || !strings.Contains(out, k.says) {
				t.Errorf("status %d, want %d with %q: %s", code, k.code, k.says, out)
			}
			if strings.Contains(out, good[10:40]) {
				t.Errorf("it tells the secret: %s", out)
			}
			if after := files(t, c.state); !maps.Equal(before, after) {
				t.Errorf("it left %q, and there was %q", slices.Collect(maps.Keys(after)), slices.Collect(maps.Keys(before)))
			}
		})
	}
	if nodes, err := other.admin.Nodes(t.Context()); err != nil || len(nodes) != 0 {
		t.Errorf("the other control plane has %v, %v", nodes, err)
	}
}

// A certificate that is good only by another clock is no reason not to say so:
// the handshake itself would fail with it.
func TestEnrolWithAClockYearsOff(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for name, ahead := range map[string]time.Duration{"behind": 30 * year, "ahead": -30 * year} {
		t.Run(name, func(t *testing.T) {
			theirs := func() time.Time { return time.Now().Add(ahead) }
			p, b := newTruePlane(t, theirs), newBench(t)
			code, out := b.enrol(p.token(""))
			if code != exitClock || len(files(t, b.state)) > 0 {
				t.Errorf("status %d, left %v", code, files(t, b.state))
			}
			for _, says := range []string{"the clock of this machine is wrong: it says " + time.Now().UTC().Format("2006-"), "that of the control plane " + theirs().UTC().Format("2006-")} {
				if !strings.Contains(out, says) {
					t.Errorf("it does not say %q: %s", says, out)
				}
			}
		})
	}
}

// Hardware whose node was disabled, and a token that names the node, come back
// as the same one; hardware whose node is decommissioned as a new one. A host
// that runs goes on by the new credential.
func TestEnrolAgain(t *testing.T) {
	p, b := newTruePlane(t, nil), newBench(t)
	first := p.node(b)
	p.declare(b, first, strings.ReplaceAll(oneFile, "GENERATION", "one"))
	r := b.start(nil)
	p.reported(r, first, 1, "")
	again := func(what, token string) string {
		t.Helper()
		if code, out := b.enrol(token, "--again"); code != 0 {
			t.Fatalf("%s: status %d: %s", what, code, out)
		}
		return p.live()
	}
	if id := again("named by the token", p.token(first)); id != first {
		t.Errorf("named by the token it comes as %s, not %s", id, first)
	}
	p.declare(b, first, strings.ReplaceAll(oneFile, "GENERATION", "two"))
	p.reported(r, first, 2, "")
	if _, err := p.admin.RaiseRegistration(t.Context(), machine, lifecycle.Disable); err != nil {
		t.Fatal(err)
	}
	if id := again("disabled", p.token("")); id != first {
		t.Errorf("disabled it comes back as %s, not %s", id, first)
	}
	p.declare(b, first, strings.ReplaceAll(oneFile, "GENERATION", "three"))
	p.reported(r, first, 3, "")
	if _, err := p.admin.RaiseNode(t.Context(), first, lifecycle.GracefulRemove); err != nil {
		t.Fatal(err)
	}
	r.until(t, "it is decommissioned", func() bool { return p.live() == "" })
	second := again("decommissioned", p.token(""))
	if second == first || second == "" {
		t.Fatalf("decommissioned it comes back as %s", second)
	}
	// What it owned as the first it owns still, and gives it up when told so.
	if b.motd() != "three\n" {
		t.Errorf("it holds %q", b.motd())
	}
	p.declare(b, second, "resources: []")
	p.reported(r, second, 1, "")
	if b.motd() != "" {
		t.Errorf("%q is left", b.motd())
	}
	if _, text := r.stop(); strings.Count(text, "enrolled anew") != 3 {
		t.Errorf("it said %s", text)
	}
}

// A key is delivered once: while another muster-host is at work on the machine,
// it waits to be stored, and what that one wrote down last is forgotten.
func TestEnrolledWhileBusy(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	d, err := state.Open(b.state, 0)
	if err != nil {
		t.Fatal(err)
	}
	said, stored := make(chan string, 1), make(chan error, 1)
	store := func() error {
		return credential.Store(credentialFile(b.state), setup.Credential{APIKey: "mus_planted"})
	}
	go func() { stored <- anew(b.state, func(text string) { said <- text }, store) }()
	select {
	case text := <-said:
		if !strings.Contains(text, "another muster-host is at work") {
			t.Error(text)
		}
	case err := <-stored:
		t.Fatalf("it did not wait: %v", err)
	}
	if _, err := os.Lstat(credentialFile(b.state)); err == nil {
		t.Error("it was stored beside the other one's work")
	}
	if err := d.Save(heldRecord, host.Held{Newest: 57}); err != nil {
		t.Fatal(err)
	}
	d.Close()
	if err := <-stored; err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(credentialFile(b.state)); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(b.state, heldRecord+".*")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}
