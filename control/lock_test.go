package control

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"muster.internal"
)

// TestOneControlPlaneADirectory: a second one is refused, naming the first,
// and can start when that has ended.
func TestOneControlPlaneADirectory(t *testing.T) {
	dir, db := t.TempDir(), filepath.Join(t.TempDir(), "m.db")
	open := func(dir, store string) (*Control, error) {
		return Open(t.Context(), Config{Dir: dir, Store: store, Listen: "127.0.0.1:0"})
	}
	first, err := open(dir, db)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := open(dir, ""); err == nil || !strings.Contains(err.Error(), "another musterd (process ") {
		t.Errorf("the same directory: %v %v", c, err)
	}
	if c, err := open(t.TempDir(), "sqlite:"+db); err == nil || !strings.Contains(err.Error(), db) {
		t.Errorf("the same file: %v %v", c, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := open(dir, db)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	second.Close()
}

// TestFirstStartTwiceAtOnce: one of them makes everything.
func TestFirstStartTwiceAtOnce(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []*Control
	for range 4 {
		wg.Go(func() {
			c, err := Open(context.Background(), Config{Dir: dir, Listen: "127.0.0.1:0"})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				open = append(open, c)
			}
		})
	}
	wg.Wait()
	if len(open) != 1 {
		t.Fatalf("%d are open", len(open))
	}
	first, err := ReadFirstLogin(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open[0].As(muster.Caller{}).Login(t.Context(), muster.Login{Name: first.Operator, Password: first.Password}); err != nil {
		t.Errorf("the first login is not the one that was made: %v", err)
	}
	for _, c := range open {
		c.Close()
	}
}

// TestMasterKeyOnce: musterd and its offline commands may start together.
func TestMasterKeyOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "master.key")
	keys := make([]string, 16)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			k, err := masterKey(path)
			if err != nil {
				t.Error(err)
			}
			keys[i] = string(k)
		})
	}
	wg.Wait()
	for _, k := range keys {
		if len(k) != 32 || k != keys[0] {
			t.Fatal("two of them made a key each")
		}
	}
}
