package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"muster.internal"
	"muster.internal/lifecycle"
)

// Three small networks, told apart by the relay that a request came through.
func reservePolicy() muster.BootPolicy {
	p := muster.DefaultBootPolicy()
	p.EnrollmentPI = &muster.ImageRef{Name: "enroll"}
	for i := range 3 {
		p.Networks = append(p.Networks, muster.AdminNetwork{Name: fmt.Sprintf("rack%d", i), Prefix: fmt.Sprintf("10.9.%d.0/27", i), Gateway: fmt.Sprintf("10.9.%d.1", i),
			Start: fmt.Sprintf("10.9.%d.8", i), End: fmt.Sprintf("10.9.%d.19", i), Giaddrs: []string{fmt.Sprintf("10.9.%d.1", i)}})
	}
	return p
}

// act does, by the dice, one thing that moves reservations: booters see cards,
// operators enroll, change, take out and take back. It returns the card.
func act(ctx context.Context, s *Store, d *rand.Rand) (mac, what string, err error) {
	mac = fmt.Sprintf("52:54:00:aa:00:%02x", d.IntN(60))
	rack := d.IntN(3)
	what = []string{"see", "see", "see", "see", "enroll", "decommission", "reactivate", "address"}[d.IntN(8)]
	switch what {
	case "see":
		_, err = s.Sight(ctx, start, booterCaller, "b1", []muster.Sighting{{MAC: mac, Giaddr: fmt.Sprintf("10.9.%d.1", rack)}})
	case "address":
		n := muster.Networking{Address: fmt.Sprintf("10.9.%d.%d/27", rack, d.IntN(33))}
		_, err = s.SetBootRecord(ctx, start, ada, mac, muster.BootChange{Networking: &n})
	default:
		_, err = s.RaiseBootRecord(ctx, start, ada, mac, muster.Event(what))
	}
	if muster.IsCode(err, muster.CodeConflict) || what == "address" && muster.IsCode(err, muster.CodeInvalid) {
		err = nil
	}
	return mac, what, err
}

// reserved checks every record, and returns the addresses by card.
func reserved(t *testing.T, s *Store) (by map[string]muster.BootRecord, full int) {
	t.Helper()
	holders, by := map[string]string{}, map[string]muster.BootRecord{}
	for _, r := range must[[]muster.BootRecord](t)(s.BootRecords(t.Context(), muster.BootFilter{Limit: 1000})) {
		by[r.MAC] = r
		if strings.Contains(r.Note, "no free address left") || strings.Contains(r.Note, "the rest is kept for operators") {
			full++
		}
		if r.Address == "" {
			continue
		}
		if other := holders[r.Address]; other != "" {
			t.Fatalf("%s is %s's and %s's", r.Address, other, r.MAC)
		}
		holders[r.Address] = r.MAC
		at := netip.MustParseAddr(r.Address)
		if p := netip.MustParsePrefix("10.9." + strings.TrimPrefix(r.Network, "rack") + ".0/27"); !p.Contains(at) || at == p.Addr() || at == broadcast(p) || at == p.Addr().Next() {
			t.Fatalf("%s of network %s is given to %s", at, r.Network, r.MAC)
		}
	}
	return by, full
}

// TestNoAddressIsGivenTwice: in any order, one after the other and all at once,
// no address is two cards', each is its network's, what is decommissioned and
// comes back keeps its own, and where none is free the card is told so.
func TestNoAddressIsGivenTwice(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		must[muster.BootPolicy](t)(s.SetBootPolicy(ctx, start, ada, reservePolicy()))
		d := rand.New(rand.NewPCG(7, 9))
		before, full := reserved(t, s)
		for step := range 400 {
			mac, what, err := act(ctx, s, d)
			if err != nil {
				t.Fatalf("step %d, %s of %s: %v", step, what, mac, err)
			}
			now, n := reserved(t, s)
			full += n
			if was := before[mac]; was.Address != "" && what != "address" && (now[mac].Address != was.Address || now[mac].Network != was.Network || now[mac].Provenance != was.Provenance) {
				t.Fatalf("step %d: %s made of %+v %+v", step, what, was, now[mac])
			}
			before = now
		}
		if full == 0 {
			t.Error("no network was ever full: the test shows too little")
		}
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() {
				d := rand.New(rand.NewPCG(uint64(n), 11))
				for range 40 {
					if mac, what, err := act(ctx, s, d); err != nil {
						t.Errorf("%s of %s: %v", what, mac, err)
					}
				}
			})
		}
		all.Wait()
		reserved(t, s)
		healthy(t, s)
		// Nobody wants them any more: every address is free again, but for those
		// that an operator touched.
		if _, err := s.Expire(ctx, start.Add(lifecycle.LapseDeadline)); err != nil {
			t.Fatal(err)
		}
		reserved(t, s)
	})
}

// TestTenThousandCards: as many cards get as many addresses, each its own and the
// lowest that was free; one more is told that there is none.
func TestTenThousandCards(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		cards := 10_000
		if s.engine.shared() { // the same statements, and each goes over a connection
			cards = 2_000
		}
		ctx := t.Context()
		site(t, s)
		p := testPolicy()
		p.Networks = []muster.AdminNetwork{{Name: "wide", Prefix: "10.64.0.0/16", Start: "10.64.1.0", End: "10.64.255.0"}}
		must[muster.BootPolicy](t)(s.SetBootPolicy(ctx, start, ada, p))
		given := map[string]bool{}
		at := netip.MustParseAddr("10.64.1.0")
		for from := 0; from < cards; from += 500 {
			var seen []muster.Sighting
			for i := range 500 {
				n := from + i
				seen = append(seen, muster.Sighting{MAC: fmt.Sprintf("52:54:01:%02x:%02x:%02x", n>>16, n>>8&255, n&255)})
			}
			for _, r := range must[[]muster.BootRecord](t)(s.Sight(ctx, start, booterCaller, fmt.Sprintf("b%d", from/500), seen)) {
				if r.Address != at.String() || given[r.Address] {
					t.Fatalf("%s got %s, want %s", r.MAC, r.Address, at)
				}
				given[r.Address], at = true, at.Next()
			}
		}
		if len(given) != cards {
			t.Errorf("%d addresses for %d cards", len(given), cards)
		}
		healthy(t, s)
	})
}
