package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"muster.internal/host"
	"muster.internal/resource"
)

func hand(t *testing.T) (*paths, string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPaths(filepath.Join(dir, "state", "originals"))
	if err != nil {
		t.Fatal(err)
	}
	return p, dir
}

// mine declares a file as this test's own account can make it.
func mine(path, mode string) *resource.File {
	return &resource.File{Path: path, Mode: mode, Owner: fmt.Sprint(os.Getuid()), Group: fmt.Sprint(os.Getgid())}
}

func mustRead(t *testing.T, p *paths, path string) resource.State {
	t.Helper()
	s, err := p.read(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// write puts a file and sees that it reads back as declared.
func write(t *testing.T, p *paths, f *resource.File, text string) {
	t.Helper()
	if err := p.putFile(f, text, mustRead(t, p, f.Path)); err != nil {
		t.Fatal(err)
	}
	f.Content = text
	r := resource.Resource{File: f}
	want, _ := r.Want(nil)
	if is := mustRead(t, p, f.Path); !is.Satisfies(want) {
		t.Error(cmp.Diff(want, is))
	}
}

func TestPutFile(t *testing.T) {
	p, dir := hand(t)
	path := filepath.Join(dir, "a")
	if s := mustRead(t, p, path); s != nil {
		t.Errorf("nothing is there: %v", s)
	}
	if s := mustRead(t, p, filepath.Join(dir, "no", "directory", "a")); s != nil {
		t.Errorf("nothing is there: %v", s)
	}
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	write(t, p, mine(path, "0644"), "one\n")
	write(t, p, mine(path, "4755"), "one\n")
	write(t, p, mine(path, ""), strings.Repeat("two\n", 100_000))
	write(t, p, mine(path, "0600"), "")
	left, _ := os.ReadDir(dir)
	if len(left) != 1 {
		t.Errorf("something is left beside it: %v", left)
	}
}

// A change of access alone leaves the file in its place; a change of content
// replaces it, and keeps its labels.
func TestPutFileKeepsLabels(t *testing.T) {
	p, dir := hand(t)
	path := filepath.Join(dir, "a")
	write(t, p, mine(path, "0644"), "one")
	before, _ := os.Stat(path)
	if err := unix.Setxattr(path, "user.label", []byte("kept"), 0); errors.Is(err, unix.ENOTSUP) {
		t.Skip("this file system has no extended attributes")
	} else if err != nil {
		t.Fatal(err)
	}
	write(t, p, mine(path, "0600"), "one")
	if after, _ := os.Stat(path); !os.SameFile(before, after) {
		t.Error("only its mode was to change, and it is another file")
	}
	write(t, p, mine(path, "0600"), "two")
	if after, _ := os.Stat(path); os.SameFile(before, after) {
		t.Error("its content was changed in place")
	}
	b := make([]byte, 16)
	if n, err := unix.Getxattr(path, "user.label", b); err != nil || string(b[:n]) != "kept" {
		t.Errorf("its label is %q, %v", b[:n], err)
	}
}

// What is not a file is not replaced by one, and what came meanwhile neither.
func TestPutFileReplacesNothingElse(t *testing.T) {
	p, dir := hand(t)
	path := filepath.Join(dir, "a")
	for what, make := range map[string]func() error{
		"directory": func() error { return os.Mkdir(path, 0o755) },
		"symlink":   func() error { return os.Symlink("/etc/shadow", path) },
		"other":     func() error { return unix.Mkfifo(path, 0o600) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		is := mustRead(t, p, path)
		if is["type"] != what {
			t.Errorf("%v is no %s", is, what)
		}
		err := p.putFile(mine(path, ""), "x", is)
		if want := fmt.Sprintf("a %s is at %s, and the host does not replace it with a file", what, path); err == nil || err.Error() != want {
			t.Errorf("%v, not %s", err, want)
		}
		if err := p.putFile(mine(path, ""), "x", nil); !errors.Is(err, unix.EEXIST) {
			t.Errorf("a %s that came meanwhile: %v", what, err)
		}
		if now := mustRead(t, p, path); now["type"] != what {
			t.Errorf("the %s is a %s now", what, now["type"])
		}
		os.Remove(path)
	}
}

// What a crash left beside a file is removed by the next write, whatever it is.
func TestPutFileAfterCrash(t *testing.T) {
	p, dir := hand(t)
	temp := filepath.Join(dir, ".a.muster-new")
	if err := os.WriteFile(temp, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, p, mine(filepath.Join(dir, "a"), ""), "whole")
	target := filepath.Join(dir, "target")
	os.Symlink(target, temp)
	write(t, p, mine(filepath.Join(dir, "a"), ""), "again")
	if _, err := os.Lstat(target); err == nil {
		t.Error("a planted link beside it was followed")
	}
	os.WriteFile(temp, nil, 0o600)
	if err := p.remove(resource.NewRef(resource.KindFile, filepath.Join(dir, "a"))); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// A link that somebody else could have put into the path is not followed; the
// system's own are.
func TestPlantedLink(t *testing.T) {
	p, dir := hand(t)
	outside := filepath.Join(dir, "outside")
	open := filepath.Join(dir, "open")
	for _, d := range []string{outside, open} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(open, "link")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	write(t, p, mine(filepath.Join(link, "mine"), ""), "x") // one's own, where nobody else writes
	refused := func(why string) {
		t.Helper()
		err := p.putFile(mine(filepath.Join(link, "a"), ""), "x", nil)
		if err == nil || !strings.Contains(err.Error(), link+" is a symbolic link that account") {
			t.Errorf("%s: %v", why, err)
		}
		if _, err := os.Lstat(filepath.Join(outside, "a")); err == nil {
			t.Errorf("%s: it was written through the link", why)
		}
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	refused("in a directory that anybody can write to")
	os.Chmod(open, 0o755)
	if os.Getuid() != 0 {
		t.Skip("root only: links of other accounts")
	}
	if err := os.Lchown(link, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	refused("of another account")
	if _, err := p.read(filepath.Join(link, "mine")); err == nil {
		t.Error("it is read through the link")
	}
}

func TestWalkFollowsTheSystemsOwn(t *testing.T) {
	p, _ := hand(t)
	if real, err := os.Readlink("/bin"); err != nil || real != "usr/bin" {
		t.Skip("/bin is no link here")
	}
	if s := mustRead(t, p, "/bin/sh"); s == nil {
		t.Error("there is no /bin/sh")
	}
	dir := t.TempDir()
	os.Symlink("b", filepath.Join(dir, "a"))
	os.Symlink("a", filepath.Join(dir, "b"))
	if _, err := p.read(filepath.Join(dir, "a", "x")); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a loop: %v", err)
	}
}

func TestPutDirectory(t *testing.T) {
	p, dir := hand(t)
	path := filepath.Join(dir, "d")
	d := &resource.Directory{Path: path, Mode: "2750", Owner: fmt.Sprint(os.Getuid()), Group: fmt.Sprint(os.Getgid())}
	for _, mode := range []string{"2750", "0700", ""} {
		d.Mode = mode
		if err := p.putDirectory(d, mustRead(t, p, path)); err != nil {
			t.Fatal(err)
		}
		want, _ := (&resource.Resource{Directory: d}).Want(nil)
		if is := mustRead(t, p, path); !is.Satisfies(want) {
			t.Error(cmp.Diff(want, is))
		}
	}
	os.WriteFile(filepath.Join(path, "theirs"), nil, 0o600)
	ref := resource.NewRef(resource.KindDirectory, path)
	if err := p.remove(ref); !errors.Is(err, host.ErrNotEmpty) {
		t.Errorf("it holds what is not ours: %v", err)
	}
	os.Remove(filepath.Join(path, "theirs"))
	for range 2 { // the second time it is gone already
		if err := p.remove(ref); err != nil {
			t.Error(err)
		}
	}
}

// What took a file's place is not copied: a FIFO that somebody holds open would be
// waited for.
func TestKeepFilesOnly(t *testing.T) {
	p, dir := hand(t)
	path := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := p.keep(resource.NewRef(resource.KindFile, path)); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

// An original comes back with its content, mode, owner and labels.
func TestKeepRestore(t *testing.T) {
	p, dir := hand(t)
	path := filepath.Join(dir, "a")
	write(t, p, mine(path, "0640"), "theirs")
	o := resource.Owned{Ref: resource.NewRef(resource.KindFile, path), Origin: resource.OriginAdopted, Found: mustRead(t, p, path)}
	var err error
	if o.Original, err = p.keep(o.Ref); err != nil {
		t.Fatal(err)
	}
	write(t, p, mine(path, "0600"), "ours")
	for range 2 {
		if err := p.restore(o); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(o.Found, mustRead(t, p, path)); diff != "" {
			t.Error(diff)
		}
		os.Remove(path) // the second time it was removed meanwhile
	}
	os.Mkdir(path, 0o755)
	if err := p.restore(o); err == nil || !strings.Contains(err.Error(), "does not replace it") {
		t.Error(err)
	}
	os.Remove(path)
	os.Remove(o.Original)
	if err := p.restore(o); err == nil || !strings.Contains(err.Error(), "its original is not where it was kept") {
		t.Error(err)
	}
}

func TestUnknownAccount(t *testing.T) {
	p, dir := hand(t)
	f := mine(filepath.Join(dir, "a"), "")
	f.Owner = "no-such-account"
	if err := p.putFile(f, "x", nil); err == nil || err.Error() != `this machine has no account "no-such-account"` {
		t.Error(err)
	}
}

// Disks that are full or read-only and files that must not change are said, and
// nothing is left half-done.
func TestHardPlaces(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("root only: mounts and immutable files")
	}
	p, dir := hand(t)
	small := filepath.Join(dir, "small")
	os.Mkdir(small, 0o755)
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("nothing can be mounted here: ", err)
	}
	t.Cleanup(func() { unix.Unmount(small, unix.MNT_DETACH) })
	path := filepath.Join(small, "a")
	write(t, p, mine(path, ""), "small")
	if err := p.putFile(mine(path, ""), strings.Repeat("x", 1<<20), mustRead(t, p, path)); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a full disk: %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "small" {
		t.Errorf("a full disk: the file holds %q", b)
	}
	if left, _ := os.ReadDir(small); len(left) != 1 {
		t.Errorf("a full disk: left %v", left)
	}
	if err := unix.Mount("", small, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if err := p.putFile(mine(path, ""), "y", mustRead(t, p, path)); !errors.Is(err, unix.EROFS) {
		t.Errorf("a read-only file system: %v", err)
	}
	if err := p.remove(resource.NewRef(resource.KindDirectory, small)); err == nil {
		t.Error("a mount point was removed")
	}

	fixed := filepath.Join(dir, "fixed")
	write(t, p, mine(fixed, ""), "one")
	if out, err := exec.Command("chattr", "+i", fixed).CombinedOutput(); err != nil {
		t.Logf("no immutable files here: %s", out)
		return
	}
	t.Cleanup(func() { exec.Command("chattr", "-i", fixed).Run() })
	for what, err := range map[string]error{
		"content": p.putFile(mine(fixed, ""), "two", mustRead(t, p, fixed)),
		"mode":    p.putFile(mine(fixed, "0600"), "one", mustRead(t, p, fixed)),
		"removal": p.remove(resource.NewRef(resource.KindFile, fixed)),
	} {
		if err == nil || !strings.Contains(err.Error(), "the file is marked immutable") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("left: %v", left)
	}
}

// A root that holds the host alone has no /etc/passwd.
func TestNoAccounts(t *testing.T) {
	a, err := readAccounts(filepath.Join(t.TempDir(), "passwd"))
	if err != nil || a.name(0) != "root" || a.name(7) != "7" {
		t.Errorf("%v: %q and %q", err, a.name(0), a.name(7))
	}
	if _, err := a.number("anna"); err == nil {
		t.Error("it knows anna")
	}
}
