package blueprint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/module"
)

// Revive is what an older blueprint says, as a child of the target: nodes that
// are told otherwise now are told what they were told then, in a generation above
// every one that they may have heard of, which floors has. What is true now stays
// true: a node that came in since, or that is not in service, is left as it is,
// and what is there of a placement is not taken for gone. The report tells what
// changes.
func Revive(old, target *muster.Blueprint, id string, at time.Time, why string, floors map[string]int64) (muster.Blueprint, muster.PlanReport) {
	r := &reviver{floors: floors, retold: map[string]bool{}}
	r.report.Parent, r.report.Blueprint = target.ID, id
	then := NewRenderer(old).nodes
	b := muster.Blueprint{ID: id, Parent: target.ID, MadeAt: at, Why: why, Nodes: slices.Clone(target.Nodes)}
	for i := range b.Nodes {
		n := &b.Nodes[i]
		title := cmp.Or(n.Hostname, n.ID)
		switch was := then[n.ID]; {
		case n.State != muster.NodeInService && n.State != muster.NodeInitializing:
			r.note(n, "node %s is %s, and is left as it is", title, n.State)
		case was == nil:
			r.note(n, "node %s came in since, and is left as it is", title)
		case !slices.EqualFunc(told(was), told(n), sameWord):
			r.node(was, n)
		}
	}
	r.settle(&b)
	b.Modules = modulesOf(&b, old, target)
	return b, r.report
}

type reviver struct {
	floors map[string]int64
	retold map[string]bool // which nodes have a new generation
	report muster.PlanReport
}

func (r *reviver) note(n *muster.BlueprintNode, format string, args ...any) {
	r.report.Notes = append(r.report.Notes, muster.PlanLine{Node: n.ID, Text: fmt.Sprintf(format, args...)})
}

func (r *reviver) did(n *muster.BlueprintNode, p *muster.BlueprintPlacement, format string, args ...any) {
	r.report.Done = append(r.report.Done, muster.PlanLine{Node: n.ID, Module: p.Module, Placement: p.ID, Text: fmt.Sprintf(format, args...)})
}

// told are the placements that a node is to have, by id.
func told(n *muster.BlueprintNode) (all []muster.BlueprintPlacement) {
	for _, p := range n.Placements {
		if p.Declared() || p.Held {
			all = append(all, p)
		}
	}
	return byID(all)
}

// sameWord tells whether two say the same of a placement, however far it is.
func sameWord(a, b muster.BlueprintPlacement) bool {
	return a.ID == b.ID && a.Version == b.Version && a.Disk == b.Disk && a.Transient == b.Transient && a.Held == b.Held
}

// node gives a node what it had, and takes what came since.
func (r *reviver) node(was, n *muster.BlueprintNode) {
	title := cmp.Or(n.Hostname, n.ID)
	next := r.next(n)
	var all []muster.BlueprintPlacement
	back := map[string]bool{}
	for _, p := range told(was) {
		now := twin(n, &p)
		if now != nil {
			p.ID, p.Name = now.ID, now.Name
		}
		back[p.ID] = true
		if now != nil && (now.Declared() || now.Held) && sameWord(p, *now) {
			all = append(all, *now)
			continue
		}
		p.State, p.AsOf, p.Ready, p.Replaces, p.Since = muster.PlacementReserved, 0, false, "", next
		if now != nil && now.Declared() {
			if p.Held {
				p.Since, p.AsOf = now.Since, next
			} else {
				p.State = now.State
			}
		} else if p.Held {
			p.Since = 0
		}
		r.did(n, &p, "%s on %s is as it was: version %d", p.Name, title, p.Version)
		all = append(all, p)
	}
	for _, p := range n.Placements {
		if back[p.ID] {
			continue
		}
		if p.Declared() {
			p.State, p.AsOf, p.Replaces = muster.PlacementRemoved, next, ""
			r.did(n, &p, "%s came to %s since, and leaves", p.Name, title)
		} else if p.Held {
			p.State, p.Held, p.Ready = muster.PlacementRemoved, false, p.Ready || p.AsOf == 0
			r.did(n, &p, "%s was to come to %s, and does not", p.Name, title)
		}
		all = append(all, p)
	}
	n.Placements, n.Drawn = all, max(n.Drawn, was.Drawn)
}

// twin is what a placement is on its node now: itself, or, of what is there once
// for the node or a disk, the one that came in its stead.
func twin(n *muster.BlueprintNode, p *muster.BlueprintPlacement) (found *muster.BlueprintPlacement) {
	for i := range n.Placements {
		now := &n.Placements[i]
		switch {
		case now.ID == p.ID:
			return now
		case p.Kind != muster.PlacementService && now.Module == p.Module && now.Disk == p.Disk && (now.Declared() || now.Held):
			found = now
		}
	}
	return found
}

// next is the generation in which a node hears of all that changes.
func (r *reviver) next(n *muster.BlueprintNode) int64 {
	if !r.retold[n.ID] {
		n.Generation, r.retold[n.ID] = max(n.Generation, r.floors[n.ID])+1, true
	}
	return n.Generation
}

// settle lets nothing move that nothing replaces any more.
func (r *reviver) settle(b *muster.Blueprint) {
	heirs := map[string]bool{}
	for i := range b.Nodes {
		for _, p := range b.Nodes[i].Placements {
			if p.Replaces != "" && (p.Declared() || p.Held) {
				heirs[p.Replaces] = true
			}
		}
	}
	for i := range b.Nodes {
		n := &b.Nodes[i]
		own := false
		for at, p := range n.Placements {
			if p.State != muster.PlacementMoving || heirs[p.ID] {
				continue
			}
			if !own {
				n.Placements, own = slices.Clone(n.Placements), true
			}
			n.Placements[at].State, n.Placements[at].Since = muster.PlacementPlaced, r.next(n) // a live move's leaving end is told something else
			r.did(n, &p, "%s stays on %s: nothing replaces it any more", p.Name, cmp.Or(n.Hostname, n.ID))
		}
	}
}

// modulesOf are the versions that some placement has.
func modulesOf(b *muster.Blueprint, from ...*muster.Blueprint) (all []module.Module) {
	used := map[key]bool{}
	for i := range b.Nodes {
		for _, p := range b.Nodes[i].Placements {
			used[key{p.Module, p.Version}] = true
		}
	}
	for _, f := range from {
		for _, m := range f.Modules {
			if k := (key{m.Name, m.Version}); used[k] {
				all = append(all, m)
				delete(used, k)
			}
		}
	}
	slices.SortFunc(all, func(a, b module.Module) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	return all
}
