package lifecycle

import (
	"muster.internal"
)

// What is promised of steps that move boot records.
var recordSteps = []stepPromise{
	{"a record is enrolled by the end of a setup, or because an operator found the card in a machine that is set up, and bound to this machine", func(s *step) bool {
		return s.anyBoot(func(old, next Boot) bool {
			return old.State != muster.Enrolled && next.State == muster.Enrolled &&
				!(s.is(SetupComplete, Refresh) && old.State == muster.Enrolling && next.Bound == BoundHere || s.e == JoinCard && s.info.By == Operator)
		})
	}},
	{"a card joins a machine that is set up with what the machine's others have, unless it is another's, decommissioned or without an address", func(s *step) bool {
		if s.e != JoinCard {
			return false
		}
		old, next := s.boot()
		want := old
		if s.old.Image == Assigned && s.old.Registration != muster.SettingUp && among(old.State, muster.Discovered, muster.Enrolling) &&
			old.Address == AddressReserved && old.Bound == Unbound {
			want = Boot{muster.Enrolled, old.Mode, BoundHere, AddressReserved, Assigned, ProbeOff}
		}
		return next != want || s.info.By != Operator
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
	{"an address is given back only by the end of a probe, or with a card that nobody wanted", func(s *step) bool {
		return s.anyBoot(func(old, next Boot) bool { return old.Address == AddressReserved && next.Address != AddressReserved }) && !s.is(Dismiss, ExpireProbe, ExpireRecord)
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
}
