package planner

import (
	"slices"

	"muster.internal"
)

// A rollout brings a new version to where a module is, a few at a time: what has
// the new version and is not up yet is in flight.
type rollout struct {
	inFlight, most int
}

func (p *plan) rollout(k *kind) *rollout {
	u := &rollout{}
	living := 0
	for _, r := range k.all {
		n, pl := p.at(r)
		if !pl.Declared() {
			continue
		}
		living++
		if pl.Version == k.want.Version && !n.up[r.at] {
			u.inFlight++
		}
	}
	u.most = max(1, living/10)
	return u
}

// updates brings new versions to what stays. It is the last step, for what the
// others take away counts.
func (p *plan) updates() {
	for _, k := range p.order {
		if k.want == nil {
			continue
		}
		old := slices.DeleteFunc(slices.Clone(k.all), func(r ref) bool {
			_, pl := p.at(r)
			return pl.Version == k.want.Version || !pl.Declared() || pl.State == muster.PlacementMoving
		})
		if len(old) == 0 {
			continue
		}
		u := p.rollout(k)
		if k.want.Surges() {
			p.sort(k).update(old, u)
			continue
		}
		for _, r := range old {
			p.update(k, r, u)
		}
	}
}

// update gives a placement the new version where it is.
func (p *plan) update(k *kind, r ref, u *rollout) {
	n, pl := p.at(r)
	stays := func(why string) {
		p.wait(n.of(pl), "%s on %s stays at version %d: %s", pl.Name, n.title(), pl.Version, why)
	}
	if n.held() || n.in.Policy == muster.PolicyQuiesce && pl.Kind != muster.PlacementBase || n.in.Policy == muster.PolicyGracefulRemove {
		stays("its node is " + map[bool]string{true: "held", false: "told to be " + string(n.in.Policy)}[n.held()])
		return
	}
	if u.inFlight >= u.most {
		stays("others with the new version are not up yet")
		return
	}
	if why := p.spared(k, r); why != "" {
		stays(why)
		return
	}
	if why := p.cannotBecome(k, n, pl); why != "" {
		p.refuse(n.of(pl), "%s on %s cannot have version %d: its node is %s", pl.Name, n.title(), k.want.Version, why)
		return
	}
	if n.up[r.at] {
		k.available--
	}
	from := pl.Version
	pl = n.edit(r.at)
	pl.Version, pl.Since, n.up[r.at] = k.want.Version, n.tell(), false
	u.inFlight++
	p.did(n.of(pl), "%s on %s gets version %d instead of %d", pl.Name, n.title(), k.want.Version, from)
}

// cannotBecome says why a placement cannot have the wanted version where it is.
// What it has now is its own to use.
func (p *plan) cannotBecome(k *kind, n *node, pl *muster.BlueprintPlacement) string {
	if n.in.Seen == nil {
		return "without an inventory"
	}
	if why := p.lacks(n, k.want); why != "" {
		return why
	}
	old, m := p.defs[key{pl.Module, pl.Version}], k.want
	if old == nil {
		return ""
	}
	if m.Asks.DurableMiB != old.Asks.DurableMiB || m.Asks.TransientMiB != old.Asks.TransientMiB {
		return "to give it other disks: a new version may not ask for them"
	}
	p.room()
	free := n.free.Plus(old.Asks).Minus(m.Asks)
	switch {
	case free.CPUMillis < 0 && m.Asks.CPUMillis > old.Asks.CPUMillis:
		return "with too little cpu"
	case free.MemoryMiB < 0 && m.Asks.MemoryMiB > old.Asks.MemoryMiB:
		return "with too little memory"
	case free.DiskMiB < 0 && m.Asks.DiskMiB > old.Asks.DiskMiB:
		return "with too little disk"
	}
	for name := range p.conflictsOf(m) {
		for _, other := range n.now.Placements {
			if other.Module == name && !other.Gone() {
				return "with a module that takes the same resource or port"
			}
		}
	}
	n.free = free
	return ""
}
