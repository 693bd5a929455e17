package planner

import (
	"slices"

	"muster.internal"
)

// confirm takes from the inventory what has come true since: what was reserved
// is placed, what had to go is gone. Nothing is undone by it: an inventory that
// is too old says nothing.
func (p *plan) confirm(n *node) {
	p.drop(n)
	n.up = make([]bool, len(n.now.Placements))
	for at := range n.now.Placements {
		pl := &n.now.Placements[at]
		if n.up[at] = n.available(pl, at); n.up[at] && pl.State != muster.PlacementReserved {
			continue
		}
		switch {
		case n.gone(): // expunge says what becomes of it
		case pl.Declared() && n.up[at]:
			p.place(n, at)
		case pl.Declared() && pl.State == muster.PlacementReserved:
			p.wait(n.of(pl), "%s on %s is not up yet: %s", pl.Name, n.title(), n.notUp(pl, at))
		case pl.Declared():
			p.note(n.of(pl), "%s on %s is not available: %s", pl.Name, n.title(), n.notUp(pl, at))
		case pl.AsOf > 0 && !pl.Ready:
			p.ready(n, at)
		}
	}
}

// drop forgets what is gone and cleaned up after.
func (p *plan) drop(n *node) {
	clean := func(pl muster.BlueprintPlacement) bool { return pl.Gone() && p.in.Cleaned[pl.ID] }
	if len(p.in.Cleaned) == 0 || !slices.ContainsFunc(n.now.Placements, clean) {
		return
	}
	var left []muster.BlueprintPlacement
	for at := range n.now.Placements {
		if pl := &n.now.Placements[at]; !clean(*pl) {
			left = append(left, *pl)
		} else {
			p.did(n.of(pl), "%s is gone from %s and cleaned up after: it leaves the blueprint", pl.Name, n.title())
		}
	}
	n.now.Placements, n.own, n.changed = left, true, true
}

// place says that a reserved placement is there.
func (p *plan) place(n *node, at int) {
	pl := n.edit(at)
	if m := p.defs[key{pl.Module, pl.Version}]; m != nil && m.HandOver != nil && pl.Replaces != "" {
		pl.Since = n.tell() // it arrived, and is told the module's own resources now
	}
	pl.State = muster.PlacementPlaced
	p.did(n.of(pl), "%s on %s is up", pl.Name, n.title())
}

// ready says that what its node is told of no longer is gone.
func (p *plan) ready(n *node, at int) {
	pl, s := &n.now.Placements[at], n.seen()
	switch {
	case s == nil || s.Reconciled < pl.AsOf:
		p.wait(n.of(pl), "%s must be gone from %s before anything of it is used again: %s", pl.Name, n.title(), n.behind(pl.AsOf))
	case s.observed(pl.ID, at) != nil:
		p.wait(n.of(pl), "%s must be gone from %s before anything of it is used again: its host still sees it%s", pl.Name, n.title(), because(s.observed(pl.ID, at).Reason))
	default:
		pl = n.edit(at)
		pl.Ready = true
		p.did(n.of(pl), "%s is gone from %s", pl.Name, n.title())
	}
}

// expunge ends everything on a node that is gone, all at once, and whatever was
// on a disk that is.
func (p *plan) expunge(n *node) {
	if n.gone() {
		p.expungeNode(n)
		return
	}
	if n.in == nil {
		return
	}
	for i := range n.in.Disks {
		if d := &n.in.Disks[i]; d.Policy == muster.DiskPolicyExpunged {
			p.expungeDisk(n, d)
		}
	}
}

func (p *plan) expungeNode(n *node) {
	left := n.in.Policy == muster.PolicyGracefulRemove // its host has given up everything
	for at := range n.now.Placements {
		if pl := &n.now.Placements[at]; pl.Gone() {
			continue
		} else if (pl.Declared() || pl.Held) && left {
			p.did(n.of(pl), "%s on %s is gone with its node, which has left", pl.Name, n.title())
			p.end(n, at, muster.PlacementRemoved)
		} else if pl.Declared() || pl.Held {
			p.lose(n, at, "with its node")
		}
		pl := n.edit(at)
		pl.Ready = true
	}
	for i := range n.now.Disks {
		if d := &n.now.Disks[i]; !d.Ready {
			n.editDisk(i).Ready = true
		}
	}
	if n.now.State != muster.NodeDecommissioned {
		n.now.State, n.changed = muster.NodeDecommissioned, true
		why := "expunged"
		if n.in.Policy != muster.PolicyExpunged {
			why = "decommissioned in the store"
		}
		p.did(line{node: n.now.ID}, "node %s is %s, and decommissioned: nothing is sent to it, and nothing was asked of its power", n.title(), why)
	}
}

// lose says that a placement is no more, by nobody's plan.
func (p *plan) lose(n *node, at int, how string) {
	pl := n.edit(at)
	p.did(n.of(pl), "%s on %s is lost %s", pl.Name, n.title(), how)
	p.end(n, at, muster.PlacementLost)
}

// end takes a placement out of what its node is told.
func (p *plan) end(n *node, at int, state muster.PlacementState) {
	pl := n.edit(at)
	told := pl.Declared()
	pl.State = state
	switch {
	case told:
		pl.AsOf, n.up[at] = n.tell(), false
		p.kind(pl.Module).move(n.index)
	case pl.AsOf == 0: // nobody was ever told of it
		pl.Ready = true
	}
	pl.Held = false
}

// expungeDisk loses what is on a disk. What had only its transient disk there
// gets another one on the same node, if that has one.
func (p *plan) expungeDisk(n *node, d *Disk) {
	for at := range n.now.Placements {
		pl := &n.now.Placements[at]
		if !pl.Declared() && !pl.Held {
			continue
		}
		switch {
		case pl.Disk == d.ID:
			p.lose(n, at, "with its disk "+d.ID)
		case pl.Transient == d.ID && !p.otherTransient(n, at, "its transient disk "+d.ID+" is expunged"):
			p.lose(n, at, "with its transient disk "+d.ID+", for its node has no other with room")
		}
	}
}

// otherTransient restarts a placement with another transient disk.
func (p *plan) otherTransient(n *node, at int, why string) bool {
	pl := &n.now.Placements[at]
	m := p.defs[key{pl.Module, pl.Version}]
	if m == nil {
		return false
	}
	other := p.findDisk(n, m, m.Asks.TransientMiB, pl.Disk)
	if other == "" {
		return false
	}
	pl = n.edit(at)
	pl.Transient, pl.TransientIdentity = other, n.identity(other)
	if !pl.Held {
		pl.Since, n.up[at] = n.tell(), false
	}
	p.did(n.of(pl), "%s on %s is started again on disk %s: %s", pl.Name, n.title(), other, why)
	return true
}
