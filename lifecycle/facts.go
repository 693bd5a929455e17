package lifecycle

import "muster.internal"

// Facts are what the caller found out for this event, outside the State. What
// is not said is not so: the zero value refuses.
type Facts struct {
	Epoch         bool // the caller names the epoch of the running (or last) approval
	Session       bool // the caller names the bus session that the approval, or the announcement, is bound to
	SessionAlive  bool // the announced bus session is still connected
	SessionOver   bool // the bus session that the approval is bound to has ended
	OtherSession  bool // another session holds, or tried to hold, the machine's queue name
	OtherKey      bool // that other session announced another public key
	Proof         bool // the proof of the sentinel line is right
	Surveyed      bool // the disks were surveyed over the announced session
	PlanSeen      bool // the plan's digest is the one that the operator saw
	Layout        bool // the layout can be built from these disks
	Confirmed     bool // the operator repeated the machine's serial number
	EnrollmentPI  bool // the boot policy has an enrollment image
	Code          bool // the claim code is the one that the machine shows
	SameMachine   bool // the evidence does not say that it is another machine
	Overdue       bool // the deadline has passed, or there is none
	WindowOpen    bool // an auto-approve window is open, with a free slot
	Admitted      bool // the boot policy takes in machines by itself, or an enrollment window has a free slot
	TokenGood     bool // the enrolment token was issued, and is not used, revoked or over
	MayReplace    bool // the token names the machine's node, or made the key that it replaces
	ComesRemoved  bool // the node that the token brings was told to leave
	ComesQuiesced bool // the node that the token brings was told to quiesce
	ComesKept     bool // the node that the token brings was told to take nothing new
	AutoEnroll    bool // the boot policy takes in machines by itself
	OnAllowlist   bool // the allowlist is empty or has this MAC or service tag
	TagWanted     bool // the allowlist has service tags, and this machine's is not known
	NetworkKnown  bool // the request came from one of the boot policy's networks
	AddressFree   bool // that network has a free address
	NothingPlaced bool // nothing but base, per-node and per-disk modules is placed on the node
	NoReservation bool // no placement is reserved on the node, waiting to be placed
	NoMove        bool // no unfinished move names the node
	Acknowledged  bool // an operator has acknowledged every foreign workload that runs there
	Inventory     bool // the node's inventory has arrived
	NothingRuns   bool // the host reports that it stopped what could not move
	Unclaimed     bool // no other scheduler holds a claim on the node or one of its disks
	HostConfirmed bool // the host has confirmed that it no longer uses the disk, or is gone
	CaseAllows    bool // the newcomer's case has this verb
	Incumbent     bool // the machine that a newcomer is in conflict with is registered
	OwnUUID       bool // a UUID of its own is there, or can be derived
	Unwanted      bool // no machine said who it is behind the NIC, and no operator touched the record
}

// A Fact is a named question about a machine, with a sentence for people
// whether it holds or not. Field, if any, is the field of the request that is
// wrong when it does not hold: then the refusal is a bad request, not a
// conflict. Closed says that it is about a gate that somebody must open first:
// then the refusal is forbidden.
type Fact struct {
	Name   string
	Is     string
	Else   string
	Field  string
	Closed bool

	holds func(s *State, m int, f *Facts) bool
	// reads is the outside fact that it looks at, if any.
	reads func(*Facts) *bool
}

// outside is a fact that the caller must find out.
func outside(name, is, otherwise string, at func(*Facts) *bool) *Fact {
	return &Fact{Name: name, Is: is, Else: otherwise, reads: at,
		holds: func(_ *State, _ int, f *Facts) bool { return *at(f) }}
}

// input is an outside fact about a field of the request.
func input(field, name, is, otherwise string, at func(*Facts) *bool) *Fact {
	f := outside(name, is, otherwise, at)
	f.Field = field
	return f
}

// gate is an outside fact that somebody must bring about first.
func gate(name, is, otherwise string, at func(*Facts) *bool) *Fact {
	f := outside(name, is, otherwise, at)
	f.Closed = true
	return f
}

// inside is a fact that can be read off the state; m is the member.
func inside(name, is, otherwise string, holds func(s *State, m int) bool) *Fact {
	return &Fact{Name: name, Is: is, Else: otherwise,
		holds: func(s *State, m int, _ *Facts) bool { return holds(s, m) }}
}

// either holds when a does, or else b: a looks at the state, b outside.
func either(name, is, otherwise string, a, b *Fact) *Fact {
	return &Fact{Name: name, Is: is, Else: otherwise, reads: b.reads,
		holds: func(s *State, m int, f *Facts) bool { return a.holds(s, m, f) || b.holds(s, m, f) }}
}

// both holds when a and b do: a looks at the state, b outside.
func both(name, is, otherwise string, a, b *Fact) *Fact {
	return &Fact{Name: name, Is: is, Else: otherwise, reads: b.reads,
		holds: func(s *State, m int, f *Facts) bool { return a.holds(s, m, f) && b.holds(s, m, f) }}
}

// not is the opposite.
func not(a *Fact) *Fact {
	return &Fact{Name: "not " + a.Name, Is: a.Else, Else: a.Is, reads: a.reads,
		holds: func(s *State, m int, f *Facts) bool { return !a.holds(s, m, f) }}
}

// Facts that come from outside.
var (
	epoch         = outside("epoch", "the setup epoch is that of the approval", "the setup epoch is not that of the approval", func(f *Facts) *bool { return &f.Epoch })
	session       = outside("session", "the bus session is the one it is bound to", "the bus session is another one", func(f *Facts) *bool { return &f.Session })
	sessionAlive  = outside("session alive", "the machine is connected to the boot bus", "the machine is not connected to the boot bus any more", func(f *Facts) *bool { return &f.SessionAlive })
	sessionOver   = outside("session over", "the bus session that the approval is bound to is over", "the bus session that the approval is bound to is not known to be over", func(f *Facts) *bool { return &f.SessionOver })
	otherSession  = outside("other session", "another connection claims the machine's name on the boot bus", "no other connection claims the machine's name on the boot bus", func(f *Facts) *bool { return &f.OtherSession })
	otherKey      = outside("other key", "the newcomer announced another public key", "the newcomer announced the same public key", func(f *Facts) *bool { return &f.OtherKey })
	proof         = outside("proof", "the proof is right", "the proof is not the one that this setup's bundle leads to", func(f *Facts) *bool { return &f.Proof })
	surveyed      = outside("surveyed", "its disks have been surveyed", "its disks have not been surveyed yet", func(f *Facts) *bool { return &f.Surveyed })
	planSeen      = outside("plan seen", "the disks are those that the operator saw", "the disks are not those that the operator saw: plan again", func(f *Facts) *bool { return &f.PlanSeen })
	layout        = input("layout", "layout", "the layout can be built from its disks", "the layout cannot be built from its disks", func(f *Facts) *bool { return &f.Layout })
	confirmed     = input("confirm", "confirmed", "the operator repeated its serial number", "this is not the machine's serial number", func(f *Facts) *bool { return &f.Confirmed })
	enrollmentPI  = outside("enrollment image", "the boot policy has an enrollment image", "the boot policy has no enrollment image", func(f *Facts) *bool { return &f.EnrollmentPI })
	code          = outside("code", "the claim code is the one that the machine shows", "the claim code is not the one that the machine shows", func(f *Facts) *bool { return &f.Code })
	sameMachine   = outside("same machine", "nothing says that it is another machine", "the evidence says that it is, or claims to be, another machine", func(f *Facts) *bool { return &f.SameMachine })
	overdue       = outside("overdue", "its time is over, or has no end", "its time is not over yet", func(f *Facts) *bool { return &f.Overdue })
	windowOpen    = outside("window open", "an auto-approve window is open, with a free slot", "no auto-approve window is open, or it has no free slot", func(f *Facts) *bool { return &f.WindowOpen })
	admitted      = gate("admitted", "the boot policy takes in machines by itself, or an enrollment window has a free slot", "the boot policy does not take in new machines by itself (auto_enroll is off) and no enrollment window has a free slot: an admin opens one with \"muster window open enrollment\"", func(f *Facts) *bool { return &f.Admitted })
	tokenGood     = outside("token good", "its enrolment token is good", "its enrolment token is used, revoked or over", func(f *Facts) *bool { return &f.TokenGood })
	mayReplace    = outside("may replace", "the token names its node, or made its present key", "its node is live, and the token does not name it: disable its registration first, or issue a token for that very node (--as)", func(f *Facts) *bool { return &f.MayReplace })
	autoEnroll    = outside("auto enroll", "the boot policy takes in machines by itself", "the boot policy does not take in machines by itself (auto_enroll is off)", func(f *Facts) *bool { return &f.AutoEnroll })
	onAllowlist   = outside("on allowlist", "the allowlist admits it", "the allowlist has neither its service tag nor its MAC prefix", func(f *Facts) *bool { return &f.OnAllowlist })
	tagWanted     = outside("tag wanted", "the allowlist goes by service tag, and its own is not known yet", "its service tag is known, or nothing asks for it", func(f *Facts) *bool { return &f.TagWanted })
	networkKnown  = outside("network", "it came in on one of the boot policy's networks", "it came in on none of the boot policy's networks", func(f *Facts) *bool { return &f.NetworkKnown })
	addressFree   = outside("address free", "its network has a free address", "its network has no free address left", func(f *Facts) *bool { return &f.AddressFree })
	nothingPlaced = outside("nothing placed", "nothing but base modules is placed on its node", "its node still holds placements: move them away or remove them, or expunge the node", func(f *Facts) *bool { return &f.NothingPlaced })
	noReservation = outside("no reservation", "no placement is reserved on its node", "a placement is reserved on its node and about to land there: wait until it has, or withdraw it", func(f *Facts) *bool { return &f.NoReservation })
	noMove        = outside("no move", "no unfinished move names its node", "an unfinished move names its node: let the move end, or cancel it", func(f *Facts) *bool { return &f.NoMove })
	acknowledged  = outside("foreign acknowledged", "nothing foreign runs there that no operator has acknowledged", "workloads that are not muster's run there: look at them, then acknowledge them (muster node acknowledge-foreign)", func(f *Facts) *bool { return &f.Acknowledged })
	inventoryIn   = outside("inventory", "its inventory has arrived", "its inventory has not arrived yet", func(f *Facts) *bool { return &f.Inventory })
	nothingRuns   = outside("nothing runs", "nothing runs on it any more", "something still runs on it", func(f *Facts) *bool { return &f.NothingRuns })
	unclaimed     = outside("unclaimed", "no other scheduler holds a claim on its node or one of its disks", "another scheduler still holds a claim on its node or one of its disks: wait until it has released it, or break the claim (muster claim break)", func(f *Facts) *bool { return &f.Unclaimed })
	hostConfirmed = outside("host confirmed", "its host has confirmed that it no longer uses the disk", "its host has not confirmed yet that it no longer uses the disk", func(f *Facts) *bool { return &f.HostConfirmed })
)

// Facts about the machine.
var (
	neverDisabled = inside("never disabled", "it was never disabled", "it was disabled once",
		func(s *State, _ int) bool { return s.Past == NoPast && s.Registration != muster.Disabled })
	claimOpen = inside("claim open", "its claim code is open", "its claim code has lapsed",
		func(s *State, _ int) bool { return s.Claim == ClaimOpen })
	// letsIn picks what an open window takes: a machine that was never disabled.
	letsIn  = both("let in", "an auto-approve window has a free slot, and the machine was never disabled", "no auto-approve window has a free slot, or the machine was disabled once", neverDisabled, windowOpen)
	keyLive = inside("key live", "its key works", "its key does not work",
		func(s *State, _ int) bool { return s.Credential == Live })
	keyUndelivered = inside("key undelivered", "nobody has fetched its key", "its key has been fetched",
		func(s *State, _ int) bool { return s.Credential == Undelivered })
	bundleReady = inside("bundle ready", "the bundle has not been taken", "the bundle has been taken",
		func(s *State, _ int) bool { return s.Bundle == BundleReady })
	bundleTaken = inside("bundle taken", "the bundle has been taken", "the bundle has not been taken",
		func(s *State, _ int) bool { return s.Bundle == BundleTaken })
	untombstoned = inside("no tombstone", "it was not expunged", "it was expunged: an operator must readmit it first",
		func(s *State, _ int) bool { return s.Tombstone == NoTombstone })
	nodeGone = inside("node gone", "its node is decommissioned", "its node is not decommissioned",
		func(s *State, _ int) bool { return s.NodeState == NoNode || s.NodeState == muster.NodeDecommissioned })
	nodeLive  = not(nodeGone)
	nodeStays = inside("node stays", "it has a node that was not told to leave", "it has no node, or one that was told to leave",
		func(s *State, m int) bool {
			return !nodeGone.holds(s, m, nil) && !nodeLeaving.holds(s, m, nil)
		})
	nodeLeaving = inside("node leaving", "its node was told to leave", "nobody told its node to leave",
		func(s *State, _ int) bool {
			return s.NodePolicy == muster.PolicyGracefulRemove || s.NodePolicy == muster.PolicyExpunged
		})
	toQuiesce = inside("to quiesce", "its policy is quiesce", "its policy is not quiesce",
		func(s *State, _ int) bool { return s.NodePolicy == muster.PolicyQuiesce })
	toServe = inside("to serve", "its policy is in_service or no_provision", "its policy is neither in_service nor no_provision",
		func(s *State, _ int) bool {
			return s.NodePolicy == muster.PolicyInService || s.NodePolicy == muster.PolicyNoProvision
		})
	mayVoid = either("void", "the bundle has not been taken, or the newcomer announced another public key",
		"the bundle has been taken, and the newcomer announced the same public key: it is the machine that came back", bundleReady, otherKey)
)

// Facts about one boot record.
var (
	hasAddress = inside("has address", "an address is reserved for it", "no address is reserved for it",
		func(s *State, m int) bool { return s.Boots[m].Address == AddressReserved })
	onNetwork     = either("on network", networkKnown.Is, networkKnown.Else, hasAddress, networkKnown)
	addressable   = either("addressable", "it has an address, or its network has a free one", addressFree.Else, hasAddress, addressFree)
	imageUnneeded = inside("image unneeded", "it is not enrolled", "an enrolled record needs its image: set another one, or decommission the record",
		func(s *State, m int) bool { return s.Boots[m].State != muster.Enrolled })
	isDiscovered = inside("discovered", "it is discovered", "it is not discovered",
		func(s *State, m int) bool { return s.Boots[m].State == muster.Discovered })
	foreign = inside("another's", "it is bound to another machine", "it is bound to no other machine",
		func(s *State, m int) bool { return s.Boots[m].Bound == BoundOther })
	// enrolls picks the records that the end of a setup enrolls: every
	// enrolling one that is bound to no other machine, if there is an image
	// to stamp on it.
	enrolls = inside("to be enrolled", "the machine was being set up with a pinned image, and the record is enrolling and bound to no other",
		"the machine was not being set up, no image was pinned, or the record is not enrolling or another's",
		func(s *State, m int) bool {
			b := s.Boots[m]
			return s.Registration == muster.SettingUp && s.Image == Assigned && b.State == muster.Enrolling && b.Bound != BoundOther
		})
	// joins picks the cards that an operator finds in a machine that is set up:
	// whatever the machine was set up with is theirs, too.
	joins = inside("to join", "the machine was set up with a pinned image, and the record is discovered or enrolling, with an address, and bound to no machine",
		"the machine is not set up with a pinned image, or the record has no address, is not discovered or enrolling, or is bound to a machine",
		func(s *State, m int) bool {
			b := s.Boots[m]
			return s.Registration != muster.SettingUp && s.Image == Assigned && (b.State == muster.Discovered || b.State == muster.Enrolling) &&
				b.Address == AddressReserved && b.Bound == Unbound
		})
	// resets picks the records that a factory reset sends back.
	resets = inside("to be reset", "the record is enrolled and bound to this machine", "the record is not enrolled, or not bound to this machine",
		func(s *State, m int) bool {
			return s.Boots[m].State == muster.Enrolled && s.Boots[m].Bound == BoundHere
		})
)

// Facts about one disk.
var (
	// adopts picks the disks that the end of a setup takes into the fleet.
	adopts = inside("to be adopted", "the machine was being set up, and the disk is in the plan", "the machine was not being set up, or the disk is not in the plan",
		func(s *State, m int) bool { return s.Registration == muster.SettingUp && s.Disks[m].Planned })
	diskGone = inside("disk gone", "the disk is decommissioned or was never adopted", "the disk is in the fleet",
		func(s *State, m int) bool { return s.Disks[m].State != muster.DiskInService })
	diskLive = inside("disk live", "the disk is in the fleet", "the disk is decommissioned or was never adopted",
		func(s *State, m int) bool { return s.Disks[m].State == muster.DiskInService })
	diskLeaving = inside("disk leaving", "the disk was told to leave", "nobody told the disk to leave",
		func(s *State, m int) bool {
			return s.Disks[m].Policy == muster.DiskPolicyGracefulRemove || s.Disks[m].Policy == muster.DiskPolicyExpunged
		})
)

// all points to every fact, for those who set them all.
func (f *Facts) all() []*bool {
	return []*bool{&f.Epoch, &f.Session, &f.SessionAlive, &f.SessionOver, &f.OtherSession, &f.OtherKey, &f.Proof, &f.Surveyed, &f.PlanSeen,
		&f.Layout, &f.Confirmed, &f.EnrollmentPI, &f.Code, &f.SameMachine, &f.Overdue, &f.WindowOpen, &f.Admitted, &f.TokenGood, &f.MayReplace, &f.ComesRemoved, &f.ComesQuiesced, &f.ComesKept, &f.AutoEnroll, &f.OnAllowlist,
		&f.TagWanted, &f.NetworkKnown, &f.AddressFree, &f.NothingPlaced, &f.NoReservation, &f.NoMove, &f.Acknowledged, &f.Inventory, &f.NothingRuns, &f.Unclaimed, &f.HostConfirmed,
		&f.CaseAllows, &f.Incumbent, &f.OwnUUID, &f.Unwanted}
}
