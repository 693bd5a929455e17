package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	muster "muster.internal"
)

// A terminal that nobody types at is a read that never ends: ^C ends the
// question all the same, and nothing is approved.
func TestInterruptEndsAQuestion(t *testing.T) {
	in, typist := io.Pipe()
	defer typist.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	m := usual()
	stderr := &bell{on: "anything else to stop", ring: interrupt}
	var stdout bytes.Buffer
	code := run(ctx, env{stdin: in, stdout: &stdout, stderr: stderr, getenv: func(k string) string {
		return map[string]string{"MUSTER_URL": storyURL, "MUSTER_KEY": goodKey}[k]
	}, now: func() time.Time { return noon }, dial: m.dial, abs: func(p string) string { return p }},
		[]string{"registration", "approve-setup", "8DZ6J93"})
	if code != exitFailed || !strings.Contains(stderr.String(), "nothing was changed") || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if r, err := m.Registration(t.Context(), "4c4c4544-0044-5a10-8036-c7c04f4a5933"); err != nil || r.State != muster.AwaitingSetup {
		t.Errorf("%v, %v", r.State, err)
	}
}

func TestInterruptShowsTheTerminalAgain(t *testing.T) {
	in, typist := io.Pipe()
	defer typist.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	shown := false
	a := &app{env: env{stderr: io.Discard, unhide: func() { shown = true }, readSecret: func(string) (string, error) { return readLine(in) }}}
	if _, err := a.secret(ctx, "password: "); err != errInterrupted || !shown {
		t.Errorf("%v, shown again: %v", err, shown)
	}
}

// bell rings when something was written.
type bell struct {
	bytes.Buffer
	on   string
	ring func()
}

func (b *bell) Write(p []byte) (int, error) {
	if strings.Contains(string(p), b.on) {
		b.ring()
	}
	return b.Buffer.Write(p)
}

func TestWhosePool(t *testing.T) {
	const me, other = "4c4c4544-0044-5a10-8036-c7c04f4a5933", "4c4c4544-0043-5810-8032-b8c04f503533"
	pool := func(stamp string) []muster.Content {
		return []muster.Content{{Kind: "zpool", Name: "zones", Stamp: stamp, GUID: "17"}}
	}
	for stamp, want := range map[string]string{
		me: "zpool zones of this machine", other: "zpool zones of machine " + other, "": "zpool zones (17, no stamp)",
	} {
		if got := contents(pool(stamp), me); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
