package store

import (
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

var scheduler = muster.Caller{KeyID: "kube", Scope: muster.ScopeFull}

// claimed is a store with one node and a claim of another scheduler on it.
func claimed(t *testing.T, s *Store) (node string, c muster.Claim) {
	t.Helper()
	site(t, s)
	member(t, s, boxNo(1), start)
	_, m := lookAt(t, s, boxNo(1).uuid)
	return m.node.ID, must[muster.Claim](t)(s.AddClaim(t.Context(), start, scheduler, muster.NewClaim{NodeID: m.node.ID, Holder: "kubernetes/prod", Reason: "12 pods"}))
}

// TestClaims: a claim is its maker's; what it is on does not go before it is
// over, and its holder is told.
func TestClaims(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		node, c := claimed(t, s)
		if c.State != muster.ClaimHeld || c.Lease != 600 || !c.ExpiresAt.Equal(start.Add(10*time.Minute)) || c.MadeBy != "key:kube" {
			t.Errorf("%+v", c)
		}
		again := must[muster.Claim](t)(s.AddClaim(ctx, start.Add(time.Minute), scheduler, muster.NewClaim{NodeID: node, Holder: "kubernetes/prod", Lease: 60}))
		if again.ID != c.ID || again.Lease != 60 || !again.ExpiresAt.Equal(start.Add(2*time.Minute)) {
			t.Errorf("to claim again renews: %+v", again)
		}
		head := must[int64](t)(s.Head(ctx))
		renewed := must[muster.Claim](t)(s.RenewClaim(ctx, start.Add(2*time.Minute), scheduler, c.ID, muster.ClaimRenewal{Reason: "3 pods"}))
		if renewed.Lease != 60 || renewed.Reason != "3 pods" || !renewed.ExpiresAt.Equal(start.Add(3*time.Minute)) || must[int64](t)(s.Head(ctx)) != head {
			t.Errorf("a renewal is as long as the lease, and nobody's event: %+v", renewed)
		}
		for name, err := range map[string]error{
			"another's claim":  second(s.AddClaim(ctx, start, ada, muster.NewClaim{NodeID: node, Holder: "kubernetes/prod"})),
			"another renews":   second(s.RenewClaim(ctx, start, ada, c.ID, muster.ClaimRenewal{})),
			"another gives up": second(s.ReleaseClaim(ctx, start, ada, c.ID)),
		} {
			if !muster.IsCode(err, muster.CodeConflict) || !strings.Contains(err.Error(), "key:kube") || !strings.Contains(err.Error(), "claim break") {
				t.Errorf("%s: %v", name, err)
			}
		}
		must[muster.Claim](t)(s.AddClaim(ctx, start, ada, muster.NewClaim{NodeID: node, Holder: "nomad"})) // beside it
		if all := must[[]muster.Claim](t)(s.Claims(ctx, muster.ClaimFilter{Holder: "kubernetes/prod"})); len(all) != 1 || all[0].ID != c.ID {
			t.Errorf("%+v", all)
		}

		state := func(want muster.ClaimState, why string) {
			t.Helper()
			if c := must[muster.Claim](t)(s.Claim(ctx, c.ID)); c.State != want || !strings.Contains(c.Why, why) {
				t.Errorf("%+v, want %s: %s", c, want, why)
			}
		}
		raise := func(e muster.Event) {
			t.Helper()
			must[muster.Node](t)(s.RaiseNode(ctx, start, ada, node, e))
		}
		is := func(want muster.NodeState) {
			t.Helper()
			s.mustTick(t, start)
			if n := must[muster.NodeDetail](t)(s.Node(ctx, node)); n.State != want {
				t.Errorf("the node is %s, want %s", n.State, want)
			}
		}
		raise(lifecycle.NoProvision)
		state(muster.ClaimHeld, "")
		raise(lifecycle.Quiesce)
		state(muster.ClaimDraining, "quiesced")
		is(muster.NodeInService)
		raise(lifecycle.Resume)
		state(muster.ClaimHeld, "")
		raise(lifecycle.GracefulRemove)
		state(muster.ClaimDraining, "leave the fleet")
		is(muster.NodeInService)
		_, err := s.AddClaim(ctx, start, scheduler, muster.NewClaim{NodeID: node, Holder: "another"})
		wantCode(t, err, muster.CodeConflict) // what leaves takes no new one
		_, err = s.RaiseRegistration(ctx, start, ada, boxNo(1).uuid, lifecycle.FactoryReset)
		if !muster.IsCode(err, muster.CodeConflict) || !strings.Contains(err.Error(), "kubernetes/prod ("+c.ID+")") {
			t.Errorf("a factory reset waits, too: %v", err)
		}
		must[muster.Claim](t)(s.ReleaseClaim(ctx, start, scheduler, c.ID))
		is(muster.NodeInService) // there is another
		nomad := must[[]muster.Claim](t)(s.Claims(ctx, muster.ClaimFilter{}))[0]
		_, err = s.BreakClaim(ctx, start, ada, nomad.ID, " ")
		wantCode(t, err, muster.CodeInvalid)
		broken := must[muster.Claim](t)(s.BreakClaim(ctx, start, ada, nomad.ID, "its cluster burnt"))
		if broken.Ended != muster.ClaimBroken || broken.Why != "its cluster burnt" {
			t.Errorf("%+v", broken)
		}
		is(muster.NodeDecommissioned)
		_, err = s.RenewClaim(ctx, start, scheduler, c.ID, muster.ClaimRenewal{})
		wantCode(t, err, muster.CodeConflict)
		if again := must[muster.Claim](t)(s.ReleaseClaim(ctx, start, ada, c.ID)); again.Ended != muster.ClaimGivenUp {
			t.Errorf("%+v", again) // what is over can be said to be
		}
		if all := must[[]muster.Claim](t)(s.Claims(ctx, muster.ClaimFilter{NodeID: node, Ended: true})); len(all) != 2 {
			t.Errorf("what ended is kept: %+v", all)
		}
		healthy(t, s)
		must[Expired](t)(s.Expire(ctx, start.Add(doorKeep)))
		_, err = s.Claim(ctx, c.ID)
		wantCode(t, err, muster.CodeNotFound) // but not for ever
	})
}

// TestClaimsOfDisks: removing a disk, and its node, waits for a claim on it; an
// expunge of either does not, and says so.
func TestClaimsOfDisks(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		node, onNode := claimed(t, s)
		disk := must[muster.NodeDetail](t)(s.Node(ctx, node)).Disks[0].ID
		c := must[muster.Claim](t)(s.AddClaim(ctx, start, scheduler, muster.NewClaim{DiskID: disk, Holder: "ceph"}))
		if c.NodeID != node || c.DiskID != disk {
			t.Errorf("%+v", c)
		}
		if all := must[[]muster.NodeDisk](t)(s.Disks(ctx)); len(all) == 0 || all[0].ID != disk || len(all[0].Claims) != 1 || all[0].Claims[0].ID != c.ID {
			t.Errorf("%+v", all)
		}
		d := must[muster.NodeDisk](t)(s.RaiseDisk(ctx, start, ada, disk, lifecycle.RemoveDisk, nil))
		if len(d.Claims) != 1 || d.Claims[0].State != muster.ClaimDraining {
			t.Errorf("%+v", d)
		}
		_, err := s.AddClaim(ctx, start, scheduler, muster.NewClaim{DiskID: disk, Holder: "another"})
		wantCode(t, err, muster.CodeConflict)
		must[muster.NodeDisk](t)(s.RaiseDisk(ctx, start, ada, disk, lifecycle.KeepDisk, nil))
		must[muster.Node](t)(s.RaiseNode(ctx, start, ada, node, lifecycle.GracefulRemove))
		must[muster.Claim](t)(s.ReleaseClaim(ctx, start, scheduler, onNode.ID))
		s.mustTick(t, start)
		n := must[muster.NodeDetail](t)(s.Node(ctx, node))
		if n.State != muster.NodeInService || len(n.Claims) != 0 || len(n.Disks[0].Claims) != 1 || n.Disks[0].Claims[0].State != muster.ClaimDraining {
			t.Errorf("%+v", n)
		}
		d = must[muster.NodeDisk](t)(s.RaiseDisk(ctx, start, ada, disk, lifecycle.ExpungeDisk, &muster.Expunge{Confirm: disk, Reason: "burnt"}))
		if len(d.Claims) != 1 || d.Claims[0].Ended != muster.ClaimGone || !strings.Contains(d.Claims[0].Why, "waits for no claim") {
			t.Errorf("%+v", d)
		}
		healthy(t, s)
	})
}

func TestExpungeWaitsForNoClaim(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		node, c := claimed(t, s)
		d := must[muster.NodeDetail](t)(s.ExpungeNode(t.Context(), start, ada, node, muster.Expunge{Confirm: boxNo(1).uuid, Reason: "burnt"}))
		if len(d.Claims) != 1 || d.Claims[0].ID != c.ID || d.Claims[0].Ended != muster.ClaimGone {
			t.Errorf("%+v", d.Claims)
		}
		_, err := s.AddClaim(t.Context(), start, scheduler, muster.NewClaim{NodeID: node, Holder: "kubernetes/prod"})
		wantCode(t, err, muster.CodeConflict)
		healthy(t, s)
	})
}

// TestClaimsExpire: by the clock, as an event, and never before the holder had
// the chance to renew for a whole lease.
func TestClaimsExpire(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		_, c := claimed(t, s)
		look := func(after time.Duration) int {
			t.Helper()
			return must[Expired](t)(s.Expire(ctx, start.Add(after))).Claims
		}
		for at := time.Duration(0); at < 10*time.Minute; at += time.Minute {
			if look(at) != 0 {
				t.Fatalf("it is over after %s", at)
			}
		}
		// No control plane runs for an hour; then there is one again.
		for at := time.Hour; at < time.Hour+10*time.Minute; at += time.Minute {
			if look(at) != 0 {
				t.Fatalf("it is over %s after a restart, and is good for ten minutes", at-time.Hour)
			}
		}
		if look(70*time.Minute) != 1 {
			t.Fatal("it is not over")
		}
		if c = must[muster.Claim](t)(s.Claim(ctx, c.ID)); c.State != muster.ClaimReleased || c.Ended != muster.ClaimExpired {
			t.Errorf("%+v", c)
		}
		es := must[[]muster.AuditEntry](t)(s.Audit(ctx, muster.AuditFilter{Subject: "claim/" + c.ID}))
		if last := es[len(es)-1]; len(es) != 2 || last.Action != ActionClaimExpire || last.Actor != "clock" {
			t.Errorf("%+v", es)
		}
		healthy(t, s)
	})
}

func TestChance(t *testing.T) {
	var c chance
	for _, step := range []struct {
		at, since time.Duration
		fail      bool
	}{
		{at: 0, since: 0}, {at: time.Minute, since: 0}, {at: 2*time.Minute + time.Second, since: 2*time.Minute + time.Second},
		{at: 3 * time.Minute, since: 2*time.Minute + time.Second}, {fail: true}, {at: 3*time.Minute + time.Second, since: 3*time.Minute + time.Second},
		{at: time.Minute, since: time.Minute}, // the clock was set back
	} {
		if step.fail {
			c.fail()
		} else if got := c.look(start.Add(step.at)).Sub(start); got != step.since {
			t.Errorf("at %s: since %s, want %s", step.at, got, step.since)
		}
	}
}

// TestClaimsRefused: what is no claim.
func TestClaimsRefused(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		node, c := claimed(t, s)
		for name, n := range map[string]muster.NewClaim{
			"on nothing":    {Holder: "x"},
			"on both":       {NodeID: node, DiskID: "d", Holder: "x"},
			"of nobody":     {NodeID: node, Holder: "  "},
			"of two lines":  {NodeID: node, Holder: "a\nb"},
			"long":          {NodeID: node, Holder: strings.Repeat("x", 65)},
			"long reason":   {NodeID: node, Holder: "x", Reason: strings.Repeat("x", 513)},
			"too short":     {NodeID: node, Holder: "x", Lease: 9},
			"too long":      {NodeID: node, Holder: "x", Lease: 86401},
			"before it was": {NodeID: node, Holder: "x", Lease: -1},
		} {
			if _, err := s.AddClaim(t.Context(), start, scheduler, n); !muster.IsCode(err, muster.CodeInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, n := range []muster.NewClaim{{NodeID: "none", Holder: "x"}, {DiskID: "none", Holder: "x"}} {
			_, err := s.AddClaim(t.Context(), start, scheduler, n)
			wantCode(t, err, muster.CodeNotFound)
		}
		_, err := s.RenewClaim(t.Context(), start, scheduler, c.ID, muster.ClaimRenewal{Lease: 86401})
		wantCode(t, err, muster.CodeInvalid)
		_, err = s.RenewClaim(t.Context(), start, scheduler, c.ID, muster.ClaimRenewal{Reason: "a\nb"})
		wantCode(t, err, muster.CodeInvalid)
		_, err = s.RenewClaim(t.Context(), start, scheduler, "none", muster.ClaimRenewal{})
		wantCode(t, err, muster.CodeNotFound)
	})
}
