package client

import (
	"context"

	"muster.internal"
	"muster.internal/resource"
)

func (c *Client) Declare(ctx context.Context, nodeID string, d resource.Declaration) (muster.NodeDeclaration, error) {
	return fetch[muster.NodeDeclaration](ctx, c, put(d, "/v1/nodes", nodeID, "declaration"))
}

func (c *Client) Declaration(ctx context.Context, nodeID string) (muster.NodeDeclaration, error) {
	return fetch[muster.NodeDeclaration](ctx, c, get("/v1/nodes", nodeID, "declaration"))
}

func (c *Client) ResolveConflict(ctx context.Context, nodeID string, r muster.ConflictResolution) (muster.NodeDeclaration, error) {
	return fetch[muster.NodeDeclaration](ctx, c, post(r, "/v1/nodes", nodeID, "resolve"))
}

func (c *Client) NodeBriefing(ctx context.Context, nodeID string) (resource.Briefing, error) {
	return fetch[resource.Briefing](ctx, c, get("/v1/nodes", nodeID, "briefing"))
}

func (c *Client) OrderNode(ctx context.Context, nodeID string, kind muster.OrderKind) (muster.NodeOrder, error) {
	return fetch[muster.NodeOrder](ctx, c, post(map[string]muster.OrderKind{"verb": kind}, "/v1/nodes", nodeID, "orders"))
}

func (c *Client) NodeReport(ctx context.Context, nodeID string) (muster.NodeReport, error) {
	return fetch[muster.NodeReport](ctx, c, get("/v1/nodes", nodeID, "report"))
}

func (c *Client) NodeOwned(ctx context.Context, nodeID string) (muster.NodeOwned, error) {
	return fetch[muster.NodeOwned](ctx, c, get("/v1/nodes", nodeID, "owned"))
}

func (c *Client) NodeProfile(ctx context.Context, nodeID string) (muster.NodeProfile, error) {
	return fetch[muster.NodeProfile](ctx, c, get("/v1/nodes", nodeID, "profile"))
}

func (c *Client) NodeHealth(ctx context.Context, nodeID string) (muster.NodeHealth, error) {
	return fetch[muster.NodeHealth](ctx, c, get("/v1/nodes", nodeID, "health"))
}

func (c *Client) AddProvider(ctx context.Context, n muster.NewProvider) (muster.Provider, error) {
	return fetch[muster.Provider](ctx, c, post(n, "/v1/providers"))
}

func (c *Client) Providers(ctx context.Context) ([]muster.Provider, error) {
	return fetch[[]muster.Provider](ctx, c, get("/v1/providers"))
}

func (c *Client) RemoveProvider(ctx context.Context, name string) error {
	return c.do(ctx, remove("/v1/providers", name))
}

func (c *Client) GrantNode(ctx context.Context, nodeID string, n muster.NewGrant) (muster.Grant, error) {
	return fetch[muster.Grant](ctx, c, post(n, "/v1/nodes", nodeID, "grants"))
}

func (c *Client) NodeGrants(ctx context.Context, nodeID string) ([]muster.Grant, error) {
	return fetch[[]muster.Grant](ctx, c, get("/v1/nodes", nodeID, "grants"))
}

func (c *Client) RevokeGrant(ctx context.Context, nodeID, provider string) (muster.Grant, error) {
	return fetch[muster.Grant](ctx, c, remove("/v1/nodes", nodeID, "grants", provider))
}

// LinkCertificate takes the token, which is the agent key, or without one the
// client's certificate.
func (c *Client) LinkCertificate(ctx context.Context, r muster.CertificateRequest) (muster.Certificate, error) {
	return fetch[muster.Certificate](ctx, c, post(r, "/v1/link/certificate"))
}

// byPair makes a call that the client's certificate speaks for.
func (k call) byPair() call {
	k.paired = true
	return k
}

func (c *Client) LinkNext(ctx context.Context, p muster.LinkPoll) (muster.LinkAnswer, error) {
	k := post(p, "/v1/link/next").byPair()
	if !p.Busy {
		k.wait = muster.LinkAtMost
	}
	return fetch[muster.LinkAnswer](ctx, c, k)
}

func (c *Client) LinkKey(ctx context.Context) (muster.LinkKey, error) {
	return fetch[muster.LinkKey](ctx, c, post(nil, "/v1/link/key").byPair())
}

func (c *Client) LinkReport(ctx context.Context, r resource.Report) error {
	return c.do(ctx, post(r, "/v1/link/report").byPair())
}

func (c *Client) LinkHardware(ctx context.Context, h muster.Hardware) error {
	return c.do(ctx, put(h, "/v1/link/hardware"))
}

func (c *Client) LinkProfile(ctx context.Context, p muster.Profile) error {
	return c.do(ctx, put(p, "/v1/link/profile").byPair())
}

// ownedList is the mirror as it travels.
type ownedList struct {
	Owned []resource.Owned `json:"owned"`
}

func (c *Client) SetLinkOwned(ctx context.Context, owned []resource.Owned) error {
	if owned == nil {
		owned = []resource.Owned{}
	}
	return c.do(ctx, put(ownedList{owned}, "/v1/link/owned").byPair())
}

func (c *Client) LinkOwned(ctx context.Context) ([]resource.Owned, error) {
	l, err := fetch[ownedList](ctx, c, get("/v1/link/owned").byPair())
	return l.Owned, err
}

func (c *Client) SetLinkHealth(ctx context.Context, all []muster.PlacementHealth) error {
	if all == nil {
		all = []muster.PlacementHealth{}
	}
	return c.do(ctx, put(map[string][]muster.PlacementHealth{"health": all}, "/v1/link/health").byPair())
}
