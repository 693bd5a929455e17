package linux

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	"muster.internal"
)

// tool skips a test by name when a program is not installed.
func tool(t *testing.T, names ...string) {
	t.Helper()
	for _, n := range names {
		if _, err := exec.LookPath(n); err != nil {
			t.Skipf("%s is not installed", n)
		}
	}
}

func sparse(t testing.TB, path string, size int64) string {
	t.Helper()
	f, err := os.Create(path)
	if err == nil {
		err = f.Truncate(size)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func do(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

const imageSize = 400 << 20

// What the usual tools write is recognised, and gone after a wipe.
func TestContentsOfRealTools(t *testing.T) {
	type list = []muster.Content
	for _, c := range []struct {
		name string
		tool string
		args []string
		want list
	}{
		{"ext4", "mkfs.ext4", []string{"-q", "-F", "-L", "home"}, list{{Kind: "ext4", Name: "home"}}},
		{"ext2", "mkfs.ext2", []string{"-q", "-F"}, list{{Kind: "ext2"}}},
		{"xfs", "mkfs.xfs", []string{"-q", "-f", "-L", "data"}, list{{Kind: "xfs", Name: "data"}}},
		{"swap", "mkswap", []string{"-L", "sw"}, list{{Kind: "swap", Name: "sw"}}},
		{"fat", "mkfs.vfat", []string{"-F", "32", "-n", "STICK"}, list{{Kind: "fat", Name: "STICK"}}},
		{"btrfs", "mkfs.btrfs", []string{"-q", "-L", "big", "-U", "01234567-89ab-cdef-0123-456789abcdef"}, list{{Kind: "btrfs", Name: "big", GUID: "01234567-89ab-cdef-0123-456789abcdef"}}},
		{"our btrfs", "mkfs.btrfs", []string{"-q", "-L", joinLabel(me), "-U", "01234567-89ab-cdef-0123-456789abcdef"}, list{{Kind: "btrfs", Name: "zones", GUID: "01234567-89ab-cdef-0123-456789abcdef", Stamp: me}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tool(t, c.tool)
			disk := sparse(t, filepath.Join(t.TempDir(), "disk"), imageSize)
			do(t, c.tool, append(c.args, disk)...)
			got, err := readContents(disk, imageSize)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, %v, want %+v", got, err, c.want)
			}
			if err := wipe(disk, imageSize, func(*os.File) error { return nil }); err != nil {
				t.Fatal(err)
			}
			if got, err := readContents(disk, imageSize); err != nil || len(got) > 0 {
				t.Errorf("after the wipe there is %+v, %v", got, err)
			}
		})
	}
}

func TestContentsOfPartitions(t *testing.T) {
	tool(t, "sfdisk", "mkfs.ext4")
	for label, script := range map[string]string{
		"gpt": "label: gpt\n,100M\n,100M,S\n",
		"dos": "label: dos\n,100M\n,100M,S\n",
	} {
		disk := sparse(t, filepath.Join(t.TempDir(), "disk"), imageSize)
		cmd := exec.Command("sfdisk", "-q", disk)
		cmd.Stdin = bytes.NewBufferString(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		do(t, "mkfs.ext4", "-q", "-F", "-L", "inner", "-E", "offset=1048576", disk, "90M")
		name := map[string]string{"gpt": "gpt", "dos": "mbr"}[label]
		want := []muster.Content{{Kind: "partitions", Name: name}, {Kind: "ext4", Name: "inner"}}
		if got, err := readContents(disk, imageSize); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", label, got, err, want)
		}
		if err := wipe(disk, imageSize, func(*os.File) error { return nil }); err != nil {
			t.Error(err)
		}
		// What was in the partition is cleared too, should one start there again.
		f, _ := os.Open(disk)
		if got := probe(&region{r: f, from: 1 << 20, size: 100 << 20}); len(got) > 0 {
			t.Errorf("%s: in the old partition there is %+v", label, got)
		}
		f.Close()
	}
}

func TestContentsUnknownAndBlank(t *testing.T) {
	b := make([]byte, 1<<20)
	if got, err := Contents(bytes.NewReader(b), 1<<20); err != nil || len(got) > 0 {
		t.Errorf("a blank disk contains %+v, %v", got, err)
	}
	b[1<<20-1] = 1
	if got, _ := Contents(bytes.NewReader(b), 1<<20); !reflect.DeepEqual(got, []muster.Content{{Kind: "unknown"}}) {
		t.Errorf("a disk that is not blank contains %+v", got)
	}
	if _, err := Contents(bad{}, 1<<20); err == nil {
		t.Error("a disk that cannot be read is not a blank disk")
	}
}

type bad struct{}

func (bad) ReadAt([]byte, int64) (int, error) { return 0, os.ErrPermission }

// The first 4 KiB of a label's list, as zfs-fuse wrote it.
func zfsLabel(t testing.TB) []byte {
	b, err := os.ReadFile("testdata/zfs-label.bin")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func onDisk(list []byte) []byte {
	b := make([]byte, 2<<20)
	copy(b[256<<10+zfsListOffset:], list) // the first label is gone: the second tells
	return b
}

func TestZFSLabel(t *testing.T) {
	want := []muster.Content{{Kind: "zpool", Name: "zones", GUID: "3954261353580690927"}}
	list := zfsLabel(t)
	if got, err := Contents(bytes.NewReader(onDisk(list)), 2<<20); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	destroyed := bytes.Replace(list, []byte("\x00\x00\x00\x05state\x00\x00\x00\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01"), []byte("\x00\x00\x00\x05state\x00\x00\x00\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02"), 1)
	if got, _ := Contents(bytes.NewReader(onDisk(destroyed)), 2<<20); len(got) != 1 || got[0].Kind != "destroyed zpool" {
		t.Errorf("a destroyed pool reads as %+v", got)
	}
}

func FuzzContents(f *testing.F) {
	f.Add(zfsLabel(f), 256<<10+zfsListOffset)
	gpt := make([]byte, 92)
	copy(gpt, "EFI PART")
	gpt[72], gpt[80], gpt[84] = 2, 128, 128
	f.Add(gpt, 512)
	f.Add([]byte("_BHRfS_M"), btrfsSuper+0x40)
	f.Add([]byte{0x53, 0xef}, 1024+0x38)
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		disk := make([]byte, 1<<20)
		if at < 0 || at >= len(disk) {
			return
		}
		copy(disk[at:], b)
		got, err := Contents(bytes.NewReader(disk), int64(len(disk)))
		if err != nil {
			t.Errorf("a readable disk: %v", err)
		}
		for _, c := range got {
			if len(c.Name) > 256 || c.Kind == "" {
				t.Errorf("found %+v", c)
			}
		}
	})
}

func FuzzZFSLabel(f *testing.F) {
	f.Add(zfsLabel(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		zfsContent(append(make([]byte, zfsListOffset), b...))
	})
}
