package client

import (
	"context"

	"muster.internal"
)

func (c *Client) NodeInventory(ctx context.Context, nodeID string, n int64) (muster.Collection, error) {
	return fetch[muster.Collection](ctx, c, get("/v1/nodes", nodeID, "inventory").with(map[string]string{"number": number(n)}))
}

func (c *Client) NodeInventories(ctx context.Context, nodeID string) ([]muster.Collection, error) {
	return items[muster.Collection](ctx, c, get("/v1/nodes", nodeID, "inventories"))
}

func (c *Client) DiffInventory(ctx context.Context, nodeID string, from, to int64) (muster.HardwareDiff, error) {
	return fetch[muster.HardwareDiff](ctx, c, get("/v1/nodes", nodeID, "inventory-diff").with(map[string]string{"from": number(from), "to": number(to)}))
}

func (c *Client) UnadoptedMachines(ctx context.Context) ([]muster.UnadoptedMachine, error) {
	return items[muster.UnadoptedMachine](ctx, c, get("/v1/inventory/machines"))
}

func (c *Client) UnadoptedDisks(ctx context.Context) ([]muster.UnadoptedDisk, error) {
	return items[muster.UnadoptedDisk](ctx, c, get("/v1/inventory/disks"))
}

func (c *Client) AdoptDisk(ctx context.Context, nodeID string, a muster.AdoptDisk) (muster.AdoptedDisk, error) {
	return fetch[muster.AdoptedDisk](ctx, c, post(a, "/v1/nodes", nodeID, "disks"))
}

func (c *Client) FirmwareMinimums(ctx context.Context) ([]muster.FirmwareMinimum, error) {
	return items[muster.FirmwareMinimum](ctx, c, get("/v1/firmware-minimums"))
}

func (c *Client) SetFirmwareMinimum(ctx context.Context, m muster.FirmwareMinimum) (muster.FirmwareMinimum, error) {
	return fetch[muster.FirmwareMinimum](ctx, c, put(m, "/v1/firmware-minimums"))
}

func (c *Client) RemoveFirmwareMinimum(ctx context.Context, vendor, part string) error {
	return c.do(ctx, remove("/v1/firmware-minimums").with(map[string]string{"vendor": vendor, "part": part}))
}
