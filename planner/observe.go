package planner

import (
	"fmt"

	"muster.internal"
	"muster.internal/blueprint"
	"muster.internal/inventory"
	"muster.internal/module"
	"muster.internal/resource"
)

// Heard is the newest that was heard of a node, each part when it came: a host
// says what it did before it says what it owns.
type Heard struct {
	Holds    int64            // the generation that its host says it holds
	Report   *resource.Report // nil: none came yet
	Owned    []resource.Owned // what its host answers for; may be older than the report
	Profile  inventory.Profile
	Capacity module.Capacity
	Disks    []string                 // ids of its disks that are plugged in
	Health   []muster.PlacementHealth // what its host sees of what it is told to check
}

// Observe tells what of a blueprint there is on one of its nodes.
func Observe(r *blueprint.Renderer, nodeID string, h Heard) *Seen {
	s := &Seen{Holds: h.Holds, Profile: h.Profile, Capacity: h.Capacity}
	o := observer{owned: map[resource.Ref]*resource.Owned{}, lines: map[resource.Ref]*resource.Line{}, health: map[string]*muster.PlacementHealth{}}
	for i := range h.Health {
		o.health[h.Health[i].ID] = &h.Health[i]
	}
	for i := range h.Owned {
		o.owned[h.Owned[i].Ref] = &h.Owned[i]
	}
	if h.Report != nil {
		for i := range h.Report.Lines {
			o.lines[h.Report.Lines[i].Ref] = &h.Report.Lines[i]
		}
		s.Holds = max(s.Holds, h.Report.Generation)
		s.Reconciled = o.reconciled(h.Report)
	}
	for _, id := range h.Disks {
		s.Disks = append(s.Disks, SeenDisk{ID: id, InUse: o.there(resource.NewRef("disk", id))})
	}
	if n := r.Node(nodeID); n != nil {
		s.Placements = o.placements(r, n)
	}
	return s
}

// An observer holds what a host says beside what it was told.
type observer struct {
	owned  map[resource.Ref]*resource.Owned
	lines  map[resource.Ref]*resource.Line
	health map[string]*muster.PlacementHealth
}

// reconciled is the generation that a report says was applied to its end and
// read back. What was refused, cut short or taken back was not.
func (o *observer) reconciled(r *resource.Report) int64 {
	if l := o.lines[resource.DeclarationRef]; l != nil && l.Outcome == resource.OutcomeFailed || r.Trigger == resource.TriggerRevert {
		return 0
	}
	return r.Generation
}

// there tells whether the host may still have something of a resource: by either
// of the two that it says, for one of them is older. What a person at the machine
// made is not the fleet's.
func (o *observer) there(ref resource.Ref) bool {
	if own := o.owned[ref]; own != nil {
		return !own.Local
	}
	l := o.lines[ref]
	return l != nil && !l.LetGo()
}

func (o *observer) placements(r *blueprint.Renderer, n *muster.BlueprintNode) (all []SeenPlacement) {
	declared := map[resource.Ref]bool{}
	var ended []*muster.BlueprintPlacement
	for i := range n.Placements {
		switch p := &n.Placements[i]; {
		case p.Declared():
			now, besides, err := r.Refs(n, p)
			if err != nil {
				continue // lint has said so: nobody is told of it
			}
			for _, ref := range now {
				declared[ref] = true
			}
			if seen, any := o.up(p, now, besides); any {
				if r.Checked(p) {
					o.checked(&seen)
				}
				all = append(all, seen)
			}
		case p.AsOf > 0 && !p.Ready:
			ended = append(ended, p)
		}
	}
	for _, p := range ended {
		now, besides, err := r.Refs(n, p)
		if err != nil {
			all = append(all, SeenPlacement{ID: p.ID, Reason: err.Error()}) // what cannot be told is not gone
			continue
		}
		if left, any := o.left(now, besides, declared); any {
			all = append(all, SeenPlacement{ID: p.ID, Reason: left})
		}
	}
	return all
}

// up tells of a declared placement whether its host says that all of it is as
// declared. A report may leave out what is ok: then the host must own it.
func (o *observer) up(p *muster.BlueprintPlacement, now, besides []resource.Ref) (seen SeenPlacement, any bool) {
	seen = SeenPlacement{ID: p.ID}
	for _, ref := range besides {
		any = any || o.there(ref)
	}
	for _, ref := range now {
		own, l := o.owned[ref], o.lines[ref]
		any = any || own != nil || l != nil
		why := ""
		switch {
		case l != nil && l.LetGo():
			why = fmt.Sprintf("its host has let go of %s", ref)
		case l != nil && l.Outcome != resource.OutcomeOK && l.Outcome != resource.OutcomeChanged:
			why = fmt.Sprintf("%s is %s%s", ref, l.Outcome, because(l.Reason))
		case l != nil:
		case own == nil:
			why = fmt.Sprintf("its host says nothing of %s", ref)
		case own.Begun:
			why = fmt.Sprintf("its host has begun to make %s, and has not said that it is there", ref)
		case own.Conflict:
			why = fmt.Sprintf("%s is not as declared, and nobody has said which of the two it shall be", ref)
		}
		if seen.Reason == "" {
			seen.Reason = why
		}
	}
	seen.Healthy = any && seen.Reason == ""
	seen.CaughtUp = seen.Healthy
	return seen, any
}

// checked adds what the host sees of a placement that it is told to check.
func (o *observer) checked(seen *SeenPlacement) {
	if !seen.Healthy {
		return
	}
	h := o.health[seen.ID]
	if h == nil {
		seen.Healthy, seen.CaughtUp, seen.Reason = false, false, "its host has not said whether it is up; one that is too old never does"
		return
	}
	seen.Healthy, seen.CaughtUp = h.Healthy, h.Healthy && h.CaughtUp
	if !seen.CaughtUp {
		seen.Reason = h.Reason
	}
}

// left tells what there still is of a placement that its node is told of no
// longer. What another declares too stays for that one's sake.
func (o *observer) left(now, besides []resource.Ref, declared map[resource.Ref]bool) (what string, any bool) {
	for _, refs := range [][]resource.Ref{now, besides} {
		for _, ref := range refs {
			if declared[ref] || !o.there(ref) {
				continue
			}
			if l := o.lines[ref]; l != nil && l.Reason != "" {
				return fmt.Sprintf("%s: %s", ref, l.Reason), true
			}
			return string(ref), true
		}
	}
	return "", false
}
