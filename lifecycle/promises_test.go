package lifecycle

import (
	"slices"

	"muster.internal"
)

// What people may rely on, said apart from the rows.

type (
	// a neverPromise is broken by a state.
	neverPromise struct {
		name   string
		broken func(s *State) bool
	}
	// a stepPromise is broken by something that the rules let happen (or, in
	// promised.possible, by something that they refuse).
	stepPromise struct {
		name   string
		broken func(s *step) bool
	}
	// an alwaysPromise says what stays within reach, but for the excused.
	alwaysPromise struct {
		name    string
		is      func(s *State) bool
		excused func(s *State) bool
	}
)

var promised = struct {
	never    []neverPromise
	step     []stepPromise
	possible []stepPromise
	always   []alwaysPromise
}{states, slices.Concat(machineSteps, identitySteps, replaceSteps, recordSteps, nodeSteps, allSteps), slices.Concat(possible, identityPossible, replacePossible), always}

// anyBoot and anyDisk say what must be true of no member.
func anyBoot(bad func(s *State, b Boot) bool) func(*State) bool {
	return func(s *State) bool {
		return slices.ContainsFunc(s.Boots, func(b Boot) bool { return bad(s, b) })
	}
}

func anyDisk(bad func(s *State, d Disk) bool) func(*State) bool {
	return func(s *State) bool {
		return slices.ContainsFunc(s.Disks, func(d Disk) bool { return bad(s, d) })
	}
}

func gone(s *State) bool { return s.NodeState == NoNode || s.NodeState == muster.NodeDecommissioned }

// stays tells whether there is a node that nobody told to leave.
func stays(s *State) bool {
	return !gone(s) && !among(s.NodePolicy, muster.PolicyExpunged, muster.PolicyGracefulRemove)
}

func among[S comparable](s S, list ...S) bool { return slices.Contains(list, s) }

var states = []neverPromise{
	{"a machine is known exactly while it has a registration", func(s *State) bool {
		return (s.Machine == muster.MachineKnown) != (s.Registration != NoRegistration)
	}},
	{"a live key belongs to an approved machine, or to a setup whose bundle was taken", func(s *State) bool {
		return s.Credential == Live && s.Registration != muster.Approved && !(s.Registration == muster.SettingUp && s.Bundle == BundleTaken)
	}},
	{"an approved machine has a key, or one to fetch", func(s *State) bool {
		return s.Registration == muster.Approved && !among(s.Credential, Undelivered, Live)
	}},
	{"a key waits to be fetched only by an approved machine", func(s *State) bool {
		return s.Credential == Undelivered && s.Registration != muster.Approved
	}},
	{"a key is reserved exactly while a bundle is ready", func(s *State) bool {
		return (s.Credential == Reserved) != (s.Bundle == BundleReady)
	}},
	{"a bundle exists exactly while a machine is being set up", func(s *State) bool {
		return (s.Bundle != NoBundle) != (s.Registration == muster.SettingUp)
	}},
	{"a claim code exists only for a pending machine", func(s *State) bool {
		return s.Claim != NoClaim && s.Registration != muster.Pending
	}},
	{"an image is pinned only from an approval on", func(s *State) bool {
		return s.Image != NoImage && among(s.Registration, NoRegistration, muster.AwaitingSetup)
	}},
	{"a tombstoned machine is disabled or deleted", func(s *State) bool {
		return s.Tombstone == Tombstoned && !among(s.Registration, NoRegistration, muster.Disabled)
	}},
	{"what was disabled is remembered for as long as the machine is out", func(s *State) bool {
		return s.Registration == muster.Disabled && s.Past != WasDisabled || s.Past == WasDisabled && among(s.Registration, NoRegistration, muster.SettingUp, muster.Approved)
	}},
	{"an approved machine has a node", func(s *State) bool {
		return s.Registration == muster.Approved && gone(s)
	}},
	{"a machine that is unknown or waits for its setup has no node", func(s *State) bool {
		return among(s.Registration, NoRegistration, muster.AwaitingSetup, muster.SettingUp) && !gone(s)
	}},
	{"a node has a policy and a state, or neither", func(s *State) bool {
		return (s.NodePolicy == NoPolicy) != (s.NodeState == NoNode)
	}},
	{"a decommissioned node was told to leave", func(s *State) bool {
		return s.NodeState == muster.NodeDecommissioned && !among(s.NodePolicy, muster.PolicyExpunged, muster.PolicyGracefulRemove)
	}},
	{"an expunged node that is still there has a tombstone", func(s *State) bool {
		return s.NodePolicy == muster.PolicyExpunged && !gone(s) && s.Tombstone != Tombstoned
	}},
	{"an enrolled record is bound, with address and image", anyBoot(func(_ *State, b Boot) bool {
		return b.State == muster.Enrolled && (b.Bound == Unbound || b.Address == NoAddress || b.Assigned == NoImage)
	})},
	{"an enrolling record has an address", anyBoot(func(_ *State, b Boot) bool {
		return b.State == muster.Enrolling && b.Address == NoAddress
	})},
	{"a discovered record is bound to nobody", anyBoot(func(_ *State, b Boot) bool {
		return b.State == muster.Discovered && b.Bound != Unbound
	})},
	{"a record that was never seen holds nothing", anyBoot(func(_ *State, b Boot) bool {
		return b.State == Unseen && (b != Boot{Mode: b.Mode} || modeOf(b) != muster.NormalMode)
	})},
	{"only a discovered record is probed, and it has an address", anyBoot(func(_ *State, b Boot) bool {
		return b.Probe == ProbeOn && (b.State != muster.Discovered || b.Address == NoAddress)
	})},
	{"a deleted machine's records serve nothing", anyBoot(func(s *State, b Boot) bool {
		return s.Registration == NoRegistration && b.Bound == BoundHere && b.State != muster.BootDecommissioned
	})},
	{"a tombstoned machine's records serve nothing", anyBoot(func(s *State, b Boot) bool {
		return s.Tombstone == Tombstoned && b.Bound == BoundHere && b.State != muster.BootDecommissioned
	})},
	{"a disk has a policy and a state, or neither", anyDisk(func(_ *State, d Disk) bool {
		return (d.Policy == NoDiskPolicy) != (d.State == NoDisk)
	})},
	{"a disk in service belongs to a node", anyDisk(func(s *State, d Disk) bool {
		return d.State == muster.DiskInService && gone(s)
	})},
	{"a decommissioned disk was told to leave", anyDisk(func(_ *State, d Disk) bool {
		return d.State == muster.DiskDecommissioned && d.Policy == muster.DiskPolicyInService
	})},
	{"an expunged node's disks are expunged", anyDisk(func(s *State, d Disk) bool {
		return s.NodePolicy == muster.PolicyExpunged && d.State == muster.DiskInService && d.Policy != muster.DiskPolicyExpunged
	})},
}

// changed tells whether the step moved something of the machine itself.
func (s *step) changed() bool { return !s.old.Equal(*s.next) }

// boots and disks yield every member before and after.
func (s *step) anyBoot(bad func(old, next Boot) bool) bool {
	for m := range s.old.Boots {
		if bad(s.old.Boots[m], s.next.Boots[m]) {
			return true
		}
	}
	return false
}

func (s *step) anyDisk(bad func(old, next Disk) bool) bool {
	for m := range s.old.Disks {
		if bad(s.old.Disks[m], s.next.Disks[m]) {
			return true
		}
	}
	return false
}

// leaves and enters speak of the registration.
func (s *step) leaves(r muster.RegistrationState) bool {
	return s.old.Registration == r && s.next.Registration != r
}

func (s *step) enters(r muster.RegistrationState) bool {
	return s.old.Registration != r && s.next.Registration == r
}

// allSteps are promised of whatever happens.
var allSteps = []stepPromise{
	{"repeating is success without change, or refused", func(s *step) bool {
		again, ok, _ := s.rules.step(s.next, s.info, s.m, s.f)
		return ok && !again.Equal(*s.next)
	}},
	{"repeating what an operator may repeat is success", func(s *step) bool {
		if !slices.Contains(repeatable, s.e) {
			return false
		}
		_, ok, _ := s.rules.step(s.next, s.info, s.m, &Facts{Epoch: true, Proof: true, SameMachine: true, Admitted: true})
		return !ok
	}},
}
