package blueprint_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster.internal"
	"muster.internal/blueprint"
	"muster.internal/module"
)

var update = flag.Bool("update", false, "rewrite golden files")

// golden compares with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if diff := cmp.Diff(string(want), got); diff != "" || err != nil {
		t.Errorf("%s (-update rewrites it): %v\n%s", file, err, diff)
	}
}

func parse(t testing.TB, text string) module.Module {
	t.Helper()
	m, err := module.Parse("a test", []byte("# YAML\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const (
	timeModule = `{module: time, version: 1, base: true, place: {each_node: true}, resources: [{package: {name: chrony}}, {service: {name: chrony}}]}`
	namesText  = `{module: names, version: 1, place: {each_node: true}, resources: [{file: {path: /etc/hosts.fleet, template: "{{ fleet.hosts }}\n"}}]}`
	diskModule = `{module: store, version: 1, place: {each_disk: true}, resources: [{file: {path: "/srv/{{ disk.id }}", content: "x"}}]}`
	dbModule   = `
module: db
version: 2
place: {replicas: 2, spread: rack}
asks: {durable_mib: 100, transient_mib: 10}
moves: live
hand_over:
  leaving: [{file: {path: "/run/{{ placement.name }}", content: leaving}}]
  arriving: [{file: {path: "/run/{{ placement.name }}", content: arriving}}]
after: [names]
resources:
- directory: {path: "/srv/{{ placement.name }}"}
- file:
    path: "/srv/{{ placement.name }}/conf"
    template: |
      {{ placement.id }} number {{ placement.number }} version {{ placement.version }} of {{ placement.module }}
      on {{ node.id }}, {{ node.hostname }}, {{ node.address }}, and {{ hostname }} as its host says
      disks {{ disk.id }} and {{ transient.id }}
      peers {{ peers.names }} at {{ peers.addresses }}
      names by {{ module.names.names }}
`
)

// small is a fleet of two nodes with something of every kind.
func small(t testing.TB) *muster.Blueprint {
	placed := func(id, name, mod string, version int64, kind muster.PlacementKind) muster.BlueprintPlacement {
		return muster.BlueprintPlacement{Placement: muster.Placement{ID: id, Module: mod, Kind: kind, State: muster.PlacementPlaced}, Name: name, Version: version, Since: 1}
	}
	db := func(id string, number int, disk string) muster.BlueprintPlacement {
		p := placed(id, fmt.Sprintf("db-%d", number), "db", 2, muster.PlacementService)
		p.Number, p.Disk, p.Transient = number, disk, disk+"t"
		return p
	}
	store := placed("p4", "store-d9", "store", 1, muster.PlacementPerDisk)
	store.Disk = "d9"
	return &muster.Blueprint{ID: "small", MadeAt: time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC),
		Modules: []module.Module{parse(t, dbModule), parse(t, namesText), parse(t, diskModule), parse(t, timeModule)},
		Nodes: []muster.BlueprintNode{
			{ID: "n1", Hostname: "one", Address: "192.0.2.1", State: muster.NodeInService, Generation: 3, Drawn: 9, Placements: []muster.BlueprintPlacement{
				placed("p1", "time-n1", "time", 1, muster.PlacementBase), placed("p2", "names-n1", "names", 1, muster.PlacementPerNode), db("p3", 1, "d1"), store}},
			{ID: "n2", Hostname: "two", Address: "192.0.2.2", State: muster.NodeInService, Generation: 5, Drawn: 9, Placements: []muster.BlueprintPlacement{
				placed("p5", "time-n2", "time", 1, muster.PlacementBase), placed("p6", "names-n2", "names", 1, muster.PlacementPerNode), db("p7", 2, "d2")}},
		}}
}

// clone lets a case write to a blueprint.
func clone(t testing.TB, b *muster.Blueprint) *muster.Blueprint {
	t.Helper()
	text, err := json.Marshal(b)
	out := new(muster.Blueprint)
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestLint provokes every sentence once, and finds nothing in what is right.
func TestLint(t *testing.T) {
	if found := blueprint.Lint(small(t)); len(found) > 0 {
		t.Fatalf("nothing is wrong with it: %q", found)
	}
	n := func(b *muster.Blueprint, i int) *muster.BlueprintNode { return &b.Nodes[i] }
	p := func(b *muster.Blueprint, i, at int) *muster.BlueprintPlacement { return &b.Nodes[i].Placements[at] }
	for _, c := range []struct {
		want  string
		spoil func(b *muster.Blueprint)
	}{
		{"node n1 is not in its place: nodes are in order, each once", func(b *muster.Blueprint) { slices.Reverse(b.Nodes) }},
		{"nodes n1 and n2 have the same address 192.0.2.1", func(b *muster.Blueprint) { n(b, 1).Address = "192.0.2.1" }},
		{"module db version 2 is there, and no placement has it", func(b *muster.Blueprint) {
			n(b, 0).Placements = slices.Delete(n(b, 0).Placements, 2, 3)
			n(b, 1).Placements = n(b, 1).Placements[:2]
		}},
		{"module time version 1 is not in its place", func(b *muster.Blueprint) { b.Modules = append(b.Modules, b.Modules[3]) }},
		{"module time: resources: must be a list of resources", func(b *muster.Blueprint) { b.Modules[3].Resources = nil }},
		{"node n1: it is told something in generation 0", func(b *muster.Blueprint) { n(b, 0).Generation = 0 }},
		{"node n1: it has 4 placements, and drew 2 ids", func(b *muster.Blueprint) { n(b, 0).Drawn = 2 }},
		{"node n1: names-n1 and other are both names", func(b *muster.Blueprint) {
			extra := *p(b, 0, 1)
			extra.ID, extra.Name = "p9", "other"
			n(b, 0).Placements = append(n(b, 0).Placements, extra)
		}},
		{"node n1: disk d5 is not in its place", func(b *muster.Blueprint) { n(b, 0).Disks = []muster.BlueprintDisk{{ID: "d6"}, {ID: "d5"}} }},
		{"node n1: disk d5 is unused as of generation 4, which is yet to come", func(b *muster.Blueprint) { n(b, 0).Disks = []muster.BlueprintDisk{{ID: "d5", AsOf: 4}} }},
		{"node n1: disk d1 is ready to be decommissioned, and db-1 is on it", func(b *muster.Blueprint) {
			n(b, 0).Disks = []muster.BlueprintDisk{{ID: "d1", Unused: true, AsOf: 1, Ready: true}}
		}},
		{"node n1: time-n1 and names-n1 both declare file:/etc/hosts.fleet, and not alike", func(b *muster.Blueprint) {
			b.Modules[3].Resources = parse(t, `{module: x, version: 1, place: {each_node: true}, resources: [{file: {path: /etc/hosts.fleet, content: mine}}]}`).Resources
		}},
		{"node n2: time-n2: its id p1 is another's, too", func(b *muster.Blueprint) { p(b, 1, 0).ID = "p1" }},
		{"node n2: time-n1: its name is also that of p1", func(b *muster.Blueprint) { p(b, 1, 0).Name = "time-n1" }},
		{"node n1: time-n1: its module time version 7 is not in the blueprint", func(b *muster.Blueprint) { p(b, 0, 0).Version = 7 }},
		{"node n1: time-n1: it is service, and its module base", func(b *muster.Blueprint) { p(b, 0, 0).Kind = muster.PlacementService }},
		{"node n1: store-d9: it names no disk", func(b *muster.Blueprint) { p(b, 0, 3).Disk = "" }},
		{"node n1: db-1: it names no disk", func(b *muster.Blueprint) { p(b, 0, 2).Transient = "" }},
		{`node n1: time-n1: "here" is no state`, func(b *muster.Blueprint) { p(b, 0, 0).State = "here" }},
		{"node n1: time-n1: it is placed and declared, and gone as of generation 2", func(b *muster.Blueprint) { p(b, 0, 0).AsOf = 2 }},
		{"node n1: time-n1: declared since generation 4, gone as of 0, and its node is at 3", func(b *muster.Blueprint) { p(b, 0, 0).Since = 4 }},
		{"node n1: time-n1: declared since generation 0, gone as of 0, and its node is at 3", func(b *muster.Blueprint) { p(b, 0, 0).Since = 0 }},
		{"node n1: time-n1: declared since generation 3 and gone as of 2", func(b *muster.Blueprint) {
			p(b, 0, 0).State, p(b, 0, 0).Since, p(b, 0, 0).AsOf = muster.PlacementRemoved, 3, 2
		}},
		{"node n1: time-n1: it is lost, and no generation says so", func(b *muster.Blueprint) { p(b, 0, 0).State = muster.PlacementLost }},
		{"node n1: time-n1: it is placed, and its node is not told of it", func(b *muster.Blueprint) { p(b, 0, 0).Held = true }},
		{"node n2: time-n2: it is placed on a decommissioned node", func(b *muster.Blueprint) { n(b, 1).State = muster.NodeDecommissioned }},
		{"node n2: names-n2: it is declared on a quiesced node", func(b *muster.Blueprint) { n(b, 1).State = muster.NodeQuiesced }},
		{"db-1 and db-2 both replace p8", func(b *muster.Blueprint) { p(b, 0, 2).Replaces, p(b, 1, 2).Replaces = "p8", "p8" }},
		{"db-1 moves, and nothing replaces it", func(b *muster.Blueprint) { p(b, 0, 2).State = muster.PlacementMoving }},
	} {
		b := clone(t, small(t))
		c.spoil(b)
		if found := blueprint.Lint(b); !slices.Contains(found, c.want) {
			t.Errorf("want %q, found only:\n%s", c.want, strings.Join(found, "\n"))
		}
	}
}

// TestRender: what nodes are told, also of a live move, and why one is told
// nothing.
func TestRender(t *testing.T) {
	b := small(t)
	tell := func(b *muster.Blueprint, node string) string {
		d, err := blueprint.NewRenderer(b).Declaration(node)
		if err != nil {
			return err.Error() + "\n"
		}
		text, err := json.MarshalIndent(d, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		return string(text) + "\n"
	}
	golden(t, "one.json", tell(b, "n1"))
	moving := clone(t, b)
	moving.Nodes[0].Placements[2].State = muster.PlacementMoving
	came := moving.Nodes[1].Placements[2]
	came.ID, came.Name, came.Number, came.State, came.Replaces = "p8", "db-3", 3, muster.PlacementReserved, "p3"
	moving.Nodes[1].Placements = append(moving.Nodes[1].Placements[:2:2], came)
	golden(t, "leaving.json", tell(moving, "n1"))
	golden(t, "arriving.json", tell(moving, "n2"))

	gone := clone(t, b)
	gone.Nodes[1].State = muster.NodeDecommissioned
	clash := clone(t, b)
	clash.Modules[3].Resources = parse(t, `{module: x, version: 1, place: {each_node: true}, resources: [{file: {path: /etc/hosts.fleet, content: mine}}]}`).Resources
	var said strings.Builder
	for _, c := range []struct {
		b    *muster.Blueprint
		node string
	}{{b, "n3"}, {gone, "n2"}, {clash, "n1"}} {
		said.WriteString(tell(c.b, c.node))
	}
	golden(t, "untold.txt", said.String())
}

// TestDiff: every kind of difference, and none.
func TestDiff(t *testing.T) {
	from := small(t)
	to := clone(t, from)
	to.ID, to.Parent = "next", from.ID
	to.Modules = slices.Insert(to.Modules, 1, parse(t, strings.Replace(dbModule, "version: 2", "version: 3", 1)))
	to.Modules = slices.DeleteFunc(to.Modules, func(m module.Module) bool { return m.Name == "store" })
	one := &to.Nodes[0]
	one.Generation, one.Address = 4, "192.0.2.11"
	one.Placements[2].Version, one.Placements[2].Since = 3, 4
	one.Placements = one.Placements[:3]
	one.Disks = []muster.BlueprintDisk{{ID: "d9", Unused: true, AsOf: 4}}
	to.Nodes[1] = muster.BlueprintNode{ID: "n3", Hostname: "three", State: muster.NodeInitializing}
	d := blueprint.Diff(from, to)
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "diff.txt", blueprint.Text(d))
	golden(t, "diff.json", string(text)+"\n")
	golden(t, "diff-back.txt", blueprint.Text(blueprint.Diff(to, from)))
	if got := blueprint.Text(blueprint.Diff(from, clone(t, from))); got != "nothing differs\n" {
		t.Errorf("of the same: %q", got)
	}
	if got := blueprint.Text(blueprint.Diff(&muster.Blueprint{}, from)); strings.Contains(got, "peers") {
		t.Errorf("it shows what a resource holds:\n%s", got)
	}
}
