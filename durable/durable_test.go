package durable_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster.internal/durable"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	for i, content := range []string{"one", "", "three"} {
		mode := os.FileMode(0o600 + 4*i)
		if err := durable.Replace(name, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(name)
		if b, _ := os.ReadFile(name); err != nil || string(b) != content || st.Mode() != mode {
			t.Errorf("%q, mode %v, %v", b, st.Mode(), err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{filepath.Join(name, "below a file"), filepath.Join(dir, "d")} {
		if err := durable.Replace(bad, []byte("x"), 0o600); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := durable.Replace(filepath.Join(dir, "d", "made", "f"), nil, 0o600); err != nil {
		t.Error(err)
	}
	if es, _ := os.ReadDir(dir); len(es) != 2 {
		t.Errorf("left behind: %v", es)
	}
	if err := durable.SyncDir(filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that is not there was synced")
	}
}

// What processes that are no more have left half-written goes; what one is at
// stays, and so does whatever else is there.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for name, stays := range map[string]bool{
		".owned.a.123": false, ".0a1b": false, fmt.Sprintf(".key.%d.77", gone.Process.Pid): false,
		fmt.Sprintf(".key.%d.77", os.Getpid()): true, ".key.1.77": true, "owned.a": true,
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		durable.Sweep(dir)
		if _, err := os.Lstat(path); (err == nil) != stays {
			t.Errorf("%s: stays %v, %v", name, stays, err)
		}
	}
}
