package planner_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"muster.internal"
)

// TestLoop closes the loop: a planner with a clock, hosts that take their time,
// and a network that delays, doubles, loses and reorders what both say. After
// each event what really runs is held against what was promised; when the
// network is well again, everything must come to what operators asked for.
func TestLoop(t *testing.T) {
	seeds := 3
	if os.Getenv("MUSTER_SOAK") != "" {
		seeds = 100
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := newLoop(t, seed)
			l.run(3600)
			l.loss = 0
			l.run(5000)
			l.settled()
		})
	}
}

// A loop is a fleet in time. Times are seconds.
type loop struct {
	t     *testing.T
	f     *fleet
	dice  *rand.Rand
	now   int
	loss  float64
	queue events
	count int
	held  map[string]muster.BlueprintNode // what each host was told last
}

type event struct {
	at, number int
	do         func()
}

func newLoop(t *testing.T, seed uint64) *loop {
	l := &loop{t: t, f: newFleet(t), dice: rand.New(rand.NewPCG(seed, 1)), loss: 0.2, held: map[string]muster.BlueprintNode{}}
	for _, m := range []string{timeModule, diskModule, dbModule, oneModule} {
		l.f.want(m)
	}
	for i := range 5 {
		id := fmt.Sprintf("n%d", i+1)
		l.f.add(id, 2, fmt.Sprintf("rack=r%d", i%3))
		l.every(10+l.dice.IntN(10), func() { l.report(id) })
	}
	l.every(17, l.plan)
	l.every(11, func() { l.f.execute() })
	for _, o := range []struct {
		at int
		do func()
	}{
		{600, func() { l.f.node("n1").Policy = muster.PolicyGracefulRemove }},
		{1200, func() { l.f.want(strings.Replace(dbModule, `"version":1`, `"version":2`, 1)) }},
		{1800, func() { l.f.node("n2").Policy = muster.PolicyQuiesce }},
		{2400, func() { l.f.node("n2").Policy = muster.PolicyInService }},
		{2600, func() { l.f.disk("n3d1").Policy = muster.DiskPolicyGracefulRemove }},
		{3000, func() { l.f.want(strings.Replace(oneModule, `"version":1`, `"version":2`, 1)) }},
		{3300, func() { l.f.node("n4").Policy = muster.PolicyGracefulRemove }},
	} {
		l.after(o.at, o.do)
	}
	return l
}

func (l *loop) after(seconds int, do func()) {
	l.count++
	heap.Push(&l.queue, event{l.now + seconds, l.count, do})
}

func (l *loop) every(seconds int, do func()) {
	l.after(seconds, func() { do(); l.every(seconds, do) })
}

// send has something happen after a while, twice, or not at all.
func (l *loop) send(do func()) {
	for range 1 + l.dice.IntN(2) {
		if l.dice.Float64() >= l.loss {
			l.after(l.dice.IntN(40), do)
		}
	}
}

func (l *loop) run(until int) {
	for len(l.queue) > 0 && l.queue[0].at <= until {
		e := heap.Pop(&l.queue).(event)
		l.now = e.at
		e.do()
		l.promised()
	}
	l.now = until
}

// plan plans, and sends what the target says to everybody: level by level, never
// once for all.
func (l *loop) plan() {
	l.f.plan()
	if l.f.target == nil {
		return
	}
	for _, b := range l.f.target.Nodes {
		if b.State != muster.NodeDecommissioned && b.Generation > 0 {
			l.send(func() { l.take(b) })
		}
	}
}

// take is a host that hears a declaration: never an older one.
func (l *loop) take(b muster.BlueprintNode) {
	h := l.f.hosts[b.ID]
	if b.Generation <= h.holds {
		return
	}
	h.holds, l.held[b.ID] = b.Generation, b
	l.after(1+l.dice.IntN(20), func() { l.reconcile(b) })
}

func (l *loop) reconcile(b muster.BlueprintNode) {
	h := l.f.hosts[b.ID]
	if h.holds != b.Generation {
		return // it has been told something newer meanwhile
	}
	clear := map[string]bool{}
	for p := range h.runs {
		clear[p] = true
	}
	for _, p := range b.Placements {
		if !p.Declared() {
			continue
		}
		delete(clear, p.ID)
		if h.runs[p.ID] != p.Version { // it starts, and catches up
			h.runs[p.ID], h.behind[p.ID] = p.Version, true
			l.after(5+l.dice.IntN(60), func() { delete(h.behind, p.ID) })
		}
	}
	for p := range clear {
		delete(h.runs, p)
	}
	h.reconciled = b.Generation
}

// report takes an inventory, which may come late, and after a newer one.
func (l *loop) report(id string) {
	n := l.f.node(id)
	before := n.Seen
	l.f.look(id)
	seen := n.Seen
	n.Seen = before
	l.send(func() { l.f.node(id).Seen = seen })
}

// promised: of the database as many really serve as must stay available, once
// there were as many; of what may not be there twice there is one at most.
func (l *loop) promised() {
	serving, ones := 0, 0
	for id, h := range l.f.hosts {
		for _, p := range l.held[id].Placements {
			if _, runs := h.runs[p.ID]; !runs {
				continue
			}
			if p.Module == "db" && !h.behind[p.ID] {
				serving++
			}
			if p.Module == "one" {
				ones++
			}
		}
	}
	if l.now > 500 && serving < 2 {
		l.t.Fatalf("at %d s %d replicas of db serve: %s", l.now, serving, l.f.said())
	}
	if ones > 1 {
		l.t.Fatalf("at %d s %d of what may be there once run: %s", l.now, ones, l.f.said())
	}
}

// settled holds the fleet at the end against what operators asked for.
func (l *loop) settled() {
	f := l.f
	if f.plan() || len(f.report.Waits)+len(f.report.Refused) > 0 {
		l.t.Errorf("it has not come to rest: %s", f.said())
	}
	for id, want := range map[string]muster.NodeState{"n1": muster.NodeDecommissioned, "n2": muster.NodeInService, "n3": muster.NodeInService, "n4": muster.NodeDecommissioned} {
		if got := f.node(id).State; got != want {
			l.t.Errorf("node %s is %s, want %s", id, got, want)
		}
	}
	if got := f.disk("n3d1").State; got != muster.DiskDecommissioned {
		l.t.Errorf("disk n3d1 is %s", got)
	}
	if db, one := f.where("db"), f.where("one"); len(db) != 3 || len(one) != 1 {
		l.t.Errorf("db is on %v, one on %v", db, one)
	}
	for _, m := range f.target.Modules {
		if (m.Name == "db" || m.Name == "one") && m.Version != 2 {
			l.t.Errorf("%s has version %d", m.Name, m.Version)
		}
	}
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, k int) bool {
	return q[i].at < q[k].at || q[i].at == q[k].at && q[i].number < q[k].number
}
func (q events) Swap(i, k int) { q[i], q[k] = q[k], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	x := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return x
}
