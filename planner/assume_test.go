package planner_test

import (
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/module"
	"muster.internal/planner"
)

// TestAssume: what is assumed is in the plan, in no other input, and what cannot
// be is refused in words.
func TestAssume(t *testing.T) {
	web := func(version int64, content string) *module.Module {
		m, err := module.ParseDraft("a test", []byte(`{"module":"web","place":{"replicas":1},"resources":[{"file":{"path":"/web","content":"`+content+`"}}]}`))
		if err != nil {
			t.Fatal(err)
		}
		m.Version = version
		return &m
	}
	input := func() planner.Input {
		in := planner.Input{ID: "b1", Seed: 1, Modules: []module.Module{*web(1, "one")}}
		for _, id := range []string{"n1", "n2"} {
			in.Nodes = append(in.Nodes, planner.Node{ID: id, Hostname: id, Registration: muster.Approved, Policy: muster.PolicyInService, State: muster.NodeInService,
				Disks: []planner.Disk{{ID: id + "d1", Policy: muster.DiskPolicyInService, State: muster.DiskInService}}, Seen: &planner.Seen{}})
		}
		in.Nodes = append(in.Nodes, planner.Node{ID: "n3", Policy: muster.PolicyInService, State: muster.NodeDecommissioned})
		return in
	}
	for _, c := range []struct {
		w     muster.WhatIf
		check func(in *planner.Input) bool
	}{
		{muster.WhatIf{}, func(in *planner.Input) bool { return in.Nodes[0].Policy == muster.PolicyInService }},
		{muster.WhatIf{Event: "expunge", Node: "n2"}, func(in *planner.Input) bool {
			return in.Nodes[1].Policy == muster.PolicyExpunged && in.Nodes[1].Disks[0].Policy == muster.DiskPolicyExpunged
		}},
		{muster.WhatIf{Event: "graceful_remove", Node: "n1"}, func(in *planner.Input) bool { return in.Nodes[0].Policy == muster.PolicyGracefulRemove }},
		{muster.WhatIf{Event: "quiesce", Node: "n1"}, func(in *planner.Input) bool { return in.Nodes[0].Policy == muster.PolicyQuiesce }},
		{muster.WhatIf{Event: "no_provision", Node: "n1"}, func(in *planner.Input) bool { return in.Nodes[0].Policy == muster.PolicyNoProvision }},
		{muster.WhatIf{Event: "resume", Node: "n1"}, func(in *planner.Input) bool { return in.Nodes[0].Policy == muster.PolicyInService }},
		{muster.WhatIf{Event: "expunge", Disk: "n2d1"}, func(in *planner.Input) bool {
			return in.Nodes[1].Disks[0].Policy == muster.DiskPolicyExpunged && in.Nodes[1].Policy == muster.PolicyInService
		}},
		{muster.WhatIf{Event: "graceful_remove", Disk: "n1d1"}, func(in *planner.Input) bool { return in.Nodes[0].Disks[0].Policy == muster.DiskPolicyGracefulRemove }},
		{muster.WhatIf{RemoveModule: "web"}, func(in *planner.Input) bool { return len(in.Modules) == 0 }},
		{muster.WhatIf{AddModule: web(0, "one")}, func(in *planner.Input) bool { return len(in.Modules) == 1 && in.Modules[0].Version == 1 }},
		{muster.WhatIf{AddModule: web(0, "two")}, func(in *planner.Input) bool { return len(in.Modules) == 1 && in.Modules[0].Version == 2 }},
		{muster.WhatIf{AddModule: web(9, "two")}, func(in *planner.Input) bool { return len(in.Modules) == 1 && in.Modules[0].Version == 9 }},
	} {
		in := input()
		modules, disks := in.Modules, in.Nodes[1].Disks
		if err := planner.Assume(&in, c.w); err != nil || !c.check(&in) {
			t.Errorf("%+v: %v, and the input is %+v", c.w, err, in)
		}
		if modules[0].Version != 1 || disks[0].Policy != muster.DiskPolicyInService {
			t.Errorf("%+v: what others hold was written to", c.w)
		}
		planner.Plan(in)
	}
	bad := web(0, "x")
	bad.Resources = nil
	for _, c := range []struct {
		w    muster.WhatIf
		code muster.Code
		want string
	}{
		{muster.WhatIf{Event: "expunge"}, muster.CodeInvalid, "which node or disk"},
		{muster.WhatIf{Event: "expunge", Node: "n9"}, muster.CodeNotFound, `no node "n9"`},
		{muster.WhatIf{Event: "expunge", Node: "n3"}, muster.CodeConflict, "nothing becomes of it any more"},
		{muster.WhatIf{Event: "explode", Node: "n1"}, muster.CodeInvalid, `"explode" of a node cannot be assumed`},
		{muster.WhatIf{Event: "quiesce", Disk: "n1d1"}, muster.CodeInvalid, `"quiesce" of a disk cannot be assumed`},
		{muster.WhatIf{Event: "expunge", Disk: "d9"}, muster.CodeNotFound, `no disk "d9"`},
		{muster.WhatIf{RemoveModule: "db"}, muster.CodeNotFound, `no version of module "db" is wanted`},
		{muster.WhatIf{AddModule: bad}, muster.CodeInvalid, "must be a list of resources"},
	} {
		in := input()
		if err := planner.Assume(&in, c.w); !muster.IsCode(err, c.code) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s: %s", c.w, err, c.code, c.want)
		}
	}
}
