package planner

import (
	"fmt"
	"slices"

	"muster.internal"
	"muster.internal/module"
)

// endUnwanted ends the placements of modules that nobody wants any more.
func (p *plan) endUnwanted() {
	var names []string
	for name, k := range p.kinds {
		if k.want == nil && len(k.all) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if by := p.neededBy(name); by != "" {
			p.refuse(line{module: name}, "module %s is not wanted any more, and %s comes after it: it stays until that is not wanted either", name, by)
			continue
		}
		for _, r := range p.kinds[name].all {
			if _, pl := p.at(r); pl.Declared() || pl.Held {
				p.take(p.kinds[name], r, muster.PlacementRemoved, "its module is not wanted any more")
			}
		}
	}
}

// neededBy is a wanted module that comes after this one.
func (p *plan) neededBy(name string) string {
	for _, k := range p.order {
		if k.want != nil && slices.Contains(k.want.After, name) {
			return k.name
		}
	}
	return ""
}

// take ends a placement by plan.
func (p *plan) take(k *kind, r ref, state muster.PlacementState, why string) {
	n, pl := p.at(r)
	if n.up[r.at] {
		k.available--
	}
	p.did(n.of(pl), "%s on %s is removed: %s", pl.Name, n.title(), why)
	p.end(n, r.at, state)
}

// spared says why a placement must not be taken away now: the rest would be less
// than the minimum. Empty: it may.
func (p *plan) spared(k *kind, r ref) string {
	n, _ := p.at(r)
	if k.want == nil || !n.up[r.at] || k.available-1 >= k.want.Minimum() {
		return ""
	}
	return fmt.Sprintf("%d of %s are available, and %d must stay so", k.available, k.name, k.want.Minimum())
}

// eachPlace sees to the modules that go to each node, or each disk.
func (p *plan) eachPlace(kind muster.PlacementKind) {
	for _, k := range p.order {
		if k.want != nil && len(k.want.Place.Pinned) == 0 && k.want.Place.Replicas == 0 && kindOf(k.want) == kind {
			p.each(k)
		}
	}
}

func (p *plan) each(k *kind) {
	next, was := 0, k.all // they are in the order of nodes, but for what is created here
	for i := range p.nodes {
		from := next
		for next < len(was) && was[next].node == i {
			next++
		}
		p.eachOn(k, i, was[from:next])
	}
}

// eachOn sees to one node.
func (p *plan) eachOn(k *kind, i int, there []ref) {
	n, m := &p.nodes[i], k.want
	if n.in == nil || n.gone() {
		return
	}
	if !m.Place.EachDisk {
		p.onePlace(k, i, "", there)
		return
	}
	for d := range n.in.Disks {
		disk := &n.in.Disks[d]
		var here []ref
		for _, r := range there {
			if n.now.Placements[r.at].Disk == disk.ID {
				here = append(here, r)
			}
		}
		switch absent := disk.Policy == muster.DiskPolicyInService && disk.State == muster.DiskInService && !disk.Member && n.in.Seen != nil && !n.there(disk.ID); {
		case len(here) > 0 || n.usable(disk):
			p.onePlace(k, i, disk.ID, here)
		case absent && n.mayHold(kindOf(m)) == "":
			p.wait(line{node: n.now.ID, disk: disk.ID, module: k.name}, "%s waits to be on disk %s of %s: it is not plugged in", k.name, disk.ID, n.title())
		}
	}
}

// onePlace sees to the one placement of a module on a node, or on one of its
// disks.
func (p *plan) onePlace(k *kind, i int, disk string, there []ref) {
	n, m := &p.nodes[i], k.want
	selected := module.Selects(m.Place.Where, n.in.Labels)
	if d := n.disk(disk); d != nil {
		selected = selected && module.Selects(m.Place.WhereDisk, d.Labels)
	}
	going := false
	for _, r := range there {
		_, pl := p.at(r)
		switch {
		case pl.Gone():
		case pl.State == muster.PlacementRemoved || pl.State == muster.PlacementLost:
			going = true
		case !selected:
			if why := p.spared(k, r); why != "" {
				p.wait(n.of(pl), "%s on %s must go, for the labels there are others now, and stays: %s", pl.Name, n.title(), why)
			} else {
				p.take(k, r, muster.PlacementRemoved, "the labels there are others now")
			}
			return
		default:
			if pl.Held {
				p.comeBack(k, r)
			}
			return
		}
	}
	if selected && !going {
		p.begin(k, i, disk)
	}
}

// comeBack tells a node again of what it was told no longer while it was
// quiesced.
func (p *plan) comeBack(k *kind, r ref) bool {
	n, _ := p.at(r)
	if n.held() || n.in.Policy == muster.PolicyQuiesce || n.in.Policy == muster.PolicyGracefulRemove {
		return false
	}
	pl := n.edit(r.at)
	pl.Held, pl.AsOf, pl.Ready, pl.Version, pl.Since = false, 0, false, k.want.Version, n.tell()
	k.move(r.node)
	p.did(n.of(pl), "%s on %s is told to be there", pl.Name, n.title())
	return true
}

// begin places a module on a node for the first time.
func (p *plan) begin(k *kind, i int, disk string) {
	n, m := &p.nodes[i], k.want
	d := n.disk(disk)
	if n.mayHold(kindOf(m)) != "" || p.lacks(n, m) != "" || d != nil && !n.usable(d) {
		return
	}
	at := line{node: n.now.ID, disk: disk, module: k.name}
	if kindOf(m) == muster.PlacementPerDisk {
		if why := p.notInitialized(n); why != "" {
			p.wait(at, "%s waits to be on disk %s of %s: %s", k.name, disk, n.title(), why)
			return
		}
	}
	if p.comesAfter(m, at, k.name+" on "+n.title()) {
		return
	}
	p.room()
	why := p.full(n, m)
	if why == "" && d != nil {
		if free, _ := p.diskRoom(n, d); free < m.Asks.DurableMiB {
			why = "with too little room on disk " + disk
		}
	}
	if why != "" {
		p.refuse(at, "%s cannot be on %s, a node %s", k.name, n.title(), why)
		return
	}
	pl := p.create(i, k, muster.BlueprintPlacement{Disk: disk})
	where := n.title()
	if disk != "" {
		where += ", disk " + disk
	}
	p.did(n.of(pl), "%s begins on %s: %s goes %s", pl.Name, where, k.name, place(m))
}

// beginService lets nodes serve on which every base module is up.
func (p *plan) beginService() {
	for i := range p.nodes {
		n := &p.nodes[i]
		if n.in == nil || n.gone() {
			continue
		}
		switch {
		case n.now.State == muster.NodeQuiesced && (n.in.Policy == muster.PolicyInService || n.in.Policy == muster.PolicyNoProvision):
			n.now.State, n.changed = muster.NodeInService, true
			p.did(line{node: n.now.ID}, "node %s serves again", n.title())
		case n.now.State != muster.NodeInitializing:
		default:
			if why := p.notInitialized(n); why != "" {
				p.wait(line{node: n.now.ID}, "node %s does not serve yet: %s", n.title(), why)
				continue
			}
			n.now.State, n.changed = muster.NodeInService, true
			why := "every base module is up there"
			if n.in.ByHand {
				why = "its inventory has arrived, and people declare it"
			}
			p.did(line{node: n.now.ID}, "node %s serves: %s", n.title(), why)
		}
	}
}

// notInitialized says which base module is not up on a node yet.
func (p *plan) notInitialized(n *node) string {
	switch {
	case n.now.State != muster.NodeInitializing:
		return ""
	case n.held():
		return "it is held: its registration is " + string(n.in.Registration)
	case n.in.Seen == nil:
		return "nothing was heard of it yet"
	}
	if n.in.ByHand {
		return "" // whoever declares it sees to that
	}
	for _, k := range p.order {
		if k.want == nil || !k.want.Base || p.lacks(n, k.want) != "" {
			continue
		}
		if !slices.ContainsFunc(n.now.Placements, func(pl muster.BlueprintPlacement) bool {
			return pl.Module == k.name && pl.State == muster.PlacementPlaced
		}) {
			return k.name + " is not up there yet"
		}
	}
	return ""
}

// pinned sees to the modules that say themselves where they are.
func (p *plan) pinned() {
	for _, k := range p.order {
		if k.want == nil || len(k.want.Place.Pinned) == 0 {
			continue
		}
		there := map[int][]ref{}
		for _, r := range k.all {
			there[r.node] = append(there[r.node], r)
		}
		for _, id := range k.want.Place.Pinned {
			i, found := slices.BinarySearchFunc(p.nodes, id, func(n node, id string) int { return compareID(n.now.ID, id) })
			if !found || p.nodes[i].in == nil || p.nodes[i].gone() {
				p.refuse(line{node: id, module: k.name}, "%s is pinned to node %s, which is not in the fleet", k.name, id)
				continue
			}
			p.pinnedOn(k, i, there[i])
		}
		for _, r := range slices.Clone(k.all) {
			n, pl := p.at(r)
			if (pl.Declared() || pl.Held) && !slices.Contains(k.want.Place.Pinned, n.now.ID) {
				if why := p.spared(k, r); why != "" {
					p.wait(n.of(pl), "%s is not pinned to %s any more, and stays: %s", pl.Name, n.title(), why)
					continue
				}
				p.take(k, r, muster.PlacementRemoved, "it is not pinned there any more")
			}
		}
	}
}

func (p *plan) pinnedOn(k *kind, i int, there []ref) {
	n := &p.nodes[i]
	if !slices.ContainsFunc(there, func(r ref) bool { _, pl := p.at(r); return !pl.Gone() }) {
		if why := n.mayHold(muster.PlacementService); why != "" {
			p.refuse(line{node: n.now.ID, module: k.name}, "%s is pinned to %s, a node %s", k.name, n.title(), why)
			return
		} else if why := p.lacks(n, k.want); why != "" {
			p.refuse(line{node: n.now.ID, module: k.name}, "%s is pinned to %s, a node %s", k.name, n.title(), why)
			return
		}
	}
	p.onePlace(k, i, "", there)
}

func compareID(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
