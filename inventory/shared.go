package inventory

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"muster.internal"
)

//go:embed shared.tsv
var sharedRows string

// Shared are the values that are on many machines: those that come with
// muster, and those that an operator has added.
type Shared struct {
	values map[muster.SharedKind]map[string]muster.SharedIdentity
}

var builtin = func() *Shared {
	s := &Shared{values: map[muster.SharedKind]map[string]muster.SharedIdentity{}}
	for line := range strings.Lines(sharedRows) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 4 {
			panic("inventory: shared.tsv has a row without four fields: " + line)
		}
		row := muster.SharedIdentity{Kind: muster.SharedKind(f[0]), Value: f[1], Vendor: f[2], Comment: f[3], Builtin: true}
		if err := s.add(row); err != nil {
			panic("inventory: shared.tsv: " + err.Error())
		}
	}
	return s
}()

// BuiltinShared is what comes with muster.
func BuiltinShared() *Shared { return builtin }

// With adds an operator's rows; what is not canonical in them is left out.
func (s *Shared) With(rows []muster.SharedIdentity) *Shared {
	if len(rows) == 0 {
		return s
	}
	more := &Shared{values: map[muster.SharedKind]map[string]muster.SharedIdentity{}}
	for kind, vs := range s.values {
		more.values[kind] = maps.Clone(vs)
	}
	for _, r := range rows {
		_ = more.add(r) // was checked when it was added
	}
	return more
}

func (s *Shared) add(r muster.SharedIdentity) error {
	v, err := CanonicalShared(r.Kind, r.Value)
	if err != nil {
		return err
	}
	if s.values[r.Kind] == nil {
		s.values[r.Kind] = map[string]muster.SharedIdentity{}
	}
	s.values[r.Kind][v] = r
	return nil
}

// Rows lists everything, by kind and value.
func (s *Shared) Rows() []muster.SharedIdentity {
	var rows []muster.SharedIdentity
	for _, k := range muster.SharedKinds {
		for _, v := range slices.Sorted(maps.Keys(s.values[k])) {
			rows = append(rows, s.values[k][v])
		}
	}
	return rows
}

// CanonicalShared is how a value is kept: a UUID in the lesser of its byte
// orders, a serial number in lower case, a MAC address or its beginning in
// canonical octets. Errors say what is wrong with it.
func CanonicalShared(kind muster.SharedKind, value string) (string, error) {
	switch kind {
	case muster.SharedUUID:
		u, err := muster.ParseUUID(value)
		if err != nil {
			return "", err
		}
		return UUIDKey(u), nil
	case muster.SharedSerial:
		v := strings.ToLower(strings.Join(strings.Fields(value), " "))
		if v == "" || len(v) > 64 {
			return "", fmt.Errorf("a serial number has 1 to 64 characters")
		}
		return v, nil
	case muster.SharedMAC:
		m, err := muster.ParseMAC(value)
		if err == nil || errors.Is(err, muster.ErrNoCard) {
			return m, err
		}
		octets := strings.FieldsFunc(value, func(r rune) bool { return r == ':' || r == '-' })
		if n := len(octets); n >= 2 && n < 6 {
			if m, err := muster.ParseMAC(strings.Join(octets, ":") + strings.Repeat(":01", 6-n)); err == nil {
				return m[:3*n-1], nil
			}
		}
		return "", fmt.Errorf("%.40q is neither a MAC address nor the first two to five octets of some", value)
	}
	return "", fmt.Errorf("%.20q is none of uuid, serial, mac", kind)
}

// UUIDKey is the same for both byte orders of a canonical UUID.
func UUIDKey(uuid string) string { return min(uuid, muster.SwapUUID(uuid)) }

// UUID tells whether a UUID is on many boards, and what is known of it.
func (s *Shared) UUID(uuid string) (muster.SharedIdentity, bool) {
	r, is := s.values[muster.SharedUUID][UUIDKey(uuid)]
	return r, is
}

// MAC tells whether an address is on many adapters, or one adapter on many
// machines.
func (s *Shared) MAC(mac string) (muster.SharedIdentity, bool) {
	for n := 17; n >= 5; n -= 3 {
		if n > len(mac) {
			continue
		}
		if r, is := s.values[muster.SharedMAC][mac[:n]]; is {
			return r, true
		}
	}
	return muster.SharedIdentity{}, false
}

// Serial returns a machine's serial number, or "" when what stands there tells
// nothing: a placeholder, or one sign repeated.
func (s *Shared) Serial(serial string) string {
	serial = strings.Join(strings.Fields(serial), " ")
	low := strings.ToLower(serial)
	if _, is := s.values[muster.SharedSerial][low]; is || strings.Trim(low, "-. ") == "" || strings.Count(low, low[:1]) == len(low) {
		return ""
	}
	return serial
}

// Evidence draws the evidence from what a machine said of itself.
func (s *Shared) Evidence(f Facts) Evidence {
	return s.evidence(f.UUID, f.Serial, f.MACs, f.Disks)
}

// EvidenceOf draws the evidence from what is known of a registered machine.
func (s *Shared) EvidenceOf(r muster.Registration) Evidence {
	return s.evidence(r.ServerUUID, r.Serial, r.MACs, r.Disks)
}

func (s *Shared) evidence(uuid, serial string, macs []string, disks []muster.Disk) Evidence {
	e := Evidence{UUID: uuid, Serial: s.Serial(serial)}
	if _, is := s.UUID(uuid); is {
		e.SharedUUID = true
	}
	for _, m := range macs {
		if _, is := s.MAC(m); !is {
			e.MACs = append(e.MACs, m)
		}
	}
	for _, d := range disks {
		if id := d.Identity(); id != "" && !d.Removable {
			e.Disks = append(e.Disks, id)
		}
		for _, c := range d.Contents {
			if u, err := muster.ParseUUID(c.Stamp); err == nil && !slices.Contains(e.Stamps, u) {
				e.Stamps = append(e.Stamps, u)
			}
		}
	}
	return e
}

// RealSerial is Shared.Serial of what comes with muster.
func RealSerial(s string) string { return builtin.Serial(s) }

// SharedUUID tells whether a UUID is known to be on many boards.
func SharedUUID(uuid string) bool { _, is := builtin.UUID(uuid); return is }
