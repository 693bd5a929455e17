package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	muster "muster.internal"
	"muster.internal/blueprint"
	"muster.internal/module"
	"muster.internal/resource"
)

// Every module that comes with this program says what it is, can be added, and
// makes a declaration that a host takes, for two placements of a node, too, where
// there may be two.
func TestShippedModules(t *testing.T) {
	all, err := shippedModules()
	if err != nil || len(all) < 4 {
		t.Fatalf("%v %v", all, err)
	}
	if _, err := readShipped("nothing"); !muster.IsCode(err, muster.CodeNotFound) {
		t.Errorf("%v", err)
	}
	for _, s := range all {
		m, err := readShipped(s.Name)
		if err != nil {
			t.Error(err)
			continue
		}
		if m.Version = 1; m.Name != s.Name || len(s.What) < 20 {
			t.Errorf("%s is module %s: %q", s.Name, m.Name, s.What)
		}
		if errs := m.Check(); len(errs) > 0 {
			t.Errorf("%s: %v", s.Name, errs)
			continue
		}
		b := muster.Blueprint{Modules: []module.Module{m}, Nodes: []muster.BlueprintNode{{ID: "n1", Generation: 1, Hostname: "web1", Address: "192.0.2.1"}}}
		for i, id := range []string{"019df26e-2d00-7eb7-bf41-46fb0ce1b141", "019df26e-2d00-7eb7-bf41-46fb0ce1b142"} {
			if i > 0 && !m.Place.EachDisk {
				break
			}
			b.Nodes[0].Placements = append(b.Nodes[0].Placements, muster.BlueprintPlacement{Placement: muster.Placement{ID: id, Module: m.Name, State: muster.PlacementPlaced}, Name: m.Name + "-" + id[len(id)-1:], Version: 1, Disk: id, DiskIdentity: "wwn " + id})
		}
		d, err := blueprint.NewRenderer(&b).Declaration("n1")
		if err != nil {
			t.Error(err)
			continue
		}
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := resource.Parse(s.Name, text); err != nil {
			t.Error(err)
		}
		if err := d.CheckRemote(); err != nil {
			t.Error(err)
		}
		if slices.ContainsFunc(d.Resources, func(r resource.Resource) bool { return r.File != nil && strings.Contains(r.File.Content, "{{") }) {
			t.Errorf("%s: names stand in a content, which nobody fills in", s.Name)
		}
	}
}
