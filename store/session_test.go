package store

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/lifecycle"
)

// What another connection under the machine's name does to an approval.
func TestTheSessionRule(t *testing.T) {
	mallory := muster.SessionChange{Session: "s6", MAC: boxNo(6).mac, Source: "10.77.0.66"}
	refused := muster.SessionChange{MAC: boxNo(6).mac, Source: "10.77.0.66", Reason: "its address is not the reserved one"}
	announce := func(session, key string) func(t *testing.T, s *Store, b box) {
		return func(t *testing.T, s *Store, b box) {
			a := b.announcement(session)
			a.Source, a.PublicKey = "10.77.0.66", key
			must[muster.Announced](t)(s.Announce(t.Context(), start, booterCaller, a))
		}
	}
	changed := func(c muster.SessionChange) func(t *testing.T, s *Store, b box) {
		return func(t *testing.T, s *Store, b box) {
			if err := s.SessionChanged(t.Context(), start, booterCaller, b.uuid, c); err != nil {
				t.Fatal(err)
			}
		}
	}
	withKey := mallory
	withKey.PublicKey = "another"
	lost := muster.SessionChange{Lost: "s1", MAC: boxNo(1).mac, Reason: "its connection from 10.77.0.66 ended"}
	older := muster.SessionChange{Lost: "s0", MAC: boxNo(1).mac}
	engines(t, func(t *testing.T, s *Store) {
		site(t, s)
		for i, c := range []struct {
			name  string
			taken bool
			then  func(t *testing.T, s *Store, b box)
			want  muster.RegistrationState
		}{
			{"same session again", false, announce("s1", publicKey), muster.SettingUp},
			{"another session, not taken", false, announce("s2", publicKey), muster.AwaitingSetup},
			{"another session and key, not taken", false, announce("s2", "another"), muster.AwaitingSetup},
			{"same key after the take: it came back", true, announce("s2", publicKey), muster.SettingUp},
			{"another key after the take", true, announce("s2", "another"), muster.AwaitingSetup},
			{"refused newcomer, not taken", false, changed(refused), muster.AwaitingSetup},
			{"refused newcomer after the take", true, changed(refused), muster.SettingUp},
			{"newcomer on the bus, not taken", false, changed(mallory), muster.AwaitingSetup},
			{"newcomer with another key after the take", true, changed(withKey), muster.AwaitingSetup},
			{"its own session ended, not taken", false, changed(lost), muster.AwaitingSetup},
			{"another session of its name ended, not taken", false, changed(older), muster.SettingUp},
			{"its own session ended after the take", true, changed(lost), muster.SettingUp},
		} {
			b := boxNo(10 + i)
			awaiting(t, s, b, start)
			must[muster.SetupGrant](t)(s.ApproveSetup(t.Context(), start, ada, b.uuid, approval(t, s, b, start)))
			var k kept
			take := func() error {
				_, err := s.TakeBundle(t.Context(), start, booterCaller, b.uuid, muster.TakeRequest{Epoch: 1, Session: "s1"}, k.seal)
				return err
			}
			if c.taken {
				if err := take(); err != nil {
					t.Fatal(err)
				}
			}
			c.then(t, s, b)
			r := must[muster.Registration](t)(s.Registration(t.Context(), b.uuid))
			if r.State != c.want {
				t.Errorf("%s: %s", c.name, r.State)
			}
			if void := c.want == muster.AwaitingSetup; void {
				if !strings.Contains(r.LastSetupError, "10.77.0.66") || entries(t, s, subject(b.uuid), lifecycle.Void) != 1 {
					t.Errorf("%s: the operator is told %q", c.name, r.LastSetupError)
				}
				if err := take(); !muster.IsCode(err, muster.CodeConflict) {
					t.Errorf("%s: the bundle could still be taken: %v", c.name, err)
				}
				if c.taken {
					_, err := s.Authenticate(t.Context(), start, k.APIKey, "")
					wantCode(t, err, muster.CodeUnauthenticated)
				}
			} else if c.taken {
				back := 0 // it came back only by an announcement on another session
				if c.name == "same key after the take: it came back" {
					back = 1
				}
				if n := entries(t, s, subject(b.uuid), "reconnected"); n != back {
					t.Errorf("%s: %d entries say that it reconnected", c.name, n)
				}
				o := muster.SetupOutcome{Epoch: 1, Proof: k.proof(b, 1)}
				if err := s.SetupComplete(t.Context(), start, booterCaller, b.uuid, o); err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
			}
			healthy(t, s)
		}
	})
}

func TestAnApprovalNeedsWhatTheOperatorSaw(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b := boxNo(1)
		awaiting(t, s, b, start)
		for name, c := range map[string]struct {
			change func(*Approval)
			want   muster.Code
		}{
			"another plan":    {func(a *Approval) { a.Seen = "sha256:other" }, muster.CodeConflict},
			"another session": {func(a *Approval) { a.Session.Session = "s2" }, muster.CodeConflict},
			"another key":     {func(a *Approval) { a.Session.PublicKey = "other" }, muster.CodeConflict},
			"another survey":  {func(a *Approval) { a.Survey = start.Add(1e9) }, muster.CodeConflict},
			"another image":   {func(a *Approval) { a.Plan.Image = nil }, muster.CodeConflict},
			"not confirmed":   {func(a *Approval) { a.Confirm = false }, muster.CodeInvalid},
			"bad layout":      {func(a *Approval) { a.Layout = false }, muster.CodeInvalid},
		} {
			a := approval(t, s, b, start)
			c.change(&a)
			if _, err := s.ApproveSetup(ctx, start, ada, b.uuid, a); !muster.IsCode(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		// The machine went away: nothing can be approved until it is back and
		// its disks were looked at again.
		good := approval(t, s, b, start)
		if err := s.SessionChanged(ctx, start, booterCaller, b.uuid, muster.SessionChange{Lost: "s1", MAC: b.mac}); err != nil {
			t.Fatal(err)
		}
		_, err := s.ApproveSetup(ctx, start, ada, b.uuid, good)
		wantCode(t, err, muster.CodeConflict)
		if a := must[muster.Announced](t)(s.Announce(ctx, start, booterCaller, b.announcement("s2"))); !a.Survey {
			t.Fatalf("%+v", a)
		}
		_, err = s.ApproveSetup(ctx, start, ada, b.uuid, good)
		wantCode(t, err, muster.CodeConflict)
		err = s.Survey(ctx, start, booterCaller, b.uuid, muster.Survey{Session: "s1", Disks: b.disks()})
		wantCode(t, err, muster.CodeConflict)
		healthy(t, s)
	})
}

// What a setup is planned from is read, never written; a state that allows no
// approval is refused as an approval would be.
func TestSetupGround(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		p := must[muster.BootPolicy](t)(s.BootPolicy(ctx))
		b := boxNo(1)
		_, err := s.SetupGround(ctx, b.uuid)
		wantCode(t, err, muster.CodeNotFound)
		awaiting(t, s, b, start)
		g := must[Ground](t)(s.SetupGround(ctx, b.uuid))
		if g.Session.Session != "s1" || *g.Image != *p.EnrollmentPI || len(g.Registration.Disks) != len(b.disks()) {
			t.Errorf("%+v", g)
		}
		must[muster.SetupGrant](t)(s.ApproveSetup(ctx, start, ada, b.uuid, approval(t, s, b, start)))
		head := must[int64](t)(s.Head(ctx))
		_, err = s.SetupGround(ctx, b.uuid)
		var no *muster.Problem
		if !errors.As(err, &no) || no.Code != muster.CodeConflict || no.State != "setting_up" || !slices.Contains(no.Allowed, "cancel-setup") {
			t.Errorf("%v", err)
		}
		if now := must[int64](t)(s.Head(ctx)); now != head {
			t.Errorf("reading moved the audit from %d to %d", head, now)
		}
	})
}

// Two machines with one UUID are never merged, and neither is installed by the
// other's approval.
func TestTwoMachinesWithOneUUID(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b, twin := boxNo(1), boxNo(2)
		twin.uuid = b.uuid
		awaiting(t, s, b, start)
		before := must[muster.Registration](t)(s.Registration(ctx, b.uuid))
		for range 3 { // it announces itself every minute
			_, err := s.Announce(ctx, start, booterCaller, twin.announcement("s2"))
			wantCode(t, err, muster.CodeConflict)
			if !strings.Contains(err.Error(), "another machine") {
				t.Errorf("it is not told why: %v", err)
			}
		}
		r := must[muster.Registration](t)(s.Registration(ctx, b.uuid))
		if r.Serial != b.serial || r.SurveyedAt == nil || string(r.Sysinfo) != string(before.Sysinfo) {
			t.Fatalf("the incumbent lost its place: %+v", r)
		}
		if len(r.Conflicts) != 1 || r.Conflicts[0].MAC != twin.mac || r.Conflicts[0].Serial != twin.serial || r.Conflicts[0].Reason == "" {
			t.Fatalf("conflicts: %+v", r.Conflicts)
		}
		if n := entries(t, s, subject(b.uuid), "conflict"); n != 1 {
			t.Errorf("noted %d times", n)
		}
		must[muster.SetupGrant](t)(s.ApproveSetup(ctx, start, ada, b.uuid, approval(t, s, b, start)))
		_, err := s.Announce(ctx, start, booterCaller, twin.announcement("s3"))
		wantCode(t, err, muster.CodeConflict)
		if st := stateOf(t, s, b.uuid); st != muster.SettingUp {
			t.Errorf("a newcomer ended the incumbent's setup: %s", st)
		}
		a := twin.announcement("s4") // the same, but by the incumbent's own NIC
		a.MAC = b.mac
		_, err = s.Announce(ctx, start, booterCaller, a)
		wantCode(t, err, muster.CodeConflict)
		if st := stateOf(t, s, b.uuid); st != muster.AwaitingSetup {
			t.Errorf("an approval outlived a second holder of the machine's name: %s", st)
		}
		healthy(t, s)
	})
}

func TestAnnouncementsElsewhereOnlyMoveLastSeen(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b := boxNo(1)
		awaiting(t, s, b, start)
		install(t, s, b, start)
		a := b.announcement("s2")
		a.Sysinfo = []byte(strings.Replace(string(a.Sysinfo), "Standard PC", "Impostor PC", 1))
		head := must[int64](t)(s.Head(ctx))
		got := must[muster.Announced](t)(s.Announce(ctx, start.Add(5e9), booterCaller, a))
		r := must[muster.Registration](t)(s.Registration(ctx, b.uuid))
		if got.State != muster.Approved || got.Survey || r.Product != "Standard PC" || !r.LastSeen.Equal(start.Add(5e9)) {
			t.Fatalf("%+v %+v", got, r)
		}
		if now := must[int64](t)(s.Head(ctx)); now != head {
			t.Error("a sign of life went into the feed")
		}
		_, err := s.Announce(ctx, start, booterCaller, muster.Announcement{ServerUUID: b.uuid, MAC: b.mac, Session: "s", Sysinfo: []byte(`{"UUID":"ffffffff-ffff-ffff-ffff-ffffffffffff"}`)})
		wantCode(t, err, muster.CodeInvalid)
	})
}
