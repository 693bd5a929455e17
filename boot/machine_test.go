package boot

import (
	"net/netip"
	"testing"

	"muster.internal"
)

// What a record has of its own goes before its network, piece by piece, and what
// cannot be read is not there.
func TestNetworkOfMachine(t *testing.T) {
	a := netip.MustParseAddr
	pol := NewPolicy(&muster.BootPolicy{Networks: []muster.AdminNetwork{
		{Name: "admin", Prefix: "10.77.0.0/24", Gateway: "10.77.0.254", Resolvers: []string{"::1", "9.9.9.9", "8.8.8.8", "1.1.1.1", "4.4.4.4"}, Lease: 600},
		{Name: "odd", Prefix: "fd00::/64", Gateway: "gate", Lease: -1},
	}})
	admin := network{24, a("10.77.0.254"), false, [3]netip.Addr{a("9.9.9.9"), a("8.8.8.8"), a("1.1.1.1")}, 600}
	with := func(change func(*network)) network { n := admin; change(&n); return n }
	for _, c := range []struct {
		name, network string
		own           *muster.Networking
		want          network
	}{
		{"its network", "admin", nil, admin},
		{"a network that cannot be read", "odd", nil, network{bits: -1, lease: 3600}},
		{"no such network", "gone", nil, network{bits: -1, lease: 3600}},
		{"its own of all", "admin", &muster.Networking{Address: "10.77.0.9/16", Gateway: "10.77.0.1", Resolvers: []string{"10.0.0.1"}},
			network{16, a("10.77.0.1"), false, [3]netip.Addr{a("10.0.0.1")}, 600}},
		{"its own resolvers, none of IPv4", "admin", &muster.Networking{Resolvers: []string{"::1"}}, with(func(n *network) { n.dns = [3]netip.Addr{} })},
		{"its own that cannot be read", "admin", &muster.Networking{Address: "fd00::9/64", Gateway: "fd00::1"}, admin},
		{"its own without a network", "gone", &muster.Networking{Address: "10.77.0.9/16"}, network{bits: 16, lease: 3600}},
	} {
		m := NewMachine(&muster.BootRecord{Network: c.network, Networking: c.own})
		got := m.network(pol)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestReserves(t *testing.T) {
	for text, want := range map[string]bool{"10.77.0.9": true, "10.77.0.8": false, "": false, "fd00::9": false} {
		m := NewMachine(&muster.BootRecord{Address: text})
		if got := m.Reserves(netip.MustParseAddr("10.77.0.9")); got != want {
			t.Errorf("%q: %v", text, got)
		}
		if m.Reserves(netip.Addr{}) {
			t.Errorf("%q reserves no address at all", text)
		}
	}
	if NewMachine(nil).Reserves(netip.MustParseAddr("10.77.0.9")) {
		t.Error("a machine that is not known has an address")
	}
}
