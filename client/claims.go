package client

import (
	"context"

	"muster.internal"
)

func (c *Client) Claims(ctx context.Context, f muster.ClaimFilter) ([]muster.Claim, error) {
	q := map[string]string{"node": f.NodeID, "holder": f.Holder}
	if f.Ended {
		q["ended"] = "true"
	}
	return items[muster.Claim](ctx, c, get("/v1/claims").with(q))
}

func (c *Client) Claim(ctx context.Context, id string, w muster.ClaimWait) (muster.Claim, error) {
	return fetch[muster.Claim](ctx, c, get("/v1/claims", id).with(map[string]string{"unless": string(w.Unless)}).waiting(w.Wait))
}

func (c *Client) AddClaim(ctx context.Context, n muster.NewClaim) (muster.Claim, error) {
	return fetch[muster.Claim](ctx, c, post(n, "/v1/claims"))
}

func (c *Client) RenewClaim(ctx context.Context, id string, r muster.ClaimRenewal) (muster.Claim, error) {
	return fetch[muster.Claim](ctx, c, post(r, "/v1/claims", id, "renew"))
}

func (c *Client) ReleaseClaim(ctx context.Context, id string) (muster.Claim, error) {
	return fetch[muster.Claim](ctx, c, post(nil, "/v1/claims", id, "release"))
}

func (c *Client) BreakClaim(ctx context.Context, id string, b muster.ClaimBreak) (muster.Claim, error) {
	return fetch[muster.Claim](ctx, c, post(b, "/v1/claims", id, "break"))
}
