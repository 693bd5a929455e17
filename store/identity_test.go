package store

import (
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

// A newcomer with another's UUID waits, nothing of the incumbent changes but
// the conflict it shows, and separate lets it in under a UUID of its own.
func TestTwoMachinesWithOneUUIDStayApart(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		a, b := boxNo(1), boxNo(2)
		b.uuid = a.uuid
		awaiting(t, s, a, start)
		was := must[muster.Registration](t)(s.Registration(ctx, a.uuid))
		must[[]muster.BootRecord](t)(s.Sight(ctx, start, booterCaller, "b1", []muster.Sighting{{MAC: b.mac}}))
		_, err := s.Announce(ctx, start, booterCaller, b.announcement("s2"))
		wantCode(t, err, muster.CodeConflict)
		if !strings.Contains(err.Error(), "separate") {
			t.Errorf("no verb is named: %v", err)
		}
		now := must[muster.Registration](t)(s.Registration(ctx, muster.SwapUUID(a.uuid)))
		if now.State != was.State || now.Serial != was.Serial || len(now.MACs) != len(was.MACs) || len(now.Conflicts) != 1 {
			t.Errorf("the incumbent became %+v", now)
		}
		ms := must[[]muster.Machine](t)(s.Machines(ctx, muster.MachineFilter{State: muster.MachineConflict}))
		if len(ms) != 1 || ms[0].Incumbent != a.uuid || ms[0].ServerUUID != "" {
			t.Fatalf("%+v", ms)
		}
		must[muster.Machine](t)(s.RaiseMachine(ctx, start, ada, ms[0].ID, lifecycle.Separate))
		own := must[muster.BootRecord](t)(s.BootRecord(ctx, b.mac)).OwnUUID
		if own == "" || muster.SameUUID(own, a.uuid) {
			t.Fatalf("told to be %q", own)
		}
		b.uuid = own
		must[muster.Announced](t)(s.Announce(ctx, start, booterCaller, b.announcement("s3")))
		healthy(t, s)
	})
}

// Two boards with a vendor's default UUID become two machines, stably.
func TestDefaultUUIDsAreReplaced(t *testing.T) {
	const shared = "03000200-0400-0500-0006-000700080009"
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		seen := map[string]bool{}
		for i := range 2 {
			b := boxNo(i)
			see := func(v muster.Sighting) muster.BootRecord {
				v.MAC, v.UUID = b.mac, shared
				return must[[]muster.BootRecord](t)(s.Sight(ctx, start, booterCaller, "b1", []muster.Sighting{v}))[0]
			}
			if r := see(muster.Sighting{}); !r.AwaitsUUID || r.OwnUUID != "" {
				t.Fatalf("%+v", r)
			}
			r := see(muster.Sighting{Script: true, ServiceTag: b.serial})
			if r.AwaitsUUID || r.OwnUUID == "" || seen[r.OwnUUID] {
				t.Fatalf("%+v", r)
			}
			seen[r.OwnUUID] = true
			if again := see(muster.Sighting{Script: true}); again.OwnUUID != r.OwnUUID {
				t.Errorf("%s became %s", r.OwnUUID, again.OwnUUID)
			}
			b.uuid = shared
			_, err := s.Announce(ctx, start, booterCaller, b.announcement("s1"))
			wantCode(t, err, muster.CodeConflict)
			b.uuid = r.OwnUUID
			must[muster.Announced](t)(s.Announce(ctx, start, booterCaller, b.announcement("s2")))
		}
		healthy(t, s)
	})
}

// What nobody wanted is forgotten, and its address is free again; a card behind
// which a machine spoke stays.
func TestNoiseExpires(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		awaiting(t, s, boxNo(1), start)
		for i := range 20 {
			must[[]muster.BootRecord](t)(s.Sight(ctx, start, booterCaller, "b1", []muster.Sighting{{MAC: boxNo(100 + i).mac}}))
		}
		done, err := s.Expire(ctx, start.Add(lifecycle.UnannouncedDeadline-time.Second))
		if err != nil || done.Cards != 0 {
			t.Fatal(done, err)
		}
		done, err = s.Expire(ctx, start.Add(lifecycle.UnannouncedDeadline))
		if err != nil || done.Cards != 20 {
			t.Fatal(done, err)
		}
		u := must[[]muster.NetworkUsage](t)(s.NetworkUsage(ctx))[0]
		if u.Used != 1 || u.Unannounced != 0 {
			t.Errorf("%+v", u)
		}
		healthy(t, s)
		done, err = s.Expire(ctx, start.Add(lifecycle.LapseDeadline))
		if err != nil || done.Lapsed != 1 {
			t.Fatal(done, err)
		}
		healthy(t, s)
	})
}
