package linux

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"muster.internal"
	"muster.internal/host"
	"muster.internal/layout"
)

// unfinishedMark is on a pool from the moment of its creation, before it has
// the stamp: a setup that was cut short is told from a stranger's pool by it.
const unfinishedMark = "org.muster:server_uuid"

// zfs drives pools with zpool and zfs, whichever implementation they belong to:
// OpenZFS, or zfs-fuse, which knows fewer options.
type zfs struct {
	m    *Machine
	fuse bool
}

func newZFS(m *Machine) (*zfs, error) {
	if _, err := os.Stat("/sys/module/zfs"); err == nil {
		return &zfs{m, false}, nil
	}
	z := &zfs{m, true}
	return z, z.startFuse()
}

// startFuse starts the file system daemon, unless it runs. It outlives this
// program: pools are its.
func (z *zfs) startFuse() error {
	if _, err := z.m.run("zpool", "list"); err == nil {
		return nil
	}
	daemon, err := exec.LookPath("zfs-fuse")
	if err != nil {
		return errors.New("this image has neither a kernel with ZFS nor zfs-fuse")
	}
	for _, d := range []string{"/var/run/zfs", "/var/run/lock/zfs", "/var/lock/zfs"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("starting zfs-fuse: %w", err)
		}
	}
	cmd := exec.Command(daemon, "--no-daemon")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting zfs-fuse: %w", err)
	}
	go cmd.Wait() // when it ends before us, it must not stay a zombie
	for range 100 {
		if _, err = z.m.run("zpool", "list"); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("zfs-fuse does not answer: %w", err)
}

// links makes a directory with nothing in it but the disks, so that zpool
// opens nothing else.
func (z *zfs) links() (string, error) {
	dir := filepath.Join(z.m.Run, "disks")
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	for _, d := range z.m.found {
		if !slices.ContainsFunc(d.Contents, func(c muster.Content) bool { return c.Kind == layout.ContentPool }) {
			continue
		}
		names, _ := filepath.Glob(d.Path + "*") // the disk and its partitions
		for _, n := range names {
			if err := os.Symlink(n, filepath.Join(dir, filepath.Base(n))); err != nil && !errors.Is(err, os.ErrExist) {
				return "", err
			}
		}
	}
	return dir, nil
}

func (z *zfs) imported() (guid string, err error) {
	out, err := z.m.run("zpool", "list", "-H", "-o", "name,guid")
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == muster.PoolName {
			return f[1], nil
		}
	}
	return "", err
}

// bring imports a pool by its guid. look keeps it as it is, where the
// implementation can: not mounted, and read-only.
func (z *zfs) bring(guid string, look bool) error {
	dir, err := z.links()
	if err != nil {
		return err
	}
	args := []string{"import", "-d", dir, "-o", "cachefile=none"}
	if look {
		args = append(args, "-R", filepath.Join(z.m.Run, "look"))
	}
	if !z.fuse {
		args = append(args, "-N")
		if look {
			args = append(args, "-o", "readonly=on")
		}
	}
	_, err = z.m.run("zpool", append(args, guid)...)
	return err
}

// stampOf reads the stamp of the imported pool: the property on zones/var, set
// there and not inherited, or the mark of one that was never finished.
func (z *zfs) stampOf() string {
	for _, at := range [][2]string{{muster.StampProperty, muster.PoolName + "/var"}, {unfinishedMark, muster.PoolName}} {
		out, err := z.m.run("zfs", "get", "-H", "-o", "value,source", at[0], at[1])
		f := strings.Fields(out)
		if err != nil || len(f) != 2 || f[1] != "local" {
			continue
		}
		if uuid, err := muster.ParseUUID(f[0]); err == nil {
			return uuid
		}
	}
	return ""
}

func (z *zfs) found(disks []muster.Disk) ([]host.Pool, error) {
	now, err := z.imported()
	if err != nil {
		return nil, err
	}
	var all []host.Pool
	for _, guid := range guids(disks, layout.ContentPool) {
		p := host.Pool{Kind: muster.ZFS, Name: muster.PoolName, GUID: guid, Imported: guid == now}
		if p.Imported {
			p.Stamp = z.stampOf()
		} else if err := z.bring(guid, true); err != nil {
			z.m.Log.Warn("a pool cannot be looked into: it counts as foreign", "pool", p.Name, "guid", guid, "reason", err)
		} else {
			p.Stamp = z.stampOf()
			if _, err := z.m.run("zpool", "export", muster.PoolName); err != nil {
				return nil, err
			}
		}
		all = append(all, p)
	}
	return all, nil
}

// guids lists, each once, the pools by the name of ours.
func guids(disks []muster.Disk, kind string) []string {
	var all []string
	for _, d := range disks {
		for _, c := range d.Contents {
			if c.Kind == kind && c.Name == muster.PoolName && !slices.Contains(all, c.GUID) {
				all = append(all, c.GUID)
			}
		}
	}
	return all
}

// fuseCompressions are what zfs-fuse (pool version 23) knows.
var fuseCompressions = []string{"on", "off", "lzjb", "gzip", "zle"}

func (z *zfs) dryRun(p muster.SetupPlan) error {
	if z.fuse && !slices.Contains(fuseCompressions, p.Compression) {
		return fmt.Errorf("the ZFS of this image (zfs-fuse) has no compression %s; it has %s", p.Compression, strings.Join(fuseCompressions, ", "))
	}
	// With -n nothing is written, and -f lets it look past what Wipe will have
	// cleared by then: that this is what was approved has been compared.
	_, err := z.m.run("zpool", append([]string{"create", "-n", "-f"}, createArgs(p)...)...)
	return err
}

// createArgs are the arguments of zpool create, without its switches.
func createArgs(p muster.SetupPlan) []string {
	args := []string{"-o", "cachefile=none", "-m", "none", "-O", "atime=off", "-O", "compression=" + p.Compression,
		"-O", unfinishedMark + "=" + p.ServerUUID, muster.PoolName}
	add := func(word string, ds []muster.Disk) {
		if word != "" && len(ds) > 0 {
			args = append(args, word)
		}
		for _, d := range ds {
			args = append(args, d.Path)
		}
	}
	for _, v := range p.VDevs {
		add(v.Type, v.Disks)
	}
	add("spare", p.Spares)
	add("log", p.Logs)
	add("cache", p.Cache)
	return args
}

func (z *zfs) create(p muster.SetupPlan) error {
	args := []string{"create"}
	for _, d := range p.Members() {
		left, err := readContents(d.Path, d.Size)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("%s (%s) still contains %s", d.Path, d.Describe(), layout.Contains(left[0]))
		}
	}
	if unequal(p) { // zpool wants to be told that this is meant
		args = append(args, "-f")
	}
	_, err := z.m.run("zpool", append(args, createArgs(p)...)...)
	return err
}

func unequal(p muster.SetupPlan) bool {
	for _, v := range p.VDevs {
		for _, d := range v.Disks {
			if d.Size != v.Disks[0].Size {
				return true
			}
		}
	}
	return false
}

func (z *zfs) stamp(p muster.SetupPlan) error {
	if err := os.MkdirAll(z.m.varDir(), 0o755); err != nil {
		return err
	}
	_, err := z.m.run("zfs", "create", "-o", "mountpoint="+z.m.varDir(), "-o", "canmount=noauto",
		"-o", muster.StampProperty+"="+p.ServerUUID, muster.PoolName+"/var")
	if err != nil {
		return err
	}
	_, err = z.m.run("zfs", "mount", muster.PoolName+"/var")
	return err
}

// own imports the pool, unless it is, and looks at its stamp again.
func (z *zfs) own(p host.Pool, look bool) error {
	now, err := z.imported()
	if err != nil {
		return err
	}
	if now == "" {
		if z.m.found == nil {
			if _, err := z.m.Disks(); err != nil {
				return err
			}
		}
		if err := z.bring(p.GUID, look); err != nil {
			return err
		}
		now = p.GUID
	}
	if s := z.stampOf(); now != p.GUID || !muster.SameUUID(s, z.m.UUID) || s == "" {
		z.m.run("zpool", "export", muster.PoolName)
		return fmt.Errorf("pool '%s' (guid %s) carries the stamp %q", muster.PoolName, now, s)
	}
	return nil
}

func (z *zfs) destroy(p host.Pool) error {
	if err := z.own(p, false); err != nil {
		return err
	}
	_, err := z.m.run("zpool", "destroy", muster.PoolName)
	return err
}

func (z *zfs) open(p host.Pool) error {
	if err := z.own(p, false); err != nil {
		return err
	}
	return z.mount(muster.PoolName+"/var", z.m.varDir())
}

func (z *zfs) close(string) error {
	now, err := z.imported()
	if err != nil || now == "" {
		return err
	}
	if out, _ := z.m.run("zfs", "get", "-H", "-o", "value", "mounted", muster.PoolName+"/var"); strings.TrimSpace(out) == "yes" {
		if _, err := z.m.run("zfs", "unmount", muster.PoolName+"/var"); err != nil {
			return err
		}
	}
	_, err = z.m.run("zpool", "export", muster.PoolName)
	syscall.Sync()
	return err
}

func (z *zfs) root(name string) (string, error) {
	dir, fs := z.m.rootDir(name), muster.PoolName+"/"+rootsName+"/"+name
	if _, err := z.m.run("zfs", "list", "-H", "-o", "name", fs); err != nil {
		options := []string{"create", "-p", "-o", "canmount=noauto", "-o", "mountpoint=" + dir}
		if !z.fuse { // the journal gives its readers access by lists
			options = append(options, "-o", "acltype=posixacl", "-o", "xattr=sa")
		}
		if _, err := z.m.run("zfs", append(options, fs)...); err != nil {
			return "", err
		}
	}
	return dir, z.mount(fs, dir)
}

// mount mounts a file system where its property says that it belongs.
func (z *zfs) mount(fs, dir string) error {
	out, err := z.m.run("zfs", "get", "-H", "-o", "value", "mounted", fs)
	if err != nil || strings.TrimSpace(out) == "yes" {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	_, err = z.m.run("zfs", "mount", fs)
	return err
}
