package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster.internal"
	"muster.internal/lifecycle"
)

func TestFactoryReset(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b, other := boxNo(1), boxNo(2)
		k := member(t, s, b, start)
		member(t, s, other, start)
		// Records of every kind that must stay as they are, and a second one of
		// the machine that is decommissioned.
		second := "52:54:00:00:99:01"
		must[muster.BootRecord](t)(s.RaiseBootRecord(ctx, start, ada, second, lifecycle.Enroll))
		must[muster.BootRecord](t)(s.RaiseBootRecord(ctx, start, ada, second, lifecycle.Decommission))
		meddle(t, s, "UPDATE boot_records SET server_uuid = '"+b.uuid+"' WHERE mac = '"+second+"'")
		must[muster.RootPasswordSet](t)(s.SetRootPassword(ctx, start, ada, b.uuid, muster.RootPassword{Password: "a root password"}))
		before, m := lookAt(t, s, b.uuid)
		place(t, s, m.node.ID, "p-base", "base", "placed")
		place(t, s, m.node.ID, "p-disk", "per_disk", "placed")
		records := must[[]muster.BootRecord](t)(s.BootRecords(ctx, muster.BootFilter{}))
		_, otherBefore := lookAt(t, s, other.uuid)

		r := must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.FactoryReset))
		rowsSay(t, s, before, b.uuid, nothing, lifecycle.FactoryReset)
		if r.State != muster.AwaitingSetup || r.ApprovedAt != nil || r.AssignedPI != nil || r.DiskLayout != nil || r.SetupDeadline != nil ||
			r.OperationID != "" || r.BoundKeyID != "" || r.NodeID != "" || r.SurveyedAt != nil || r.RootPassword != nil {
			t.Errorf("something of the setup is left: %+v", r)
		}
		if g := must[Ground](t)(s.SetupGround(ctx, b.uuid)); g.Registration.Away == "" {
			t.Error("nobody is told that it must announce itself before it can be approved")
		}
		_, err := s.Authenticate(ctx, start, k.APIKey, "")
		wantCode(t, err, muster.CodeUnauthenticated)
		_, err = s.TicketKey(ctx, start, ada, b.uuid, muster.TicketConsole)
		wantCode(t, err, muster.CodeConflict)

		for i, now := range must[[]muster.BootRecord](t)(s.BootRecords(ctx, muster.BootFilter{})) {
			want := records[i]
			if want.MAC == b.mac {
				want.State, want.AssignedPI, want.Seq = muster.Enrolling, nil, now.Seq
			}
			if diff := cmp.Diff(want, now); diff != "" {
				t.Errorf("record %s (-want +have):\n%s", want.MAC, diff)
			}
		}
		if _, after := lookAt(t, s, other.uuid); after.node.State != otherBefore.node.State || after.node.Policy != otherBefore.node.Policy || after.reg.seq != otherBefore.reg.seq {
			t.Error("another machine was touched")
		}
		d := must[muster.NodeDetail](t)(s.Node(ctx, m.node.ID))
		if d.State != muster.NodeDecommissioned || len(d.Disks) != 2 || d.Disks[0].State != muster.DiskDecommissioned || d.Disks[1].State != muster.DiskDecommissioned || len(d.Placements) != 0 {
			t.Errorf("its node: %+v", d)
		}
		seq := must[int64](t)(s.Head(ctx))
		_, err = s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.FactoryReset) // it awaits its setup
		wantCode(t, err, muster.CodeConflict)
		if now := must[int64](t)(s.Head(ctx)); now != seq {
			t.Errorf("a refused reset wrote %d entries", now-seq)
		}
		// It comes back as a new node.
		later := start.Add(time.Hour)
		a := b.announcement("s2")
		must[muster.Announced](t)(s.Announce(ctx, later, booterCaller, a))
		if err := s.Survey(ctx, later, booterCaller, b.uuid, muster.Survey{Session: "s2", Disks: b.disks()}); err != nil {
			t.Fatal(err)
		}
		g := must[muster.SetupGrant](t)(s.ApproveSetup(ctx, later, ada, b.uuid, approval(t, s, b, later)))
		if g.Epoch != 2 {
			t.Errorf("epoch %d: one that was used is never used again", g.Epoch)
		}
		must[muster.TakenBundle](t)(s.TakeBundle(ctx, later, booterCaller, b.uuid, muster.TakeRequest{Epoch: g.Epoch, Session: "s2"}, k.seal))
		if err := s.SetupComplete(ctx, later, booterCaller, b.uuid, muster.SetupOutcome{Epoch: g.Epoch, Proof: k.proof(b, g.Epoch), MACs: []string{b.mac}}); err != nil {
			t.Fatal(err)
		}
		if _, again := lookAt(t, s, b.uuid); again.node.ID == m.node.ID || again.node.State != muster.NodeInitializing {
			t.Errorf("it came back as %+v", again.node)
		}
		healthy(t, s)
	})
}

// TestFactoryResetRefusals: each reason alone, named, with its way out.
func TestFactoryResetRefusals(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b, other := boxNo(1), boxNo(2)
		member(t, s, b, start)
		member(t, s, other, start)
		before, m := lookAt(t, s, b.uuid)
		_, o := lookAt(t, s, other.uuid)
		for _, c := range []struct{ name, write, undo, says, names string }{
			{"a service is placed", "INSERT INTO placements (placement_id, node_id, disk_id, module, kind, state, created_at, seq) VALUES ('p1', '" + m.node.ID + "', '', 'web', 'service', 'placed', 1, 1)", "DELETE FROM placements",
				"its node still holds placements: move them away or remove them, or expunge the node", "web (p1)"},
			{"a service is moving", "INSERT INTO placements (placement_id, node_id, disk_id, module, kind, state, created_at, seq) VALUES ('p1', '" + m.node.ID + "', '', 'web', 'service', 'moving', 1, 1)", "DELETE FROM placements", "still holds placements", "web (p1)"},
			{"a reservation is in flight", "INSERT INTO placements (placement_id, node_id, disk_id, module, kind, state, created_at, seq) VALUES ('p2', '" + m.node.ID + "', '', 'db', 'service', 'reserved', 1, 1)", "DELETE FROM placements",
				"about to land there: wait until it has, or withdraw it", "db (p2)"},
			{"it is the source of a move", "INSERT INTO moves VALUES ('m1', 'p3', '" + m.node.ID + "', '" + o.node.ID + "', '', 1, NULL)", "DELETE FROM moves",
				"an unfinished move names its node: let the move end, or cancel it", "m1"},
			{"it is the target of a move", "INSERT INTO moves VALUES ('m2', 'p3', '" + o.node.ID + "', '" + m.node.ID + "', '', 1, NULL)", "DELETE FROM moves", "an unfinished move", "m2"},
			{"something foreign runs", "INSERT INTO foreign_workloads VALUES ('" + b.uuid + "', 'vm', 'theirs', 1, NULL, '')", "DELETE FROM foreign_workloads",
				"acknowledge them (muster node acknowledge-foreign)", "vm theirs"},
			{"no enrollment image is set", "", "", "the boot policy has no enrollment image", ""},
			{"the enrollment image is unknown", "UPDATE images SET digest = 'sha256:else' WHERE name = 'enroll'", "UPDATE images SET digest = '" + digestNo(1) + "' WHERE name = 'enroll'",
				"the boot policy has no enrollment image", ""},
		} {
			if c.write == "" {
				p := testPolicy()
				p.EnrollmentPI = nil
				must[muster.BootPolicy](t)(s.SetBootPolicy(ctx, start, ada, p))
			} else {
				meddle(t, s, c.write)
			}
			_, err := s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.FactoryReset)
			wantCode(t, err, muster.CodeConflict)
			if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.names) {
				t.Errorf("%s: says\n%v", c.name, err)
			}
			if n := strings.Count(err.Error(), "; "); c.names != "" && n != 1 {
				t.Errorf("%s: more than one reason: %v", c.name, err)
			}
			if c.write == "" {
				must[muster.BootPolicy](t)(s.SetBootPolicy(ctx, start, ada, testPolicy()))
			} else {
				meddle(t, s, c.undo)
			}
			if now, _ := lookAt(t, s, b.uuid); !now.Equal(before) {
				t.Errorf("%s: refused, and changed all the same", c.name)
			}
		}
		// What does not stand in the way: what came with the node, what is over,
		// and what an operator has acknowledged.
		place(t, s, m.node.ID, "p-base", "base", "placed")
		place(t, s, m.node.ID, "p-node", "per_node", "reserved")
		place(t, s, m.node.ID, "p-old", "service", "removed")
		place(t, s, m.node.ID, "p-lost", "service", "lost")
		place(t, s, o.node.ID, "p-other", "service", "placed")
		meddle(t, s, "INSERT INTO moves VALUES ('m3', 'p-old', '"+m.node.ID+"', '"+o.node.ID+"', 'done', 1, 2)")
		meddle(t, s, "INSERT INTO foreign_workloads VALUES ('"+b.uuid+"', 'vm', 'theirs', 1, NULL, '')")
		d := must[muster.NodeDetail](t)(s.AcknowledgeForeign(ctx, start, ada, m.node.ID))
		if len(d.Foreign) != 1 || d.Foreign[0].AcknowledgedBy != "operator:ada" {
			t.Errorf("acknowledged: %+v", d.Foreign)
		}
		must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.FactoryReset))
		rowsSay(t, s, before, b.uuid, nothing, lifecycle.FactoryReset)
	})
}

// TestDelete by its contract.
func TestDelete(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b := boxNo(1)
		if err := s.DeleteRegistration(ctx, start, ada, b.uuid); err != nil {
			t.Errorf("deleting what is absent: %v", err)
		}
		k := member(t, s, b, start)
		_, m := lookAt(t, s, b.uuid)
		err := s.DeleteRegistration(ctx, start, ada, b.uuid)
		wantCode(t, err, muster.CodeConflict)
		if p := err.(*muster.Problem); p.State != "approved" || !slices.Contains(p.Allowed, "disable") {
			t.Errorf("refusal: %+v", p)
		}
		must[muster.RootPasswordSet](t)(s.SetRootPassword(ctx, start, ada, b.uuid, muster.RootPassword{Password: "a root password"}))
		place(t, s, m.node.ID, "p-base", "base", "placed")
		place(t, s, m.node.ID, "p1", "service", "placed")
		meddle(t, s, "INSERT INTO foreign_workloads VALUES ('"+b.uuid+"', 'vm', 'theirs', 1, NULL, '')")
		meddle(t, s, "INSERT INTO moves VALUES ('m1', 'p1', '"+m.node.ID+"', 'n2', 'failed', 1, 2)")
		must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.Disable))
		err = s.DeleteRegistration(ctx, start, ada, b.uuid)
		wantCode(t, err, muster.CodeConflict)
		if !strings.Contains(err.Error(), "web (p1)") || !strings.Contains(err.Error(), "expunge the node") {
			t.Errorf("says %v", err)
		}
		meddle(t, s, "DELETE FROM placements WHERE placement_id = 'p1'")
		before, _ := lookAt(t, s, b.uuid)
		for range 2 {
			if err := s.DeleteRegistration(ctx, start, ada, b.uuid); err != nil {
				t.Fatal(err)
			}
		}
		_, err = s.Registration(ctx, b.uuid)
		wantCode(t, err, muster.CodeNotFound)
		_, err = s.Authenticate(ctx, start, k.APIKey, "")
		wantCode(t, err, muster.CodeUnauthenticated)
		text := dump(t, behind(t, s))
		for _, table := range []string{"sysinfos", "ticket_keys", "root_passwords", "foreign_workloads", "dead_keys"} {
			if strings.Contains(text, "\n"+table+" ") {
				t.Errorf("%s has a row left", table)
			}
		}
		if !strings.Contains(text, "m1") || !strings.Contains(text, "p-base") {
			t.Error("the move's record, or the placement's, is gone")
		}
		// What was kept is found by the dead UUID.
		es := must[[]muster.AuditEntry](t)(s.Audit(ctx, muster.AuditFilter{Subject: "registration/" + b.uuid}))
		if n := len(es); n == 0 || es[n-1].Action != "delete" {
			t.Errorf("audit of the dead: %+v", es)
		}
		rec := must[muster.BootRecord](t)(s.BootRecord(ctx, b.mac))
		if rec.State != muster.BootDecommissioned || rec.Address == "" {
			t.Errorf("its record: %+v", rec)
		}
		want, err := lifecycle.Apply(before, lifecycle.Delete, -1, nothing)
		if err != nil || want.NodeState != muster.NodeDecommissioned {
			t.Fatal(want, err)
		}
		if d := must[muster.NodeDetail](t)(s.Node(ctx, m.node.ID)); d.State != want.NodeState || d.Policy != want.NodePolicy {
			t.Errorf("its node: %+v", d)
		}
		healthy(t, s)
	})
}
