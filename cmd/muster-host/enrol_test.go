package main

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/credential"
	tokens "muster.internal/enrol"
)

// word is a token for this control plane, with another fingerprint if wanted.
func (c *controlPlane) word(t *testing.T, change func(*tokens.Token)) string {
	t.Helper()
	sum := sha256.Sum256(c.Certificate().Raw)
	tok := tokens.Token{URL: c.URL, Fingerprint: sum[:], ID: "q2qywnguwzb4", Secret: bytes.Repeat([]byte{7}, 32)}
	if change != nil {
		change(&tok)
	}
	s, err := tok.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEnrol(t *testing.T) {
	c := newControlPlane(t)
	c.reply["/v1/agent/enrol"] = muster.EnrolReply{NodeID: "N1", APIKey: "mus_planted"}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(c.word(t, nil)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for from, in := range map[string]string{"-": c.word(t, nil) + "\n", "@" + file: ""} {
		state := t.TempDir()
		var out bytes.Buffer
		args := []string{"enrol", "--token", from, "--state", state, "--uuid", machine}
		if code := command(t.Context(), args, strings.NewReader(in), &out, &out); code != 0 || !strings.Contains(out.String(), "node N1") || strings.Contains(out.String(), "planted") {
			t.Fatalf("%s: status %d\n%s", from, code, out.String())
		}
		cred, err := credential.Load(filepath.Join(state, "credential"))
		if err != nil || cred.APIKey != "mus_planted" || cred.URL != c.URL || cred.CA != c.ca || cred.ServerUUID != machine {
			t.Errorf("kept %+v, %v", cred, err)
		}
		out.Reset()
		if code := command(t.Context(), args, strings.NewReader(in), &out, &out); code != exitEnrolled || !strings.Contains(out.String(), "has a credential already") {
			t.Errorf("a second time: %d %s", code, out.String())
		}
	}
}

// TestEnrolSendsNothing to whom the token does not name, nor when the token is
// damaged, nor when it stands where everybody can read it.
func TestEnrolSendsNothing(t *testing.T) {
	c := newControlPlane(t)
	good := c.word(t, nil)
	for name, k := range map[string]struct {
		from, in string
		code     int
		says     string
	}{
		"another fingerprint": {"-", c.word(t, func(t *tokens.Token) { t.Fingerprint = make([]byte, 32) }), exitUntrusted, "not the one that was named"},
		"cut":                 {"-", good[:len(good)-9], exitTokenDamaged, "cut short"},
		"nothing":             {"-", "", exitTokenDamaged, "no enrolment token came"},
		"another word":        {"-", "q2qywnguwzb4\n", exitTokenDamaged, "not an enrolment token"},
		"an argument":         {good, "", exitUsage, "never the token itself"},
		"no terminal":         {"", good, exitUsage, "--token -"},
		"no file":             {"@/no/such", "", exitFailed, "/no/such"},
	} {
		var out bytes.Buffer
		code := command(t.Context(), []string{"enrol", "--token", k.from, "--state", t.TempDir(), "--uuid", machine}, strings.NewReader(k.in), &out, &out)
		if code != k.code || !strings.Contains(out.String(), k.says) || strings.Contains(out.String(), good[10:40]) {
			t.Errorf("%s: status %d: %s", name, code, out.String())
		}
	}
	if len(c.asked) > 0 {
		t.Errorf("asked %q", c.asked)
	}
}

func TestEnrolIsRefused(t *testing.T) {
	c := newControlPlane(t)
	c.reply["/v1/agent/enrol"] = muster.Problemf(muster.CodeConflict, "enrolment token q2qywnguwzb4 was used already")
	state := t.TempDir()
	var out bytes.Buffer
	if code := command(t.Context(), []string{"enrol", "--token", "-", "--state", state, "--uuid", machine}, strings.NewReader(c.word(t, nil)), &out, &out); code != exitRefused || !strings.Contains(out.String(), "used already") {
		t.Errorf("status %d: %s", code, out.String())
	}
	if left, _ := os.ReadDir(state); len(left) != 0 || len(c.asked) != 2 {
		t.Errorf("left %v, asked %q", left, c.asked)
	}
}
