// Package durable replaces files so that a power cut leaves the old one or the
// new one, whole, and never one that others than its mode allows can read.
//
// It must never know what is in them.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Replace writes a file in place of the one that is there, if one is. A
// directory that is missing is made, for its owner alone. An error leaves the
// old file, and nothing beside it.
func Replace(path string, content []byte, mode fs.FileMode) error {
	if err := replace(path, content, mode); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

func replace(path string, content []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, fmt.Sprintf(".%s.%d.*", filepath.Base(path), os.Getpid())) // 0600, and nobody else's
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // when it was not renamed
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(dir)
}

// Sweep removes what processes that were killed have left half-written in a
// directory: files whose name begins with a dot. One that a process is at stays.
// What cannot be removed does no harm.
func Sweep(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, ".*"))
	for _, name := range left {
		if parts := strings.Split(name, "."); len(parts) > 2 {
			pid, err := strconv.Atoi(parts[len(parts)-2])
			if err == nil && pid > 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
				continue
			}
		}
		_ = os.Remove(name)
	}
}

// SyncDir makes last what was made, renamed or removed in a directory. A file
// system in user space that cannot, and says so, is no error.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOSYS) {
		return err
	}
	return nil
}
