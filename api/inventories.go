package api

import (
	"context"

	"muster.internal"
)

type (
	collectionQuery struct {
		ID     string `path:"id" maxLength:"64"`
		Number int64  `query:"number" minimum:"0" doc:"of the collection; 0: the newest"`
	}
	diffQuery struct {
		ID   string `path:"id" maxLength:"64"`
		From int64  `query:"from" minimum:"0" doc:"number of the earlier collection; 0: the one before"`
		To   int64  `query:"to" minimum:"0" doc:"number of the later one; 0: the newest"`
	}
	firmwareQuery struct {
		Vendor string `query:"vendor" maxLength:"512"`
		Part   string `query:"part" required:"true" maxLength:"512"`
	}
)

// inventories serves what machines are made of, and what of it is not of the
// fleet.
func (a *API) inventories() {
	read, change := may(muster.ActNodeRead), may(muster.ActNodeChange)
	add(a, op{method: get, path: "/v1/nodes/{id}/inventory", id: "get-inventory", summary: "Show what a node's machine is made of, and firmware below its minimum", acts: read},
		func(ctx context.Context, s Session, in *collectionQuery) (muster.Collection, error) {
			return s.NodeInventory(ctx, in.ID, in.Number)
		})
	add(a, op{method: get, path: "/v1/nodes/{id}/inventories", id: "list-inventories", summary: "List the collections of a node's machine, the newest first", acts: read},
		func(ctx context.Context, s Session, in *id) (list[muster.Collection], error) {
			return listed(s.NodeInventories(ctx, in.ID))
		})
	add(a, op{method: get, path: "/v1/nodes/{id}/inventory-diff", id: "diff-inventory", summary: "Say what differs between two collections: what came, went, moved", acts: read},
		func(ctx context.Context, s Session, in *diffQuery) (muster.HardwareDiff, error) {
			return s.DiffInventory(ctx, in.ID, in.From, in.To)
		})
	add(a, op{method: get, path: "/v1/inventory/machines", id: "list-unadopted-machines", summary: "List machines that are known and not of the fleet", acts: may(muster.ActMachineRead)},
		func(ctx context.Context, s Session, _ *nothing) (list[muster.UnadoptedMachine], error) {
			return listed(s.UnadoptedMachines(ctx))
		})
	add(a, op{method: get, path: "/v1/inventory/disks", id: "list-unadopted-disks", summary: "List disks that are plugged into nodes and not of the fleet", acts: read},
		func(ctx context.Context, s Session, _ *nothing) (list[muster.UnadoptedDisk], error) {
			return listed(s.UnadoptedDisks(ctx))
		})
	add(a, op{method: post, path: "/v1/nodes/{id}/disks", id: "adopt-disk", summary: "Take a disk that a node's inventory shows into the fleet", acts: change, status: 201},
		func(ctx context.Context, s Session, in *idBody[muster.AdoptDisk]) (muster.AdoptedDisk, error) {
			return s.AdoptDisk(ctx, in.ID, in.Body)
		})
	add(a, op{method: get, path: "/v1/firmware-minimums", id: "list-firmware-minimums", summary: "List the versions below which firmware is warned of", acts: read},
		func(ctx context.Context, s Session, _ *nothing) (list[muster.FirmwareMinimum], error) {
			return listed(s.FirmwareMinimums(ctx))
		})
	add(a, op{method: put, path: "/v1/firmware-minimums", id: "set-firmware-minimum", summary: "State the version below which a part's firmware is warned of", acts: may(muster.ActPolicyChange)},
		func(ctx context.Context, s Session, in *body[muster.FirmwareMinimum]) (muster.FirmwareMinimum, error) {
			return s.SetFirmwareMinimum(ctx, in.Body)
		})
	do(a, op{method: remove, path: "/v1/firmware-minimums", id: "remove-firmware-minimum", summary: "State no minimum for a part any more", acts: may(muster.ActPolicyChange), status: 204},
		func(ctx context.Context, s Session, in *firmwareQuery) error {
			return s.RemoveFirmwareMinimum(ctx, in.Vendor, in.Part)
		})
}
