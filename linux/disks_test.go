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

	"golang.org/x/sys/unix"

	"muster.internal"
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

// A disk that is only seen from here tells nothing of which machine this is.
func TestEvident(t *testing.T) {
	for name, c := range map[string]struct {
		path, mark string
		environ    string
		want       bool
	}{
		"no device node":     {"/dev/none", "", "HOME=/\x00", false},
		"no block device":    {"/dev/null", "", "", false},
		"Docker":             {"", ".dockerenv", "", false},
		"Podman":             {"", "run/.containerenv", "", false},
		"systemd-nspawn":     {"", "", "HOME=/\x00container=systemd-nspawn\x00", false},
		"LXC":                {"", "", "container=lxc\x00", false},
		"named by its value": {"", "", "X=container=\x00", true},
		"none":               {"", "", "", true},
	} {
		root := t.TempDir()
		if c.mark != "" {
			if err := os.MkdirAll(filepath.Join(root, filepath.Dir(c.mark)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, c.mark), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		node := c.path
		if node == "" {
			if node = filepath.Join(root, "disk"); unix.Mknod(node, unix.S_IFBLK|0o600, 0) != nil {
				t.Skip("block devices cannot be made here, which needs root")
			}
		}
		m := &Machine{Root: root, Proc: fstest.MapFS{"1/environ": {Data: []byte(c.environ)}}}
		d := m.Evident([]muster.Disk{{Path: node, Serial: "S1", WWN: "naa.5000c500a1b2c3d4"}})[0]
		if has := d.Serial != "" && d.WWN != ""; has != c.want || has != (d.Identity() != "") {
			t.Errorf("%s: %+v", name, d)
		}
	}
}
