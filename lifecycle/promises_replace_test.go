package lifecycle

import "muster.internal"

// What is promised when one node goes on in other hardware. Never two live
// registrations of one node: whoever it leaves has neither node nor key, and
// whoever takes it over had neither.
var replaceSteps = []stepPromise{
	{"the hardware that a node leaves is out at once: no key, no node, no disk, no code, no image", func(s *step) bool {
		if s.e != Supersede {
			return false
		}
		want := s.next.clone() // its records have a promise of their own
		want.Registration, want.Credential, want.Claim, want.Image, want.Past = muster.Disabled, NoCredential, NoClaim, NoImage, WasDisabled
		want.NodePolicy, want.NodeState = NoPolicy, NoNode
		want.Bundle, want.Tombstone, want.Machine = s.old.Bundle, s.old.Tombstone, s.old.Machine
		for i := range want.Disks {
			want.Disks[i].Policy, want.Disks[i].State = NoDiskPolicy, NoDisk
		}
		return !s.next.Equal(want)
	}},
	{"a node leaves its hardware by a token that names it, and only a node that is there and was not expunged", func(s *step) bool {
		left := !gone(s.old) && s.next.NodeState == NoNode
		return (left || s.e == Supersede) && !(left && s.e == Supersede && s.info.By == Redeemer && s.f.TokenGood && s.f.MayReplace &&
			s.old.Tombstone == NoTombstone && s.old.NodePolicy != muster.PolicyExpunged)
	}},
	{"other hardware takes a node over by a good token, on good evidence, if it has no node and no key", func(s *step) bool {
		want := *s.old
		want.Registration, want.Credential, want.Claim, want.Past, want.Machine = muster.Approved, Live, NoClaim, NoPast, muster.MachineKnown
		want.NodePolicy, want.NodeState = brought(s.f), muster.NodeInitializing
		return s.e == TakeOver && !(s.info.By == Redeemer && s.f.TokenGood && s.f.SameMachine && s.old.Tombstone == NoTombstone &&
			gone(s.old) && s.old.Credential == NoCredential && s.next.Equal(want))
	}},
}

// brought is what an operator wants of the node that comes with the token.
func brought(f *Facts) muster.NodePolicy {
	switch {
	case f.ComesRemoved:
		return muster.PolicyGracefulRemove
	case f.ComesQuiesced:
		return muster.PolicyQuiesce
	case f.ComesKept:
		return muster.PolicyNoProvision
	}
	return muster.PolicyInService
}

var replacePossible = []stepPromise{
	{"a node that is there can go on in other hardware, whatever its policy but expunged", func(s *step) bool {
		return s.e == Supersede && !gone(s.old) && s.old.Tombstone == NoTombstone && s.f.TokenGood && s.f.MayReplace
	}},
	{"hardware without a node can take one over", func(s *step) bool {
		return s.e == TakeOver && gone(s.old) && s.old.Tombstone == NoTombstone && s.f.TokenGood && s.f.SameMachine &&
			among(s.old.Registration, NoRegistration, muster.Pending, muster.Disabled)
	}},
}
