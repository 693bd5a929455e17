package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"muster.internal"
	"muster.internal/durable"
	"muster.internal/host"
	"muster.internal/layout"
)

// btrfs drives pools that are one btrfs. The name and the stamp are its label,
// "zones:UUID", so that there is no instant at which it has one without the
// other; the stamp is a file in zones/var as well, once that is there.
type btrfs struct{ m *Machine }

const stampFile = "muster-host/server_uuid"

func joinLabel(uuid string) string { return muster.PoolName + ":" + uuid }

// splitLabel takes our labels apart, and leaves others alone.
func splitLabel(label string) (name, stamp string) {
	name, stamp, _ = strings.Cut(label, ":")
	if uuid, err := muster.ParseUUID(stamp); err == nil && name == muster.PoolName {
		return name, uuid
	}
	return label, ""
}

func (b *btrfs) found(disks []muster.Disk) ([]host.Pool, error) {
	var all []host.Pool
	for _, d := range disks {
		for _, c := range d.Contents {
			known := slices.ContainsFunc(all, func(p host.Pool) bool { return p.GUID == c.GUID })
			if c.Kind == layout.ContentBtrfs && c.Name == muster.PoolName && !known {
				all = append(all, host.Pool{Kind: muster.Btrfs, Name: c.Name, GUID: c.GUID, Stamp: c.Stamp, Imported: b.mounted()})
			}
		}
	}
	return all, nil
}

func (b *btrfs) dir() string { return filepath.Join(b.m.Root, muster.PoolName) }

// mounted tells whether a btrfs is mounted where pools are.
func (b *btrfs) mounted() bool {
	text, _ := fs.ReadFile(b.m.Proc, "self/mountinfo")
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		i := slices.Index(f, "-")
		if len(f) > 4 && f[4] == b.dir() && i > 0 && i+1 < len(f) && f[i+1] == "btrfs" {
			return true
		}
	}
	return false
}

// btrfsCompress maps the words of an approval to those of btrfs.
var btrfsCompress = map[string]string{"on": "zstd", "zstd": "zstd", "gzip": "zlib", "off": ""}

func (b *btrfs) dryRun(p muster.SetupPlan) error {
	if _, ok := btrfsCompress[p.Compression]; !ok {
		return fmt.Errorf("btrfs has no compression %s", p.Compression)
	}
	if _, err := btrfsProfile(p); err != nil {
		return err
	}
	if _, err := exec.LookPath("mkfs.btrfs"); err != nil {
		return errors.New("mkfs.btrfs is not in this image")
	}
	known, err := fs.ReadFile(b.m.Proc, "filesystems")
	if err != nil || !strings.Contains(string(known), "\tbtrfs\n") {
		return errors.New("this kernel has no btrfs")
	}
	return nil
}

func btrfsProfile(p muster.SetupPlan) ([]string, error) {
	switch {
	case len(p.Spares)+len(p.Logs)+len(p.Cache) > 0 || len(p.VDevs) != 1:
	case p.VDevs[0].Type == "mirror" && len(p.VDevs[0].Disks) > 1:
		return []string{"-d", "raid1", "-m", "raid1"}, nil
	case p.VDevs[0].Type == "" && len(p.VDevs[0].Disks) == 1:
		return []string{"-d", "single", "-m", "dup"}, nil
	}
	return nil, errors.New("btrfs is built as single or mirror only")
}

func (b *btrfs) create(p muster.SetupPlan) error {
	args, err := btrfsProfile(p)
	if err != nil {
		return err
	}
	args = append([]string{"-q", "-L", joinLabel(p.ServerUUID)}, args...)
	for _, d := range p.Members() {
		args = append(args, d.Path)
	}
	_, err = b.m.run("mkfs.btrfs", args...) // without -f: it refuses what is not blank
	return err
}

// mount mounts a btrfs of which these are the disks. There is no udev that
// would have told the kernel of them.
func (b *btrfs) mount(paths []string) error {
	if len(paths) == 0 {
		return errors.New("none of its disks is here")
	}
	if err := os.MkdirAll(b.dir(), 0o755); err != nil {
		return err
	}
	options := "device=" + strings.Join(paths, ",device=")
	if err := unix.Mount(paths[0], b.dir(), "btrfs", unix.MS_NOATIME, options); err != nil {
		return fmt.Errorf("mounting the btrfs on %s: %w", strings.Join(paths, ", "), err)
	}
	return nil
}

func (b *btrfs) stamp(p muster.SetupPlan) error {
	var paths []string
	for _, d := range p.Members() {
		paths = append(paths, d.Path)
	}
	if err := b.mount(paths); err != nil {
		return err
	}
	if err := subvolume(b.m.varDir()); err != nil {
		return err
	}
	if c := btrfsCompress[p.Compression]; c != "" {
		if err := unix.Setxattr(b.m.varDir(), "btrfs.compression", []byte(c), 0); err != nil {
			return fmt.Errorf("switching compression on: %w", err)
		}
	}
	return durable.Replace(filepath.Join(b.m.varDir(), stampFile), []byte(p.ServerUUID+"\n"), 0o644)
}

func (b *btrfs) root(name string) (string, error) {
	dir := b.m.rootDir(name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	return dir, subvolume(dir)
}

// subvolume makes one in a directory of the mounted file system.
func subvolume(path string) error {
	const create = 0x5000940e // BTRFS_IOC_SUBVOL_CREATE
	dir, name := filepath.Split(path)
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	var args struct {
		fd   int64
		name [4088]byte
	}
	copy(args.name[:], name)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, d.Fd(), create, uintptr(unsafe.Pointer(&args))); e != 0 {
		return fmt.Errorf("making the subvolume %s: %w", name, e)
	}
	return nil
}

// members are the paths of the disks of one file system.
func (b *btrfs) members(guid string) ([]muster.Disk, error) {
	if b.m.found == nil {
		if _, err := b.m.Disks(); err != nil {
			return nil, err
		}
	}
	var all []muster.Disk
	for _, d := range b.m.found {
		if slices.ContainsFunc(d.Contents, func(c muster.Content) bool { return c.Kind == layout.ContentBtrfs && c.GUID == guid }) {
			all = append(all, d)
		}
	}
	return all, nil
}

func (b *btrfs) open(p host.Pool) error {
	ds, err := b.members(p.GUID)
	if err != nil {
		return err
	}
	if !b.mounted() {
		var paths []string
		for _, d := range ds {
			paths = append(paths, d.Path)
		}
		if err := b.mount(paths); err != nil {
			return err
		}
	}
	stamp, err := os.ReadFile(filepath.Join(b.m.varDir(), stampFile))
	if err == nil && !muster.SameUUID(strings.TrimSpace(string(stamp)), b.m.UUID) {
		err = fmt.Errorf("it carries the stamp %.40q", stamp)
	}
	if err != nil {
		b.close("")
		return fmt.Errorf("the pool's stamp: %w", err)
	}
	return nil
}

func (b *btrfs) close(string) error {
	if !b.mounted() {
		return nil
	}
	if err := unix.Unmount(b.dir(), 0); err != nil {
		return fmt.Errorf("unmounting %s: %w", b.dir(), err)
	}
	unix.Sync()
	return nil
}

// destroy clears every disk of the file system, planned again or not: one that
// stayed would still look like a pool of this machine.
func (b *btrfs) destroy(p host.Pool) error {
	if err := b.close(""); err != nil {
		return err
	}
	ds, err := b.members(p.GUID)
	if err != nil {
		return err
	}
	for _, d := range ds {
		if err := wipe(d.Path, d.Size, b.m.still(d)); err != nil {
			return fmt.Errorf("clearing %s (%s): %w", d.Path, d.Describe(), err)
		}
	}
	return nil
}
