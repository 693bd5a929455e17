package planner

import (
	"strconv"
	"time"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/module"
)

// An Input is everything that a plan is made of.
type Input struct {
	// Parent is the blueprint that is the target now; nil: there is none yet.
	Parent *muster.Blueprint
	// ID, MadeAt and Why are those of the blueprint that is made, if one is.
	ID     string
	MadeAt time.Time
	Why    string
	// Seed is what ids are drawn from, one stream a node.
	Seed uint64
	// Modules are what is wanted, one version of each.
	Modules []module.Module
	Nodes   []Node
	// Cleaned are the placements that are gone and have been cleaned up after.
	// They leave the blueprint.
	Cleaned map[string]bool
}

// A Node is what the store knows of a node, and what was last heard of it.
type Node struct {
	ID           string
	Hostname     string
	Address      string
	Registration muster.RegistrationState // other than approved: it is held
	Policy       muster.NodePolicy
	State        muster.NodeState
	Labels       map[string]string
	Reservoir    module.Capacity // is never given to anybody
	Disks        []Disk          // that were adopted
	Claims       []string        // of other schedulers: who still needs it, or a disk of it
	Away         bool            // its host is not linked
	Floor        int64           // the newest generation that was declared of it, by whomever
	ByHand       bool            // people say what it is to be: nothing is placed on it
	Seen         *Seen           // nil: nothing was ever heard
}

// A Disk is an adopted disk.
type Disk struct {
	ID       string
	Identity string // by which its node's host finds it
	Policy   muster.DiskPolicy
	State    muster.DiskState
	Labels   map[string]string
	SizeMiB  int64
	Member   bool     // of the node's pool: not for placements
	Claims   []string // of other schedulers
}

// Seen is one node's part of an inventory. It may be old: every decision on it
// asks first whether it is old enough to be wrong.
type Seen struct {
	Holds      int64 // the generation that the host has taken in
	Reconciled int64 // the generation that it has applied and read back
	Profile    inventory.Profile
	Capacity   module.Capacity
	Disks      []SeenDisk // that are plugged in
	Placements []SeenPlacement
}

// A SeenDisk is there; InUse: the host uses it.
type SeenDisk struct {
	ID    string
	InUse bool
}

// A SeenPlacement is one that there is something of. CaughtUp is also said of
// one that has nothing to catch up with. Of a module with a health check a host
// that cannot check, because it is too old, leaves its placements neither healthy
// nor caught up, with that for the reason: what nobody has seen up does not count
// as available, so nothing of that module is moved or updated on its account
// until the host is.
type SeenPlacement struct {
	ID       string
	Healthy  bool
	CaughtUp bool
	Reason   string // why it is not
}

// need is a field of a profile by the name that modules use.
func need(p *inventory.Profile) func(string) string {
	return func(name string) string {
		switch name {
		case "arch":
			return p.Arch
		case "container_runtime":
			return p.ContainerRuntime
		case "firmware":
			return p.Firmware
		case "graphical_session":
			return strconv.FormatBool(p.Graphical)
		case "kernel":
			return p.Kernel
		case "os":
			return p.OS
		case "os_version":
			return p.OSVersion
		case "package_manager":
			return p.PackageManager
		case "service_manager":
			return p.ServiceManager
		case "virtualised":
			return strconv.FormatBool(p.Virtualised)
		case "zfs":
			return p.Pools
		}
		return ""
	}
}
