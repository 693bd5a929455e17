package planner

import (
	"fmt"
	"slices"
	"strings"

	"muster.internal"
)

// quiesce stops what does not leave a node that is quiesced. It keeps its room,
// and nothing is made elsewhere in its stead.
func (p *plan) quiesce(i int) {
	n := &p.nodes[i]
	if n.in == nil || n.gone() || n.in.Policy != muster.PolicyQuiesce || n.now.State == muster.NodeQuiesced {
		return
	}
	if len(n.in.Claims) > 0 {
		p.wait(line{node: n.now.ID}, "node %s is not quiesced yet: %s still needs it", n.title(), strings.Join(n.in.Claims, ", "))
		return
	}
	still := ""
	for at := range n.now.Placements {
		pl := &n.now.Placements[at]
		if pl.Kind == muster.PlacementBase || pl.Gone() {
			continue
		}
		if pl.Declared() && pl.State != muster.PlacementMoving {
			p.stop(i, at)
			pl = &n.now.Placements[at]
		}
		if pl.Declared() || pl.AsOf > 0 && !pl.Ready {
			still = pl.Name
		}
	}
	if still != "" {
		p.wait(line{node: n.now.ID}, "node %s is not quiesced yet: %s is still there", n.title(), still)
		return
	}
	n.now.State, n.changed = muster.NodeQuiesced, true
	p.did(line{node: n.now.ID}, "node %s is quiesced: nothing but base modules is left to run there", n.title())
}

// stop keeps a placement's room, and tells its node of it no longer.
func (p *plan) stop(i, at int) {
	n := &p.nodes[i]
	pl := &n.now.Placements[at]
	k := p.kind(pl.Module)
	if why := p.spared(k, ref{i, at}); why != "" {
		p.wait(n.of(pl), "%s on %s does not stop yet: %s", pl.Name, n.title(), why)
		return
	}
	if n.up[at] {
		k.available--
	}
	pl = n.edit(at)
	pl.State, pl.Held, pl.AsOf, n.up[at] = muster.PlacementReserved, true, n.tell(), false
	k.move(i)
	p.did(n.of(pl), "%s on %s stops and keeps its room: the node is quiesced", pl.Name, n.title())
}

// remove lets a node go once nothing on it would be missed: then all the rest of
// it ends, and it is decommissioned when its host has seen that.
func (p *plan) remove(i int) {
	n := &p.nodes[i]
	if n.in == nil || n.gone() || n.in.Policy != muster.PolicyGracefulRemove || n.now.State == muster.NodeDecommissioned {
		return
	}
	stays := func(format string, args ...any) {
		p.wait(line{node: n.now.ID}, "node %s stays: %s", n.title(), fmt.Sprintf(format, args...))
	}
	if len(n.in.Claims) > 0 {
		stays("%s still needs it", strings.Join(n.in.Claims, ", "))
		return
	}
	for at := range n.now.Placements {
		if pl := &n.now.Placements[at]; !pl.Gone() && p.chosen(pl) {
			stays("%s is still there", pl.Name)
			return
		}
	}
	left := ""
	for at := range n.now.Placements {
		pl := &n.now.Placements[at]
		if pl.Declared() || pl.Held {
			if why := p.spared(p.kind(pl.Module), ref{i, at}); why != "" {
				stays("%s on it must not go yet: %s", pl.Name, why)
				return
			}
			p.take(p.kind(pl.Module), ref{i, at}, muster.PlacementRemoved, "its node is being removed")
		}
		if pl := &n.now.Placements[at]; !pl.Gone() {
			left = pl.Name
		}
	}
	if left != "" {
		stays("it was told to have nothing, and %s must be gone", left)
		return
	}
	n.now.State, n.changed = muster.NodeDecommissioned, true
	for d := range n.now.Disks {
		n.editDisk(d).Ready = true
	}
	p.did(line{node: n.now.ID}, "node %s is decommissioned: nothing is left on it, and its power was not touched", n.title())
}

// chosen tells whether a placement is one of replicas, which go elsewhere first.
func (p *plan) chosen(pl *muster.BlueprintPlacement) bool {
	m := p.defs[key{pl.Module, pl.Version}]
	return m != nil && m.Place.Replicas > 0
}

func (n *node) editDisk(i int) *muster.BlueprintDisk {
	n.now.Disks, n.changed = slices.Clone(n.now.Disks), true
	return &n.now.Disks[i]
}

// disks follows those that are on their way out.
func (p *plan) disks(i int) {
	n := &p.nodes[i]
	if n.in == nil || n.now.State == muster.NodeDecommissioned {
		return
	}
	for d := len(n.now.Disks) - 1; d >= 0; d-- {
		id := n.now.Disks[d].ID
		if in := n.disk(id); in != nil && (in.Policy == muster.DiskPolicyInService || in.State == muster.DiskDecommissioned) && !n.uses(id) {
			n.now.Disks, n.changed = slices.Delete(slices.Clone(n.now.Disks), d, d+1), true
			what := "stays in use after all"
			if in.State == muster.DiskDecommissioned {
				what = "is decommissioned and leaves the blueprint"
			}
			p.did(line{node: n.now.ID, disk: id}, "disk %s of %s %s", id, n.title(), what)
		}
	}
	for d := range n.in.Disks {
		if in := &n.in.Disks[d]; in.Policy != muster.DiskPolicyInService && in.State != muster.DiskDecommissioned {
			p.diskLeaves(i, in)
		}
	}
}

// uses tells whether something of a placement may be on a disk.
func (n *node) uses(disk string) bool {
	return slices.ContainsFunc(n.now.Placements, func(pl muster.BlueprintPlacement) bool {
		return !pl.Gone() && (pl.Disk == disk || pl.Transient == disk)
	})
}

func (p *plan) diskLeaves(i int, in *Disk) {
	n := &p.nodes[i]
	d, found := slices.BinarySearchFunc(n.now.Disks, in.ID, func(d muster.BlueprintDisk, id string) int { return compareID(d.ID, id) })
	if !found {
		n.now.Disks, n.changed = slices.Insert(slices.Clone(n.now.Disks), d, muster.BlueprintDisk{ID: in.ID}), true
		p.did(line{node: n.now.ID, disk: in.ID}, "disk %s of %s is on its way out: it is told to be %s", in.ID, n.title(), in.Policy)
	}
	if n.now.Disks[d].Ready {
		return
	}
	at := line{node: n.now.ID, disk: in.ID}
	if !n.now.Disks[d].Unused {
		if why := p.diskHeld(i, in); why != "" {
			p.wait(at, "disk %s of %s stays: %s", in.ID, n.title(), why)
			return
		}
		leaving := n.editDisk(d)
		leaving.Unused, leaving.AsOf = true, max(n.now.Generation, n.told)
		p.did(at, "nothing on %s is told to use disk %s any more", n.title(), in.ID)
	}
	s := n.seen()
	switch asOf := n.now.Disks[d].AsOf; {
	case s == nil || s.Reconciled < asOf:
		p.wait(at, "disk %s of %s is not decommissioned yet: %s", in.ID, n.title(), n.behind(asOf))
	case n.uses(in.ID), slices.ContainsFunc(s.Disks, func(d SeenDisk) bool { return d.ID == in.ID && d.InUse }):
		p.wait(at, "disk %s of %s is not decommissioned yet: its host still uses it", in.ID, n.title())
	default:
		n.editDisk(d).Ready = true
		p.did(at, "disk %s of %s can be decommissioned: its host does not use it any more", in.ID, n.title())
	}
}

// diskHeld sees that nothing uses a disk that leaves, and says what still does.
func (p *plan) diskHeld(i int, in *Disk) string {
	n := &p.nodes[i]
	if in.Policy != muster.DiskPolicyExpunged && len(in.Claims) > 0 {
		return strings.Join(in.Claims, ", ") + " still needs it"
	}
	for at := range n.now.Placements {
		pl := &n.now.Placements[at]
		if !pl.Declared() && !pl.Held || pl.Disk != in.ID && pl.Transient != in.ID {
			continue
		}
		if pl.Disk == in.ID && p.chosen(pl) {
			return pl.Name + " is still on it"
		}
		k := p.kind(pl.Module)
		if why := p.spared(k, ref{i, at}); why != "" {
			return pl.Name + " on it must not go yet: " + why
		}
		if pl.Disk == in.ID {
			p.take(k, ref{i, at}, muster.PlacementRemoved, "its disk is being removed")
			continue
		}
		up := n.up[at]
		if !p.otherTransient(n, at, "its transient disk "+in.ID+" is being removed") {
			p.refuse(n.of(pl), "%s has disk %s of %s for its transient disk, and the node has no other with room", pl.Name, in.ID, n.title())
			return pl.Name + " is still on it"
		} else if up {
			k.available--
		}
	}
	return ""
}
