package explain_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster.internal"
	"muster.internal/explain"
)

// TestFleet: what is said of a placement, a disk and a node, and which lines of a
// plan are about them.
func TestFleet(t *testing.T) {
	at := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	serving := func() muster.NodeDetail {
		return muster.NodeDetail{Node: muster.Node{ID: "n1", Hostname: "web1", Policy: muster.PolicyInService, State: muster.NodeInService, Link: &muster.NodeLink{Linked: true, Holds: 4}}}
	}
	placed := func(state muster.PlacementState, told *muster.BlueprintPlacement) *muster.PlacementDetail {
		return &muster.PlacementDetail{PlacementRecord: muster.PlacementRecord{Placement: muster.Placement{ID: "p1", Module: "db", State: state}, NodeID: "n1", Name: "db-1", Version: 2, ChangedAt: at}, Target: told}
	}
	told := func(since, asOf int64, state muster.PlacementState) *muster.BlueprintPlacement {
		return &muster.BlueprintPlacement{Placement: muster.Placement{ID: "p1", State: state}, Since: since, AsOf: asOf}
	}
	goes := muster.BlueprintTarget{Number: 3, ID: "b", Planning: true}
	away, gone, removing := serving(), serving(), serving()
	away.Link = &muster.NodeLink{LastLinked: at, Holds: 4}
	gone.Policy, gone.State, gone.Link = muster.PolicyExpunged, muster.NodeDecommissioned, nil
	gone.Expunged = &muster.Expunged{At: at, By: "ada", Reason: "it burnt"}
	removing.Policy, removing.ByHand, removing.Link = muster.PolicyGracefulRemove, true, nil
	removing.Placements = []muster.Placement{{ID: "p1", State: muster.PlacementPlaced}, {ID: "p2", State: muster.PlacementMoving}, {ID: "p3", State: muster.PlacementPlaced}, {ID: "p4", State: muster.PlacementRemoved}}
	held := told(0, 0, muster.PlacementReserved)
	held.Held = true
	ready := told(1, 3, muster.PlacementLost)
	ready.Ready = true
	disk := &muster.NodeDisk{ID: "d1", NodeID: "n1", Disk: muster.Disk{Serial: "S1"}, Policy: muster.DiskPolicyGracefulRemove, State: muster.DiskInService, Member: true}
	for _, c := range []struct {
		name string
		k    explain.Known
		want []string
	}{
		{"placed", explain.Known{Node: serving(), Placed: placed(muster.PlacementPlaced, told(3, 0, muster.PlacementPlaced)), Wanted: 2, Target: goes}, []string{
			"db-1 is placed since 2026-05-04T10:00:00Z, on node web1", "its node is told of it since generation 3",
			"it has version 2 of module db, which is wanted", "the host of node web1 is linked, and holds generation 4"}},
		{"another version is wanted, its node is away, and planning stopped", explain.Known{Node: away, Placed: placed(muster.PlacementReserved, held), Wanted: 3, Target: muster.BlueprintTarget{SetBy: "ada", Reason: "an audit"}}, []string{
			"db-1 is reserved since 2026-05-04T10:00:00Z, on node web1", "its room is kept, and its node is not told of it yet",
			"it has version 2 of module db, and version 3 is wanted",
			"the host of node web1 is away, and was linked last at 2026-05-04T10:00:00Z; muster never decides by itself that a node is gone for good: expunge it, or bring it back",
			"planning was stopped by ada: an audit; what comes next comes only once it goes on (muster blueprint enable)"}},
		{"leaving", explain.Known{Node: removing, Placed: placed(muster.PlacementMoving, told(3, 0, muster.PlacementMoving)), Target: goes}, []string{
			"db-1 is moving since 2026-05-04T10:00:00Z, on node web1", "its node is told of it since generation 3",
			"it has version 2 of module db, of which no version is wanted: it leaves",
			"node web1 is in_service, and told to be graceful_remove", "the host of node web1 was never linked: it hears nothing"}},
		{"not gone yet", explain.Known{Node: serving(), Placed: placed(muster.PlacementRemoved, told(1, 3, muster.PlacementRemoved)), Target: goes}, []string{
			"db-1 is removed since 2026-05-04T10:00:00Z, on node web1", "its node is told of it no longer as of generation 3, and has not said yet that nothing of it is left",
			"the host of node web1 is linked, and holds generation 4"}},
		{"gone", explain.Known{Node: gone, Placed: placed(muster.PlacementLost, ready), Target: goes}, []string{
			"db-1 is lost since 2026-05-04T10:00:00Z, on node web1", "nothing of it is left on its node", "node web1 is decommissioned, and told to be expunged",
			"it was expunged by ada at 2026-05-04T10:00:00Z: it burnt; that its power is off was not verified"}},
		{"cleaned up after", explain.Known{Node: serving(), Placed: placed(muster.PlacementRemoved, nil), Target: goes}, []string{
			"db-1 is removed since 2026-05-04T10:00:00Z, on node web1", "the target does not know it any more: it has ended, and everything of it was cleaned up after",
			"the host of node web1 is linked, and holds generation 4"}},
		{"a disk", explain.Known{Node: serving(), Disk: disk, Target: goes, OnDisk: []muster.PlacementRecord{{Name: "db-1", Disk: "d1"}, {Name: "db-2", Disk: "d2"}, {Name: "db-3", Disk: "d2", Transient: "d1"}}}, []string{
			"disk S1 of node web1 is in_service, and told to be graceful_remove", "it is of its node's pool: nothing is placed on it alone", "on it: db-1, db-3",
			"the host of node web1 is linked, and holds generation 4"}},
		{"a node", explain.Known{Node: removing, Target: goes}, []string{"node web1 is in_service, and told to be graceful_remove", "the host of node web1 was never linked: it hears nothing",
			"it is declared by hand, so that nothing is placed on it: muster node hand-over n1", "placements on it: 2 placed, 1 moving"}},
		{"an empty node", explain.Known{Node: serving(), Target: goes}, []string{"node web1 is in_service, and told to be in_service", "the host of node web1 is linked, and holds generation 4", "nothing is placed on it"}},
	} {
		if diff := cmp.Diff(c.want, explain.Fleet(c.k).Is); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
	}

	dry := muster.PlanReport{Done: []muster.PlanLine{{Text: "node", Node: "n1"}, {Text: "placement", Node: "n1", Placement: "p1", Module: "db", Disk: "d1"}, {Text: "other", Node: "n2", Placement: "p2", Module: "db"}},
		Waits: []muster.PlanLine{{Text: "module", Module: "db"}, {Text: "module here", Module: "db", Node: "n1"}, {Text: "module there", Module: "db", Node: "n2"}}}
	for name, want := range map[string][]string{"placement": {"placement", "module", "module here"}, "disk": {"placement"}, "node": {"node", "placement", "module here"}} {
		k := explain.Known{Node: serving(), Target: goes, Dry: dry}
		switch name {
		case "placement":
			k.Placed = placed(muster.PlacementPlaced, nil)
		case "disk":
			k.Disk = disk
		}
		var got []string
		x := explain.Fleet(k)
		for _, l := range append(x.Next, x.Waits...) {
			got = append(got, l.Text)
		}
		if diff := cmp.Diff(want, got); diff != "" || string(x.Kind) != name {
			t.Errorf("%s %s:\n%s", name, x.Kind, diff)
		}
	}
}
