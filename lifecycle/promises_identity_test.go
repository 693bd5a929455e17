package lifecycle

import "muster.internal"

func waits(m muster.MachineState) func(*State, int) bool {
	return func(s *State, _ int) bool { return s.Machine == m }
}

// What is promised of evidence and of noise.
var identitySteps = []stepPromise{
	{"whatever is done about a newcomer moves nothing else", func(s *step) bool {
		if s.info.Subject != Machines {
			return false
		}
		rest := s.next.clone()
		rest.Machine = s.old.Machine
		return !rest.Equal(*s.old)
	}},
	{"nothing is done about a machine that is not there", func(s *step) bool {
		return s.info.Subject == Machines && s.e != Contest && s.old.Machine == NoMachine
	}},
	{"a newcomer waits only where there is no registration, and because the control plane says so", func(s *step) bool {
		return s.old.Machine != muster.MachineConflict && s.next.Machine == muster.MachineConflict &&
			!(s.e == Contest && s.info.By == Control && s.old.Registration == NoRegistration)
	}},
	{"a newcomer's wait ends by an operator, by the clock, or when nothing speaks against it any more", func(s *step) bool {
		if s.old.Machine != muster.MachineConflict || s.next.Machine == muster.MachineConflict {
			return false
		}
		switch s.e {
		case Accept, MoveNIC:
			return s.info.By != Operator || !s.f.CaseAllows || !s.f.Incumbent
		case Separate:
			return s.info.By != Operator || !s.f.CaseAllows || !s.f.OwnUUID
		case Forget:
			return s.info.By != Operator
		case ExpireConflict:
			return s.info.By != Clock || !s.f.Overdue
		case Announce, Register, Redeem, TakeOver:
			return !s.f.SameMachine
		}
		return true
	}},
	{"a known machine's oddity is resolved by an operator alone, only if there is one, and a card is taken only from a machine that is there", func(s *step) bool {
		return s.is(Accept, Separate, MoveNIC, Forget) && s.old.Machine == muster.MachineKnown &&
			(s.info.By != Operator || !s.f.CaseAllows || s.e == MoveNIC && !s.f.Incumbent || s.next.Machine != muster.MachineKnown)
	}},
	{"a registration is never given to hardware that is another's", func(s *step) bool {
		return s.is(Register, Redeem, Announce, TakeOver) && !s.f.SameMachine
	}},
	{"a machine lapses unapproved, overdue, without node and without a record of its own", func(s *step) bool {
		if s.e != Lapse {
			return false
		}
		bound := s.anyBoot(func(old, _ Boot) bool { return old.Bound == BoundHere })
		touched := s.anyBoot(func(old, next Boot) bool { return old != next })
		return bound || touched || !s.f.Overdue || !gone(s.old) || s.old.Past != NoPast || !among(s.old.Registration, muster.Pending, muster.AwaitingSetup) ||
			s.info.By != Clock || s.next.Claim != NoClaim || s.next.Image != NoImage || s.next.Tombstone != s.old.Tombstone
	}},
	{"a card that is forgotten was nobody's, and nobody wanted it; its address is free", func(s *step) bool {
		if s.e != ExpireRecord {
			return false
		}
		old, next := s.boot()
		want := Boot{State: old.State, Mode: old.Mode, Address: old.Address}
		return old != want || modeOf(old) != muster.NormalMode || !among(old.State, muster.Discovered, muster.Enrolling) ||
			next != Boot{Mode: old.Mode} || !s.f.Overdue || !s.f.Unwanted || s.info.By != Clock
	}},
}

var identityPossible = []stepPromise{
	{"a newcomer can wait wherever there is no registration", func(s *step) bool {
		return s.e == Contest && s.old.Registration == NoRegistration
	}},
	{"a newcomer can be forgotten, by hand and by the clock", func(s *step) bool {
		return s.old.Machine == muster.MachineConflict && (s.e == Forget || s.e == ExpireConflict && s.f.Overdue)
	}},
	{"a newcomer whose case allows it can be accepted, separated, and given the card", func(s *step) bool {
		return s.old.Machine == muster.MachineConflict && s.f.CaseAllows && (s.is(Accept, MoveNIC) && s.f.Incumbent || s.e == Separate && s.f.OwnUUID)
	}},
	{"what is odd about a known machine can be resolved as its case says", func(s *step) bool {
		return s.old.Machine == muster.MachineKnown && s.f.CaseAllows && (s.is(Accept, Separate, Forget) || s.e == MoveNIC && s.f.Incumbent)
	}},
	{"a card that was seen can join its machine", func(s *step) bool {
		return s.e == JoinCard && s.old.Boots[s.m].State != Unseen
	}},
	{"a machine that nobody approved can lapse", func(s *step) bool {
		return s.e == Lapse && s.f.Overdue && gone(s.old) && s.old.Past == NoPast && among(s.old.Registration, muster.Pending, muster.AwaitingSetup) &&
			!s.anyBoot(func(old, _ Boot) bool { return old.Bound == BoundHere })
	}},
	{"a card that nobody wanted can be forgotten", func(s *step) bool {
		if s.e != ExpireRecord || !s.f.Overdue || !s.f.Unwanted {
			return false
		}
		old, _ := s.boot()
		return among(old.State, muster.Discovered, muster.Enrolling) && old.Bound == Unbound && modeOf(old) == muster.NormalMode && old.Assigned == NoImage && old.Probe == ProbeOff
	}},
}
