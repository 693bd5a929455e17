package linux

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"muster.internal"
	"muster.internal/layout"
)

// ReadDisks lists the disks that the kernel knows, without opening one. There
// need be no udev. What uses a disk is among its contents.
func ReadDisks(sys, proc fs.FS, dev string) ([]muster.Disk, error) {
	entries, err := fs.ReadDir(sys, "block")
	if err != nil {
		return nil, fmt.Errorf("listing disks: %w", err)
	}
	used := uses(proc)
	disks := []muster.Disk{}
	for _, e := range entries {
		d, ok := readDisk(sys, e.Name(), used)
		if ok {
			d.Path = path.Join(dev, strings.ReplaceAll(e.Name(), "!", "/"))
			disks = append(disks, d)
		}
	}
	slices.SortFunc(disks, func(a, b muster.Disk) int { return comparePaths(a.Path, b.Path) })
	return disks, nil
}

// Evident are disks with what tells that they are this machine's: nothing does of
// one that is only seen from here, in a container, or without a device node. Two
// containers on one host would be one machine by their disks.
func (m *Machine) Evident(disks []muster.Disk) []muster.Disk {
	inside := m.contained()
	for i := range disks {
		st, err := os.Stat(disks[i].Path)
		if inside || err != nil || st.Mode()&(os.ModeDevice|os.ModeCharDevice) != os.ModeDevice {
			disks[i].Serial, disks[i].WWN = "", ""
		}
	}
	return disks
}

// contained tells whether this is a container, by the marks that Docker, Podman,
// systemd and LXC leave.
func (m *Machine) contained() bool {
	for _, mark := range []string{".dockerenv", "run/.containerenv", "run/systemd/container"} {
		if _, err := os.Lstat(filepath.Join(m.Root, mark)); err == nil {
			return true
		}
	}
	first, _ := fs.ReadFile(m.Proc, "1/environ")
	return bytes.HasPrefix(first, []byte("container=")) || bytes.Contains(first, []byte("\x00container="))
}

func comparePaths(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// readDisk reads one block device; loops, RAM disks, mappings and optical
// drives are none.
func readDisk(sys fs.FS, name string, used map[string]muster.Content) (muster.Disk, bool) {
	dir := path.Join("block", name)
	if _, err := fs.Stat(sys, path.Join(dir, "device")); err != nil {
		return muster.Disk{}, false
	}
	read := func(rel string) string { return attribute(sys, path.Join(dir, rel)) }
	sectors, err := strconv.ParseInt(read("size"), 10, 64)
	if err != nil || sectors <= 0 || sectors > 1<<53 || read("hidden") == "1" || !oneOf(read("device/type"), "", "0", "14", "20") {
		return muster.Disk{}, false
	}
	d := muster.Disk{
		Vendor: read("device/vendor"), Model: read("device/model"), Size: sectors * 512,
		SSD: read("queue/rotational") == "0", Removable: read("removable") == "1",
	}
	switch {
	case strings.HasPrefix(name, "nvme"):
		d.Transport, d.Vendor = "NVMe", ""
		d.Serial, d.WWN = read("device/serial"), worldWide(first(read("wwid"), read("nguid"), read("eui")))
	case strings.HasPrefix(name, "vd"):
		d.Transport, d.Vendor, d.Serial = "virtio", "", read("serial")
	case strings.HasPrefix(name, "mmcblk"):
		d.Transport, d.Model, d.Serial = "MMC", read("device/name"), strings.TrimPrefix(read("device/serial"), "0x")
	default:
		d.Transport = "SCSI"
		if d.Vendor == "ATA" {
			d.Transport = "ATA"
		}
		d.Serial, d.WWN = page80(sys, path.Join(dir, "device/vpd_pg80")), worldWide(read("device/wwid"))
	}
	d.Contents = usesOf(sys, dir, used)
	if read("ro") == "1" {
		d.Contents = append(d.Contents, muster.Content{Kind: layout.ContentInUse, Name: "write protection"})
	}
	return d, true
}

func oneOf(s string, all ...string) bool { return slices.Contains(all, s) }

func first(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}

// attribute reads a sysfs attribute as text: one line of printable characters.
func attribute(sys fs.FS, name string) string {
	b, err := fs.ReadFile(sys, name)
	if err != nil {
		return ""
	}
	return printable(b)
}

func printable(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	s := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, string(b[:min(len(b), 256)]))
	return strings.Join(strings.Fields(s), " ")
}

// worldWide accepts names that are unique by construction; what a driver made
// up from a serial number ("t10.", "nvme.") is no better than that.
func worldWide(s string) string {
	s = strings.ToLower(s)
	for _, p := range []string{"naa.", "eui.", "uuid."} {
		if strings.HasPrefix(s, p) {
			return s
		}
	}
	plain := strings.NewReplacer("-", "", " ", "").Replace(s)
	if len(plain) >= 16 && strings.Trim(plain, "0123456789abcdef") == "" {
		return plain
	}
	return ""
}

// page80 reads a SCSI unit's serial number (SPC, 7.7.11).
func page80(sys fs.FS, name string) string {
	b, err := fs.ReadFile(sys, name)
	if err != nil || len(b) < 4 || b[1] != 0x80 {
		return ""
	}
	n := int(b[2])<<8 | int(b[3])
	return printable(b[4:min(4+n, len(b))])
}

// uses maps device numbers ("8:1") to what uses them.
func uses(proc fs.FS) map[string]muster.Content {
	all := map[string]muster.Content{}
	b, _ := fs.ReadFile(proc, "self/mountinfo")
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) > 4 {
			if _, known := all[f[2]]; !known {
				all[f[2]] = muster.Content{Kind: layout.ContentMounted, Name: f[4]}
			}
			// btrfs has device numbers of its own; its source tells the disk.
			if i := slices.Index(f, "-"); i > 0 && i+2 < len(f) && strings.HasPrefix(f[i+2], "/dev/") {
				if name := path.Base(f[i+2]); all[name].Kind == "" {
					all[name] = muster.Content{Kind: layout.ContentMounted, Name: f[4]}
				}
			}
		}
	}
	b, _ = fs.ReadFile(proc, "swaps")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[1] == "partition" {
			all[path.Base(f[0])] = muster.Content{Kind: layout.ContentInUse, Name: "swap"}
		}
	}
	return all
}

// usesOf looks at a disk and its partitions: mounted, swapped to, or held by
// another block device.
func usesOf(sys fs.FS, dir string, used map[string]muster.Content) []muster.Content {
	parts := []string{dir}
	entries, _ := fs.ReadDir(sys, dir)
	for _, e := range entries {
		if _, err := fs.Stat(sys, path.Join(dir, e.Name(), "partition")); err == nil {
			parts = append(parts, path.Join(dir, e.Name()))
		}
	}
	var all []muster.Content
	add := func(c muster.Content, ok bool) {
		if ok && !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	for _, p := range parts {
		c, ok := used[attribute(sys, path.Join(p, "dev"))]
		add(c, ok)
		c, ok = used[path.Base(p)]
		add(c, ok)
		holders, _ := fs.ReadDir(sys, path.Join(p, "holders"))
		for _, h := range holders {
			add(muster.Content{Kind: layout.ContentInUse, Name: h.Name()}, true)
		}
	}
	return all
}
