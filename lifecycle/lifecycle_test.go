package lifecycle

import (
	"cmp"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(800) // the checker makes many short-lived states
	os.Exit(m.Run())
}

// TestPromises explores every state that the rows can lead to and wants every
// promise kept. A complaint comes with the shortest story that leads to it.
func TestPromises(t *testing.T) {
	t.Parallel()
	start := time.Now()
	c := check(table, worlds(), false)
	n := 0
	promise := func(name string) {
		n++
		t.Run(name, func(t *testing.T) {
			for _, k := range c.complaints {
				if k.what == name {
					t.Error(k.story)
				}
			}
		})
		c.complaints = slices.DeleteFunc(c.complaints, func(k complaint) bool { return k.what == name })
	}
	for _, p := range promised.never {
		promise(p.name)
	}
	for _, p := range slices.Concat(promised.step, promised.possible) {
		promise(p.name)
	}
	for _, p := range promised.always {
		promise(p.name)
	}
	t.Run("nothing wedges, no row is deaf, dead or in another's way", func(t *testing.T) {
		for _, k := range c.complaints {
			t.Errorf("%s: %s", k.what, k.story)
		}
	})
	for _, s := range c.sizes {
		t.Log(s)
	}
	t.Logf("%d states, %d steps; %d promises, what each of %d events leads to, and how %d states end; %v",
		c.states, c.steps, n, len(after), len(mustEnd), time.Since(start).Round(time.Millisecond))
}

// TestPromisesAreEnough breaks the rules in every small way and wants the
// checker to notice each time.
func TestPromisesAreEnough(t *testing.T) {
	t.Parallel()
	for _, sc := range []scope{perMachine, perRecord, perDisk} {
		if c := check(table, smallWorlds(sc), false); len(c.complaints) > 0 {
			t.Fatal("the rules themselves break a promise in a small world:", c.complaints)
		}
	}
	start := time.Now()
	type result struct {
		mutants, whole int
		unnoticed      []string
	}
	var lock sync.Mutex
	results := map[string]*result{}
	work := make(chan mutant)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for m := range work {
				noticed, whole := notice(m)
				lock.Lock()
				r := results[m.kind]
				if r == nil {
					r = &result{}
					results[m.kind] = r
				}
				r.mutants++
				if whole {
					r.whole++
				}
				if !noticed {
					r.unnoticed = append(r.unnoticed, m.what)
				}
				lock.Unlock()
			}
		})
	}
	mutants(func(m mutant) { work <- m })
	close(work)
	wg.Wait()
	var all result
	for _, kind := range slices.SortedFunc(maps.Keys(results), cmp.Compare) {
		r := results[kind]
		t.Run(kind, func(t *testing.T) {
			for _, what := range r.unnoticed {
				t.Error("nobody noticed:", what)
			}
			t.Logf("%d mutants, %d survived", r.mutants, len(r.unnoticed))
		})
		all.mutants, all.whole, all.unnoticed = all.mutants+r.mutants, all.whole+r.whole, append(all.unnoticed, r.unnoticed...)
	}
	t.Logf("%d mutants, %d survived; %d were noticed only by the whole check; %v",
		all.mutants, len(all.unnoticed), all.whole, time.Since(start).Round(time.Millisecond))
}

// notice tells whether the checker complains of a mutant, and whether it took
// the whole check.
func notice(m mutant) (noticed, whole bool) {
	r := compile(m.events, m.rows)
	for _, w := range smallWorlds(m.scope) {
		if len(check(r, []world{w}, true).complaints) > 0 {
			return true, false
		}
	}
	return len(check(r, worlds(), false).complaints) > 0, true
}
