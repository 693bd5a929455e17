package blueprint_test

import (
	"fmt"
	"testing"

	"muster.internal"
	"muster.internal/blueprint"
	"muster.internal/module"
)

const object = `
module: object
version: 1
place: {each_disk: true}
health: {port: 8080, path: /up, caught_up: /caught-up}
resources:
- disk: {id: "{{ disk.id }}", identity: "{{ disk.identity }}", path: "/srv/{{ disk.id }}", filesystem: xfs}
- directory: {path: "/srv/{{ disk.id }}/objects"}
  after: ["disk:/srv/{{ disk.id }}"]
`

// A node is told how to see that its placements are up, and how to find their
// disks; of a placement that it is not told of, neither.
func TestChecksAndDisks(t *testing.T) {
	m, err := module.Parse("object.yaml", []byte(object))
	if err != nil {
		t.Fatal(err)
	}
	placed := func(id, disk string) muster.BlueprintPlacement {
		return muster.BlueprintPlacement{Placement: muster.Placement{ID: id, Module: "object", State: muster.PlacementPlaced}, Name: id, Version: 1, Disk: disk, DiskIdentity: "wwn of " + disk}
	}
	gone := placed("p3", "d3")
	gone.State = muster.PlacementRemoved
	d, err := blueprint.NewRenderer(&muster.Blueprint{Modules: []module.Module{m}, Nodes: []muster.BlueprintNode{
		{ID: "n1", Generation: 2, Placements: []muster.BlueprintPlacement{placed("p1", "d1"), placed("p2", "d2"), gone}},
	}}).Declaration("n1")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(d.Checks), "[{p1 8080 /up /caught-up} {p2 8080 /up /caught-up}]"; got != want {
		t.Errorf("checks %s, not %s", got, want)
	}
	if len(d.Resources) != 4 {
		t.Fatalf("%d resources", len(d.Resources))
	}
	if got, want := fmt.Sprint(*d.Resources[2].Disk), "{d2 wwn of d2 /srv/d2 xfs}"; got != want {
		t.Errorf("disk %s, not %s", got, want)
	}
	if got, want := fmt.Sprint(d.Resources[3].After), "[disk:/srv/d2]"; got != want {
		t.Errorf("after %s, not %s", got, want)
	}
}
