package blueprint

import (
	"fmt"
	"slices"

	"muster.internal"
	"muster.internal/module"
)

// Lint says everything that must not be so in a blueprint, whatever the fleet is
// like. Every plan in every test goes through it.
func Lint(b *muster.Blueprint) []string {
	l := &linter{b: b, r: NewRenderer(b), ids: map[string]*muster.BlueprintPlacement{}, names: map[string]string{}, used: map[key]bool{}, twice: map[key]bool{}}
	l.modules()
	addresses := map[string]string{}
	for i := range b.Nodes {
		n := &b.Nodes[i]
		if i > 0 && b.Nodes[i-1].ID >= n.ID {
			l.say("node %s is not in its place: nodes are in order, each once", n.ID)
		}
		if other, taken := addresses[n.Address]; taken && n.Address != "" && n.State != muster.NodeDecommissioned {
			l.say("nodes %s and %s have the same address %s", other, n.ID, n.Address)
		} else if n.State != muster.NodeDecommissioned {
			addresses[n.Address] = n.ID
		}
		l.node(n)
	}
	l.moves()
	for k := range l.r.modules {
		if !l.used[k] {
			l.say("module %s version %d is there, and no placement has it", k.name, k.version)
		}
	}
	slices.Sort(l.found)
	return l.found
}

type linter struct {
	b     *muster.Blueprint
	r     *Renderer
	ids   map[string]*muster.BlueprintPlacement
	names map[string]string
	used  map[key]bool
	twice map[key]bool // what can be on one node twice
	found []string
}

func (l *linter) say(format string, args ...any) {
	l.found = append(l.found, fmt.Sprintf(format, args...))
}

func (l *linter) modules() {
	for i := range l.b.Modules {
		m := &l.b.Modules[i]
		if i > 0 {
			if o := &l.b.Modules[i-1]; o.Name > m.Name || o.Name == m.Name && o.Version >= m.Version {
				l.say("module %s version %d is not in its place", m.Name, m.Version)
			}
		}
		l.twice[key{m.Name, m.Version}] = m.Place.Replicas > 0 && m.Twice()
		for _, err := range m.Check() {
			l.say("%v", err)
		}
	}
}

func (l *linter) node(n *muster.BlueprintNode) {
	on := func(format string, args ...any) { l.say("node "+n.ID+": "+format, args...) }
	if n.Generation < 0 || n.Generation == 0 && slices.ContainsFunc(n.Placements, func(p muster.BlueprintPlacement) bool { return p.Declared() }) {
		on("it is told something in generation %d", n.Generation)
	}
	if n.Drawn < int64(len(n.Placements)) {
		on("it has %d placements, and drew %d ids", len(n.Placements), n.Drawn)
	}
	places := map[string]string{} // module, and disk: the placement that is declared there
	for i := range n.Placements {
		p := &n.Placements[i]
		l.placement(n, p, func(format string, args ...any) { on(p.Name+": "+format, args...) })
		m := l.r.modules[key{p.Module, p.Version}]
		if m == nil || p.Gone() || l.twice[key{p.Module, p.Version}] {
			continue
		}
		place := p.Module
		if m.Place.EachDisk {
			place += " on disk " + p.Disk
		}
		if other, twice := places[place]; twice {
			on("%s and %s are both %s", other, p.Name, place)
		}
		places[place] = p.Name
	}
	for i, d := range n.Disks {
		if i > 0 && n.Disks[i-1].ID >= d.ID {
			on("disk %s is not in its place", d.ID)
		}
		if d.AsOf > n.Generation {
			on("disk %s is unused as of generation %d, which is yet to come", d.ID, d.AsOf)
		}
		for _, p := range n.Placements {
			if d.Ready && !p.Gone() && (p.Disk == d.ID || p.Transient == d.ID) {
				on("disk %s is ready to be decommissioned, and %s is on it", d.ID, p.Name)
			}
		}
	}
	if n.State != muster.NodeDecommissioned {
		if _, err := l.r.render(n); err != nil {
			l.say("%v", err)
		}
	}
}

// placement looks at one alone.
func (l *linter) placement(n *muster.BlueprintNode, p *muster.BlueprintPlacement, say func(string, ...any)) {
	if l.ids[p.ID] != nil {
		say("its id %s is another's, too", p.ID)
	}
	l.ids[p.ID] = p
	if other, taken := l.names[p.Name]; taken {
		say("its name is also that of %s", other)
	} else if !p.Gone() {
		l.names[p.Name] = p.ID
	}
	l.used[key{p.Module, p.Version}] = true
	m := l.r.modules[key{p.Module, p.Version}]
	if m == nil {
		say("its module %s version %d is not in the blueprint", p.Module, p.Version)
		return
	}
	if want := KindOf(m); p.Kind != want {
		say("it is %s, and its module %s", p.Kind, want)
	}
	if (m.Place.EachDisk || m.Asks.DurableMiB > 0) && p.Disk == "" || m.Asks.TransientMiB > 0 && p.Transient == "" {
		say("it names no disk")
	}
	ended := p.State == muster.PlacementRemoved || p.State == muster.PlacementLost
	switch {
	case !ended && !slices.Contains([]muster.PlacementState{muster.PlacementReserved, muster.PlacementPlaced, muster.PlacementMoving}, p.State):
		say("%q is no state", p.State)
	case p.Declared() && (p.AsOf != 0 || p.Ready):
		say("it is %s and declared, and gone as of generation %d", p.State, p.AsOf)
	case p.Declared() && p.Since < 1, p.Since > n.Generation, p.AsOf > n.Generation:
		say("declared since generation %d, gone as of %d, and its node is at %d", p.Since, p.AsOf, n.Generation)
	case p.AsOf != 0 && p.AsOf < p.Since:
		say("declared since generation %d and gone as of %d", p.Since, p.AsOf)
	case ended && p.Since > 0 && p.AsOf == 0:
		say("it is %s, and no generation says so", p.State)
	case p.Held && p.State != muster.PlacementReserved && !ended:
		say("it is %s, and its node is not told of it", p.State)
	case n.State == muster.NodeDecommissioned && !p.Gone():
		say("it is %s on a decommissioned node", p.State)
	case n.State == muster.NodeQuiesced && p.Declared() && p.Kind != muster.PlacementBase:
		say("it is declared on a quiesced node")
	}
}

// moves sees that what moves has somewhere to go.
func (l *linter) moves() {
	to := map[string]*muster.BlueprintPlacement{}
	for _, p := range l.ids {
		if p.Replaces == "" || p.State == muster.PlacementRemoved || p.State == muster.PlacementLost {
			continue
		}
		if other := to[p.Replaces]; other != nil {
			l.say("%s and %s both replace %s", min(p.Name, other.Name), max(p.Name, other.Name), p.Replaces)
		}
		to[p.Replaces] = p
	}
	for id, p := range l.ids {
		if p.State == muster.PlacementMoving && to[id] == nil {
			l.say("%s moves, and nothing replaces it", p.Name)
		}
	}
}

// KindOf tells what a node brings with itself from what was put there.
func KindOf(m *module.Module) muster.PlacementKind {
	switch {
	case m.Base:
		return muster.PlacementBase
	case m.Place.EachNode:
		return muster.PlacementPerNode
	case m.Place.EachDisk:
		return muster.PlacementPerDisk
	}
	return muster.PlacementService
}
