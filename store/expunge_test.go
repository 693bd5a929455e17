package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

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
