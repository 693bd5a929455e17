package planner

import (
	"cmp"
	"fmt"
	"slices"

	"muster.internal"
	"muster.internal/module"
)

// services sees to replicas: that there are as many as were asked for, away from
// where they must not be, and of the version that is wanted.
func (p *plan) services() {
	for _, k := range p.order {
		if k.want == nil || k.want.Place.Replicas == 0 {
			continue
		}
		s := p.sort(k)
		s.fill()
		s.settle()
		s.surplus()
		s.comeBack()
	}
}

// A service is one module's replicas while they are planned.
type service struct {
	p       *plan
	k       *kind
	staying []ref
	leaving []leaver
	heirs   map[string]ref // of what leaves, by its id: what replaces it
	unsure  int            // told to be gone, and may still be there
	choose  *chooser
}

// A leaver is a replica that must not stay where it is, or as it is.
type leaver struct {
	ref
	why string
}

func (p *plan) sort(k *kind) *service {
	s := &service{p: p, k: k, heirs: map[string]ref{}}
	var perhaps []ref
	for _, r := range k.all {
		n, pl := p.at(r)
		if pl.Declared() || pl.Held {
			if why := p.mustLeave(n, pl, k.want); why != "" {
				s.leaving = append(s.leaving, leaver{r, why})
				continue
			} else if pl.State == muster.PlacementMoving {
				perhaps = append(perhaps, r)
				continue
			}
			s.staying = append(s.staying, r)
		} else if !pl.Ready {
			s.unsure++
		}
	}
	if len(s.leaving)+len(perhaps) == 0 {
		return s
	}
	s.disown()
	for _, r := range s.staying {
		if _, pl := p.at(r); pl.Replaces != "" {
			s.heirs[pl.Replaces] = r
		}
	}
	for _, r := range perhaps {
		_, pl := p.at(r)
		if _, has := s.heirs[pl.ID]; has && pl.Version != k.want.Version && k.want.Surges() {
			s.leaving = append(s.leaving, leaver{r, "it has an old version"})
			continue
		}
		s.stay(r)
		s.staying = append(s.staying, r)
	}
	return s
}

// disown takes the word back that a replica replaces another, of those that must
// leave themselves before they could.
func (s *service) disown() {
	for _, l := range s.leaving {
		n, pl := s.p.at(l.ref)
		if pl.Replaces == "" || !slices.ContainsFunc(s.k.all, func(r ref) bool {
			_, old := s.p.at(r)
			return old.ID == pl.Replaces && (old.Declared() || old.Held)
		}) {
			continue
		}
		pl = n.edit(l.at)
		pl.Replaces = ""
		s.p.did(n.of(pl), "%s on %s replaces nothing: %s", pl.Name, n.title(), l.why)
		if s.hasHandOver(pl) && pl.State == muster.PlacementReserved && !pl.Held {
			pl.Since = n.tell()
		}
	}
}

// stay ends a move before it is made.
func (s *service) stay(r ref) {
	n, pl := s.p.at(r)
	if pl.State != muster.PlacementMoving {
		return
	}
	live := s.hasHandOver(pl)
	pl = n.edit(r.at)
	pl.State = muster.PlacementPlaced
	s.p.did(n.of(pl), "%s stays on %s after all", pl.Name, n.title())
	if live {
		pl.Since, n.up[r.at] = n.tell(), false
	}
}

func (s *service) hasHandOver(pl *muster.BlueprintPlacement) bool {
	m := s.p.defs[key{pl.Module, pl.Version}]
	return m != nil && m.HandOver != nil
}

// mustLeave says why a replica must leave its place; empty: it may stay.
func (p *plan) mustLeave(n *node, pl *muster.BlueprintPlacement, m *module.Module) string {
	if n.in == nil {
		return ""
	}
	switch {
	case n.in.Policy == muster.PolicyGracefulRemove:
		return "its node is being removed"
	case n.in.Policy == muster.PolicyQuiesce && m.Movable():
		return "its node is quiesced"
	case !module.Selects(m.Place.Where, n.in.Labels):
		return "its node has not the labels that it wants any more"
	}
	if d := n.disk(pl.Disk); d != nil && d.Policy == muster.DiskPolicyGracefulRemove {
		return "its disk is being removed"
	}
	if d := n.disk(pl.Transient); d != nil && d.Policy == muster.DiskPolicyGracefulRemove && p.findDisk(n, m, m.Asks.TransientMiB, pl.Disk) == "" {
		return "its transient disk is being removed, and its node has no other"
	}
	return ""
}

// fill makes up for what is missing, and finds a place for what leaves. It never
// waits for what was lost.
func (s *service) fill() {
	p, k := s.p, s.k
	missing := k.want.Place.Replicas - len(s.staying)
	if missing <= 0 {
		return
	}
	if p.comesAfter(k.want, line{module: k.name}, fmt.Sprintf("%d of %s of %s", missing, plural(k.want.Place.Replicas, "replica"), k.name)) {
		return
	}
	p.report.Done, k.all = slices.Grow(p.report.Done, missing), slices.Grow(k.all, missing)
	for i := range s.leaving {
		l := &s.leaving[i]
		n, pl := p.at(l.ref)
		if _, has := s.heirs[pl.ID]; has || missing == 0 {
			continue
		}
		if s.add(pl, "it replaces "+pl.Name+" on "+n.title()+": "+l.why) == nil {
			p.refuse(n.of(pl), "%s stays on %s, though %s, for no node can take it: %s", pl.Name, n.title(), l.why, s.choose.shortage())
			s.stay(l.ref)
			missing-- // it is there after all
			continue
		}
		missing--
	}
	for ; missing > 0; missing-- {
		if s.add(nil, "") == nil {
			p.refuse(line{module: k.name}, "%s has %d replicas of %d, and no node can take one more: %s", k.name, k.want.Place.Replicas-missing, k.want.Place.Replicas, s.choose.shortage())
			return
		}
	}
}

// add makes one more replica, in the stead of another or of none.
func (s *service) add(old *muster.BlueprintPlacement, why string) *muster.BlueprintPlacement {
	p, k := s.p, s.k
	if s.choose == nil {
		s.choose = p.newChooser(k, s.staying)
	}
	i, ok := s.choose.next()
	if !ok {
		return nil
	}
	pl := muster.BlueprintPlacement{Held: !s.mayRun()}
	if old != nil {
		pl.Replaces = old.ID
	}
	made := p.create(i, k, pl)
	s.choose.took()
	r := k.all[len(k.all)-1]
	s.staying = append(s.staying, r)
	n := &p.nodes[i]
	if why == "" {
		why = "one of " + plural(k.want.Place.Replicas, "replica")
	}
	if made.Held {
		p.did(n.of(made), "%s gets its room on %s: %s", made.Name, n.title(), why)
	} else {
		p.did(n.of(made), "%s begins on %s: %s", made.Name, n.title(), why)
	}
	if old != nil {
		s.heirs[old.ID] = r
	}
	return made
}

// mayRun tells whether one more may be told to begin: never, for what restarts,
// while as many as were asked for may be there.
func (s *service) mayRun() bool {
	if s.k.want.Surges() {
		return true
	}
	there := s.unsure
	for _, r := range s.k.all {
		if _, pl := s.p.at(r); pl.Declared() {
			there++
		}
	}
	return there < s.k.want.Place.Replicas
}

// settle lets go of what has its replacement up, or, of what restarts, of what
// has room for it.
func (s *service) settle() {
	p := s.p
	for _, l := range s.leaving {
		n, pl := p.at(l.ref)
		r, has := s.heirs[pl.ID]
		if !has {
			s.stay(l.ref)
			s.spare(l)
			continue
		}
		at, heir := p.at(r)
		if s.k.want.Surges() && !at.up[r.at] {
			s.moving(l.ref)
			p.wait(n.of(pl), "%s stays on %s until %s is up on %s: %s", pl.Name, n.title(), heir.Name, at.title(), at.notUp(heir, r.at))
			continue
		}
		if why := p.spared(s.k, l.ref); why != "" {
			s.moving(l.ref)
			p.wait(n.of(pl), "%s stays on %s for now: %s", pl.Name, n.title(), why)
			continue
		}
		p.take(s.k, l.ref, muster.PlacementRemoved, l.why+", and "+heir.Name+" on "+at.title()+" replaces it")
		if _, pl := p.at(l.ref); !pl.Ready {
			s.unsure++
		}
	}
}

// spare lets go of what must leave, and needs no replacement: there are enough
// without it.
func (s *service) spare(l leaver) {
	n, pl := s.p.at(l.ref)
	if len(s.staying) < s.k.want.Place.Replicas {
		return // fill has said why nothing replaces it
	}
	if why := s.p.spared(s.k, l.ref); why != "" {
		s.p.wait(n.of(pl), "%s stays on %s for now: %s", pl.Name, n.title(), why)
		return
	}
	s.p.take(s.k, l.ref, muster.PlacementRemoved, l.why+", and there are enough without it")
	if _, pl := s.p.at(l.ref); !pl.Ready {
		s.unsure++
	}
}

// moving says that a replica has somewhere to go.
func (s *service) moving(r ref) {
	n, pl := s.p.at(r)
	if !pl.Declared() || pl.State == muster.PlacementMoving {
		return
	}
	live := s.hasHandOver(pl)
	pl = n.edit(r.at)
	pl.State = muster.PlacementMoving
	if live {
		n.tell() // it is told its part of the hand-over, and serves meanwhile
	}
}

// surplus ends what is more than was asked for: from where there are the most
// of it, what is not up first.
func (s *service) surplus() {
	extra := len(s.staying) - s.k.want.Place.Replicas
	if extra <= 0 {
		return
	}
	p := s.p
	for _, r := range s.leastMissed()[:extra] {
		n, pl := p.at(r)
		if why := p.spared(s.k, r); why != "" {
			p.wait(n.of(pl), "%s on %s is one too many, and stays: %s", pl.Name, n.title(), why)
			continue
		}
		p.take(s.k, r, muster.PlacementRemoved, "there are more than the "+plural(s.k.want.Place.Replicas, "replica")+" asked for")
		s.staying = slices.DeleteFunc(s.staying, func(o ref) bool { return o == r })
	}
}

// leastMissed orders those that stay: of each label's value, and of each node,
// they are counted from the best on, and who has the highest count goes first.
func (s *service) leastMissed() []ref {
	p := s.p
	type rank struct {
		ref
		worth, inNode, inGroup int
	}
	all := make([]rank, len(s.staying))
	for i, r := range s.staying {
		n, pl := p.at(r)
		switch {
		case n.up[r.at]:
			all[i] = rank{ref: r, worth: 2}
		case !pl.Held:
			all[i] = rank{ref: r, worth: 1}
		default:
			all[i] = rank{ref: r}
		}
	}
	byPlace := func(a, b rank) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.at, b.at)) }
	slices.SortFunc(all, func(a, b rank) int { return cmp.Or(-cmp.Compare(a.worth, b.worth), byPlace(a, b)) })
	perNode, perGroup := map[int]int{}, map[string]int{}
	for i := range all {
		perNode[all[i].node]++
		all[i].inNode = perNode[all[i].node]
	}
	slices.SortStableFunc(all, func(a, b rank) int { return cmp.Compare(a.inNode, b.inNode) })
	for i := range all {
		label := ""
		if n := &p.nodes[all[i].node]; s.k.want.Place.Spread != "" && n.in != nil {
			label = n.in.Labels[s.k.want.Place.Spread]
		}
		perGroup[label]++
		all[i].inGroup = perGroup[label]
	}
	slices.SortFunc(all, func(a, b rank) int {
		return cmp.Or(cmp.Compare(a.worth, b.worth), -cmp.Compare(a.inGroup, b.inGroup), -cmp.Compare(a.inNode, b.inNode), -byPlace(a, b))
	})
	out := make([]ref, len(all))
	for i := range all {
		out[i] = all[i].ref
	}
	return out
}

// comeBack declares what only has its room yet.
func (s *service) comeBack() {
	for _, r := range s.staying {
		n, pl := s.p.at(r)
		switch {
		case !pl.Held:
		case !s.mayRun():
			s.p.wait(n.of(pl), "%s waits to begin on %s: as many as were asked for may still be elsewhere", pl.Name, n.title())
		default:
			s.p.comeBack(s.k, r)
		}
	}
}

// update replaces those that have an old version by others with the wanted one.
func (s *service) update(old []ref, u *rollout) {
	p, k := s.p, s.k
	for _, r := range old {
		n, pl := p.at(r)
		switch {
		case n.held():
			p.wait(n.of(pl), "%s on %s stays at version %d: its node is held", pl.Name, n.title(), pl.Version)
		case p.mustLeave(n, pl, k.want) != "": // it was said why it has not left
		case u.inFlight >= u.most:
			p.wait(n.of(pl), "%s on %s stays at version %d: others with the new version are not up yet", pl.Name, n.title(), pl.Version)
		case s.add(pl, "it replaces "+pl.Name+" on "+n.title()+", which has an old version") == nil:
			p.refuse(n.of(pl), "%s on %s stays at version %d, for no node can take its replacement: %s", pl.Name, n.title(), pl.Version, s.choose.shortage())
		default:
			u.inFlight++
			s.moving(r)
		}
	}
}
