package world

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/blueprint"
	"muster.internal/module"
	"muster.internal/resource"
	"muster.internal/sim"
	"muster.internal/store"
)

// Books are what really runs where, beside what was promised of it.
type books struct {
	wanted  map[string]*module.Module
	runs    map[string]map[string]int // by module: names of placements, and how many machines run each
	reached map[string]bool           // as many as must be available were there
	faulted time.Time                 // something went wrong last
	stirred time.Time                 // and something at all happened that a plan may follow
	bad     int                       // faults that last
	names   map[string]string         // of placements, and where they are or were, by id
}

// Times that planners are given to see what went wrong, and fleets to come to
// rest.
const (
	seenWithin = 45 * time.Minute
	restWithin = 3 * time.Hour
)

func newBooks() books {
	return books{wanted: map[string]*module.Module{}, runs: map[string]map[string]int{}, reached: map[string]bool{}, names: map[string]string{}, faulted: start, stirred: start}
}

// wrong notes that something goes wrong, and stir that anything happens.
func (b *books) wrong(w *World) { b.faulted = w.now; b.stir(w) }
func (b *books) stir(w *World)  { b.stirred = w.now }

// placed is what a thing runs for a placement, if anything.
func placed(t sim.Thing) (of, name string, runs bool) {
	if !t.Runs() || t.From == nil || t.From.Container == nil {
		return "", "", false
	}
	return t.From.Container.Environment["MODULE"], t.From.Container.Name, true
}

// changed hears of everything that a host does.
func (b *books) changed(m *machine, was, is sim.Thing) {
	if !m.on || m.gone {
		return
	}
	b.stir(m.w)
	before, name, ran := placed(was)
	of, now, runs := placed(is)
	switch {
	case ran && runs && name == now:
		return
	case ran:
		b.count(m.w, before, name, -1)
		b.available(m, before, name)
	}
	if runs {
		m.started(is)
		b.count(m.w, of, now, 1)
	}
}

// power hears that a machine has power, or has none any more, and with it what
// runs there.
func (b *books) power(m *machine) {
	by := -1
	if m.on && !m.gone {
		by = 1
	}
	if by == -1 && !m.counted || by == 1 && m.counted {
		return
	}
	m.counted = by == 1
	b.wrong(m.w)
	for _, ref := range slices.Sorted(maps.Keys(m.node.Ground.There)) {
		t := m.node.Ground.There[ref]
		if of, name, runs := placed(t); runs {
			if m.on {
				m.started(t)
			}
			b.count(m.w, of, name, by)
		}
	}
}

// count notes that one more, or one less, runs, and sees that no more do than
// may.
func (b *books) count(w *World, of, name string, by int) {
	if b.runs[of] == nil {
		b.runs[of] = map[string]int{}
	}
	if b.runs[of][name] += by; b.runs[of][name] == 0 {
		delete(b.runs[of], name)
	}
	m := b.wanted[of]
	if m == nil || by < 0 {
		return
	}
	if len(b.runs[of]) >= m.Minimum() {
		b.reached[of] = true
	}
	if m.Surges() || m.Place.Replicas == 0 {
		return
	}
	if n := b.runs[of][name]; n > 1 {
		w.fail("%s runs on %d machines at once, and may run on one", name, n)
	}
	if n := len(b.runs[of]); n > m.Place.Replicas {
		w.fail("%d of %s run, of which there may be %d", n, of, m.Place.Replicas)
	}
}

// available sees that a host takes nothing away of which too little would stay,
// unless something has gone wrong that planners may not have seen yet.
func (b *books) available(m *machine, of, name string) {
	want := b.wanted[of]
	if want == nil || !m.acting || !b.reached[of] || b.bad > 0 || m.w.now.Sub(b.faulted) < seenWithin {
		return
	}
	n := len(b.runs[of])
	if want.Health != nil {
		n = m.w.serving(of)
	}
	if n < want.Minimum() {
		m.w.fail("%s is taken away on %s, and %d of %s stay, of which %d must", name, m.name, n, of, want.Minimum())
	}
}

// passedOver are entries of the feed that a transcript goes without.
var passedOver = []string{"declare", "sign_certificate", "issue_token", "refresh", "label", "create_operator", "login"}

// entry looks at what has happened.
func (b *books) entry(w *World, e muster.AuditEntry) {
	if strings.HasPrefix(e.Action, "expunge") && !strings.HasPrefix(e.Actor, "operator:") {
		w.fail("%s was expunged by %s: nobody but an operator may", e.Subject, e.Actor)
	}
	about := w.named(e.Subject)
	if e.Action == store.ActionSetTarget {
		b.target(w)
		about = fmt.Sprint(w.load.Blueprints)
	}
	if id, of := strings.CutPrefix(about, "placement/"); of {
		about = cmp.Or(b.names[id], id)
	}
	if slices.Contains(passedOver, e.Action) {
		return
	}
	if by, of := strings.CutPrefix(e.Actor, "operator:"); of {
		about += ", by " + by
	}
	w.say("%s %s", e.Action, about)
}

// target looks at a new one.
func (b *books) target(w *World) {
	w.load.Blueprints++
	if rest := w.now.Sub(b.stirred); rest > restWithin {
		w.fail("a blueprint is made although nothing has happened for %v", rest)
	}
	_, target, err := w.plane.anchor.Target(w.ctx)
	w.must(err)
	if target == nil {
		return
	}
	for i := range target.Nodes {
		for _, p := range target.Nodes[i].Placements {
			b.names[p.ID] = p.Name + " on " + target.Nodes[i].Hostname
		}
	}
	for _, line := range blueprint.Lint(target) {
		w.fail("the target must not be so: %s", line)
	}
}

// there is what a machine runs, in words.
func (m *machine) there() (all []string) {
	for ref, t := range m.node.Ground.There {
		if ref.Kind() == resource.KindContainer && t.Runs() && t.From != nil {
			all = append(all, fmt.Sprintf("%s (%s)", ref.Key(), t.From.Container.Image))
		}
	}
	slices.Sort(all)
	return all
}

// images are those of what a machine runs.
func (m *machine) images() (all []string) {
	for ref, t := range m.node.Ground.There {
		if ref.Kind() == resource.KindContainer && t.Runs() && t.From != nil {
			all = append(all, t.From.Container.Image)
		}
	}
	return all
}
