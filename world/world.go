// Package world is a whole fleet in one goroutine: imaginary machines that live
// by the real host, the real control plane on a store in memory, and a network
// between them that loses, doubles, delays and reorders. One heap of times drives
// all of it, and one seed decides what is left to chance: the same scenario comes
// to the same end.
//
// After each event what must always hold is looked at, and once all faults have
// ceased everything must come to what operators asked for. A scenario is a text
// (see Parse); one that fails is made smaller (see Shrink) and printed to be kept.
//
// It must never be kinder than the real thing, nor decide anything that the real
// thing decides. A machine at rest costs no event: its poll stays parked until the
// change feed names its node, where a real one is answered "nothing new" every
// minute and asks again; and the reconcile of ten minutes is left out while
// nothing on the machine has changed since one that found everything as declared,
// for it would read, compare and report the same.
package world

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"muster.internal"
)

// start is when every world begins.
var start = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// A World is a fleet in time.
type World struct {
	ctx     context.Context
	dice    *rand.Rand
	now     time.Time
	queue   events
	count   int
	dir     string
	network network
	plane   plane
	all     []*machine // in the order in which they came
	names   map[string]*machine
	nodes   map[string]*machine // by id; of one that came back, each of them
	books   books
	load    Load
	said    []string
	wrong   []string
	kind    string // of the first of them
	end     map[string]int
}

// A Load is what a world had to do.
type Load struct {
	Events, Calls, Plans, Blueprints int
	Busiest                          int // calls in one second
	Return                           int // and in one second of the half hour after power came back everywhere
	second                           int64
	inSecond                         int
	returned                         int64 // until when that half hour is
}

// A Result is how a world went.
type Result struct {
	Transcript []string
	Wrong      []string // what must not be, or did not come to be
	Load       Load
	kind       string         // of what went wrong first
	end        map[string]int // how many nodes are in each state, and run each version of each module
}

// Run plays a scenario to its end.
func Run(ctx context.Context, s Scenario) (r Result, err error) {
	dir, err := os.MkdirTemp("", "muster-world")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	w := &World{ctx: ctx, dir: dir, now: start, dice: rand.New(rand.NewPCG(s.Seed, 7)), names: map[string]*machine{}, nodes: map[string]*machine{}, books: newBooks()}
	if err := w.plane.first(w, s.Seed); err != nil {
		return r, err
	}
	defer w.close()
	for _, step := range s.Steps {
		w.at(start.Add(step.At), func() { w.play(step) })
	}
	w.run(start.Add(s.Until))
	if len(w.wrong) == 0 {
		w.settled()
	}
	if len(w.wrong) == 0 {
		w.audited()
	}
	return Result{w.said, w.wrong, w.load, w.kind, w.end}, nil
}

func (w *World) close() {
	for _, m := range w.all {
		m.powerOff()
	}
	w.plane.end()
}

// run has happen what is due until a time, or until something is wrong.
func (w *World) run(until time.Time) {
	for len(w.wrong) == 0 && w.ctx.Err() == nil && len(w.queue) > 0 && !w.queue[0].at.After(until) {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		w.load.Events++
		e.do()
		w.plane.follow()
	}
	if err := w.ctx.Err(); err != nil {
		w.fail("it took too long: %v", err)
	} else if len(w.wrong) == 0 {
		w.now = until
	}
}

func (w *World) at(t time.Time, do func()) {
	w.count++
	heap.Push(&w.queue, event{t, w.count, do})
}

func (w *World) after(d time.Duration, do func()) { w.at(w.now.Add(d), do) }

// between is a time from least to most.
func (w *World) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.dice.Int64N(int64(most-least)+1))
}

func (w *World) chance(p float64) bool { return p > 0 && w.dice.Float64() < p }

// say adds a line to the transcript.
func (w *World) say(format string, args ...any) {
	w.said = append(w.said, clock(w.now.Sub(start))+" "+fmt.Sprintf(format, args...))
}

// fail says what must not be.
func (w *World) fail(format string, args ...any) {
	text := w.named(fmt.Sprintf(format, args...))
	if w.kind == "" {
		w.kind = format
	}
	if !slices.Contains(w.wrong, text) {
		w.wrong = append(w.wrong, text)
		w.say("WRONG: %s", text)
	}
}

// must is for what cannot fail unless the world itself is broken.
func (w *World) must(err error) {
	if err != nil {
		w.fail("the world is broken: %v", err)
	}
}

// clock spells a time since the beginning.
func clock(d time.Duration) string {
	days := d / (24 * time.Hour)
	d -= days * 24 * time.Hour
	return fmt.Sprintf("%dd %02d:%02d:%02d", days, int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60)
}

// named puts names in the place of ids.
func (w *World) named(text string) string {
	for id, m := range w.nodes {
		text = strings.ReplaceAll(text, id, m.name)
	}
	for _, m := range w.all {
		text = strings.ReplaceAll(text, m.node.Facts.UUID, m.name)
	}
	return text
}

// operator is who does what a scenario says.
var operator = muster.Caller{Operator: "ada", Role: muster.Admin, Source: "192.0.2.1"}

type event struct {
	at time.Time
	n  int
	do func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, k int) bool {
	return q[i].at.Before(q[k].at) || q[i].at.Equal(q[k].at) && q[i].n < q[k].n
}
func (q events) Swap(i, k int) { q[i], q[k] = q[k], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	x := (*q)[len(*q)-1]
	(*q)[len(*q)-1] = event{}
	*q = (*q)[:len(*q)-1]
	return x
}

// String is the transcript as a scenario file has it.
func (r Result) String() string {
	b := new(strings.Builder)
	for _, line := range r.Transcript {
		fmt.Fprintln(b, "   ", line)
	}
	return b.String()
}
