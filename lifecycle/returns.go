package lifecycle

import "muster.internal"

// A Return says as what node a machine would come in, if it were let in as
// things are: the one rule of re-enrolling, for every door.
type Return string

const (
	AsNew  Return = "new_node"  // it has no node, or one that is decommissioned
	AsSame Return = "same_node" // its node is there still: placements, disks and labels are kept
	// AsReplacement is other hardware that takes a node over, by a token that
	// names it. Returns never says so: it looks at one machine.
	AsReplacement   Return = "replaces_hardware"
	RefusedLive     Return = "refused_live"
	RefusedExpunged Return = "refused_expunged"
)

// Refused tells that it would not come in at all.
func (r Return) Refused() bool { return r == RefusedLive || r == RefusedExpunged }

// Returns is the rule. Named says that an operator's token names the machine's
// live node. A machine that is being installed, or waits for it, comes in by
// its setup alone.
func Returns(s State, named bool) Return {
	switch {
	case s.Tombstone == Tombstoned:
		return RefusedExpunged
	case s.Registration == muster.Approved && !named:
		return RefusedLive
	case nodeLive.holds(&s, -1, nil):
		return AsSame
	}
	return AsNew
}
