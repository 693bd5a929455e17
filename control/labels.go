package control

import (
	"context"

	"muster.internal"
	"muster.internal/module"
)

func (s session) LabelNode(ctx context.Context, nodeID string, c muster.LabelChange) (muster.Node, error) {
	return s.store.LabelNode(ctx, s.now(), s.by, nodeID, c)
}

func (s session) SetReservoir(ctx context.Context, nodeID string, r module.Capacity) (muster.Node, error) {
	return s.store.SetReservoir(ctx, s.now(), s.by, nodeID, r)
}

func (s session) NoteNode(ctx context.Context, nodeID string, n muster.Note) (muster.Node, error) {
	return s.store.NoteNode(ctx, s.now(), s.by, nodeID, n)
}

func (s session) LabelDisk(ctx context.Context, diskID string, c muster.LabelChange) (muster.NodeDisk, error) {
	return s.store.LabelDisk(ctx, s.now(), s.by, diskID, c)
}

func (s session) NoteMachine(ctx context.Context, machineID string, n muster.Note) (muster.Machine, error) {
	return s.store.NoteMachine(ctx, s.now(), s.by, machineID, n)
}

func (s session) Disks(ctx context.Context) ([]muster.NodeDisk, error) { return s.store.Disks(ctx) }
