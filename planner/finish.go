package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"muster.internal"
	"muster.internal/module"
)

// finish numbers what is told, and puts the blueprint together.
func (p *plan) finish() (muster.Blueprint, muster.PlanReport) {
	p.tellMembers()
	p.insist()
	changed := p.dropped
	for i := range p.nodes {
		n := &p.nodes[i]
		if n.told > 0 {
			n.now.Generation = n.told
		}
		changed = changed || n.changed
	}
	if len(p.report.Done) == 0 {
		p.report.Done = nil
	}
	if p.in.Parent != nil {
		p.report.Parent = p.in.Parent.ID
		if !changed {
			return *p.in.Parent, p.report
		}
	}
	b := muster.Blueprint{ID: p.in.ID, Parent: p.report.Parent, MadeAt: p.in.MadeAt, Why: p.in.Why, Nodes: make([]muster.BlueprintNode, len(p.nodes))}
	for i := range p.nodes {
		b.Nodes[i] = p.nodes[i].now
	}
	b.Modules = p.used()
	p.report.Blueprint = b.ID
	return b, p.report
}

// used are the modules that some placement has.
func (p *plan) used() []module.Module {
	used := map[key]bool{}
	var last key
	for i := range p.nodes {
		for at := range p.nodes[i].now.Placements {
			pl := &p.nodes[i].now.Placements[at]
			if k := (key{pl.Module, pl.Version}); k != last {
				used[k], last = true, k
			}
		}
	}
	all := make([]module.Module, 0, len(used))
	for k := range used {
		if m := p.defs[k]; m != nil {
			all = append(all, *m)
		}
	}
	slices.SortFunc(all, func(a, b module.Module) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	return all
}

// tellMembers sees that nodes hear of changes elsewhere that their templates
// speak of.
func (p *plan) tellMembers() {
	lists, own := p.affected()
	if len(lists)+len(own) == 0 {
		return
	}
	for i := range p.nodes {
		n := &p.nodes[i]
		if n.told > 0 || n.gone() {
			continue
		}
		for at := range n.now.Placements {
			pl := &n.now.Placements[at]
			k := key{pl.Module, pl.Version}
			if pl.Declared() && (lists[k] && !p.alone(i, pl) || own[k] && p.readdressed(n)) {
				n.tell()
				break
			}
		}
	}
}

// insist gives a generation that hosts take to what was said before: theirs is
// newer where an older blueprint was made the target again, or where somebody
// has declared something else since.
func (p *plan) insist() {
	for i := range p.nodes {
		n := &p.nodes[i]
		if n.told > 0 || n.in == nil || n.gone() || n.in.ByHand || n.now.Generation == 0 || n.floor() <= n.now.Generation {
			continue
		}
		p.did(line{node: n.now.ID}, "node %s is told again what it shall be: it was told generation %d since, which is newer than %d", n.title(), n.floor(), n.now.Generation)
		n.tell()
	}
}

// affected are the modules whose templates speak of members that have changed,
// and those that speak of the node they are on.
func (p *plan) affected() (lists, own map[key]bool) {
	lists, own = map[key]bool{}, map[key]bool{}
	any := false
	for _, k := range p.kinds {
		any = any || k.moved != nowhere
	}
	if !any {
		return lists, own
	}
	for k, m := range p.defs {
		for _, name := range m.Names() {
			of, _, is := module.ListOf(name)
			if of == module.Peers {
				of = k.name
			}
			switch {
			case !is:
				own[k] = own[k] || name == "node.address" || name == "node.hostname"
			case of == module.Fleet || p.kinds[of] != nil && p.kinds[of].moved != nowhere:
				lists[k] = true
			}
		}
	}
	return lists, own
}

// alone tells whether all that has changed of a placement's module is itself,
// which is none of its peers.
func (p *plan) alone(i int, pl *muster.BlueprintPlacement) bool {
	m := p.defs[key{pl.Module, pl.Version}]
	if p.kinds[pl.Module].moved != moved(i) {
		return false
	}
	for _, name := range m.Names() {
		if of, _, is := module.ListOf(name); is && of != module.Peers {
			return false
		}
	}
	here := 0
	for _, other := range p.nodes[i].now.Placements {
		if other.Module == pl.Module && !other.Gone() {
			here++
		}
	}
	return here == 1
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
