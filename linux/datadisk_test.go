package linux

import (
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"muster.internal/resource"
)

// A shelf holds disks that are loop devices, with a /sys that knows them.
type shelf struct {
	*testing.T
	*dataDisks
	dir string
	sys fstest.MapFS
}

func newShelf(t *testing.T) *shelf {
	if os.Getuid() != 0 {
		t.Skip("it takes root to mount a disk")
	}
	tool(t, "losetup", "mkfs.xfs", "mkfs.ext4", "mkfs.btrfs")
	dir := t.TempDir()
	sys := fstest.MapFS{"block": &fstest.MapFile{Mode: os.ModeDir | 0o755}}
	m := &Machine{Log: slog.New(slog.DiscardHandler), Sys: sys, Proc: os.DirFS("/proc"), Dev: "/dev"}
	begun := filepath.Join(dir, "state")
	if err := os.Mkdir(begun, 0o700); err != nil {
		t.Fatal(err)
	}
	return &shelf{t, &dataDisks{m, begun}, dir, sys}
}

// disk makes one, of as much as every file system wants at least; it is not
// plugged in yet.
func (s *shelf) disk(name string) (device string) {
	s.Helper()
	return s.attach(sparse(s.T, filepath.Join(s.dir, name), 320<<20))
}

func (s *shelf) attach(file string) (device string) {
	s.Helper()
	out, err := exec.Command("losetup", "-f", "--show", file).CombinedOutput()
	if err != nil {
		s.Skipf("there is no loop device: %v %s", err, out)
	}
	device = strings.TrimSpace(string(out))
	s.Cleanup(func() {
		if backing(device) == file { // the name may be another's by now
			exec.Command("losetup", "-d", device).Run()
		}
	})
	return device
}

// backing is the file of a loop device, if it has one.
func backing(device string) string {
	file, _ := os.ReadFile("/sys/block/" + filepath.Base(device) + "/loop/backing_file")
	return strings.TrimSpace(string(file))
}

func (s *shelf) plug(device, wwn string) {
	s.Helper()
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		s.Fatal(err)
	}
	for k, v := range map[string]string{"device/type": "0", "device/vendor": "LAB", "device/model": "DISK", "size": fmt.Sprint(320 << 20 / 512), "queue/rotational": "1",
		"device/wwid": "naa.500000000000000" + wwn, "dev": fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))} {
		s.sys["block/"+filepath.Base(device)+"/"+k] = &fstest.MapFile{Data: []byte(v)}
	}
}

func (s *shelf) pull(device string) {
	for k := range s.sys {
		if strings.HasPrefix(k, "block/"+filepath.Base(device)+"/") {
			delete(s.sys, k)
		}
	}
}

const dataID = "019df26e-2d00-7eb7-bf41-46fb0ce1b14"

// want is the n-th declared disk, found by its WWN.
func (s *shelf) want(n, wwn, filesystem string) *resource.DataDisk {
	d := &resource.DataDisk{ID: dataID + n, Identity: "wwn naa.500000000000000" + wwn, Path: filepath.Join(s.dir, "disks", n), Filesystem: filesystem}
	s.Cleanup(func() { unix.Unmount(d.Path, unix.MNT_DETACH) })
	return d
}

// put makes it so, as an apply does, and tells what came of it.
func (s *shelf) put(d *resource.DataDisk) string {
	s.Helper()
	is, err := s.read(d.Path)
	if err != nil {
		return err.Error()
	}
	r := resource.Resource{Disk: d}
	want, _ := r.Want(nil)
	if is.Satisfies(want) {
		return "ok"
	}
	if err := s.dataDisks.put(d, is); err != nil {
		return err.Error()
	}
	if is, err = s.read(d.Path); err != nil || !is.Satisfies(want) {
		s.Errorf("it reads back as %v, %v", is, err)
	}
	return "mounted"
}

func (s *shelf) expect(what, got, want string) {
	s.Helper()
	if want == "" && got != "" || !strings.Contains(got, want) {
		s.Errorf("%s: %s, not %s", what, got, want)
	}
}

// state tells whether anything was written to a disk: when its file was, how much
// there is of it, and what is at its ends.
func (s *shelf) state(device string) string {
	s.Helper()
	f, err := os.Open(device)
	if err != nil {
		s.Fatal(err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Stat(backing(device), &st); err != nil {
		s.Fatal(err)
	}
	h := sha256.New()
	for _, at := range []int64{0, 319 << 20} {
		if _, err := io.Copy(h, io.NewSectionReader(f, at, 1<<20)); err != nil {
			s.Fatal(err)
		}
	}
	return fmt.Sprintf("%d.%09d %d %x", st.Mtim.Sec, st.Mtim.Nsec, st.Blocks, h.Sum(nil))
}

// A blank disk gets its file system, is mounted, let go, mounted again with what
// was on it, and pulled and plugged in again under another name.
func TestDataDisk(t *testing.T) {
	for _, filesystem := range []string{"xfs", "ext4", "btrfs"} {
		t.Run(filesystem, func(t *testing.T) {
			s := newShelf(t)
			a := s.disk("a")
			s.plug(a, "a")
			d := s.want("a", "a", filesystem)
			s.expect("blank", s.put(d), "mounted")
			s.expect("again", s.put(d), "ok")
			note := filepath.Join(d.Path, "note")
			if err := os.WriteFile(note, []byte("kept"), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(note)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.remove(d.Path); err == nil || !strings.Contains(err.Error(), "still uses it") {
				t.Errorf("while a file is open: %v", err)
			}
			f.Close()
			if err := s.remove(d.Path); err != nil {
				t.Error(err)
			}
			if is, err := s.read(d.Path); is != nil || err != nil {
				t.Errorf("%v %v", is, err)
			}
			if _, err := os.Stat(d.Path); !os.IsNotExist(err) {
				t.Errorf("its directory stays: %v", err)
			}
			s.expect("mounted again", s.put(d), "mounted")
			if text, err := os.ReadFile(note); string(text) != "kept" {
				t.Errorf("%q %v", text, err)
			}
			before := s.m.DisksThere([]resource.DataDisk{*d})
			s.pull(a)
			if s.m.DisksThere([]resource.DataDisk{*d}) == before {
				t.Error("nobody would notice")
			}
			if is, err := s.read(d.Path); err != nil || is["id"] != resource.Gone {
				t.Errorf("pulled, it is %v, %v", is, err)
			}
			s.expect("pulled", s.put(d), "disk "+d.ID+" ("+d.Identity+") is not there")
			if is, err := s.read(d.Path); is != nil || err != nil {
				t.Errorf("what was left of it is %v, %v", is, err)
			}
			exec.Command("losetup", "-d", a).Run()
			other := s.attach(filepath.Join(s.dir, "a"))
			t.Cleanup(func() { unix.Unmount(d.Path, unix.MNT_DETACH) })
			s.plug(other, "a")
			s.expect("plugged in again", s.put(d), "mounted")
			if text, err := os.ReadFile(note); string(text) != "kept" {
				t.Errorf("%q %v", text, err)
			}
		})
	}
}

// Whatever is not blank, or not for the host alone, is left as it is, to the last
// byte.
func TestDataDiskRefuses(t *testing.T) {
	s := newShelf(t)
	a, b := s.disk("a"), s.disk("b")
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", name, err, out)
		}
	}
	write := func(at int64, text string) func() {
		return func() {
			f, err := os.OpenFile(a, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt([]byte(text), at); err != nil {
				t.Fatal(err)
			}
			f.Sync()
		}
	}
	clean := func() { run("blkdiscard", "-z", a) }
	d := s.want("a", "a", "xfs")
	for _, c := range []struct {
		name string
		do   func()
		want string
	}{
		{"another file system", func() { run("mkfs.ext4", "-q", "-F", a) }, "it contains ext4"},
		{"another id", func() { run("mkfs.xfs", "-q", "-f", "-m", "uuid="+dataID+"b", a) }, "it contains xfs"},
		{"the id, and another kind", func() { run("mkfs.ext4", "-q", "-F", "-U", d.ID, a) }, "it contains ext4"},
		{"the id, and partitions", func() {
			run("mkfs.xfs", "-q", "-f", "-m", "uuid="+d.ID, a)
			write(510, "\x55\xaa")()
			write(446, "\x80\x00\x00\x00\x83\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00")()
		}, "it contains"},
		{"a letter at its end", write(320<<20-1, "x"), "it contains"},
		{"a letter in its middle", write(160<<20, "x"), "it contains"},
		{"a letter where btrfs has a copy", write(64<<20+7, "x"), "it contains"},
		{"a member of a pool", func() { run("mkfs.btrfs", "-q", "-f", "-L", "zones:"+me, a) }, "it contains"},
	} {
		clean()
		c.do()
		s.pull(a)
		s.plug(a, "a")
		before := s.state(a)
		s.expect(c.name, s.put(d), c.want)
		if s.state(a) != before {
			t.Errorf("%s: it was written to", c.name)
		}
		if marks, _ := os.ReadDir(s.begun); len(marks) > 0 {
			t.Errorf("%s: %v", c.name, marks)
		}
	}
	clean()
	blankA, blankB := s.state(a), s.state(b)
	s.sys["block/"+filepath.Base(a)+"/ro"] = &fstest.MapFile{Data: []byte("1")}
	s.expect("read-only", s.put(d), "write protection")
	delete(s.sys, "block/"+filepath.Base(a)+"/ro")
	s.sys["block/"+filepath.Base(a)+"/holders/dm-0"] = &fstest.MapFile{}
	s.expect("held", s.put(d), "in use: dm-0")
	delete(s.sys, "block/"+filepath.Base(a)+"/holders/dm-0")
	s.plug(b, "a")
	s.expect("two of one identity", s.put(d), "2 disks have the identity")
	s.pull(b)
	own, err := os.OpenFile(a, os.O_RDONLY|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.expect("somebody has it", s.put(d), "cannot be had for itself")
	own.Close()
	if s.state(a) != blankA || s.state(b) != blankB {
		t.Error("it was written to")
	}
	// Where something else is mounted, nothing is unmounted, nor mounted over it.
	s.expect("blank", s.put(d), "mounted")
	s.pull(a)
	s.plug(a, "c")
	s.plug(b, "a")
	s.expect("another disk at the same path", s.put(d), "something else is mounted")
	if s.state(b) != blankB {
		t.Error("the other disk was written to")
	}
}

// A crash at any step of making a file system leaves what the next apply makes
// whole; but only on the disk that it was begun on.
func TestDataDiskAfterACrash(t *testing.T) {
	s := newShelf(t)
	a := s.disk("a")
	s.plug(a, "a")
	d := s.want("a", "a", "ext4")
	mark := filepath.Join(s.begun, "formatting-"+d.ID)
	for _, c := range []struct {
		name, mark string
		made       func() error
		want       string
	}{
		{"before the tool", d.Identity, func() error { return nil }, "mounted"},
		{"in the tool", d.Identity, func() error { return os.WriteFile(a, []byte("half of something"), 0) }, "mounted"},
		{"after the tool", d.Identity, func() error { return exec.Command("mkfs.ext4", "-q", "-F", "-U", d.ID, a).Run() }, "mounted"},
		{"begun on another disk", "wwn x", func() error { return os.WriteFile(a, []byte("half of something"), 0) }, "it contains"},
		{"begun, and somebody else's by now", d.Identity, func() error { return exec.Command("mkfs.xfs", "-q", "-f", a).Run() }, "it contains xfs"},
		{"never begun", "", func() error { return os.WriteFile(a, []byte("half of something"), 0) }, "it contains"},
	} {
		if out, err := exec.Command("blkdiscard", "-z", a).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		if err := c.made(); err != nil {
			t.Fatal(err)
		}
		os.Remove(mark)
		if c.mark != "" {
			if err := os.WriteFile(mark, []byte(c.mark), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s.expect(c.name, s.put(d), c.want)
		if _, err := os.Stat(mark); c.want == "mounted" && !os.IsNotExist(err) {
			t.Errorf("%s: the mark stays: %v", c.name, err)
		}
		unix.Unmount(d.Path, 0)
	}
}
