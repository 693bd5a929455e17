package api

import (
	"context"

	"muster.internal"
	"muster.internal/module"
)

// labels serves what people say of hardware.
func (a *API) labels() {
	change := may(muster.ActNodeChange)
	add(a, op{method: patch, path: "/v1/nodes/{id}/labels", id: "label-node", summary: "Set and remove labels of a node", acts: change},
		func(ctx context.Context, s Session, in *idBody[muster.LabelChange]) (muster.Node, error) {
			return s.LabelNode(ctx, in.ID, in.Body)
		})
	add(a, op{method: patch, path: "/v1/disks/{id}/labels", id: "label-disk", summary: "Set and remove labels of a disk", acts: change},
		func(ctx context.Context, s Session, in *idBody[muster.LabelChange]) (muster.NodeDisk, error) {
			return s.LabelDisk(ctx, in.ID, in.Body)
		})
	add(a, op{method: put, path: "/v1/nodes/{id}/reservoir", id: "set-reservoir", summary: "Hold capacity of a node back from every placement; an empty one gives it free", acts: change},
		func(ctx context.Context, s Session, in *idBody[module.Capacity]) (muster.Node, error) {
			return s.SetReservoir(ctx, in.ID, in.Body)
		})
	add(a, op{method: put, path: "/v1/nodes/{id}/note", id: "note-node", summary: "Keep a note on a node, for people; an empty one is none", acts: change},
		func(ctx context.Context, s Session, in *idBody[muster.Note]) (muster.Node, error) {
			return s.NoteNode(ctx, in.ID, in.Body)
		})
	add(a, op{method: put, path: "/v1/machines/{id}/note", id: "note-machine", summary: "Keep a note on a machine, for people; an empty one is none", acts: may(muster.ActMachineChange)},
		func(ctx context.Context, s Session, in *idBody[muster.Note]) (muster.Machine, error) {
			return s.NoteMachine(ctx, in.ID, in.Body)
		})
	add(a, op{method: get, path: "/v1/disks", id: "list-disks", summary: "List the disks that the fleet holds or held, by node", acts: may(muster.ActNodeRead)},
		func(ctx context.Context, s Session, _ *nothing) (list[muster.NodeDisk], error) {
			return listed(s.Disks(ctx))
		})
}
