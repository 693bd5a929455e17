package linux

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/layout"
)

// Hardware reads what this machine is made of, and what runs in containers here
// that ours does not name. What cannot be read is left out.
func (m *Machine) Hardware(ours func(container string) bool) (muster.Hardware, error) {
	h := hardwareFrom(m.Sys, m.Proc, os.DirFS("/"))
	for _, name := range physicalNICs(m.Sys) {
		n := nicFrom(m.Sys, name)
		n.MAC = permanentMAC(m.Sys, name)
		if n.MAC == "" {
			continue
		}
		n.Driver, n.Firmware = driverOf(name)
		h.NICs = append(h.NICs, n)
	}
	slices.SortFunc(h.NICs, func(a, b muster.NIC) int { return strings.Compare(a.MAC, b.MAC) })
	disks, err := m.look()
	if err != nil {
		return h, err
	}
	for _, d := range disks {
		d = layout.AtRest(d)
		h.Disks = append(h.Disks, muster.HardwareDisk{Disk: d, Firmware: diskFirmware(m.Sys, path.Base(d.Path)), Slot: slotOf(m.Sys, path.Base(d.Path))})
	}
	h.Foreign, h.Looked = foreignContainers(engineSockets, ours)
	return h, nil
}

// hardwareFrom reads everything that needs no system call.
func hardwareFrom(sys, proc, root fs.FS) muster.Hardware {
	table, _ := fs.ReadFile(sys, "firmware/dmi/tables/DMI")
	h := inventory.ParseSMBIOS(table)
	f := factsFrom(sys, proc, root)
	h.MemoryMiB = f.MemoryMiB
	h.Vendor, h.Product, h.Serial = first(f.Manufacturer, h.Vendor), first(f.Product, h.Product), first(f.Serial, h.Serial)
	dmi := func(name, otherwise string) string { return first(attribute(sys, "class/dmi/id/"+name), otherwise) }
	h.BIOS = muster.BIOS{Vendor: dmi("bios_vendor", h.BIOS.Vendor), Version: dmi("bios_version", h.BIOS.Version), Date: dmi("bios_date", h.BIOS.Date)}
	if len(h.CPUs) == 0 {
		h.CPUs = []muster.CPU{{Model: cpuModel(proc), Threads: f.CPUs}}
	}
	return h
}

func cpuModel(proc fs.FS) string {
	b, _ := fs.ReadFile(proc, "cpuinfo")
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return printable([]byte(v))
		}
	}
	return ""
}

// nicFrom reads a card as PCI knows it; a virtual one has no such device.
func nicFrom(sys fs.FS, name string) muster.NIC {
	read := func(rel string) string {
		return strings.TrimPrefix(attribute(sys, path.Join("class/net", name, "device", rel)), "0x")
	}
	n := muster.NIC{Name: name, Vendor: read("vendor")}
	if device := read("device"); n.Vendor != "" && device != "" {
		n.Part = n.Vendor + ":" + device
	}
	return n
}

// driverOf asks a card's driver what it is, and which firmware the card runs
// (ETHTOOL_GDRVINFO, linux/ethtool.h).
func driverOf(nic string) (driver, firmware string) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", ""
	}
	defer unix.Close(s)
	info, err := unix.IoctlGetEthtoolDrvinfo(s, nic)
	if err != nil {
		return "", ""
	}
	text := func(b []byte) string {
		if t := printable(b); t != "N/A" {
			return t
		}
		return ""
	}
	return text(info.Driver[:]), text(info.Fw_version[:])
}

// diskFirmware is where each kind of disk has its revision.
func diskFirmware(sys fs.FS, name string) string {
	for _, rel := range []string{"device/firmware_rev", "device/rev", "device/fwrev"} {
		if rev := attribute(sys, path.Join("block", name, rel)); rev != "" {
			return rev
		}
	}
	return ""
}

// pciFunction and port are the parts of a device's path that say where it is
// plugged in: the last PCI function, and what hangs on that.
var (
	pciFunction = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	port        = regexp.MustCompile(`^(ata\d+|phy-\d+:\d+(:\d+)?|virtio\d+|\d+-[0-9.]+)$`)
	scsiAddress = regexp.MustCompile(`^\d+:(\d+:\d+:\d+)$`) // its first number is the kernel's own
)

// slotOf is where a disk is plugged in, as long as nothing of the machine's bus
// changes; numbers that the kernel gives out anew at each start, such as nvme0,
// are no part of it.
func slotOf(sys fs.FS, name string) string {
	target, err := fs.ReadLink(sys, path.Join("block", name))
	if err != nil {
		return ""
	}
	slot, scsi, ported := "", "", false
	for _, part := range strings.Split(target, "/") {
		switch {
		case pciFunction.MatchString(part):
			slot, ported = "pci-"+part, false
		case port.MatchString(part) && slot != "":
			slot, ported = slot+"/"+part, true
		case scsiAddress.MatchString(part):
			scsi = "/scsi-" + scsiAddress.FindStringSubmatch(part)[1]
		}
	}
	if slot != "" && !ported {
		slot += scsi
	}
	return slot
}

// foreignContainers are the running containers that ours does not name and that
// do not carry our label. Looked is false when a runtime does not answer.
func foreignContainers(sockets []string, ours func(string) bool) (all []muster.ForeignName, looked bool) {
	for _, socket := range sockets {
		if st, err := os.Stat(socket); err != nil || st.Mode()&os.ModeSocket == 0 {
			continue
		}
		e := newEngine(socket)
		var running []struct {
			Names  []string          `json:"Names"`
			Labels map[string]string `json:"Labels"`
		}
		err := e.call("GET", "/containers/json", url.Values{}, nil, &running)
		e.client.CloseIdleConnections()
		if err != nil {
			return nil, false // it is asked again at the next look
		}
		for _, c := range running {
			if len(c.Names) == 0 {
				continue
			}
			name := printable([]byte(strings.TrimPrefix(c.Names[0], "/")))
			if _, declared := c.Labels[declaredLabel]; !declared && !ours(name) {
				all = append(all, muster.ForeignName{Kind: "container", Name: name})
			}
		}
	}
	slices.SortFunc(all, func(a, b muster.ForeignName) int { return strings.Compare(a.Name, b.Name) })
	return slices.Compact(all), true
}
