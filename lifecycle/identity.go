package lifecycle

import (
	"time"

	"muster.internal"
)

// Times after which what nobody approved is forgotten, counted from its last
// sign of life.
const (
	ConflictDeadline    = 24 * time.Hour     // of a newcomer that waits
	LapseDeadline       = 7 * 24 * time.Hour // of a machine that asked to be let in, and of a card that was served nothing
	UnannouncedDeadline = 30 * time.Minute   // of an address that policy reserved for a card behind which no machine said who it is
)

// NoMachine is the machine of a State that nobody has heard of.
const NoMachine muster.MachineState = ""

// Events of evidence and of noise.
const (
	Contest        muster.Event = "contest"
	Accept         muster.Event = "accept"
	Separate       muster.Event = "separate"
	MoveNIC        muster.Event = "move_nic"
	Forget         muster.Event = "forget"
	ExpireConflict muster.Event = "expire_conflict"
	Lapse          muster.Event = "lapse"
	ExpireRecord   muster.Event = "expire_record"
)

// Machines is what the verbs about evidence are about: member -1.
const Machines Subject = "machines"

func identityEvents() []Info {
	return []Info{
		{Contest, Control, Machines, "machine", "", "the evidence says that a newcomer is, or claims to be, another machine: it waits"},
		{Accept, Operator, Machines, "machine", "accept", "it is the known machine: take its new evidence in, keep node and registration"},
		{Separate, Operator, Machines, "machine", "separate", "it is another machine: let it in under a UUID of its own"},
		{MoveNIC, Operator, Machines, "machine", "move-nic", "the network card is in this machine now: take it from the one that had it"},
		{Forget, Operator, Machines, "machine", "forget", "drop the newcomer; it waits again if it comes again"},
		{ExpireConflict, Clock, Machines, "machine", "", "forget a newcomer that is not heard any more"},
		{Lapse, Clock, Registrations, "registration", "", "forget a machine that nobody approved and that is not heard any more"},
		{ExpireRecord, Clock, BootRecords, "boot record", "", "forget a network card that nobody wanted, and free its address"},
	}
}

// Facts from outside about evidence and noise.
var (
	caseAllows = outside("case allows", "its case is one that this resolves", "its case is not one that this resolves", func(f *Facts) *bool { return &f.CaseAllows })
	incumbent  = outside("incumbent", "the machine that it is in conflict with is still registered", "the machine that it was in conflict with is not registered any more: it gets in by itself", func(f *Facts) *bool { return &f.Incumbent })
	ownUUID    = outside("own UUID", "it has a serial number or a MAC address of its own, or its own UUID", "neither its serial number nor its MAC address is its own, so no UUID can be derived: set one with muster boot set NIC --uuid UUID", func(f *Facts) *bool { return &f.OwnUUID })
	unwanted   = outside("unwanted", "no machine said who it is behind it, and no operator touched it", "a machine said who it is behind it, or an operator touched it", func(f *Facts) *bool { return &f.Unwanted })
)

// neverIn is a machine that can be forgotten without a trace; plain a record.
var (
	neverIn = inside("never in", "it has no node, was never disabled, and no boot record is bound to it", "it has a node, was disabled once, or a boot record is bound to it",
		func(s *State, _ int) bool {
			for _, b := range s.Boots {
				if b.Bound == BoundHere {
					return false
				}
			}
			return nodeGone.holds(s, -1, nil) && s.Past == NoPast
		})
	wasIn = not(neverIn)
	plain = inside("plain", "it is bound to no machine, in normal mode, without an image of its own, and not probed", "it is bound to a machine, in rescue, has an image of its own, or is probed",
		func(s *State, m int) bool {
			b := s.Boots[m]
			return b.Bound == Unbound && b.Mode != muster.RescueMode && b.Assigned == NoImage && b.Probe == ProbeOff
		})
	settled = not(plain)
)

// machineRows: a machine is known by its registration, or waits as a newcomer.
func machineRows() []*lifecycle {
	type R = row[muster.MachineState]
	const known, conflict = muster.MachineKnown, muster.MachineConflict
	return []*lifecycle{define("machine", "whether a piece of hardware is one by itself, or claims to be one that is there already", perMachine,
		func(s *State, _ int) *muster.MachineState { return &s.Machine },
		[]place[muster.MachineState]{
			{State: NoMachine, Doc: "nobody has heard of it"},
			{State: known, Doc: "it has a registration"},
			{State: conflict, Doc: "a newcomer whose evidence is, in part, another machine's: it has no registration, and waits", End: &end[muster.MachineState]{
				After: ConflictDeadline, Raises: ExpireConflict, Leads: NoMachine, Out: Forget}},
		},
		[]R{
			{On: Register, From: in(NoMachine, conflict), To: known},
			{On: Register, From: in(known), Stay: true},
			{On: Redeem, From: in(NoMachine, conflict), To: known},
			{On: Redeem, From: in(known), Stay: true},
			{On: TakeOver, From: in(NoMachine, conflict), To: known},
			{On: TakeOver, From: in(known), Stay: true},
			{On: Announce, From: in(NoMachine, conflict), To: known, Doc: "nothing speaks against a newcomer any more"},
			{On: Announce, From: in(known), Stay: true},
			{On: Delete, From: in(known), To: NoMachine, Doc: "those that waited because of it wait no more"},
			{On: Lapse, From: in(known), To: NoMachine},
			{On: Contest, From: in(NoMachine), To: conflict},
			{On: Contest, From: in(conflict), Stay: true},
			{On: Accept, From: in(conflict), Needs: all(caseAllows, incumbent), To: NoMachine, Doc: "its evidence becomes the known machine's, whose UUID it is told at its next boot"},
			{On: Accept, From: in(known), Needs: all(caseAllows), Stay: true, Doc: "a node's key in other hardware: that is right"},
			{On: Separate, From: in(conflict), Needs: all(caseAllows, ownUUID), To: NoMachine, Doc: "at its next boot it comes as a machine of its own"},
			{On: Separate, From: in(known), Needs: all(caseAllows), Stay: true, Doc: "two machines have one MAC address: that is right"},
			{On: MoveNIC, From: in(conflict), Needs: all(caseAllows, incumbent), To: NoMachine, Doc: "the record starts over, with its address"},
			{On: MoveNIC, From: in(known), Needs: all(caseAllows, incumbent), Stay: true, Doc: "the card is its own from now on"},
			{On: Forget, From: in(conflict), To: NoMachine},
			{On: Forget, From: in(known), Needs: all(caseAllows), Stay: true, Doc: "what is odd about it is written down again when it is seen again"},
			{On: ExpireConflict, From: in(conflict), Needs: all(overdue), To: NoMachine},
		})}
}
