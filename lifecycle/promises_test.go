package lifecycle

import (
	"slices"
	"time"

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
}{states, steps, possible, always}

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
		return b.State == Unseen && b != Boot{}
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

var steps = []stepPromise{
	{"nothing but an operator's approve-setup leads into setting_up, and only from awaiting_setup", func(s *step) bool {
		return s.enters(muster.SettingUp) && (s.e != ApproveSetup || s.info.By != Operator || s.old.Registration != muster.AwaitingSetup)
	}},
	{"an approval is bound to a live session, a survey, a layout, the disks seen and the serial repeated", func(s *step) bool {
		return s.e == ApproveSetup && !(s.f.SessionAlive && s.f.Surveyed && s.f.Layout && s.f.PlanSeen && s.f.Confirmed)
	}},
	{"an approval starts one setup: key reserved, bundle ready, the policy's image pinned", func(s *step) bool {
		return s.e == ApproveSetup && !(s.enters(muster.SettingUp) && s.next.Credential == Reserved && s.next.Bundle == BundleReady &&
			(s.next.Image == Assigned) == s.f.EnrollmentPI)
	}},
	{"the bundle is taken once, by the booter, for the approved epoch and session", func(s *step) bool {
		taken := s.old.Bundle != BundleTaken && s.next.Bundle == BundleTaken
		return (taken || s.e == Take) && !(taken && s.e == Take && s.info.By == Booter && s.old.Bundle == BundleReady && s.f.Epoch && s.f.Session)
	}},
	{"a key comes alive when it is delivered: bundle taken, or polled for", func(s *step) bool {
		return s.old.Credential != Live && s.next.Credential == Live && !s.is(Take, Deliver)
	}},
	{"a polled key is handed out once, to the poller", func(s *step) bool {
		return s.e == Deliver && !(s.info.By == Poller && s.old.Credential == Undelivered && s.next.Credential == Live)
	}},
	{"a setup ends approved, with its key, or back in awaiting_setup, with nothing", func(s *step) bool {
		return s.leaves(muster.SettingUp) && !(s.next.Registration == muster.Approved && s.next.Credential == Live ||
			s.next.Registration == muster.AwaitingSetup && s.next.Credential == NoCredential)
	}},
	{"a setup is approved by its proof, or by its own key, for its epoch, after the bundle was taken", func(s *step) bool {
		return s.leaves(muster.SettingUp) && s.next.Registration == muster.Approved &&
			!(s.f.Epoch && s.old.Bundle == BundleTaken && (s.e == SetupComplete && s.info.By == Booter && s.f.Proof || s.e == Refresh && s.info.By == Host))
	}},
	{"a report of another epoch, or without proof, is refused", func(s *step) bool {
		return s.is(SetupComplete, SetupFailed) && !s.f.Epoch || s.e == SetupComplete && !s.f.Proof
	}},
	{"a setup is given up by the booter's report of its epoch, the clock when it is overdue, an impostor, or an operator", func(s *step) bool {
		back := s.leaves(muster.SettingUp) && s.next.Registration == muster.AwaitingSetup
		return back && !(s.e == SetupFailed && s.info.By == Booter && s.f.Epoch || s.e == Expire && s.info.By == Clock && s.f.Overdue ||
			s.e == CancelSetup && s.info.By == Operator || s.e == Void && s.info.By == Control && s.f.OtherSession)
	}},
	{"a machine that comes back with its own key after the bundle was taken does not void its setup", func(s *step) bool {
		return s.e == Void && s.old.Bundle == BundleTaken && !s.f.OtherKey
	}},
	{"a machine becomes approved by its claim code or by its setup", func(s *step) bool {
		return s.enters(muster.Approved) && !(s.old.Registration == muster.SettingUp || s.e == Approve && s.info.By == Operator && s.old.Registration == muster.Pending)
	}},
	{"a claim code is approved once, while it is open, and leaves a key to fetch", func(s *step) bool {
		return s.e == Approve && !(s.old.Claim == ClaimOpen && s.f.Code && s.next.Claim == NoClaim && s.next.Credential == Undelivered && s.next.Registration == muster.Approved)
	}},
	{"an anonymous machine moves itself to pending, and nothing else", func(s *step) bool {
		want := *s.old
		want.Registration, want.Claim = muster.Pending, ClaimOpen
		return s.info.By == Anonymous && !(s.e == Register && s.next.Equal(want) && s.old.Tombstone == NoTombstone &&
			among(s.old.Registration, NoRegistration, muster.Pending, muster.Disabled))
	}},
	{"a poller moves nothing but its key", func(s *step) bool {
		want := *s.old
		want.Credential = Live
		return s.info.By == Poller && !s.next.Equal(want)
	}},
	{"an announcement lets in a new machine, and changes no known one", func(s *step) bool {
		want := *s.old
		if s.old.Registration == NoRegistration {
			want.Registration = muster.AwaitingSetup
		}
		return s.e == Announce && !(s.next.Equal(want) && s.f.SameMachine && (s.old.Tombstone == NoTombstone || s.old.Registration != NoRegistration))
	}},
	{"a survey is written down only for a machine that waits, from the session that announced", func(s *step) bool {
		return s.e == Survey && (s.changed() || s.old.Registration != muster.AwaitingSetup || !s.f.Session)
	}},
	{"the clock ends only what is overdue", func(s *step) bool {
		return s.info.By == Clock && !s.f.Overdue
	}},
	{"a refresh takes a live key, and changes nothing but a running setup", func(s *step) bool {
		return s.e == Refresh && (s.old.Credential != Live || s.info.By != Host || s.old.Registration != muster.SettingUp && s.changed())
	}},
	{"disable, reset, delete, expunge and decommission leave no key, no bundle, no code", func(s *step) bool {
		return s.is(Disable, FactoryReset, Delete, Expunge, DecommissionNode) && !s.already() &&
			!(s.next.Credential == NoCredential && s.next.Bundle == NoBundle && s.next.Claim == NoClaim)
	}},
	{"disabling keeps everything but key and code", func(s *step) bool {
		want := *s.old
		want.Registration, want.Credential, want.Claim = muster.Disabled, NoCredential, NoClaim
		return s.e == Disable && !(s.next.Equal(want) && s.info.By == Operator)
	}},
	{"a key that nobody fetched leaves a disabled machine", func(s *step) bool {
		want := *s.old
		want.Registration, want.Credential = muster.Disabled, NoCredential
		return s.e == ExpireKey && !(s.old.Credential == Undelivered && s.next.Equal(want))
	}},
	{"a claim code that nobody approved is dead, and that is all", func(s *step) bool {
		want := *s.old
		want.Claim = NoClaim
		return s.e == ExpireCode && !(s.old.Claim == ClaimOpen && s.next.Equal(want))
	}},
	{"a factory reset needs an operator, an empty node, an enrollment image, and no tombstone", func(s *step) bool {
		return s.e == FactoryReset && !s.already() && !(s.info.By == Operator && s.f.NothingPlaced && s.f.EnrollmentPI && s.old.Tombstone == NoTombstone &&
			among(s.old.Registration, muster.Approved, muster.Disabled))
	}},
	{"a factory reset leaves a machine that waits, without node or image", func(s *step) bool {
		return s.e == FactoryReset && !(s.next.Registration == muster.AwaitingSetup && s.next.Image == NoImage && gone(s.next))
	}},
	{"factory reset and delete end the node, as an operator's word", func(s *step) bool {
		want := s.old.NodePolicy
		if !gone(s.old) {
			want = muster.PolicyExpunged
		}
		return s.is(FactoryReset, Delete) && !s.already() && !(s.next.NodePolicy == want && gone(s.next))
	}},
	{"a factory reset sends this machine's enrolled records back, with binding and address, and no others", func(s *step) bool {
		return s.e == FactoryReset && s.anyBoot(func(old, next Boot) bool {
			if old.State == muster.Enrolled && old.Bound == BoundHere {
				old.State, old.Assigned = muster.Enrolling, NoImage
			}
			return old != next
		})
	}},
	{"delete is an operator's, disable-first, and leaves nothing of the registration", func(s *step) bool {
		return s.e == Delete && !s.already() && !(s.info.By == Operator && s.f.NothingPlaced && among(s.old.Registration, muster.Pending, muster.AwaitingSetup, muster.Disabled) &&
			s.next.Registration == NoRegistration && gone(s.next))
	}},
	{"when a machine ends, its records serve nothing", func(s *step) bool {
		return s.is(Delete, Expunge, DecommissionNode) && !s.already() && s.anyBoot(func(old, next Boot) bool {
			want := old
			if old.Bound != BoundOther && old.State != Unseen {
				want.State, want.Probe = muster.BootDecommissioned, ProbeOff
			}
			return next != want
		})
	}},
	{"a machine that waits for its setup is set up, or forgotten", func(s *step) bool {
		return s.leaves(muster.AwaitingSetup) && !among(s.next.Registration, muster.SettingUp, NoRegistration)
	}},
	{"a machine that nobody knew waits for an operator first", func(s *step) bool {
		return s.leaves(NoRegistration) && !among(s.next.Registration, muster.Pending, muster.AwaitingSetup)
	}},
	{"a registration ends only by delete", func(s *step) bool {
		return s.next.Registration == NoRegistration && s.old.Registration != NoRegistration && s.e != Delete
	}},
	{"a machine is disabled by an operator, by a key unfetched, or because its node left", func(s *step) bool {
		return s.enters(muster.Disabled) && !s.is(Disable, ExpireKey, Expunge, DecommissionNode)
	}},
	{"a tombstone comes with expunge and goes with an operator's readmit, once the node is gone", func(s *step) bool {
		return s.old.Tombstone != s.next.Tombstone && !(s.e == Expunge && s.next.Tombstone == Tombstoned ||
			s.e == Readmit && s.info.By == Operator && s.next.Tombstone == NoTombstone && gone(s.old))
	}},
	{"readmit changes nothing else", func(s *step) bool {
		want := *s.old
		want.Tombstone = NoTombstone
		return s.e == Readmit && !s.next.Equal(want)
	}},

	{"a record is enrolled by the end of a setup only, and bound to this machine", func(s *step) bool {
		return s.anyBoot(func(old, next Boot) bool {
			return old.State != muster.Enrolled && next.State == muster.Enrolled &&
				!(s.is(SetupComplete, Refresh) && old.State == muster.Enrolling && next.Bound == BoundHere)
		})
	}},
	{"the end of a setup enrolls every enrolling record that is not another's, if an image was pinned", func(s *step) bool {
		return s.leaves(muster.SettingUp) && s.next.Registration == muster.Approved && s.anyBoot(func(old, next Boot) bool {
			want := old
			if old.State == muster.Enrolling && old.Bound != BoundOther && s.old.Image == Assigned {
				want = Boot{muster.Enrolled, old.Mode, BoundHere, old.Address, Assigned, old.Probe}
			}
			return next != want
		})
	}},
	{"what happens to a machine never touches another machine's record", func(s *step) bool {
		return s.info.Subject != BootRecords && s.anyBoot(func(old, next Boot) bool { return old.Bound == BoundOther && old != next })
	}},
	{"what happens to a machine never changes a record's mode, and never its address", func(s *step) bool {
		return s.info.Subject != BootRecords && s.anyBoot(func(old, next Boot) bool { return old.Mode != next.Mode || old.Address != next.Address })
	}},
	{"what happens to one record or disk changes nothing else", func(s *step) bool {
		if s.m < 0 {
			return false
		}
		rest := s.next.clone()
		if s.info.Subject == BootRecords {
			rest.Boots[s.m] = s.old.Boots[s.m]
		} else {
			rest.Disks[s.m] = s.old.Disks[s.m]
		}
		return !rest.Equal(*s.old)
	}},
	{"a decommissioned record is served nothing but a rescue until an operator reactivates it", func(s *step) bool {
		return s.anyBoot(func(old, next Boot) bool {
			return old.State == muster.BootDecommissioned && !(s.e == Reactivate && s.info.By == Operator) &&
				(next.State != old.State || next.Probe != old.Probe)
		})
	}},
	{"reactivating leaves a discovered record, bound to nobody, with its address, and never under a tombstone", func(s *step) bool {
		if s.e != Reactivate || s.already() {
			return false
		}
		old, next := s.boot()
		want := Boot{State: muster.Discovered, Mode: old.Mode, Address: old.Address}
		return next != want || s.old.Tombstone == Tombstoned || old.State != muster.BootDecommissioned
	}},
	{"decommissioning a record stops it and keeps the rest", func(s *step) bool {
		if s.e != Decommission {
			return false
		}
		old, next := s.boot()
		old.State, old.Probe = muster.BootDecommissioned, ProbeOff
		return next != old || s.info.By != Operator
	}},
	{"a NIC is admitted by policy: auto_enroll on, allowlist, network, address", func(s *step) bool {
		if s.e != Admit || s.already() {
			return false
		}
		old, next := s.boot()
		has := old.Address == AddressReserved
		old.State, old.Address, old.Probe = muster.Enrolling, AddressReserved, ProbeOff
		return next != old || s.info.By != Control || !(s.f.AutoEnroll && s.f.OnAllowlist && (has || s.f.NetworkKnown && s.f.AddressFree)) ||
			s.old.Boots[s.m].State != muster.Discovered
	}},
	{"an operator enrolls a NIC that has an address, or can get one", func(s *step) bool {
		if s.e != Enroll || s.already() {
			return false
		}
		old, next := s.boot()
		has := old.Address == AddressReserved
		from := old.State
		old.State, old.Address, old.Probe = muster.Enrolling, AddressReserved, ProbeOff
		return next != old || s.info.By != Operator || !(has || s.f.NetworkKnown && s.f.AddressFree) || !among(from, Unseen, muster.Discovered)
	}},
	{"a sighting makes a record, and no more", func(s *step) bool {
		if s.e != Sight {
			return false
		}
		old, next := s.boot()
		if old.State == Unseen {
			old.State = muster.Discovered
		}
		return next != old
	}},
	{"a probe wants a discovered NIC, a policy that takes in machines, a tag to learn, and an address", func(s *step) bool {
		if s.e != StartProbe || s.already() {
			return false
		}
		old, next := s.boot()
		has := old.Address == AddressReserved
		old.Probe, old.Address = ProbeOn, AddressReserved
		return next != old || !(s.f.AutoEnroll && s.f.TagWanted && (has || s.f.NetworkKnown && s.f.AddressFree)) || old.State != muster.Discovered
	}},
	{"a probe that ends without admission gives the address back", func(s *step) bool {
		if !s.is(Dismiss, ExpireProbe) || s.already() {
			return false
		}
		old, next := s.boot()
		was := old.Probe
		old.Probe, old.Address = ProbeOff, NoAddress
		return next != old || was != ProbeOn || s.e == Dismiss && s.f.OnAllowlist
	}},
	{"an address is given back only by the end of a probe", func(s *step) bool {
		return s.anyBoot(func(old, next Boot) bool { return old.Address == AddressReserved && next.Address != AddressReserved }) && !s.is(Dismiss, ExpireProbe)
	}},
	{"rescue on and off change the mode, in every state, and nothing else", func(s *step) bool {
		if !s.is(RescueOn, RescueOff, ExpireRescue) {
			return false
		}
		old, next := s.boot()
		if s.e == RescueOn && old.State == Unseen {
			old.State = muster.Discovered
		}
		want := muster.NormalMode
		if s.e == RescueOn {
			want = muster.RescueMode
		}
		return modeOf(next) != want || s.e == ExpireRescue && modeOf(old) != muster.RescueMode || func() bool { old.Mode, next.Mode = "", ""; return old != next }()
	}},
	{"settings of a record make it if there was none, and change nothing that the rows know but its image", func(s *step) bool {
		if !s.is(SetRecord, Pin, Unpin) {
			return false
		}
		old, next := s.boot()
		if old.State == Unseen && s.e != Unpin {
			old.State = muster.Discovered
		}
		switch s.e {
		case Pin:
			old.Assigned = Assigned
		case Unpin:
			old.Assigned = NoImage
		}
		return next != old || s.info.By != Operator
	}},

	{"a node is made, or found again, when its machine becomes approved", func(s *step) bool {
		if !s.enters(muster.Approved) {
			return false
		}
		if gone(s.old) {
			return s.next.NodePolicy != muster.PolicyInService || s.next.NodeState != muster.NodeInitializing
		}
		return s.next.NodePolicy != s.old.NodePolicy || s.next.NodeState != s.old.NodeState
	}},
	{"a node is made at no other time", func(s *step) bool {
		return gone(s.old) && !gone(s.next) && !s.enters(muster.Approved)
	}},
	{"a decommissioned node stays as it is, until its machine comes back as a new one", func(s *step) bool {
		return s.old.NodeState == muster.NodeDecommissioned && !s.enters(muster.Approved) &&
			(s.next.NodeState != s.old.NodeState || s.next.NodePolicy != s.old.NodePolicy)
	}},
	{"a node's policy is an operator's: nothing else changes it", func(s *step) bool {
		return s.old.NodePolicy != s.next.NodePolicy && s.info.By != Operator && !(s.enters(muster.Approved) && gone(s.old))
	}},
	{"a node's state is the control plane's: only joints and its own reports change it", func(s *step) bool {
		return s.old.NodeState != s.next.NodeState && s.info.By != Control && !s.enters(muster.Approved) && !s.is(FactoryReset, Delete)
	}},
	{"expunged is one-way", func(s *step) bool {
		return s.old.NodePolicy == muster.PolicyExpunged && s.next.NodePolicy != muster.PolicyExpunged && !(gone(s.old) && s.enters(muster.Approved))
	}},
	{"each policy verb sets its policy, and nothing else", func(s *step) bool {
		to, is := map[muster.Event]muster.NodePolicy{NoProvision: muster.PolicyNoProvision, Quiesce: muster.PolicyQuiesce,
			Resume: muster.PolicyInService, GracefulRemove: muster.PolicyGracefulRemove}[s.e]
		want := *s.old
		want.NodePolicy = to
		return is && !(s.info.By == Operator && s.next.Equal(want))
	}},
	{"an expunge cuts off at once: policy, tombstone, registration, image, disks", func(s *step) bool {
		return s.e == Expunge && !s.already() && !(s.info.By == Operator && s.next.NodePolicy == muster.PolicyExpunged && s.next.Tombstone == Tombstoned &&
			s.next.Registration == muster.Disabled && s.next.Image == NoImage && s.next.NodeState == s.old.NodeState &&
			!s.anyDisk(func(old, next Disk) bool {
				if old.State == muster.DiskInService {
					old.Policy = muster.DiskPolicyExpunged
				}
				return old != next
			}))
	}},
	{"a node is decommissioned when it was told to leave and holds nothing", func(s *step) bool {
		return s.e == DecommissionNode && !s.already() && !(s.f.NothingPlaced && among(s.old.NodePolicy, muster.PolicyExpunged, muster.PolicyGracefulRemove) &&
			s.next.NodeState == muster.NodeDecommissioned && s.next.NodePolicy == s.old.NodePolicy && s.next.Registration == muster.Disabled && s.next.Image == NoImage && s.next.Tombstone == s.old.Tombstone)
	}},
	{"a node that is no more has no disk in service", func(s *step) bool {
		return s.is(DecommissionNode, FactoryReset, Delete) && !s.already() && s.anyDisk(func(old, next Disk) bool {
			if old.State == muster.DiskInService {
				old.State, old.Policy = muster.DiskDecommissioned, muster.DiskPolicyExpunged
			}
			return old != next
		})
	}},
	{"a node is confirmed by its inventory, with a key that works", func(s *step) bool {
		return s.e == Confirm && !s.already() && !(s.f.Inventory && s.old.Registration == muster.Approved && s.old.NodeState == muster.NodeInitializing && s.old.Credential == Live && s.next.NodeState == muster.NodeInService)
	}},
	{"a node is quiesced when it was told to and nothing runs", func(s *step) bool {
		return s.e == Quiesced && !s.already() && !(s.f.NothingRuns && s.old.NodePolicy == muster.PolicyQuiesce && s.next.NodeState == muster.NodeQuiesced)
	}},
	{"a quiesced node serves again when it was told to", func(s *step) bool {
		return s.e == Resumed && !s.already() && !(among(s.old.NodePolicy, muster.PolicyInService, muster.PolicyNoProvision) && s.old.NodeState == muster.NodeQuiesced && s.next.NodeState == muster.NodeInService)
	}},
	{"the control plane's reports about a node change its state only", func(s *step) bool {
		want := *s.old
		want.NodeState = s.next.NodeState
		return s.is(Confirm, Quiesced, Resumed) && !s.next.Equal(want)
	}},

	{"the end of a setup adopts the disks of the plan, and no others", func(s *step) bool {
		return s.leaves(muster.SettingUp) && s.next.Registration == muster.Approved && s.anyDisk(func(old, next Disk) bool {
			if old.Planned {
				old.Policy, old.State = muster.DiskPolicyInService, muster.DiskInService
			}
			return old != next
		})
	}},
	{"a disk is adopted by a setup, or by an operator on a live node", func(s *step) bool {
		return s.anyDisk(func(old, next Disk) bool {
			return old.State != muster.DiskInService && next.State == muster.DiskInService
		}) &&
			!(s.leaves(muster.SettingUp) || s.e == AdoptDisk && s.info.By == Operator && stays(s.old))
	}},
	{"each disk verb does what it says", func(s *step) bool {
		if s.info.Subject != Disks || s.already() {
			return false
		}
		old, next := s.disk()
		want := old
		switch s.e {
		case AdoptDisk:
			want.Policy, want.State = muster.DiskPolicyInService, muster.DiskInService
		case RemoveDisk:
			want.Policy = muster.DiskPolicyGracefulRemove
		case KeepDisk:
			want.Policy = muster.DiskPolicyInService
		case ExpungeDisk:
			want.Policy = muster.DiskPolicyExpunged
		case DecommissionDisk:
			want.State = muster.DiskDecommissioned
		}
		return next != want || s.e != AdoptDisk && old.State != muster.DiskInService || s.e == KeepDisk && old.Policy == muster.DiskPolicyExpunged
	}},
	{"a disk is decommissioned when it was told to leave and its host confirmed", func(s *step) bool {
		if s.e != DecommissionDisk || s.already() {
			return false
		}
		old, _ := s.disk()
		return !s.f.HostConfirmed || old.Policy == muster.DiskPolicyInService
	}},
	{"repeating is success without change, or refused", func(s *step) bool {
		again, ok, _ := s.rules.step(s.next, s.info, s.m, s.f)
		return ok && !again.Equal(*s.next)
	}},
	{"repeating what an operator may repeat is success", func(s *step) bool {
		if !slices.Contains(repeatable, s.e) {
			return false
		}
		_, ok, _ := s.rules.step(s.next, s.info, s.m, &Facts{Epoch: true, Proof: true, SameMachine: true})
		return !ok
	}},
}

// after is what must be true once an event was accepted, be it new or a
// repetition.
var after = map[muster.Event]func(s *State, m int) bool{
	Register:      registered(muster.Pending),
	Approve:       registered(muster.Approved),
	Deliver:       func(s *State, _ int) bool { return s.Credential == Live },
	Announce:      func(s *State, _ int) bool { return s.Registration != NoRegistration },
	Survey:        registered(muster.AwaitingSetup),
	ApproveSetup:  registered(muster.SettingUp),
	Take:          func(s *State, _ int) bool { return s.Bundle == BundleTaken && s.Credential == Live },
	SetupComplete: registered(muster.Approved),
	Refresh:       registered(muster.Approved),
	SetupFailed:   registered(muster.AwaitingSetup),
	Void:          registered(muster.AwaitingSetup),
	Expire:        registered(muster.AwaitingSetup),
	CancelSetup:   registered(muster.AwaitingSetup),
	Disable:       registered(muster.Disabled),
	FactoryReset:  registered(muster.AwaitingSetup),
	Delete:        registered(NoRegistration),
	Readmit:       func(s *State, _ int) bool { return s.Tombstone == NoTombstone },
	ExpireCode:    func(s *State, _ int) bool { return s.Claim == NoClaim },
	ExpireKey:     registered(muster.Disabled),

	Sight:        func(s *State, m int) bool { return s.Boots[m].State != Unseen },
	SetRecord:    func(s *State, m int) bool { return s.Boots[m].State != Unseen },
	Admit:        recorded(muster.Enrolling),
	Enroll:       recorded(muster.Enrolling),
	Decommission: recorded(muster.BootDecommissioned),
	Reactivate:   recorded(Unseen, muster.Discovered),
	StartProbe:   func(s *State, m int) bool { return s.Boots[m].Probe == ProbeOn },
	Dismiss:      func(s *State, m int) bool { return s.Boots[m].Probe == ProbeOff },
	ExpireProbe:  func(s *State, m int) bool { return s.Boots[m].Probe == ProbeOff },
	RescueOn:     func(s *State, m int) bool { return modeOf(s.Boots[m]) == muster.RescueMode },
	RescueOff:    func(s *State, m int) bool { return modeOf(s.Boots[m]) == muster.NormalMode },
	ExpireRescue: func(s *State, m int) bool { return modeOf(s.Boots[m]) == muster.NormalMode },
	Pin:          func(s *State, m int) bool { return s.Boots[m].Assigned == Assigned },
	Unpin:        func(s *State, m int) bool { return s.Boots[m].Assigned == NoImage },

	Confirm:          func(s *State, _ int) bool { return s.NodeState == muster.NodeInService },
	Quiesced:         func(s *State, _ int) bool { return s.NodeState == muster.NodeQuiesced },
	Resumed:          func(s *State, _ int) bool { return s.NodeState == muster.NodeInService },
	DecommissionNode: func(s *State, _ int) bool { return s.NodeState == muster.NodeDecommissioned },
	NoProvision:      func(s *State, _ int) bool { return s.NodePolicy == muster.PolicyNoProvision },
	Quiesce:          func(s *State, _ int) bool { return s.NodePolicy == muster.PolicyQuiesce },
	Resume:           func(s *State, _ int) bool { return s.NodePolicy == muster.PolicyInService },
	GracefulRemove:   func(s *State, _ int) bool { return s.NodePolicy == muster.PolicyGracefulRemove },
	Expunge:          func(s *State, _ int) bool { return s.NodePolicy == muster.PolicyExpunged },

	AdoptDisk:        func(s *State, m int) bool { return s.Disks[m].Policy == muster.DiskPolicyInService },
	RemoveDisk:       func(s *State, m int) bool { return s.Disks[m].Policy == muster.DiskPolicyGracefulRemove },
	KeepDisk:         func(s *State, m int) bool { return s.Disks[m].Policy == muster.DiskPolicyInService },
	ExpungeDisk:      func(s *State, m int) bool { return s.Disks[m].Policy == muster.DiskPolicyExpunged },
	DecommissionDisk: func(s *State, m int) bool { return s.Disks[m].State == muster.DiskDecommissioned },
}

func registered(r muster.RegistrationState) func(*State, int) bool {
	return func(s *State, _ int) bool { return s.Registration == r }
}

func recorded(bs ...muster.BootState) func(*State, int) bool {
	return func(s *State, m int) bool { return slices.Contains(bs, s.Boots[m].State) }
}

// mustEnd are the states that are no rest: how long each may last (0: until
// the control plane's next pass), and how an operator gets out before.
var mustEnd = map[string]struct {
	after time.Duration
	out   muster.Event
}{
	"registration/setting_up":     {45 * time.Minute, CancelSetup},
	"credential/reserved":         {45 * time.Minute, CancelSetup},
	"bundle/ready":                {45 * time.Minute, CancelSetup},
	"bundle/taken":                {45 * time.Minute, CancelSetup},
	"claim code/open":             {time.Hour, Disable},
	"credential/undelivered":      {time.Hour, Disable},
	"probe/on":                    {15 * time.Minute, Enroll},
	"mode/rescue":                 {4 * time.Hour, RescueOff},
	"node policy/graceful_remove": {0, Resume},
	"node policy/expunged":        {0, ""},
	"disk policy/graceful_remove": {0, KeepDisk},
	"disk policy/expunged":        {0, ""},
}

// mayRaise is the word of whom each event is.
var mayRaise = map[Actor][]muster.Event{
	Operator: {Approve, ApproveSetup, CancelSetup, Disable, FactoryReset, Delete, Readmit,
		SetRecord, Enroll, Decommission, Reactivate, RescueOn, RescueOff, Pin, Unpin,
		NoProvision, Quiesce, Resume, GracefulRemove, Expunge, AdoptDisk, RemoveDisk, KeepDisk, ExpungeDisk},
	Anonymous: {Register},
	Poller:    {Deliver},
	Booter:    {Announce, Survey, Take, SetupComplete, SetupFailed, Sight},
	Host:      {Refresh},
	Clock:     {Expire, ExpireCode, ExpireKey, ExpireProbe, ExpireRescue},
	Control:   {Void, Admit, StartProbe, Dismiss, Confirm, Quiesced, Resumed, DecommissionNode, DecommissionDisk},
}

// repeatable are the events whose repetition, by people or by programs that
// lost the answer, must succeed whatever else is so.
var repeatable = []muster.Event{CancelSetup, Disable, FactoryReset, Delete, Readmit, SetRecord, Enroll, Decommission, Reactivate,
	RescueOn, RescueOff, Pin, Unpin, NoProvision, Quiesce, Resume, GracefulRemove, Expunge, AdoptDisk, RemoveDisk, KeepDisk, ExpungeDisk,
	Announce, Sight, SetupComplete, SetupFailed, Register, Admit, StartProbe, Dismiss, DecommissionNode, DecommissionDisk, Confirm, Quiesced, Resumed}

// already tells whether the step was the repetition of what had been done.
func (s *step) already() bool {
	owner := s.rules.hearing[s.e][0]
	row, _ := owner.l.match(owner.rows, s.old, s.m, s.f)
	return row != nil && row.Already
}

func modeOf(b Boot) muster.BootMode {
	if b.Mode == "" {
		return muster.NormalMode
	}
	return b.Mode
}

// possible says what must not be refused.
var possible = []stepPromise{
	{"a machine may ask to be let in unless it is known and alive, or tombstoned", func(s *step) bool {
		return s.e == Register && s.old.Tombstone == NoTombstone && among(s.old.Registration, NoRegistration, muster.Pending, muster.Disabled)
	}},
	{"an open claim code can be approved", func(s *step) bool {
		return s.e == Approve && s.old.Claim == ClaimOpen && s.f.Code
	}},
	{"an announcement is ruled for every state", func(s *step) bool {
		return s.e == Announce && s.f.SameMachine && (s.old.Registration != NoRegistration || s.old.Tombstone == NoTombstone)
	}},
	{"a machine that waits can be surveyed", func(s *step) bool {
		return s.e == Survey && s.old.Registration == muster.AwaitingSetup && s.f.Session
	}},
	{"a machine that waits can be set up", func(s *step) bool {
		return s.e == ApproveSetup && s.old.Registration == muster.AwaitingSetup && s.f.SessionAlive && s.f.Surveyed && s.f.Layout && s.f.PlanSeen && s.f.Confirmed
	}},
	{"an approved bundle can be taken", func(s *step) bool {
		return s.e == Take && s.old.Bundle == BundleReady && s.f.Epoch && s.f.Session
	}},
	{"a proved setup is complete", func(s *step) bool {
		return s.e == SetupComplete && s.f.Epoch && s.f.Proof && (s.old.Bundle == BundleTaken || s.old.Registration == muster.Approved)
	}},
	{"an installed machine's own key completes its setup, and refreshes it ever after", func(s *step) bool {
		return s.e == Refresh && s.old.Credential == Live && (s.f.Epoch || s.old.Registration == muster.Approved)
	}},
	{"a failure can be reported, before and after the bundle was taken, and again", func(s *step) bool {
		return s.e == SetupFailed && s.f.Epoch && among(s.old.Registration, muster.SettingUp, muster.AwaitingSetup)
	}},
	{"an impostor voids a setup", func(s *step) bool {
		return s.e == Void && s.old.Registration == muster.SettingUp && s.f.OtherSession && (s.old.Bundle == BundleReady || s.f.OtherKey)
	}},
	{"a setup can always be given up", func(s *step) bool {
		return (s.e == CancelSetup || s.e == Expire && s.f.Overdue) && s.old.Registration == muster.SettingUp
	}},
	{"a machine that is in, or asks to be, can be disabled", func(s *step) bool {
		return s.e == Disable && among(s.old.Registration, muster.Pending, muster.Approved, muster.Disabled)
	}},
	{"a machine out of service can be deleted when nothing is placed on it; an absent one always", func(s *step) bool {
		return s.e == Delete && (s.old.Registration == NoRegistration || s.f.NothingPlaced && among(s.old.Registration, muster.Pending, muster.AwaitingSetup, muster.Disabled))
	}},
	{"a machine in or out of service can be sent back to its first boot", func(s *step) bool {
		return s.e == FactoryReset && among(s.old.Registration, muster.Approved, muster.Disabled) && s.f.NothingPlaced && s.f.EnrollmentPI && s.old.Tombstone == NoTombstone
	}},
	{"a tombstone can be lifted once the node is gone", func(s *step) bool { return s.e == Readmit && gone(s.old) }},
	{"every NIC can be seen, set, rescued and decommissioned, whatever its state", func(s *step) bool {
		return s.is(Sight, SetRecord, RescueOn, RescueOff, Pin, Decommission)
	}},
	{"an image can be taken off a record that does not need it", func(s *step) bool {
		if s.e != Unpin {
			return false
		}
		old, _ := s.boot()
		return old.State != muster.Enrolled
	}},
	{"a decommissioned NIC can be reactivated, unless its machine has a tombstone", func(s *step) bool {
		if s.e != Reactivate {
			return false
		}
		old, _ := s.boot()
		return among(old.State, Unseen, muster.Discovered) || old.State == muster.BootDecommissioned && s.old.Tombstone == NoTombstone
	}},
	{"a discovered NIC can be enrolled, by policy and by hand", func(s *step) bool {
		if !s.is(Admit, Enroll) {
			return false
		}
		old, _ := s.boot()
		return (old.State == muster.Discovered || s.e == Enroll && old.State == Unseen) && (s.e == Enroll || s.f.AutoEnroll && s.f.OnAllowlist) &&
			(old.Address == AddressReserved || s.f.NetworkKnown && s.f.AddressFree)
	}},
	{"a discovered NIC can be probed, and dismissed", func(s *step) bool {
		if !s.is(StartProbe, Dismiss) {
			return false
		}
		old, _ := s.boot()
		if s.e == Dismiss {
			return old.Probe == ProbeOn && !s.f.OnAllowlist
		}
		return old.State == muster.Discovered && s.f.AutoEnroll && s.f.TagWanted && (old.Address == AddressReserved || s.f.NetworkKnown && s.f.AddressFree)
	}},
	{"a node that is there can be told anything but to come back from expunged", func(s *step) bool {
		return !gone(s.old) && (s.e == Expunge || s.is(NoProvision, Quiesce, GracefulRemove) && among(s.old.NodePolicy, muster.PolicyInService, muster.PolicyNoProvision, muster.PolicyQuiesce) ||
			s.e == Resume && s.old.NodePolicy != muster.PolicyExpunged)
	}},
	{"a node's inventory can confirm it", func(s *step) bool {
		return s.e == Confirm && s.f.Inventory && s.old.NodeState == muster.NodeInitializing && s.old.Credential == Live
	}},
	{"a node told to quiesce can, and told to serve can", func(s *step) bool {
		return s.e == Quiesced && !gone(s.old) && s.old.NodePolicy == muster.PolicyQuiesce && s.f.NothingRuns ||
			s.e == Resumed && s.old.NodeState == muster.NodeQuiesced && among(s.old.NodePolicy, muster.PolicyInService, muster.PolicyNoProvision)
	}},
	{"a node that leaves and holds nothing can be decommissioned", func(s *step) bool {
		return s.e == DecommissionNode && !gone(s.old) && s.f.NothingPlaced && among(s.old.NodePolicy, muster.PolicyExpunged, muster.PolicyGracefulRemove)
	}},
	{"a disk can be adopted on a live node, removed, kept, expunged, decommissioned", func(s *step) bool {
		if s.info.Subject != Disks {
			return false
		}
		old, _ := s.disk()
		live := old.State == muster.DiskInService
		switch s.e {
		case AdoptDisk:
			return stays(s.old) && !live || old.Policy == muster.DiskPolicyInService
		case RemoveDisk, KeepDisk:
			return live && old.Policy != muster.DiskPolicyExpunged
		case ExpungeDisk:
			return live
		case DecommissionDisk:
			return live && old.Policy != muster.DiskPolicyInService && s.f.HostConfirmed
		}
		return false
	}},
}

// always says what stays within reach from every state.
var always = []alwaysPromise{
	{"every machine can be approved", func(s *State) bool { return s.Registration == muster.Approved && s.Credential == Live }, nil},
	{"every machine can be forgotten", func(s *State) bool { return s.Registration == NoRegistration && s.Tombstone == NoTombstone }, nil},
	{"every node can be out of service for good", func(s *State) bool { return s.NodeState == muster.NodeDecommissioned }, nil},
	{"every NIC can be enrolled for this machine", func(s *State) bool {
		return len(s.Boots) == 0 || s.Boots[0].State == muster.Enrolled && s.Boots[0].Bound == BoundHere
	}, nil},
	{"every NIC can be out of service", func(s *State) bool {
		return len(s.Boots) == 0 || s.Boots[0].State == muster.BootDecommissioned && modeOf(s.Boots[0]) == muster.NormalMode
	}, nil},
	{"every disk can be in service", func(s *State) bool { return len(s.Disks) == 0 || s.Disks[0].State == muster.DiskInService }, nil},
}
