package lifecycle

import (
	"muster.internal"
)

// What is promised of steps that move nodes and disks.
var nodeSteps = []stepPromise{
	{"a node is made, or found again, when its machine becomes approved", func(s *step) bool {
		if !s.enters(muster.Approved) || s.e == TakeOver {
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
		return s.old.NodePolicy != s.next.NodePolicy && s.info.By != Operator && !(s.enters(muster.Approved) && gone(s.old)) && s.e != Supersede
	}},
	{"a node's state is the control plane's: only joints and its own reports change it", func(s *step) bool {
		return s.old.NodeState != s.next.NodeState && s.info.By != Control && !s.enters(muster.Approved) && !s.is(FactoryReset, Delete, Supersede)
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
		return s.e == DecommissionNode && !s.already() && !(s.f.NothingPlaced && s.f.Unclaimed && among(s.old.NodePolicy, muster.PolicyExpunged, muster.PolicyGracefulRemove) &&
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
		return s.e == Quiesced && !s.already() && !(s.f.NothingRuns && s.f.Unclaimed && s.old.NodePolicy == muster.PolicyQuiesce && s.next.NodeState == muster.NodeQuiesced)
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
}
