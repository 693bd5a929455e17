//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"muster.internal/resource"
)

// The floor and the declaration say the same, and the floor repairs.
func TestFloorAndDeclaration(t *testing.T) {
	w := wanted{dir: t.TempDir(), files: 20, directories: 3}
	list := filepath.Join(w.dir, "list")
	if err := os.WriteFile(list, []byte(w.list()), 0o600); err != nil {
		t.Fatal(err)
	}
	root := w.root("floor")
	for _, content := range []string{"", "drift"} {
		if content != "" {
			if err := os.WriteFile(w.file(root, 3), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := floor(list); err != nil && !os.IsNotExist(err) { // not every machine has dpkg
			t.Fatal(err)
		}
		if err := w.check(root); err != nil {
			t.Error(err)
		}
	}
	d, err := resource.Parse("declaration", []byte(w.declaration()))
	if err != nil || !json.Valid([]byte(w.declaration())) {
		t.Fatal(err)
	}
	if n := len(d.Resources); n != 1+3+20+len(packages) {
		t.Errorf("%d resources", n)
	}
}
