package linux

import (
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"muster.internal"
	"muster.internal/inventory"
)

// Facts reads what this machine is: firmware, memory, NICs. Disks, key and
// version are for the caller to add.
func (m *Machine) Facts() (inventory.Facts, error) {
	f := factsFrom(m.Sys, m.Proc, os.DirFS("/"))
	if host, err := os.Hostname(); err == nil && host != "(none)" {
		f.Hostname = host
	}
	f.MACs = nil
	for _, n := range physicalNICs(m.Sys) {
		f.MACs = append(f.MACs, permanentMAC(m.Sys, n))
	}
	slices.Sort(f.MACs)
	f.MACs = slices.DeleteFunc(slices.Compact(f.MACs), func(s string) bool { return s == "" })
	if f.UUID == "" && len(f.MACs) > 0 {
		// As some firmware does: nothing but the address of the first NIC.
		f.UUID = "00000000-0000-0000-0000-" + strings.ReplaceAll(f.MACs[0], ":", "")
	}
	if f.Hostname == "" && len(f.MACs) > 0 {
		f.Hostname = strings.ReplaceAll(f.MACs[0], ":", "-")
	}
	if m.UUID == "" && inventory.SharedUUID(f.UUID) && len(f.MACs) > 0 {
		// A vendor's default: the boot server gives out another, but a machine
		// that was not started by one must find its own.
		if own, ok := inventory.BuiltinShared().Own(f.Serial, f.MACs[0]); ok {
			f.UUID = own
		}
	}
	if m.UUID == "" {
		uuid, err := muster.ParseUUID(f.UUID)
		if err != nil {
			return f, err
		}
		m.UUID = uuid
	}
	f.UUID = m.UUID
	return f, nil
}

// factsFrom reads everything that needs no system call.
func factsFrom(sys, proc, root fs.FS) inventory.Facts {
	dmi := func(name string) string { return attribute(sys, "class/dmi/id/"+name) }
	f := inventory.Facts{
		Manufacturer: dmi("sys_vendor"), Product: dmi("product_name"), Serial: inventory.RealSerial(dmi("product_serial")),
		CPUs: int64(runtime.NumCPU()), Firmware: "bios",
	}
	if uuid, err := muster.ParseUUID(dmi("product_uuid")); err == nil {
		f.UUID = uuid
	} else if id := attribute(root, "etc/machine-id"); len(id) == 32 {
		f.UUID, _ = muster.ParseUUID(id[:8] + "-" + id[8:12] + "-" + id[12:16] + "-" + id[16:20] + "-" + id[20:])
	}
	if _, err := fs.Stat(sys, "firmware/efi"); err == nil {
		f.Firmware = "uefi"
	}
	b, _ := fs.ReadFile(proc, "meminfo")
	for line := range strings.Lines(string(b)) {
		if w := strings.Fields(line); len(w) > 1 && w[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(w[1], 10, 64)
			f.MemoryMiB = kib >> 10
		}
	}
	return f
}

// physicalNICs are those with hardware behind them.
func physicalNICs(sys fs.FS) []string {
	var all []string
	for _, n := range nicNamesOf(sys) {
		if _, err := fs.Stat(sys, path.Join("class/net", n, "device")); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// permanentMAC asks the NIC for the address it was made with; a virtual one may
// not know, and then has the one it uses.
func permanentMAC(sys fs.FS, nic string) string {
	var perm struct {
		cmd, size uint32
		data      [32]byte
	}
	perm.cmd, perm.size = unix.ETHTOOL_GPERMADDR, uint32(len(perm.data))
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:unix.IFNAMSIZ-1], nic)
	req.data = unsafe.Pointer(&perm)
	if s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err == nil {
		defer unix.Close(s)
		_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
		if e == 0 && perm.size == 6 && [6]byte(perm.data[:6]) != [6]byte{} {
			return formatMAC(perm.data[:6])
		}
	}
	mac, _ := muster.ParseMAC(attribute(sys, path.Join("class/net", nic, "address")))
	return mac
}

func formatMAC(b []byte) string {
	const hex = "0123456789abcdef"
	var s strings.Builder
	for i, o := range b {
		if i > 0 {
			s.WriteByte(':')
		}
		s.WriteByte(hex[o>>4])
		s.WriteByte(hex[o&15])
	}
	return s.String()
}
