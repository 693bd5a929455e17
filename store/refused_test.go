package store

import (
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/lifecycle"
)

// fieldOf is the field that a refusal names, or the whole of it.
func fieldOf(err error) string {
	if p, ok := err.(*muster.Problem); ok && len(p.Errors) == 1 {
		return p.Errors[0].Field + ": " + p.Errors[0].Message
	}
	return err.Error()
}

// unchanged tries calls that must be refused, by their names, and writes nothing.
func unchanged(t *testing.T, s *Store, why string, calls map[string]func() error) {
	t.Helper()
	db := behind(t, s)
	before := dump(t, db)
	for name, call := range calls {
		err := call()
		if err == nil || !muster.IsCode(err, muster.CodeInvalid) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		field, _, _ := strings.Cut(name, ",")
		if text := fieldOf(err); !strings.HasPrefix(text, field+": ") || !strings.Contains(text, why) {
			t.Errorf("%s: %s", name, text)
		}
	}
	if dump(t, db) != before {
		t.Errorf("what was refused (%s) changed something", why)
	}
}

// An address of the other kind is refused wherever one can be given, in every
// way to write it.
func TestIPv6IsRefusedEverywhere(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		awaiting(t, s, boxNo(1), start)
		mac := boxNo(1).mac
		for _, a := range []string{"fd00::1", "::ffff:10.77.0.5", "fe80::1%eth0", "[fd00::1]", "2001:db8:0:0:0:0:0:1"} {
			network := func(change func(*muster.AdminNetwork)) func() error {
				return func() error {
					p := testPolicy()
					change(&p.Networks[0])
					_, err := s.SetBootPolicy(ctx, start, ada, p)
					return err
				}
			}
			record := func(n muster.Networking) func() error {
				return func() error {
					_, err := s.SetBootRecord(ctx, start, ada, mac, muster.BootChange{Networking: &n})
					return err
				}
			}
			unchanged(t, s, "IPv6", map[string]func() error{
				"networks[0].prefix":       network(func(n *muster.AdminNetwork) { n.Prefix = a + "/64" }),
				"networks[0].start":        network(func(n *muster.AdminNetwork) { n.Start = a }),
				"networks[0].end":          network(func(n *muster.AdminNetwork) { n.End = a }),
				"networks[0].gateway":      network(func(n *muster.AdminNetwork) { n.Gateway = a }),
				"networks[0].resolvers[1]": network(func(n *muster.AdminNetwork) { n.Resolvers = []string{"10.77.0.1", a} }),
				"networks[0].giaddrs[0]":   network(func(n *muster.AdminNetwork) { n.Giaddrs = []string{a} }),
				"networking.address":       record(muster.Networking{Address: a + "/64"}),
				"networking.address, bare": record(muster.Networking{Address: a}),
				"networking.gateway":       record(muster.Networking{Gateway: a}),
				"networking.resolvers[0]":  record(muster.Networking{Resolvers: []string{a}}),
				"admin_ip": func() error {
					q := boxNo(2).request()
					q.AdminIP = a
					_, err := s.Register(ctx, start, nobody, q)
					return err
				},
			})
		}
	})
}

// The address of no network card is refused wherever one can be given.
func TestWhatIsNoCardIsRefusedEverywhere(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b := boxNo(1)
		awaiting(t, s, b, start)
		hostname := muster.BootChange{Networking: &muster.Networking{Hostname: "web1"}}
		for mac, why := range map[string]string{"00:00:00:00:00:00": "all zeros", "ff-ff-ff-ff-ff-ff": "broadcast", "0100.5e00.00fb": "multicast", "33:33:0:0:0:1": "multicast"} {
			calls := map[string]func() error{
				"mac, read": func() error { _, err := s.BootRecord(ctx, mac); return err },
				"mac, set":  func() error { _, err := s.SetBootRecord(ctx, start, ada, mac, hostname); return err },
				"mac, sighting": func() error {
					_, err := s.Sight(ctx, start, booterCaller, "b1", []muster.Sighting{{MAC: mac}})
					return err
				},
				"mac, newcomers": func() error { _, err := s.Newcomers(ctx, mac); return err },
				"value, shared": func() error {
					_, err := s.AddSharedIdentity(ctx, start, ada, muster.SharedIdentity{Kind: muster.SharedMAC, Value: mac})
					return err
				},
				"value, shared, gone": func() error { return s.RemoveSharedIdentity(ctx, start, ada, muster.SharedMAC, mac) },
				"mac, announcement": func() error {
					a := b.announcement("s2")
					a.MAC = mac
					_, err := s.Announce(ctx, start, booterCaller, a)
					return err
				},
			}
			for _, e := range []muster.Event{lifecycle.Enroll, lifecycle.Decommission, lifecycle.Reactivate} {
				calls["mac, "+string(e)] = func() error { _, err := s.RaiseBootRecord(ctx, start, ada, mac, e); return err }
			}
			unchanged(t, s, why, calls)
		}
		for prefix, why := range map[string]string{"01:00:5e": "multicast", "ff:ff": "multicast"} {
			unchanged(t, s, why, map[string]func() error{
				"allow[0].mac_prefix": func() error {
					p := testPolicy()
					p.Allow = []muster.AllowEntry{{MACPrefix: prefix}}
					_, err := s.SetBootPolicy(ctx, start, ada, p)
					return err
				},
			})
		}
		// A machine may say it of a card that was given none yet: it counts for
		// nothing, and the rest of what it says is taken.
		for _, mac := range []string{"00:00:00:00:00:00", "01:00:5e:00:00:fb"} {
			a := b.announcement("s3")
			a.Sysinfo = b.with(mac)
			must[muster.Announced](t)(s.Announce(ctx, start, booterCaller, a))
			if r := must[muster.Registration](t)(s.Registration(ctx, b.uuid)); len(r.MACs) != 1 {
				t.Errorf("%v", r.MACs)
			}
		}
		healthy(t, s)
	})
}

// What hangs on an address is refused without one, and says what to do; with
// one it is set, and the address stays.
func TestNetworkingWantsAnAddress(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b := boxNo(1)
		hostname := muster.BootChange{Networking: &muster.Networking{Hostname: "web1", Gateway: "10.77.0.2"}}
		_, err := s.SetBootRecord(ctx, start, ada, b.mac, hostname)
		wantCode(t, err, muster.CodeConflict)
		if !strings.Contains(err.Error(), "muster boot enroll "+b.mac) || strings.Contains(err.Error(), "networking.address") {
			t.Error(err)
		}
		if r := must[muster.BootRecord](t)(s.BootRecord(ctx, b.mac)); !r.Synthesized {
			t.Errorf("a refused change made %+v", r)
		}
		had := must[muster.BootRecord](t)(s.RaiseBootRecord(ctx, start, ada, b.mac, lifecycle.Enroll))
		got := must[muster.BootRecord](t)(s.SetBootRecord(ctx, start, ada, b.mac, hostname))
		if got.Address != had.Address || got.Networking.Address != had.Networking.Address || got.Networking.Hostname != "web1" || got.Networking.Gateway != "10.77.0.2" {
			t.Errorf("%+v, %+v", got, got.Networking)
		}
	})
}

// What is wrong with a shared value names the field that was typed.
func TestSharedNamesTheField(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		add := func(kind, value string) func() error {
			return func() error {
				_, err := s.AddSharedIdentity(ctx, start, ada, muster.SharedIdentity{Kind: muster.SharedKind(kind), Value: value})
				return err
			}
		}
		unchanged(t, s, "uuid, serial, mac", map[string]func() error{
			"kind": add("ip", "10.0.0.1"), "kind, none": add("", "x"),
			"kind, gone": func() error { return s.RemoveSharedIdentity(ctx, start, ada, "nic", "x") },
		})
		unchanged(t, s, "UUID", map[string]func() error{"value": add("uuid", "x")})
	})
}
