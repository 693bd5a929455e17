package store

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"muster.internal"
	"muster.internal/boot"
	"muster.internal/inventory"
	"muster.internal/lifecycle"
)

func checkChange(c muster.BootChange) error {
	if c.Mode != nil && *c.Mode != muster.NormalMode && *c.Mode != muster.RescueMode {
		return muster.Invalid("mode", "%q is neither normal nor rescue", *c.Mode)
	}
	if c.RescueFor != nil {
		most := int(lifecycle.RescueAtMost / time.Second)
		if c.Mode == nil || *c.Mode != muster.RescueMode {
			return muster.Invalid("rescue_seconds", "it goes with mode rescue")
		}
		if *c.RescueFor < 60 || *c.RescueFor > most {
			return muster.Invalid("rescue_seconds", "a rescue lasts from 60 to %d seconds", most)
		}
	}
	if c.OwnUUID != nil && *c.OwnUUID != "" {
		u, err := muster.ParseUUID(*c.OwnUUID)
		if err != nil {
			return muster.Invalid("own_uuid", "%v", err)
		}
		if row, is := inventory.BuiltinShared().UUID(u); is {
			return muster.Invalid("own_uuid", "%s is a default that many boards share (%s)", u, row.Vendor)
		}
	}
	if n := c.Networking; n != nil {
		if err := checkNetworking(n); err != nil {
			return err
		}
	}
	if c.KernelArgs != nil {
		if len(*c.KernelArgs) > 64 {
			return muster.Invalid("kernel_args", "there are more than 64")
		}
		for i, a := range *c.KernelArgs {
			if err := boot.CheckArg(a); err != nil {
				return muster.Invalid(fmt.Sprintf("kernel_args[%d]", i), "%v", err)
			}
		}
	}
	return nil
}

// A recordChange is one record on its way to another state.
type recordChange struct {
	t       *tx
	m       *machine
	i       int
	r       *record
	touched bool
}

func (c *recordChange) raise(e muster.Event, f lifecycle.Facts) (lifecycle.Boot, error) {
	old := c.m.look()
	next, err := lifecycle.Apply(old, e, c.i, f)
	if err != nil {
		return lifecycle.Boot{}, refusal(err, "boot record "+c.r.MAC)
	}
	b := next.Boots[c.i]
	if b != old.Boots[c.i] {
		c.touched = true
		c.r.settle(b, c.m.uuid, nil)
	}
	return b, nil
}

func (c *recordChange) put(e muster.Event, d detail) error {
	if !c.touched {
		return nil // it was so before
	}
	if c.t.by != muster.Clock {
		c.r.touched = true
	}
	seq, err := c.t.record(string(e), recordSubject(c.r.MAC), d)
	if err != nil {
		return err
	}
	return c.t.putRecord(c.r, seq)
}

// enroll reserves an address, unless the record has one, and serves it the
// enrollment image.
func (c *recordChange) enroll() error {
	policy, err := findPolicy(c.t)
	if err != nil {
		return err
	}
	a := &admission{t: c.t, policy: policy}
	var net *muster.AdminNetwork
	if len(policy.Networks) == 1 {
		net = &policy.Networks[0]
	}
	for i := range policy.Networks {
		if policy.Networks[i].Name == c.r.Network {
			net = &policy.Networks[i]
		}
	}
	f := lifecycle.Facts{NetworkKnown: net != nil}
	var free netip.Addr
	had := c.r.Address
	if net != nil && had == "" {
		if free, err = a.lowestFree(net); err != nil {
			return err
		}
		f.AddressFree = free.IsValid()
	}
	next, err := c.raise(lifecycle.Enroll, f)
	if err != nil {
		return err
	}
	if next.Address == lifecycle.AddressReserved && had == "" {
		c.r.reserve(net, free)
	}
	if c.touched {
		c.r.Note = ""
	}
	return nil
}

func (c *recordChange) set(b muster.BootChange) error {
	if b.Mode != nil {
		if err := c.setMode(*b.Mode, b.RescueFor); err != nil {
			return err
		}
	}
	if b.AssignedPI != nil {
		if err := c.pin(*b.AssignedPI); err != nil {
			return err
		}
	}
	if b.KernelArgs == nil && b.Networking == nil && b.OwnUUID == nil {
		return nil
	}
	if _, err := c.raise(lifecycle.SetRecord, lifecycle.Facts{}); err != nil {
		return err
	}
	c.touched = true
	if b.KernelArgs != nil {
		c.r.KernelArgs = *b.KernelArgs
	}
	if b.OwnUUID != nil {
		c.r.OwnUUID, _ = muster.ParseUUID(*b.OwnUUID) // was checked; "" stays ""
		if c.r.OwnUUID != "" {
			c.r.AwaitsUUID, c.r.Note = false, ""
		}
	}
	if b.Networking != nil {
		return c.setNetworking(*b.Networking)
	}
	return nil
}

func (c *recordChange) setMode(mode muster.BootMode, seconds *int) error {
	if mode == muster.NormalMode {
		_, err := c.raise(lifecycle.RescueOff, lifecycle.Facts{})
		return err
	}
	if _, err := c.raise(lifecycle.RescueOn, lifecycle.Facts{}); err != nil {
		return err
	}
	last := lifecycle.RescueDefault
	if seconds != nil {
		last = time.Duration(*seconds) * time.Second
	}
	until := c.t.now.Add(last)
	c.r.RescueUntil, c.touched = &until, true
	return nil
}

func (c *recordChange) pin(name string) error {
	if name == "" {
		_, err := c.raise(lifecycle.Unpin, lifecycle.Facts{})
		return err
	}
	pi, err := resolve(c.t, "assigned_pi", &muster.ImageRef{Name: name})
	if err != nil {
		return err
	}
	if _, err := c.raise(lifecycle.Pin, lifecycle.Facts{}); err != nil {
		return err
	}
	c.r.AssignedPI, c.touched = pi, true
	return nil
}

func (c *recordChange) setNetworking(n muster.Networking) error {
	if c.r.Address == "" {
		p := muster.Problemf(muster.CodeConflict, "boot record %s has no address yet, and networking hangs on it: first muster boot enroll %s, which reserves one", c.r.MAC, c.r.MAC)
		p.State = string(c.r.State)
		return p
	}
	if n.Address == "" {
		n.Address = c.r.Networking.Address
	}
	p := netip.MustParsePrefix(n.Address) // was checked
	if at := p.Addr().String(); at != c.r.Address {
		if err := c.choose(p); err != nil {
			return err
		}
		c.r.Address = at
	}
	c.r.Networking = &n
	return nil
}

// choose checks an address that an operator wants for a record in place of the
// reserved one: a host's on the record's network, and nobody's. The index on
// addresses is the net below.
func (c *recordChange) choose(want netip.Prefix) error {
	policy, err := findPolicy(c.t)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(policy.Networks, func(n muster.AdminNetwork) bool { return n.Name == c.r.Network })
	if i < 0 {
		return muster.Invalid("networking.address", "the record's network, %q, is not in the boot policy any more", c.r.Network)
	}
	n := policy.Networks[i]
	on, at := netip.MustParsePrefix(n.Prefix), want.Addr()
	hosts, err := booterAddresses(c.t)
	if err != nil {
		return err
	}
	switch {
	case !on.Contains(at) || want.Bits() != on.Bits() || at == on.Addr() || at == broadcast(on):
		return muster.Invalid("networking.address", "%s is not the address of a host in %s, the record's network %s", want, on, n.Name)
	case slices.Contains(slices.Concat([]string{n.Gateway}, n.Resolvers, n.Giaddrs, hosts), at.String()):
		return muster.Invalid("networking.address", "%s is a gateway's, name server's, relay's or booter's", at)
	}
	var holder string
	taken, err := c.t.get(addressHolder, []any{at.String()}, &holder)
	if err == nil && taken && holder != c.r.MAC {
		err = muster.Problemf(muster.CodeConflict, "%s is reserved for network card %s", at, holder)
	}
	return err
}

var addressHolder = define("boot-records/holder", `SELECT mac FROM boot_records WHERE address = $1 AND address <> ''`)

func checkNetworking(n *muster.Networking) error {
	if isIPv6(n.Address) {
		return noIPv6("networking.address", n.Address)
	}
	// Without one the record keeps what it has.
	if _, err := netip.ParsePrefix(n.Address); err != nil && n.Address != "" {
		return muster.Invalid("networking.address", "%q is not an IPv4 address with its prefix length, like 10.77.0.101/24", n.Address)
	}
	if n.Gateway != "" {
		if _, err := ipv4("networking.gateway", n.Gateway); err != nil {
			return err
		}
	}
	for i, r := range n.Resolvers {
		if _, err := ipv4(fmt.Sprintf("networking.resolvers[%d]", i), r); err != nil {
			return err
		}
	}
	if n.Hostname != "" && !muster.ValidHostname(n.Hostname) {
		return muster.Invalid("networking.hostname", "%.64q is not an RFC 1123 label", n.Hostname)
	}
	return nil
}
