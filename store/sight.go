package store

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/inventory"
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
		sh, err := t.shared()
		if err != nil {
			return err
		}
		a := &admission{t: t, policy: policy, booter: booter, shared: sh}
		for _, v := range canonical {
			r, err := a.sight(v)
			if err != nil {
				return err
			}
			if r == nil {
				continue
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
	shared *inventory.Shared
	noise  *noise   // once it was asked for
	hosts  []string // booters' own addresses, likewise
}

// sight moves one record as far as the rows let it.
func (a *admission) sight(v muster.Sighting) (*record, error) {
	r, err := findRecord(a.t, v.MAC)
	if err != nil {
		return nil, err
	}
	fresh := r.stored == lifecycle.Unseen
	if fresh {
		if room, err := a.roomForCard(); err != nil || !room {
			return nil, err // muster boot limits says so
		}
	}
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
		r.FirstSeen, r.Provenance, r.origin = &at, provenance(a.booter, v), a.booter
	}
	r.State = next.State
	identified, err := a.identify(r, v)
	if err != nil {
		return nil, err
	}
	e := muster.Event("")
	if r.State == muster.Discovered {
		if e, err = a.admit(r, a.network(v)); err != nil {
			return nil, err
		}
	}
	if e == "" && !fresh && !tagged && !identified {
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
	crowded := ""
	if net != nil && r.Address == "" {
		var err error
		if free, crowded, err = a.forPolicy(net); err != nil {
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
				if note = no.Reason(); crowded != "" && f.AutoEnroll && (f.OnAllowlist || f.TagWanted) {
					note = crowded
				}
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
		if a.noise != nil {
			a.noise.onNet[net.Name]++
			a.noise.byBooter[r.origin]--
		}
	}
	if next.Address == lifecycle.NoAddress && hadAddress != "" {
		if old, err := netip.ParseAddr(hadAddress); err == nil && a.taken != nil {
			delete(a.taken, old)
		}
	}
	r.Note = ""
	if r.AwaitsUUID {
		r.Note = awaitsUUID
	}
	switch e {
	case lifecycle.StartProbe:
		r.probeSince, r.Note = &a.t.now, "waiting for its first boot to tell its service tag"
	case lifecycle.Dismiss:
		r.Note = note
	}
	r.Probe = r.probeSince != nil
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

const awaitsUUID = "its UUID is on many boards: waiting for its first boot to tell its serial number, which another is derived from"

// identify sees to it that a machine whose firmware says what many do is told a
// UUID of its own. It is derived once and kept.
func (a *admission) identify(r *record, v muster.Sighting) (changed bool, err error) {
	row, is := a.shared.UUID(v.UUID)
	if v.UUID == "" || r.OwnUUID != "" || r.ServerUUID != "" || !is && !r.AwaitsUUID {
		return false, nil
	}
	was, note := r.AwaitsUUID, r.Note
	r.AwaitsUUID = is
	if !is {
		return true, nil
	}
	own, err := a.known(r.MAC)
	if err != nil {
		return false, err
	}
	if own == "" && (v.Script || v.ServiceTag != "") {
		own, _ = a.shared.Own(v.ServiceTag, r.MAC)
		if own == "" {
			r.Note = fmt.Sprintf("its UUID is on many boards (%s), and neither serial number nor MAC address is its own: muster boot set %s --uuid UUID", row.Vendor, r.MAC)
		}
	}
	if own != "" {
		r.OwnUUID, r.AwaitsUUID, r.Note = own, false, ""
	} else if r.State == muster.Enrolling && r.Note == "" {
		r.Note = awaitsUUID
	}
	return was != r.AwaitsUUID || note != r.Note || own != "", nil
}

// known is the machine that has named a card as its own, if the card is one
// machine's.
func (a *admission) known(mac string) (uuid string, err error) {
	if _, is := a.shared.MAC(mac); is {
		return "", nil
	}
	n := 0
	err = a.t.each(evidenceHolders, []any{"mac", mac}, func(scan func(...any) error) error {
		n++
		return scan(&uuid)
	})
	if n != 1 {
		uuid = ""
	}
	return uuid, err
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
