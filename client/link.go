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

func (c *Client) NodeReport(ctx context.Context, nodeID string) (muster.NodeReport, error) {
	return fetch[muster.NodeReport](ctx, c, get("/v1/nodes", nodeID, "report"))
}

func (c *Client) NodeOwned(ctx context.Context, nodeID string) (muster.NodeOwned, error) {
	return fetch[muster.NodeOwned](ctx, c, get("/v1/nodes", nodeID, "owned"))
}

func (c *Client) NodeProfile(ctx context.Context, nodeID string) (muster.NodeProfile, error) {
	return fetch[muster.NodeProfile](ctx, c, get("/v1/nodes", nodeID, "profile"))
}
