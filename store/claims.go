package store

import (
	"context"
	"strings"
	"sync"
	"time"

	"muster.internal"
)

const claimColumns = `
SELECT c.claim_id, c.node_id, c.disk_id, c.holder, c.reason, c.state, c.since, c.why, c.ended, c.made_at, c.made_by, c.lease_seconds, c.expires_at FROM claims c`

var (
	addClaim = define("claims/add", `
INSERT INTO claims (claim_id, node_id, disk_id, holder, reason, state, since, why, ended, made_at, made_by, lease_seconds, expires_at)
VALUES ($1, $2, $3, $4, $5, 'held', $6, '', '', $6, $7, $8, $9)`)
	setClaim   = define("claims/set", `UPDATE claims SET state = $2, since = $3, why = $4, ended = $5 WHERE claim_id = $1 AND state = $6`)
	renewClaim = define("claims/renew", `UPDATE claims SET lease_seconds = $2, expires_at = $3, reason = $4 WHERE claim_id = $1 AND state <> 'released'`)
	dropClaim  = define("claims/drop", `DELETE FROM claims WHERE claim_id = $1 AND state = 'released' AND since <= $2`)
	claimByID  = define("claims/get", claimColumns+` WHERE c.claim_id = $1`)
	claimsAll  = define("claims/all", claimColumns+` ORDER BY c.made_at, c.claim_id`)
	claimsLive = define("claims/live", claimColumns+` WHERE c.state <> 'released' ORDER BY c.node_id, c.disk_id, c.holder`)
	claimsOf   = define("claims/of", claimColumns+` WHERE c.node_id = $1 ORDER BY c.made_at, c.claim_id`)
	claimsDue  = define("claims/due", claimColumns+` WHERE c.state <> 'released' AND c.expires_at <= $1 ORDER BY c.expires_at, c.claim_id`)
	claimsOld  = define("clock/claims-old", `SELECT claim_id FROM claims WHERE state = 'released' AND since <= $1 ORDER BY since LIMIT 5000`)
	nodeWants  = define("claims/node", `SELECT policy, state FROM nodes WHERE node_id = $1`)
	disksWant  = define("claims/disks", `SELECT disk_id, policy, state FROM disks WHERE node_id = $1`)
)

// How the audit calls what happens to claims. A renewal is not among it: it
// changes nothing that anybody waits for.
const (
	ActionClaim        = "claim"
	ActionClaimDrain   = "drain_claim"
	ActionClaimKeep    = "keep_claim" // it is to drain no longer
	ActionClaimRelease = "release_claim"
	ActionClaimBreak   = "break_claim"
	ActionClaimExpire  = "expire_claim"
	ActionClaimEnd     = "end_claim" // with what it was on
)

func claimSubject(id string) string { return "claim/" + id }

func scanClaim(scan func(...any) error) (c muster.Claim, err error) {
	var since, made, expires int64
	err = scan(&c.ID, &c.NodeID, &c.DiskID, &c.Holder, &c.Reason, &c.State, &since, &c.Why, &c.Ended, &made, &c.MadeBy, &c.Lease, &expires)
	c.Since, c.MadeAt, c.ExpiresAt = fromMicro(since), fromMicro(made), fromMicro(expires)
	return c, err
}

func findClaims(from source, q *query, args ...any) (all []muster.Claim, err error) {
	all = []muster.Claim{}
	err = from.each(q, args, func(scan func(...any) error) error {
		c, err := scanClaim(scan)
		all = append(all, c)
		return err
	})
	return all, err
}

func findClaim(from source, id string) (muster.Claim, error) {
	all, err := findClaims(from, claimByID, id)
	if err == nil && len(all) == 0 {
		err = muster.Problemf(muster.CodeNotFound, "there is no claim %.64q; one that ended is kept for %d days", id, doorKeep/(24*time.Hour))
	}
	if err != nil {
		return muster.Claim{}, err
	}
	return all[0], nil
}

// Claims are those that somebody waits for, by node, or all that are kept.
func (s *Store) Claims(ctx context.Context, f muster.ClaimFilter) (all []muster.Claim, err error) {
	q, args := claimsLive, []any{}
	switch {
	case f.NodeID != "":
		q, args = claimsOf, []any{f.NodeID}
	case f.Ended:
		q = claimsAll
	}
	err = s.read(ctx, "listing claims", func(r *reading) error {
		found, err := findClaims(r, q, args...)
		all = []muster.Claim{}
		for _, c := range found {
			if (f.Ended || c.Live()) && (f.Holder == "" || f.Holder == c.Holder) {
				all = append(all, c)
			}
		}
		return err
	})
	return all, err
}

// Claim is one claim; one that has ended is kept for a while.
func (s *Store) Claim(ctx context.Context, id string) (c muster.Claim, err error) {
	err = s.read(ctx, "reading a claim", func(r *reading) error {
		c, err = findClaim(r, id)
		return err
	})
	return c, err
}

// waitedFor are the claims on a node, or on one of its disks, that its leaving
// waits for; once that is over, those that it did not wait for.
func waitedFor(all []muster.Claim, diskID string, over bool) []muster.Claim {
	found := []muster.Claim{}
	for _, c := range all {
		if c.DiskID == diskID && (c.Live() || over && c.Ended == muster.ClaimGone) {
			found = append(found, c)
		}
	}
	return found
}

// leaseOf is how long a claim is to hold; none: otherwise.
func leaseOf(seconds int, otherwise time.Duration) (time.Duration, error) {
	d := time.Duration(seconds) * time.Second
	if seconds == 0 {
		d = otherwise
	}
	if d < muster.ClaimLeaseMin || d > muster.ClaimLeaseMax {
		return 0, muster.Invalid("lease_seconds", "a claim holds for %s at least and %s at most, and is renewed", muster.ClaimLeaseMin, muster.ClaimLeaseMax)
	}
	return d, nil
}

func checkClaim(n muster.NewClaim) error {
	switch {
	case (n.NodeID == "") == (n.DiskID == ""):
		return muster.Invalid("node_id", "a claim is on one node or on one disk: give node_id or disk_id")
	case strings.TrimSpace(n.Holder) == "" || len(n.Holder) > 64 || !printable(n.Holder):
		return muster.Invalid("holder", "say which scheduler this is, like kubernetes/prod: one line of at most 64 bytes")
	}
	return checkHas(n.Reason)
}

// checkHas looks at what a holder says that it has there.
func checkHas(reason string) error {
	if len(reason) > 512 || !printable(reason) {
		return muster.Invalid("reason", "a reason is one line of at most 512 bytes")
	}
	return nil
}

// AddClaim claims a node or a disk for a scheduler. What is to leave takes no
// new claim: its leaving would never come to an end.
func (s *Store) AddClaim(ctx context.Context, now time.Time, by muster.Caller, n muster.NewClaim) (c muster.Claim, err error) {
	if err := checkClaim(n); err != nil {
		return c, err
	}
	lease, err := leaseOf(n.Lease, muster.ClaimLease)
	if err != nil {
		return c, err
	}
	err = s.write(ctx, "claiming", now, by, func(t *tx) error {
		nodeID := n.NodeID
		if n.DiskID != "" {
			d, err := diskOf(t, n.DiskID)
			if err != nil {
				return err
			}
			nodeID = d.NodeID
		}
		m, err := t.onNode(nodeID)
		if err != nil {
			return err
		}
		live, err := findClaims(t, claimsOf, nodeID)
		if err != nil {
			return err
		}
		for _, c = range live {
			if c.Live() && c.DiskID == n.DiskID && c.Holder == n.Holder {
				return t.claimAgain(&c, lease, n.Reason)
			}
		}
		if err := t.claimable(m, n.DiskID); err != nil {
			return err
		}
		id, err := s.newUUID(t.now.UnixMilli())
		if err != nil {
			return err
		}
		c = muster.Claim{ID: id, NodeID: nodeID, DiskID: n.DiskID, Holder: n.Holder, Reason: n.Reason, State: muster.ClaimHeld, Since: t.now,
			MadeAt: t.now, MadeBy: by.String(), Lease: int(lease / time.Second), ExpiresAt: t.now.Add(lease)}
		if _, err := t.exec(addClaim, c.ID, c.NodeID, c.DiskID, c.Holder, c.Reason, micro(t.now), c.MadeBy, c.Lease, micro(c.ExpiresAt)); err != nil {
			return err
		}
		_, err = t.record(ActionClaim, claimSubject(id), claimDetail(&c, detail{"reason": c.Reason, "lease_seconds": c.Lease}))
		return err
	})
	return c, err
}

func claimDetail(c *muster.Claim, d detail) detail {
	d["node_id"], d["holder"] = c.NodeID, c.Holder
	if c.DiskID != "" {
		d["disk_id"] = c.DiskID
	}
	return d
}

// claimable refuses a claim on what is gone, or is to leave.
func (t *tx) claimable(m *machine, diskID string) error {
	if err := m.over(); err != nil {
		return err
	}
	w, err := t.claimWants(m.node.ID)
	if err != nil {
		return err
	}
	what := "node " + m.node.ID
	if diskID != "" {
		what = "disk " + diskID
	}
	if state, why := w.of(diskID); state != muster.ClaimHeld {
		p := muster.Problemf(muster.CodeConflict, "%s takes no new claim: %s", what, why)
		p.State = string(m.node.Policy)
		return p
	}
	return nil
}

// claimAgain renews what the caller holds. Nobody holds it twice.
func (t *tx) claimAgain(c *muster.Claim, lease time.Duration, reason string) error {
	if err := t.own(c); err != nil {
		return err
	}
	c.Lease, c.ExpiresAt = int(lease/time.Second), t.now.Add(lease)
	if reason != "" {
		c.Reason = reason
	}
	return t.change(renewClaim, c.ID, c.Lease, micro(c.ExpiresAt), c.Reason)
}

// own refuses what is another's claim.
func (t *tx) own(c *muster.Claim) error {
	if c.MadeBy == t.by.String() {
		return nil
	}
	p := muster.Problemf(muster.CodeConflict, "claim %s of %s was made by %s, and only they can renew or release it: it ends at %s if they do not, and an operator can end it now (muster claim break)",
		c.ID, c.Holder, c.MadeBy, c.ExpiresAt.Format(time.RFC3339))
	p.State = string(c.State)
	return p
}

// RenewClaim gives a claim another lease, from now on.
func (s *Store) RenewClaim(ctx context.Context, now time.Time, by muster.Caller, id string, r muster.ClaimRenewal) (c muster.Claim, err error) {
	if err := checkHas(r.Reason); err != nil {
		return c, err
	}
	err = s.write(ctx, "renewing a claim", now, by, func(t *tx) error {
		if c, err = findClaim(t, id); err != nil {
			return err
		}
		if !c.Live() {
			p := muster.Problemf(muster.CodeConflict, "claim %s is over (%s) since %s: make another one", id, c.Ended, c.Since.Format(time.RFC3339))
			p.State = string(c.State)
			return p
		}
		lease, err := leaseOf(r.Lease, time.Duration(c.Lease)*time.Second)
		if err != nil {
			return err
		}
		return t.claimAgain(&c, lease, r.Reason)
	})
	return c, err
}

// ReleaseClaim is its maker's word that the claim is over. Saying it again
// changes nothing.
func (s *Store) ReleaseClaim(ctx context.Context, now time.Time, by muster.Caller, id string) (c muster.Claim, err error) {
	err = s.write(ctx, "releasing a claim", now, by, func(t *tx) error {
		if c, err = findClaim(t, id); err != nil || !c.Live() {
			return err
		}
		if err := t.own(&c); err != nil {
			return err
		}
		return t.endClaim(&c, muster.ClaimGivenUp, "its holder released it")
	})
	return c, err
}

// BreakClaim ends a claim by an operator's word.
func (s *Store) BreakClaim(ctx context.Context, now time.Time, by muster.Caller, id, reason string) (c muster.Claim, err error) {
	if strings.TrimSpace(reason) == "" || len(reason) > 512 || !printable(reason) {
		return c, muster.Invalid("reason", "say in one line of at most 512 bytes why it is broken: its holder is told")
	}
	err = s.write(ctx, "breaking a claim", now, by, func(t *tx) error {
		if c, err = findClaim(t, id); err != nil || !c.Live() {
			return err
		}
		return t.endClaim(&c, muster.ClaimBroken, reason)
	})
	return c, err
}

var claimEnds = map[muster.ClaimEnd]string{
	muster.ClaimGivenUp: ActionClaimRelease, muster.ClaimBroken: ActionClaimBreak, muster.ClaimExpired: ActionClaimExpire, muster.ClaimGone: ActionClaimEnd,
}

func (t *tx) endClaim(c *muster.Claim, how muster.ClaimEnd, why string) error {
	c.Ended = how
	return t.moveClaim(c, muster.ClaimReleased, why, claimEnds[how])
}

func (t *tx) moveClaim(c *muster.Claim, to muster.ClaimState, why, action string) error {
	was := c.State
	if c.State != to {
		c.Since = t.now
	}
	c.State, c.Why = to, why
	if err := t.change(setClaim, c.ID, string(to), micro(c.Since), why, string(c.Ended), string(was)); err != nil {
		return err
	}
	_, err := t.record(action, claimSubject(c.ID), claimDetail(c, detail{"from": was, "to": to, "why": why}))
	return err
}

// wants is what operators want of a node and its disks.
type wants struct {
	policy muster.NodePolicy
	state  muster.NodeState
	disks  map[string]diskWant
}

type diskWant struct {
	policy muster.DiskPolicy
	state  muster.DiskState
}

func (t *tx) claimWants(nodeID string) (w wants, err error) {
	if _, err = t.get(nodeWants, []any{nodeID}, &w.policy, &w.state); err != nil {
		return w, err
	}
	w.disks = map[string]diskWant{}
	return w, t.each(disksWant, []any{nodeID}, func(scan func(...any) error) error {
		var id string
		var d diskWant
		err := scan(&id, &d.policy, &d.state)
		w.disks[id] = d
		return err
	})
}

// of is what a claim on the node or one of its disks comes to. Released: what
// it was on is gone.
func (w *wants) of(diskID string) (muster.ClaimState, string) {
	d, found := w.disks[diskID]
	switch {
	case w.policy == muster.PolicyExpunged:
		return muster.ClaimReleased, "the node was expunged, which waits for no claim"
	case w.state == muster.NodeDecommissioned:
		return muster.ClaimReleased, "the node is decommissioned"
	case diskID != "" && (!found || d.policy == muster.DiskPolicyExpunged):
		return muster.ClaimReleased, "the disk was expunged, which waits for no claim"
	case d.state == muster.DiskDecommissioned:
		return muster.ClaimReleased, "the disk is decommissioned"
	case w.policy == muster.PolicyGracefulRemove:
		return muster.ClaimDraining, "the node is to leave the fleet"
	case w.policy == muster.PolicyQuiesce:
		return muster.ClaimDraining, "the node is to be quiesced"
	case d.policy == muster.DiskPolicyGracefulRemove:
		return muster.ClaimDraining, "the disk is to leave the fleet"
	}
	return muster.ClaimHeld, ""
}

// tellClaims lets the claims on a node and its disks follow what is wanted of
// these now.
func (t *tx) tellClaims(nodeID string) error {
	all, err := findClaims(t, claimsOf, nodeID)
	if err != nil {
		return err
	}
	var w wants
	for i := range all {
		c := &all[i]
		if !c.Live() {
			continue
		}
		if w.disks == nil {
			if w, err = t.claimWants(nodeID); err != nil {
				return err
			}
		}
		state, why := w.of(c.DiskID)
		switch {
		case state == c.State && why == c.Why:
			continue
		case state == muster.ClaimReleased:
			err = t.endClaim(c, muster.ClaimGone, why)
		case state == muster.ClaimDraining:
			err = t.moveClaim(c, state, why, ActionClaimDrain)
		default:
			err = t.moveClaim(c, state, why, ActionClaimKeep)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A chance is how long holders had the chance to renew: since when this process
// has looked at claims without a pause. While no control plane runs, or none
// reaches its store, nobody can renew.
type chance struct {
	mu          sync.Mutex
	since, last time.Time
}

// chancePause is how long looking may pause and still count as going on.
const chancePause = time.Minute

// look tells since when holders had their chance.
func (c *chance) look(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.IsZero() || now.Sub(c.last) > chancePause || now.Before(c.last) {
		c.since = now
	}
	c.last = now
	return c.since
}

// fail says that the store could not be looked at.
func (c *chance) fail() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = time.Time{}
}

// expireClaims ends the claims whose lease is over, and whose holders had a
// whole lease's time to renew.
func (s *Store) expireClaims(ctx context.Context, now time.Time) (ended int, err error) {
	var due []muster.Claim
	if err := s.read(ctx, "looking for claims that are over", func(r *reading) (err error) {
		due, err = findClaims(r, claimsDue, micro(now))
		return err
	}); err != nil {
		s.chance.fail()
		return 0, err
	}
	since := s.chance.look(now)
	for _, d := range due {
		if now.Sub(since) < time.Duration(d.Lease)*time.Second {
			continue
		}
		over := false
		if e := s.write(ctx, "ending a claim", now, muster.Clock, func(t *tx) error {
			c, err := findClaim(t, d.ID)
			if over = err == nil && c.Live() && !t.now.Before(c.ExpiresAt); !over {
				return err
			}
			return t.endClaim(&c, muster.ClaimExpired, "its holder did not renew it")
		}); e != nil {
			err = e
		} else if over {
			ended++
		}
	}
	return ended, err
}

func (t *tx) forgetClaim(id string) (bool, error) { return t.forgetDoor(dropClaim, id) }
