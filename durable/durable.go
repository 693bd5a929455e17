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
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // 0600, and nobody else's
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
