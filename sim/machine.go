package sim

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"muster.internal/inventory"
	"muster.internal/setup"

	muster "muster.internal"
)

// A Machine is imaginary hardware. What its exported fields hold outlives a
// power cut and is what a restart of the simulation comes back to; the rest is
// memory.
type Machine struct {
	Name         string        `json:"name"`
	Firmware     FirmwareKind  `json:"firmware"`
	UUID         string        `json:"uuid"`
	Hostname     string        `json:"hostname,omitempty"` // that a setup gave it
	Serial       string        `json:"serial"`
	Manufacturer string        `json:"manufacturer"`
	Product      string        `json:"product"`
	MemoryMiB    int64         `json:"memory_mib"`
	MACs         []string      `json:"macs"` // the first is the admin NIC
	Disks        []muster.Disk `json:"disks"`
	Pools        []Pool        `json:"pools,omitempty"`
	// Drift is how far the hardware clock is off at power-on.
	Drift time.Duration `json:"drift,omitempty"`

	Faults Faults `json:"-"`
	// True is the true time; the machine's own clock drifts from it.
	True func() time.Time `json:"-"`

	told            string        // the UUID to call itself, in this boot; empty: SMBIOS's
	off             time.Duration // of the system clock, in this boot
	private, public []byte        // of this boot
	effects         int           // in this boot
	on              bool
}

// A Pool is what is on disks that belong together. It is there as long as all
// of its members are.
type Pool struct {
	Kind       muster.PoolKind   `json:"kind"`
	Name       string            `json:"name"`
	GUID       string            `json:"guid"`
	Stamp      string            `json:"stamp,omitempty"`
	Members    []string          `json:"members"` // identities of disks
	Credential *setup.Credential `json:"credential,omitempty"`

	imported bool
}

// Faults are knobs for what goes wrong. The zero value is good hardware.
type Faults struct {
	// PowerCutAt is the effect on disks or clock, counted from 1, in the middle
	// of which the power goes; 0 is never.
	PowerCutAt int
	// StuckClock cannot be set.
	StuckClock bool
	// WrongClock can be set, and shows another time all the same.
	WrongClock time.Duration
	// Lying is the path of a disk that says it has done what it has not: a pool
	// with it is gone at the next power-on.
	Lying string
	// Swapped is the path of a disk that somebody replaces by another one of
	// the same size, right after it was surveyed.
	Swapped string
}

// ErrPower is what every effect comes to once the power is gone.
var ErrPower = errors.New("the power went out")

// ErrOff means that the machine is not running.
var ErrOff = errors.New("the machine is off")

// PowerOn starts the machine: memory is empty, the clock is the hardware's, and
// the boot has a key pair of its own.
func (m *Machine) PowerOn() error {
	m.PowerOff()
	var err error
	if m.private, m.public, err = setup.GenerateKey(); err != nil {
		return err
	}
	m.told, m.off, m.effects, m.on = "", m.Drift, 0, true
	return nil
}

// PowerOff takes the power away; what is on disks stays, if the disks are
// honest.
func (m *Machine) PowerOff() {
	m.on, m.private, m.public = false, nil, nil
	for i := range m.Pools {
		m.Pools[i].imported = false
	}
	if liar := m.byPath(m.Faults.Lying); liar != nil {
		m.Pools = slices.DeleteFunc(m.Pools, func(p Pool) bool { return slices.Contains(p.Members, liar.Identity()) })
	}
}

// On tells whether the machine has power.
func (m *Machine) On() bool { return m.on }

// CallItself is what this boot told the machine about its UUID; empty: nothing.
func (m *Machine) CallItself(uuid string) { m.told = uuid }

// Self is the UUID that the machine goes by in this boot.
func (m *Machine) Self() string {
	if m.told != "" {
		return m.told
	}
	return m.UUID
}

// PublicKey is this boot's, as an announcement carries it.
func (m *Machine) PublicKey() string { return setup.EncodePublicKey(m.public) }

// Sysinfo is what the machine says of itself on the boot bus.
func (m *Machine) Sysinfo(version string) json.RawMessage {
	disks, _ := m.Survey()
	return inventory.Facts{
		UUID: m.Self(), Hostname: m.Hostname, Manufacturer: m.Manufacturer, Product: m.Product, Serial: m.Serial,
		MemoryMiB: m.MemoryMiB, CPUs: 8, MACs: m.MACs, AdminMAC: m.MACs[0], Disks: disks,
		PublicKey: m.PublicKey(), Version: version, Firmware: string(m.Firmware),
	}.Sysinfo()
}

// Survey reads the disks with what is on them.
func (m *Machine) Survey() ([]muster.Disk, error) {
	if !m.on {
		return nil, ErrOff
	}
	all := make([]muster.Disk, len(m.Disks))
	for i, d := range m.Disks {
		d.Contents = slices.Clone(d.Contents)
		for _, p := range m.Pools {
			if slices.Contains(p.Members, d.Identity()) {
				kind := "zpool"
				if p.Kind == muster.Btrfs {
					kind = "btrfs"
				}
				d.Contents = append(d.Contents, muster.Content{Kind: kind, Name: p.Name, GUID: p.GUID, Stamp: p.Stamp})
			}
		}
		all[i] = d
	}
	if s := m.byPath(m.Faults.Swapped); s != nil {
		s.Serial, s.WWN, s.Contents = s.Serial+"X", "", nil
		m.Faults.Swapped = ""
	}
	return all, nil
}

func (m *Machine) byPath(path string) *muster.Disk {
	for i := range m.Disks {
		if path != "" && m.Disks[i].Path == path {
			return &m.Disks[i]
		}
	}
	return nil
}

// effect is one act that a power cut can come in the middle of.
func (m *Machine) effect() error {
	if !m.on {
		return ErrPower
	}
	m.effects++
	if m.effects == m.Faults.PowerCutAt {
		m.Faults.PowerCutAt = 0 // once
		m.PowerOff()
		return ErrPower
	}
	return nil
}
