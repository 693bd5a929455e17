package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	muster "muster.internal"
	"muster.internal/client"
)

// try runs one command against the usual fleet.
func try(t *testing.T, stdout io.Writer, args ...string) (code int, stderr string) {
	t.Helper()
	var e bytes.Buffer
	code = run(t.Context(), env{stdin: strings.NewReader(""), stdout: stdout, stderr: &e, now: func() time.Time { return noon }, dial: usual().dial,
		abs: func(p string) string { return p }, getenv: func(k string) string {
			return map[string]string{"MUSTER_URL": storyURL, "MUSTER_KEY": goodKey}[k]
		}}, args)
	return code, e.String()
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestOutputThatIsLost is a failure, whatever the format: a script that keeps
// a key in a file on a full disk must hear of it.
func TestOutputThatIsLost(t *testing.T) {
	for _, args := range []string{"registration ls", "registration ls -o json", "key ls -o json", "audit ls", "version", "policy show", "node ls", "booter ls"} {
		if code, said := try(t, full{}, strings.Fields(args)...); code != exitFailed || !strings.Contains(said, "no space left") {
			t.Errorf("%s: exit %d, %q", args, code, said)
		}
	}
	for _, format := range []string{"table", "json"} {
		code, said := try(t, full{}, "key", "create", "--scope", "booter", "-o", format)
		if code != exitFailed || !strings.Contains(said, "muster key revoke ") {
			t.Errorf("a key whose secret is lost (%s): exit %d, %q", format, code, said)
		}
	}
}

// TestErrorsAsJSON: with --output json whatever goes wrong is one object.
func TestErrorsAsJSON(t *testing.T) {
	for _, c := range []struct {
		args string
		exit int
		code string
	}{
		{"registration show nosuch", exitNotFound, "not_found"},
		{"registration approve-setup", exitUsage, "invalid"},
		{"registration approve-setup x --yes", exitUsage, "invalid"},
		{"key create", exitUsage, "invalid"},
		{"boot show zz", exitNotFound, "not_found"},
	} {
		exit, said := try(t, io.Discard, append(strings.Fields(c.args), "--output", "json")...)
		var got struct{ Code, Detail, Hint string }
		if err := json.Unmarshal([]byte(said), &got); err != nil || exit != c.exit || got.Code != c.code || got.Detail == "" {
			t.Errorf("%s: exit %d, %v, %s", c.args, exit, err, said)
		}
	}
	for err, code := range map[error]string{
		&client.Unreachable{URL: "https://x", Err: os.ErrDeadlineExceeded}: "unavailable",
		context.DeadlineExceeded: "failed",
		muster.Problemf(muster.CodeConflict, "the machine is not waiting"): "conflict",
	} {
		var b bytes.Buffer
		a := &app{env: env{stderr: &b}, output: "json"}
		a.complain(err)
		var got struct{ Code string }
		if bad := json.Unmarshal(b.Bytes(), &got); bad != nil || got.Code != code {
			t.Errorf("%v: %v %s", err, bad, b.String())
		}
	}
}

// TestErrorsDoNotSteerTheTerminal: they may repeat what a machine said.
func TestErrorsDoNotSteerTheTerminal(t *testing.T) {
	var b bytes.Buffer
	a := &app{env: env{stderr: &b}}
	p := muster.Problemf(muster.CodeConflict, "setup failed: \x1b]0;owned\a\x1b[2J\u009b1m")
	p.Errors, p.Allowed = []muster.FieldError{{Field: "\x1b[1m", Message: "\r"}}, []string{"\x1b[0m"}
	a.complain(p)
	if got := strings.ReplaceAll(b.String(), "\n", ""); slices.ContainsFunc([]rune(got), func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) {
		t.Errorf("%q", got)
	}
}
