package lifecycle

import "muster.internal"

// One node goes on in other hardware, because an operator's token says so: two
// events in one transaction, Supersede for the machine that the node leaves and
// TakeOver for the one that it goes on in. The rows see one machine at a time;
// what keeps a node from being two machines is that neither half is ever
// written without the other.
const (
	Supersede muster.Event = "supersede"
	TakeOver  muster.Event = "take_over"
)

func replaceEvents() []Info {
	return []Info{
		{Supersede, Redeemer, Registrations, "registration", "", "its node goes on in other hardware, as an operator's token says: it is out, and without a node"},
		{TakeOver, Redeemer, Registrations, "registration", "", "come in as the node that a token names, whose hardware this replaces; the key is in the answer"},
	}
}

// What an operator wants of the node that comes with the token. Without any it
// may be given anything.
var (
	comesRemoved  = outside("comes to leave", "its node was told to leave", "its node was not told to leave", func(f *Facts) *bool { return &f.ComesRemoved })
	comesQuiesced = outside("comes to rest", "its node was told to quiesce", "its node was not told to quiesce", func(f *Facts) *bool { return &f.ComesQuiesced })
	comesKept     = outside("comes to be given nothing", "its node was told to take nothing new", "its node was not told to take nothing new", func(f *Facts) *bool { return &f.ComesKept })

	noOwnNode = inside("no node of its own", "it is no live node itself", "it is a live node itself: have that node decommissioned first, or issue the token for it",
		func(s *State, m int) bool { return nodeGone.holds(s, m, nil) })
)

func replaceRegistration() []row[muster.RegistrationState] {
	type R = row[muster.RegistrationState]
	return []R{
		{On: Supersede, From: in(muster.Pending, muster.Approved, muster.Disabled), Needs: all(untombstoned, nodeLive, tokenGood, mayReplace), To: muster.Disabled, Doc: "it may register again, as a new node"},
		{On: TakeOver, From: in(none, muster.Pending, muster.Disabled), Needs: all(untombstoned, sameMachine, tokenGood, noOwnNode), To: muster.Approved, Doc: "as the node that the token names; the key of the hardware before is dead"},
	}
}

func replacePolicy() []row[muster.NodePolicy] {
	type R = row[muster.NodePolicy]
	left := in(NoPolicy, muster.PolicyGracefulRemove, muster.PolicyExpunged)
	return []R{
		{On: Supersede, From: in(muster.PolicyInService, muster.PolicyNoProvision, muster.PolicyQuiesce, muster.PolicyGracefulRemove), To: NoPolicy, Doc: "the node is other hardware's"},
		{On: TakeOver, From: left, When: all(comesRemoved), To: muster.PolicyGracefulRemove, Doc: "an operator's wish comes with the node"},
		{On: TakeOver, From: left, When: all(not(comesRemoved), comesQuiesced), To: muster.PolicyQuiesce},
		{On: TakeOver, From: left, When: all(not(comesRemoved), not(comesQuiesced), comesKept), To: muster.PolicyNoProvision},
		{On: TakeOver, From: left, When: all(not(comesRemoved), not(comesQuiesced), not(comesKept)), To: muster.PolicyInService},
	}
}

func replaceNode() []row[muster.NodeState] {
	type R = row[muster.NodeState]
	return []R{
		{On: Supersede, From: in(muster.NodeInitializing, muster.NodeInService, muster.NodeQuiesced), To: NoNode, Doc: "the node is other hardware's"},
		{On: TakeOver, From: in(NoNode, muster.NodeDecommissioned), To: muster.NodeInitializing, Doc: "the node that the token names; the inventory of its new hardware is awaited"},
	}
}
