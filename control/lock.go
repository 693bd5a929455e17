package control

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"muster.internal/store"
)

// A lock says that a running control plane works in a directory or on a SQLite
// file. The kernel ends it with the process, however that ends.
type lock struct{ f *os.File }

// takeLock refuses when another process, or another control plane in this one,
// has it.
func takeLock(path, what string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		by := make([]byte, 32)
		n, _ := f.Read(by) // who has it is only a hint
		return nil, fmt.Errorf("another musterd (process %s) works with %s: stop it first; "+
			"several control planes share a PostgreSQL store, each with a directory of its own", strings.TrimSpace(string(by[:n])), what)
	}
	// The number is only a hint: a full disk is no reason not to start.
	if f.Truncate(0) == nil {
		_, _ = fmt.Fprintln(f, os.Getpid())
	}
	return &lock{f}, nil
}

func (l *lock) release() error { return l.f.Close() }

// lockAll locks the directory, and the SQLite file when there is one. The
// offline commands do not: SQLite's own locks suffice for one transaction.
func (c *Control) lockAll() error {
	l, err := takeLock(filepath.Join(c.cfg.Dir, "lock"), c.cfg.Dir)
	if err != nil {
		return err
	}
	c.locks = append(c.locks, l)
	url := c.cfg.storeURL()
	if strings.Contains(url, "://") || strings.HasPrefix(url, store.Memory) {
		return nil
	}
	file := strings.TrimPrefix(url, "sqlite:")
	if l, err = takeLock(file+".lock", file); err != nil {
		return err
	}
	c.locks = append(c.locks, l)
	return nil
}
