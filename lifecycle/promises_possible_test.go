package lifecycle

import (
	"muster.internal"
)

// possible says what must not be refused.
var possible = []stepPromise{
	{"a machine may ask to be let in unless it is known and alive, or tombstoned", func(s *step) bool {
		return s.e == Register && s.f.SameMachine && s.old.Tombstone == NoTombstone && among(s.old.Registration, NoRegistration, muster.Pending, muster.Disabled)
	}},
	{"a good token lets in a machine that is not known, waits or is disabled, or whose node it names", func(s *step) bool {
		return s.e == Redeem && s.f.TokenGood && s.f.SameMachine && s.old.Tombstone == NoTombstone &&
			(among(s.old.Registration, NoRegistration, muster.Pending, muster.Disabled) || s.f.MayReplace && s.old.Registration == muster.Approved)
	}},
	{"an open claim code can be approved", func(s *step) bool {
		return s.e == Approve && s.old.Claim == ClaimOpen && s.f.Code
	}},
	{"an announcement is ruled for every state", func(s *step) bool {
		return s.e == Announce && s.f.SameMachine && s.old.Tombstone == NoTombstone && (s.old.Registration != NoRegistration || s.f.Admitted)
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
	{"an approval whose bus session ended before anything was sent over it is void", func(s *step) bool {
		return s.e == Void && s.old.Registration == muster.SettingUp && (s.f.SessionOver || s.f.OtherSession) && s.old.Bundle == BundleReady
	}},
	{"a setup can always be given up", func(s *step) bool {
		return (s.e == CancelSetup || s.e == Expire && s.f.Overdue) && s.old.Registration == muster.SettingUp
	}},
	{"a machine that is in, or asks to be, can be disabled", func(s *step) bool {
		return s.e == Disable && among(s.old.Registration, muster.Pending, muster.Approved, muster.Disabled)
	}},
	{"a machine out of service can be deleted when nothing is placed on it; an absent one always", func(s *step) bool {
		return s.e == Delete && (s.old.Registration == NoRegistration || s.f.NothingPlaced && s.f.Unclaimed && among(s.old.Registration, muster.Pending, muster.AwaitingSetup, muster.Disabled))
	}},
	{"a machine in or out of service can be sent back to its first boot", func(s *step) bool {
		return s.e == FactoryReset && among(s.old.Registration, muster.Approved, muster.Disabled) && mayReset(s.f) && s.old.Tombstone == NoTombstone
	}},
	{"a tombstone can be lifted once the node is gone", func(s *step) bool { return s.e == Readmit && s.old.Tombstone == Tombstoned && gone(s.old) }},
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
		return s.e == Quiesced && !gone(s.old) && s.old.NodePolicy == muster.PolicyQuiesce && s.f.NothingRuns && s.f.Unclaimed ||
			s.e == Resumed && s.old.NodeState == muster.NodeQuiesced && among(s.old.NodePolicy, muster.PolicyInService, muster.PolicyNoProvision)
	}},
	{"a node that leaves and holds nothing can be decommissioned", func(s *step) bool {
		return s.e == DecommissionNode && !gone(s.old) && s.f.NothingPlaced && s.f.Unclaimed && among(s.old.NodePolicy, muster.PolicyExpunged, muster.PolicyGracefulRemove)
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
