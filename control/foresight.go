package control

import (
	"context"

	"muster.internal"
	"muster.internal/blueprint"
	"muster.internal/explain"
)

// Plan is what the planner would do next, with a change assumed or none.
func (s session) Plan(ctx context.Context, w muster.WhatIf) (muster.DryPlan, error) {
	var d muster.DryPlan
	was, would, report, err := s.WhatIf(ctx, w)
	if err != nil {
		return d, err
	}
	is, _, err := s.store.Target(ctx)
	if err != nil {
		return d, err
	}
	if !is.Planning {
		d.Stopped = is.SetBy + ": " + is.Reason
	}
	d.Diff, d.Report = blueprint.Diff(&was, &would), report
	return d, nil
}

// Explain says why a node, a disk or a placement is as it is.
func (s session) Explain(ctx context.Context, kind muster.Subject, id string) (muster.Explained, error) {
	k, err := s.knownOf(ctx, kind, id)
	if err != nil {
		return muster.Explained{}, err
	}
	dry, err := s.Plan(ctx, muster.WhatIf{})
	if err != nil {
		return muster.Explained{}, err
	}
	k.Dry = dry.Report
	if k.Target, _, err = s.store.Target(ctx); err != nil {
		return muster.Explained{}, err
	}
	k.Why, err = s.store.LastChange(ctx, kind, id)
	return explain.Fleet(k), err
}

// knownOf reads what is known of a subject.
func (s session) knownOf(ctx context.Context, kind muster.Subject, id string) (k explain.Known, err error) {
	node := id
	switch kind {
	case muster.SubjectNode:
	case muster.SubjectDisk:
		all, err := s.store.Disks(ctx)
		if err != nil {
			return k, err
		}
		for i := range all {
			if all[i].ID == id {
				k.Disk, node = &all[i], all[i].NodeID
			}
		}
		if k.Disk == nil {
			return k, muster.Problemf(muster.CodeNotFound, "there is no disk %.64q", id)
		}
		if k.OnDisk, err = s.store.Placements(ctx, muster.PlacementFilter{Node: node}); err != nil {
			return k, err
		}
	case muster.SubjectPlacement:
		p, err := s.Placement(ctx, id)
		if err != nil {
			return k, err
		}
		k.Placed, node = &p, p.NodeID
		wanted, err := s.store.WantedModules(ctx)
		if err != nil {
			return k, err
		}
		for _, m := range wanted {
			if m.Name == p.Module {
				k.Wanted = m.Version
			}
		}
	default:
		return k, muster.Invalid("kind", "%.20q is none of node, disk and placement", kind)
	}
	k.Node, err = s.Node(ctx, node)
	return k, err
}
