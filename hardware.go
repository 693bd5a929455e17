package muster

import (
	"context"
	"time"
)

// Hardware is what a machine is made of, in so far as whoever looked could
// tell. An empty field was not to be found out.
type Hardware struct {
	Vendor    string         `json:"vendor,omitempty"`
	Product   string         `json:"product,omitempty"`
	Serial    string         `json:"serial,omitempty"`
	BIOS      BIOS           `json:"bios,omitzero"`
	CPUs      []CPU          `json:"cpus,omitempty"` // by socket
	MemoryMiB int64          `json:"memory_mib,omitempty"`
	DIMMs     []DIMM         `json:"dimms,omitempty"` // by slot
	NICs      []NIC          `json:"nics,omitempty"`  // by permanent address
	Disks     []HardwareDisk `json:"disks,omitempty"` // by path
	// Foreign are workloads that run there and are not muster's. Looked says that
	// somebody looked for them.
	Foreign []ForeignName `json:"foreign,omitempty"`
	Looked  bool          `json:"foreign_looked_for,omitempty"`
}

// A BIOS is a machine's firmware, legacy or UEFI.
type BIOS struct {
	Vendor  string `json:"vendor,omitempty"`
	Version string `json:"version,omitempty"`
	Date    string `json:"date,omitempty"` // as it is written there
}

// A CPU is one processor. Without a socket it is all of them together.
type CPU struct {
	Socket  string `json:"socket,omitempty"`
	Model   string `json:"model,omitempty"`
	Cores   int64  `json:"cores,omitempty"`
	Threads int64  `json:"threads,omitempty"`
}

// A DIMM is a memory module in its slot.
type DIMM struct {
	Slot    string `json:"slot"`
	SizeMiB int64  `json:"size_mib"`
	Vendor  string `json:"vendor,omitempty"`
	Part    string `json:"part,omitempty"`
	Serial  string `json:"serial,omitempty"`
}

// A NIC is a physical network card, or a port of one.
type NIC struct {
	Name     string   `json:"name,omitempty"` // of the interface, now
	MAC      string   `json:"mac"`            // that it was made with
	Vendor   string   `json:"vendor,omitempty"`
	Part     string   `json:"part,omitempty"` // PCI device: 8086:1521
	Driver   string   `json:"driver,omitempty"`
	Firmware string   `json:"firmware,omitempty"`
	Tags     []string `json:"tags,omitempty"` // a SmartOS machine's own
}

// A HardwareDisk is a disk where it is plugged in.
type HardwareDisk struct {
	Disk
	Firmware string `json:"firmware,omitempty"`
	Slot     string `json:"slot,omitempty"` // what it hangs on: pci-0000:00:1f.2/ata2
}

// A ForeignName is a workload that is not muster's.
type ForeignName struct {
	Kind string `json:"kind"` // container, …
	Name string `json:"name"`
}

// CollectionSource is who looked at a machine's hardware.
type CollectionSource string

const (
	SourceSysinfo CollectionSource = "sysinfo" // the machine said it at a door
	SourceSurvey  CollectionSource = "survey"  // the boot image looked at its disks
	SourceHost    CollectionSource = "host"    // a node's host, over the link
)

// CollectionSources are all of them.
var CollectionSources = []CollectionSource{SourceSysinfo, SourceSurvey, SourceHost}

// A Collection is a machine's hardware as of one time. The next one has the next
// number, and is made when something is otherwise.
type Collection struct {
	Number      int64            `json:"number"`
	ServerUUID  string           `json:"server_uuid"`
	NodeID      string           `json:"node_id,omitempty"` // empty: before it was adopted
	Source      CollectionSource `json:"source"`
	CollectedAt time.Time        `json:"collected_at"`
	Hardware    *Hardware        `json:"hardware,omitempty"` // lists leave it out
	// Warnings are about firmware below its minimum, as it is stated now.
	Warnings []string `json:"warnings,omitempty"`
}

// A HardwareDiff is what differs between two collections of a machine.
type HardwareDiff struct {
	From    Collection       `json:"from"` // without the hardware
	To      Collection       `json:"to"`
	Changes []HardwareChange `json:"changes"`
}

// A HardwareChange is one part that came, went, moved or is otherwise.
type HardwareChange struct {
	Part   string `json:"part"`   // machine, bios, cpu, memory, dimm, nic, disk, workload
	Change string `json:"change"` // added, removed, moved, changed
	Name   string `json:"name"`   // as people find it on the shelf
	Serial string `json:"serial,omitempty"`
	Field  string `json:"field,omitempty"` // that changed
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	// Elsewhere is the machine that a disk came from, or went to.
	Elsewhere *Whereabouts `json:"elsewhere,omitempty"`
	Identity  string       `json:"identity,omitempty"` // of a disk
}

// Whereabouts is where a disk was seen.
type Whereabouts struct {
	ServerUUID string     `json:"server_uuid"`
	NodeID     string     `json:"node_id,omitempty"`
	Hostname   string     `json:"hostname,omitempty"`
	Slot       string     `json:"slot,omitempty"`
	Until      *time.Time `json:"until,omitempty"` // absent: it is there
}

// An UnadoptedMachine is known, and not of the fleet.
type UnadoptedMachine struct {
	ServerUUID string    `json:"server_uuid"`
	Vendor     string    `json:"vendor,omitempty"`
	Part       string    `json:"part,omitempty"` // its product
	Serial     string    `json:"serial,omitempty"`
	Hostname   string    `json:"hostname,omitempty"`
	State      string    `json:"state"` // of its registration, or conflict
	LastSeen   time.Time `json:"last_seen"`
	// Next says what takes it in.
	Next string `json:"next"`
}

// An UnadoptedDisk is plugged into a node, and the fleet does not hold it.
type UnadoptedDisk struct {
	NodeID   string       `json:"node_id"`
	Hostname string       `json:"hostname,omitempty"`
	Disk     HardwareDisk `json:"disk"`
	// Before is the disk that it was here before, if it was adopted once.
	Before string `json:"before_disk_id,omitempty"`
	// Refused says why it cannot be adopted as it is.
	Refused string `json:"refused,omitempty"`
}

// An AdoptDisk names a disk of a node: its serial number, WWN or path.
type AdoptDisk struct {
	Disk string `json:"disk"`
}

// An AdoptedDisk is a disk as it was taken in.
type AdoptedDisk struct {
	NodeDisk
	Warnings []string `json:"warnings,omitempty"`
}

// A FirmwareMinimum is the version below which firmware of a part is warned of.
type FirmwareMinimum struct {
	Vendor  string    `json:"vendor"`
	Part    string    `json:"part"` // model of a disk, PCI device of a card, product of a machine (its BIOS)
	Version string    `json:"version"`
	SetAt   time.Time `json:"set_at,omitzero"` // these two are never asked for
	SetBy   string    `json:"set_by,omitempty"`
}

// Inventories is what machines are made of, and were.
type Inventories interface {
	// NodeInventory is one collection of a node's machine; number 0: the newest.
	NodeInventory(ctx context.Context, nodeID string, number int64) (Collection, error)
	// NodeInventories are all that are kept, the newest first.
	NodeInventories(ctx context.Context, nodeID string) ([]Collection, error)
	// DiffInventory says what differs between two; 0 and 0: the two newest.
	DiffInventory(ctx context.Context, nodeID string, from, to int64) (HardwareDiff, error)

	UnadoptedMachines(ctx context.Context) ([]UnadoptedMachine, error)
	UnadoptedDisks(ctx context.Context) ([]UnadoptedDisk, error)
	// AdoptDisk takes a disk that a node's inventory shows into the fleet.
	AdoptDisk(ctx context.Context, nodeID string, a AdoptDisk) (AdoptedDisk, error)

	FirmwareMinimums(ctx context.Context) ([]FirmwareMinimum, error)
	SetFirmwareMinimum(ctx context.Context, m FirmwareMinimum) (FirmwareMinimum, error)
	RemoveFirmwareMinimum(ctx context.Context, vendor, part string) error
}
