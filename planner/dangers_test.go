package planner_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"muster.internal"
	"muster.internal/blueprint"
	"muster.internal/module"
	"muster.internal/planner"
)

// What has gone wrong in fleets like this one, and the test that shows that it
// does not here. Those without a name are not shown yet: 2 whole, 13 and 14 need
// what is to come (a quorum, power).
//
//	D-1   every request on every policy and state    lifecycle.TestNodeProducts, TestDiskProducts
//	D-2   a node expunged twice while a disk of it is adopted
//	D-3   the same hardware comes back four times    TestComesBack
//	D-4   a disk put back before and after expunging testdata/disk-pulled, TestDiskComesBack; store.TestReplug, TestReadoptDisk, TestDiskInAnotherNode
//	D-5   an old declaration after a newer one       fleet.tell, in every test; TestSetBack; store.TestRealise
//	D-6   one generation, two contents               fleet.tell and verifyGenerations, in every test; store.TestRealise
//	D-7   a disk expunged before any blueprint       TestDiskOutsideBlueprints
//	D-8   a disk expunged on a host that is away     testdata/replaced-at-once
//	D-9   taken in, and not reconciled               testdata/gone-for-certain, TestObserve
//	D-10  two planners with different inventories    TestTwoPlanners, testdata/stale
//	D-11  a host that dies between its two ledgers   host.TestCrashAnywhere, cmd/muster-host.TestApplyCutShort
//	D-12  an end at every step of adding a node      TestAnyLife; control.TestControlPlanesAreKilled
//	D-13  a node expunged that is in the quorum
//	D-14  an expunged node that starts
//	D-15  one node that never answers                TestOneNeverAnswers
//	D-16  a disk pulled under what runs on it        testdata/disk-pulled

// TestComesBack: hardware that left comes back as a new node, with nothing of the
// old one, as often as it likes.
func TestComesBack(t *testing.T) {
	f := three(t, dbModule, diskModule)
	seen := map[string]bool{}
	for i := range 4 {
		id := fmt.Sprintf("n4-%d", i)
		f.add(id, 1, "rack=r4")
		f.converge()
		for _, p := range f.share(id).Placements {
			if seen[p.ID] {
				t.Errorf("%s had its id before", p.Name)
			}
			seen[p.ID] = true
		}
		f.node(id).Policy = []muster.NodePolicy{muster.PolicyExpunged, muster.PolicyGracefulRemove}[i%2]
		f.converge()
		if f.share(id) != nil {
			t.Fatalf("%s did not leave: %s", id, f.said())
		}
	}
}

// TestDiskComesBack: an expunged disk that was confirmed is a new disk when it
// is adopted again, and is given things again.
func TestDiskComesBack(t *testing.T) {
	f := three(t, diskModule)
	f.disk("n1d1").Policy = muster.DiskPolicyExpunged
	f.converge()
	if f.disk("n1d1").State != muster.DiskDecommissioned {
		t.Fatalf("the disk is %s: %s", f.disk("n1d1").State, f.said())
	}
	n := f.node("n1")
	n.Disks = append(n.Disks, planner.Disk{ID: "n1d9", Policy: muster.DiskPolicyInService, State: muster.DiskInService, SizeMiB: 1 << 20})
	f.look("n1")
	f.converge()
	if got := f.where("volume"); len(got) != 6 {
		t.Errorf("volume is on %v", got)
	}
}

// TestDiskOutsideBlueprints: a disk that was expunged before a blueprint had
// anything on it is decommissioned all the same.
func TestDiskOutsideBlueprints(t *testing.T) {
	f := newFleet(t)
	f.want(timeModule)
	f.add("n1", 2, "")
	f.disk("n1d2").Policy = muster.DiskPolicyExpunged
	f.converge()
	if s := f.disk("n1d2").State; s != muster.DiskDecommissioned {
		t.Errorf("it is %s: %s", s, f.said())
	}
}

// TestSetBack: when an old blueprint is made the target again, its word comes
// with generations that hosts take.
func TestSetBack(t *testing.T) {
	f := three(t)
	old := *f.target
	f.want(diskModule)
	f.converge()
	f.unwant("volume")
	f.target = &old
	f.converge()
	for _, n := range f.target.Nodes {
		if h := f.hosts[n.ID]; h.holds > n.Generation {
			t.Errorf("%s holds generation %d, and its blueprint says %d", n.ID, h.holds, n.Generation)
		}
	}
}

// TestTwoPlanners: two planners, one of them always behind, take turns for fifty
// rounds. They come to rest, and make at most twice as many blueprints as one.
func TestTwoPlanners(t *testing.T) {
	life := func(behind bool) int {
		f := three(t, dbModule, diskModule)
		f.add("n4", 2, "rack=r1")
		f.converge()
		made := f.made
		f.node("n1").Policy = muster.PolicyGracefulRemove
		old := slices.Clone(f.nodes)
		for round := range 50 {
			if behind && round%2 == 1 {
				in := f.input()
				for i := range in.Nodes {
					in.Nodes[i].Seen = old[i].Seen
				}
				f.planOn(in)
			} else {
				f.plan()
			}
			old = slices.Clone(f.nodes)
			f.deploy()
		}
		if f.node("n1").State != muster.NodeDecommissioned {
			t.Errorf("n1 is %s: %s", f.node("n1").State, f.said())
		}
		return f.made - made
	}
	if one, two := life(false), life(true); two > 2*one {
		t.Errorf("two planners made %d blueprints, one %d", two, one)
	}
}

// TestOneNeverAnswers: a dead host delays itself alone.
func TestOneNeverAnswers(t *testing.T) {
	f := three(t, dbModule)
	f.hosts["n3"].dead = true
	f.node("n3").Away = true
	f.want(diskModule)
	f.add("n4", 1, "rack=r4")
	f.converge()
	if got := f.where("volume"); len(got) != 7 || f.on("volume", "n4").State != muster.PlacementPlaced {
		t.Errorf("volume is on %v: %s", got, f.said())
	}
	for _, l := range f.report.Waits {
		if l.Node != "n3" {
			t.Errorf("more than n3 waits: %s", l.Text)
		}
	}
}

// TestAddingReshufflesNothing: what is on each node from its own stream is the
// same, whoever else is there.
func TestAddingReshufflesNothing(t *testing.T) {
	ids := func(nodes ...string) map[string]string {
		f := newFleet(t)
		f.want(timeModule)
		f.want(diskModule)
		for _, id := range nodes {
			f.add(id, 2, "")
		}
		f.converge()
		all := map[string]string{}
		for _, n := range f.target.Nodes {
			for _, p := range n.Placements {
				all[n.ID+" "+p.Name] = p.ID
			}
		}
		return all
	}
	few, many := ids("n2", "n4"), ids("n1", "n2", "n3", "n4", "n5")
	for name, id := range few {
		if many[name] != id {
			t.Errorf("%s is %s among few and %s among many", name, id, many[name])
		}
	}
}

// TestPlacement holds each choice against a look at every node: over the label's
// values where the fewest are, then the node with the fewest of the kind, then
// the fewest in all, then the lowest id; and no place only when there is none.
func TestPlacement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t)
		for i := range rapid.IntRange(1, 12).Draw(t, "nodes") {
			n := f.add(fmt.Sprintf("n%02d", i), 0, fmt.Sprintf("rack=r%d", rapid.IntRange(1, 4).Draw(t, "rack")))
			n.State = muster.NodeInService
			n.Seen.Capacity.MemoryMiB = rapid.Int64Range(0, 5).Draw(t, "memory")
		}
		count := rapid.IntRange(1, 20).Draw(t, "count")
		f.want(fmt.Sprintf(`{"module":"job","version":1,"place":{"replicas":%d,"spread":"rack"},"moves":"surge","asks":{"memory_mib":1},"resources":[{"container":{"name":"{{ placement.name }}","image":"job"}}]}`, count))
		b, _ := planner.Plan(f.input())
		want, kind, rack := map[string]int{}, map[string]int{}, map[string]int{}
		for range count {
			best := -1
			for i, n := range f.nodes {
				if int64(kind[n.ID]) >= n.Seen.Capacity.MemoryMiB {
					continue
				}
				if best < 0 || rack[n.Labels["rack"]] < rack[f.nodes[best].Labels["rack"]] ||
					rack[n.Labels["rack"]] == rack[f.nodes[best].Labels["rack"]] && kind[n.ID] < kind[f.nodes[best].ID] {
					best = i
				}
			}
			if best >= 0 {
				kind[f.nodes[best].ID]++
				rack[f.nodes[best].Labels["rack"]]++
				want[f.nodes[best].ID]++
			}
		}
		for _, n := range b.Nodes {
			if len(n.Placements) != want[n.ID] {
				t.Errorf("%s has %d, want %d", n.ID, len(n.Placements), want[n.ID])
			}
		}
		for _, l := range blueprint.Lint(&b) {
			t.Errorf("lint: %s", l)
		}
	})
}

// TestModules refused, each with its reason, and the rest goes on.
func TestModulesRefused(t *testing.T) {
	f := three(t, dbModule)
	f.modules[0].Resources = slices.Clone(f.modules[0].Resources[:1]) // time: version 1, with another content
	f.modules = append(f.modules, module.Module{Name: "web", Version: 1})
	f.modules = append(f.modules, f.modules[1])
	f.plan()
	want := []string{
		"module db version 1: it is wanted twice",
		"module time version 1: this version says something else in the blueprint: give the new content a version of its own",
		"module web version 1: module web: place: must be one of each_node, each_disk, replicas and pinned, and is 0 of them",
	}
	var got []string
	for _, l := range f.report.Refused {
		got = append(got, l.Text)
	}
	if !slices.Equal(got, want) {
		t.Errorf("refused %q, want %q", got, want)
	}
	if len(f.where("time")) != 3 || len(f.where("db")) != 3 {
		t.Errorf("something went: %s", f.said())
	}
}
