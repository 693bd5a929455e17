package lifecycle

import (
	"slices"

	"muster.internal"
)

// A world is one set of starting states that the checker explores to the end.
type world struct {
	name   string
	starts []State
	skip   []muster.Event // events that are left out, to keep the product small
	// covers is the scope whose rows all happen here or nowhere.
	covers []scope
}

// Events by what they are about, for worlds that leave some out.
var (
	ownRecord  = []muster.Event{RescueOn, RescueOff, ExpireRescue, Pin, Unpin, SetRecord, StartProbe, Dismiss, ExpireProbe, Enroll}
	ownDisk    = []muster.Event{RemoveDisk, KeepDisk, DecommissionDisk, AdoptDisk, ExpungeDisk}
	ownNode    = []muster.Event{NoProvision, Quiesce, Resume, Quiesced, Resumed, Confirm}
	ownMachine = []muster.Event{Survey, ExpireCode, ExpireKey, Deliver, CancelSetup, SetupFailed, Void}
)

// A record of another machine, in every state that it may have there, and one
// that nobody has seen.
func records(more ...Boot) []State {
	var ss []State
	for _, b := range []Boot{
		{},
		{State: muster.Enrolling, Bound: BoundOther, Address: AddressReserved},
		{State: muster.Enrolled, Bound: BoundOther, Address: AddressReserved, Assigned: Assigned},
		{State: muster.BootDecommissioned, Bound: BoundOther, Address: AddressReserved, Assigned: Assigned},
	} {
		ss = append(ss, State{Boots: append(slices.Clone(more), b)})
	}
	return ss
}

func disks(d ...Disk) State { return State{Disks: d} }

// The worlds that leave nothing out. What happens to records and disks moves
// nothing of the machine, and neither looks at the other (promises say so):
// each of these is enough for the rows of its own scope.
var (
	alone     = world{"no record, no disk", []State{{}}, nil, []scope{perMachine}}
	oneDisk   = world{"one disk", []State{disks(Disk{Planned: true}), disks(Disk{})}, nil, []scope{perDisk}}
	oneRecord = world{"one record", records(), nil, []scope{perRecord}}
)

// worlds have none, one and two records and disks. The second member's worlds
// leave out the events that look at nothing but one member, or at no member,
// which the worlds of one member explore in full.
func worlds() []world {
	planned, other := Disk{Planned: true}, Disk{}
	return []world{alone, oneDisk, oneRecord,
		{"two disks", []State{disks(planned, other), disks(planned, planned)}, slices.Concat(ownNode, ownMachine), nil},
		{"two records", records(Boot{}), slices.Concat(ownRecord, ownNode, ownMachine), nil},
		{"two records and two disks", []State{{Boots: []Boot{{}, {}}, Disks: []Disk{planned, other}}}, slices.Concat(ownRecord, ownNode, ownMachine, ownDisk), nil},
	}
}

// smallWorlds are enough to notice nearly everything, and quick: mutants meet
// them first, one after the other. The scope is that of the row that was
// changed.
func smallWorlds(sc scope) []world {
	var machine []muster.Event
	for _, i := range events() {
		if i.Subject != BootRecords {
			machine = append(machine, i.Event)
		}
	}
	record := world{"one record and no machine", records(), machine, nil}
	bare := world{"one record, bare", records(), slices.Concat(ownNode, ownMachine, []muster.Event{Register, Redeem, Approve, Disable}), nil}
	plain := world{"one record, plain", records(), slices.Concat(ownRecord, ownNode, ownMachine), nil}
	disk := world{"one disk, plain", []State{disks(Disk{Planned: true}), disks(Disk{})}, slices.Concat(ownNode, ownMachine, []muster.Event{Register, Redeem, Approve}), nil}
	switch sc {
	case perRecord:
		return []world{record, plain, bare}
	case perDisk:
		return []world{disk, oneDisk}
	}
	return []world{alone, plain, disk, bare}
}
