package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"muster.internal/bus"
	"muster.internal/setup"
)

// Two orders at once would build on each other's disks: the second is refused,
// and one that comes after the end of the first, however it ended, is not.
func TestOneSetupAtATime(t *testing.T) {
	name := filepath.Join(t.TempDir(), "run", lockFile)
	first, err := only(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := only(name); err == nil || !strings.Contains(err.Error(), "another setup runs") {
		t.Errorf("beside the first: %v", err)
	}
	first.Close()
	second, err := only(name)
	if err != nil {
		t.Fatalf("after the first: %v", err)
	}
	second.Close()
}

func TestRunScript(t *testing.T) {
	t.Setenv("LEAKED", "planted")
	var console bytes.Buffer
	for _, c := range []struct {
		name, script string
		want         bus.Reply
	}{
		{"output and status", "#!/bin/sh\necho out $A; echo bad >&2; exit 3\n", bus.Reply{ExitStatus: 3, Stdout: "out 1\n", Stderr: "bad\n"}},
		{"its environment is the message's", "#!/bin/sh\necho $LEAKED\n", bus.Reply{Stdout: "\n"}},
		{"restart", "#!/bin/sh\nexit 113\n", bus.Reply{ExitStatus: setup.ExitReboot}},
	} {
		got := runScript(context.Background(), &console, bus.Message{Type: "script", Script: c.script, Env: map[string]string{"A": "1"}}, nil)
		if got != c.want {
			t.Errorf("%s: got %+v", c.name, got)
		}
	}
	if got := runScript(context.Background(), &console, bus.Message{Script: "#!/no/such\n"}, nil); got.ExitStatus != 1 || got.Stderr == "" {
		t.Errorf("without an interpreter: %+v", got)
	}
	if got := runScript(context.Background(), &console, bus.Message{Script: "#!/bin/sh\nkill -9 $$\n"}, nil); got.ExitStatus != 1 || !strings.Contains(got.Stderr, "killed") {
		t.Errorf("killed: %+v", got)
	}
	if console.Len() > 0 {
		t.Errorf("the console shows setups alone, not %q", console.String())
	}
}

func TestTheConsoleShowsNoProof(t *testing.T) {
	var b bytes.Buffer
	s := &shown{to: &b}
	text := "muster-host: setup 1/2 a\n" + setup.Sentinel(1, setup.Proof([]byte("k"), "u", 1)) + "\nend\nhalf"
	for i := range len(text) { // however it is cut
		s.Write([]byte(text[i : i+1]))
	}
	if b.String() != "muster-host: setup 1/2 a\nend\n" {
		t.Errorf("it shows %q", b.String())
	}
}
