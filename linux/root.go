package linux

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"muster.internal"
	"muster.internal/durable"
	"muster.internal/host"
)

// A node's root file systems are on its pool, one for each image that it has
// booted, and named after the hash of what they were unpacked from. None is ever
// removed: it may hold what nobody declared.
const (
	rootsName = "roots"
	// rootMark is in a root that is whole, and holds that hash.
	rootMark = "etc/muster-root"
	// rootPart is what is being fetched, in zones/var.
	rootPart = "root.part"
	// fetchTime is how long fetching it may take.
	fetchTime = 30 * time.Minute
	// sysroot is where the root is mounted until its init is started.
	sysroot = "/sysroot"
)

func (m *Machine) rootDir(name string) string {
	return filepath.Join(m.Root, muster.PoolName, rootsName, name)
}

// OpenRoot finds the root file system with this hash on the pool, or fetches
// and unpacks it there, and returns where it is. A power cut at any point costs
// no more than the work done so far.
func (m *Machine) OpenRoot(ctx context.Context, p host.Pool, url, sum string, say func(string)) (string, error) {
	k, err := m.pooler(p.Kind)
	if err != nil {
		return "", err
	}
	dir, err := k.root(sum)
	if err != nil {
		return "", fmt.Errorf("making a file system for it on the pool: %w", err)
	}
	mark := filepath.Join(dir, rootMark)
	if b, err := os.ReadFile(mark); err == nil && strings.TrimSpace(string(b)) == sum {
		return dir, nil
	}
	part := filepath.Join(m.varDir(), rootPart)
	if got, err := fileSum(part); err != nil || got != sum {
		say("fetching its root file system, " + sum[:12])
		if err := fetch(ctx, url, sum, part); err != nil {
			return "", err
		}
	}
	say("unpacking its root file system")
	if err := clearDir(dir); err != nil { // of what was cut short
		return "", err
	}
	if err := unpack(part, dir); err != nil {
		return "", fmt.Errorf("unpacking it on the pool: %w", err)
	}
	unix.Sync()
	if err := durable.Replace(mark, []byte(sum+"\n"), 0o644); err != nil {
		return "", err
	}
	return dir, os.Remove(part)
}

// fetch brings what has this hash into a file, or leaves none.
func fetch(ctx context.Context, url, sum, file string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("fetching it: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return fmt.Errorf("fetching it: the boot server says %s: %s", resp.Status, strings.TrimSpace(string(why)))
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(file)
		}
	}()
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, h), resp.Body); err != nil {
		return fmt.Errorf("fetching it: %w", err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != sum {
		return fmt.Errorf("what came is not what the image names: its SHA-256 is %s, and %s was expected", got, sum)
	}
	return f.Sync()
}

func fileSum(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

func clearDir(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// kept is what outlives a root: directories of zones/var, and where they are
// seen in every root of this machine.
var kept = []struct {
	name, at string
	mode     os.FileMode
}{
	{"muster-host", "var/lib/muster-host", 0o700},
	{"journal", "var/log/journal", 0o755},
	{"ssh", "etc/ssh/keys", 0o700},
	{"home", "home", 0o755},
	{"srv", "srv", 0o755},
}

// EnterRoot mounts a root where SwitchRoot finds it, with what outlives it and
// with what this boot was told. Root's password is what the boot server gives
// to this boot; empty leaves the one that is there.
func (m *Machine) EnterRoot(dir string, args host.Args, password string, say func(string)) error {
	if err := os.MkdirAll(sysroot, 0o755); err != nil {
		return err
	}
	for unix.Unmount(sysroot, unix.MNT_DETACH) == nil { // of an attempt that failed
	}
	if err := unix.Mount(dir, sysroot, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting it: %w", err)
	}
	for _, k := range kept {
		from, to := filepath.Join(m.varDir(), k.name), filepath.Join(sysroot, k.at)
		if err := m.bind(from, to, k.mode); err != nil {
			say(fmt.Sprintf("/%s will not outlive this root: %v", k.at, err))
		}
	}
	return m.furnish(sysroot, args, password)
}

func (m *Machine) bind(from, to string, mode os.FileMode) error {
	if err := os.Mkdir(from, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.MkdirAll(to, mode); err != nil {
		return err
	}
	if st, err := os.Lstat(to); err != nil || !st.IsDir() {
		return fmt.Errorf("it is no directory: %v", err)
	}
	return unix.Mount(from, to, "", unix.MS_BIND, "")
}

// furnish writes into a root what it must know of the machine and of this boot.
func (m *Machine) furnish(root string, args host.Args, password string) error {
	id, err := m.machineID()
	if err != nil {
		return err
	}
	if err := ensure(filepath.Join(root, "etc/machine-id"), id+"\n", 0o444); err != nil {
		return err
	}
	if hostID, err := os.ReadFile("/etc/hostid"); err == nil {
		if err := ensure(filepath.Join(root, "etc/hostid"), string(hostID), 0o644); err != nil {
			return err
		}
	}
	if password != "" {
		if err := SetRootPassword(filepath.Join(root, "etc"), password); err != nil {
			return err
		}
	}
	resolv := filepath.Join(root, "etc/resolv.conf")
	if old, err := os.ReadFile(resolv); len(args.Resolvers) > 0 && (errors.Is(err, fs.ErrNotExist) || strings.HasPrefix(string(old), ours)) {
		if err := ensure(resolv, resolvConf(args.Resolvers), 0o644); err != nil {
			return err
		}
	}
	return ensure(filepath.Join(filepath.Dir(m.Run), "systemd/network/10-boot.network"), networkFile(args), 0o644)
}

// ensure writes a file unless it is so already.
func ensure(name, text string, mode os.FileMode) error {
	if old, err := os.ReadFile(name); err == nil && string(old) == text {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return durable.Replace(name, []byte(text), mode)
}

// machineID is this machine's as systemd wants it (machine-id(5)): drawn once,
// and the same in all of its roots.
func (m *Machine) machineID() (string, error) {
	file := filepath.Join(m.varDir(), "machine-id")
	old, err := os.ReadFile(file)
	if id := strings.TrimSpace(string(old)); err == nil && len(id) == 32 && strings.Trim(id, "0123456789abcdef") == "" {
		return id, nil
	}
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return "", err
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // a UUID of version 4
	id := hex.EncodeToString(b)
	return id, durable.Replace(file, []byte(id+"\n"), 0o444)
}

// ours is the first line of what is written at every start.
const ours = "# Written by muster-host at every start, from what the boot server says.\n"

func resolvConf(servers []netip.Addr) string {
	text := ours
	for _, s := range servers {
		text += "nameserver " + s.String() + "\n"
	}
	return text
}

// networkFile tells systemd-networkd what the network card has already
// (systemd.network(5)), so that it keeps it; and renews it, when it is a lease,
// under the identifier that the boot firmware used.
func networkFile(args host.Args) string {
	text := ours + "# Files in /etc/systemd/network go before it.\n[Match]\nMACAddress=" + args.MAC + "\nType=ether\n\n[Network]\n"
	if args.Leased {
		return text + "DHCP=ipv4\nKeepConfiguration=dhcp\n\n[DHCPv4]\nClientIdentifier=mac\n"
	}
	text += "Address=" + args.Address.String() + "\nKeepConfiguration=static\n"
	if args.Gateway.IsValid() {
		text += "Gateway=" + args.Gateway.String() + "\n"
	}
	for _, s := range args.Resolvers {
		text += "DNS=" + s.String() + "\n"
	}
	return text
}

// SwitchRoot makes the root that EnterRoot has mounted the machine's, and its
// init the first process: this one. It returns only when it cannot, and then
// nothing but a restart helps.
func SwitchRoot() error {
	moved, err := poolMounts("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, at := range append(moved, "/dev", "/proc", "/sys", "/run") {
		to := sysroot + at
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(at, to, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("moving %s into the root: %w", at, err)
		}
	}
	unix.Unmount("/tmp", unix.MNT_DETACH)
	if err := freeInitrd(); err != nil {
		return err
	}
	if err := os.Chdir(sysroot); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("moving the root to its place: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return fmt.Errorf("starting the root's /sbin/init: %w", unix.Exec("/sbin/init", []string{"/sbin/init"}, []string{"PATH=" + Path, "TERM=linux"}))
}

// poolMounts lists where file systems of the pool are mounted, without those
// that others bring along.
func poolMounts(mountinfo string) ([]string, error) {
	text, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil, err
	}
	var all []string
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 5 || f[4] != "/"+muster.PoolName && !strings.HasPrefix(f[4], "/"+muster.PoolName+"/") {
			continue
		}
		if !slices.ContainsFunc(all, func(have string) bool { return strings.HasPrefix(f[4]+"/", have+"/") }) {
			all = append(all, f[4])
		}
	}
	return all, nil
}

// freeInitrd gives back the memory of the initrd: everything on its file
// system, and nothing on those that are mounted there.
func freeInitrd() error {
	var st unix.Statfs_t
	if err := unix.Statfs("/", &st); err != nil {
		return err
	}
	if st.Type != unix.RAMFS_MAGIC && st.Type != unix.TMPFS_MAGIC {
		return errors.New("the root file system is no initrd")
	}
	var here unix.Stat_t
	if err := unix.Lstat("/", &here); err != nil {
		return err
	}
	freeBelow("/", here.Dev)
	return nil
}

func freeBelow(dir string, dev uint64) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil || st.Dev != dev {
			continue
		}
		if e.IsDir() {
			freeBelow(path, dev)
		}
		os.Remove(path) // a directory in which something is mounted stays
	}
}
