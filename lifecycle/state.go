// Package lifecycle is what may happen to a machine: every lifecycle it has
// (registration, keys, boot records, node, disks) as one table of typed rows,
// and the functions that read it. From the rows come the checks in the store's
// transactions, the refusals with their reasons and alternatives, the routes,
// and the documentation. An exhaustive checker in the tests explores them.
//
// It is pure. It must never look at a clock, throw dice or reach for anything
// outside its arguments: whoever calls it loads the state, finds the facts,
// and writes the result down in one transaction.
package lifecycle

import (
	"slices"

	"muster.internal"
)

// A State is all that the rows may look at about one machine: everything that
// is keyed by its server UUID, the boot records of its NICs, and its disks.
// The zero value is a machine that nobody has heard of.
type State struct {
	Registration muster.RegistrationState // NoRegistration: no row
	Claim        Claim
	Credential   Credential
	Bundle       Bundle
	Image        Image
	Tombstone    Tombstone
	Machine      muster.MachineState
	Past         Past
	NodePolicy   muster.NodePolicy // of its node, the newest if it had several
	NodeState    muster.NodeState  // NoNode: it never had one
	// Boots are the records bound to this machine and those of the MACs that
	// it reported, whoever they are bound to.
	Boots []Boot
	// Disks are those of its newest node and those of its approved plan.
	Disks []Disk
}

// A Boot is what the rows may look at about one boot record.
type Boot struct {
	State    muster.BootState // Unseen: no row; people read "discovered"
	Mode     muster.BootMode
	Bound    Binding
	Address  Address
	Assigned Image // its own assigned_pi
	Probe    Probe
}

// A Disk is what the rows may look at about one disk.
type Disk struct {
	Policy  muster.DiskPolicy // NoDisk: not adopted
	State   muster.DiskState
	Planned bool // a member of the approved setup plan; the rows never change it
}

// What is not there has no name: these are the empty states of the nouns.
const (
	NoRegistration muster.RegistrationState = ""
	NoNode         muster.NodeState         = ""
	NoPolicy       muster.NodePolicy        = ""
	Unseen         muster.BootState         = ""
	NoDisk         muster.DiskState         = ""
	NoDiskPolicy   muster.DiskPolicy        = ""
)

// Claim is the claim code of a pending registration.
type Claim string

const (
	NoClaim   Claim = ""
	ClaimOpen Claim = "open" // a code is out, and can be approved
)

// Credential is the agent key that is bound to the machine.
type Credential string

const (
	NoCredential Credential = ""
	Reserved     Credential = "reserved"    // an id; the secret is made when the bundle is taken
	Undelivered  Credential = "undelivered" // an id; the secret is made when the machine polls
	Live         Credential = "live"        // it authenticates
)

// Bundle is what an approved setup hands to the machine, once.
type Bundle string

const (
	NoBundle    Bundle = ""
	BundleReady Bundle = "ready"
	BundleTaken Bundle = "taken"
)

// Image is an assigned_pi: the registration's, pinned by the approval, or a
// boot record's own.
type Image string

const (
	NoImage  Image = ""
	Assigned Image = "assigned"
)

// Tombstone marks a machine that was expunged.
type Tombstone string

const (
	NoTombstone Tombstone = ""
	Tombstoned  Tombstone = "tombstoned"
)

// Past is what an auto-approve window must remember of a machine.
type Past string

const (
	NoPast      Past = ""
	WasDisabled Past = "was disabled"
)

// Binding is whose a boot record is, seen from the machine of the State.
type Binding string

const (
	Unbound    Binding = ""
	BoundHere  Binding = "this machine"
	BoundOther Binding = "another machine"
)

// Address is a boot record's reserved address.
type Address string

const (
	NoAddress       Address = ""
	AddressReserved Address = "reserved"
)

// Probe is on while the booter serves only the first-stage script, to learn
// the service tag that the allowlist asks for.
type Probe string

const (
	ProbeOff Probe = ""
	ProbeOn  Probe = "on"
)

// Equal tells whether nothing differs.
func (s State) Equal(o State) bool {
	return s.core() == o.core() && slices.Equal(s.Boots, o.Boots) && slices.Equal(s.Disks, o.Disks)
}

// core is the comparable part.
type core struct {
	r  muster.RegistrationState
	c  Claim
	k  Credential
	b  Bundle
	i  Image
	t  Tombstone
	p  Past
	m  muster.MachineState
	np muster.NodePolicy
	ns muster.NodeState
}

func (s State) core() core {
	return core{s.Registration, s.Claim, s.Credential, s.Bundle, s.Image, s.Tombstone, s.Past, s.Machine, s.NodePolicy, s.NodeState}
}

func (s State) clone() State {
	s.Boots, s.Disks = slices.Clone(s.Boots), slices.Clone(s.Disks)
	return s
}
