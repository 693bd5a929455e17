package main

import (
	"context"
	"slices"
	"time"

	"muster.internal"
)

const claimWeb1 = "019add0c-7b00-7000-8000-0000000000c1"

func (m *memory) Claims(_ context.Context, f muster.ClaimFilter) (all []muster.Claim, _ error) {
	for _, c := range m.claims {
		if (f.Ended || c.Live()) && (f.Holder == "" || f.Holder == c.Holder) {
			all = append(all, c)
		}
	}
	return all, m.up()
}

func (m *memory) claim(id string) (*muster.Claim, error) {
	i := slices.IndexFunc(m.claims, func(c muster.Claim) bool { return c.ID == id })
	if i < 0 {
		return nil, muster.Problemf(muster.CodeNotFound, "there is no claim %q", id)
	}
	return &m.claims[i], m.up()
}

// Claim answers who waits with another state, at once.
func (m *memory) Claim(_ context.Context, id string, w muster.ClaimWait) (muster.Claim, error) {
	c, err := m.claim(id)
	if err != nil {
		return muster.Claim{}, err
	}
	if w.Unless == c.State {
		c.State, c.Why = muster.ClaimDraining, "the node is to be quiesced"
	}
	return *c, nil
}

func (m *memory) AddClaim(_ context.Context, n muster.NewClaim) (muster.Claim, error) {
	if n.Lease == 0 {
		n.Lease = 600
	}
	c := muster.Claim{ID: claimWeb1, NodeID: m.nodes[0].ID, DiskID: n.DiskID, Holder: n.Holder, Reason: n.Reason, State: muster.ClaimHeld, Since: noon, MadeAt: noon, MadeBy: "operator:admin",
		Lease: n.Lease, ExpiresAt: noon.Add(time.Duration(n.Lease) * time.Second)}
	m.claims = append(m.claims, c)
	return c, m.up()
}

func (m *memory) RenewClaim(_ context.Context, id string, r muster.ClaimRenewal) (muster.Claim, error) {
	c, err := m.claim(id)
	if err != nil {
		return muster.Claim{}, err
	}
	c.Lease = r.Lease
	c.ExpiresAt = noon.Add(time.Duration(r.Lease) * time.Second)
	return *c, nil
}

func (m *memory) ReleaseClaim(_ context.Context, id string) (muster.Claim, error) {
	return m.endClaim(id, muster.ClaimGivenUp, "its holder released it")
}

func (m *memory) BreakClaim(_ context.Context, id string, b muster.ClaimBreak) (muster.Claim, error) {
	return m.endClaim(id, muster.ClaimBroken, b.Reason)
}

func (m *memory) endClaim(id string, how muster.ClaimEnd, why string) (muster.Claim, error) {
	c, err := m.claim(id)
	if err != nil {
		return muster.Claim{}, err
	}
	c.State, c.Ended, c.Why = muster.ClaimReleased, how, why
	return *c, nil
}
