package control

import (
	"context"

	"muster.internal"
)

func (s session) Claims(ctx context.Context, f muster.ClaimFilter) ([]muster.Claim, error) {
	return s.store.Claims(ctx, f)
}

// Claim waits, if it is asked to, until the claim's state is another one.
func (s session) Claim(ctx context.Context, id string, w muster.ClaimWait) (muster.Claim, error) {
	if w.Wait <= 0 {
		return s.store.Claim(ctx, id)
	}
	news, leave, err := s.watch.join(ctx, "claim/"+id)
	if err != nil {
		return muster.Claim{}, err
	}
	defer leave()
	wait, cancel := context.WithTimeout(ctx, w.Wait)
	defer cancel()
	for {
		c, err := s.store.Claim(ctx, id)
		if err != nil || c.State != w.Unless || wait.Err() != nil {
			return c, err
		}
		select {
		case <-news:
		case <-wait.Done():
		}
	}
}

func (s session) AddClaim(ctx context.Context, n muster.NewClaim) (muster.Claim, error) {
	return s.store.AddClaim(ctx, s.now(), s.by, n)
}

func (s session) RenewClaim(ctx context.Context, id string, r muster.ClaimRenewal) (muster.Claim, error) {
	return s.store.RenewClaim(ctx, s.now(), s.by, id, r)
}

func (s session) ReleaseClaim(ctx context.Context, id string) (muster.Claim, error) {
	return s.store.ReleaseClaim(ctx, s.now(), s.by, id)
}

func (s session) BreakClaim(ctx context.Context, id string, b muster.ClaimBreak) (muster.Claim, error) {
	return s.store.BreakClaim(ctx, s.now(), s.by, id, b.Reason)
}
