// Package planner says what a fleet shall be next: from the blueprint that is
// the target now, the inventory, the operators' policy and a seed it makes the
// next blueprint, and a report that explains every change and everything that it
// could not do.
//
// It is pure: no I/O, no clock, no dice. The same input makes the same bytes,
// and a plan on its own result changes nothing. It never fails: what is wrong
// with one node or module is said in the report, and the rest goes on.
//
// The steps are the methods that Plan calls, in their order. Each looks at an
// inventory that may be old, so whatever it takes from there it compares first
// with the generation as of which the parent says it.
package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"muster.internal"
	"muster.internal/blueprint"
	"muster.internal/module"
)

// Plan makes the next blueprint. When nothing is to change it is the parent.
func Plan(in Input) (muster.Blueprint, muster.PlanReport) {
	p := &plan{in: &in, kinds: map[string]*kind{}, defs: map[key]*module.Module{}}
	p.modules()
	p.nodesIn()
	for i := range p.nodes {
		p.handed(&p.nodes[i])
		p.confirm(&p.nodes[i])
		p.expunge(&p.nodes[i])
	}
	p.index()
	p.endUnwanted()
	p.eachPlace(muster.PlacementBase)
	p.beginService()
	p.eachPlace(muster.PlacementPerDisk)
	p.eachPlace(muster.PlacementPerNode)
	p.pinned()
	p.services()
	for i := range p.nodes {
		p.quiesce(i)
		p.remove(i)
		p.disks(i)
	}
	p.updates()
	return p.finish()
}

type plan struct {
	in     *Input
	nodes  []node
	kinds  map[string]*kind
	order  []*kind // dependencies first
	defs   map[key]*module.Module
	report muster.PlanReport

	dropped   bool                       // a node of the parent is not in it any more
	roomMade  bool                       // free and total of each node are reckoned
	conflicts map[string]map[string]bool // which modules cannot be on one node
}

type key struct {
	name    string
	version int64
}

// A node is one node while it is planned.
type node struct {
	index   int
	in      *Node // nil: the store does not know it
	now     muster.BlueprintNode
	own     bool   // now's placements are a copy
	changed bool   // now is not as in the parent
	told    int64  // the new generation, when what it is told changes; else 0
	up      []bool // of each placement: it is available
	free    module.Capacity
	total   int // placements that take room
}

// A kind is a module with all of its placements.
type kind struct {
	name      string
	want      *module.Module // nil: it is not wanted any more
	all       []ref
	available int
	moved     moved        // whether who is a member, or where, has changed
	numbers   map[int]bool // that are taken
	lowest    int          // no lower number is free
}

// Moved says on which nodes the members of a module have changed.
type moved int

const (
	nowhere moved = -1
	several moved = -2
)

func (k *kind) move(node int) {
	if k.moved == nowhere {
		k.moved = moved(node)
	} else if k.moved != moved(node) {
		k.moved = several
	}
}

// A ref is where a placement is.
type ref struct{ node, at int }

func (p *plan) at(r ref) (*node, *muster.BlueprintPlacement) {
	n := &p.nodes[r.node]
	return n, &n.now.Placements[r.at]
}

// modules takes in what is wanted, and refuses what cannot be.
func (p *plan) modules() {
	if b := p.in.Parent; b != nil {
		for i := range b.Modules {
			p.defs[key{b.Modules[i].Name, b.Modules[i].Version}] = &b.Modules[i]
		}
	}
	wanted := slices.Clone(p.in.Modules)
	slices.SortStableFunc(wanted, func(a, b module.Module) int { return strings.Compare(a.Name, b.Name) })
	for i := range wanted {
		m := &wanted[i]
		if why := p.unfit(m); why != "" {
			p.refuse(line{module: m.Name}, "module %s version %d: %s", m.Name, m.Version, why)
			if p.kinds[m.Name] == nil {
				p.kind(m.Name).want = p.newest(m.Name)
			}
			continue
		}
		k := key{m.Name, m.Version}
		if p.defs[k] == nil {
			p.defs[k] = m
		}
		p.kind(m.Name).want = p.defs[k]
	}
	p.inOrder()
}

// newest is the newest version that the parent has, so that a module whose new
// version is refused stays as it is.
func (p *plan) newest(name string) (m *module.Module) {
	for k, d := range p.defs {
		if k.name == name && (m == nil || d.Version > m.Version) {
			m = d
		}
	}
	return m
}

func (p *plan) unfit(m *module.Module) string {
	if p.kinds[m.Name] != nil {
		return "it is wanted twice"
	}
	if d := p.defs[key{m.Name, m.Version}]; d != nil && !d.Equal(m) {
		return "this version says something else in the blueprint: give the new content a version of its own"
	} else if d != nil {
		return ""
	}
	if errs := m.Check(); len(errs) > 0 {
		return errs[0].Error()
	}
	if old := p.newest(m.Name); old != nil && place(old) != place(m) {
		return fmt.Sprintf("version %d goes %s, and this one %s: give it another name", old.Version, place(old), place(m))
	}
	return ""
}

// place is the rule in words.
func place(m *module.Module) string {
	switch {
	case m.Base:
		return "to each node as a base module"
	case m.Place.EachNode:
		return "to each node"
	case m.Place.EachDisk:
		return "to each disk"
	case len(m.Place.Pinned) > 0:
		return "where it is pinned"
	}
	return "to nodes that are chosen"
}

// inOrder puts the modules after those that they come after.
func (p *plan) inOrder() {
	const visiting, done = 1, 2
	state := map[string]int{}
	var visit func(k *kind) bool
	visit = func(k *kind) bool {
		if state[k.name] != 0 {
			return state[k.name] == done
		}
		state[k.name] = visiting
		round := false
		if k.want != nil {
			for _, before := range k.want.After {
				if o := p.kinds[before]; o != nil && !visit(o) {
					round = true
				}
			}
		}
		if round {
			p.refuse(line{module: k.name}, "module %s comes after itself, through %s: it is left as it is", k.name, strings.Join(k.want.After, ", "))
		} else {
			p.order = append(p.order, k)
		}
		state[k.name] = done
		return true
	}
	names := make([]string, 0, len(p.kinds))
	for name := range p.kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		visit(p.kinds[name])
	}
}

// nodesIn puts the nodes of parent and store together, by id.
func (p *plan) nodesIn() {
	in := p.in.Nodes
	byID := func(a, b Node) int { return strings.Compare(a.ID, b.ID) }
	if !slices.IsSortedFunc(in, byID) {
		in = slices.SortedStableFunc(slices.Values(in), byID)
	}
	var was []muster.BlueprintNode
	if p.in.Parent != nil {
		was = p.in.Parent.Nodes
	}
	p.nodes = make([]node, 0, max(len(was), len(in))+8)
	p.report.Done = make([]muster.PlanLine, 0, max(0, len(in)-len(was)))
	for i, k := 0, 0; i < len(was) || k < len(in); {
		switch {
		case k > 0 && k < len(in) && in[k].ID == in[k-1].ID:
			p.refuse(line{node: in[k].ID}, "node %s is in the store twice: the second is not looked at", in[k].ID)
			k++
		case k == len(in) || i < len(was) && was[i].ID < in[k].ID:
			p.missing(&was[i])
			i++
		case i == len(was) || was[i].ID > in[k].ID:
			p.comesIn(&in[k])
			k++
		default:
			p.known(&was[i], &in[k])
			i, k = i+1, k+1
		}
	}
}

// missing keeps a node that the store does not have: that is no word on what
// shall become of it.
func (p *plan) missing(was *muster.BlueprintNode) {
	if was.State == muster.NodeDecommissioned && !p.holdsAny(was) {
		p.dropped = true
		p.did(line{node: was.ID}, "node %s is decommissioned and leaves the blueprint", cmp.Or(was.Hostname, was.ID))
		return
	}
	p.nodes = append(p.nodes, node{index: len(p.nodes), now: *was})
	p.note(line{node: was.ID}, "node %s is in the blueprint, and the store does not know it: it is left as it is", cmp.Or(was.Hostname, was.ID))
}

// holdsAny tells whether there is something on a node that was not cleaned up
// after.
func (p *plan) holdsAny(was *muster.BlueprintNode) bool {
	return slices.ContainsFunc(was.Placements, func(pl muster.BlueprintPlacement) bool { return !pl.Gone() || !p.in.Cleaned[pl.ID] })
}

func (p *plan) comesIn(in *Node) {
	if in.State == muster.NodeDecommissioned {
		return
	}
	n := node{index: len(p.nodes), in: in, changed: true, now: muster.BlueprintNode{ID: in.ID, Hostname: in.Hostname, Address: in.Address, State: in.State}}
	p.nodes = append(p.nodes, n)
	p.did(line{node: in.ID}, "node %s comes in, %s", n.title(), in.State)
}

func (p *plan) known(was *muster.BlueprintNode, in *Node) {
	if in.State == muster.NodeDecommissioned && was.State == muster.NodeDecommissioned && !p.holdsAny(was) {
		p.dropped = true
		p.did(line{node: in.ID}, "node %s is decommissioned and leaves the blueprint", cmp.Or(in.Hostname, in.ID))
		return
	}
	p.nodes = append(p.nodes, node{index: len(p.nodes), in: in, now: *was})
	n := &p.nodes[len(p.nodes)-1]
	if was.Hostname != in.Hostname || was.Address != in.Address {
		n.now.Hostname, n.now.Address, n.changed = in.Hostname, in.Address, true
		p.did(line{node: in.ID}, "node %s is at %s now", n.title(), cmp.Or(in.Address, "no address"))
	}
	leaves := in.Policy == muster.PolicyGracefulRemove || in.Policy == muster.PolicyExpunged
	if was.State == muster.NodeDecommissioned && in.State != muster.NodeDecommissioned && !leaves {
		n.now.State, n.changed = in.State, true
		p.did(line{node: in.ID}, "node %s stays after all, and is %s", n.title(), in.State)
	}
	if was.State == muster.NodeInitializing && (in.State == muster.NodeInService || in.State == muster.NodeQuiesced) {
		n.now.State, n.changed = in.State, true
		p.did(line{node: in.ID}, "node %s is %s in the store", n.title(), in.State)
	}
}

// index finds the placements of each module.
func (p *plan) index() {
	var last *kind
	for i := range p.nodes {
		n := &p.nodes[i]
		elsewhere := n.changed && p.readdressed(n)
		for at := range n.now.Placements {
			pl := &n.now.Placements[at]
			if last == nil || last.name != pl.Module {
				last = p.kind(pl.Module)
			}
			last.all = append(last.all, ref{i, at})
			if n.up[at] {
				last.available++
			}
			if elsewhere {
				last.move(i)
			}
		}
	}
}

// kind is a module's, wanted or not.
func (p *plan) kind(name string) *kind {
	k := p.kinds[name]
	if k == nil {
		k = &kind{name: name, moved: nowhere}
		p.kinds[name] = k
	}
	return k
}

// readdressed tells whether a node is elsewhere than in the parent.
func (p *plan) readdressed(n *node) bool {
	was := p.was(n.now.ID)
	return was != nil && (was.Address != n.now.Address || was.Hostname != n.now.Hostname)
}

// was is a node in the parent, or nil.
func (p *plan) was(id string) *muster.BlueprintNode {
	if p.in.Parent == nil {
		return nil
	}
	all := p.in.Parent.Nodes
	i, found := slices.BinarySearchFunc(all, id, func(n muster.BlueprintNode, id string) int { return strings.Compare(n.ID, id) })
	if !found {
		return nil
	}
	return &all[i]
}

func kindOf(m *module.Module) muster.PlacementKind { return blueprint.KindOf(m) }
