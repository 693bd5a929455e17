package planner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"muster.internal"
	"muster.internal/blueprint"
	"muster.internal/module"
)

// room reckons what is free on each node. It is asked for only when something is
// to be placed.
func (p *plan) room() {
	if p.roomMade {
		return
	}
	p.roomMade = true
	var last *module.Module
	for i := range p.nodes {
		n := &p.nodes[i]
		if s := n.seen(); s != nil {
			n.free = s.Capacity.Minus(n.in.Reservoir)
		}
		for at := range n.now.Placements {
			pl := &n.now.Placements[at]
			if pl.Gone() {
				continue
			}
			if last == nil || last.Name != pl.Module || last.Version != pl.Version {
				last = p.defs[key{pl.Module, pl.Version}]
			}
			n.total++
			if last != nil {
				n.free = n.free.Minus(last.Asks)
			}
		}
	}
}

// mayHold says why a node may not be given something new of a kind of placement:
// it is the one rule of who may be given what. Empty: it may.
func (n *node) mayHold(kind muster.PlacementKind) string {
	switch {
	case n.in == nil:
		return "not known to the store"
	case n.held():
		return "held (" + string(n.in.Registration) + ")"
	case n.gone() || n.now.State == muster.NodeDecommissioned:
		return "gone"
	case n.in.ByHand:
		return "declared by hand"
	}
	early := kind == muster.PlacementBase || kind == muster.PlacementPerDisk
	if n.in.Policy != muster.PolicyInService && !(early && n.in.Policy == muster.PolicyNoProvision) {
		return "told to be " + string(n.in.Policy)
	}
	if n.in.State != muster.NodeInService && !(early && n.in.State == muster.NodeInitializing) {
		return "still " + string(n.in.State)
	}
	if n.in.Seen == nil {
		return "without an inventory"
	}
	return ""
}

// handed says why a node is left alone that people declare.
func (p *plan) handed(n *node) {
	if n.in != nil && n.in.ByHand && !n.gone() {
		p.note(line{node: n.now.ID}, "node %s is declared by hand: nothing is placed on it until it is handed over (muster node hand-over %s)", n.title(), n.title())
	}
}

// lacks says what of what a module wants a node has not; empty when all is there.
func (p *plan) lacks(n *node, m *module.Module) string {
	if !module.Selects(m.Place.Where, n.in.Labels) {
		return "without the labels that it wants"
	}
	if len(m.Needs) > 0 {
		if what := m.Needs.Lacks(need(&n.in.Seen.Profile)); what != "" {
			return "without " + what
		}
	}
	if m.Place.Spread != "" && n.in.Labels[m.Place.Spread] == "" {
		return "without the label " + m.Place.Spread
	}
	return ""
}

// full says what a node has not enough of, or who is in the way.
func (p *plan) full(n *node, m *module.Module) string {
	left := n.free.Minus(m.Asks)
	switch {
	case left.CPUMillis < 0 && m.Asks.CPUMillis > 0:
		return "with too little cpu"
	case left.MemoryMiB < 0 && m.Asks.MemoryMiB > 0:
		return "with too little memory"
	case left.DiskMiB < 0 && m.Asks.DiskMiB > 0:
		return "with too little disk"
	}
	for name := range p.conflictsOf(m) {
		if slices.ContainsFunc(n.now.Placements, func(pl muster.BlueprintPlacement) bool { return pl.Module == name && !pl.Gone() }) {
			return "with a module that takes the same resource or port"
		}
	}
	if m.Place.EachDisk {
		return "" // it names its disk
	}
	durable := ""
	if m.Asks.DurableMiB > 0 {
		if durable = p.findDisk(n, m, m.Asks.DurableMiB, ""); durable == "" {
			return "without a disk that has room"
		}
	}
	if m.Asks.TransientMiB > 0 && p.findDisk(n, m, m.Asks.TransientMiB, durable) == "" {
		return "without a transient disk that has room"
	}
	return ""
}

// findDisk is the usable disk with room and the fewest placements, then the
// lowest id; empty when there is none.
func (p *plan) findDisk(n *node, m *module.Module, mib int64, but string) string {
	best, fewest := "", 0
	for i := range n.in.Disks {
		d := &n.in.Disks[i]
		if d.ID == but || !n.usable(d) || !module.Selects(m.Place.WhereDisk, d.Labels) {
			continue
		}
		free, count := p.diskRoom(n, d)
		if free < mib {
			continue
		}
		if best == "" || count < fewest || count == fewest && d.ID < best {
			best, fewest = d.ID, count
		}
	}
	return best
}

func (p *plan) diskRoom(n *node, d *Disk) (free int64, count int) {
	free = d.SizeMiB
	for at := range n.now.Placements {
		pl := &n.now.Placements[at]
		if pl.Gone() || pl.Disk != d.ID && pl.Transient != d.ID {
			continue
		}
		count++
		if m := p.defs[key{pl.Module, pl.Version}]; m != nil && pl.Disk == d.ID {
			free -= m.Asks.DurableMiB
		} else if m != nil {
			free -= m.Asks.TransientMiB
		}
	}
	return free, count
}

// conflictsOf are the modules that cannot be on one node with it.
func (p *plan) conflictsOf(m *module.Module) map[string]bool {
	if p.conflicts == nil {
		p.conflicts = map[string]map[string]bool{}
		type holder struct{ module, want string }
		holders := map[string][]holder{}
		keys := slices.SortedFunc(maps.Keys(p.defs), func(a, b key) int {
			return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.version, b.version))
		})
		for _, k := range keys {
			for _, h := range p.defs[k].Holds() {
				for _, o := range holders[h.Name] {
					if o.module != k.name && (h.Want == "" || h.Want != o.want) {
						p.conflict(o.module, k.name)
						p.conflict(k.name, o.module)
					}
				}
				holders[h.Name] = append(holders[h.Name], holder{k.name, h.Want})
			}
		}
	}
	return p.conflicts[m.Name]
}

func (p *plan) conflict(a, b string) {
	if p.conflicts[a] == nil {
		p.conflicts[a] = map[string]bool{}
	}
	p.conflicts[a][b] = true
}

// create puts a new placement on a node.
func (p *plan) create(i int, k *kind, pl muster.BlueprintPlacement) *muster.BlueprintPlacement {
	n, m := &p.nodes[i], k.want
	pl.ID, pl.Module, pl.Kind, pl.State, pl.Version = n.draw(p.in.Seed), k.name, blueprint.KindOf(m), muster.PlacementReserved, m.Version
	if m.Place.Replicas > 0 {
		pl.Number = k.number(p)
		pl.Name = fmt.Sprintf("%s-%d", k.name, pl.Number)
		if m.Asks.DurableMiB > 0 {
			pl.Disk = p.findDisk(n, m, m.Asks.DurableMiB, "")
		}
	} else {
		pl.Name = k.name + "-" + tail(cmp.Or(map[bool]string{true: pl.Disk}[m.Place.EachDisk], n.now.ID))
		if m.Asks.DurableMiB > 0 && pl.Disk == "" {
			pl.Disk = p.findDisk(n, m, m.Asks.DurableMiB, "")
		}
	}
	if m.Asks.TransientMiB > 0 {
		pl.Transient = p.findDisk(n, m, m.Asks.TransientMiB, pl.Disk)
	}
	pl.DiskIdentity, pl.TransientIdentity = n.identity(pl.Disk), n.identity(pl.Transient)
	n.changed = true
	if !pl.Held {
		pl.Since = n.tell()
		k.move(i)
	}
	if !n.own {
		n.now.Placements, n.own = append(make([]muster.BlueprintPlacement, 0, len(n.now.Placements)+1), n.now.Placements...), true
	}
	n.now.Placements, n.up = append(n.now.Placements, pl), append(n.up, false)
	k.all = append(k.all, ref{i, len(n.now.Placements) - 1})
	n.free, n.total = n.free.Minus(m.Asks), n.total+1
	return &n.now.Placements[len(n.now.Placements)-1]
}

// number is the lowest that no replica in the blueprint has.
func (k *kind) number(p *plan) int {
	if k.numbers == nil {
		k.numbers, k.lowest = make(map[int]bool, k.want.Place.Replicas), 1
		for _, r := range k.all {
			_, pl := p.at(r)
			k.numbers[pl.Number] = true
		}
	}
	for k.numbers[k.lowest] {
		k.lowest++
	}
	k.numbers[k.lowest] = true
	return k.lowest
}

// tail is the end of an id, where ids of one time differ.
func tail(id string) string { return id[max(0, len(id)-12):] }
