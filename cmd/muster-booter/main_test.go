package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary is the command itself when this is set.
const asCommand = "MUSTER_BOOTER_TEST_ARGS"

func TestMain(m *testing.M) {
	if args := os.Getenv(asCommand); args != "" {
		os.Args = append([]string{"muster-booter"}, strings.Split(args, "\n")...)
		main()
		return
	}
	os.Exit(m.Run())
}

// flags for a booter on loopback whose control plane is away.
func flags(t *testing.T, more ...string) []string {
	t.Helper()
	dir, err := os.MkdirTemp("", "muster-booter")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil { // another user must be able to pass
		t.Fatal(err)
	}
	for _, f := range []string{"key", "enroll"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("mus_aaaaaaaaaaaa_planted-secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return append([]string{"--control=https://127.0.0.1:1", "--ca=" + strings.Repeat("ab", 32), "--key-file=" + dir + "/key",
		"--enroll-key-file=" + dir + "/enroll", "--address=127.0.0.1", "--dhcp-port=0", "--tftp-port=0", "--http-port=0",
		"--bus-port=0", "--dir=" + dir + "/state", "--ipxe=" + dir, "--name=b1"}, more...)
}

func start(t *testing.T, args []string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, os.Args[0])
	c.Env = append(os.Environ(), asCommand+"="+strings.Join(args, "\n"))
	out, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewReader(out)
}

// serving reads the log up to the line that says so.
func serving(t *testing.T, r *bufio.Reader) (line, all string) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		all += line
		if err != nil {
			t.Fatalf("ended without serving: %s", all)
		}
		if strings.Contains(line, "msg=serving") {
			return line, all
		}
	}
}

func TestServesAndEnds(t *testing.T) {
	args := flags(t)
	c, log := start(t, args)
	line, said := serving(t, log)
	port := regexp.MustCompile(`http=(\d+)`).FindStringSubmatch(line)
	if port == nil {
		t.Fatal(line)
	}
	r, err := http.Get("http://127.0.0.1:" + port[1] + "/healthz")
	if err != nil || r.StatusCode != 200 {
		t.Fatal(r, err)
	}
	r.Body.Close()
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	c.Process.Signal(syscall.SIGTERM)
	rest, _ := io.ReadAll(log)
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, rest)
	}
	password, err := os.ReadFile(strings.TrimPrefix(args[9], "--dir=") + "/bus-password")
	if err != nil || len(password) != 24 {
		t.Fatalf("%q, %v", password, err)
	}
	for _, secret := range []string{"planted-secret", string(password)} {
		if bytes.Contains(cmdline, []byte(secret)) || strings.Contains(said+string(rest), secret) {
			t.Errorf("%s shows up", secret)
		}
	}
}

// TestBecomesAnotherUser looks at the process from outside.
func TestBecomesAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("there is no user nobody to become")
	}
	args := flags(t, "--user=nobody")
	if err := os.Mkdir(strings.TrimPrefix(args[9], "--dir="), 0o700); err != nil { // root's until now
		t.Fatal(err)
	}
	c, log := start(t, args)
	serving(t, log)
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", c.Process.Pid))
	if err != nil || len(threads) == 0 {
		t.Fatal(err)
	}
	for _, f := range threads {
		status, err := os.ReadFile(f)
		if err != nil {
			continue // a thread that has ended
		}
		for _, want := range []string{`Uid:(\s+` + nobody.Uid + `){4}\n`, `Gid:(\s+` + nobody.Gid + `){4}\n`, `CapEff:\s+0+\n`, `CapPrm:\s+0+\n`} {
			if !regexp.MustCompile(want).Match(status) {
				t.Errorf("%s: no %s in\n%s", f, want, status)
			}
		}
	}
	st, err := os.Stat(strings.TrimPrefix(args[9], "--dir=") + "/bus-password")
	if err != nil || fmt.Sprint(st.Sys().(*syscall.Stat_t).Uid) != nobody.Uid || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	c.Process.Signal(syscall.SIGTERM)
	rest, _ := io.ReadAll(log)
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, rest)
	}
}

func TestRefusals(t *testing.T) {
	for name, f := range map[string]func([]string) []string{
		"no control plane":   func(a []string) []string { return a[1:] },
		"no such key file":   func(a []string) []string { return append(a, "--key-file=/nonexistent") },
		"no such CA":         func(a []string) []string { return append(a, "--ca=/nonexistent.pem") },
		"a bad fingerprint":  func(a []string) []string { return append(a, "--ca=abc") },
		"root":               func(a []string) []string { return append(a, "--user=root") },
		"no such user":       func(a []string) []string { return append(a, "--user=no-such-user") },
		"a bad address":      func(a []string) []string { return append(a, "--address=ten") },
		"an argument":        func(a []string) []string { return append(a, "serve") },
		"plain HTTP control": func(a []string) []string { return append(a, "--control=http://127.0.0.1:1") },
	} {
		t.Run(name, func(t *testing.T) {
			c, log := start(t, f(flags(t)))
			said, _ := io.ReadAll(log)
			if err := c.Wait(); err == nil || !strings.Contains(string(said), "muster-booter: ") || strings.Contains(string(said), "planted-secret") {
				t.Errorf("%v: %s", err, said)
			}
		})
	}
}
