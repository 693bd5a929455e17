package world

import (
	"fmt"
	"time"

	"muster.internal/host"
	"muster.internal/resource"
	"muster.internal/sim"
)

// Times of what runs.
const (
	startWithin   = 10 * time.Second // until it is healthy
	catchUpWithin = 4 * time.Minute  // and until it has what the others have
)

// started notes that something begins to run here.
func (m *machine) started(t sim.Thing) {
	if p := t.From.Container.Environment["PLACEMENT"]; p != "" {
		m.up[p] = m.w.now.Add(m.w.between(startWithin, catchUpWithin))
	}
}

// probe is what one look at a placement finds.
func (m *machine) probe(c resource.Check) host.Probe {
	of, runs := m.placement(c.ID)
	switch left := m.up[c.ID].Sub(m.w.now); {
	case !runs:
		return host.Probe{Reason: "nothing answers"}
	case m.sick[of].After(m.w.now):
		return host.Probe{Reason: "it is sick"}
	case left > catchUpWithin-startWithin:
		return host.Probe{Reason: "it starts"}
	case left > 0 && c.CaughtUp != "":
		return host.Probe{Healthy: true, Reason: "it catches up"}
	}
	return host.Probe{Healthy: true, CaughtUp: true}
}

// placement tells what a placement is of, and whether it runs here.
func (m *machine) placement(id string) (module string, runs bool) {
	for _, t := range m.node.Ground.There {
		if of, _, runs := placed(t); runs && t.From.Container.Environment["PLACEMENT"] == id {
			return of, true
		}
	}
	return "", false
}

// serving is how many of a module really serve.
func (w *World) serving(module string) (n int) {
	for _, m := range w.all {
		if !m.on || m.gone || m.sick[module].After(w.now) {
			continue
		}
		for _, t := range m.node.Ground.There {
			if of, _, runs := placed(t); runs && of == module && !m.up[t.From.Container.Environment["PLACEMENT"]].After(w.now) {
				n++
			}
		}
	}
	return n
}

// lookSoon has the host look at what it is told to check, for as long as that is
// on its way to somewhere. At rest nobody looks: it would find the same.
func (m *machine) lookSoon() {
	if !m.on || len(m.life.Watch.Checks()) == 0 {
		return
	}
	m.looks++
	m.look(m.looks, 0)
}

func (m *machine) look(which, same int) {
	after, any := m.life.Watch.Next(m.life.Moment(), m.w.dice.Float64())
	if !any || same > 3 { // more often than it takes to believe bad news
		return
	}
	m.w.after(after, func() {
		if !m.on || which != m.looks {
			return
		}
		var found []host.Probe
		rest := true
		for _, c := range m.life.Watch.Checks() {
			p := m.probe(c)
			found = append(found, p)
			rest = rest && p.CaughtUp
		}
		if m.life.Watch.Saw(found, m.life.Moment().Wall) {
			m.news()
		}
		if same++; !rest {
			same = 0
		}
		m.look(which, same)
	})
}

// news has a host end what it waits for, to say what it has seen.
func (m *machine) news() {
	if p := m.poll; p != nil {
		m.w.plane.drop(p)
		m.answer(p.turn, reply{text: []byte(`{"next_seconds":1}`)})
	}
}

// sicken has nothing of a module be healthy here for a time.
func (m *machine) sicken(module string, d time.Duration) error {
	if catalogue[module] == "" {
		return fmt.Errorf("there is no module %q", module)
	}
	m.sick[module] = m.w.now.Add(d)
	m.w.books.wrong(m.w)
	m.lookSoon()
	m.w.after(d, func() {
		m.w.books.wrong(m.w)
		m.lookSoon()
	})
	return nil
}
