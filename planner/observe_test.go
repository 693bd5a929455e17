package planner_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/blueprint"
	"muster.internal/module"
	"muster.internal/planner"
	"muster.internal/resource"
)

// observed is a blueprint of one node: web-1 and web-2 are declared since
// generations 5 and 7, web-3 is told to be gone as of 7, web-4 was there before
// and is gone.
func observed(t *testing.T) *blueprint.Renderer {
	t.Helper()
	m, err := module.Parse("web", []byte(`
module: web
version: 1
place: {replicas: 4}
resources:
- package: {name: nginx}
- file: {path: "/etc/{{ placement.name }}", content: x}
`))
	if err != nil {
		t.Fatal(err)
	}
	b := &muster.Blueprint{ID: "b", Modules: []module.Module{m}, Nodes: []muster.BlueprintNode{{ID: "n", Generation: 7, State: muster.NodeInService, Placements: []muster.BlueprintPlacement{
		webPlacement(1, muster.PlacementPlaced, 5, 0, false), webPlacement(2, muster.PlacementReserved, 7, 0, false),
		webPlacement(3, muster.PlacementRemoved, 2, 7, false), webPlacement(4, muster.PlacementLost, 2, 6, true),
	}}}}
	return blueprint.NewRenderer(b)
}

func webPlacement(n int, state muster.PlacementState, since, asOf int64, ready bool) muster.BlueprintPlacement {
	return muster.BlueprintPlacement{Placement: muster.Placement{ID: fmt.Sprint(n), Module: "web", Kind: muster.PlacementService, State: state},
		Name: fmt.Sprintf("web-%d", n), Number: n, Version: 1, Since: since, AsOf: asOf, Ready: ready}
}

// saidReport reads a report as the table below spells it: "7 timer: ok file:/a, failed file:/b because".
func saidReport(t *testing.T, text string) *resource.Report {
	t.Helper()
	if text == "" {
		return nil
	}
	head, lines, _ := strings.Cut(text, ":")
	r := new(resource.Report)
	if _, err := fmt.Sscan(head, &r.Generation, &r.Trigger); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(lines, ",") {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		l := resource.Line{Outcome: resource.Outcome(f[0]), Ref: resource.Ref(f[1]), Reason: strings.Join(f[2:], " ")}
		if f[0] == "removed" || f[0] == "forgotten" {
			l.Outcome, l.Did = resource.OutcomeChanged, f[0]
		}
		r.Lines = append(r.Lines, l)
	}
	return r
}

func TestObserve(t *testing.T) {
	const all = "package:nginx file:/etc/web-1 file:/etc/web-2"
	for _, c := range []struct {
		name, report, owned string
		holds               int64
		wantHolds           int64
		reconciled          int64
		want                string // of each placement that there is something of
	}{
		{name: "nothing was heard", want: ""},
		{name: "all is well", holds: 7, report: "7 timer: ok package:nginx, ok file:/etc/web-1, changed file:/etc/web-2, removed file:/etc/web-3", owned: all,
			wantHolds: 7, reconciled: 7, want: "1 up; 2 up"},
		{name: "a report that leaves out what is ok", holds: 7, report: "7 timer:", owned: all, wantHolds: 7, reconciled: 7, want: "1 up; 2 up"},
		{name: "and that owns less than it was told", holds: 7, report: "7 timer:", owned: "package:nginx file:/etc/web-1", wantHolds: 7, reconciled: 7,
			want: "1 up; 2 its host says nothing of file:/etc/web-2"},
		{name: "told and not yet applied", holds: 7, report: "6 timer: ok package:nginx, ok file:/etc/web-1, ok file:/etc/web-3", owned: "package:nginx file:/etc/web-1 file:/etc/web-3",
			wantHolds: 7, reconciled: 6, want: "1 up; 2 its host says nothing of file:/etc/web-2; 3 left file:/etc/web-3"},
		{name: "the link has not said yet what the report says", holds: 6, report: "7 declaration: ok file:/etc/web-1, ok file:/etc/web-2, ok package:nginx", owned: all,
			wantHolds: 7, reconciled: 7, want: "1 up; 2 up"},
		{name: "a mirror that is older than the report still has it", holds: 7, report: "7 timer: ok package:nginx, ok file:/etc/web-1, ok file:/etc/web-2, removed file:/etc/web-3",
			owned: "package:nginx file:/etc/web-1 file:/etc/web-3", wantHolds: 7, reconciled: 7, want: "1 up; 2 up; 3 left file:/etc/web-3"},
		{name: "a mirror that is so old that it never had it, and it does not go", holds: 7, owned: "package:nginx",
			report: "7 timer: ok package:nginx, ok file:/etc/web-1, ok file:/etc/web-2, failed file:/etc/web-3 it is busy", wantHolds: 7, reconciled: 7,
			want: "1 up; 2 up; 3 left file:/etc/web-3: it is busy"},
		{name: "a directory that goes later", holds: 7, owned: all, report: "7 timer: ok file:/etc/web-3 it goes once /x does", wantHolds: 7, reconciled: 7,
			want: "1 up; 2 up; 3 left file:/etc/web-3: it goes once /x does"},
		{name: "what the two share stays for the one that is declared", holds: 7, report: "7 timer: ok package:nginx, forgotten file:/etc/web-3", owned: all,
			wantHolds: 7, reconciled: 7, want: "1 up; 2 up"},
		{name: "one line is not ok", holds: 7, report: "7 timer: ok package:nginx, kept file:/etc/web-1 somebody else's, failed file:/etc/web-2 no room", owned: all,
			wantHolds: 7, reconciled: 7, want: "1 file:/etc/web-1 is kept: somebody else's; 2 file:/etc/web-2 is failed: no room"},
		{name: "what they share is not ok", holds: 7, report: "7 timer: failed package:nginx locked", owned: all,
			wantHolds: 7, reconciled: 7, want: "1 package:nginx is failed: locked; 2 package:nginx is failed: locked"},
		{name: "a word of a newer host is no yes", holds: 7, report: "7 timer: wonderful package:nginx", owned: all,
			wantHolds: 7, reconciled: 7, want: "1 package:nginx is wonderful; 2 package:nginx is wonderful"},
		{name: "refused, or not applied to its end", holds: 7, report: "7 declaration: ok package:nginx, failed declaration the disk is full", owned: all,
			wantHolds: 7, reconciled: 0, want: "1 up; 2 up"},
		{name: "taken back", holds: 7, report: "7 revert: ok package:nginx, ok file:/etc/web-1", owned: "package:nginx file:/etc/web-1",
			wantHolds: 7, reconciled: 0, want: "1 up; 2 its host says nothing of file:/etc/web-2"},
		{name: "told by hand to be something else", holds: 9, report: "9 declaration: removed file:/etc/web-1, forgotten package:nginx, ok file:/etc/motd", owned: "file:/etc/motd",
			wantHolds: 9, reconciled: 9, want: "1 its host has let go of package:nginx; 2 its host has let go of package:nginx"},
		{name: "begun, and in conflict", holds: 7, report: "7 timer:", owned: "package:nginx begun:file:/etc/web-1 conflict:file:/etc/web-2", wantHolds: 7, reconciled: 7,
			want: "1 its host has begun to make file:/etc/web-1, and has not said that it is there; 2 file:/etc/web-2 is not as declared, and nobody has said which of the two it shall be"},
		{name: "made by a person at the machine", holds: 7, report: "7 timer:", owned: all + " local:file:/etc/web-3", wantHolds: 7, reconciled: 7, want: "1 up; 2 up"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := planner.Heard{Holds: c.holds, Report: saidReport(t, c.report)}
			for _, word := range strings.Fields(c.owned) {
				o := resource.Owned{Ref: resource.Ref(word)}
				for mark, set := range map[string]*bool{"begun:": &o.Begun, "conflict:": &o.Conflict, "local:": &o.Local} {
					if ref, is := strings.CutPrefix(word, mark); is {
						o.Ref, *set = resource.Ref(ref), true
					}
				}
				h.Owned = append(h.Owned, o)
			}
			s := planner.Observe(observed(t), "n", h)
			if s.Holds != c.wantHolds || s.Reconciled != c.reconciled {
				t.Errorf("holds %d, reconciled %d, want %d and %d", s.Holds, s.Reconciled, c.wantHolds, c.reconciled)
			}
			var got []string
			for _, p := range s.Placements {
				switch {
				case p.Healthy != p.CaughtUp, p.Healthy != (p.Reason == ""):
					t.Errorf("%+v", p)
				case p.Healthy:
					got = append(got, p.ID+" up")
				case p.ID == "3":
					got = append(got, p.ID+" left "+p.Reason)
				default:
					got = append(got, p.ID+" "+p.Reason)
				}
			}
			if got := strings.Join(got, "; "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestObserveDisks: a disk is in use while its host owns it.
func TestObserveDisks(t *testing.T) {
	s := planner.Observe(observed(t), "n", planner.Heard{Disks: []string{"d1", "d2"}, Owned: []resource.Owned{{Ref: "disk:d2"}, {Ref: "disk:d3"}}})
	want := []planner.SeenDisk{{ID: "d1"}, {ID: "d2", InUse: true}}
	if !slices.Equal(s.Disks, want) {
		t.Errorf("got %v, want %v", s.Disks, want)
	}
	if s := planner.Observe(observed(t), "unknown", planner.Heard{Holds: 3}); s.Holds != 3 || s.Placements != nil {
		t.Errorf("of a node that the blueprint has not: %+v", s)
	}
}

// TestObserveHealth: of a placement that its host is told to check, being as
// declared is not enough.
func TestObserveHealth(t *testing.T) {
	m, err := module.Parse("web", []byte(`{"module": "web", "version": 1, "place": {"replicas": 1}, "health": {"port": 80}, "resources": [{"file": {"path": "/etc/web", "content": "x"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	r := blueprint.NewRenderer(&muster.Blueprint{Modules: []module.Module{m}, Nodes: []muster.BlueprintNode{{ID: "n", Generation: 1, Placements: []muster.BlueprintPlacement{webPlacement(1, muster.PlacementReserved, 1, 0, false)}}}})
	for _, c := range []struct {
		name, line string
		health     []muster.PlacementHealth
		want       planner.SeenPlacement
	}{
		{"nothing was said", "ok", nil, planner.SeenPlacement{ID: "1", Reason: "its host has not said whether it is up; one that is too old never does"}},
		{"it is up", "ok", []muster.PlacementHealth{{ID: "2"}, {ID: "1", Healthy: true, CaughtUp: true}}, planner.SeenPlacement{ID: "1", Healthy: true, CaughtUp: true}},
		{"it is behind", "ok", []muster.PlacementHealth{{ID: "1", Healthy: true, Reason: "503"}}, planner.SeenPlacement{ID: "1", Healthy: true, Reason: "503"}},
		{"it is down", "ok", []muster.PlacementHealth{{ID: "1", CaughtUp: true, Reason: "refused"}}, planner.SeenPlacement{ID: "1", Reason: "refused"}},
		{"it is not as declared", "failed", []muster.PlacementHealth{{ID: "1", Healthy: true, CaughtUp: true}}, planner.SeenPlacement{ID: "1", Reason: "file:/etc/web is failed"}},
	} {
		s := planner.Observe(r, "n", planner.Heard{Report: saidReport(t, "1 timer: "+c.line+" file:/etc/web"), Health: c.health})
		if len(s.Placements) != 1 || s.Placements[0] != c.want {
			t.Errorf("%s: %+v", c.name, s.Placements)
		}
	}
}

// TestObserveHandOver: of a live move, each end has what it has at any time of it.
func TestObserveHandOver(t *testing.T) {
	m, err := module.Parse("vm", []byte(`
module: vm
version: 1
place: {replicas: 1}
moves: live
resources: [{file: {path: "/vm/{{ placement.name }}", content: x}}]
hand_over:
  leaving: [{file: {path: "/vm/{{ placement.name }}", content: y}}, {file: {path: "/vm/{{ placement.name }}.out", content: x}}]
  arriving: [{file: {path: "/vm/{{ placement.name }}.in", content: x}}]
`))
	if err != nil {
		t.Fatal(err)
	}
	p := webPlacement(1, muster.PlacementRemoved, 2, 4, false)
	p.Module, p.Name = "vm", "vm-1"
	b := &muster.Blueprint{Modules: []module.Module{m}, Nodes: []muster.BlueprintNode{{ID: "n", Generation: 4, Placements: []muster.BlueprintPlacement{p}}}}
	for owned, want := range map[resource.Ref]int{"file:/vm/vm-1": 1, "file:/vm/vm-1.out": 1, "file:/vm/vm-1.in": 1, "file:/vm/vm-2": 0} {
		s := planner.Observe(blueprint.NewRenderer(b), "n", planner.Heard{Report: &resource.Report{Generation: 4}, Owned: []resource.Owned{{Ref: owned}}})
		if len(s.Placements) != want {
			t.Errorf("%s: %+v", owned, s.Placements)
		}
	}
}
