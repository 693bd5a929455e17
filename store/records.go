package store

import (
	"context"
	"slices"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

// BootRecords lists what was reported, by MAC.
func (s *Store) BootRecords(ctx context.Context, f muster.BootFilter) ([]muster.BootRecord, error) {
	if f.State != "" && !slices.Contains(muster.BootStates, f.State) {
		return nil, muster.Invalid("state", "%q is none of %s", f.State, join(muster.BootStates))
	}
	var rs []muster.BootRecord
	err := s.read(ctx, "listing boot records", func(r *reading) error {
		q, args := listRecords, []any{f.After, limit(f.Limit)}
		if f.State != "" {
			q, args = listRecordsIn, []any{string(f.State), f.After, limit(f.Limit)}
		}
		found, err := records(r, q, args...)
		rs = bare(found)
		return err
	})
	return rs, err
}

func bare(found []*record) []muster.BootRecord {
	rs := make([]muster.BootRecord, 0, len(found))
	for _, r := range found {
		rs = append(rs, r.BootRecord)
	}
	return rs
}

// BootRecord finds the record of a NIC. One that was never reported reads as
// discovered; no row is written.
func (s *Store) BootRecord(ctx context.Context, mac string) (muster.BootRecord, error) {
	var b muster.BootRecord
	mac, err := parseMAC(mac)
	if err != nil {
		return b, err
	}
	err = s.read(ctx, "reading a boot record", func(r *reading) error {
		rec, err := findRecord(r, mac)
		if err == nil {
			b = rec.public()
		}
		return err
	})
	return b, err
}

func parseMAC(mac string) (string, error) {
	c, err := muster.ParseMAC(mac)
	if err != nil {
		return "", muster.Invalid("mac", "%v", err)
	}
	return c, nil
}

// onRecord loads the machine that a record belongs to, and finds the record in
// it: an event about one record may look at its machine.
func (t *tx) onRecord(mac string) (*machine, int, error) {
	r, err := findRecord(t, mac)
	if err != nil {
		return nil, 0, err
	}
	if r.ServerUUID == "" {
		return &machine{reg: &registration{}, boots: []*record{r}}, 0, nil
	}
	m, err := t.load(r.ServerUUID, mac)
	if err != nil {
		return nil, 0, err
	}
	return m, m.boot(mac), nil
}

// RaiseBootRecord raises enroll, decommission or reactivate.
func (s *Store) RaiseBootRecord(ctx context.Context, now time.Time, by muster.Caller, mac string, e muster.Event) (muster.BootRecord, error) {
	var b muster.BootRecord
	mac, err := parseMAC(mac)
	if err != nil {
		return b, err
	}
	if e != lifecycle.Enroll && e != lifecycle.Decommission && e != lifecycle.Reactivate {
		return b, muster.Problemf(muster.CodeNotFound, "a boot record has no event %s", e)
	}
	err = s.write(ctx, string(e), now, by, func(t *tx) error {
		m, i, err := t.onRecord(mac)
		if err != nil {
			return err
		}
		c := &recordChange{t: t, m: m, i: i, r: m.boots[i]}
		if e == lifecycle.Enroll {
			err = c.enroll()
		} else {
			_, err = c.raise(e, lifecycle.Facts{})
		}
		if err != nil {
			return err
		}
		err = c.put(e, detail{"state": c.r.State, "address": c.r.Address})
		b = c.r.public()
		return err
	})
	return b, err
}

// SetBootRecord changes what an operator may set. All of it happens, or none.
func (s *Store) SetBootRecord(ctx context.Context, now time.Time, by muster.Caller, mac string, c muster.BootChange) (muster.BootRecord, error) {
	var b muster.BootRecord
	mac, err := parseMAC(mac)
	if err != nil {
		return b, err
	}
	if err := checkChange(c); err != nil {
		return b, err
	}
	err = s.write(ctx, "setting a boot record", now, by, func(t *tx) error {
		m, i, err := t.onRecord(mac)
		if err != nil {
			return err
		}
		rc := &recordChange{t: t, m: m, i: i, r: m.boots[i]}
		if err := rc.set(c); err != nil {
			return err
		}
		err = rc.put(lifecycle.SetRecord, detail{"change": c, "assigned_pi": rc.r.AssignedPI, "rescue_until": rc.r.RescueUntil})
		b = rc.r.public()
		return err
	})
	return b, err
}

func (t *tx) expireRescue(mac string) (bool, error) {
	return t.expireRecord(mac, lifecycle.ExpireRescue, func(r *record) bool {
		return r.RescueUntil != nil && !t.now.Before(*r.RescueUntil)
	})
}

func (t *tx) expireProbe(mac string) (bool, error) {
	return t.expireRecord(mac, lifecycle.ExpireProbe, func(r *record) bool {
		return over(t.now, r.probeSince, lifecycle.ProbeDeadline)
	})
}

func (t *tx) expireRecord(mac string, e muster.Event, due func(*record) bool) (bool, error) {
	m, i, err := t.onRecord(mac)
	if err != nil {
		return false, err
	}
	c := &recordChange{t: t, m: m, i: i, r: m.boots[i]}
	if _, err := c.raise(e, lifecycle.Facts{Overdue: due(c.r)}); err != nil {
		return false, err
	}
	if e == lifecycle.ExpireProbe {
		c.r.Note = "it never told its service tag, which the allowlist asks for"
	}
	return c.touched, c.put(e, detail{"state": c.r.State})
}
