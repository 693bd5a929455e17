package main

import (
	"context"
	"encoding/json"

	"muster.internal"
	"muster.internal/inventory"
)

// A system is the machine that this program runs on, as far as every system can
// tell. What only one system can do stands in the files named for it.
type system interface {
	Profile() inventory.Profile
	// Facts is what the machine is, without its disks.
	Facts() (inventory.Facts, error)
	// Devices lists the disks by what the system says of them.
	Devices() ([]muster.Disk, error)
	// Disks says what is on them, too, as far as this system can.
	Disks() ([]muster.Disk, error)
	// Survey is the list that an approval to destroy may rest on, or an error
	// where this system can give none.
	Survey() ([]muster.Disk, error)
	// Describe is the sysinfo object of facts, without secrets.
	Describe(inventory.Facts) (json.RawMessage, error)
	// Identify makes a UUID this machine's, whatever its firmware says.
	Identify(uuid string)
	// Await returns when a file may have come, or ctx ended. It costs nothing
	// while nothing happens, and a look a minute where the system cannot tell.
	Await(ctx context.Context, file string) error
	// Prepare is done once before the machine lives as a node.
	Prepare() error
}
