package linux

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"muster.internal/durable"
)

func TestAwait(t *testing.T) {
	for name, come := range map[string]func(file string) error{
		"replaced": func(file string) error { return durable.Replace(file, []byte("x"), 0o600) },
		"written":  func(file string) error { return os.WriteFile(file, []byte("x"), 0o600) },
	} {
		file := filepath.Join(t.TempDir(), "new", "credential")
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		came := make(chan error, 1)
		go func() { came <- come(file) }()
		err := Await(t.Context(), file) // whether it comes before or after
		if e := <-came; e != nil || err != nil {
			t.Errorf("%s: %v, %v", name, e, err)
		}
	}
	file := filepath.Join(t.TempDir(), "new", "credential")
	gone, stop := make(chan struct{}), make(chan struct{})
	go func() { // whenever it goes: what goes before Await begins is made again
		defer close(gone)
		for {
			select {
			case <-stop:
				return
			default:
				os.Remove(filepath.Dir(file))
			}
		}
	}()
	for range 50 {
		if err := Await(t.Context(), file); err != nil {
			t.Error("gone:", err)
		}
	}
	close(stop)
	<-gone
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Await(ctx, filepath.Join(t.TempDir(), "new", "credential")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := Await(t.Context(), "/dev/null/credential"); err == nil {
		t.Error("it waits below what is no directory")
	}
}
