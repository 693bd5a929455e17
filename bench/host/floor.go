//go:build linux

package main

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
)

// floor makes what a list says with the least work: it looks at each path, reads
// and hashes each file, and writes what is missing or differs. It has no
// declaration to check, no record, no report, and makes nothing durable.
func floor(list string) error {
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(text) {
		name, want, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte("\t"))
		path := string(name)
		if len(want) == 0 {
			if _, err := os.Lstat(path); err == nil {
				continue
			}
			if err := os.MkdirAll(path, 0o755); err != nil {
				return err
			}
			continue
		}
		want = bytes.ReplaceAll(want, []byte{0}, []byte("\n"))
		if _, err := os.Lstat(path); err == nil {
			if is, err := os.ReadFile(path); err == nil && sha256.Sum256(is) == sha256.Sum256(want) {
				continue
			}
		}
		fresh := filepath.Join(filepath.Dir(path), ".new")
		if err := os.WriteFile(fresh, want, 0o644); err != nil {
			return err
		}
		if err := os.Rename(fresh, path); err != nil {
			return err
		}
	}
	_, err = os.ReadFile("/var/lib/dpkg/status")
	return err
}
