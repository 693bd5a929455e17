package main

import (
	"context"
	"time"

	muster "muster.internal"
)

// The inventory of the one node: a disk more than the fleet holds, and firmware
// that is old.
func (m *memory) hardware() muster.Hardware {
	return muster.Hardware{Vendor: "Dell Inc.", Product: "PowerEdge R640", Serial: "8CX2P53", MemoryMiB: 16384, BIOS: muster.BIOS{Vendor: "Dell Inc.", Version: "2.8.1", Date: "06/26/2020"},
		CPUs:  []muster.CPU{{Socket: "CPU1", Model: "Xeon Silver 4110", Cores: 8, Threads: 16}},
		DIMMs: []muster.DIMM{{Slot: "A1", SizeMiB: 16384, Vendor: "Hynix", Part: "HMA82GR7", Serial: "2C0A1B"}},
		NICs:  []muster.NIC{{Name: "eno1", MAC: "52:54:00:77:00:01", Part: "8086:1521", Driver: "igb", Firmware: "1.61"}},
		Disks: []muster.HardwareDisk{{Disk: bareDisks()[0], Firmware: "HPG1", Slot: "pci-0000:00:1f.2/ata1"},
			{Disk: muster.Disk{Path: "/dev/sdz", Model: "SSDPE2KX010T8", Serial: "PHLJ9", Size: 1e12, Contents: []muster.Content{{Kind: "ext4", Name: "data"}}}, Slot: "pci-0000:3b:00.0"}},
		Foreign: []muster.ForeignName{{Kind: "container", Name: "db"}}}
}

func (m *memory) NodeInventory(_ context.Context, id string, number int64) (c muster.Collection, err error) {
	if _, err := m.node(id); err != nil {
		return c, err
	}
	h := m.hardware()
	c = muster.Collection{Number: 2, ServerUUID: uuidWeb1, NodeID: id, Source: muster.SourceHost, CollectedAt: noon.Add(-time.Hour), Hardware: &h}
	for _, x := range m.minimums {
		c.Warnings = append(c.Warnings, "the firmware of "+x.Part+" is old; "+x.Version+" is the minimum")
	}
	return c, nil
}

func (m *memory) NodeInventories(ctx context.Context, id string) ([]muster.Collection, error) {
	c, err := m.NodeInventory(ctx, id, 0)
	c.Hardware = nil
	before := c
	before.Number, before.CollectedAt, before.Source, before.NodeID = 1, noon.Add(-2*time.Hour), muster.SourceSurvey, ""
	return []muster.Collection{c, before}, err
}

func (m *memory) DiffInventory(ctx context.Context, id string, from, to int64) (d muster.HardwareDiff, err error) {
	cs, err := m.NodeInventories(ctx, id)
	if err != nil || from > 2 || to > 2 {
		return d, muster.Problemf(muster.CodeNotFound, "node %s has no collection %d", id, max(from, to))
	}
	until := noon.Add(-3 * time.Hour)
	return muster.HardwareDiff{From: cs[1], To: cs[0], Changes: []muster.HardwareChange{
		{Part: "dimm", Change: "removed", Name: "16384 MiB Hynix", From: "A2"},
		{Part: "disk", Change: "removed", Name: "X serial s1", From: "ata1", Elsewhere: &muster.Whereabouts{Hostname: "web2", Slot: "ata4"}},
		{Part: "disk", Change: "added", Name: "X serial s2", To: "ata1", Elsewhere: &muster.Whereabouts{Hostname: "web3", Until: &until}},
		{Part: "disk", Change: "moved", Name: "X serial s3", From: "ata2", To: "ata3"},
		{Part: "bios", Change: "changed", Name: "the firmware", Field: "version", From: "2.7", To: "2.8.1"}}}, nil
}

func (m *memory) UnadoptedMachines(context.Context) ([]muster.UnadoptedMachine, error) {
	r := m.regs[uuidBare]
	return []muster.UnadoptedMachine{{ServerUUID: r.ServerUUID, Vendor: r.Manufacturer, Part: r.Product, Serial: r.Serial, State: string(r.State), LastSeen: r.LastSeen, Next: "muster registration approve-setup"}}, m.up()
}

func (m *memory) UnadoptedDisks(context.Context) ([]muster.UnadoptedDisk, error) {
	return []muster.UnadoptedDisk{{NodeID: m.nodes[0].ID, Hostname: "web1", Disk: m.hardware().Disks[1], Refused: "it holds ext4 data"}}, m.up()
}

func (m *memory) AdoptDisk(_ context.Context, id string, a muster.AdoptDisk) (d muster.AdoptedDisk, err error) {
	if a.Disk == "PHLJ9" {
		return d, conflict("", "", "disk PHLJ9 of node %s is not adopted: it holds ext4 data", id)
	}
	d.NodeDisk, err = m.disk(diskWeb1)
	d.Warnings = []string{"the firmware of disk X is 1.0; 1.1 is the minimum"}
	return d, err
}

func (m *memory) FirmwareMinimums(context.Context) ([]muster.FirmwareMinimum, error) {
	return m.minimums, m.up()
}

func (m *memory) SetFirmwareMinimum(_ context.Context, x muster.FirmwareMinimum) (muster.FirmwareMinimum, error) {
	x.SetAt, x.SetBy = noon, "operator:admin"
	m.minimums = append(m.minimums, x)
	return x, m.up()
}

func (m *memory) RemoveFirmwareMinimum(_ context.Context, vendor, part string) error {
	if len(m.minimums) == 0 {
		return muster.Problemf(muster.CodeNotFound, "no minimum is stated for %q of %q", part, vendor)
	}
	m.minimums = nil
	return m.up()
}
