package api_test

import "muster.internal"

func (s session) AddModule(_ ctx, n muster.NewModule) (muster.ModuleVersion, error) {
	return answer[muster.ModuleVersion](s.f, "AddModule", n)
}
func (s session) Modules(ctx) ([]muster.ModuleVersion, error) {
	return answer[[]muster.ModuleVersion](s.f, "Modules")
}
func (s session) Module(_ ctx, name string) ([]muster.ModuleVersion, error) {
	return answer[[]muster.ModuleVersion](s.f, "Module", name)
}
func (s session) WantModule(_ ctx, name string, version int64) (muster.ModuleVersion, error) {
	return answer[muster.ModuleVersion](s.f, "WantModule", name, version)
}
func (s session) RemoveModule(_ ctx, name string) error { return s.f.note("RemoveModule", name) }
func (s session) Blueprints(_ ctx, before int64, limit int) ([]muster.BlueprintEntry, error) {
	return answer[[]muster.BlueprintEntry](s.f, "Blueprints", before, limit)
}
func (s session) Blueprint(_ ctx, ref string) (muster.BlueprintDetail, error) {
	return answer[muster.BlueprintDetail](s.f, "Blueprint", ref)
}
func (s session) BlueprintDiff(_ ctx, from, to string) (muster.BlueprintDiff, error) {
	return answer[muster.BlueprintDiff](s.f, "BlueprintDiff", from, to)
}
func (s session) Target(ctx) (muster.BlueprintTarget, error) {
	return answer[muster.BlueprintTarget](s.f, "Target")
}
func (s session) SetTarget(_ ctx, n muster.NewTarget) (muster.BlueprintEntry, error) {
	return answer[muster.BlueprintEntry](s.f, "SetTarget", n)
}
func (s session) SetPlanning(_ ctx, c muster.PlanningChange) (muster.BlueprintTarget, error) {
	return answer[muster.BlueprintTarget](s.f, "SetPlanning", c)
}
func (s session) PruneBlueprints(_ ctx, p muster.BlueprintPrune) (muster.BlueprintsPruned, error) {
	return answer[muster.BlueprintsPruned](s.f, "PruneBlueprints", p)
}
func (s session) Placements(_ ctx, f muster.PlacementFilter) ([]muster.PlacementRecord, error) {
	return answer[[]muster.PlacementRecord](s.f, "Placements", f)
}
func (s session) Placement(_ ctx, id string) (muster.PlacementDetail, error) {
	return answer[muster.PlacementDetail](s.f, "Placement", id)
}
func (s session) HandOver(_ ctx, id string) (muster.Node, error) {
	return answer[muster.Node](s.f, "HandOver", id)
}
func (s session) Plan(_ ctx, w muster.WhatIf) (muster.DryPlan, error) {
	return answer[muster.DryPlan](s.f, "Plan", w)
}
func (s session) Explain(_ ctx, kind muster.Subject, id string) (muster.Explained, error) {
	return answer[muster.Explained](s.f, "Explain", kind, id)
}
