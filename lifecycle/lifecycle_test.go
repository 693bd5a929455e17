package lifecycle

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestPromises explores every state that the rows can lead to and wants every
// promise kept. A complaint comes with the shortest story that leads to it.
func TestPromises(t *testing.T) {
	start := time.Now()
	c := check(table, worlds(), false)
	t.Logf("%d states, %d steps, %d promises, %v", c.states, c.steps, c.promises(), time.Since(start))
	for _, p := range c.complaints {
		t.Error(p)
	}
}

// TestPromisesAreEnough breaks the rules in every small way and wants the
// checker to notice each time.
func TestPromisesAreEnough(t *testing.T) {
	for _, sc := range []scope{perMachine, perRecord, perDisk} {
		if c := check(table, smallWorlds(sc), false); len(c.complaints) > 0 {
			t.Fatal("the rules themselves break a promise in a small world:", c.complaints)
		}
	}
	start := time.Now()
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	work := make(chan mutant)
	var all, whole atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for m := range work {
				all.Add(1)
				complaint, hard := notice(m)
				if complaint == "" {
					t.Errorf("nobody noticed: %s", m.what)
				}
				if hard {
					whole.Add(1)
				}
			}
		})
	}
	mutants(func(m mutant) { work <- m })
	close(work)
	wg.Wait()
	t.Logf("%d mutants, %d of them noticed only by the whole check, %v", all.Load(), whole.Load(), time.Since(start))
}

// notice returns a complaint about a mutant, and whether only the whole check
// could make it.
func notice(m mutant) (complaint string, whole bool) {
	r := compile(m.events, m.rows)
	for _, w := range smallWorlds(m.scope) {
		if c := check(r, []world{w}, true); len(c.complaints) > 0 {
			return c.complaints[0], false
		}
	}
	if c := check(r, worlds(), false); len(c.complaints) > 0 {
		return c.complaints[0], true
	}
	return "", true
}

func (c *checker) promises() int {
	return len(promised.never) + len(promised.step) + len(promised.possible) + len(promised.always) + len(after) + len(mustEnd)
}
