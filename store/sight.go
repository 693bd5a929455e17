package store

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

// Sight takes in what a booter saw on the wire, applies the boot policy, and
// returns the records it led to. A sighting that cannot be read is refused
// whole: the booter checks before it reports.
func (s *Store) Sight(ctx context.Context, now time.Time, by muster.Caller, booter string, seen []muster.Sighting) ([]muster.BootRecord, error) {
	if err := checkLines("booter", booter); err != nil {
		return nil, err
	}
	canonical := make([]muster.Sighting, len(seen))
	for i, v := range seen {
		mac, err := muster.ParseMAC(v.MAC)
		if err != nil {
			return nil, muster.Invalid("mac", "%v", err)
		}
		v.MAC = mac
		v.ServiceTag = strings.TrimSpace(v.ServiceTag)
		if len(v.ServiceTag) > 64 || !printable(v.ServiceTag) {
			v.ServiceTag = "" // firmware says what it likes; this is not a tag
		}
		if id, err := muster.ParseUUID(v.UUID); err == nil {
			v.UUID = id
		} else {
			v.UUID = ""
		}
		canonical[i] = v
	}
	var found []muster.BootRecord
	err := s.write(ctx, "taking in sightings", now, by, func(t *tx) error {
		found = found[:0]
		policy, err := findPolicy(t)
		if err != nil {
			return err
		}
		a := &admission{t: t, policy: policy, booter: booter}
		for _, v := range canonical {
			r, err := a.sight(v)
			if err != nil {
				return err
			}
			found = append(found, r.BootRecord)
		}
		return nil
	})
	return found, err
}

// admission is the boot policy at work in one transaction.
type admission struct {
	t      *tx
	policy muster.BootPolicy
	booter string
	taken  map[netip.Addr]bool // every reserved address, once it was asked for
}

// sight moves one record as far as the rows let it.
func (a *admission) sight(v muster.Sighting) (*record, error) {
	r, err := findRecord(a.t, v.MAC)
	if err != nil {
		return nil, err
	}
	fresh := r.stored == lifecycle.Unseen
	next, err := r.raise(lifecycle.Sight, lifecycle.Facts{})
	if err != nil {
		return nil, err
	}
	at := a.t.now
	if !v.At.IsZero() && v.At.Before(at) {
		at = v.At.UTC().Truncate(time.Microsecond)
	}
	tagged := v.ServiceTag != "" && v.ServiceTag != r.ServiceTag
	r.LastSeen, r.Arch = &at, v.Arch
	if v.UUID != "" {
		r.SeenUUID = v.UUID
	}
	if tagged {
		r.ServiceTag = v.ServiceTag
	}
	if fresh {
		r.FirstSeen, r.Provenance = &at, provenance(a.booter, v)
	}
	r.State = next.State
	e := muster.Event("")
	if r.State == muster.Discovered {
		if e, err = a.admit(r, a.network(v)); err != nil {
			return nil, err
		}
	}
	if e == "" && !fresh && !tagged {
		// Nothing is new but that it lives.
		_, err := a.t.exec(recordSeen, r.MAC, micro(at), r.Arch, r.SeenUUID)
		return r, err
	}
	if e == "" {
		e = lifecycle.Sight
	}
	return r, a.put(r, e)
}

// put writes the record down with its audit entry.
func (a *admission) put(r *record, e muster.Event) error {
	seq, err := a.t.record(string(e), recordSubject(r.MAC), detail{
		"state": r.State, "address": r.Address, "network": r.Network, "service_tag": r.ServiceTag, "uuid": r.SeenUUID,
		"booter": a.booter, "note": r.Note})
	if err != nil {
		return err
	}
	return a.t.putRecord(r, seq)
}

// admit tries what the policy may do with a discovered record, in order. It
// returns the event that happened, or none; sight when all that is new is the
// reason for serving nothing.
func (a *admission) admit(r *record, net *muster.AdminNetwork) (muster.Event, error) {
	f := lifecycle.Facts{AutoEnroll: a.policy.AutoEnroll, NetworkKnown: net != nil, AddressFree: true}
	f.OnAllowlist, f.TagWanted = a.allowed(r)
	var free netip.Addr
	if net != nil && r.Address == "" {
		var err error
		if free, err = a.lowestFree(net); err != nil {
			return "", err
		}
		f.AddressFree = free.IsValid()
	}
	note := ""
	second := lifecycle.StartProbe
	if r.probeSince != nil {
		if f.TagWanted {
			return "", nil // its tag is still to come
		}
		second = lifecycle.Dismiss
	}
	for _, e := range []muster.Event{lifecycle.Admit, second} {
		old := r.look("")
		next, err := r.raise(e, f)
		var no *lifecycle.Refusal
		if errors.As(err, &no) {
			if e == lifecycle.Admit {
				note = no.Reason()
			}
			continue
		}
		if err != nil {
			return "", err
		}
		if next == old {
			return "", nil
		}
		a.apply(r, e, next, net, free, note)
		return e, nil
	}
	if r.Note == note {
		return "", nil
	}
	r.Note = note
	return lifecycle.Sight, nil
}

func (a *admission) apply(r *record, e muster.Event, next lifecycle.Boot, net *muster.AdminNetwork, free netip.Addr, note string) {
	hadAddress := r.Address
	r.settle(next, "", nil)
	if next.Address == lifecycle.AddressReserved && hadAddress == "" {
		r.reserve(net, free)
		a.taken[free] = true
	}
	if next.Address == lifecycle.NoAddress && hadAddress != "" {
		if old, err := netip.ParseAddr(hadAddress); err == nil && a.taken != nil {
			delete(a.taken, old)
		}
	}
	r.Note = ""
	switch e {
	case lifecycle.StartProbe:
		r.probeSince, r.Note = &a.t.now, "waiting for its first boot to tell its service tag"
	case lifecycle.Dismiss:
		r.Note = note
	}
	r.Probe = r.probeSince != nil
}

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

// raise asks the rows what becomes of a record on its own.
func (r *record) raise(e muster.Event, f lifecycle.Facts) (lifecycle.Boot, error) {
	next, err := lifecycle.Apply(lifecycle.State{Boots: []lifecycle.Boot{r.look(r.ServerUUID)}}, e, 0, f)
	var no *lifecycle.Refusal
	if errors.As(err, &no) {
		no.Subject = "boot record " + r.MAC
	}
	if err != nil {
		return lifecycle.Boot{}, err
	}
	return next.Boots[0], nil
}

// allowed tells whether the allowlist admits the record, and whether that
// hangs on a service tag that is not known.
func (a *admission) allowed(r *record) (on, tagWanted bool) {
	if len(a.policy.Allow) == 0 {
		return true, false
	}
	tags := false
	for _, e := range a.policy.Allow {
		tags = tags || e.ServiceTag != ""
		if e.MACPrefix != "" && strings.HasPrefix(r.MAC, e.MACPrefix) ||
			e.ServiceTag != "" && strings.EqualFold(e.ServiceTag, r.ServiceTag) {
			return true, false
		}
	}
	return false, tags && r.ServiceTag == ""
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
	from, to := netip.MustParseAddr(n.Start), netip.MustParseAddr(n.End)
	for at := from; !to.Less(at); at = at.Next() {
		if !a.taken[at] && at.String() != n.Gateway && !slices.Contains(n.Resolvers, at.String()) && !slices.Contains(n.Giaddrs, at.String()) {
			return at, nil
		}
	}
	return netip.Addr{}, nil
}

func provenance(booter string, v muster.Sighting) string {
	s := "seen by booter " + booter
	if v.Interface != "" && checkLines("", v.Interface) == nil {
		s += " on " + v.Interface
	}
	if v.Giaddr != "" && checkLines("", v.Giaddr) == nil {
		s += " through relay " + v.Giaddr
	}
	return s
}
