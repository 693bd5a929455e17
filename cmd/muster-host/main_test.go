package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/credential"
)

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 0, "usage: muster-host"},
		{[]string{"help"}, 0, "register"},
		{[]string{"wipe"}, exitUsage, `no command "wipe"`},
		{[]string{"enroll"}, exitUsage, `no command "enroll": did you mean enrol?`},
		{[]string{"brief"}, exitUsage, "did you mean briefing?"},
		{[]string{"version"}, 0, "muster-host unknown"},
		{[]string{"version", "--output", "json"}, 0, `"capability": 3`},
		{[]string{"version", "--output", "xml"}, exitUsage, "text or json"},
		{[]string{"version", "now"}, exitUsage, `what is "now"`},
		{[]string{"version", "--loud"}, exitUsage, "loud"},
		{[]string{"profile"}, 0, "architecture"},
		{[]string{"run", "--state", "/dev/null"}, exitFailed, "not a directory"},
		{[]string{"register", "--url", "https://127.0.0.1:1"}, exitUsage, "one of --ca-fingerprint and --ca"},
		{[]string{"setup"}, exitFailed, "MUSTER-SETUP-FAILED the order cannot be read"},
	} {
		var out bytes.Buffer
		if code := command(context.Background(), c.args, strings.NewReader(""), &out, &out); code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%q: status %d, want %d with %q; it said\n%s", c.args, code, c.code, c.want, out.String())
		}
	}
}

// A controlPlane answers the claim-code door and a node's calls.
type controlPlane struct {
	*httptest.Server
	ca    string
	asked []string
	reply map[string]any // by path; a *muster.Problem is an error
}

func newControlPlane(t *testing.T) *controlPlane {
	c := &controlPlane{reply: map[string]any{}}
	c.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.asked = append(c.asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		switch v := c.reply[r.URL.Path].(type) {
		case *muster.Problem:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(v.Status)
			json.NewEncoder(w).Encode(v)
		default:
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(v)
		}
	}))
	t.Cleanup(c.Close)
	c.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw}))
	c.reply["/v1/version"] = muster.Version{CA: c.ca}
	c.reply["/v1/agent/register"] = muster.RegisterReply{State: muster.Pending, ClaimCode: "ABC-123", PollToken: "t"}
	c.reply["/v1/agent/register/status"] = muster.RegisterStatus{State: muster.Approved, APIKey: "mus_planted"}
	c.reply["/v1/agent/refresh"] = muster.Registration{}
	c.reply["/v1/agent/heartbeat"] = muster.HeartbeatReply{NextSeconds: 60}
	return c
}

func (c *controlPlane) fingerprint() string {
	sum := sha256.Sum256(c.Certificate().Raw)
	return hex.EncodeToString(sum[:])
}

const machine = "00112233-4455-6677-8899-aabbccddeea1"

func TestRegister(t *testing.T) {
	c := newControlPlane(t)
	state := t.TempDir()
	args := []string{"register", "--url", c.URL, "--ca-fingerprint", c.fingerprint(), "--state", state, "--uuid", machine}
	var out bytes.Buffer
	if code := command(t.Context(), args, nil, &out, &out); code != 0 || !strings.Contains(out.String(), "ABC-123") || strings.Contains(out.String(), "planted") {
		t.Fatalf("status %d\n%s", code, out.String())
	}
	file := filepath.Join(state, "credential")
	cred, err := credential.Load(file)
	if err != nil || cred.APIKey != "mus_planted" || cred.URL != c.URL || cred.CA != c.ca || cred.ServerUUID != machine {
		t.Errorf("kept %+v, %v", cred, err)
	}
	st, _ := os.Stat(file)
	_, err = os.Lstat(filepath.Join(state, "claim-code"))
	if st.Mode().Perm() != 0o600 || !os.IsNotExist(err) {
		t.Errorf("%v has mode %v; the code must be gone: %v", file, st.Mode(), err)
	}
	out.Reset()
	if code := command(t.Context(), args, nil, &out, &out); code != exitFailed || !strings.Contains(out.String(), "has a credential already") {
		t.Errorf("a second time: %d %s", code, out.String())
	}
}

func TestRegisterTrustsNobodyElse(t *testing.T) {
	c := newControlPlane(t)
	var out bytes.Buffer
	args := []string{"register", "--url", c.URL, "--ca-fingerprint", strings.Repeat("00", 32), "--state", t.TempDir(), "--uuid", machine}
	if code := command(t.Context(), args, nil, &out, &out); code != exitFailed || len(c.asked) > 0 {
		t.Errorf("status %d; a stranger was asked %q", code, c.asked)
	}
	c.reply["/v1/version"] = muster.Version{CA: "none"}
	args[4] = c.fingerprint()
	out.Reset()
	if code := command(t.Context(), args, nil, &out, &out); code != exitFailed || !strings.Contains(out.String(), "does not hand out a CA") {
		t.Errorf("status %d: %s", code, out.String())
	}
}

func TestRegisterIsRefused(t *testing.T) {
	c := newControlPlane(t)
	c.reply["/v1/agent/register"] = muster.Problemf(muster.CodeConflict, "machine %s is approved", machine)
	var out bytes.Buffer
	args := []string{"register", "--url", c.URL, "--ca-fingerprint", c.fingerprint(), "--state", t.TempDir(), "--uuid", machine}
	if code := command(t.Context(), args, nil, &out, &out); code != exitFailed || !strings.Contains(out.String(), "is approved") {
		t.Errorf("status %d: %s", code, out.String())
	}
}

// A writer that ends a run when it has said something.
type until struct {
	bytes.Buffer
	word string
	end  context.CancelFunc
}

func (u *until) Write(p []byte) (int, error) {
	if u.Buffer.Write(p); strings.Contains(u.String(), u.word) {
		u.end()
	}
	return len(p), nil
}

// The root process of every machine stays small, and carries nothing of the
// control plane.
func TestStaysSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the program")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command to build with")
	}
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		for _, no := range []string{"database/sql", "html/template", "text/template", "net/http/pprof", "muster.internal/store", "muster.internal/control", "muster.internal/api", "muster.internal/booter"} {
			if dep == no {
				t.Errorf("it links %s", dep)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "muster-host")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	st, _ := os.Stat(file)
	t.Logf("%.2f MB", float64(st.Size())/1e6)
	if st.Size() > 10_000_000 {
		t.Errorf("it has %d bytes: what came in?", st.Size())
	}
}
