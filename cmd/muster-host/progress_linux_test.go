package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"muster.internal/bus"
	"muster.internal/setup"
)

// TestTeller: steps are always told, other lines within bounds, the proof never,
// and a network that takes nothing holds nobody up.
func TestTeller(t *testing.T) {
	order := bus.Message{Script: setup.Script, Env: map[string]string{setup.EnvEpoch: "3"}}
	synctest.Test(t, func(t *testing.T) {
		var got []setup.Progress
		tl := tell(order, func(p setup.Progress) error { got = append(got, p); return nil })
		out := tl.writer()
		fmt.Fprintf(out, "muster-host: %s\nhal", setup.StepLine(8, 11, "build", "building the pool"))
		fmt.Fprintf(out, "f a line\n%s\nno end", setup.Sentinel(3, setup.Proof([]byte("k"), "u", 3)))
		for range 5 {
			fmt.Fprint(out, strings.Repeat("x\n", 100))
			synctest.Wait()
		}
		fmt.Fprintf(out, "\n%s\n", setup.StepLine(9, 11, "stamp", "stamping"))
		tl.end()
		if len(got) != tellBurst+2 || got[0] != (setup.Progress{Epoch: 3, Step: "build", Percent: 63, Text: "building the pool"}) || got[1].Text != "half a line" || got[1].Percent != 63 {
			t.Fatalf("%d reports, %+v", len(got), got[:2])
		}
		if end := got[len(got)-2:]; end[0].Text != "(302 lines left out)" || end[1].Step != "stamp" {
			t.Errorf("at the end %+v", end)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		tl := tell(order, func(setup.Progress) error { <-stuck; return nil })
		fmt.Fprint(tl.writer(), strings.Repeat("x\n", 5000))
		tl.end()
		close(stuck)
	})
	if tell(bus.Message{Script: setup.SurveyScript, Env: order.Env}, func(setup.Progress) error { return nil }) != nil {
		t.Error("a survey is told of")
	}
}
