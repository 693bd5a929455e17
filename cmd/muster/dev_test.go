package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// lines is what a running command writes, with a bell for each write.
type lines struct {
	mu   sync.Mutex
	b    bytes.Buffer
	bell chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.bell <- struct{}{}:
	default:
	}
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// until waits until the command has written what matches.
func (l *lines) until(t *testing.T, pattern string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for !re.MatchString(l.String()) {
		select {
		case <-l.bell:
		case <-limit.C:
			t.Fatalf("%q never came:\n%s", pattern, l.String())
		}
	}
}

// TestDevIsAFleetForTheCommandLine starts muster dev as a person does, reads
// the file that it writes, and takes a machine from its first announcement to a
// node with the other commands. The story "muster dev" is this one.
func TestDevIsAFleetForTheCommandLine(t *testing.T) {
	dir := t.TempDir()
	out := &lines{bell: make(chan struct{}, 1)}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	noFile := func(p string) string { return p }
	dev := env{stdout: out, stderr: out, getenv: func(string) string { return "" }, now: time.Now, dial: dial, abs: noFile}
	go func() {
		ended <- run(ctx, dev, []string{"dev", "--machines", "2", "--dir", dir, "--api", "127.0.0.1:0", "--hurry", "20"})
	}()
	out.until(t, `in another shell: \. \S+/dev\.env`)

	vars := sourced(t, filepath.Join(dir, "dev.env"))
	muster := func(want int, stdin string, args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		in := strings.NewReader(stdin)
		code := run(ctx, env{stdin: in, stdout: &stdout, stderr: &stderr, getenv: func(k string) string { return vars[k] },
			now: time.Now, dial: dial, abs: noFile, configDir: filepath.Join(dir, "config"),
			readSecret: func(string) (string, error) { return readLine(in) }}, args)
		if code != want {
			t.Fatalf("muster %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, stdout.String(), stderr.String())
		}
		return stdout.String() + stderr.String()
	}
	out.until(t, `m01 .*shows its 2 disks, waits for approval`)
	out.until(t, `m01 .*its setup can be approved`)
	if s := muster(0, "", "registration", "ls", "--state", "awaiting_setup"); !strings.Contains(s, "SIM00001") {
		t.Errorf("the list:\n%s", s)
	}
	muster(1, "SIM00009\n", "registration", "approve-setup", "SIM00001")
	muster(0, "SIM00001\n", "registration", "approve-setup", "SIM00001", "--hostname", "web1", "--wait")
	out.until(t, `m01 .*a node of the fleet`)
	for _, c := range []struct{ args, want string }{
		{"registration show web1", "approved"},
		{"boot show web1", "enrolled"},
		{"boot ls", "enrolled"},
		{"node ls", "web1"},
		{"policy show", "simulated-1"},
		{"image show simulated-1", "initrd"},
		{"key ls", "ur_enroll"},
		{"operator ls", "admin"},
		{"booter ls", "dev"},
		{"audit ls", "approve_setup"},
		{"audit verify", "the chain is whole"},
		{"version", "musterd"},
	} {
		if s := muster(0, "", strings.Fields(c.args)...); !strings.Contains(s, c.want) {
			t.Errorf("muster %s:\n%s", c.args, s)
		}
	}
	exportProved(t, dir, muster, func(ctx context.Context, out *lines) {
		run(ctx, env{stdout: out, stderr: out, getenv: func(k string) string { return vars[k] }, now: time.Now, dial: dial, abs: noFile}, []string{"audit", "ls", "--follow"})
	})
	// Anybody with the password and the fingerprint gets in by themselves.
	password, err := os.ReadFile(filepath.Join(dir, "admin.password"))
	if err != nil {
		t.Fatal(err)
	}
	print, err := fingerprint(filepath.Join(dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	url := vars["MUSTER_URL"]
	vars = map[string]string{}
	muster(3, string(password), "login", "--url", url, "--fingerprint", strings.Repeat("0", 64))
	muster(0, string(password), "login", "--url", url, "--fingerprint", print)
	muster(0, "", "registration", "show", "web1")
	stranger := filepath.Join(dir, "stranger.key")
	if err := os.WriteFile(stranger, []byte("mus_000000000000_"+strings.Repeat("0", 43)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	muster(5, "", "registration", "show", "web1", "--key-file", stranger)

	stop()
	if code := <-ended; code != 0 {
		t.Errorf("muster dev ended with %d:\n%s", code, out.String())
	}
	if !strings.Contains(out.String(), "goes on") {
		t.Errorf("it does not say how to go on:\n%s", out.String())
	}
}

// sourced reads what a shell would.
func sourced(t *testing.T, file string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^export (\w+)='([^']*)'$`).FindAllStringSubmatch(string(b), -1) {
		vars[m[1]] = m[2]
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 || len(vars) != 3 {
		t.Fatalf("%s: %v, %v, %d variables", file, err, st.Mode(), len(vars))
	}
	return vars
}

// fingerprint is what musterd prints at its first start.
func fingerprint(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return "", fmt.Errorf("%s holds no certificate", file)
	}
	sum := sha256.Sum256(block.Bytes)
	return hex.EncodeToString(sum[:]), nil
}
