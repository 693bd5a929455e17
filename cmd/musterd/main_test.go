package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/client"
	"muster.internal/control"
)

// command runs a command line and gives what it said.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err strings.Builder
	code = run(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

func TestCommandLine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	for _, c := range []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{[]string{"version"}, 0, `^musterd \S+ \(capability 3\)\n$`, `^$`},
		{[]string{"--help"}, 0, `reset-password`, `^$`},
		{[]string{"ca", "--dir", dir}, failure, `^$`, `^musterd: no CA in .*state: it is made when musterd starts for the first time\n$`},
		{[]string{"key", "create", "--dir", dir}, usage, `^$`, `scope`},
		{[]string{"key", "create", "--scope", "agent", "--dir", dir}, failure, `^$`, `approving a machine`},
		{[]string{"key", "create", "--scope", "booter", "--comment", "rack 1", "--dir", dir}, 0, `^mus_[a-z0-9]{12}_[A-Za-z0-9_-]{43}\n$`, `^$`},
		{[]string{"reset-password", "nobody", "--dir", dir}, failure, `^$`, `no operator nobody`},
		{[]string{"reset-password"}, usage, `^$`, `arg`},
		{[]string{"--store", "postgres://127.0.0.1:1/none?connect_timeout=1", "--dir", dir, "--listen", "127.0.0.1:0"}, failure, `^$`, `open the store`},
		{[]string{"--listen", "nonsense", "--dir", dir}, failure, `^$`, `HOST:PORT`},
		{[]string{"--advertise", "http://x", "--dir", dir}, failure, `^$`, `https://HOST:PORT`},
		{[]string{"serve"}, usage, `^$`, `unknown command`},
		{[]string{"--frobnicate"}, usage, `^$`, `frobnicate`},
	} {
		code, stdout, stderr := command(t, c.args...)
		if code != c.code || !regexp.MustCompile(c.stdout).MatchString(stdout) || !regexp.MustCompile(c.stderr).MatchString(stderr) {
			t.Errorf("%q: exit %d\nstdout %q\nstderr %q", c.args, code, stdout, stderr)
		}
	}
}

// TestServe starts it as a service manager would, and stops it.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, []string{"--dir", dir, "--listen", "127.0.0.1:0", "--name", "muster.example", "--ip", "192.0.2.7"}, io.Discard, w)
		w.Close()
	}()
	said := new(strings.Builder)
	url := regexp.MustCompile(`msg=serving .*url=(\S+)`)
	buf := make([]byte, 4096)
	for url.FindStringSubmatch(said.String()) == nil {
		n, err := r.Read(buf)
		said.Write(buf[:n])
		if err != nil {
			t.Fatalf("%v after %q", err, said)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	// Where it runs as a service, what it says is kept in a log.
	first, err := control.ReadFirstLogin(dir)
	if err != nil || first.Password == "" || strings.Contains(said.String(), first.Password) {
		t.Errorf("%v, or the password is in what it says: %s", err, said)
	}
	if i, err := os.Stat(control.FirstLoginFile(dir)); err != nil || i.Mode() != 0o600 {
		t.Errorf("%v %v: others can read the password", i.Mode(), err)
	}
	code, pem, _ := command(t, "ca", "--dir", dir)
	fingerprint := regexp.MustCompile(`sha256:([0-9a-f]{64})`).FindStringSubmatch(pem)
	if code != 0 || fingerprint == nil {
		t.Fatalf("%d %q", code, pem)
	}
	addr := strings.Replace(url.FindStringSubmatch(said.String())[1], "muster.example", "127.0.0.1", 1)
	c, err := client.New(addr, "", client.Trust{Fingerprint: fingerprint[1]})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	v, err := c.Version(t.Context())
	if err != nil || v.Version != muster.Build || !strings.Contains(v.URL, "muster.example") || !strings.Contains(pem, v.CA) {
		t.Errorf("%+v %v", v, err)
	}
	stop()
	if code := <-done; code != 0 {
		t.Errorf("exit %d after being told to stop", code)
	}
}
