package world

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/api"
	"muster.internal/control"
	"muster.internal/resource"
	"muster.internal/sim"
	"muster.internal/store"
)

// A plane is the control plane: the real one, whose clocks the heap calls. What
// kills it leaves its store, which a second connection keeps in memory.
type plane struct {
	w      *World
	config control.Config
	c      *control.Control // nil: it is dead
	anchor *store.Store
	feed   int64 // everything up to here has been looked at
	parked map[string][]*parked
	heard  bool // hosts or operators have spoken since the feed was looked at

	kill      time.Duration // for how long it is dead once it has committed something for a host; 0: it lives on
	tick      time.Duration // of its clocks; slower at rest
	ticking   int           // the clock that counts
	planAt    time.Time     // the next plan, if one is due
	plannedAt time.Time
	quietFrom time.Time // nothing has happened since that could need a plan
}

// A parked poll waits for news.
type parked struct {
	m    *machine
	turn int
	ask  ask
	node string
	poll *control.Poll
}

// Times of the clocks. At rest they slow down: what they would find is the same.
const (
	tickFast = 2 * time.Second
	tickSlow = 10 * time.Minute
	planSoon = 600 * time.Millisecond // after the feed has moved
	planLate = 10 * time.Second       // after a host has said something
)

// worlds numbers stores, since all of a process share their names.
var worlds int

// first makes a control plane that has nobody yet.
func (p *plane) first(w *World, seed uint64) error {
	worlds++
	var key [32]byte
	for i := range key {
		key[i] = byte(seed >> (i % 8 * 8))
	}
	p.w = w
	p.config = control.Config{Dir: w.dir, Store: fmt.Sprintf("%sworld-%d", store.Memory, worlds), Now: func() time.Time { return w.now }, Dice: rand.NewChaCha8(key)}
	if err := p.open(); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(w.dir, "master.key"))
	if err != nil {
		return err
	}
	master, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	p.anchor, err = store.Open(w.ctx, store.Options{URL: p.config.Store, MasterKey: master})
	return err
}

func (p *plane) open() (err error) {
	if p.c, err = control.Open(p.w.ctx, p.config); err != nil {
		return err
	}
	p.parked = map[string][]*parked{}
	p.tick = 0
	p.busy()
	p.planSoon(planSoon)
	return nil
}

func (p *plane) end() {
	if p.c != nil {
		p.c.Kill()
	}
	if p.anchor != nil {
		p.anchor.Close()
	}
}

// die kills it, for a time. Hosts that wait for it notice.
func (p *plane) die(d time.Duration) {
	if p.c == nil {
		return
	}
	p.w.say("the control plane is killed")
	p.w.must(p.c.Kill())
	p.c, p.kill = nil, 0
	p.ticking++
	var waiting []*parked
	for _, all := range p.parked {
		waiting = append(waiting, all...)
	}
	slices.SortFunc(waiting, func(a, b *parked) int { return strings.Compare(a.m.name, b.m.name) })
	for _, q := range waiting {
		q.m.poll = nil
		p.w.after(p.w.transit(), func() { q.m.answer(q.turn, reply{err: errReset}) })
	}
	p.parked = nil
	p.w.after(d, func() {
		p.w.say("the control plane is started again")
		p.w.must(p.open())
	})
}

// busy has the clocks go at their usual pace.
func (p *plane) busy() {
	p.quietFrom = p.w.now
	if p.tick != tickFast {
		p.tick = tickFast
		p.ticking++
		p.clock(p.ticking)
	}
}

func (p *plane) clock(which int) {
	p.w.after(p.tick, func() {
		if which != p.ticking || p.c == nil {
			return
		}
		p.w.must(p.c.Tick(p.w.ctx))
		p.w.must(p.c.KeepLinks(p.w.ctx))
		p.heard = true
		if p.w.now.Sub(p.plannedAt) >= planLate {
			p.plan()
		}
		if p.w.now.Sub(p.quietFrom) > 5*time.Minute {
			p.tick = min(2*p.tick, tickSlow)
		}
		p.clock(which)
	})
}

// planSoon has a plan made within a time.
func (p *plane) planSoon(within time.Duration) {
	at := p.w.now.Add(within)
	if !p.planAt.IsZero() && !p.planAt.After(at) {
		return
	}
	p.planAt = at
	p.w.at(at, func() {
		if p.planAt.Equal(at) {
			p.plan()
		}
	})
}

func (p *plane) plan() {
	p.planAt, p.plannedAt = time.Time{}, p.w.now
	if p.c == nil {
		return
	}
	p.w.load.Plans++
	p.heard = true
	p.w.must(p.c.Plan(p.w.ctx))
}

// as is the control plane as somebody sees it.
func (p *plane) as(by muster.Caller) api.Session {
	p.heard = true
	p.busy()
	return p.c.As(by)
}

// hear takes a host's call.
func (p *plane) hear(m *machine, turn int, a ask) {
	if p.c == nil {
		p.w.after(p.w.transit(), func() { m.answer(turn, reply{err: errRefused}) })
		return
	}
	p.count()
	caller, err := p.c.Authenticate(p.w.ctx, a.proof, m.node.Address)
	if err != nil {
		p.w.reply(m, turn, a, nil, err)
		return
	}
	if a.what == sim.CallNext {
		p.next(m, turn, a, caller)
		return
	}
	p.planSoon(planLate)
	out, err := p.serve(p.as(caller), a)
	p.w.reply(m, turn, a, out, err)
}

func (p *plane) count() {
	l := &p.w.load
	l.Calls++
	if s := p.w.now.Unix(); s != l.second {
		l.second, l.inSecond = s, 0
	}
	l.inSecond++
	l.Busiest = max(l.Busiest, l.inSecond)
	if l.second < l.returned {
		l.Return = max(l.Return, l.inSecond)
	}
}

// serve makes what a call says of the control plane's own method.
func (p *plane) serve(s api.Session, a ask) (out any, err error) {
	ctx := p.w.ctx
	switch a.what {
	case callCertificate:
		return take(a, func(q muster.CertificateRequest) (any, error) { return s.LinkCertificate(ctx, q) })
	case sim.CallRefresh:
		return take(a, func(q muster.RefreshRequest) (any, error) { return s.Refresh(ctx, q) })
	case sim.CallProfile:
		return take(a, func(q muster.Profile) (any, error) { return nil, s.LinkProfile(ctx, q) })
	case sim.CallOwned:
		return take(a, func(q []resource.Owned) (any, error) { return nil, s.SetLinkOwned(ctx, q) })
	case sim.CallHealth:
		return take(a, func(q []muster.PlacementHealth) (any, error) { return nil, s.SetLinkHealth(ctx, q) })
	case sim.CallReport:
		return take(a, func(q resource.Report) (any, error) { return nil, s.LinkReport(ctx, q) })
	case sim.CallMirror:
		return s.LinkOwned(ctx)
	}
	return nil, fmt.Errorf("the world knows no call %q", a.what)
}

func take[T any](a ask, do func(T) (any, error)) (any, error) {
	var q T
	if err := json.Unmarshal(a.text, &q); err != nil {
		return nil, err
	}
	return do(q)
}

// next answers a poll that there is news for, and parks every other.
func (p *plane) next(m *machine, turn int, a ask, by muster.Caller) {
	var said muster.LinkPoll
	p.w.must(json.Unmarshal(a.text, &said))
	poll, err := p.c.Arrive(by, said)
	if err != nil {
		p.w.reply(m, turn, a, nil, err)
		return
	}
	q := &parked{m, turn, a, by.NodeID, poll}
	answer, tells, err := poll.Look(p.w.ctx)
	p.heard = true
	if tells || err != nil {
		poll.Leave()
		p.say(q, answer, err)
		return
	}
	p.parked[q.node] = append(p.parked[q.node], q)
	if !m.on || m.turn != turn {
		p.w.after(p.w.between(time.Second, 55*time.Second), func() { p.drop(q) }) // nobody listens any more
		return
	}
	m.poll = q
	switch {
	case len(answer.Orders) > 0: // it may not have heard of them
		p.w.after(p.w.between(45*time.Second, 55*time.Second), func() { p.over(q) })
	case !m.atRest():
		p.w.after(p.w.between(10*time.Minute, 12*time.Minute), func() { p.over(q) })
	}
}

// say answers a poll.
func (p *plane) say(q *parked, a muster.LinkAnswer, err error) {
	if err == nil && a.Declaration != nil {
		if q.m.gone && q.node == q.m.nodeID {
			p.w.fail("%s is told generation %d, and was expunged", q.m.name, a.Generation)
		}
		p.busy()
	}
	a.NextSeconds = 1 + p.w.dice.IntN(3) // where the control plane throws its own
	p.w.reply(q.m, q.turn, q.ask, a, err)
}

// look is the control plane's when a poll is woken, or over.
func (p *plane) look(q *parked, over bool) {
	if !slices.Contains(p.parked[q.node], q) {
		return
	}
	a, tells, err := q.poll.Look(p.w.ctx)
	p.heard = true
	if tells || over || err != nil {
		p.drop(q)
		p.say(q, a, err)
	}
}

func (p *plane) over(q *parked) { p.look(q, true) }

// drop is the end of a poll.
func (p *plane) drop(q *parked) {
	if !slices.Contains(p.parked[q.node], q) {
		return
	}
	p.parked[q.node] = slices.DeleteFunc(p.parked[q.node], func(o *parked) bool { return o == q })
	if len(p.parked[q.node]) == 0 {
		delete(p.parked, q.node)
	}
	if q.m.poll == q {
		q.m.poll = nil
	}
	q.poll.Leave()
}

// follow reads what is new in the feed and wakes whom it is about.
func (p *plane) follow() {
	for p.c != nil && p.heard {
		p.heard = false
		entries, err := p.anchor.Audit(p.w.ctx, muster.AuditFilter{After: p.feed})
		p.w.must(err)
		var woken []string
		for _, e := range entries {
			p.feed = e.Seq
			p.w.books.entry(p.w, e)
			if id, wakes := control.Woken(e); wakes {
				woken = append(woken, id)
			}
		}
		if len(entries) == 0 {
			return
		}
		p.heard = true
		p.busy()
		p.planSoon(planSoon)
		if len(woken) > 0 && p.kill > 0 { // between the commit and the sending
			p.die(p.kill)
			return
		}
		slices.Sort(woken)
		for _, id := range slices.Compact(woken) {
			for _, q := range slices.Clone(p.parked[id]) {
				p.look(q, false)
			}
		}
	}
}
