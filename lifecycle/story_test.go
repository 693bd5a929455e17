package lifecycle

import (
	"errors"
	"testing"

	"muster.internal"
)

// TestFirstLife tells the life that most machines have, from the first request
// on the wire to the approved node.
func TestFirstLife(t *testing.T) {
	s := State{Boots: []Boot{{}}, Disks: []Disk{{Planned: true}, {}}}
	step := func(e muster.Event, m int) {
		t.Helper()
		next, err := Apply(s, e, m, everything)
		if err != nil {
			t.Fatal(err)
		}
		s = next
	}
	step(Sight, 0)
	step(Admit, 0)
	step(Announce, -1)
	step(Survey, -1)
	step(ApproveSetup, -1)
	step(Take, -1)
	step(SetupComplete, -1)
	step(Refresh, -1)
	step(Confirm, -1)
	want := State{
		Registration: muster.Approved, Credential: Live, Image: Assigned, Machine: muster.MachineKnown,
		NodePolicy: muster.PolicyInService, NodeState: muster.NodeInService,
		Boots: []Boot{{State: muster.Enrolled, Bound: BoundHere, Address: AddressReserved, Assigned: Assigned}},
		Disks: []Disk{{muster.DiskPolicyInService, muster.DiskInService, true}, {}},
	}
	if !s.Equal(want) {
		t.Errorf("came to\n%+v, want\n%+v", s, want)
	}

	_, err := Apply(s, Delete, -1, everything)
	var r *Refusal
	if !errors.As(err, &r) {
		t.Fatal(err)
	}
	p := r.Problem()
	if p.Status != 409 || p.State != "approved" || p.Detail != "cannot delete this machine: the registration is approved" || p.Allowed[0] != "disable" {
		t.Errorf("%+v", p)
	}
}

// TestApplyLeavesTheOldStateAlone: callers compare before and after.
func TestApplyLeavesTheOldStateAlone(t *testing.T) {
	old := State{
		Registration: muster.SettingUp, Credential: Live, Bundle: BundleTaken, Image: Assigned,
		Boots: []Boot{{State: muster.Enrolling, Address: AddressReserved}}, Disks: []Disk{{Planned: true}},
	}
	before := old.clone()
	next, err := Apply(old, SetupComplete, -1, everything)
	if err != nil || next.Equal(old) {
		t.Fatal(next, err)
	}
	if !old.Equal(before) {
		t.Errorf("Apply wrote into the old state: %+v", old)
	}
}
