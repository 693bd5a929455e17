// Package blueprint reads blueprints: what one node's share is as a declaration,
// what differs between two of them, and what must hold of every one. Package
// planner makes them.
//
// It decides nothing: no I/O, no clock, no dice.
package blueprint

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"muster.internal"
	"muster.internal/module"
	"muster.internal/resource"
)

// A Renderer makes declarations of one blueprint.
type Renderer struct {
	b       *muster.Blueprint
	modules map[key]*module.Module
	order   []*module.Module    // dependencies first, base modules before all
	lists   map[string]string   // by name, such as "db.addresses"
	members map[string][]member // of each module, by name
	nodes   map[string]*muster.BlueprintNode
}

type key struct {
	name    string
	version int64
}

// A member is a placement that templates can speak of.
type member struct {
	id, name, address string
	number            int
}

// NewRenderer prepares a blueprint.
func NewRenderer(b *muster.Blueprint) *Renderer {
	r := &Renderer{b: b, modules: map[key]*module.Module{}, lists: map[string]string{}, members: map[string][]member{}, nodes: map[string]*muster.BlueprintNode{}}
	for i := range b.Modules {
		m := &b.Modules[i]
		r.modules[key{m.Name, m.Version}] = m
	}
	r.order = inOrder(b.Modules)
	for i := range b.Nodes {
		n := &b.Nodes[i]
		r.nodes[n.ID] = n
		for _, p := range n.Placements {
			if p.Declared() {
				m := member{p.ID, p.Name, n.Address, p.Number}
				r.members[p.Module] = append(r.members[p.Module], m)
				r.members[module.Fleet] = append(r.members[module.Fleet], m)
			}
		}
	}
	for _, all := range r.members {
		slices.SortFunc(all, func(a, b member) int { return cmp.Or(cmp.Compare(a.number, b.number), strings.Compare(a.name, b.name)) })
	}
	return r
}

// inOrder puts modules after those that they come after; base modules are first,
// and what has no reason to be anywhere is where its name says.
func inOrder(all []module.Module) (order []*module.Module) {
	sorted := make([]*module.Module, len(all))
	for i := range all {
		sorted[i] = &all[i]
	}
	slices.SortStableFunc(sorted, func(a, b *module.Module) int {
		if a.Base != b.Base {
			return map[bool]int{true: -1, false: 1}[a.Base]
		}
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	done := map[string]bool{}
	var put func(name string)
	put = func(name string) {
		if done[name] {
			return
		}
		done[name] = true // also of one that waits for itself: the planner refuses it
		for _, m := range sorted {
			if m.Name == name {
				for _, before := range m.After {
					put(before)
				}
			}
		}
		for _, m := range sorted {
			if m.Name == name {
				order = append(order, m)
			}
		}
	}
	for _, m := range sorted {
		put(m.Name)
	}
	return order
}

// Declaration is what a node is told: the resources of its placements,
// dependencies first, and how its host sees that they are up. What two of them declare alike is there once; what they
// declare differently is an error, and so is a node that may be told nothing.
func (r *Renderer) Declaration(nodeID string) (resource.Declaration, error) {
	n := r.nodes[nodeID]
	switch {
	case n == nil:
		return resource.Declaration{}, fmt.Errorf("blueprint %s has no node %s", r.b.ID, nodeID)
	case n.State == muster.NodeDecommissioned:
		return resource.Declaration{}, fmt.Errorf("node %s is decommissioned: it is told nothing", nodeID)
	}
	return r.render(n)
}

func (r *Renderer) render(n *muster.BlueprintNode) (resource.Declaration, error) {
	d := resource.Declaration{Generation: n.Generation, Resources: []resource.Resource{}}
	there := map[resource.Ref]int{}
	owner := map[resource.Ref]string{}
	for _, p := range r.sorted(n) {
		m := r.modules[key{p.Module, p.Version}]
		if h := m.Health; h != nil {
			d.Checks = append(d.Checks, resource.Check{ID: p.ID, Port: h.Port, Path: h.Path, CaughtUp: h.CaughtUp})
		}
		filled, err := module.Fill(list(m, p), r.value(n, p))
		if err != nil {
			return d, fmt.Errorf("node %s, placement %s of module %s: %w", n.ID, p.Name, p.Module, err)
		}
		for i := range filled {
			ref := filled[i].Ref()
			if k, twice := there[ref]; !twice {
				there[ref], owner[ref] = len(d.Resources), p.Name
				d.Resources = append(d.Resources, filled[i])
			} else if !module.Same(&d.Resources[k], &filled[i]) {
				return d, fmt.Errorf("node %s: %s and %s both declare %s, and not alike", n.ID, owner[ref], p.Name, ref)
			}
		}
	}
	return d, nil
}

// sorted are the declared placements in the order in which the node has them.
func (r *Renderer) sorted(n *muster.BlueprintNode) (all []*muster.BlueprintPlacement) {
	place := map[key]int{}
	for i, m := range r.order {
		place[key{m.Name, m.Version}] = i
	}
	for i := range n.Placements {
		p := &n.Placements[i]
		if _, known := place[key{p.Module, p.Version}]; p.Declared() && known {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b *muster.BlueprintPlacement) int {
		return cmp.Or(cmp.Compare(place[key{a.Module, a.Version}], place[key{b.Module, b.Version}]), cmp.Compare(a.Number, b.Number), strings.Compare(a.Name, b.Name))
	})
	return all
}

// Refs are what a node may have of one of its placements: first what the
// placement declares now, then what it declares at other times of a move.
func (r *Renderer) Refs(n *muster.BlueprintNode, p *muster.BlueprintPlacement) (now, besides []resource.Ref, err error) {
	m := r.modules[key{p.Module, p.Version}]
	if m == nil {
		return nil, nil, fmt.Errorf("node %s, placement %s: its module %s version %d is not in the blueprint", n.ID, p.Name, p.Module, p.Version)
	}
	value := r.value(n, p)
	if now, err = refs(list(m, p), value); err != nil || m.HandOver == nil {
		return now, nil, err
	}
	besides, err = refs(slices.Concat(m.Resources, m.HandOver.Leaving, m.HandOver.Arriving), value)
	return now, besides, err
}

func refs(all []resource.Resource, value module.Value) ([]resource.Ref, error) {
	out := make([]resource.Ref, len(all))
	for i := range all {
		var err error
		if out[i], err = module.FillRef(&all[i], value); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Checked tells whether a placement's host is told to see whether it is up.
func (r *Renderer) Checked(p *muster.BlueprintPlacement) bool {
	m := r.modules[key{p.Module, p.Version}]
	return m != nil && m.Health != nil
}

// Node is one node's share, or nil.
func (r *Renderer) Node(id string) *muster.BlueprintNode { return r.nodes[id] }

// list is what a placement declares now: both ends of a live move have their own.
func list(m *module.Module, p *muster.BlueprintPlacement) []resource.Resource {
	switch {
	case m.Moves == module.Live && p.State == muster.PlacementMoving:
		return m.HandOver.Leaving
	case m.Moves == module.Live && p.State == muster.PlacementReserved && p.Replaces != "":
		return m.HandOver.Arriving
	}
	return m.Resources
}

// value is what is known of a placement and of those that it speaks of.
func (r *Renderer) value(n *muster.BlueprintNode, p *muster.BlueprintPlacement) module.Value {
	return func(name string) (string, bool) {
		if of, what, is := module.ListOf(name); is {
			if of == module.Peers {
				return said(what, r.members[p.Module], p.ID), true
			}
			text, made := r.lists[of+"."+what]
			if !made {
				text = said(what, r.members[of], "")
				r.lists[of+"."+what] = text
			}
			return text, true
		}
		switch name {
		case "placement.id":
			return p.ID, true
		case "placement.name":
			return p.Name, true
		case "placement.number":
			return strconv.Itoa(p.Number), true
		case "placement.module":
			return p.Module, true
		case "placement.version":
			return strconv.FormatInt(p.Version, 10), true
		case "node.id":
			return n.ID, true
		case "node.hostname":
			return n.Hostname, true
		case "node.address":
			return n.Address, true
		case "disk.id":
			return p.Disk, true
		case "disk.identity":
			return p.DiskIdentity, true
		case "transient.id":
			return p.Transient, true
		case "transient.identity":
			return p.TransientIdentity, true
		}
		return "", false
	}
}

// said lists members but one.
func said(what string, all []member, but string) string {
	var words []string
	for _, m := range all {
		switch {
		case m.id == but:
		case what == "names":
			words = append(words, m.name)
		case m.address == "": // it has none yet
		case what == "addresses":
			words = append(words, m.address)
		default:
			words = append(words, m.address+" "+m.name)
		}
	}
	if what == "hosts" {
		return strings.Join(words, "\n")
	}
	return strings.Join(words, ",")
}
