package store

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

func slots(n int) *int { return &n }

func openWindow(t testing.TB, s *Store, k muster.WindowKind, count *int) muster.Window {
	t.Helper()
	return must[muster.Window](t)(s.OpenWindow(t.Context(), start, ada, k, muster.NewWindow{Duration: 7200, Count: count}))
}

func TestWindows(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		for _, k := range muster.WindowKinds {
			read := func(at time.Duration) muster.Window {
				t.Helper()
				return must[muster.Window](t)(s.Window(ctx, start.Add(at), k))
			}
			if w := read(0); w.Open || w.OpenedBy != "" {
				t.Fatalf("never opened: %+v", w)
			}
			if err := s.CloseWindow(ctx, start, ada, k); err != nil {
				t.Fatal(err)
			}
			for _, n := range []muster.NewWindow{{}, {Duration: -1}, {Duration: 60, Count: slots(0)}, {Duration: 60, Count: slots(-3)}, {Duration: 60, Count: slots(1_000_001)}} {
				_, err := s.OpenWindow(ctx, start, ada, k, n)
				wantCode(t, err, muster.CodeInvalid)
			}
			w := must[muster.Window](t)(s.OpenWindow(ctx, start, ada, k, muster.NewWindow{Duration: 30 * 24 * 3600}))
			if !w.Open || !w.Clamped || w.Duration != 86400 || !w.ClosesAt.Equal(start.Add(24*time.Hour)) || w.Count != nil || w.Remaining != nil || w.OpenedBy != "operator:ada" {
				t.Fatalf("clamped: %+v", w)
			}
			w = must[muster.Window](t)(s.OpenWindow(ctx, start, ada, k, muster.NewWindow{Duration: 60, Count: slots(3)}))
			if w.Clamped || w.Duration != 60 || *w.Count != 3 || *w.Remaining != 3 || w.Taken != 0 {
				t.Fatalf("replaced: %+v", w)
			}
			if !read(59 * time.Second).Open {
				t.Error("closed too early")
			}
			// Closed at its time, clock or no clock; the clock puts it on record.
			if w := read(time.Minute); w.Open || w.Ended != muster.WindowExpired || !w.EndedAt.Equal(start.Add(time.Minute)) {
				t.Errorf("after its time: %+v", w)
			}
			if done := must[Expired](t)(s.Expire(ctx, start.Add(59*time.Second))); done != (Expired{}) {
				t.Errorf("too early: %+v", done)
			}
			for _, want := range []int{1, 0} {
				if done := must[Expired](t)(s.Expire(ctx, start.Add(time.Hour))); done != (Expired{Windows: want}) {
					t.Errorf("%+v, want %d windows", done, want)
				}
			}
			if w := read(2 * time.Hour); w.Open || w.Ended != muster.WindowExpired || !w.EndedAt.Equal(start.Add(time.Minute)) {
				t.Errorf("expired: %+v", w)
			}
			openWindow(t, s, k, nil)
			for range 2 {
				if err := s.CloseWindow(ctx, start, ada, k); err != nil {
					t.Fatal(err)
				}
			}
			var said []string
			for _, e := range must[[]muster.AuditEntry](t)(s.Audit(ctx, muster.AuditFilter{Subject: windowSubject(k)})) {
				said = append(said, e.Action+" "+e.Actor)
			}
			if got, want := strings.Join(said, ", "), "open_window operator:ada, open_window operator:ada, expire_window clock, open_window operator:ada, close_window operator:ada"; got != want {
				t.Errorf("audit: %s\nwant   %s", got, want)
			}
		}
		_, err := s.Window(ctx, start, "garage")
		wantCode(t, err, muster.CodeNotFound)
		healthy(t, s)
	})
}

// race lets machines knock from many goroutines at once and counts who got in.
func race(t *testing.T, stores []*Store, machines int, knock func(s *Store, b box) (in bool, err error)) int {
	t.Helper()
	var in atomic.Int64
	for i, err := range together(machines, func(i int) error {
		ok, err := knock(stores[i%len(stores)], boxNo(i))
		if ok {
			in.Add(1)
		}
		return err
	}) {
		if err != nil {
			t.Fatalf("machine %d: %v", i, err)
		}
	}
	return int(in.Load())
}

func registerRace(t *testing.T, stores ...*Store) {
	ctx, s := context.Background(), stores[0]
	openWindow(t, s, muster.AutoApproveWindow, slots(10))
	n := race(t, stores, 100, func(s *Store, b box) (bool, error) {
		r, err := s.Register(ctx, start, nobody, b.request())
		if err != nil {
			return false, err
		}
		if (r.State == muster.Approved) == (r.ClaimCode != "") || r.PollToken == "" {
			return false, fmt.Errorf("answered %+v", r)
		}
		st, err := s.RegisterStatus(ctx, start, nobody, r.PollToken)
		if err == nil && (st.State != r.State || (st.APIKey != "") != (r.State == muster.Approved)) {
			err = fmt.Errorf("registered as %s, then %+v", r.State, st)
		}
		return r.State == muster.Approved, err
	})
	approved := must[[]muster.Registration](t)(s.Registrations(ctx, muster.RegistrationFilter{State: muster.Approved}))
	pending := must[[]muster.Registration](t)(s.Registrations(ctx, muster.RegistrationFilter{State: muster.Pending}))
	w := must[muster.Window](t)(s.Window(ctx, start, muster.AutoApproveWindow))
	taken := entries(t, s, windowSubject(muster.AutoApproveWindow), "take_slot")
	t.Logf("100 machines, 10 slots: %d approved, %d pending with a code, %d slots in the audit", len(approved), len(pending), taken)
	if n != 10 || len(approved) != 10 || len(pending) != 90 || taken != 10 || w.Open || w.Ended != muster.WindowUsedUp || w.Taken != 10 {
		t.Errorf("%d told so; window %+v", n, w)
	}
	for _, r := range approved {
		if r.Door != muster.DoorWindow || r.NodeID == "" {
			t.Errorf("%+v", r)
		}
	}
	healthy(t, s)
}

func announceRace(t *testing.T, stores ...*Store) {
	ctx, s := context.Background(), stores[0]
	p := testPolicy()
	p.AutoEnroll = false
	must[muster.Image](t)(s.AddImage(ctx, start, ada, muster.Image{Name: "enroll", Kind: muster.LinuxImage, Digest: digestNo(1)}))
	must[muster.BootPolicy](t)(s.SetBootPolicy(ctx, start, ada, p))
	openWindow(t, s, muster.EnrollmentWindow, slots(10))
	n := race(t, stores, 100, func(s *Store, b box) (bool, error) {
		a, err := s.Announce(ctx, start, booterCaller, b.announcement("s1"))
		switch {
		case muster.IsCode(err, muster.CodeForbidden):
			if !strings.Contains(err.Error(), "muster window open enrollment") {
				return false, err
			}
			return false, nil
		case err == nil && a.State != muster.AwaitingSetup:
			err = fmt.Errorf("answered %+v", a)
		}
		return err == nil, err
	})
	all := must[[]muster.Registration](t)(s.Registrations(ctx, muster.RegistrationFilter{}))
	w := must[muster.Window](t)(s.Window(ctx, start, muster.EnrollmentWindow))
	t.Logf("100 machines, 10 slots: %d announced, %d refused", n, 100-n)
	if n != 10 || len(all) != 10 || w.Open || w.Taken != 10 {
		t.Errorf("%d registrations, window %+v", len(all), w)
	}
	for _, r := range all {
		if r.State != muster.AwaitingSetup || r.BoundKeyID != "" {
			t.Errorf("an enrollment window approved something: %+v", r)
		}
		// Whoever is in stays in, window or not.
		b := box{r.ServerUUID, r.MACs[0], r.Serial}
		if a := must[muster.Announced](t)(s.Announce(ctx, start.Add(48*time.Hour), booterCaller, b.announcement("s2"))); a.State != muster.AwaitingSetup {
			t.Errorf("%+v", a)
		}
	}
	healthy(t, s)
}

func TestHundredMachinesTenSlots(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) { registerRace(t, s) })
	t.Run("two processes", func(t *testing.T) {
		url := postgresURL(t)
		registerRace(t, open(t, url), open(t, url))
	})
}

func TestHundredAnnouncementsTenSlots(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) { announceRace(t, s) })
	t.Run("two processes", func(t *testing.T) {
		url := postgresURL(t)
		announceRace(t, open(t, url), open(t, url))
	})
}

// A window takes who waits already, and nobody who was ever disabled.
func TestWhomAWindowTakes(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		waiting, was, gone := boxNo(1), boxNo(2), boxNo(3)
		register := func(b box) muster.RegisterReply {
			t.Helper()
			return must[muster.RegisterReply](t)(s.Register(ctx, start, nobody, b.request()))
		}
		old := register(waiting)
		for _, b := range []box{was, gone} {
			must[muster.Registration](t)(s.ApproveCode(ctx, start, ada, register(b).ClaimCode))
			must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.Disable))
		}
		register(was) // armed again, and still remembered
		if err := s.DeleteRegistration(ctx, start, ada, gone.uuid); err != nil {
			t.Fatal(err)
		}
		openWindow(t, s, muster.AutoApproveWindow, slots(2))
		for range 2 {
			if r := register(was); r.State != muster.Pending || r.ClaimCode == "" {
				t.Fatalf("the window took a machine that was disabled: %+v", r)
			}
		}
		r := register(waiting)
		if r.State != muster.Approved || r.ClaimCode != "" {
			t.Fatalf("a machine that waited: %+v", r)
		}
		_, err := s.ApproveCode(ctx, start, ada, old.ClaimCode)
		wantCode(t, err, muster.CodeNotFound)
		_, err = s.RegisterStatus(ctx, start, nobody, old.PollToken)
		wantCode(t, err, muster.CodeNotFound)
		first := must[muster.RegisterStatus](t)(s.RegisterStatus(ctx, start, nobody, r.PollToken))
		again := must[muster.RegisterStatus](t)(s.RegisterStatus(ctx, start, nobody, r.PollToken))
		if first.APIKey == "" || again.APIKey != "" || !again.Delivered {
			t.Errorf("delivered %+v, then %+v", first, again)
		}
		_, err = s.Register(ctx, start, nobody, waiting.request())
		wantCode(t, err, muster.CodeConflict)
		if !strings.Contains(err.Error(), "--as") || !strings.Contains(err.Error(), "disable") {
			t.Errorf("the ways out are not told: %v", err)
		}
		// An operator forgot it: it is new, and the last slot is its.
		if r := register(gone); r.State != muster.Approved {
			t.Fatalf("%+v", r)
		}
		if w := must[muster.Window](t)(s.Window(ctx, start, muster.AutoApproveWindow)); w.Open || w.Ended != muster.WindowUsedUp {
			t.Errorf("%+v", w)
		}
		if r := register(boxNo(4)); r.State != muster.Pending {
			t.Errorf("%+v", r)
		}
		// A person's word wipes the slate: taken out again, it is remembered again.
		must[muster.Registration](t)(s.ApproveCode(ctx, start, ada, register(was).ClaimCode))
		healthy(t, s)
	})
}

// A window that nobody's clock has looked at lets nobody in after its time.
func TestAWindowEndsByItself(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		openWindow(t, s, muster.AutoApproveWindow, nil)
		ctx := t.Context()
		for i, c := range []struct {
			at   time.Duration
			want muster.RegistrationState
		}{{7199 * time.Second, muster.Approved}, {7200 * time.Second, muster.Pending}} {
			if r := must[muster.RegisterReply](t)(s.Register(ctx, start.Add(c.at), nobody, boxNo(i).request())); r.State != c.want {
				t.Errorf("at %s: %s", c.at, r.State)
			}
		}
		healthy(t, s)
	})
}
