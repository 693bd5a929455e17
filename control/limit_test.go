package control

import (
	"fmt"
	"testing"
	"time"

	"muster.internal"
)

func TestGuard(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	g := newGuard("guesses", 10*time.Second, 3, 1, 100)
	for range 3 {
		if err := g.check(now, "a"); err != nil {
			t.Fatalf("refused too early: %v", err)
		}
		g.failed(now, "a")
	}
	err := g.check(now, "a")
	if !muster.IsCode(err, muster.CodeTooMany) || err.(*muster.Problem).RetryAfter != 10 {
		t.Fatalf("%+v", err)
	}
	if err := g.check(now, "b"); err != nil {
		t.Errorf("another source is refused: %v", err)
	}
	if err := g.check(now.Add(10*time.Second), "a"); err != nil {
		t.Errorf("refused after the wait that was told: %v", err)
	}
}

// TestGuardInAll: a crowd, each failing once.
func TestGuardInAll(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	g := newGuard("guesses", 10*time.Second, 3, 1, 20)
	for i := range 20 {
		g.failed(now, fmt.Sprint("guesser", i))
	}
	if err := g.check(now, "guesser0"); !muster.IsCode(err, muster.CodeTooMany) {
		t.Errorf("a guesser in a crowd of guessers is heard: %v", err)
	}
	if err := g.check(now, "bystander"); err != nil {
		t.Errorf("a bystander is refused: %v", err)
	}
}

func TestGuardIsBounded(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	g := newGuard("guesses", time.Hour, 3, 1, 20)
	for i := range guarded + 500 {
		g.failed(now, fmt.Sprint(i))
	}
	if n := len(g.sources); n > guarded {
		t.Errorf("%d sources remembered", n)
	}
}

// TestGuardKnowsNeighbourhoods: whoever has one address of a /64 has them all.
func TestGuardKnowsNeighbourhoods(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	g := newGuard("guesses", 10*time.Second, 3, 1, 100)
	for i := range 3 {
		g.failed(now, fmt.Sprintf("2001:db8::%d", i+1))
	}
	if err := g.check(now, "2001:db8::ffff"); !muster.IsCode(err, muster.CodeTooMany) {
		t.Errorf("the next address of the same network: %v", err)
	}
	if err := g.check(now, "2001:db8:0:1::1"); err != nil {
		t.Errorf("another network: %v", err)
	}
	if err := g.check(now, "::ffff:192.0.2.1"); err != nil {
		t.Errorf("IPv4 in IPv6: %v", err)
	}
}
