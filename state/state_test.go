package state

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"muster.internal/resource"
)

func open(t rapid.TB, path string) *Dir {
	t.Helper()
	d, err := Open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func ledger(t rapid.TB, d *Dir) *Ledger {
	t.Helper()
	l, err := d.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func owned(path string) resource.Owned {
	return resource.Owned{Ref: resource.NewRef(resource.KindFile, path), Origin: resource.OriginCreated, Since: time.Unix(1, 0).UTC(), Applied: resource.State{"type": "file"}}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	d := open(t, path)
	if _, err := Open(path, 10*time.Millisecond); !errors.Is(err, ErrBusy) {
		t.Errorf("a second process gets in: %v", err)
	}
	d.Close()
	open(t, path).Close()
}

// A record survives the loss of either copy, and a damaged one is said to be.
func TestSaveLoad(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	var got []string
	if err := d.Load("x", &got); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing was kept: %v", err)
	}
	want := []string{"a", "b\nc"}
	for _, lose := range []string{"", "x.a", "x.b"} {
		if err := d.Save("x", want); err != nil {
			t.Fatal(err)
		}
		for _, how := range []func(string) error{os.Remove, flip, empty} {
			if lose != "" {
				if err := how(filepath.Join(path, lose)); err != nil {
					t.Fatal(err)
				}
			}
			got = nil
			if err := d.Load("x", &got); err != nil || !cmp.Equal(got, want) {
				t.Errorf("without %s: %v, %v", lose, got, err)
			}
			d.Save("x", want)
		}
	}
	flip(filepath.Join(path, "x.a"))
	flip(filepath.Join(path, "x.b"))
	if err := d.Load("x", &got); !errors.Is(err, ErrDamaged) {
		t.Errorf("both copies are damaged: %v", err)
	}
	if err := d.Drop("x"); err != nil {
		t.Fatal(err)
	}
	if err := d.Load("x", &got); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func flip(path string) error {
	b, err := os.ReadFile(path)
	if err == nil {
		b[len(b)/2] ^= 4
		err = os.WriteFile(path, b, 0o600)
	}
	return err
}

func empty(path string) error { return os.WriteFile(path, nil, 0o600) }

// Cut either copy anywhere, or both by the end of what was synced, and what was
// recorded is there, and more can be.
func TestLedgerCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path, err := os.MkdirTemp("", "ledger")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(path)
		d := open(t, path)
		defer d.Close()
		l := ledger(t, d)
		model := map[resource.Ref]resource.Owned{}
		for range rapid.IntRange(0, 200).Draw(t, "writes") {
			o := owned(fmt.Sprint("/", rapid.IntRange(0, 9).Draw(t, "file")))
			if rapid.Bool().Draw(t, "forget") {
				err = l.Forget(o.Ref)
				delete(model, o.Ref)
			} else {
				o.Generation = rapid.Int64Range(0, 9).Draw(t, "generation")
				err = l.Write(o)
				model[o.Ref] = o
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if rapid.Bool().Draw(t, "close") {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		} else if err := l.Sync(); err != nil {
			t.Fatal(err)
		}
		which := rapid.SampledFrom([]string{"owned.a", "owned.b", ""}).Draw(t, "cut")
		if which != "" {
			b, _ := os.ReadFile(filepath.Join(path, which))
			if err := os.WriteFile(filepath.Join(path, which), b[:rapid.IntRange(0, len(b)).Draw(t, "at")], 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			l = ledger(t, d)
			if diff := cmp.Diff(model, l.owned); diff != "" || l.Lost != "" {
				t.Fatalf("%s %s", l.Lost, diff)
			}
		}
		o := owned("/after")
		if err := errors.Join(l.Write(o), l.Sync()); err != nil {
			t.Fatal(err)
		}
		l.close()
		if _, there := ledger(t, d).Get(o.Ref); !there {
			t.Fatal("what was written after it is not there")
		}
	})
}

// When both copies are damaged, what can be read counts, and the loss is said.
func TestLedgerLost(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	l := ledger(t, d)
	for i := range 10 {
		if err := l.Write(owned(fmt.Sprint("/", i))); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	for _, name := range []string{"owned.a", "owned.b"} {
		flip(filepath.Join(path, name))
	}
	l = ledger(t, d)
	if n := len(l.All()); l.Lost == "" || n < 4 || n > 6 {
		t.Errorf("%q, %d left", l.Lost, n)
	}
	why := l.Lost
	l.Close()
	if l = ledger(t, d); l.Lost != why {
		t.Errorf("the loss is said once only: %q", l.Lost)
	}
	if err := l.Recovered(); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if l = ledger(t, d); l.Lost != "" {
		t.Errorf("it was found again, and it says %q", l.Lost)
	}
}

// A long history is compacted, and both copies are the same.
func TestLedgerCompacts(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	l := ledger(t, d)
	for range 1000 {
		if err := l.Write(owned("/a")); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	a, _ := os.ReadFile(filepath.Join(path, "owned.a"))
	b, _ := os.ReadFile(filepath.Join(path, "owned.b"))
	if n := bytes.Count(a, []byte("\n")); n != 1 || !bytes.Equal(a, b) {
		t.Errorf("%d lines; the copies are the same: %v", n, bytes.Equal(a, b))
	}
	if _, there := ledger(t, d).Get("file:/a"); !there {
		t.Error("gone")
	}
}

// Whatever is in its files, reading the ledger neither fails nor invents.
func FuzzReadEntries(f *testing.F) {
	f.Add([]byte("00000000 {}\n"))
	f.Add(seal([]byte(`{"n":1,"put":{"ref":"file:/a"}}`)))
	f.Add(append(seal([]byte(`{"n":1,"put":{"ref":"file:/a"}}`)), seal([]byte(`{"n":2,"forget":"file:/a"}`))...))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, _ := readEntries(b)
		for i, e := range entries {
			if (e.Put == nil) == (e.Forget == "") || i > 0 && e.Number <= entries[i-1].Number {
				t.Errorf("%+v", entries)
			}
		}
	})
}

// What a process that was killed left half-written goes, and nothing else.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "originals"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".owned.a.123", "originals/.0a1b", "originals/0a1b", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d, err := Open(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for pattern, want := range map[string]int{".*": 0, "originals/.*": 0, "originals/*": 1, "other": 1} {
		if there, _ := filepath.Glob(filepath.Join(dir, pattern)); len(there) != want {
			t.Errorf("%s: %v", pattern, there)
		}
	}
}
