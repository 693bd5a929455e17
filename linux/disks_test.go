package linux

import (
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// tree reads a machine's sysfs from a text file: a path and a quoted value a
// line.
func tree(t testing.TB, file string) fs.FS {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := fstest.MapFS{}
	for line := range strings.Lines(string(b)) {
		name, quoted, _ := strings.Cut(strings.TrimSpace(line), " ")
		v, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("%s: %s: %v", file, line, err)
		}
		all[name] = &fstest.MapFile{Data: []byte(v)}
	}
	return all
}

func golden(t *testing.T, file string, v any) {
	t.Helper()
	got, _ := json.MarshalIndent(v, "", " ")
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != string(got) {
		t.Errorf("%s (%v): got\n%s", file, err, got)
	}
}

func TestReadDisks(t *testing.T) {
	mounts, _ := os.ReadFile("testdata/mountinfo.txt")
	swaps, _ := os.ReadFile("testdata/swaps.txt")
	proc := fstest.MapFS{"self/mountinfo": {Data: mounts}, "swaps": {Data: swaps}}
	files, _ := filepath.Glob("testdata/sysfs/*.txt")
	if len(files) < 4 {
		t.Fatal("the machines are gone")
	}
	for _, f := range files {
		disks, err := ReadDisks(tree(t, f), proc, "/dev")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, strings.TrimSuffix(f, ".txt")+".json", disks)
	}
}

func TestNoDisksIsNoError(t *testing.T) {
	disks, err := ReadDisks(fstest.MapFS{"block/loop0/size": {Data: []byte("0")}}, fstest.MapFS{}, "/dev")
	if b, _ := json.Marshal(disks); err != nil || string(b) != "[]" {
		t.Errorf("got %s, %v", b, err)
	}
	if _, err := ReadDisks(fstest.MapFS{}, fstest.MapFS{}, "/dev"); err == nil {
		t.Error("a machine without /sys is not a machine without disks")
	}
}
