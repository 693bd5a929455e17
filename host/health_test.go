package host

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"muster.internal/resource"
)

// What is found, look by look, and what is said of it then: "+" is up, "^" is up
// and has caught up, a digit a reason why it is not; "." says nothing.
func TestWatch(t *testing.T) {
	for _, c := range []struct{ found, said string }{
		{"^", "^"},
		{"^^^^^", "^...."},
		{"111^1^11^11^", "1..^........"}, // two in a row are no outage
		{"^111", "^..1"},
		{"^121111", "^..1..."}, // the last of three counts
		{"^122221", "^..2..."}, // and is held on to
		{"1222", "1..2"},       // also of a reason
		{"1212121", "1......"}, // that stays
		{"1+^+++^", "1+^..+^"}, // behind is said after three, caught up at once
		{"^+1+1+1", "^..+..."}, // whatever is wrong counts
		{"^11^11^111", "^........1"},
	} {
		w := &Watch{}
		w.Applied([]resource.Check{{ID: "p"}}, Moment{})
		said := ""
		for i, f := range c.found {
			p := Probe{Healthy: f == '+' || f == '^', CaughtUp: f == '^', Reason: strings.Trim(string(f), "+^")}
			news := w.Saw([]Probe{p}, time.Unix(int64(i), 0))
			word := "."
			if news {
				all, _ := w.Health()
				h := all[0]
				switch {
				case h.CaughtUp:
					word = "^"
				case h.Healthy:
					word = "+"
				default:
					word = h.Reason
				}
				if h.Since.Unix() != int64(i) {
					t.Errorf("%s: at %d it is so since %d", c.found, i, h.Since.Unix())
				}
			}
			said += word
		}
		if said != c.said {
			t.Errorf("found %s: said %s, not %s", c.found, said, c.said)
		}
	}
}

// What is checked no longer is forgotten, what goes on is not begun anew, and
// without checks nobody wakes.
func TestWatchOfAnotherDeclaration(t *testing.T) {
	w := &Watch{}
	if _, ok := w.Next(Moment{}, 0.5); ok {
		t.Error("it looks at nothing")
	}
	up := Probe{Healthy: true, CaughtUp: true}
	w.Applied([]resource.Check{{ID: "b"}, {ID: "a"}}, Moment{})
	w.Saw([]Probe{up, {Reason: "x"}}, time.Unix(1, 0))
	if got := fmt.Sprint(w.Health()); got != "[{a false false x 1970-01-01 00:00:01 +0000 UTC} {b true true  1970-01-01 00:00:01 +0000 UTC}] true" {
		t.Error(got)
	}
	w.Applied([]resource.Check{{ID: "c"}, {ID: "b"}}, Moment{})
	if got := fmt.Sprint(w.Health()); got != "[{b true true  1970-01-01 00:00:01 +0000 UTC}] false" {
		t.Error(got)
	}
	if !w.Saw([]Probe{up}, time.Unix(2, 0)) {
		t.Error("the new one is no news")
	}
	if all, ok := w.Health(); !ok || len(all) != 2 || all[0].Since.Unix() != 1 || all[1].Since.Unix() != 2 {
		t.Errorf("%v %v", all, ok)
	}
	w.Applied(nil, Moment{})
	if all, ok := w.Health(); !ok || all == nil || len(all) != 0 {
		t.Errorf("%v %v", all, ok)
	}
}

// It is looked often after an apply, until all is up or the time for that is
// over; never without spread.
func TestWhenToLookAgain(t *testing.T) {
	w := &Watch{}
	w.Applied([]resource.Check{{ID: "a"}}, Moment{Up: time.Hour})
	next := func(after time.Duration, dice float64) time.Duration {
		d, ok := w.Next(Moment{Up: time.Hour + after}, dice)
		if !ok {
			t.Fatal("there is nothing to look at")
		}
		return d
	}
	if a, b := next(0, 0), next(0, 1); a != 900*time.Millisecond || b != 1100*time.Millisecond {
		t.Errorf("at first: %v to %v", a, b)
	}
	w.Saw([]Probe{{}}, time.Unix(1, 0))
	if d := next(29*time.Second, 0.5); d != checkSoon {
		t.Errorf("while it comes up: %v", d)
	}
	if d := next(30*time.Second, 0.5); d != checkEvery {
		t.Errorf("while it does not: %v", d)
	}
	w.Saw([]Probe{{Healthy: true, CaughtUp: true}}, time.Unix(1, 0))
	if a, b := next(0, 0), next(0, 1); a != 9*time.Second || b != 11*time.Second {
		t.Errorf("when it is up: %v to %v", a, b)
	}
}
