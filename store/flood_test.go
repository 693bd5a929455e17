package store

import (
	"fmt"
	"testing"

	"muster.internal"
	"muster.internal/lifecycle"
)

// TestAFloodLeavesRoom: made-up cards take neither the last addresses of a
// network nor a machine's own, and all of it ends by itself.
func TestAFloodLeavesRoom(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		real := boxNo(0)
		awaiting(t, s, real, start)
		had := must[muster.BootRecord](t)(s.BootRecord(ctx, real.mac)).Address
		var flood []muster.Sighting
		for i := range 400 {
			flood = append(flood, muster.Sighting{MAC: boxNo(1000 + i).mac, At: start})
		}
		must[[]muster.BootRecord](t)(s.Sight(ctx, start, booterCaller, "b1", flood))
		u := must[[]muster.NetworkUsage](t)(s.NetworkUsage(ctx))[0]
		if u.Free == 0 || u.Unannounced != u.UnannouncedCap || u.Used != u.Unannounced+1 {
			t.Fatalf("after the flood: %+v", u)
		}
		wanted := boxNo(1).mac
		if r := must[muster.BootRecord](t)(s.RaiseBootRecord(ctx, start, ada, wanted, lifecycle.Enroll)); r.Address == "" || r.State != muster.Enrolling {
			t.Fatalf("an operator's enroll: %+v", r)
		}
		if r := must[muster.BootRecord](t)(s.BootRecord(ctx, real.mac)); r.Address != had || r.State != muster.Enrolling {
			t.Errorf("the real machine's record became %+v", r)
		}
		healthy(t, s)
		if _, err := s.Expire(ctx, start.Add(lifecycle.LapseDeadline-1)); err != nil {
			t.Fatal(err)
		}
		if u := must[[]muster.NetworkUsage](t)(s.NetworkUsage(ctx))[0]; u.Used != 2 || u.Unannounced != 0 {
			t.Errorf("after its time: %+v", u)
		}
		healthy(t, s)
	})
}

// TestOneCardWithEverNewUUIDs leaves a bounded number of newcomers, and none of
// them changes the machine whose card it is.
func TestOneCardWithEverNewUUIDs(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		real := boxNo(0)
		awaiting(t, s, real, start)
		for i := range 40 {
			liar := box{uuid: fmt.Sprintf("5c4c4544-0000-4000-8000-%012x", i), mac: real.mac, serial: fmt.Sprintf("LIE%04d", i)}
			_, err := s.Announce(ctx, start, booterCaller, liar.announcement("s2"))
			wantCode(t, err, muster.CodeConflict)
		}
		ms := must[[]muster.Machine](t)(s.Machines(ctx, muster.MachineFilter{}))
		if len(ms) != 1+newcomersOfMAC {
			t.Errorf("%d machines", len(ms))
		}
		if r := must[muster.Registration](t)(s.Registration(ctx, real.uuid)); r.State != muster.AwaitingSetup || r.Serial != real.serial || len(r.Conflicts) > conflictsKept {
			t.Errorf("the machine became %+v", r)
		}
		healthy(t, s)
		if _, err := s.Expire(ctx, start.Add(lifecycle.ConflictDeadline)); err != nil {
			t.Fatal(err)
		}
		if ms := must[[]muster.Machine](t)(s.Machines(ctx, muster.MachineFilter{})); len(ms) != 1 {
			t.Errorf("after their time %d machines are left", len(ms))
		}
		healthy(t, s)
	})
}
