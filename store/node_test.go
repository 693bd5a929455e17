package store

import (
	"testing"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

// TestNodeVerbs: what an operator wants becomes true by the clock.
func TestNodeVerbs(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b := boxNo(1)
		k := member(t, s, b, start)
		_, m := lookAt(t, s, b.uuid)
		id := m.node.ID
		is := func(p muster.NodePolicy, st muster.NodeState) {
			t.Helper()
			if d := must[muster.NodeDetail](t)(s.Node(ctx, id)); d.Policy != p || d.State != st {
				t.Fatalf("%s/%s, want %s/%s", d.Policy, d.State, p, st)
			}
		}
		raise := func(e muster.Event) {
			t.Helper()
			before, _ := lookAt(t, s, b.uuid)
			must[muster.Node](t)(s.RaiseNode(ctx, start, ada, id, e))
			rowsSay(t, s, before, b.uuid, nothing, e)
		}
		place(t, s, id, "p1", "service", "placed")
		raise(lifecycle.NoProvision)
		raise(lifecycle.Quiesce)
		s.mustTick(t, start)
		is(muster.PolicyQuiesce, muster.NodeInService) // something runs
		meddle(t, s, "UPDATE placements SET state = 'removed'")
		s.mustTick(t, start)
		is(muster.PolicyQuiesce, muster.NodeQuiesced)
		raise(lifecycle.Resume)
		s.mustTick(t, start)
		is(muster.PolicyInService, muster.NodeInService)
		place(t, s, id, "p2", "service", "reserved")
		raise(lifecycle.GracefulRemove)
		s.mustTick(t, start)
		is(muster.PolicyGracefulRemove, muster.NodeInService)
		raise(lifecycle.Resume) // taken back
		raise(lifecycle.GracefulRemove)
		meddle(t, s, "UPDATE placements SET state = 'removed'")
		before, _ := lookAt(t, s, b.uuid)
		s.mustTick(t, start)
		is(muster.PolicyGracefulRemove, muster.NodeDecommissioned)
		rowsSay(t, s, before, b.uuid, nothing, lifecycle.DecommissionNode)
		_, err := s.Authenticate(ctx, start, k.APIKey, "")
		wantCode(t, err, muster.CodeUnauthenticated)
		_, err = s.RaiseNode(ctx, start, ada, id, lifecycle.Resume)
		wantCode(t, err, muster.CodeConflict)
		head := must[int64](t)(s.Head(ctx))
		s.mustTick(t, start.Add(time.Hour))
		if now := must[int64](t)(s.Head(ctx)); now != head {
			t.Errorf("a clock with nothing to do wrote %d entries", now-head)
		}
	})
}

func TestDiskVerbs(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b := boxNo(1)
		member(t, s, b, start)
		_, m := lookAt(t, s, b.uuid)
		disks := must[muster.NodeDetail](t)(s.Node(ctx, m.node.ID)).Disks
		raise := func(e muster.Event, x *muster.Expunge, want muster.DiskPolicy) {
			t.Helper()
			if d := must[muster.NodeDisk](t)(s.RaiseDisk(ctx, start, ada, disks[0].ID, e, x)); d.Policy != want || d.State != muster.DiskInService {
				t.Errorf("%s: %+v", e, d)
			}
			healthy(t, s)
		}
		raise(lifecycle.RemoveDisk, nil, muster.DiskPolicyGracefulRemove)
		raise(lifecycle.KeepDisk, nil, muster.DiskPolicyInService)
		_, err := s.RaiseDisk(ctx, start, ada, disks[0].ID, lifecycle.ExpungeDisk, &muster.Expunge{Confirm: disks[1].Disk.Serial, Reason: "gone"})
		wantCode(t, err, muster.CodeInvalid)
		raise(lifecycle.ExpungeDisk, &muster.Expunge{Confirm: disks[0].Disk.Serial, Reason: "gone"}, muster.DiskPolicyExpunged)
		raise(lifecycle.ExpungeDisk, &muster.Expunge{Confirm: disks[0].ID, Reason: "gone"}, muster.DiskPolicyExpunged)
		for reason, code := range map[string]muster.Code{"": muster.CodeInvalid, " ": muster.CodeInvalid, "loud": muster.CodeConflict} {
			_, err = s.RaiseDisk(ctx, start, ada, disks[0].ID, lifecycle.ExpungeDisk, &muster.Expunge{Confirm: disks[0].ID, Reason: reason})
			wantCode(t, err, code)
		}
		_, err = s.RaiseDisk(ctx, start, ada, disks[0].ID, lifecycle.KeepDisk, nil)
		wantCode(t, err, muster.CodeConflict)
		_, err = s.RaiseDisk(ctx, start, ada, "none", lifecycle.KeepDisk, nil)
		wantCode(t, err, muster.CodeNotFound)
		if now := must[muster.NodeDetail](t)(s.Node(ctx, m.node.ID)).Disks; now[1].Policy != muster.DiskPolicyInService {
			t.Error("the other disk was touched")
		}
	})
}
