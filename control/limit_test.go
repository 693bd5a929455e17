package control

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster.internal"
)

var limitNow = time.Unix(1_800_000_000, 0)

func retryAfter(t *testing.T, err error) int {
	t.Helper()
	if !muster.IsCode(err, muster.CodeTooMany) {
		t.Fatalf("not refused: %v", err)
	}
	return err.(*muster.Problem).RetryAfter
}

// TestGuard: what is told in Retry-After is what comes true, to the second.
func TestGuard(t *testing.T) {
	now := limitNow
	g := newGuard("guesses", pace{10 * time.Second, 3}, pace{time.Second, 100})
	for range 3 {
		if err := g.check(now, "a"); err != nil {
			t.Fatalf("refused too early: %v", err)
		}
		g.failed(now, "a")
	}
	for passed, want := range map[time.Duration]int{0: 10, time.Nanosecond: 10, 3 * time.Second: 7, 9500 * time.Millisecond: 1, 10*time.Second - 1: 1} {
		if got := retryAfter(t, g.check(now.Add(passed), "a")); got != want {
			t.Errorf("after %v: wait %d s, want %d", passed, got, want)
		}
	}
	if err := g.check(now, "b"); err != nil {
		t.Errorf("another source is refused: %v", err)
	}
	now = now.Add(10 * time.Second)
	if err := g.check(now, "a"); err != nil {
		t.Errorf("refused after the wait that was told: %v", err)
	}
	g.failed(now, "a")
	if got := retryAfter(t, g.check(now, "a")); got != 10 {
		t.Errorf("one failure later: %d", got)
	}
	for range 1000 { // that were under way: they make it no longer
		g.failed(now, "a")
	}
	if got := retryAfter(t, g.check(now, "a")); got != 10 {
		t.Errorf("a thousand failures later: %d", got)
	}
	if err := g.check(now.Add(30*time.Second), "a"); err != nil {
		t.Errorf("not forgiven: %v", err)
	}
}

// TestGuardInAll: a crowd, each failing once.
func TestGuardInAll(t *testing.T) {
	now := limitNow
	g := newGuard("guesses", pace{10 * time.Second, 3}, pace{time.Second, 20})
	for i := range 20 {
		g.failed(now, fmt.Sprint("guesser", i))
	}
	if got := retryAfter(t, g.check(now, "guesser0")); got != 1 {
		t.Errorf("a guesser in a crowd waits %d s", got)
	}
	if err := g.check(now, "bystander"); err != nil {
		t.Errorf("a bystander is refused: %v", err)
	}
	if err := g.check(now.Add(time.Second), "guesser0"); err != nil {
		t.Errorf("refused after the wait that was told: %v", err)
	}
}

// TestHardGuard: for codes that can be guessed, a crowd of fresh addresses is
// bounded, too; whoever was right before is not locked out by it.
func TestHardGuard(t *testing.T) {
	now := limitNow
	g := newGuard("guesses", pace{30 * time.Second, 10}, pace{time.Second, 50}).strict()
	tried := 0
	for s := range 3600 {
		for i := range 20 { // 72000 addresses, one guess each
			if _, err := g.enter(now.Add(time.Duration(s)*time.Second), fmt.Sprintf("2001:db8:%x:%x::1", s, i), false); err == nil {
				tried++
			}
		}
	}
	if want := 50 + 3599; tried != want {
		t.Errorf("%d guesses in an hour, want %d", tried, want)
	}
	now = now.Add(3599 * time.Second)
	if got := retryAfter(t, g.check(now, "192.0.2.1")); got != 1 {
		t.Errorf("wait %d s", got)
	}
	for range 10 {
		if _, err := g.enter(now, "192.0.2.1", true); err != nil {
			t.Fatalf("who was right before is refused: %v", err)
		}
	}
	if got := retryAfter(t, func() error { _, err := g.enter(now, "192.0.2.1", true); return err }()); got != 30 {
		t.Errorf("trusted, and failing: wait %d s", got)
	}
	t.Logf("%d guesses in an hour from 72000 addresses", tried)
}

// TestGuardAtOnce: however many come at the same moment, the bound holds; and
// those that were right have cost nothing.
func TestGuardAtOnce(t *testing.T) {
	g := newGuard("guesses", pace{30 * time.Second, 10}, pace{time.Second, 50})
	var let atomic.Int64
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			if _, err := g.enter(limitNow, "a", false); err == nil {
				let.Add(1)
			}
		})
	}
	wg.Wait()
	if let.Load() != 10 {
		t.Errorf("%d of 200 at once were let try, want 10", let.Load())
	}
	for range 200 {
		forgive, err := g.enter(limitNow, "right", false)
		if err != nil {
			t.Fatal(err)
		}
		forgive()
	}
}

func TestGuardIsBounded(t *testing.T) {
	g := newGuard("guesses", pace{time.Hour, 3}, pace{time.Second, 20})
	for i := range guarded + 500 {
		g.failed(limitNow, fmt.Sprint(i))
	}
	if n := len(g.sources); n > guarded {
		t.Errorf("%d sources remembered", n)
	}
}

// TestGuardKnowsNeighbourhoods: whoever has one address of a /64 has them all.
func TestGuardKnowsNeighbourhoods(t *testing.T) {
	g := newGuard("guesses", pace{10 * time.Second, 3}, pace{time.Second, 100})
	for i := range 3 {
		g.failed(limitNow, fmt.Sprintf("2001:db8::%d", i+1))
	}
	retryAfter(t, g.check(limitNow, "2001:db8::ffff"))
	if err := g.check(limitNow, "2001:db8:0:1::1"); err != nil {
		t.Errorf("another network: %v", err)
	}
	for range 3 {
		g.failed(limitNow, "::ffff:192.0.2.1")
	}
	retryAfter(t, g.check(limitNow, "192.0.2.1")) // one address, in two spellings
	if err := g.check(limitNow, "192.0.2.2"); err != nil {
		t.Errorf("another address: %v", err)
	}
}
