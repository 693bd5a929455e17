package api

import (
	"context"
	"strconv"

	"muster.internal"
	"muster.internal/module"
)

// planning serves what the fleet shall be.
func (a *API) planning() {
	a.modules()
	a.blueprints()
	read := may(muster.ActPlanRead)
	type filter struct {
		Node   string `query:"node" maxLength:"64"`
		Module string `query:"module" maxLength:"64"`
		State  string `query:"state" maxLength:"64" doc:"reserved, placed, moving, removed, lost or any; absent: those that have not ended"`
		After  string `query:"after" maxLength:"64"`
		Limit  int    `query:"limit" minimum:"0" maximum:"1000"`
	}
	add(a, op{method: get, path: "/v1/placements", id: "list-placements", summary: "List placements", acts: read},
		func(ctx context.Context, s Session, in *filter) (list[muster.PlacementRecord], error) {
			ps, err := s.Placements(ctx, muster.PlacementFilter{Node: in.Node, Module: in.Module, State: muster.PlacementState(in.State), After: in.After, Limit: in.Limit})
			return paged(ps, in.Limit, func(p muster.PlacementRecord) string { return p.ID }, err)
		})
	add(a, op{method: get, path: "/v1/placements/{id}", id: "get-placement", summary: "Show a placement, and what the target says of it", acts: read},
		func(ctx context.Context, s Session, in *id) (muster.PlacementDetail, error) {
			return s.Placement(ctx, in.ID)
		})
	type subject struct {
		Kind string `path:"kind" maxLength:"64" doc:"node, disk or placement"`
		ID   string `path:"id" maxLength:"64"`
	}
	add(a, op{method: post, path: "/v1/plan", id: "plan", summary: "Show what a plan made now would change, with a change assumed or none; nothing is changed", acts: read, limit: module.MaxBytes},
		func(ctx context.Context, s Session, in *body[muster.WhatIf]) (muster.DryPlan, error) {
			return s.Plan(ctx, in.Body)
		})
	add(a, op{method: get, path: "/v1/explain/{kind}/{id}", id: "explain", summary: "Say why a node, a disk or a placement is as it is, what comes next, and what it waits for", acts: read},
		func(ctx context.Context, s Session, in *subject) (muster.Explained, error) {
			return s.Explain(ctx, muster.Subject(in.Kind), in.ID)
		})
	add(a, op{method: post, path: "/v1/nodes/{id}/hand-over", id: "hand-over", summary: "Let blueprints say what a node is to be, which people did", acts: may(muster.ActDeclare)},
		func(ctx context.Context, s Session, in *id) (muster.Node, error) { return s.HandOver(ctx, in.ID) })
}

func (a *API) modules() {
	read, change := may(muster.ActPlanRead), may(muster.ActPlanChange)
	type named struct {
		Name string `path:"name" maxLength:"64"`
	}
	type added struct {
		Unwanted bool `query:"unwanted" doc:"only keep it: the planner goes on wanting what it wants"`
		Body     module.Module
	}
	type wanted struct {
		Name string `path:"name" maxLength:"64"`
		Body wantedBody
	}
	add(a, op{method: post, path: "/v1/modules", id: "add-module", summary: "Add a version of a module; without a number, the next one", acts: change, limit: module.MaxBytes, status: 201},
		func(ctx context.Context, s Session, in *added) (muster.ModuleVersion, error) {
			return s.AddModule(ctx, muster.NewModule{Module: in.Body, Unwanted: in.Unwanted})
		})
	add(a, op{method: get, path: "/v1/modules", id: "list-modules", summary: "List modules, each in the version that is wanted, or its newest", acts: read},
		func(ctx context.Context, s Session, _ *nothing) (list[muster.ModuleVersion], error) {
			return listed(s.Modules(ctx))
		})
	add(a, op{method: get, path: "/v1/modules/{name}", id: "get-module", summary: "Show every version of a module, the newest first", acts: read},
		func(ctx context.Context, s Session, in *named) (list[muster.ModuleVersion], error) {
			return listed(s.Module(ctx, in.Name))
		})
	add(a, op{method: put, path: "/v1/modules/{name}/wanted", id: "want-module", summary: "Have the planner want a version of a module that is kept", acts: change},
		func(ctx context.Context, s Session, in *wanted) (muster.ModuleVersion, error) {
			return s.WantModule(ctx, in.Name, in.Body.Version)
		})
	do(a, op{method: remove, path: "/v1/modules/{name}", id: "remove-module", summary: "Want a module no more: its placements leave, its versions are kept", acts: change},
		func(ctx context.Context, s Session, in *named) error { return s.RemoveModule(ctx, in.Name) })
}

type wantedBody struct {
	Version int64 `json:"version" minimum:"1"`
}

func (a *API) blueprints() {
	read, change := may(muster.ActPlanRead), may(muster.ActPlanChange)
	type before struct {
		Before int64 `query:"before" minimum:"0" doc:"a number: those before it"`
		Limit  int   `query:"limit" minimum:"0" maximum:"1000"`
	}
	type ref struct {
		Ref string `path:"ref" maxLength:"64" doc:"a number, an id, or target"`
	}
	type pair struct {
		Ref  string `path:"ref" maxLength:"64" doc:"a number, an id, or target"`
		From string `query:"from" maxLength:"64" doc:"a number, an id, or target; absent: the parent"`
	}
	add(a, op{method: get, path: "/v1/blueprints", id: "list-blueprints", summary: "List the blueprints that were the target, the newest first", acts: read},
		func(ctx context.Context, s Session, in *before) (list[muster.BlueprintEntry], error) {
			bs, err := s.Blueprints(ctx, in.Before, in.Limit)
			return paged(bs, in.Limit, func(b muster.BlueprintEntry) string { return strconv.FormatInt(b.Number, 10) }, err)
		})
	add(a, op{method: get, path: "/v1/blueprints/{ref}", id: "get-blueprint", summary: "Show a blueprint, and the report of its plan", acts: read},
		func(ctx context.Context, s Session, in *ref) (muster.BlueprintDetail, error) {
			return s.Blueprint(ctx, in.Ref)
		})
	add(a, op{method: get, path: "/v1/blueprints/{ref}/diff", id: "diff-blueprint", summary: "Show what differs between two blueprints", acts: read},
		func(ctx context.Context, s Session, in *pair) (muster.BlueprintDiff, error) {
			return s.BlueprintDiff(ctx, in.From, in.Ref)
		})
	add(a, op{method: post, path: "/v1/blueprints/prune", id: "prune-blueprints", summary: "Forget old blueprints; the target always stays", acts: change},
		func(ctx context.Context, s Session, in *body[muster.BlueprintPrune]) (muster.BlueprintsPruned, error) {
			return s.PruneBlueprints(ctx, in.Body)
		})
	add(a, op{method: get, path: "/v1/target", id: "get-target", summary: "Show which blueprint is to be made true, and whether there is planning", acts: read},
		func(ctx context.Context, s Session, _ *nothing) (muster.BlueprintTarget, error) { return s.Target(ctx) })
	add(a, op{method: put, path: "/v1/target", id: "set-target", summary: "Make what an older blueprint says the target again, while planning is stopped", acts: change},
		func(ctx context.Context, s Session, in *body[muster.NewTarget]) (muster.BlueprintEntry, error) {
			return s.SetTarget(ctx, in.Body)
		})
	add(a, op{method: put, path: "/v1/planning", id: "set-planning", summary: "Allow planning, or stop it for a reason", acts: change},
		func(ctx context.Context, s Session, in *body[muster.PlanningChange]) (muster.BlueprintTarget, error) {
			return s.SetPlanning(ctx, in.Body)
		})
}
