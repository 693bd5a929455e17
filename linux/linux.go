// Package linux is the host's hands on a Linux machine: it reads sysfs and
// superblocks, sets the clock, brings up the network, builds and imports pools,
// does what the first process of an initrd has to do, and makes files, packages,
// services and containers as they are declared.
//
// It decides nothing: what is done, and whether it may be, is package host's to
// say. It must never write to a disk past its file systems outside Wipe, Create
// and what those are given, never follow what a disk's content says, and never
// follow a symbolic link on the way to what is declared.
package linux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/host"
	"muster.internal/layout"
	"muster.internal/setup"
)

// A Machine is this machine. Make it with New; tests give it another root.
type Machine struct {
	Log *slog.Logger
	// Sys and Proc are /sys and /proc; Dev is the path of /dev.
	Sys, Proc fs.FS
	Dev       string
	// Root is where the pool's file systems are mounted: Root/zones/var.
	Root string
	// Run holds what lasts until the next start.
	Run string
	// UUID overrides what the firmware says.
	UUID string
	// Key is this boot's private key.
	Key []byte

	found []muster.Disk // of the last survey, for pools and their members
}

// New is the machine that this program runs on.
func New(log *slog.Logger) *Machine {
	return &Machine{Log: log, Sys: os.DirFS("/sys"), Proc: os.DirFS("/proc"), Dev: "/dev", Root: "/", Run: "/run/muster-host"}
}

var _ host.Hands = (*Machine)(nil)
var _ host.Keeper = (*Machine)(nil)

// pooler builds and opens pools of one kind. It works on the pool named
// muster.PoolName alone.
type pooler interface {
	// found lists such pools among the disks' contents, with their stamps.
	found(disks []muster.Disk) ([]host.Pool, error)
	dryRun(p muster.SetupPlan) error
	destroy(p host.Pool) error
	create(p muster.SetupPlan) error
	stamp(p muster.SetupPlan) error
	open(p host.Pool) error
	close(guid string) error
	// root makes the file system of this name for a root, if it is not there,
	// and returns where it is mounted.
	root(name string) (dir string, err error)
}

func (m *Machine) pooler(k muster.PoolKind) (pooler, error) {
	switch k {
	case muster.ZFS:
		return newZFS(m)
	case muster.Btrfs:
		return &btrfs{m}, nil
	}
	return nil, fmt.Errorf("this host knows no pools of kind %q", k)
}

// ServerUUID is the UUID that the firmware gives, in the kernel's byte order.
func (m *Machine) ServerUUID() string { return m.UUID }

// PrivateKey is this boot's.
func (m *Machine) PrivateKey() []byte { return m.Key }

// Now reads the clock.
func (m *Machine) Now() time.Time { return time.Now() }

// Disks surveys the disks and what is on them.
func (m *Machine) Disks() ([]muster.Disk, error) {
	disks, _, err := m.survey()
	return disks, err
}

// Pools finds pools by the name of ours on the disks.
func (m *Machine) Pools() ([]host.Pool, error) {
	_, pools, err := m.survey()
	return pools, err
}

// survey reads every disk, and looks into pools by the name of ours for their
// stamps, which stand on the disks' contents then.
func (m *Machine) survey() ([]muster.Disk, []host.Pool, error) {
	disks, err := m.look()
	if err != nil {
		return nil, nil, err
	}
	m.found = disks
	pools, err := m.poolsAmong(disks)
	if err != nil {
		return nil, nil, err
	}
	for i := range disks {
		for k, c := range disks[i].Contents {
			for _, p := range pools {
				if c.GUID == p.GUID && c.Name == p.Name {
					disks[i].Contents[k].Stamp = p.Stamp
				}
			}
		}
	}
	return disks, pools, nil
}

// look reads every disk, and what is on it, without opening a pool.
func (m *Machine) look() ([]muster.Disk, error) {
	disks, err := ReadDisks(m.Sys, m.Proc, m.Dev)
	if err != nil {
		return nil, err
	}
	for i := range disks {
		found, err := readContents(disks[i].Path, disks[i].Size)
		if err != nil { // one bad disk must not hide the others
			m.Log.Warn("a disk cannot be read", "disk", disks[i].Path, "which", disks[i].Describe(), "reason", err)
			found = []muster.Content{{Kind: layout.ContentHidden, Name: reason(err)}}
		}
		disks[i].Contents = append(disks[i].Contents, found...)
	}
	return disks, nil
}

// reason is an error without the path, which may differ at the next start.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return err.Error()
}

func (m *Machine) poolsAmong(disks []muster.Disk) ([]host.Pool, error) {
	var all []host.Pool
	for _, k := range []muster.PoolKind{muster.ZFS, muster.Btrfs} {
		if !slices.ContainsFunc(disks, func(d muster.Disk) bool { return hasPool(d, k) }) {
			continue // so that its tools need not be here
		}
		p, err := m.pooler(k)
		if err != nil {
			return nil, fmt.Errorf("a disk holds a %s pool '%s', and it cannot be looked into: %w", k, muster.PoolName, err)
		}
		found, err := p.found(disks)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

var poolKinds = map[muster.PoolKind]string{muster.ZFS: layout.ContentPool, muster.Btrfs: layout.ContentBtrfs}

func hasPool(d muster.Disk, k muster.PoolKind) bool {
	return slices.ContainsFunc(d.Contents, func(c muster.Content) bool { return c.Kind == poolKinds[k] && c.Name == muster.PoolName })
}

// DryRun checks that the pool could be built.
func (m *Machine) DryRun(p muster.SetupPlan) error {
	for _, d := range p.Members() {
		if err := exclusive(d.Path); err != nil {
			return fmt.Errorf("%s (%s) is in use: %w", d.Path, d.Describe(), err)
		}
	}
	k, err := m.pooler(p.Pool)
	if err != nil {
		return err
	}
	return k.dryRun(p)
}

// Destroy gives up a pool whose stamp is this machine's; it looks again, and
// does not take the caller's word for it.
func (m *Machine) Destroy(p host.Pool) error {
	now, err := m.Pools()
	if err != nil {
		return err
	}
	own := func(q host.Pool) bool {
		return q.Kind == p.Kind && q.GUID == p.GUID && muster.SameUUID(q.Stamp, m.UUID)
	}
	if m.UUID == "" || !slices.ContainsFunc(now, own) {
		return fmt.Errorf("pool '%s' (guid %s) does not carry this machine's stamp", p.Name, p.GUID)
	}
	k, err := m.pooler(p.Kind)
	if err != nil {
		return err
	}
	return k.destroy(p)
}

// Wipe clears the planned disks of what the approval says is on them.
func (m *Machine) Wipe(p muster.SetupPlan) error {
	for _, d := range p.Members() {
		if err := wipe(d.Path, d.Size, m.still(d)); err != nil {
			return fmt.Errorf("clearing %s (%s): %w", d.Path, d.Describe(), err)
		}
	}
	return nil
}

// Create builds the pool, marked as this machine's.
func (m *Machine) Create(p muster.SetupPlan) error {
	k, err := m.pooler(p.Pool)
	if err != nil {
		return err
	}
	return k.create(p)
}

// Stamp makes zones/var, stamped, and mounts it.
func (m *Machine) Stamp(p muster.SetupPlan) error {
	k, err := m.pooler(p.Pool)
	if err != nil {
		return err
	}
	return k.stamp(p)
}

// Export closes the pool.
func (m *Machine) Export(p muster.SetupPlan) error {
	k, err := m.pooler(p.Pool)
	if err != nil {
		return err
	}
	return k.close("")
}

// Import opens a pool of this machine's, with zones/var mounted.
func (m *Machine) Import(p host.Pool) error {
	k, err := m.pooler(p.Kind)
	if err != nil {
		return err
	}
	return k.open(p)
}

// Release closes it again.
func (m *Machine) Release(p host.Pool) error {
	k, err := m.pooler(p.Kind)
	if err != nil {
		return err
	}
	return k.close(p.GUID)
}

// varDir is where zones/var is mounted.
func (m *Machine) varDir() string { return filepath.Join(m.Root, muster.PoolName, "var") }

func (m *Machine) credentialPath() string {
	return filepath.Join(m.Root, muster.PoolName, setup.CredentialPath)
}

// run runs a tool; its first lines of complaint are the error.
func (m *Machine) run(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{"PATH=" + Path, "LC_ALL=C"}
	var out, bad strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &bad
	err := cmd.Run()
	m.Log.Debug("ran a tool", "tool", name, "args", args, "error", err)
	if err == nil {
		return out.String(), nil
	}
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%s is not in this image", name)
	}
	text := strings.Join(strings.Fields(bad.String()+" "+out.String()), " ")
	if len(text) > 400 {
		text = text[:400]
	}
	return out.String(), fmt.Errorf("%s %s: %s (%v)", name, args[0], text, err)
}
