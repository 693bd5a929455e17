package world

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"muster.internal"
	"muster.internal/host"
)

// settled holds the fleet at the end against what operators asked for.
func (w *World) settled() {
	if w.plane.c == nil {
		w.fail("the control plane is dead at the end: a scenario must start it again")
		return
	}
	w.plane.plan()
	report, _ := w.plane.c.LastPlan()
	refused := func(n string) bool { // whoever lacks room has to be helped
		return slices.ContainsFunc(report.Refused, func(l muster.PlanLine) bool { return l.Node == n })
	}
	for _, l := range report.Waits {
		if !refused(l.Node) {
			w.fail("it has not come to rest: %s", l.Text)
		}
	}
	for _, l := range report.Refused {
		w.say("refused: %s", w.named(l.Text))
	}
	nodes, err := w.plane.as(operator).Nodes(w.ctx)
	w.must(err)
	_, target, err := w.plane.anchor.Target(w.ctx)
	w.must(err)
	slices.SortFunc(nodes, func(a, b muster.Node) int { return strings.Compare(a.Hostname, b.Hostname) })
	w.end = map[string]int{}
	for _, n := range nodes {
		w.settledNode(n, target, refused(n.ID))
	}
	if target == nil {
		return
	}
	for name, m := range w.books.wanted {
		refused := slices.ContainsFunc(report.Refused, func(l muster.PlanLine) bool { return l.Module == name })
		if n := len(w.books.runs[name]); m.Place.Replicas > 0 && n != m.Place.Replicas && !refused {
			w.fail("%d of %s run, of which there should be %d, and nobody says why", n, name, m.Place.Replicas)
		}
	}
}

// states are what each policy comes to.
var states = map[muster.NodePolicy]muster.NodeState{
	muster.PolicyInService: muster.NodeInService, muster.PolicyNoProvision: muster.NodeInService, muster.PolicyQuiesce: muster.NodeQuiesced,
	muster.PolicyGracefulRemove: muster.NodeDecommissioned, muster.PolicyExpunged: muster.NodeDecommissioned,
}

func (w *World) settledNode(n muster.Node, target *muster.Blueprint, refused bool) {
	if want := states[n.Policy]; n.State != want && !refused {
		w.fail("%s is %s, and its policy is %s", n.Hostname, n.State, n.Policy)
	}
	w.end["nodes "+string(n.State)]++
	m := w.nodes[n.ID]
	if m == nil || m.nodeID != n.ID || n.State == muster.NodeDecommissioned {
		return
	}
	var should []string
	if target != nil {
		if i := slices.IndexFunc(target.Nodes, func(b muster.BlueprintNode) bool { return b.ID == n.ID }); i >= 0 {
			should = declared(&target.Nodes[i])
			h, err := m.life.Held()
			w.must(err)
			w.holds(m, h, target.Nodes[i].Generation)
		}
	}
	for _, image := range m.images() {
		w.end[image]++
	}
	there := m.there()
	w.say("%s is %s: %s", m.name, n.State, cmp.Or(strings.Join(there, ", "), "nothing"))
	if !slices.Equal(there, should) {
		w.fail("%s runs %s, and should run %s", m.name, there, should)
	}
}

func (w *World) holds(m *machine, h host.Held, generation int64) {
	if h.Newest != generation {
		w.fail("%s holds generation %d, and the target says %d", m.name, h.Newest, generation)
	}
}

func declared(n *muster.BlueprintNode) (all []string) {
	for _, p := range n.Placements {
		if p.Declared() {
			all = append(all, fmt.Sprintf("%s (%s:%d)", p.Name, p.Module, p.Version))
		}
	}
	slices.Sort(all)
	return all
}

// audited follows the audit's chain to its end.
func (w *World) audited() {
	v, err := w.plane.anchor.VerifyAudit(w.ctx)
	w.must(err)
	if !v.OK {
		w.fail("the audit is broken at %d: %s", v.BrokenAt, v.Reason)
	}
}
