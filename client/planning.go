package client

import (
	"context"

	"muster.internal"
)

func (c *Client) AddModule(ctx context.Context, n muster.NewModule) (muster.ModuleVersion, error) {
	unwanted := ""
	if n.Unwanted {
		unwanted = "true"
	}
	return fetch[muster.ModuleVersion](ctx, c, post(n.Module, "/v1/modules").with(map[string]string{"unwanted": unwanted}))
}

func (c *Client) Modules(ctx context.Context) ([]muster.ModuleVersion, error) {
	return items[muster.ModuleVersion](ctx, c, get("/v1/modules"))
}

func (c *Client) Module(ctx context.Context, name string) ([]muster.ModuleVersion, error) {
	return items[muster.ModuleVersion](ctx, c, get("/v1/modules", name))
}

func (c *Client) WantModule(ctx context.Context, name string, version int64) (muster.ModuleVersion, error) {
	return fetch[muster.ModuleVersion](ctx, c, put(map[string]int64{"version": version}, "/v1/modules", name, "wanted"))
}

func (c *Client) RemoveModule(ctx context.Context, name string) error {
	return c.do(ctx, remove("/v1/modules", name))
}

func (c *Client) Blueprints(ctx context.Context, before int64, limit int) ([]muster.BlueprintEntry, error) {
	return items[muster.BlueprintEntry](ctx, c, get("/v1/blueprints").with(map[string]string{"before": number(before), "limit": number(limit)}))
}

func (c *Client) Blueprint(ctx context.Context, ref string) (muster.BlueprintDetail, error) {
	return fetch[muster.BlueprintDetail](ctx, c, get("/v1/blueprints", ref))
}

func (c *Client) BlueprintDiff(ctx context.Context, from, to string) (muster.BlueprintDiff, error) {
	return fetch[muster.BlueprintDiff](ctx, c, get("/v1/blueprints", to, "diff").with(map[string]string{"from": from}))
}

func (c *Client) Target(ctx context.Context) (muster.BlueprintTarget, error) {
	return fetch[muster.BlueprintTarget](ctx, c, get("/v1/target"))
}

func (c *Client) SetTarget(ctx context.Context, n muster.NewTarget) (muster.BlueprintEntry, error) {
	return fetch[muster.BlueprintEntry](ctx, c, put(n, "/v1/target"))
}

func (c *Client) SetPlanning(ctx context.Context, p muster.PlanningChange) (muster.BlueprintTarget, error) {
	return fetch[muster.BlueprintTarget](ctx, c, put(p, "/v1/planning"))
}

func (c *Client) PruneBlueprints(ctx context.Context, p muster.BlueprintPrune) (muster.BlueprintsPruned, error) {
	return fetch[muster.BlueprintsPruned](ctx, c, post(p, "/v1/blueprints/prune"))
}

func (c *Client) Placements(ctx context.Context, f muster.PlacementFilter) ([]muster.PlacementRecord, error) {
	return items[muster.PlacementRecord](ctx, c, get("/v1/placements").with(map[string]string{
		"node": f.Node, "module": f.Module, "state": string(f.State), "after": f.After, "limit": number(f.Limit)}))
}

func (c *Client) Placement(ctx context.Context, id string) (muster.PlacementDetail, error) {
	return fetch[muster.PlacementDetail](ctx, c, get("/v1/placements", id))
}

func (c *Client) HandOver(ctx context.Context, nodeID string) (muster.Node, error) {
	return fetch[muster.Node](ctx, c, post(nil, "/v1/nodes", nodeID, "hand-over"))
}

func (c *Client) Plan(ctx context.Context, w muster.WhatIf) (muster.DryPlan, error) {
	return fetch[muster.DryPlan](ctx, c, post(w, "/v1/plan"))
}

func (c *Client) Explain(ctx context.Context, kind muster.Subject, id string) (muster.Explained, error) {
	return fetch[muster.Explained](ctx, c, get("/v1/explain", string(kind), id))
}
