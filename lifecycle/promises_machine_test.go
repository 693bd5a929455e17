package lifecycle

import (
	"muster.internal"
)

// What is promised of steps that move a registration and what hangs on it.
var machineSteps = []stepPromise{
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
	{"a key comes alive when it is delivered: bundle taken, or polled for, or a token redeemed", func(s *step) bool {
		return s.old.Credential != Live && s.next.Credential == Live && !s.is(Take, Deliver, Redeem, TakeOver)
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
			s.e == CancelSetup && s.info.By == Operator || s.e == Void && s.info.By == Control && (s.f.OtherSession || s.f.SessionOver))
	}},
	{"a machine that comes back with its own key after the bundle was taken does not void its setup", func(s *step) bool {
		return s.e == Void && s.old.Bundle == BundleTaken && !s.f.OtherKey
	}},
	{"the end of a bus session after the bundle was taken does not void a setup", func(s *step) bool {
		return s.e == Void && s.old.Bundle == BundleTaken && !s.f.OtherSession
	}},
	{"a machine becomes approved by its claim code, its token, a window, or its setup", func(s *step) bool {
		return s.enters(muster.Approved) && !(s.old.Registration == muster.SettingUp || s.e == Approve && s.info.By == Operator && s.old.Registration == muster.Pending ||
			s.is(Redeem, TakeOver) && s.info.By == Redeemer || s.e == Register && s.info.By == Anonymous)
	}},
	{"a window lets in a machine that nobody knew, or that waits, and none that was ever disabled or expunged", func(s *step) bool {
		return s.e == Register && s.enters(muster.Approved) && !(s.f.WindowOpen && s.old.Past == NoPast && s.old.Tombstone == NoTombstone &&
			among(s.old.Registration, NoRegistration, muster.Pending) && gone(s.old) && s.next.Claim == NoClaim && s.next.Credential == Undelivered)
	}},
	{"an open window lets in every machine that it may", func(s *step) bool {
		return s.e == Register && s.f.WindowOpen && s.old.Past == NoPast && s.old.Registration != muster.Disabled && !s.enters(muster.Approved)
	}},
	{"a token lets in a machine that waits or is out, on good evidence, once, with its key", func(s *step) bool {
		want := *s.old
		want.Registration, want.Credential, want.Claim, want.Past, want.Machine = muster.Approved, Live, NoClaim, NoPast, muster.MachineKnown
		want.NodePolicy, want.NodeState = s.next.NodePolicy, s.next.NodeState
		return s.e == Redeem && !(s.info.By == Redeemer && s.f.TokenGood && s.f.SameMachine && s.old.Tombstone == NoTombstone && s.next.Equal(want) &&
			(among(s.old.Registration, NoRegistration, muster.Pending, muster.Disabled) ||
				s.f.MayReplace && s.old.Registration == muster.Approved && s.next.NodePolicy == s.old.NodePolicy && s.next.NodeState == s.old.NodeState))
	}},
	{"a machine comes in as the node that people were told", func(s *step) bool {
		if s.old.Registration != muster.Approved && !s.enters(muster.Approved) || !s.is(Register, Redeem, Approve, SetupComplete, Refresh) || s.e == Refresh && !s.enters(muster.Approved) || s.already() {
			return false
		}
		was, is := Returns(*s.old, s.f.MayReplace), s.next.NodeState == s.old.NodeState && s.next.NodePolicy == s.old.NodePolicy
		return was.Refused() || (was == AsSame) != is
	}},
	{"who would be refused is refused", func(s *step) bool {
		return s.is(Register, Redeem, Approve) && Returns(*s.old, s.f.MayReplace).Refused()
	}},
	{"what was disabled is forgotten by a person's word alone", func(s *step) bool {
		return s.old.Past == WasDisabled && s.next.Past == NoPast && !(s.is(Approve, ApproveSetup, Delete) && s.info.By == Operator || s.is(Redeem, TakeOver))
	}},
	{"a claim code is approved once, while it is open, and leaves a key to fetch", func(s *step) bool {
		return s.e == Approve && !(s.old.Claim == ClaimOpen && s.f.Code && s.next.Claim == NoClaim && s.next.Credential == Undelivered && s.next.Registration == muster.Approved)
	}},
	{"an anonymous machine moves itself to pending, or by a window to approved, and nothing else", func(s *step) bool {
		want := *s.old
		want.Registration, want.Claim, want.Machine = muster.Pending, ClaimOpen, muster.MachineKnown
		if s.enters(muster.Approved) {
			want.Registration, want.Claim, want.Credential = muster.Approved, NoClaim, Undelivered
			want.NodePolicy, want.NodeState = muster.PolicyInService, muster.NodeInitializing
		}
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
			want.Registration, want.Machine = muster.AwaitingSetup, muster.MachineKnown
		}
		return s.e == Announce && !(s.next.Equal(want) && s.f.SameMachine && (s.f.Admitted || s.old.Registration != NoRegistration) && s.old.Tombstone == NoTombstone)
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
		return s.is(Disable, FactoryReset, Delete, Expunge, DecommissionNode, Supersede) && !s.already() &&
			!(s.next.Credential == NoCredential && s.next.Bundle == NoBundle && s.next.Claim == NoClaim)
	}},
	{"disabling keeps everything but key and code", func(s *step) bool {
		want := *s.old
		want.Registration, want.Credential, want.Claim, want.Past = muster.Disabled, NoCredential, NoClaim, WasDisabled
		return s.e == Disable && !(s.next.Equal(want) && s.info.By == Operator)
	}},
	{"a key that nobody fetched leaves a disabled machine", func(s *step) bool {
		want := *s.old
		want.Registration, want.Credential, want.Past = muster.Disabled, NoCredential, WasDisabled
		return s.e == ExpireKey && !(s.old.Credential == Undelivered && s.next.Equal(want))
	}},
	{"a claim code that nobody approved is dead, and that is all", func(s *step) bool {
		want := *s.old
		want.Claim = NoClaim
		return s.e == ExpireCode && !(s.old.Claim == ClaimOpen && s.next.Equal(want))
	}},
	{"a factory reset needs an operator, a node with nothing on it, on its way to it or foreign, an enrollment image, and no tombstone", func(s *step) bool {
		return s.e == FactoryReset && !s.already() && !(s.info.By == Operator && mayReset(s.f) && s.old.Tombstone == NoTombstone &&
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
		return s.e == Delete && !s.already() && !(s.info.By == Operator && s.f.NothingPlaced && s.f.Unclaimed && among(s.old.Registration, muster.Pending, muster.AwaitingSetup, muster.Disabled) &&
			s.next.Registration == NoRegistration && gone(s.next))
	}},
	{"when a machine ends, its records serve nothing", func(s *step) bool {
		return s.is(Delete, Expunge, DecommissionNode, Supersede) && !s.already() && s.anyBoot(func(old, next Boot) bool {
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
	{"a machine that nobody knew waits for an operator first, unless an operator opened a door", func(s *step) bool {
		return s.leaves(NoRegistration) && !among(s.next.Registration, muster.Pending, muster.AwaitingSetup) && !(s.next.Registration == muster.Approved && s.is(Register, Redeem, TakeOver))
	}},
	{"a registration ends only by delete, or lapses unapproved", func(s *step) bool {
		return s.next.Registration == NoRegistration && s.old.Registration != NoRegistration && !s.is(Delete, Lapse)
	}},
	{"a machine is disabled by an operator, by a key unfetched, or because its node left or went on in other hardware", func(s *step) bool {
		return s.enters(muster.Disabled) && !s.is(Disable, ExpireKey, Expunge, DecommissionNode, Supersede)
	}},
	{"a tombstone comes with expunge and goes with an operator's readmit, once the node is gone", func(s *step) bool {
		return s.old.Tombstone != s.next.Tombstone && !(s.e == Expunge && s.next.Tombstone == Tombstoned ||
			s.e == Readmit && s.info.By == Operator && s.next.Tombstone == NoTombstone && gone(s.old))
	}},
	{"nobody is readmitted who was not expunged", func(s *step) bool { return s.e == Readmit && s.old.Tombstone != Tombstoned }},
	{"readmit changes nothing else", func(s *step) bool {
		want := *s.old
		want.Tombstone = NoTombstone
		return s.e == Readmit && !s.next.Equal(want)
	}},
}

// mayReset is what has to be so outside for a factory reset.
func mayReset(f *Facts) bool {
	return f.NothingPlaced && f.Unclaimed && f.NoReservation && f.NoMove && f.Acknowledged && f.EnrollmentPI
}
