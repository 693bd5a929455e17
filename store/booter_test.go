package store

import (
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

// TestRemoveBooter: one that is gone for good is waited for no longer, what it
// held is over, and it is a booter again when it comes back.
func TestRemoveBooter(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		now := start
		reports := func(name string, stopped bool) {
			t.Helper()
			if err := s.ReportBooter(ctx, now, booterCaller, muster.BooterStatus{Booter: name, Stopped: stopped}); err != nil {
				t.Fatal(err)
			}
		}
		names := func() string {
			t.Helper()
			var all []string
			for _, b := range must[[]muster.BooterStatus](t)(s.Booters(ctx)) {
				all = append(all, b.Booter)
			}
			return strings.Join(all, " ")
		}
		refused := func(when, name string, words ...string) {
			t.Helper()
			err := s.RemoveBooter(ctx, now, ada, name)
			wantCode(t, err, muster.CodeConflict)
			for _, w := range words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%s: %v does not say %q", when, err, w)
				}
			}
		}
		reports("b1", false)
		reports("b2", false)
		wantCode(t, s.RemoveBooter(ctx, now, ada, "b3"), muster.CodeNotFound)

		// What it held: one machine waits, one is approved, one is being set up;
		// and one is another booter's.
		waits, approved, taken, other := boxNo(1), boxNo(2), boxNo(3), boxNo(4)
		for _, b := range []box{waits, approved, taken, other} {
			awaiting(t, s, b, now)
		}
		a := other.announcement("s2")
		a.Booter = "b2"
		must[muster.Announced](t)(s.Announce(ctx, now, booterCaller, a))
		for _, b := range []box{approved, taken} {
			must[muster.SetupGrant](t)(s.ApproveSetup(ctx, now, ada, b.uuid, approval(t, s, b, now)))
		}
		var k kept
		must[muster.TakenBundle](t)(s.TakeBundle(ctx, now, booterCaller, taken.uuid, muster.TakeRequest{Epoch: 1, Session: "s1"}, k.seal))

		// While it reports, or only follows the feed, it is not gone.
		now = start.Add(44 * time.Second)
		refused("it reported", "b1", "booter b1 is not gone", "last heard 44s ago", "Stop it", "45s")
		s.Followed(now, "b1", 3)
		now = now.Add(BooterSilence - time.Second)
		refused("it follows", "b1", "last heard 44s ago")
		if got := names(); got != "b1 b2" {
			t.Errorf("after refusals: %s", got)
		}
		now = now.Add(time.Second)
		head := must[int64](t)(s.Head(ctx))
		confirmed := func() (all []string) {
			t.Helper()
			if err := s.write(ctx, "looking", now, ada, func(x *tx) error {
				cs, err := s.confirmations(x, head)
				for _, c := range cs {
					all = append(all, c.Booter+map[bool]string{true: " has", false: " has not"}[c.Confirmed])
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return all
		}
		s.Followed(now, "b2", head)
		if got := strings.Join(confirmed(), ", "); got != "b1 has not, b2 has" {
			t.Errorf("confirmed: %s", got)
		}
		s.Followed(now.Add(-BooterSilence), "b1", head) // what it confirmed goes with it
		if err := s.RemoveBooter(ctx, now, ada, "b1"); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(confirmed(), ", "); got != "b2 has" {
			t.Errorf("confirmed without it: %s", got)
		}
		wantCode(t, s.RemoveBooter(ctx, now, ada, "b1"), muster.CodeNotFound)
		es := must[[]muster.AuditEntry](t)(s.Audit(ctx, muster.AuditFilter{Subject: "booter/b1"}))
		if len(es) != 1 || es[0].Action != "remove_booter" || es[0].Actor != "operator:ada" || !strings.Contains(string(es[0].Detail), `"sessions_lost":3`) {
			t.Errorf("audit: %+v", es)
		}
		why := "booter b1, which held its connection, was removed"
		for _, c := range []struct {
			b     box
			state muster.RegistrationState
			away  string
		}{
			{waits, muster.AwaitingSetup, why}, {approved, muster.AwaitingSetup, why}, {taken, muster.SettingUp, why}, {other, muster.AwaitingSetup, ""},
		} {
			if r := must[muster.Registration](t)(s.Registration(ctx, c.b.uuid)); r.State != c.state || r.Away != c.away {
				t.Errorf("%s: %s, away: %q", c.b.serial, r.State, r.Away)
			}
		}
		r := must[muster.Registration](t)(s.Registration(ctx, approved.uuid))
		if want := "after the approval " + why + "; an approval is good for one connection alone, and nothing was run on it: approve again when it is back"; r.LastSetupError != want ||
			entries(t, s, subject(approved.uuid), lifecycle.Void) != 1 || entries(t, s, subject(taken.uuid), lifecycle.Void) != 0 {
			t.Errorf("the approval: %q", r.LastSetupError)
		}

		// It comes back, having confirmed nothing; and goes, saying so.
		reports("b1", false)
		if got := strings.Join(confirmed(), ", "); got != "b1 has not, b2 has" {
			t.Errorf("it is back: %s", got)
		}
		refused("it is back", "b1", "last heard 0s ago")
		reports("b1", true)
		if err := s.RemoveBooter(ctx, now, ada, "b1"); err != nil {
			t.Errorf("it said that it stops: %v", err)
		}
		if got := names(); got != "b2" {
			t.Errorf("in the end: %s", got)
		}
		healthy(t, s)
	})
}

// TestLoseSilent: a session is lost when neither its booter nor its machine was
// heard for long, whether the machine waits or is being set up.
func TestLoseSilent(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		waits, taken, late := boxNo(1), boxNo(2), boxNo(3)
		awaiting(t, s, waits, start)
		awaiting(t, s, taken, start)
		must[muster.SetupGrant](t)(s.ApproveSetup(ctx, start, ada, taken.uuid, approval(t, s, taken, start)))
		var k kept
		must[muster.TakenBundle](t)(s.TakeBundle(ctx, start, booterCaller, taken.uuid, muster.TakeRequest{Epoch: 1, Session: "s1"}, k.seal))
		heard := start.Add(30 * time.Second)
		if err := s.ReportBooter(ctx, heard, booterCaller, muster.BooterStatus{Booter: "b1"}); err != nil {
			t.Fatal(err)
		}
		awaiting(t, s, late, heard.Add(40*time.Second)) // this one was heard since
		for _, c := range []struct {
			after time.Duration
			lost  int
		}{{44 * time.Second, 0}, {46 * time.Second, 2}, {47 * time.Second, 0}} {
			if n := must[int](t)(s.LoseSilent(ctx, heard.Add(c.after))); n != c.lost {
				t.Errorf("%s after the booter's report %d sessions were lost, want %d", c.after, n, c.lost)
			}
		}
		if r := must[muster.Registration](t)(s.Registration(ctx, late.uuid)); r.Away != "" {
			t.Errorf("the machine that was heard since is away: %s", r.Away)
		}
	})
}
