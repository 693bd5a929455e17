package boot

import (
	"cmp"
	"net/netip"

	"muster.internal"
)

// A Machine is a boot record with its addresses read: once, when the record
// comes, and not again for every packet.
type Machine struct {
	muster.BootRecord

	address netip.Addr // reserved; not valid: none
	own     *network   // what goes before the network; nil: nothing
}

// NewMachine reads a record. Without one there is no machine: nil.
func NewMachine(rec *muster.BootRecord) *Machine {
	if rec == nil {
		return nil
	}
	m := &Machine{BootRecord: *rec, address: parse4(rec.Address)}
	if n := rec.Networking; n != nil {
		m.own = &network{bits: prefixLength(n.Address), gateway: parse4(n.Gateway), ownDNS: len(n.Resolvers) > 0, dns: parseDNS(n.Resolvers)}
	}
	return m
}

// Reserves tells whether an address is the machine's own; a nil machine has none.
func (m *Machine) Reserves(a netip.Addr) bool {
	return m != nil && a.IsValid() && a == m.address
}

// A Policy is a boot policy with its networks read.
type Policy struct {
	*muster.BootPolicy

	networks map[string]network
}

// NewPolicy reads a policy.
func NewPolicy(p *muster.BootPolicy) *Policy {
	out := &Policy{p, make(map[string]network, len(p.Networks))}
	for i := range p.Networks {
		n := &p.Networks[i]
		out.networks[n.Name] = network{bits: prefixLength(n.Prefix), gateway: parse4(n.Gateway), dns: parseDNS(n.Resolvers),
			lease: cmp.Or(uint32(max(n.Lease, 0)), defaultLease)}
	}
	return out
}

// A network is what goes with an address. What cannot be read is not there.
type network struct {
	bits    int // prefix length; negative: none
	gateway netip.Addr
	ownDNS  bool // a machine lists resolvers of its own, maybe only such as cannot be read
	dns     [3]netip.Addr
	lease   uint32 // seconds; a machine has none of its own
}

// network is what goes with the machine's address: the record's own goes before
// that of its network.
func (m *Machine) network(pol *Policy) network {
	n, ok := pol.networks[m.Network]
	if !ok {
		n = network{bits: -1, lease: defaultLease}
	}
	if m.own == nil {
		return n
	}
	if m.own.bits >= 0 {
		n.bits = m.own.bits
	}
	if m.own.gateway.IsValid() {
		n.gateway = m.own.gateway
	}
	if m.own.ownDNS {
		n.dns = m.own.dns
	}
	return n
}

func prefixLength(s string) int {
	if p, err := netip.ParsePrefix(s); err == nil && p.Addr().Is4() {
		return p.Bits()
	}
	return -1
}

// parseDNS reads the first IPv4 addresses of a list.
func parseDNS(list []string) (dns [3]netip.Addr) {
	at := 0
	for _, s := range list {
		if a := parse4(s); a.IsValid() && at < len(dns) {
			dns[at] = a
			at++
		}
	}
	return dns
}

// parse4 reads an IPv4 address; what is none is not valid.
func parse4(s string) netip.Addr {
	if a, err := netip.ParseAddr(s); err == nil && a.Is4() {
		return a
	}
	return netip.Addr{}
}
