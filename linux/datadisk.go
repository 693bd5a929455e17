package linux

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"muster.internal"
	"muster.internal/durable"
	"muster.internal/layout"
	"muster.internal/resource"
)

// dataDisks is the hand for declared disks. It writes to a blank disk alone: to
// one that it has begun to make a file system on, once more.
type dataDisks struct {
	m *Machine
	// begun is the directory of the marks that say so.
	begun string
}

// A mountLine is a line of the kernel's table of mounts (proc_pid_mountinfo(5)).
type mountLine struct{ device, path, filesystem, source string }

// mounts are those at a path, the one on top last.
func (m *Machine) mounts(at string) (all []mountLine, err error) {
	text, err := fs.ReadFile(m.Proc, "self/mountinfo")
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		i := slices.Index(f, "-")
		if len(f) > 4 && f[4] == escapeMount(at) && i > 0 && i+2 < len(f) {
			all = append(all, mountLine{f[2], f[4], f[i+1], f[i+2]})
		}
	}
	return all, err
}

// escapeMount spells a path as the kernel's tables of mounts do.
func escapeMount(path string) string {
	return strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`).Replace(path)
}

// DisksThere says of each disk whether it is plugged in, and mounted: what it
// says is another text when that has changed.
func (m *Machine) DisksThere(all []resource.DataDisk) string {
	disks, err := ReadDisks(m.Sys, m.Proc, m.Dev)
	if err != nil {
		return err.Error()
	}
	b := new(strings.Builder)
	for _, k := range all {
		mounts, _ := m.mounts(k.Path) // what cannot be read is not mounted
		fmt.Fprintln(b, k.ID, len(identified(disks, k.Identity)), len(mounts))
	}
	return b.String()
}

func identified(disks []muster.Disk, identity string) (all []muster.Disk) {
	for _, d := range disks {
		if d.Identity() == identity {
			all = append(all, d)
		}
	}
	return all
}

// number is a disk's, as tables of mounts have it.
func (m *Machine) number(d muster.Disk) string {
	return attribute(m.Sys, path.Join("block", strings.ReplaceAll(strings.TrimPrefix(d.Path, m.Dev+"/"), "/", "!"), "dev"))
}

// read tells which disk is mounted at a path; nil: nothing is.
func (k *dataDisks) read(at string) (resource.State, error) {
	all, err := k.m.mounts(at)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	disks, err := ReadDisks(k.m.Sys, k.m.Proc, k.m.Dev)
	if err != nil {
		return nil, err
	}
	on := all[len(all)-1]
	s := resource.State{resource.FieldType: string(resource.KindDisk), resource.FieldFilesystem: on.filesystem, resource.FieldID: resource.Gone, resource.FieldIdentity: ""}
	for _, d := range disks {
		// btrfs has device numbers of its own; its source tells the disk.
		if k.m.number(d) != on.device && d.Path != on.source {
			continue
		}
		s[resource.FieldIdentity] = d.Identity()
		f, err := os.Open(d.Path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		_, s[resource.FieldID], err = superblock(f)
		return s, err
	}
	if !strings.HasPrefix(on.source, k.m.Dev+"/") { // it never was a disk's
		s[resource.FieldID] = ""
	}
	return s, nil
}

// superblock reads the kind and the UUID of the file system on a whole disk; both
// are empty where there is none that a declared disk can have.
func superblock(r io.ReaderAt) (kind, id string, err error) {
	g := &region{r: r, size: btrfsSuper + 4096}
	start, second := g.read(0, 2048), g.read(btrfsSuper, 4096)
	if g.err != nil || len(second) < 4096 {
		return "", "", g.err
	}
	if string(start[:4]) == "XFSB" {
		return "xfs", uuidText(start[32:48]), nil
	}
	if c := extContent(start[1024:1288]); c.Kind != "" {
		return c.Kind, uuidText(start[1024+0x68 : 1024+0x78]), nil
	}
	c := btrfsContent(second)
	return c.Kind, c.GUID, nil
}

// put mounts a disk, after making a file system on it if it is blank.
func (k *dataDisks) put(want *resource.DataDisk, is resource.State) error {
	switch {
	case is[resource.FieldID] == resource.Gone: // nobody can use what is left of it
		if err := unix.Unmount(want.Path, unix.MNT_DETACH); err != nil {
			return wrap("unmount", want.Path, err)
		}
	case is != nil:
		return fmt.Errorf("something else is mounted at %s: %s %s on %s", want.Path, is[resource.FieldFilesystem], orNone(is[resource.FieldID]), orNone(is[resource.FieldIdentity]))
	}
	d, err := k.find(want)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(d.Path, os.O_RDONLY|unix.O_EXCL|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("disk %s (%s) cannot be had for itself: %w", d.Path, d.Describe(), err)
	}
	defer f.Close()
	if err := k.m.still(d)(f); err != nil {
		return fmt.Errorf("disk %s: %w", d.Path, err)
	}
	if err := k.filesystem(want, d, f); err != nil {
		return fmt.Errorf("disk %s (%s): %w", d.Path, d.Describe(), err)
	}
	return k.mount(want, d)
}

func orNone(s string) string {
	if s == "" {
		return "nothing that is known"
	}
	return s
}

// find is the one disk of that identity, which nothing uses.
func (k *dataDisks) find(want *resource.DataDisk) (muster.Disk, error) {
	all, err := ReadDisks(k.m.Sys, k.m.Proc, k.m.Dev)
	if err != nil {
		return muster.Disk{}, err
	}
	switch all = identified(all, want.Identity); {
	case len(all) == 0:
		return muster.Disk{}, fmt.Errorf("disk %s (%s) is not there", want.ID, want.Identity)
	case len(all) > 1:
		return muster.Disk{}, fmt.Errorf("%d disks have the identity %q, %s and %s among them: neither is touched", len(all), want.Identity, all[0].Path, all[1].Path)
	case len(all[0].Contents) > 0:
		return all[0], fmt.Errorf("disk %s (%s) is in use: %s", all[0].Path, all[0].Describe(), all[0].Contents[0].Name)
	}
	return all[0], nil
}

// filesystem sees to it that the file system of that id is on the disk, which is
// open and nobody else's. It is closed before one is made, since the tools want the
// disk for themselves; another open end holds its name meanwhile.
func (k *dataDisks) filesystem(want *resource.DataDisk, d muster.Disk, f *os.File) error {
	mark := filepath.Join(k.begun, "formatting-"+want.ID)
	begun, err := os.ReadFile(mark)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	again := string(begun) == d.Identity()
	found, err := Contents(f, d.Size)
	if err != nil {
		return err
	}
	kind, id, err := superblock(f)
	ours := kind == want.Filesystem && id == want.ID && len(found) == 1
	switch {
	case err != nil:
		return err
	case ours && !again:
		f.Close()
		return nil
	case len(found) == 0 && !blankThroughout(f, d.Size):
		found = []muster.Content{{Kind: "unknown"}}
	}
	if len(found) > 0 && !ours && !(again && len(found) == 1 && found[0].Kind == "unknown") {
		return fmt.Errorf("it is neither blank nor does it carry the id %s, so nothing is written to it: it contains %s", want.ID, layout.Contains(found[0]))
	}
	if err := durable.Replace(mark, []byte(d.Identity()), 0o600); err != nil {
		return err
	}
	hold, err := os.Open(d.Path)
	if err != nil {
		return err
	}
	defer hold.Close()
	f.Close()
	if err := k.m.still(d)(hold); err != nil {
		return err
	}
	if _, err := k.m.run("mkfs."+want.Filesystem, append(slices.Clone(makers[want.Filesystem]), option(want), d.Path)...); err != nil {
		return err
	}
	if err := hold.Sync(); err != nil {
		return err
	}
	if kind, id, err := superblock(hold); err != nil || kind != want.Filesystem || id != want.ID {
		return fmt.Errorf("the file system that was made is %s %s, %v", kind, id, err)
	}
	if err := os.Remove(mark); err != nil {
		return err
	}
	return durable.SyncDir(k.begun)
}

// makers are how each kind is made with a UUID. That a disk is blank was looked at
// better than they can.
var makers = map[string][]string{
	"xfs":   {"-q", "-f", "-m"},
	"ext4":  {"-q", "-F", "-U"},
	"btrfs": {"-q", "-f", "-U"},
}

func option(want *resource.DataDisk) string {
	if want.Filesystem == "xfs" {
		return "uuid=" + want.ID
	}
	return want.ID
}

// blankThroughout looks where the parts of a file system are that was cleared at
// its ends alone.
func blankThroughout(r io.ReaderAt, size int64) bool {
	b := make([]byte, 1<<20)
	for _, at := range []int64{0, 64 << 20, 128 << 20, size / 2, 256 << 30, size - int64(len(b))} {
		n, err := r.ReadAt(b[:max(0, min(int64(len(b)), size-at))], max(0, at))
		if err != nil && err != io.EOF || len(bytes.TrimLeft(b[:n], "\x00")) > 0 {
			return false
		}
	}
	return true
}

// mount mounts the disk where it is declared, on a directory that no link leads to.
func (k *dataDisks) mount(want *resource.DataDisk, d muster.Disk) error {
	if err := os.MkdirAll(want.Path, 0o755); err != nil {
		return err
	}
	dir, name, err := openParent(want.Path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	at, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return wrap("open", want.Path, err)
	}
	defer unix.Close(at)
	if err := unix.Mount(d.Path, fmt.Sprintf("/proc/self/fd/%d", at), want.Filesystem, unix.MS_NOATIME|unix.MS_NODEV|unix.MS_NOSUID, ""); err != nil {
		return fmt.Errorf("mounting %s (%s) at %s: %w", d.Path, d.Describe(), want.Path, err)
	}
	return nil
}

// remove lets a disk go, and what was mounted of one that is gone. What is on it
// stays.
func (k *dataDisks) remove(at string) error {
	is, err := k.read(at)
	if err != nil || is == nil {
		return err
	}
	how := 0
	if is[resource.FieldID] == resource.Gone {
		how = unix.MNT_DETACH
	}
	if err := unix.Unmount(at, how); errors.Is(err, unix.EBUSY) {
		return errors.New("something still uses it; it is tried again")
	} else if err != nil {
		return wrap("unmount", at, err)
	}
	_ = unix.Rmdir(at) // unless something was there before
	return nil
}
