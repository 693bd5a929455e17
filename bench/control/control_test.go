//go:build linux

package main

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// A small fleet goes through all phases, and musterd itself says so at the end.
func TestSmallFleet(t *testing.T) {
	program := filepath.Join(t.TempDir(), "musterd")
	if out, err := exec.Command("go", "build", "-o", program, "muster.internal/cmd/musterd").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := run(t.Context(), settings{hosts: 5, program: program}); err != nil {
		t.Fatal(err)
	}
}
