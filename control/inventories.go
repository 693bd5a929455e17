package control

import (
	"context"

	"muster.internal"
)

func (s session) NodeInventory(ctx context.Context, nodeID string, number int64) (muster.Collection, error) {
	return s.store.NodeInventory(ctx, nodeID, number)
}

func (s session) NodeInventories(ctx context.Context, nodeID string) ([]muster.Collection, error) {
	return s.store.NodeInventories(ctx, nodeID)
}

func (s session) DiffInventory(ctx context.Context, nodeID string, from, to int64) (muster.HardwareDiff, error) {
	return s.store.DiffInventory(ctx, nodeID, from, to)
}

func (s session) UnadoptedMachines(ctx context.Context) ([]muster.UnadoptedMachine, error) {
	return s.store.UnadoptedMachines(ctx)
}

func (s session) UnadoptedDisks(ctx context.Context) ([]muster.UnadoptedDisk, error) {
	return s.store.UnadoptedDisks(ctx)
}

func (s session) AdoptDisk(ctx context.Context, nodeID string, a muster.AdoptDisk) (muster.AdoptedDisk, error) {
	return s.store.AdoptDisk(ctx, s.now(), s.by, nodeID, a)
}

func (s session) FirmwareMinimums(ctx context.Context) ([]muster.FirmwareMinimum, error) {
	return s.store.FirmwareMinimums(ctx)
}

func (s session) SetFirmwareMinimum(ctx context.Context, m muster.FirmwareMinimum) (muster.FirmwareMinimum, error) {
	return s.store.SetFirmwareMinimum(ctx, s.now(), s.by, m)
}

func (s session) RemoveFirmwareMinimum(ctx context.Context, vendor, part string) error {
	return s.store.RemoveFirmwareMinimum(ctx, s.now(), s.by, vendor, part)
}
