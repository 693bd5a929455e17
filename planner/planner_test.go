package planner_test

import (
	"slices"
	"testing"

	"muster.internal"
)

const (
	timeModule = `{"module":"time","version":1,"base":true,"place":{"each_node":true},"resources":[{"package":{"name":"chrony"}},{"service":{"name":"chrony"}}]}`
	diskModule = `{"module":"volume","version":1,"place":{"each_disk":true},"resources":[{"file":{"path":"/etc/volumes/{{ disk.id }}","template":"{{ placement.name }}"}}]}`
	webModule  = `{"module":"web","version":1,"place":{"replicas":3,"minimum":3},"moves":"surge","asks":{"memory_mib":1024},"resources":[{"container":{"name":"{{ placement.name }}","image":"web"}}]}`
	dbModule   = `{"module":"db","version":1,"place":{"replicas":3,"spread":"rack","minimum":2},"moves":"surge","asks":{"durable_mib":1024},"after":["time"],
		"resources":[{"directory":{"path":"/srv/db"}},{"file":{"path":"/srv/db/peers","template":"{{ peers.addresses }}"}},{"service":{"name":"db"}}]}`
	oneModule = `{"module":"one","version":1,"place":{"replicas":1},"moves":"restart","resources":[{"service":{"name":"one"}}]}`
)

// three is a fleet of three nodes in three racks that is at rest.
func three(t tester, modules ...string) *fleet {
	f := newFleet(t)
	for _, m := range append([]string{timeModule}, modules...) {
		f.want(m)
	}
	for i, id := range []string{"n1", "n2", "n3"} {
		f.add(id, 2, "rack=r"+string(rune('1'+i)))
	}
	f.converge()
	return f
}

func TestFirst(t *testing.T) {
	f := three(t, webModule, dbModule, diskModule)
	if got := f.where("db"); !slices.Equal(got, []string{"n1", "n2", "n3"}) {
		t.Errorf("db is on %v", got)
	}
	if got := f.where("web"); !slices.Equal(got, []string{"n1", "n2", "n3"}) {
		t.Errorf("web is on %v", got)
	}
	if got := f.where("volume"); len(got) != 6 {
		t.Errorf("volume is on %v", got)
	}
	for _, n := range f.nodes {
		if n.State != muster.NodeInService {
			t.Errorf("node %s is %s", n.ID, n.State)
		}
	}
	if f.said() != "" {
		t.Errorf("a fleet at rest says %s", f.said())
	}
}

func TestGracefulRemoval(t *testing.T) {
	f := three(t, webModule, dbModule, diskModule, oneModule)
	f.add("n4", 2, "rack=r1")
	f.converge()
	f.node("n1").Policy = muster.PolicyGracefulRemove
	f.converge()
	if n := f.node("n1"); n.State != muster.NodeDecommissioned {
		t.Errorf("n1 is %s: %s", n.State, f.said())
	}
	if got := f.where("db"); !slices.Equal(got, []string{"n2", "n3", "n4"}) {
		t.Errorf("db is on %v", got)
	}
}

func TestQuiesceAndBack(t *testing.T) {
	f := three(t, webModule, dbModule, diskModule, oneModule)
	before := f.target
	f.node("n2").Policy = muster.PolicyQuiesce
	f.converge()
	if n := f.node("n2"); n.State != muster.NodeQuiesced {
		t.Errorf("n2 is %s: %s", n.State, f.said())
	}
	f.node("n2").Policy = muster.PolicyInService
	f.converge()
	if n := f.node("n2"); n.State != muster.NodeInService {
		t.Errorf("n2 is %s: %s", n.State, f.said())
	}
	if p, q := findPlacement(before, f.on("db", "n2").ID), f.on("db", "n2"); p == nil || q.State != muster.PlacementPlaced {
		t.Errorf("db did not come back: %+v", q)
	}
}

func TestExpunge(t *testing.T) {
	f := three(t, webModule, dbModule, diskModule, oneModule)
	f.add("n4", 2, "rack=r1")
	f.converge()
	f.node("n1").Policy = muster.PolicyExpunged
	f.plan()
	if got := f.where("db"); !slices.Equal(got, []string{"n2", "n3", "n4"}) {
		t.Errorf("db is on %v at once", got)
	}
	f.converge()
	if f.share("n1") != nil {
		t.Errorf("n1 is still in the blueprint: %+v", f.share("n1"))
	}
}
