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

// TestNearMiss: a command that does not exist is told with what it may have been,
// in one line, at the top as further down.
func TestNearMiss(t *testing.T) {
	for args, want := range map[string]string{
		"event --last 3":       `unknown command "event" for "muster": did you mean events?`,
		"regisration ls":       `unknown command "regisration" for "muster": did you mean registration?`,
		"node quiese web1 -x":  `unknown command "quiese" for "muster node": did you mean quiesce?`,
		"registration list":    `unknown command "list" for "muster registration": did you mean ls?`,
		"nothing-like-it here": `unknown command "nothing-like-it" for "muster"`,
	} {
		code, said := try(t, io.Discard, strings.Fields(args)...)
		if first, _, _ := strings.Cut(said, "\n"); code != exitUsage || first != "muster: error: "+want {
			t.Errorf("%s: exit %d, %s", args, code, said)
		}
	}
}

// TestLeft: what was opened for an hour a moment ago is open for an hour.
func TestLeft(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Hour - time.Millisecond:        "1h",
		30*time.Minute - 2*time.Second:      "30m",
		24*time.Hour - time.Second:          "24h",
		90*24*time.Hour - time.Second:       "90d",
		2*time.Hour - 20*time.Minute:        "1h",
		time.Minute - 300*time.Millisecond:  "1m",
		59 * time.Second:                    "59s",
		10*time.Second - 2*time.Millisecond: "10s",
	} {
		if got := left(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
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
