package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster.internal"
	"muster.internal/lifecycle"
)

// lookAt is the machine as the rows see it, and its boot records.
func lookAt(t testing.TB, s *Store, uuid string) (st lifecycle.State, m *machine) {
	t.Helper()
	if err := s.snapshot(t.Context(), "looking", func(r *reading) (err error) {
		m, err = findMachine(r, uuid)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return m.look(), m
}

// rowsSay compares the stored machine with what the rows make of before.
func rowsSay(t testing.TB, s *Store, before lifecycle.State, uuid string, f lifecycle.Facts, events ...muster.Event) {
	t.Helper()
	want := before
	for _, e := range events {
		var err error
		if want, err = lifecycle.Apply(want, e, -1, f); err != nil {
			t.Fatalf("%s: %v", e, err)
		}
	}
	have, _ := lookAt(t, s, uuid)
	// Which disks a plan names is not the rows' to say.
	for _, st := range []*lifecycle.State{&want, &have} {
		for i := range st.Disks {
			st.Disks[i].Planned = false
		}
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("after %v (-rows +stored):\n%s", events, diff)
	}
	healthy(t, s)
}

var nothing = lifecycle.Facts{NothingPlaced: true, NoReservation: true, NoMove: true, Acknowledged: true, EnrollmentPI: true, Inventory: true, NothingRuns: true}

// member brings a machine to approved, refreshed, with its node in service.
func member(t testing.TB, s *Store, b box, now time.Time) kept {
	t.Helper()
	awaiting(t, s, b, now)
	k := install(t, s, b, now)
	c := must[muster.Caller](t)(s.Authenticate(t.Context(), now, k.APIKey, ""))
	must[muster.Registration](t)(s.Refresh(t.Context(), now, c, muster.RefreshRequest{Epoch: 1, Sysinfo: b.sysinfo(), Version: "1"}))
	if _, m := lookAt(t, s, b.uuid); m.node.State != muster.NodeInService {
		t.Fatalf("node: %+v", m.node)
	}
	return k
}

func (s *Store) mustTick(t testing.TB, now time.Time) {
	t.Helper()
	if _, err := s.Expire(t.Context(), now); err != nil {
		t.Fatal(err)
	}
}

// place writes a placement as the planner will.
func place(t testing.TB, s *Store, node, id, kind, state string) {
	t.Helper()
	meddle(t, s, fmt.Sprintf("INSERT INTO placements (placement_id, node_id, disk_id, module, kind, state, created_at, seq) VALUES ('%s', '%s', '', 'web', '%s', '%s', 1, 1)", id, node, kind, state))
}

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
			{"a service is placed", "INSERT INTO placements VALUES ('p1', '" + m.node.ID + "', '', 'web', 'service', 'placed', 1, 1)", "DELETE FROM placements",
				"its node still holds placements: move them away or remove them, or expunge the node", "web (p1)"},
			{"a service is moving", "INSERT INTO placements VALUES ('p1', '" + m.node.ID + "', '', 'web', 'service', 'moving', 1, 1)", "DELETE FROM placements", "still holds placements", "web (p1)"},
			{"a reservation is in flight", "INSERT INTO placements VALUES ('p2', '" + m.node.ID + "', '', 'db', 'service', 'reserved', 1, 1)", "DELETE FROM placements",
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

// TestExpunge: one transaction, and nothing anonymous comes back.
func TestExpunge(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b := boxNo(1)
		k := member(t, s, b, start)
		before, m := lookAt(t, s, b.uuid)
		place(t, s, m.node.ID, "p1", "service", "placed")
		must[muster.RootPasswordSet](t)(s.SetRootPassword(ctx, start, ada, b.uuid, muster.RootPassword{Password: "a root password"}))
		for _, name := range []string{"b1", "b2", "b3"} {
			if err := s.ReportBooter(ctx, start, booterCaller, muster.BooterStatus{Booter: name}); err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.ExpungeNode(ctx, start, ada, m.node.ID, muster.Expunge{Confirm: "another", Reason: "gone"})
		wantCode(t, err, muster.CodeInvalid)
		_, err = s.ExpungeNode(ctx, start, ada, "no-such-node", muster.Expunge{Confirm: b.serial, Reason: "gone"})
		wantCode(t, err, muster.CodeNotFound)
		d := must[muster.NodeDetail](t)(s.ExpungeNode(ctx, start, ada, m.node.ID, muster.Expunge{Confirm: b.serial, Reason: "stolen"}))
		rowsSay(t, s, before, b.uuid, nothing, lifecycle.Expunge)
		if d.Policy != muster.PolicyExpunged || d.Expunged == nil || d.Expunged.Reason != "stolen" || d.Placements[0].State != muster.PlacementLost {
			t.Errorf("expunged: %+v", d)
		}
		if es := must[[]muster.AuditEntry](t)(s.Audit(ctx, muster.AuditFilter{Subject: "placement/p1"})); len(es) != 1 || es[0].Action != "lost_placement" {
			t.Errorf("the lost placement's events: %+v", es)
		}

		// Two of three booters follow.
		s.Followed(start, "b1", d.Expunged.Seq)
		s.Followed(start, "b3", d.Expunged.Seq+1)
		s.Followed(start, "b2", d.Expunged.Seq-1)
		if err := s.FlushSeen(ctx, start); err != nil {
			t.Fatal(err)
		}
		d = must[muster.NodeDetail](t)(s.Node(ctx, m.node.ID))
		var confirmed []bool
		for _, c := range d.Expunged.Booters {
			confirmed = append(confirmed, c.Confirmed)
		}
		if !slices.Equal(confirmed, []bool{true, false, true}) {
			t.Errorf("booters: %+v", d.Expunged.Booters)
		}

		refused := func(when string, registered bool) {
			t.Helper()
			_, err := s.Authenticate(ctx, start, k.APIKey, "")
			wantCode(t, err, muster.CodeGone)
			if p := err.(*muster.Problem); p.Type != muster.TypeExpunged || p.Status != 410 {
				t.Errorf("%s: %+v", when, p)
			}
			wrong := k.APIKey[:len(k.APIKey)-4] + "AAAA"
			_, err = s.Authenticate(ctx, start, wrong, "")
			wantCode(t, err, muster.CodeUnauthenticated)
			for what, f := range map[string]func() error{
				"register": func() error { _, err := s.Register(ctx, start, nobody, b.request()); return err },
				"announce": func() error { _, err := s.Announce(ctx, start, booterCaller, b.announcement("s9")); return err },
			} {
				if err := f(); !muster.IsCode(err, muster.CodeConflict) || !strings.Contains(err.Error(), "an operator must readmit it first") {
					t.Errorf("%s, %s: %v", when, what, err)
				}
			}
			rec := must[[]muster.BootRecord](t)(s.Sight(ctx, start, booterCaller, "b1", []muster.Sighting{{MAC: b.mac, At: start}}))
			if rec[0].State != muster.BootDecommissioned {
				t.Errorf("%s: its record is %s", when, rec[0].State)
			}
			if registered {
				_, err = s.RaiseBootRecord(ctx, start, ada, b.mac, lifecycle.Reactivate)
				wantCode(t, err, muster.CodeConflict)
				_, err = s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.FactoryReset)
				wantCode(t, err, muster.CodeConflict)
			}
		}
		refused("expunged", true)
		_, err = s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.Readmit) // its node is still there
		wantCode(t, err, muster.CodeConflict)
		_, err = s.RaiseNode(ctx, start, ada, m.node.ID, lifecycle.Resume)
		wantCode(t, err, muster.CodeConflict)
		at, _ := lookAt(t, s, b.uuid)
		s.mustTick(t, start)
		rowsSay(t, s, at, b.uuid, nothing, lifecycle.DecommissionNode)
		refused("decommissioned", true)
		if err := s.DeleteRegistration(ctx, start, ada, b.uuid); err != nil {
			t.Fatal(err)
		}
		refused("deleted", false)
		must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.Readmit))
		must[muster.RegisterReply](t)(s.Register(ctx, start, nobody, b.request()))
		_, err = s.Authenticate(ctx, start, k.APIKey, "") // for ever
		wantCode(t, err, muster.CodeGone)
		healthy(t, s)
	})
}

// TestExpungedAgain: a repetition of the same words succeeds and writes
// nothing; with another reason it is told who was first, and why.
func TestExpungedAgain(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b := boxNo(1)
		member(t, s, b, start)
		_, m := lookAt(t, s, b.uuid)
		_, err := s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.Readmit)
		wantCode(t, err, muster.CodeConflict)
		if !strings.Contains(err.Error(), "is not expunged") {
			t.Error(err)
		}
		expunge := func(reason string) error {
			_, err := s.ExpungeNode(ctx, start.Add(time.Hour), ada, m.node.ID, muster.Expunge{Confirm: b.uuid, Reason: reason})
			return err
		}
		wantCode(t, expunge(""), muster.CodeInvalid)
		wantCode(t, expunge(" \t"), muster.CodeInvalid)
		must[muster.NodeDetail](t)(s.ExpungeNode(ctx, start, ada, m.node.ID, muster.Expunge{Confirm: b.uuid, Reason: "stolen"}))
		head := must[int64](t)(s.Head(ctx))
		if err := expunge("stolen"); err != nil {
			t.Errorf("again: %v", err)
		}
		err = expunge("sold")
		wantCode(t, err, muster.CodeConflict)
		for _, part := range []string{"node " + m.node.ID, "already", start.UTC().Format(time.RFC3339), ada.String(), "stolen", "nothing was changed"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q is not in: %v", part, err)
			}
		}
		if d := must[muster.NodeDetail](t)(s.Node(ctx, m.node.ID)); d.Expunged.Reason != "stolen" || !d.Expunged.At.Equal(start) {
			t.Errorf("its tombstone: %+v", d.Expunged)
		}
		if now := must[int64](t)(s.Head(ctx)); now != head {
			t.Errorf("repetitions wrote %d entries", now-head)
		}
		healthy(t, s)
	})
}

// TestDisabledThenExpunged: the key that died when the machine was disabled is
// known as an expunged one's afterwards.
func TestDisabledThenExpunged(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b := boxNo(1)
		k := member(t, s, b, start)
		_, m := lookAt(t, s, b.uuid)
		before, _ := lookAt(t, s, b.uuid)
		must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.Disable))
		rowsSay(t, s, before, b.uuid, nothing, lifecycle.Disable)
		_, err := s.Authenticate(ctx, start, k.APIKey, "")
		wantCode(t, err, muster.CodeUnauthenticated)
		must[muster.NodeDetail](t)(s.ExpungeNode(ctx, start, ada, m.node.ID, muster.Expunge{Confirm: b.uuid, Reason: "gone"}))
		_, err = s.Authenticate(ctx, start, k.APIKey, "")
		wantCode(t, err, muster.CodeGone)
		healthy(t, s)
	})
}

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
