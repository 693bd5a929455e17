// Package credential keeps a machine's credential in a file: whole or not at
// all, and readable by its owner alone.
//
// It must never quote what is in the file, not even in an error.
package credential

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"muster.internal/setup"
)

// Store writes a credential to a file that only its owner can read.
func Store(path string, c setup.Credential) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return WriteFile(path, append(b, '\n'), 0o600)
}

// Load reads one. An empty or torn file is an error, never a reason to register
// anew; the error does not quote it.
func Load(path string) (setup.Credential, error) {
	var c setup.Credential
	b, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	if json.Unmarshal(b, &c) != nil || c.APIKey == "" || c.URL == "" || c.ServerUUID == "" {
		return setup.Credential{}, fmt.Errorf("%s is not a whole credential", path)
	}
	return c, nil
}

// WriteFile replaces a file so that a power cut leaves the old one or the new
// one, and nobody but its owner can read it meanwhile.
func WriteFile(path string, content []byte, mode os.FileMode) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".") // 0600, O_EXCL
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // when it was not renamed
	_, err = f.Write(content)
	for _, then := range []func() error{func() error { return f.Chmod(mode) }, f.Sync, f.Close} {
		if e := then(); err == nil {
			err = e
		}
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		err = syncDir(dir)
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOSYS) {
		return err // some file systems in user space cannot, and say so
	}
	return nil
}
