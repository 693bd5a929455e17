package control

import (
	"net/netip"
	"sync"
	"time"

	"muster.internal"
)

// A pace is how much failure is borne: burst at once, and one more each time
// every has passed.
type pace struct {
	every time.Duration
	burst int
}

// A debt is when all failures so far will be forgiven. Each adds one every to
// it (the generic cell rate algorithm, whose arithmetic is exact).
type debt = time.Time

// wait is how long it takes until one more failure is borne.
func (p pace) wait(d debt, now time.Time) time.Duration {
	owed := max(0, d.Sub(now))
	return max(0, owed+p.every-time.Duration(p.burst)*p.every)
}

// add books a failure, but never more than the whole burst: whoever is refused
// is not refused for longer because others came at the same moment.
func (p pace) add(d debt, now time.Time) debt {
	owed := max(0, d.Sub(now))
	return now.Add(min(owed+p.every, time.Duration(p.burst)*p.every))
}

// A guard counts failures per source and in all, and refuses a source that
// fails too often: what can be guessed (enter, check) before it is looked at,
// secrets that cannot (fail) after it turned out to be wrong. An IPv6 source is
// its /64, which one guesser has whole.
//
// When failures in all are too many, a soft guard refuses every source that has
// failed lately, and nobody else: a crowd of guessers must not lock out those
// who know. A hard one, for secrets that are short enough to guess, refuses
// every source, but for those that were right before.
//
// It is in memory: each control plane process bears as much by itself, and a
// restart forgets. It remembers guarded sources; beyond them the count in all
// stands.
type guard struct {
	what      string
	each, all pace
	hard      bool

	mu      sync.Mutex
	sum     debt
	sources map[string]debt
}

// guarded is how many sources a guard remembers.
const guarded = 10_000

func newGuard(what string, each, all pace) *guard {
	return &guard{what: what, each: each, all: all, sources: map[string]debt{}}
}

// strict makes a guard hard.
func (g *guard) strict() *guard { g.hard = true; return g }

// neighbourhood is what one guesser has at hand: an address, or a /64 of IPv6.
func neighbourhood(source string) string {
	a, err := netip.ParseAddr(source)
	if err != nil {
		return source
	}
	if a = a.Unmap().WithZone(""); a.Is4() {
		return a.String()
	}
	p, _ := a.Prefix(64) // 64 is a length that IPv6 has
	return p.String()
}

// check is nil when the source may try. Those that try at the same moment may
// fail together: where that matters there is enter.
func (g *guard) check(now time.Time, source string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refusal(now, neighbourhood(source), false)
}

// failed counts a failure.
func (g *guard) failed(now time.Time, source string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.book(now, neighbourhood(source))
}

// fail counts a failure that was found out before the source was judged, and
// says what to answer: why it failed, or, to a source that fails too often, how
// long to wait.
func (g *guard) fail(now time.Time, source string, why error) error {
	source = neighbourhood(source)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.refusal(now, source, false); err != nil {
		return err
	}
	g.book(now, source)
	return why
}

// enter counts an attempt as a failure before it is made, so that no number of
// attempts at once gets past the bound. The caller calls forgive when it did
// not fail. Whoever was right before (trusted) is not held to what all may do.
func (g *guard) enter(now time.Time, source string, trusted bool) (forgive func(), err error) {
	source = neighbourhood(source)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.refusal(now, source, trusted); err != nil {
		return nil, err
	}
	g.book(now, source)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if d, ok := g.sources[source]; ok {
			g.sources[source] = d.Add(-g.each.every)
		}
		g.sum = g.sum.Add(-g.all.every)
	}, nil
}

// refusal tells how long to wait, in whole seconds: who comes back then is
// heard, unless others failed in the meantime.
func (g *guard) refusal(now time.Time, source string, trusted bool) error {
	own := g.sources[source]
	wait := g.each.wait(own, now)
	if g.hard && !trusted || !g.hard && own.After(now) {
		wait = max(wait, g.all.wait(g.sum, now))
	}
	if wait == 0 {
		return nil
	}
	p := muster.Problemf(muster.CodeTooMany, "too many %s: wait before the next one", g.what)
	p.RetryAfter = int((wait + time.Second - 1) / time.Second)
	return p
}

func (g *guard) book(now time.Time, source string) {
	if _, known := g.sources[source]; !known && len(g.sources) >= guarded {
		g.evict(now)
	}
	g.sources[source] = g.each.add(g.sources[source], now)
	g.sum = g.all.add(g.sum, now)
}

// evict forgets who is forgiven, else anybody.
func (g *guard) evict(now time.Time) {
	for s, d := range g.sources {
		if !d.After(now) {
			delete(g.sources, s)
		}
	}
	for s := range g.sources {
		if len(g.sources) < guarded*3/4 {
			return
		}
		delete(g.sources, s)
	}
}

// A welcome remembers from where operators came in, for as long as the process
// lives: whoever guesses their passwords elsewhere cannot lock them out here.
type welcome struct {
	mu    sync.Mutex
	known map[[2]string]bool
}

func (w *welcome) is(name, source string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known[[2]string{name, neighbourhood(source)}]
}

func (w *welcome) add(name, source string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known == nil || len(w.known) >= guarded {
		w.known = map[[2]string]bool{}
	}
	w.known[[2]string{name, neighbourhood(source)}] = true
}
