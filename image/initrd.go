package image

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// flavours are the kernels that a distribution offers, and the drivers that an
// image with it carries. What a kernel has built in or lacks is passed over.
var flavours = map[string]struct {
	meta    string // metapackage without the architecture
	drivers []string
}{
	"cloud": {"linux-image-cloud-", strings.Fields(virtualDrivers)},
	"generic": {"linux-image-", append(strings.Fields(virtualDrivers), strings.Fields(
		`sd_mod sr_mod ahci ata_piix megaraid_sas mpt3sas hpsa smartpqi aacraid
		e1000 e1000e igb igc ixgbe i40e ice bnxt_en bnx2x tg3 mlx4_en mlx5_core r8169 sfc qede atlantic
		hv_netvsc hv_storvsc xen_netfront xen_blkfront
		xhci_pci ehci_pci uhci_hcd usbhid hid_generic usb_storage`)...)},
}

const virtualDrivers = `virtio_pci virtio_net virtio_blk virtio_scsi virtio_rng virtio_console sd_mod ahci nvme
	vmxnet3 vmw_pvscsi`

// fileSystems are what setup and a node's own disks need, whatever the hardware.
var fileSystems = strings.Fields("fuse btrfs overlay ext4 vfat nls_ascii nls_cp437")

var zfsPackages = map[string][]string{
	"fuse":    {"zfs-fuse", "libgcc-s1"},
	"openzfs": {"zfsutils-linux", "udev", "libgcc-s1"},
	"none":    {},
}

// programs are the tools that an image carries, as its packages hold them.
var programs = map[string][]string{
	"":        {"bin/btrfs", "sbin/mkfs.btrfs"},
	"fuse":    {"sbin/zpool", "sbin/zfs", "sbin/zfs-fuse", "sbin/zdb"},
	"openzfs": {"sbin/zpool", "sbin/zfs", "sbin/zdb", "bin/udevadm"},
	"none":    {},
}

// openZFSModules are what a kernel needs for OpenZFS 2.1, in load order.
var openZFSModules = strings.Fields("spl znvpair zcommon icp zavl zunicode zzstd zlua zfs")

// applets of busybox that get a name of their own; a shell on the console of a
// machine in trouble is worth its few links.
var applets = strings.Fields(`sh ash awk basename blkid cat chmod chown clear cmp cp cut date dd df dirname dmesg
	du echo env expr false find free fuser grep gunzip gzip halt head hexdump hostname id ifconfig insmod ip kill
	killall less ln losetup ls lsmod lspci md5sum mkdir mkfifo mknod mktemp modinfo modprobe more mount mv nc
	netstat nslookup ping pivot_root poweroff printf ps pwd readlink reboot reset rm rmdir rmmod route sed seq
	sha256sum sleep sort stat strings stty switch_root sync tail tar tee telnet test time top touch tr traceroute
	true tty udhcpc umount uname uniq uptime vi wc wget which xargs zcat`)

// initrd assembles what a machine boots into: muster-host as init, a shell,
// the pool tools with their libraries, and the kernel modules in load order.
func initrd(o Options, root, version, host string, say func(string, ...any)) (tree, error) {
	t := tree{}
	t.dir("bin", "sbin", "dev", "etc", "proc", "sys", "run", "tmp", "mnt", "root", "usr", "var/lib/muster-host",
		"var/lock/zfs", "var/run/zfs", "var/log")
	t.link("usr/bin", "../bin")
	t.link("usr/sbin", "../sbin")
	t.link("usr/lib", "../lib")
	t.charDev("dev/console", 0o600, 5, 1)
	t.charDev("dev/null", 0o666, 1, 3)
	t.text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
	t.text("etc/group", "root:x:0:\ndisk:x:6:\n")
	t.text("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n")
	t.text("etc/os-release", fmt.Sprintf("NAME=muster\nID=muster\nPRETTY_NAME=\"muster platform image\"\nIMAGE_ID=%s\nVERSION_ID=%s\n", o.Name, version))
	t.link("etc/mtab", "../proc/mounts")
	t.copy("bin/muster-host", host, 0o755)
	t.link("init", "bin/muster-host")
	t.copy("bin/busybox", filepath.Join(root, "bin/busybox"), 0o755)
	for _, a := range applets {
		t.link("bin/"+a, "busybox")
	}
	for _, set := range []string{"", o.ZFS} {
		for _, p := range programs[set] {
			from, err := oneOf(root, p, "usr/"+p)
			if err != nil {
				return nil, err
			}
			if err := t.addProgram(root, from, p, o.arch); err != nil {
				return nil, err
			}
		}
	}
	if o.ZFS != "none" { // pthread_cancel loads it by name
		if err := t.addLibrary(root, "libgcc_s.so.1", o.arch); err != nil {
			return nil, err
		}
	}
	if o.ZFS == "openzfs" {
		if err := t.addUdev(root, o.arch); err != nil {
			return nil, err
		}
	}
	return t, t.addModules(o, root, version, say)
}

func oneOf(root string, names ...string) (string, error) {
	for _, n := range names {
		if _, err := os.Stat(filepath.Join(root, n)); err == nil {
			return n, nil
		}
	}
	return "", fmt.Errorf("none of the packages has %s", names[0])
}

func (t tree) addModules(o Options, root, version string, say func(string, ...any)) error {
	dir := "lib/modules/" + version
	m, err := readModules(filepath.Join(root, dir))
	if err != nil {
		return err
	}
	files, absent, err := m.order(append(append([]string{}, flavours[o.Kernel].drivers...), fileSystems...))
	if err != nil {
		return err
	}
	if len(absent) > 0 {
		say("drivers that this kernel comes without: %s", strings.Join(absent, ", "))
	}
	var list strings.Builder
	for _, f := range files {
		rel, err := filepath.Rel(root, f)
		if err != nil {
			return err
		}
		t.copy(rel, f, 0o644)
		fmt.Fprintln(&list, "/"+rel)
	}
	if o.ZFS == "openzfs" {
		for _, n := range openZFSModules {
			from := filepath.Join(o.ZFSModules, n+".ko")
			if info, err := readModinfo(from); err != nil {
				return err
			} else if v := strings.Join(info["vermagic"], ""); !strings.HasPrefix(v, version+" ") {
				return fmt.Errorf("%s is for kernel %q, the image's is %s", from, v, version)
			}
			rel := dir + "/extra/" + n + ".ko"
			t.copy(rel, from, 0o644)
			fmt.Fprintln(&list, "/"+rel)
		}
	}
	t.text(strings.TrimPrefix(ModulesFile, "/"), list.String())
	say("%d kernel modules of %s", strings.Count(list.String(), "\n"), version)
	return nil
}

// addUdev adds what OpenZFS waits for after it has labelled a disk.
func (t tree) addUdev(root, arch string) error {
	t.link("lib/systemd/systemd-udevd", "../../bin/udevadm")
	for _, r := range []string{"50-udev-default.rules", "60-block.rules", "60-persistent-storage.rules", "64-btrfs.rules", "80-drivers.rules"} {
		from, err := oneOf(root, "lib/udev/rules.d/"+r, "usr/lib/udev/rules.d/"+r)
		if err != nil {
			return err
		}
		t.copy("lib/udev/rules.d/"+r, filepath.Join(root, from), 0o644)
	}
	return nil
}

// findHost finds or makes the muster-host that an image boots.
func findHost(ctx context.Context, o Options, say func(string, ...any)) (string, error) {
	// With several architectures the named one can be for one of them only.
	if o.Host != "" && (len(o.Arches) < 2 || checkStatic(o.Host, o.arch) == nil) {
		return o.Host, nil
	}
	self, err := os.Executable()
	if err == nil {
		for _, name := range []string{"muster-host", "muster-host-" + o.arch} {
			beside := filepath.Join(filepath.Dir(self), name)
			if checkStatic(beside, o.arch) == nil {
				return beside, nil
			}
		}
	}
	top, ok := sourceTree()
	if !ok {
		return "", fmt.Errorf("no static muster-host for %s beside %s, and this is not muster's source tree: name one", o.arch, self)
	}
	out := filepath.Join(o.Cache, "muster-host-"+o.arch)
	say("building muster-host for %s", o.arch)
	c := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, "./cmd/muster-host")
	c.Dir = top
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+o.arch)
	if msg, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building muster-host: %w: %s", err, firstComplaint(string(msg)))
	}
	return out, nil
}

// sourceTree finds the root of muster's source above the working directory.
func sourceTree() (string, bool) {
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module muster.internal\n") {
			return dir, true
		}
	}
	return "", false
}
