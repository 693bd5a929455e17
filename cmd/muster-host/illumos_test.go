package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster.internal/credential"
	"muster.internal/illumos"
	"muster.internal/setup"
)

// smartOS is a machine whose sysinfo prints a file.
func smartOS(t *testing.T, sample string) func(*slog.Logger) system {
	t.Helper()
	sample, err := filepath.Abs(filepath.Join("../../illumos/testdata", sample))
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "sysinfo")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec /bin/cat "+sample+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	return func(log *slog.Logger) system {
		return &illumos.Machine{Log: log, Sysinfo: script, Root: root}
	}
}

// A SmartOS machine is let in by its code and refreshes with its key; what it
// says is what its sysinfo says, without the passwords that stand there.
func TestSmartOSMachine(t *testing.T) {
	const uuid = "00000000-0000-0000-0000-ac1f6b2c3d0a"
	c := newControlPlane(t)
	bodies := map[string]string{}
	inner := c.Config.Handler
	c.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies[r.URL.Path] = string(b)
		inner.ServeHTTP(w, r)
	})
	state := t.TempDir()
	var out bytes.Buffer
	args := []string{"register", "--url", c.URL, "--ca-fingerprint", c.fingerprint(), "--state", state}
	if code := commandOn(t.Context(), smartOS(t, "supermicro.json"), args, nil, &out, &out); code != 0 {
		t.Fatalf("status %d\n%s", code, out.String())
	}
	cred, err := credential.Load(filepath.Join(state, "credential"))
	if err != nil || cred.ServerUUID != uuid {
		t.Errorf("kept for %q, %v", cred.ServerUUID, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	lived := &until{word: "refreshed", end: cancel}
	m := smartOS(t, "supermicro.json")(slog.New(slog.DiscardHandler))
	if err := ended(ctx, live(ctx, &env{machine: m, out: lived, err: &out}, cred, false)); err != nil {
		t.Fatalf("%v: %s", err, lived.String())
	}
	if !slices.Contains(c.asked, "POST /v1/agent/refresh Bearer mus_planted") {
		t.Errorf("it asked %q", c.asked)
	}
	for _, path := range []string{"/v1/agent/register", "/v1/agent/refresh"} {
		var asked struct {
			ServerUUID string `json:"server_uuid"`
			Hostname   string `json:"hostname"`
			Sysinfo    struct {
				UUID       string
				SystemType string            `json:"System Type"`
				Memory     string            `json:"MiB of Memory"`
				Params     map[string]string `json:"Boot Parameters"`
				Muster     struct{ MACs []string }
			} `json:"sysinfo"`
		}
		if err := json.Unmarshal([]byte(bodies[path]), &asked); err != nil {
			t.Fatalf("%s: %v in %q", path, err, bodies[path])
		}
		s := asked.Sysinfo
		if s.UUID != uuid || s.SystemType != "SunOS" || s.Memory != "32676" || s.Params["admin_nic"] == "" || len(s.Muster.MACs) != 2 {
			t.Errorf("%s says %+v", path, s)
		}
		if strings.Contains(bodies[path], "guest:guest") || strings.Contains(bodies[path], "$6$") {
			t.Errorf("%s holds a secret: %s", path, bodies[path])
		}
	}
}

// What cannot work there says so, and the same everywhere.
func TestSmartOSLimits(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"survey", exitFailed, "no approval to destroy may rest on it"},
		{"profile", 0, "smartos"},
		{"inventory", 0, "firmware unknown"},
		{"inventory --output json", 0, `"REDACTED"`},
		{"run --state /dev/null", exitFailed, "not a directory"},
	} {
		var out bytes.Buffer
		code := commandOn(t.Context(), smartOS(t, "supermicro.json"), strings.Fields(c.args), nil, &out, &out)
		if code != c.code || !strings.Contains(out.String(), c.want) || strings.Contains(out.String(), "guest:guest") {
			t.Errorf("%s: status %d, want %d with %q; it said\n%s", c.args, code, c.code, c.want, out.String())
		}
	}
	for _, err := range []error{illumos.ErrSetup, illumos.ErrBoot} {
		if line := setup.FailureLine(err.Error()); len(line) > setup.MaxReason || !strings.Contains(line, "illumos") {
			t.Errorf("%q", line)
		}
	}
}

// The program for illumos is built like the one for Linux, and as small.
func TestBuildsForIllumos(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the program")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command to build with")
	}
	file := filepath.Join(t.TempDir(), "muster-host")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=illumos", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	st, err := os.Stat(file)
	if err != nil || st.Size() > 9_000_000 {
		t.Errorf("%v, %d bytes", err, st.Size())
	}
	t.Logf("%.2f MB", float64(st.Size())/1e6)
}
