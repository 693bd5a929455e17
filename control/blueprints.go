package control

import (
	"context"
	"strings"

	"muster.internal"
	"muster.internal/blueprint"
)

func (s session) AddModule(ctx context.Context, n muster.NewModule) (muster.ModuleVersion, error) {
	return s.store.AddModule(ctx, s.now(), s.by, n.Module, !n.Unwanted)
}

func (s session) Modules(ctx context.Context) ([]muster.ModuleVersion, error) {
	return s.store.Modules(ctx)
}

func (s session) Module(ctx context.Context, name string) ([]muster.ModuleVersion, error) {
	return s.store.Module(ctx, name)
}

func (s session) WantModule(ctx context.Context, name string, version int64) (muster.ModuleVersion, error) {
	return s.store.WantModule(ctx, s.now(), s.by, name, version)
}

func (s session) RemoveModule(ctx context.Context, name string) error {
	return s.store.RemoveModule(ctx, s.now(), s.by, name)
}

func (s session) Blueprints(ctx context.Context, before int64, limit int) ([]muster.BlueprintEntry, error) {
	return s.store.Blueprints(ctx, before, limit)
}

func (s session) Blueprint(ctx context.Context, ref string) (muster.BlueprintDetail, error) {
	return s.store.Blueprint(ctx, ref)
}

func (s session) BlueprintDiff(ctx context.Context, from, to string) (muster.BlueprintDiff, error) {
	is, err := s.store.Blueprint(ctx, to)
	if err != nil {
		return muster.BlueprintDiff{}, err
	}
	was := muster.BlueprintDetail{}
	if from == "" {
		from = is.Parent
	}
	if from != "" {
		if was, err = s.store.Blueprint(ctx, from); err != nil {
			return muster.BlueprintDiff{}, err
		}
	}
	return blueprint.Diff(&was.Blueprint, &is.Blueprint), nil
}

func (s session) Target(ctx context.Context) (muster.BlueprintTarget, error) {
	is, _, err := s.store.Target(ctx)
	return is, err
}

// SetTarget revives an older blueprint.
func (s session) SetTarget(ctx context.Context, n muster.NewTarget) (muster.BlueprintEntry, error) {
	none := muster.BlueprintEntry{}
	if strings.TrimSpace(n.Reason) == "" {
		return none, muster.Invalid("reason", "say why an older blueprint is the target again: whoever asks later is told")
	}
	old, err := s.store.Blueprint(ctx, n.Blueprint)
	if err != nil {
		return none, err
	}
	is, target, err := s.store.Target(ctx)
	if err != nil {
		return none, err
	}
	if old.ID == is.ID {
		return old.BlueprintEntry, nil
	}
	floors, err := s.store.Generations(ctx)
	if err != nil {
		return none, err
	}
	id, err := s.store.NewBlueprintID(s.now())
	if err != nil {
		return none, err
	}
	b, report := blueprint.Revive(&old.Blueprint, target, id, s.now(), n.Reason, floors)
	if len(report.Done) == 0 {
		p := muster.Problemf(muster.CodeConflict, "nothing differs between blueprint %d and the target that could be taken back: nodes that came, went or are not in service since stay as they are", old.Number)
		p.State = is.ID
		return none, p
	}
	if found := blueprint.Lint(&b); len(found) > 0 {
		p := muster.Problemf(muster.CodeConflict, "what blueprint %d says cannot be so again: %s; want the modules that it had instead (muster module wanted), and let planning go on", old.Number, found[0])
		p.State = is.ID
		return none, p
	}
	return s.store.SetTargetByHand(ctx, s.now(), s.by, &b, report)
}

func (s session) SetPlanning(ctx context.Context, c muster.PlanningChange) (muster.BlueprintTarget, error) {
	return s.store.SetPlanning(ctx, s.now(), s.by, c.Planning, c.Reason)
}

func (s session) PruneBlueprints(ctx context.Context, p muster.BlueprintPrune) (muster.BlueprintsPruned, error) {
	n, err := s.store.PruneBlueprints(ctx, s.now(), s.by, p.Keep)
	return muster.BlueprintsPruned{Forgotten: n}, err
}

func (s session) Placements(ctx context.Context, f muster.PlacementFilter) ([]muster.PlacementRecord, error) {
	return s.store.Placements(ctx, f)
}

func (s session) Placement(ctx context.Context, id string) (muster.PlacementDetail, error) {
	p, err := s.store.Placement(ctx, id)
	if err != nil {
		return muster.PlacementDetail{}, err
	}
	d := muster.PlacementDetail{PlacementRecord: p}
	_, target, err := s.store.Target(ctx)
	if err != nil || target == nil {
		return d, err
	}
	for i := range target.Nodes {
		n := &target.Nodes[i]
		if n.ID != p.NodeID {
			continue
		}
		d.Hostname = n.Hostname
		for k := range n.Placements {
			if n.Placements[k].ID == id {
				d.Target = &n.Placements[k]
			}
		}
	}
	return d, nil
}

func (s session) HandOver(ctx context.Context, nodeID string) (muster.Node, error) {
	return s.store.HandOver(ctx, s.now(), s.by, nodeID)
}
