package control

import (
	"math"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"muster.internal"
)

// A guard counts failures per source and in all, and refuses a source that
// fails too often before its next guess is looked at. When failures in all are
// too many, every source that has failed lately is refused, and nobody else:
// a crowd of guessers must not lock out those who know.
type guard struct {
	what  string
	every time.Duration // a source earns back one failure
	burst int
	all   *rate.Limiter

	mu      sync.Mutex
	sources map[string]*rate.Limiter
}

// guarded is how many sources a guard remembers.
const guarded = 10_000

func newGuard(what string, every time.Duration, burst int, all rate.Limit, allBurst int) *guard {
	return &guard{what: what, every: every, burst: burst, all: rate.NewLimiter(all, allBurst), sources: map[string]*rate.Limiter{}}
}

// neighbourhood is what one guesser has at hand: an address, or a /64 of IPv6.
func neighbourhood(source string) string {
	if a, err := netip.ParseAddr(source); err == nil && a.Is6() && !a.Is4In6() {
		p, _ := a.WithZone("").Prefix(64) // 64 is a length that IPv6 has
		return p.String()
	}
	return source
}

// check is nil when the source may try.
func (g *guard) check(now time.Time, source string) error {
	source = neighbourhood(source)
	g.mu.Lock()
	defer g.mu.Unlock()
	l, known := g.sources[source]
	if !known {
		return nil
	}
	if n := l.TokensAt(now); n < 1 {
		return g.refusal((1 - n) * g.every.Seconds())
	}
	if n := g.all.TokensAt(now); n < 1 {
		return g.refusal((1 - n) / float64(g.all.Limit()))
	}
	return nil
}

func (g *guard) refusal(seconds float64) error {
	p := muster.Problemf(muster.CodeTooMany, "too many %s: wait before the next one", g.what)
	p.RetryAfter = int(math.Ceil(seconds))
	return p
}

// failed counts a failure.
func (g *guard) failed(now time.Time, source string) {
	source = neighbourhood(source)
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.sources[source]
	if l == nil {
		if len(g.sources) >= guarded {
			g.evict(now)
		}
		l = rate.NewLimiter(rate.Every(g.every), g.burst)
		g.sources[source] = l
	}
	l.AllowN(now, 1)
	g.all.AllowN(now, 1)
}

// evict forgets who has behaved long enough, else anybody: the count in all
// stands.
func (g *guard) evict(now time.Time) {
	for s, l := range g.sources {
		if l.TokensAt(now) >= float64(g.burst) {
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
