package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/boot"
)

var (
	getPolicy = define("policy/get", `SELECT document, seq FROM boot_policy WHERE id = 1`)
	setPolicy = define("policy/set", `
INSERT INTO boot_policy (id, document, seq) VALUES (1, $1, $2)
ON CONFLICT (id) DO UPDATE SET document = excluded.document, seq = excluded.seq`)
)

// findPolicy is the default policy until one was set.
func findPolicy(from source) (muster.BootPolicy, error) {
	p := muster.DefaultBootPolicy()
	var document string
	var seq int64
	found, err := from.get(getPolicy, nil, &document, &seq)
	if err != nil || !found {
		return p, err
	}
	p = muster.BootPolicy{}
	if err := json.Unmarshal([]byte(document), &p); err != nil {
		return p, fmt.Errorf("boot policy: %w", err)
	}
	p.Seq = seq
	return p, nil
}

// BootPolicy is the site's policy.
func (s *Store) BootPolicy(ctx context.Context) (p muster.BootPolicy, err error) {
	err = s.read(ctx, "reading the boot policy", func(r *reading) error {
		p, err = findPolicy(r)
		return err
	})
	return p, err
}

// SetBootPolicy replaces the policy. Image names are resolved to digests now,
// and both are kept.
func (s *Store) SetBootPolicy(ctx context.Context, now time.Time, by muster.Caller, p muster.BootPolicy) (muster.BootPolicy, error) {
	if err := checkPolicy(&p); err != nil {
		return muster.BootPolicy{}, err
	}
	var set muster.BootPolicy
	err := s.write(ctx, "setting the boot policy", now, by, func(t *tx) error {
		set = p
		var err error
		if set.EnrollmentPI, err = resolve(t, "enrollment_pi", p.EnrollmentPI); err != nil {
			return err
		}
		if set.RescuePI, err = resolve(t, "rescue_pi", p.RescuePI); err != nil {
			return err
		}
		old, err := findPolicy(t)
		if err != nil {
			return err
		}
		seq, err := t.record("set_policy", "boot-policy", detail{"policy": set, "was": old})
		if err != nil {
			return err
		}
		set.Seq = seq
		document, err := json.Marshal(set)
		if err != nil {
			return err
		}
		_, err = t.exec(setPolicy, string(document), seq)
		return err
	})
	return set, err
}

// checkPolicy checks what needs no database, and spells it canonically.
func checkPolicy(p *muster.BootPolicy) error {
	p.Allow = append([]muster.AllowEntry{}, p.Allow...)
	p.Networks = append([]muster.AdminNetwork{}, p.Networks...)
	for i := range p.Allow {
		if err := checkAllow(fmt.Sprintf("allow[%d]", i), &p.Allow[i]); err != nil {
			return err
		}
	}
	switch p.AdoptDisks {
	case "":
		p.AdoptDisks = muster.AdoptExplicit
	case muster.AdoptExplicit, muster.AdoptAuto:
	default:
		return muster.Invalid("adopt_disks", "%.20q is neither %s nor %s", p.AdoptDisks, muster.AdoptExplicit, muster.AdoptAuto)
	}
	if key, err := boot.CheckNodeConfig(p.NodeConfig); err != nil {
		return muster.Invalid(strings.TrimSuffix("node_config."+key, "."), "%v", err)
	}
	names := map[string]bool{}
	var prefixes []netip.Prefix
	for i := range p.Networks {
		n, field := &p.Networks[i], fmt.Sprintf("networks[%d]", i)
		prefix, err := checkNetwork(field, n)
		if err != nil {
			return err
		}
		if names[n.Name] {
			return muster.Invalid(field+".name", "there are two networks named %s", n.Name)
		}
		names[n.Name] = true
		for j, other := range prefixes {
			if prefix.Overlaps(other) {
				return muster.Invalid(field+".prefix", "%s overlaps %s of network %s", prefix, other, p.Networks[j].Name)
			}
		}
		prefixes = append(prefixes, prefix)
	}
	return nil
}

func checkAllow(field string, a *muster.AllowEntry) error {
	a.ServiceTag = strings.TrimSpace(a.ServiceTag)
	if (a.ServiceTag == "") == (a.MACPrefix == "") {
		return muster.Invalid(field, "an entry has either a service_tag or a mac_prefix")
	}
	if len(a.ServiceTag) > 64 || !printable(a.ServiceTag) {
		return muster.Invalid(field+".service_tag", "a service tag has at most 64 printable characters")
	}
	if a.MACPrefix == "" {
		return nil
	}
	octets := strings.Split(a.MACPrefix, ":")
	whole, err := muster.ParseMAC(a.MACPrefix + strings.Repeat(":01", max(6-len(octets), 0)))
	if errors.Is(err, muster.ErrNoCard) {
		return muster.Invalid(field+".mac_prefix", "no network card's address begins with %.20s: %v", a.MACPrefix, err)
	}
	if err != nil || len(a.MACPrefix) != 3*len(octets)-1 || !strings.HasPrefix(whole, strings.ToLower(a.MACPrefix)) {
		return muster.Invalid(field+".mac_prefix", "%q is not the beginning of a MAC address in canonical form, like 52:54:00", a.MACPrefix)
	}
	a.MACPrefix = strings.ToLower(a.MACPrefix)
	return nil
}

func checkNetwork(field string, n *muster.AdminNetwork) (netip.Prefix, error) {
	none := netip.Prefix{}
	if !muster.ValidStamp(n.Name) {
		return none, muster.Invalid(field+".name", "a name is 1 to 64 letters, digits, dots, hyphens or underscores")
	}
	prefix, err := netip.ParsePrefix(n.Prefix)
	if isIPv6(n.Prefix) {
		return none, noIPv6(field+".prefix", n.Prefix)
	}
	if err != nil || !prefix.Addr().Is4() || prefix.Bits() < 8 || prefix.Bits() > 30 {
		return none, muster.Invalid(field+".prefix", "%q is not an IPv4 network from /8 to /30, like 10.77.0.0/24", n.Prefix)
	}
	if prefix != prefix.Masked() {
		return none, muster.Invalid(field+".prefix", "%s has bits set behind its length: did you mean %s?", prefix, prefix.Masked())
	}
	inside := func(name, s string) (netip.Addr, error) {
		a, err := ipv4(field+"."+name, s)
		if err != nil {
			return a, err
		}
		if !prefix.Contains(a) || a == prefix.Addr() || a == broadcast(prefix) {
			return a, muster.Invalid(field+"."+name, "%s is not the address of a host in %s", a, prefix)
		}
		return a, nil
	}
	from, err := inside("start", n.Start)
	if err != nil {
		return none, err
	}
	to, err := inside("end", n.End)
	if err != nil {
		return none, err
	}
	if to.Less(from) {
		return none, muster.Invalid(field+".end", "%s comes before start, %s", to, from)
	}
	if n.Gateway != "" {
		if _, err := inside("gateway", n.Gateway); err != nil {
			return none, err
		}
	}
	for name, list := range map[string][]string{"resolvers": n.Resolvers, "giaddrs": n.Giaddrs} {
		for i, s := range list {
			if _, err := ipv4(fmt.Sprintf("%s.%s[%d]", field, name, i), s); err != nil {
				return none, err
			}
		}
	}
	if n.Lease < 0 || n.Lease != 0 && n.Lease < 60 {
		return none, muster.Invalid(field+".lease_seconds", "a lease lasts a minute or more")
	}
	if len(n.Interface) > 15 || len(n.CircuitID) > 255 || !printable(n.Interface+n.CircuitID) {
		return none, muster.Invalid(field+".interface", "interface or circuit_id is too long or not printable")
	}
	return prefix, nil
}

// ipv4 reads an address, and says plainly that the other kind will not do.
func ipv4(field, s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	switch {
	case isIPv6(s):
		return a, noIPv6(field, s)
	case err != nil:
		return a, muster.Invalid(field, "%.64q is not an IPv4 address", s)
	}
	return a, nil
}

// isIPv6 tells whether somebody meant an address of the other kind, with a
// prefix length, in brackets or with a zone as may be.
func isIPv6(s string) bool { return strings.Count(s, ":") >= 2 }

func noIPv6(field, s string) error {
	return muster.Invalid(field, "%.64s is an IPv6 address: machines boot and are administered over IPv4 alone, give an IPv4 address", s)
}

func broadcast(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	return netip.AddrFrom4(b)
}
