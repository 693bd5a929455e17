package store

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

const callers = 50

// together runs f from many goroutines at once and returns what each got.
func together(n int, f func(i int) error) []error {
	errs := make([]error, n)
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-gate
			errs[i] = f(i)
		})
	}
	close(gate)
	wg.Wait()
	return errs
}

// entries counts a subject's audit entries of one action.
func entries(t testing.TB, s *Store, subject string, action muster.Event) int {
	t.Helper()
	n := 0
	for _, e := range must[[]muster.AuditEntry](t)(s.Audit(t.Context(), muster.AuditFilter{Subject: subject})) {
		if e.Action == string(action) {
			n++
		}
	}
	return n
}

func TestFiftyCallersOfEachTransition(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b, c := boxNo(1), boxNo(2)
		awaiting(t, s, b, start)
		appr := approval(t, s, b, start)
		var k kept
		var reply muster.RegisterReply
		keys := make(chan string, callers)
		for _, tr := range []struct {
			event   muster.Event
			subject string
			do      func(i int) error
			// repeats: who comes second is answered as if first.
			repeats bool
		}{
			{lifecycle.ApproveSetup, subject(b.uuid), func(int) error {
				_, err := s.ApproveSetup(ctx, start, ada, b.uuid, appr)
				return err
			}, false},
			{lifecycle.Take, subject(b.uuid), func(int) error {
				_, err := s.TakeBundle(ctx, start, booterCaller, b.uuid, muster.TakeRequest{Epoch: 1, Session: "s1"}, k.seal)
				return err
			}, false},
			{lifecycle.SetupComplete, subject(b.uuid), func(int) error {
				return s.SetupComplete(ctx, start, booterCaller, b.uuid, muster.SetupOutcome{Epoch: 1, Proof: k.proof(b, 1)})
			}, true},
			{lifecycle.Disable, subject(b.uuid), func(int) error {
				_, err := s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.Disable)
				return err
			}, true},
			{lifecycle.Delete, subject(b.uuid), func(int) error { return s.DeleteRegistration(ctx, start, ada, b.uuid) }, true},
			{lifecycle.Approve, subject(c.uuid), func(int) error {
				_, err := s.ApproveCode(ctx, start, ada, reply.ClaimCode)
				return err
			}, false},
			{lifecycle.Deliver, subject(c.uuid), func(int) error {
				st, err := s.RegisterStatus(ctx, start, nobody, reply.PollToken)
				if st.APIKey != "" {
					keys <- st.APIKey
				} else if err == nil && !st.Delivered {
					err = fmt.Errorf("neither a key nor word that it was delivered: %+v", st)
				}
				return err
			}, true},
			{lifecycle.Reactivate, recordSubject(b.mac), func(int) error {
				_, err := s.RaiseBootRecord(ctx, start, ada, b.mac, lifecycle.Reactivate)
				return err
			}, true},
			{lifecycle.Enroll, recordSubject(b.mac), func(int) error {
				_, err := s.RaiseBootRecord(ctx, start, ada, b.mac, lifecycle.Enroll)
				return err
			}, true},
			{lifecycle.Decommission, recordSubject(b.mac), func(int) error {
				_, err := s.RaiseBootRecord(ctx, start, ada, b.mac, lifecycle.Decommission)
				return err
			}, true},
		} {
			if tr.event == lifecycle.Approve {
				reply = must[muster.RegisterReply](t)(s.Register(ctx, start, nobody, muster.RegisterRequest{ServerUUID: c.uuid, Sysinfo: c.sysinfo()}))
			}
			won := 0
			for _, err := range together(callers, tr.do) {
				switch {
				case err == nil:
					won++
				case !muster.IsCode(err, muster.CodeConflict):
					t.Fatalf("%s: %v", tr.event, err)
				}
			}
			if tr.repeats && won != callers || !tr.repeats && won != 1 {
				t.Errorf("%s: %d of %d callers were told that it worked", tr.event, won, callers)
			}
			if n := entries(t, s, tr.subject, tr.event); n != 1 {
				t.Errorf("%s happened %d times", tr.event, n)
			}
			healthy(t, s)
		}
		if len(keys) != 1 {
			t.Errorf("the key was delivered %d times", len(keys))
		}
	})
}

func TestNoAddressIsReservedTwice(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		site(t, s)
		const room, kept = 100, 12 // in the network of the test's policy, and of that for operators
		var mu sync.Mutex
		at := map[string]string{}
		for _, err := range together(callers, func(i int) error {
			for j := range 3 { // 150 machines for 100 addresses, each seen twice
				b := boxNo(3*i + j)
				for range 2 {
					rs, err := s.Sight(t.Context(), start, booterCaller, "b1", []muster.Sighting{{MAC: b.mac, Arch: 7}})
					if err != nil {
						return err
					}
					mu.Lock()
					if a := rs[0].Address; a != "" {
						if other := at[a]; other != "" && other != b.mac {
							mu.Unlock()
							return fmt.Errorf("%s has %s, and so has %s", b.mac, a, other)
						}
						at[a] = b.mac
					} else if rs[0].State != muster.Discovered || rs[0].Note == "" {
						err = fmt.Errorf("no address, and no reason: %+v", rs[0])
					}
					mu.Unlock()
					if err != nil {
						return err
					}
				}
			}
			return nil
		}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if len(at) != room-kept {
			t.Errorf("%d addresses were reserved of %d", len(at), room-kept)
		}
		for i, err := range together(kept, func(i int) error {
			r, err := s.RaiseBootRecord(t.Context(), start, ada, boxNo(200+i).mac, lifecycle.Enroll)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && (r.Address == "" || at[r.Address] != "") {
				err = fmt.Errorf("%s got %q, which %s has", r.MAC, r.Address, at[r.Address])
			}
			at[r.Address] = r.MAC
			return err
		}) {
			if err != nil {
				t.Error(i, err)
			}
		}
		_, err := s.RaiseBootRecord(t.Context(), start, ada, boxNo(300).mac, lifecycle.Enroll)
		wantCode(t, err, muster.CodeConflict)
		u := must[[]muster.NetworkUsage](t)(s.NetworkUsage(t.Context()))[0]
		if u.Total != room || u.Used != room || u.Free != 0 || u.Unannounced != room-kept || u.UnannouncedCap != room-kept || u.Note == "" {
			t.Errorf("%+v", u)
		}
		healthy(t, s)
		// A NIC that leaves keeps its address; a network with more room takes in the rest.
		p := testPolicy()
		p.Networks[0].Start, p.Networks[0].End = "10.77.0.40", "10.77.0.250"
		must[muster.BootPolicy](t)(s.SetBootPolicy(t.Context(), start, ada, p))
		for i := range 150 {
			rs := must[[]muster.BootRecord](t)(s.Sight(t.Context(), start, booterCaller, "b1", []muster.Sighting{{MAC: boxNo(i).mac}}))
			if rs[0].State != muster.Enrolling || rs[0].Note != "" {
				t.Fatalf("%+v", rs[0])
			}
		}
		healthy(t, s)
	})
}

// Two control planes on one database: the chain must not fork, and nothing may
// happen twice.
func TestTwoProcessesShareOneDatabase(t *testing.T) {
	url := postgresURL(t)
	stores := []*Store{open(t, url), open(t, url)}
	site(t, stores[0])
	for i := range 6 {
		awaiting(t, stores[i%2], boxNo(i), start)
	}
	var appr [6]Approval
	for i := range appr {
		appr[i] = approval(t, stores[0], boxNo(i), start)
	}
	errs := together(24, func(i int) error {
		_, err := stores[i%2].ApproveSetup(context.Background(), start, ada, boxNo(i/4).uuid, appr[i/4])
		return err
	})
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if !muster.IsCode(err, muster.CodeConflict) {
			t.Fatal(err)
		}
	}
	if won != 6 {
		t.Errorf("%d approvals for 6 machines", won)
	}
	for _, err := range together(20, func(i int) error {
		_, err := stores[i%2].Sight(context.Background(), start, booterCaller, "b1", []muster.Sighting{{MAC: boxNo(100 + i).mac}})
		return err
	}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	healthy(t, stores[0])

	// Each hears what the other did.
	head := must[int64](t)(stores[0].Head(t.Context()))
	heard := make(chan error)
	go func() { heard <- stores[0].Wait(t.Context(), head) }()
	must[muster.CreatedKey](t)(stores[1].CreateKey(t.Context(), start, ada, muster.NewKey{Scope: muster.ScopeFull}))
	select {
	case err := <-heard:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the other process's change was never heard")
	}
}
