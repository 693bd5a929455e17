package store

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"muster.internal"
)

// What a host sees is kept when it has changed, and an event tells who is up now
// and who no longer. One that was never up is only coming.
func TestHealth(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		member(t, s, boxNo(1), start)
		member(t, s, boxNo(2), start)
		node := must[muster.Registration](t)(s.Registration(ctx, boxNo(1).uuid)).NodeID
		by := muster.Caller{NodeID: node}
		if h := must[muster.NodeHealth](t)(s.NodeHealth(ctx, node)); len(h.Placements) != 0 || !h.SaidAt.IsZero() || len(must[[]muster.NodeHealth](t)(s.Health(ctx))) != 0 {
			t.Fatalf("nothing was said: %+v", h)
		}
		p := func(id string, healthy bool) muster.PlacementHealth {
			h := muster.PlacementHealth{ID: id, Healthy: healthy, CaughtUp: healthy, Since: start}
			if !healthy {
				h.Reason = "nothing listens at port 80"
			}
			return h
		}
		for i, c := range []struct {
			say  []muster.PlacementHealth
			want string
		}{
			{[]muster.PlacementHealth{p("a", false), p("b", true)}, "[placement_healthy [b]]"},
			{[]muster.PlacementHealth{p("a", false), p("b", true)}, "[]"},
			{[]muster.PlacementHealth{p("a", true), p("b", false)}, "[placement_healthy [a] placement_unhealthy [b] [nothing listens at port 80]]"},
			{[]muster.PlacementHealth{p("b", false)}, "[]"},
			{[]muster.PlacementHealth{}, "[]"},
		} {
			last := must[int64](t)(s.Head(ctx))
			if err := s.KeepHealth(ctx, start.Add(time.Duration(i)*time.Minute), by, c.say); err != nil {
				t.Fatal(err)
			}
			events := []string{}
			for _, e := range must[[]muster.AuditEntry](t)(s.Audit(ctx, muster.AuditFilter{After: last, Subject: nodeSubject(node)})) {
				var d struct{ Placements, Reasons []string }
				if err := json.Unmarshal(e.Detail, &d); err != nil {
					t.Fatal(err)
				}
				events = append(events, e.Action, fmt.Sprint(d.Placements))
				if d.Reasons != nil {
					events = append(events, fmt.Sprint(d.Reasons))
				}
			}
			if got := fmt.Sprint(events); got != c.want {
				t.Errorf("time %d: %s, not %s", i+1, got, c.want)
			}
			h := must[muster.NodeHealth](t)(s.NodeHealth(ctx, node))
			all := must[[]muster.NodeHealth](t)(s.Health(ctx))
			want := start.Add(time.Duration(i) * time.Minute)
			if i == 1 {
				want = start // it was said before
			}
			if fmt.Sprint(h.Placements) != fmt.Sprint(c.say) || !h.SaidAt.Equal(want) || fmt.Sprint(all) != fmt.Sprint([]muster.NodeHealth{h}) {
				t.Errorf("time %d: %+v, and of all %+v", i+1, h, all)
			}
		}
	})
}
