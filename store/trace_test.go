package store

import (
	"fmt"
	"testing"
	"time"

	"muster.internal"
)

// TestTraces: the latest report of each booter is kept for each card, outside
// of audit and feed, and what is old or too much goes.
func TestTraces(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		head := must[int64](t)(s.Head(ctx))
		at := func(sec int) time.Time { return start.Add(time.Duration(sec) * time.Second) }
		keep := func(booter, mac string, sec int, asked string) {
			t.Helper()
			if err := s.KeepTraces(ctx, at(100), ada, booter, []muster.BootTrace{{MAC: mac, At: at(sec), Steps: []muster.BootStep{{Asked: asked, Packet: []byte{1, 2}}}}}); err != nil {
				t.Fatal(err)
			}
		}
		look := func(mac string) (out []string) {
			t.Helper()
			for _, v := range must[[]muster.BootTrace](t)(s.Traces(ctx, mac)) {
				out = append(out, fmt.Sprint(v.Booter, " ", v.MAC, " ", v.Steps[0].Asked, " ", v.At.Sub(start)))
			}
			return out
		}
		keep("b1", "52-54-00-77-00-01", 1, "first")
		keep("b1", "52:54:00:77:00:01", 3, "third")
		keep("b1", "52:54:00:77:00:01", 2, "overtaken")
		keep("b2", "52:54:00:77:00:01", 2, "other")
		keep("b2", "52:54:00:77:00:02", 900, "from the future")
		if got := fmt.Sprint(look("5254.0077.0001"), look("52:54:00:77:00:02")); got !=
			"[b1 52:54:00:77:00:01 third 3s b2 52:54:00:77:00:01 other 2s] [b2 52:54:00:77:00:02 from the future 1m40s]" {
			t.Error(got)
		}
		if err := s.KeepTraces(ctx, at(100), ada, "b1", []muster.BootTrace{{MAC: "nonsense"}}); !muster.IsCode(err, muster.CodeInvalid) {
			t.Errorf("a trace of no card: %v", err)
		}
		if now := must[int64](t)(s.Head(ctx)); now != head {
			t.Errorf("traces moved the feed from %d to %d", head, now)
		}
		for i := range 20 {
			keep("b3", fmt.Sprintf("52:54:00:88:00:%02x", i), 10+i, "noise")
		}
		if err := s.expireTraces(ctx, at(100), 10); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(len(look("52:54:00:88:00:13")), len(look("52:54:00:88:00:00")), len(look("52:54:00:77:00:01")), len(look("52:54:00:77:00:02"))); got != "1 0 0 1" {
			t.Errorf("of 23, 10 should stay, the latest: %s", got)
		}
		if err := s.ExpireTraces(ctx, at(100).Add(traceKeep+time.Second)); err != nil {
			t.Fatal(err)
		}
		if n := len(look("52:54:00:77:00:02")); n != 0 {
			t.Error("the old stay")
		}
	})
}
