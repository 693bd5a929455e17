package blueprint_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster.internal"
	"muster.internal/blueprint"
)

// shares is what each node is told, for people.
func shares(b *muster.Blueprint) (all []string) {
	for _, n := range b.Nodes {
		line := fmt.Sprintf("%s %s %d:", n.ID, n.State, n.Generation)
		for _, p := range n.Placements {
			line += fmt.Sprintf(" %s v%d %s", p.Name, p.Version, p.State)
			switch {
			case p.Held:
				line += " held"
			case p.Declared():
				line += fmt.Sprintf(" since %d", p.Since)
			default:
				line += fmt.Sprintf(" as of %d", p.AsOf)
			}
			line += ","
		}
		all = append(all, strings.TrimSuffix(line, ","))
	}
	return all
}

// TestRevive: what an older blueprint says, in generations above, as far as it
// can be.
func TestRevive(t *testing.T) {
	at := time.Date(2026, 5, 5, 10, 0, 0, 0, time.UTC)
	drop := func(n *muster.BlueprintNode, names ...string) {
		n.Placements = slices.DeleteFunc(n.Placements, func(p muster.BlueprintPlacement) bool { return slices.Contains(names, p.Name) })
	}
	for _, c := range []struct {
		name   string
		since  func(b *muster.Blueprint) // what happened since
		floors map[string]int64
		nodes  []string
		said   []string
	}{
		{"nothing happened", func(*muster.Blueprint) {}, nil, []string{
			"n1 in_service 3: time-n1 v1 placed since 1, names-n1 v1 placed since 1, db-1 v2 placed since 1, store-d9 v1 placed since 1",
			"n2 in_service 5: time-n2 v1 placed since 1, names-n2 v1 placed since 1, db-2 v2 placed since 1"}, nil},
		{"one has left and is gone, another came", func(b *muster.Blueprint) {
			n := &b.Nodes[0]
			drop(n, "names-n1")
			n.Generation = 6
			extra := n.Placements[2]
			extra.ID, extra.Name, extra.Disk = "p8", "new-n1", "d7"
			n.Placements = append(n.Placements, extra)
		}, map[string]int64{"n1": 8}, []string{
			"n1 in_service 9: time-n1 v1 placed since 1, names-n1 v1 reserved since 9, db-1 v2 placed since 1, store-d9 v1 placed since 1, new-n1 v1 removed as of 9",
			"n2 in_service 5: time-n2 v1 placed since 1, names-n2 v1 placed since 1, db-2 v2 placed since 1"}, []string{
			"names-n1 on one is as it was: version 1", "new-n1 came to one since, and leaves"}},
		{"it was removed and came again with another id", func(b *muster.Blueprint) {
			n := &b.Nodes[0]
			n.Generation, n.Placements[1].ID, n.Placements[1].Name = 6, "p8", "names-n1b"
		}, nil, []string{
			"n1 in_service 7: time-n1 v1 placed since 1, names-n1b v1 placed since 1, db-1 v2 placed since 1, store-d9 v1 placed since 1",
			"n2 in_service 5: time-n2 v1 placed since 1, names-n2 v1 placed since 1, db-2 v2 placed since 1"}, nil},
		{"it is being removed, and what is held goes", func(b *muster.Blueprint) {
			n := &b.Nodes[1]
			n.Generation, n.Placements[1].State, n.Placements[1].AsOf = 6, muster.PlacementRemoved, 6
			n.Placements = append(n.Placements, muster.BlueprintPlacement{Placement: muster.Placement{ID: "p8", Module: "store", Kind: muster.PlacementPerDisk, State: muster.PlacementReserved},
				Name: "store-d8", Version: 1, Disk: "d8", Held: true})
		}, nil, []string{
			"n1 in_service 3: time-n1 v1 placed since 1, names-n1 v1 placed since 1, db-1 v2 placed since 1, store-d9 v1 placed since 1",
			"n2 in_service 7: time-n2 v1 placed since 1, names-n2 v1 reserved since 7, db-2 v2 placed since 1, store-d8 v1 removed as of 0"}, []string{
			"names-n2 on two is as it was: version 1", "store-d8 was to come to two, and does not"}},
		{"a move is under way", func(b *muster.Blueprint) {
			b.Nodes[0].Placements[2].State = muster.PlacementMoving
			came := b.Nodes[0].Placements[2]
			came.ID, came.Name, came.Number, came.State, came.Replaces, came.Since = "p8", "db-3", 3, muster.PlacementReserved, "p3", 6
			b.Nodes[1].Generation, b.Nodes[1].Placements = 6, append(b.Nodes[1].Placements, came)
		}, nil, []string{
			"n1 in_service 4: time-n1 v1 placed since 1, names-n1 v1 placed since 1, db-1 v2 placed since 4, store-d9 v1 placed since 1",
			"n2 in_service 7: time-n2 v1 placed since 1, names-n2 v1 placed since 1, db-2 v2 placed since 1, db-3 v2 removed as of 7"}, []string{
			"db-3 came to two since, and leaves", "db-1 stays on one: nothing replaces it any more"}},
		{"a node came, one is quiet, one is gone", func(b *muster.Blueprint) {
			b.Nodes[0].State, b.Nodes[0].Placements = muster.NodeQuiesced, nil
			b.Nodes[1] = muster.BlueprintNode{ID: "n3", Hostname: "three", State: muster.NodeInService}
		}, nil, []string{"n1 quiesced 3:", "n3 in_service 0:"}, []string{
			"node one is quiesced, and is left as it is", "node three came in since, and is left as it is"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			old, target := small(t), clone(t, small(t))
			target.ID, target.Parent = "now", old.ID
			c.since(target)
			before := clone(t, target)
			b, report := blueprint.Revive(old, target, "again", at, "a reason", c.floors)
			if diff := cmp.Diff(c.nodes, shares(&b)); diff != "" {
				t.Error(diff)
			}
			var said []string
			for _, l := range append(report.Done, report.Notes...) {
				said = append(said, l.Text)
			}
			if diff := cmp.Diff(c.said, said); diff != "" {
				t.Error(diff)
			}
			if b.ID != "again" || b.Parent != "now" || !b.MadeAt.Equal(at) || b.Why != "a reason" || report.Parent != "now" || report.Blueprint != "again" {
				t.Errorf("%+v of %+v", b, report)
			}
			if found := blueprint.Lint(&b); len(found) > 0 {
				t.Errorf("it must not be: %q", found)
			}
			if diff := cmp.Diff(before, target); diff != "" {
				t.Errorf("the target was written to:\n%s", diff)
			}
		})
	}
}
