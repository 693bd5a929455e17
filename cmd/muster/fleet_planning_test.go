package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	muster "muster.internal"
	"muster.internal/blueprint"
	"muster.internal/explain"
	"muster.internal/module"
	"muster.internal/planner"
)

// A fleetPlan is what a memory shall be: it plans with the real planner, whenever
// something is otherwise, and its hosts do everything at once.
type fleetPlan struct {
	versions   []muster.ModuleVersion // newest first
	blueprints []muster.BlueprintDetail
	target     muster.BlueprintTarget
}

func (m *memory) input() planner.Input {
	p := &m.plan
	in := planner.Input{ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", len(p.blueprints)+1), MadeAt: noon, Why: "planned", Seed: 1}
	for _, v := range p.versions {
		if v.Wanted {
			in.Modules = append(in.Modules, *v.Document)
		}
	}
	if n := len(p.blueprints); n > 0 {
		in.Parent = &p.blueprints[n-1].Blueprint
	}
	for _, n := range m.nodes {
		pn := planner.Node{ID: n.ID, Hostname: n.Hostname, Address: "10.77.0.101", Registration: muster.Approved, Policy: n.Policy, State: n.State, Labels: n.Labels, ByHand: n.ByHand,
			Seen: &planner.Seen{Capacity: module.Capacity{CPUMillis: 8000, MemoryMiB: 1 << 16, DiskMiB: 1 << 20}}}
		if in.Parent != nil {
			for _, bn := range in.Parent.Nodes {
				pn.Seen.Holds, pn.Seen.Reconciled = bn.Generation, bn.Generation
				for _, pl := range bn.Placements {
					if pl.Declared() {
						pn.Seen.Placements = append(pn.Seen.Placements, planner.SeenPlacement{ID: pl.ID, Healthy: true, CaughtUp: true})
					}
				}
			}
		}
		in.Nodes = append(in.Nodes, pn)
	}
	return in
}

// replan makes blueprints until nothing is to change.
func (m *memory) replan() {
	for m.plan.target.Planning {
		b, report := planner.Plan(m.input())
		if report.Blueprint == "" {
			return
		}
		m.follow(b, report, "key:clock")
	}
}

func (m *memory) follow(b muster.Blueprint, report muster.PlanReport, by string) muster.BlueprintEntry {
	p := &m.plan
	e := muster.BlueprintEntry{Number: int64(len(p.blueprints) + 1), ID: b.ID, Parent: b.Parent, MadeAt: noon, MadeBy: by, Why: b.Why, Changes: int64(len(report.Done)), Target: true}
	for i := range p.blueprints {
		p.blueprints[i].Target = false
	}
	p.blueprints = append(p.blueprints, muster.BlueprintDetail{BlueprintEntry: e, Blueprint: b, Report: report})
	p.target.Number, p.target.ID = e.Number, e.ID
	return e
}

func (m *memory) AddModule(_ context.Context, n muster.NewModule) (muster.ModuleVersion, error) {
	p := &m.plan
	doc := n.Module
	newest := int64(0)
	for i, v := range p.versions {
		if v.Name != doc.Name {
			continue
		}
		newest = max(newest, v.Version)
		same := doc
		same.Version = v.Version
		if v.Version == newest && v.Document.Equal(&same) {
			return m.want(i, !n.Unwanted), m.up()
		}
	}
	if doc.Version == 0 {
		doc.Version = newest + 1
	}
	v := muster.ModuleVersion{Name: doc.Name, Version: doc.Version, Place: doc.Place.String(), AddedAt: noon, AddedBy: "operator:admin", Document: &doc}
	p.versions = slices.Insert(p.versions, 0, v)
	m.note("add_module", "module/"+v.Name)
	return m.want(0, !n.Unwanted), m.up()
}

func (m *memory) want(at int, want bool) muster.ModuleVersion {
	if want {
		for i := range m.plan.versions {
			if v := &m.plan.versions[i]; v.Name == m.plan.versions[at].Name {
				v.Wanted = i == at
			}
		}
		m.replan()
	}
	return m.plan.versions[at]
}

func (m *memory) Modules(context.Context) (all []muster.ModuleVersion, err error) {
	for _, v := range m.plan.versions {
		v.Document = nil
		i := slices.IndexFunc(all, func(o muster.ModuleVersion) bool { return o.Name == v.Name })
		if i < 0 {
			all = append(all, v)
		} else if v.Wanted {
			all[i] = v
		}
	}
	return all, m.up()
}

func (m *memory) Module(_ context.Context, name string) (all []muster.ModuleVersion, err error) {
	for _, v := range m.plan.versions {
		if v.Name == name {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return nil, muster.Problemf(muster.CodeNotFound, "there is no module %q", name)
	}
	return all, m.up()
}

func (m *memory) WantModule(ctx context.Context, name string, version int64) (muster.ModuleVersion, error) {
	if _, err := m.Module(ctx, name); err != nil {
		return muster.ModuleVersion{}, err
	}
	for i, v := range m.plan.versions {
		if v.Name == name && v.Version == version {
			return m.want(i, true), m.up()
		}
	}
	return muster.ModuleVersion{}, muster.Problemf(muster.CodeNotFound, "module %s has no version %d", name, version)
}

func (m *memory) RemoveModule(ctx context.Context, name string) error {
	if _, err := m.Module(ctx, name); err != nil {
		return err
	}
	for i := range m.plan.versions {
		if m.plan.versions[i].Name == name {
			m.plan.versions[i].Wanted = false
		}
	}
	m.replan()
	return m.up()
}

func (m *memory) Blueprints(_ context.Context, before int64, limit int) (all []muster.BlueprintEntry, err error) {
	for i := len(m.plan.blueprints) - 1; i >= 0; i-- {
		if b := m.plan.blueprints[i].BlueprintEntry; (before == 0 || b.Number < before) && len(all) < limit {
			all = append(all, b)
		}
	}
	return all, m.up()
}

func (m *memory) Blueprint(_ context.Context, ref string) (muster.BlueprintDetail, error) {
	for _, b := range m.plan.blueprints {
		if b.ID == ref || fmt.Sprint(b.Number) == ref || ref == "target" && b.Target {
			return b, m.up()
		}
	}
	return muster.BlueprintDetail{}, muster.Problemf(muster.CodeNotFound, "there is no blueprint %q", ref)
}

func (m *memory) BlueprintDiff(ctx context.Context, from, to string) (muster.BlueprintDiff, error) {
	is, err := m.Blueprint(ctx, to)
	if err != nil {
		return muster.BlueprintDiff{}, err
	}
	was := muster.BlueprintDetail{}
	if from == "" {
		from = is.Parent
	}
	if from != "" {
		if was, err = m.Blueprint(ctx, from); err != nil {
			return muster.BlueprintDiff{}, err
		}
	}
	return blueprint.Diff(&was.Blueprint, &is.Blueprint), nil
}

func (m *memory) Target(context.Context) (muster.BlueprintTarget, error) {
	return m.plan.target, m.up()
}

func (m *memory) SetTarget(ctx context.Context, n muster.NewTarget) (muster.BlueprintEntry, error) {
	old, err := m.Blueprint(ctx, n.Blueprint)
	if err != nil {
		return muster.BlueprintEntry{}, err
	}
	if m.plan.target.Planning {
		return muster.BlueprintEntry{}, conflict(m.plan.target.ID, "", "planning goes on: stop it first")
	}
	now, _ := m.Blueprint(ctx, "target")
	b, report := blueprint.Revive(&old.Blueprint, &now.Blueprint, m.input().ID, noon, n.Reason, nil)
	return m.follow(b, report, "operator:admin"), nil
}

func (m *memory) SetPlanning(_ context.Context, c muster.PlanningChange) (muster.BlueprintTarget, error) {
	t := &m.plan.target
	at := noon
	t.Planning, t.Reason, t.SetAt, t.SetBy = c.Planning, c.Reason, &at, "operator:admin"
	m.replan()
	return *t, m.up()
}

func (m *memory) PruneBlueprints(_ context.Context, p muster.BlueprintPrune) (muster.BlueprintsPruned, error) {
	n := max(0, len(m.plan.blueprints)-1-int(p.Keep))
	m.plan.blueprints = m.plan.blueprints[n:]
	return muster.BlueprintsPruned{Forgotten: int64(n)}, m.up()
}

func (m *memory) Placements(_ context.Context, f muster.PlacementFilter) (all []muster.PlacementRecord, err error) {
	if f.State != "" && f.State != muster.PlacementAny && !slices.Contains(muster.PlacementStates, f.State) {
		return nil, muster.Invalid("state", "%q is none of %s and any", f.State, strings.Join(states(muster.PlacementStates), ", "))
	}
	b, err := m.Blueprint(context.Background(), "target")
	if err != nil {
		return nil, m.up()
	}
	for _, n := range b.Blueprint.Nodes {
		for _, p := range n.Placements {
			r := muster.PlacementRecord{Placement: p.Placement, NodeID: n.ID, Name: p.Name, Version: p.Version, Disk: p.Disk, CreatedAt: noon, ChangedAt: noon}
			if p.ID > f.After && (f.Node == "" || f.Node == n.ID) && (f.Module == "" || f.Module == p.Module) &&
				(f.State == p.State || f.State == muster.PlacementAny || f.State == "" && p.Declared()) {
				all = append(all, r)
			}
		}
	}
	slices.SortFunc(all, func(a, b muster.PlacementRecord) int { return strings.Compare(a.ID, b.ID) })
	return all, m.up()
}

func (m *memory) Placement(ctx context.Context, id string) (muster.PlacementDetail, error) {
	all, _ := m.Placements(ctx, muster.PlacementFilter{State: muster.PlacementAny})
	for _, r := range all {
		if r.ID != id {
			continue
		}
		d := muster.PlacementDetail{PlacementRecord: r, Hostname: "web1"}
		b, _ := m.Blueprint(ctx, "target")
		for _, n := range b.Blueprint.Nodes {
			for i := range n.Placements {
				if n.Placements[i].ID == id {
					d.Target = &n.Placements[i]
				}
			}
		}
		return d, m.up()
	}
	return muster.PlacementDetail{}, muster.Problemf(muster.CodeNotFound, "there is no placement %q", id)
}

func (m *memory) HandOver(_ context.Context, id string) (muster.Node, error) {
	n, err := m.node(id)
	if err != nil {
		return muster.Node{}, err
	}
	n.ByHand = false
	m.note("hand_over", "node/"+id)
	m.replan()
	return *n, m.up()
}

func (m *memory) Plan(_ context.Context, w muster.WhatIf) (muster.DryPlan, error) {
	in := m.input()
	if err := planner.Assume(&in, w); err != nil {
		return muster.DryPlan{}, err
	}
	was := &muster.Blueprint{}
	if in.Parent != nil {
		was = in.Parent
	}
	b, report := planner.Plan(in)
	d := muster.DryPlan{Diff: blueprint.Diff(was, &b), Report: report}
	if t := m.plan.target; !t.Planning {
		d.Stopped = t.SetBy + ": " + t.Reason
	}
	return d, m.up()
}

func (m *memory) Explain(ctx context.Context, kind muster.Subject, id string) (muster.Explained, error) {
	dry, err := m.Plan(ctx, muster.WhatIf{})
	if err != nil {
		return muster.Explained{}, err
	}
	k := explain.Known{Target: m.plan.target, Dry: dry.Report}
	node := id
	switch kind {
	case muster.SubjectPlacement:
		p, err := m.Placement(ctx, id)
		if err != nil {
			return muster.Explained{}, err
		}
		k.Placed, node, k.Wanted = &p, p.NodeID, p.Version
		k.Why = &muster.ExplainedChange{Number: 2, At: noon, By: "key:clock", Why: "planned", Lines: []muster.PlanLine{{Text: p.Name + " on web1 is up"}}}
	case muster.SubjectDisk:
		ds, err := m.Disks(ctx)
		if err != nil {
			return muster.Explained{}, err
		}
		k.Disk, node = &ds[0], ds[0].NodeID
	}
	k.Node, err = m.Node(ctx, node)
	return explain.Fleet(k), err
}
