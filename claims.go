package muster

import (
	"context"
	"time"
)

// Claims are how other schedulers (Kubernetes, Nomad, a manager of virtual
// machines) say that they still need a node, or a disk. Quiescing and removing
// wait for them, and tell them to drain; an expunge does not wait.
//
// A claim is its maker's: who made it renews and releases it. One that is not
// renewed ends with its lease, whatever state it is in: no claim holds a node up
// for longer than the maker lives, and one lease.
type Claims interface {
	Claims(ctx context.Context, f ClaimFilter) ([]Claim, error)
	// Claim is one claim; with w it waits until its state is another one.
	Claim(ctx context.Context, id string, w ClaimWait) (Claim, error)
	// AddClaim claims a node or a disk. What its maker holds there already is
	// renewed.
	AddClaim(ctx context.Context, n NewClaim) (Claim, error)
	RenewClaim(ctx context.Context, id string, r ClaimRenewal) (Claim, error)
	// ReleaseClaim gives a claim up; what waits for it goes on.
	ReleaseClaim(ctx context.Context, id string) (Claim, error)
	// BreakClaim ends somebody else's claim, by an operator's word.
	BreakClaim(ctx context.Context, id string, b ClaimBreak) (Claim, error)
}

// ClaimState is how far a claim is.
type ClaimState string

const (
	// ClaimHeld and ClaimDraining end with the lease at the latest. The holder of
	// one that drains is to take away what it has there, and to release it.
	ClaimHeld     ClaimState = "held"
	ClaimDraining ClaimState = "draining"
	// ClaimReleased is over, and rests. Claim.Ended says how it came to that.
	ClaimReleased ClaimState = "released"
)

// ClaimStates lists every state.
var ClaimStates = []ClaimState{ClaimHeld, ClaimDraining, ClaimReleased}

// ClaimEnd is how a claim ended.
type ClaimEnd string

const (
	ClaimGivenUp ClaimEnd = "released" // by its maker
	ClaimExpired ClaimEnd = "expired"
	ClaimBroken  ClaimEnd = "broken" // by an operator
	// ClaimGone: the node or disk was expunged, or is in the fleet no more.
	ClaimGone ClaimEnd = "gone"
)

// How long a claim holds without being renewed.
const (
	ClaimLease    = 10 * time.Minute // if its maker does not say
	ClaimLeaseMin = 10 * time.Second
	ClaimLeaseMax = 24 * time.Hour
)

// A Claim is one scheduler's word that it still needs a node or a disk.
type Claim struct {
	ID     string     `json:"claim_id"`
	NodeID string     `json:"node_id"`
	DiskID string     `json:"disk_id,omitempty"` // empty: the whole node
	Holder string     `json:"holder"`            // which scheduler, for people: kubernetes/prod
	Reason string     `json:"reason,omitempty"`  // what it has there
	State  ClaimState `json:"state"`
	Since  time.Time  `json:"since"`         // it is in this state
	Why    string     `json:"why,omitempty"` // it drains, or ended
	Ended  ClaimEnd   `json:"ended,omitempty"`
	MadeAt time.Time  `json:"made_at"`
	MadeBy string     `json:"made_by"`
	// Lease is how long it holds after each renewal, ExpiresAt when that is over.
	Lease     int       `json:"lease_seconds"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Live tells whether something waits for it.
func (c Claim) Live() bool { return c.State != ClaimReleased }

// A NewClaim names a node or a disk. A holder has one claim on each.
type NewClaim struct {
	NodeID string `json:"node_id,omitempty"`
	DiskID string `json:"disk_id,omitempty"`
	Holder string `json:"holder"`
	Reason string `json:"reason,omitempty"`
	Lease  int    `json:"lease_seconds,omitempty"` // 0: ten minutes; at most a day
}

// A ClaimRenewal may change the length of the lease, and what the holder still
// has there.
type ClaimRenewal struct {
	Lease  int    `json:"lease_seconds,omitempty"` // 0: as it was
	Reason string `json:"reason,omitempty"`        // empty: as it was
}

// A ClaimBreak says why, to whoever asks later.
type ClaimBreak struct {
	Reason string `json:"reason"`
}

// A ClaimFilter with a zero field does not filter by it. Ended lists those that
// are over, too, as long as they are kept.
type ClaimFilter struct {
	NodeID string
	Holder string
	Ended  bool
}

// A ClaimWait waits up to Wait while a claim's state is Unless.
type ClaimWait struct {
	Unless ClaimState
	Wait   time.Duration
}
