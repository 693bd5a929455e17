package store

import (
	"fmt"
	"net/netip"
	"slices"

	"muster.internal"
)

// reserve gives the record an address and what it is configured with.
func (r *record) reserve(net *muster.AdminNetwork, at netip.Addr) {
	prefix := netip.MustParsePrefix(net.Prefix) // was checked when the policy was set
	r.Network, r.Address = net.Name, at.String()
	hostname := ""
	if r.Networking != nil {
		hostname = r.Networking.Hostname
	}
	r.Networking = &muster.Networking{
		Address: netip.PrefixFrom(at, prefix.Bits()).String(), Gateway: net.Gateway, Resolvers: net.Resolvers, Hostname: hostname,
	}
}

// network chooses the admin network of a request: by option 82, by relay, by
// interface; a policy's only network may leave all of them out.
func (a *admission) network(v muster.Sighting) *muster.AdminNetwork {
	ns := a.policy.Networks
	by := func(is func(n *muster.AdminNetwork) bool) *muster.AdminNetwork {
		for i := range ns {
			if is(&ns[i]) {
				return &ns[i]
			}
		}
		return nil
	}
	if v.CircuitID != "" {
		if n := by(func(n *muster.AdminNetwork) bool { return n.CircuitID == v.CircuitID }); n != nil {
			return n
		}
	}
	if relay, err := netip.ParseAddr(v.Giaddr); err == nil && !relay.IsUnspecified() {
		return by(func(n *muster.AdminNetwork) bool {
			p, err := netip.ParsePrefix(n.Prefix)
			return err == nil && p.Contains(relay) || slices.Contains(n.Giaddrs, relay.String())
		})
	}
	if v.Interface != "" {
		if n := by(func(n *muster.AdminNetwork) bool { return n.Interface == v.Interface }); n != nil {
			return n
		}
	}
	if len(ns) == 1 && ns[0].Interface == "" && ns[0].CircuitID == "" && len(ns[0].Giaddrs) == 0 {
		return &ns[0]
	}
	return nil
}

// lowestFree finds the lowest address of the network that nobody holds. The
// lane, and the index on the addresses, keep it from being given twice.
func (a *admission) lowestFree(n *muster.AdminNetwork) (netip.Addr, error) {
	if a.taken == nil {
		a.taken = map[netip.Addr]bool{}
		if err := a.t.each(addressesTaken, nil, func(scan func(...any) error) error {
			var s string
			if err := scan(&s); err != nil {
				return err
			}
			at, err := netip.ParseAddr(s)
			a.taken[at] = err == nil
			return err
		}); err != nil {
			return netip.Addr{}, err
		}
	}
	if a.hosts == nil {
		hosts, err := booterAddresses(a.t)
		if err != nil {
			return netip.Addr{}, err
		}
		a.hosts = append([]string{}, hosts...)
	}
	p := newPool(n, a.hosts)
	for at := p.from; !p.to.Less(at); at = at.Next() {
		if !a.taken[at] && !p.never[at] {
			return at, nil
		}
	}
	return netip.Addr{}, nil
}

// forPolicy is lowestFree for a card that nobody asked for: those behind which
// no machine said who it is leave some of a network to operators.
func (a *admission) forPolicy(n *muster.AdminNetwork) (free netip.Addr, crowded string, err error) {
	free, err = a.lowestFree(n)
	if err != nil || !free.IsValid() {
		return free, "", err
	}
	count, err := a.count()
	if err != nil {
		return netip.Addr{}, "", err
	}
	p := newPool(n, a.hosts)
	if held := count.onNet[n.Name]; held >= p.total-p.reserve {
		return netip.Addr{}, fmt.Sprintf("%d addresses of network %s are held by cards behind which no machine said who it is, and the rest is kept for operators: muster boot enroll %s gets one of those", held, n.Name, "NIC"), nil
	}
	return free, "", nil
}
