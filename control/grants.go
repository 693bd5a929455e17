package control

import (
	"context"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/provider"
	"muster.internal/store"
)

// grantWithin bounds one try at a provider.
const grantWithin = 15 * time.Second

func (s session) AddProvider(ctx context.Context, n muster.NewProvider) (muster.Provider, error) {
	return s.store.AddProvider(ctx, s.now(), s.by, n)
}

func (s session) Providers(ctx context.Context) ([]muster.Provider, error) {
	return s.store.Providers(ctx)
}

func (s session) RemoveProvider(ctx context.Context, name string) error {
	return s.store.RemoveProvider(ctx, s.now(), s.by, name)
}

func (s session) GrantNode(ctx context.Context, nodeID string, n muster.NewGrant) (muster.Grant, error) {
	return s.store.GrantNode(ctx, s.now(), s.by, nodeID, n)
}

func (s session) NodeGrants(ctx context.Context, nodeID string) ([]muster.Grant, error) {
	return s.store.NodeGrants(ctx, nodeID)
}

func (s session) RevokeGrant(ctx context.Context, nodeID, provider string) (muster.Grant, error) {
	return s.store.RevokeGrant(ctx, s.now(), s.by, nodeID, provider)
}

// WorkGrants tells providers what is due there, each on its own: one that does
// not answer keeps no other waiting. Several control planes may do it at once.
func (c *Control) WorkGrants(ctx context.Context) error {
	due, err := c.store.GrantsDue(ctx, c.now())
	if err != nil {
		return err
	}
	at := map[string][]store.GrantWork{}
	for _, w := range due {
		at[w.Provider] = append(at[w.Provider], w)
	}
	var all sync.WaitGroup
	for _, works := range at {
		all.Go(func() {
			for _, w := range works {
				failure := c.workGrant(ctx, w)
				if ctx.Err() != nil {
					return
				}
				if err := c.store.GrantDone(ctx, c.now(), w, failure); err != nil {
					c.log.Warn("how a grant went could not be kept; it is tried again", "provider", w.Provider, "role", w.Name, "error", err)
				}
				if failure != nil {
					return // the others have their turn at the next tick
				}
			}
		})
	}
	all.Wait()
	return nil
}

func (c *Control) workGrant(ctx context.Context, w store.GrantWork) error {
	ctx, cancel := context.WithTimeout(ctx, grantWithin)
	defer cancel()
	p, err := c.cfg.Provider(w.Kind, w.URL)
	if err != nil {
		return err
	}
	r := provider.Role{Name: w.Name, MemberOf: w.MemberOf, Password: w.Password}
	if w.State == muster.GrantRevoking {
		return p.End(ctx, r)
	}
	return p.Make(ctx, r, func(ctx context.Context) error { return c.store.StillWanted(ctx, w) })
}

// grantClock works off grants, away from the other clocks: providers may be slow.
func (c *Control) grantClock(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := c.WorkGrants(ctx); err != nil && ctx.Err() == nil {
				c.log.Warn("what is due at providers could not be looked up; it is tried again", "error", err)
			}
		}
	}
}
