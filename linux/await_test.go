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
		"gone":     func(file string) error { return os.RemoveAll(filepath.Dir(file)) },
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
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Await(ctx, filepath.Join(t.TempDir(), "new", "credential")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := Await(t.Context(), "/dev/null/credential"); err == nil {
		t.Error("it waits below what is no directory")
	}
}
