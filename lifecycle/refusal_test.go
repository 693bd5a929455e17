package lifecycle

import (
	"errors"
	"strings"
	"testing"

	"muster.internal"
)

// TestRefusals shows what people read when something cannot happen now.
func TestRefusals(t *testing.T) {
	without := func(change func(*Facts)) Facts {
		f := everything
		change(&f)
		return f
	}
	for _, c := range []struct {
		name   string
		s      State
		e      muster.Event
		m      int
		f      Facts
		status int
		says   string
		state  string
		verbs  string
	}{
		{"a live machine is deleted",
			State{Registration: muster.Approved, Credential: Live, NodePolicy: muster.PolicyInService, NodeState: muster.NodeInService}, Delete, -1, everything,
			409, "cannot delete M: the registration is approved", "approved", "disable factory-reset"},
		{"an approval is replayed",
			State{Registration: muster.SettingUp, Credential: Reserved, Bundle: BundleReady}, ApproveSetup, -1, everything,
			409, "cannot approve-setup M: the registration is setting_up", "setting_up", "cancel-setup"},
		{"the machine went away, and its disks changed",
			State{Registration: muster.AwaitingSetup}, ApproveSetup, -1, without(func(f *Facts) { f.SessionAlive, f.PlanSeen = false, false }),
			409, "cannot approve-setup M: the machine is not connected to the boot bus any more; the disks are not those that the operator saw: plan again", "awaiting_setup", "approve-setup delete"},
		{"a wrong serial",
			State{Registration: muster.AwaitingSetup}, ApproveSetup, -1, without(func(f *Facts) { f.Confirmed = false }),
			400, "the request is not valid; confirm: this is not the machine's serial number", "", ""},
		{"a bundle for an old epoch",
			State{Registration: muster.SettingUp, Credential: Reserved, Bundle: BundleReady}, Take, -1, without(func(f *Facts) { f.Epoch = false }),
			409, "cannot take M: the setup epoch is not that of the approval", "setting_up", ""},
		{"a bundle twice",
			State{Registration: muster.SettingUp, Credential: Live, Bundle: BundleTaken}, Take, -1, everything,
			409, "cannot take M: the bundle has been taken", "setting_up", ""},
		{"a refresh before the bundle was taken",
			State{Registration: muster.SettingUp, Credential: Reserved, Bundle: BundleReady}, Refresh, -1, everything,
			409, "cannot refresh M: the bundle has not been taken", "setting_up", ""},
		{"a stranger registers as a live machine",
			State{Registration: muster.Approved, Credential: Live}, Register, -1, everything,
			409, "cannot register M: the registration is approved", "approved", ""},
		{"an expunged machine registers",
			State{Registration: muster.Disabled, Tombstone: Tombstoned}, Register, -1, everything,
			409, "cannot register M: it was expunged: an operator must readmit it first", "disabled", ""},
		{"a full network",
			State{Boots: []Boot{{State: muster.Discovered}}}, Admit, 0, without(func(f *Facts) { f.AddressFree = false }),
			409, "cannot admit M: its network has no free address left", "discovered", ""},
		{"enrolling what was decommissioned",
			State{Boots: []Boot{{State: muster.BootDecommissioned}}}, Enroll, 0, everything,
			409, "cannot enroll M: the boot record is decommissioned", "decommissioned", "set reactivate"},
		{"taking an enrolled record's image away",
			State{Boots: []Boot{{State: muster.Enrolled, Bound: BoundHere, Address: AddressReserved, Assigned: Assigned}}}, Unpin, 0, everything,
			409, "cannot set M: an enrolled record needs its image: set another one, or decommission the record", "assigned", "set decommission"},
	} {
		_, err := Apply(c.s, c.e, c.m, c.f)
		var r *Refusal
		if !errors.As(err, &r) {
			t.Errorf("%s: %v, not a refusal", c.name, err)
			continue
		}
		r.Subject = "M"
		p := r.Problem()
		if p.Status != c.status || p.State != c.state || strings.Join(p.Allowed, " ") != c.verbs {
			t.Errorf("%s: %d %q allowed %q, want %d %q %q", c.name, p.Status, p.State, p.Allowed, c.status, c.state, c.verbs)
		}
		p.Allowed = nil
		if p.Error() != c.says {
			t.Errorf("%s: says\n%s, want\n%s", c.name, p.Error(), c.says)
		}
	}
}

// TestNoSuch: what does not exist is an error, not a refusal.
func TestNoSuch(t *testing.T) {
	for _, c := range []struct {
		e muster.Event
		m int
	}{{"explode", -1}, {Sight, -1}, {Sight, 1}, {Disable, 0}, {AdoptDisk, 0}} {
		_, err := Apply(State{Boots: []Boot{{}}}, c.e, c.m, everything)
		var r *Refusal
		if err == nil || errors.As(err, &r) {
			t.Errorf("%s %d: %v", c.e, c.m, err)
		}
	}
	if _, ok := Lookup("explode"); ok {
		t.Error("explode exists")
	}
	if i, ok := ByVerb(Registrations, "cancel-setup"); !ok || i.Event != CancelSetup {
		t.Error("cancel-setup:", i)
	}
	if _, ok := ByVerb(BootRecords, ""); ok {
		t.Error("an event without a verb has been found by it")
	}
}
