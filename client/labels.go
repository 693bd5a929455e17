package client

import (
	"context"

	"muster.internal"
	"muster.internal/module"
)

func (c *Client) LabelNode(ctx context.Context, nodeID string, l muster.LabelChange) (muster.Node, error) {
	return fetch[muster.Node](ctx, c, patch(l, "/v1/nodes", nodeID, "labels"))
}

func (c *Client) LabelDisk(ctx context.Context, diskID string, l muster.LabelChange) (muster.NodeDisk, error) {
	return fetch[muster.NodeDisk](ctx, c, patch(l, "/v1/disks", diskID, "labels"))
}

func (c *Client) SetReservoir(ctx context.Context, nodeID string, r module.Capacity) (muster.Node, error) {
	return fetch[muster.Node](ctx, c, put(r, "/v1/nodes", nodeID, "reservoir"))
}

func (c *Client) NoteNode(ctx context.Context, nodeID string, n muster.Note) (muster.Node, error) {
	return fetch[muster.Node](ctx, c, put(n, "/v1/nodes", nodeID, "note"))
}

func (c *Client) NoteMachine(ctx context.Context, machineID string, n muster.Note) (muster.Machine, error) {
	return fetch[muster.Machine](ctx, c, put(n, "/v1/machines", machineID, "note"))
}

func (c *Client) Disks(ctx context.Context) ([]muster.NodeDisk, error) {
	return items[muster.NodeDisk](ctx, c, get("/v1/disks"))
}
