package sim

import (
	"fmt"

	muster "muster.internal"
)

// Hardware makes the n-th machine of an imaginary fleet, counted from 1: always
// the same one for the same number. Every second one has a BIOS; disks differ
// from machine to machine, and some carry the remains of an earlier life.
func Hardware(n int) *Machine {
	m := &Machine{
		Name: fmt.Sprintf("m%02d", n), Firmware: UEFI,
		UUID:         fmt.Sprintf("5ca1ab1e-%04x-4000-8000-5254007700%02x", n, n&0xff),
		Serial:       fmt.Sprintf("SIM%05d", n),
		Manufacturer: "Muster Simulation", Product: "Imaginary 1U",
		MemoryMiB: 65536,
		MACs:      []string{mac(0, n), mac(1, n)},
	}
	if n%2 == 1 {
		m.Firmware = BIOSiPXE
	}
	switch n % 4 {
	case 0: // one small disk
		m.add(1, 480e9, true)
	case 1: // two solid ones
		m.add(2, 960e9, true)
	case 2: // four spinning ones, a solid one for the log
		m.add(4, 4e12, false)
		m.add(1, 240e9, true)
	case 3: // two, with something left on the second
		m.add(2, 960e9, true)
		m.Disks[1].Contents = []muster.Content{{Kind: "ext4", Name: "old-root"}}
	}
	return m
}

func mac(nic, n int) string {
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", 0x77+nic, n>>8&0xff, n&0xff)
}

// add puts equal disks into the machine.
func (m *Machine) add(count int, bytes float64, solid bool) {
	for range count {
		i := len(m.Disks)
		model := "Spinner 7200"
		if solid {
			model = "Flash 3"
		}
		m.Disks = append(m.Disks, muster.Disk{
			Path: fmt.Sprintf("/dev/sd%c", 'a'+i), Vendor: "IMAGINE", Model: model,
			Serial: fmt.Sprintf("%s-%d", m.Serial, i+1), WWN: fmt.Sprintf("0x5000c500%s%04x", m.UUID[9:13], i+1),
			Size: int64(bytes), Transport: "SCSI", SSD: solid,
		})
	}
}
