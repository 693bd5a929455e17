package client

import (
	"context"

	"muster.internal"
)

func (c *Client) Machines(ctx context.Context, f muster.MachineFilter) ([]muster.Machine, error) {
	return items[muster.Machine](ctx, c, get("/v1/machines").with(map[string]string{
		"state": string(f.State), "after": f.After, "limit": number(f.Limit)}))
}

func (c *Client) Machine(ctx context.Context, id string) (muster.Machine, error) {
	return fetch[muster.Machine](ctx, c, get("/v1/machines", id))
}

func (c *Client) RaiseMachine(ctx context.Context, id string, e muster.Event) (muster.Machine, error) {
	return fetch[muster.Machine](ctx, c, post(nil, "/v1/machines", id, dashed(e)))
}

func (c *Client) SharedIdentities(ctx context.Context) ([]muster.SharedIdentity, error) {
	return items[muster.SharedIdentity](ctx, c, get("/v1/shared-identities"))
}

func (c *Client) AddSharedIdentity(ctx context.Context, s muster.SharedIdentity) (muster.SharedIdentity, error) {
	return fetch[muster.SharedIdentity](ctx, c, post(s, "/v1/shared-identities"))
}

func (c *Client) RemoveSharedIdentity(ctx context.Context, kind muster.SharedKind, value string) error {
	return c.do(ctx, remove("/v1/shared-identities", string(kind), value))
}

func (c *Client) NetworkUsage(ctx context.Context) ([]muster.NetworkUsage, error) {
	return items[muster.NetworkUsage](ctx, c, get("/v1/boot-networks"))
}

func (c *Client) NoiseLimits(ctx context.Context) ([]muster.NoiseLimit, error) {
	return items[muster.NoiseLimit](ctx, c, get("/v1/limits"))
}
