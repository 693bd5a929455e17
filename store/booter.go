package store

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"muster.internal"
)

var (
	installsNow = define("feed/installs", `
SELECT server_uuid, setup_epoch, setup_session, bundle, setup_deadline, operation_id FROM registrations
WHERE state = 'setting_up' ORDER BY server_uuid`)

	setBooter = define("booters/set", `
INSERT INTO booters (name, document, last_seen) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET document = excluded.document, last_seen = excluded.last_seen`)
	booterNamed  = define("booters/get", `SELECT document FROM booters WHERE name = $1`)
	booterStands = define("booters/stands", `SELECT document, followed, last_seen FROM booters WHERE name = $1`)
	dropBooter   = define("booters/drop", `DELETE FROM booters WHERE name = $1`)
	bootersAll   = define("booters/list", `SELECT document, last_seen FROM booters ORDER BY name`)
)

// BooterFeed returns what changed after a position, as of one moment. A
// position that this store has never reached (it was restored from a backup)
// counts as none.
func (s *Store) BooterFeed(ctx context.Context, after int64) (muster.BooterFeed, error) {
	var f muster.BooterFeed
	err := s.snapshot(ctx, "reading the booter's feed", func(r *reading) error {
		f = muster.BooterFeed{Installs: []muster.Install{}}
		from := after
		if _, err := r.get(headSeq, nil, &f.Seq); err != nil {
			return err
		}
		if from > f.Seq {
			from = 0
		}
		found, err := records(r, recordsAfter, from)
		if err != nil {
			return err
		}
		f.Records = bare(found)
		if err := markPasswords(r, f.Records); err != nil {
			return err
		}
		p, err := findPolicy(r)
		if err != nil {
			return err
		}
		if from == 0 || p.Seq > from {
			f.Policy = &p
		}
		return r.each(installsNow, nil, func(scan func(...any) error) error {
			var i muster.Install
			var bundle string
			var deadline *int64
			if err := scan(&i.ServerUUID, &i.Epoch, &i.Session, &bundle, &deadline, &i.OperationID); err != nil {
				return err
			}
			i.Taken = bundle == "taken"
			if at := fromMicroPtr(deadline); at != nil {
				i.Deadline = *at
			}
			f.Installs = append(f.Installs, i)
			return nil
		})
	})
	return f, err
}

// ReportBooter keeps a booter's last word about itself. It is a report, not a
// change: it stays out of audit and feed. A DHCP server that it did not know of
// the last time is one, and so is the end of a machine's bus session.
func (s *Store) ReportBooter(ctx context.Context, now time.Time, by muster.Caller, b muster.BooterStatus) error {
	if !muster.ValidStamp(b.Booter) {
		return muster.Invalid("booter", "a booter's name is 1 to 64 letters, digits, dots, hyphens or underscores")
	}
	return s.write(ctx, "keeping a booter's status", now, by, func(t *tx) error {
		if err := t.settleLinks(b); err != nil {
			return err
		}
		b := b
		b.LastSeen, b.Held, b.Sessions = nil, len(b.Sessions), nil
		if err := t.noteServers(b); err != nil {
			return err
		}
		document, err := json.Marshal(b)
		if err != nil {
			return err
		}
		_, err = t.exec(setBooter, b.Booter, string(document), micro(t.now))
		return err
	})
}

// noteServers writes down which DHCP servers a booter is in the way of, or they
// in its, that its last report did not name.
func (t *tx) noteServers(b muster.BooterStatus) error {
	unwanted := b.Unwanted()
	if len(unwanted) == 0 {
		return nil
	}
	var was muster.BooterStatus
	var document string
	found, err := t.get(booterNamed, []any{b.Booter}, &document)
	if err == nil && found {
		err = json.Unmarshal([]byte(document), &was)
	}
	if err != nil {
		return err
	}
	for _, o := range unwanted {
		known := slices.ContainsFunc(was.Unwanted(), func(k muster.OtherServer) bool { return k.Address == o.Address })
		if known {
			continue
		}
		if _, err := t.record("second_dhcp_server", "booter/"+b.Booter, detail{"server": o.Address, "offered": o.Offered, "mac": o.MAC}); err != nil {
			return err
		}
	}
	return nil
}

// RemoveBooter forgets a booter that is gone for good: what it held is over, and
// nobody waits for its confirmation. Should it report again, it is a booter again.
func (s *Store) RemoveBooter(ctx context.Context, now time.Time, by muster.Caller, name string) error {
	err := s.write(ctx, "removing a booter", now, by, func(t *tx) error {
		var document string
		var b muster.BooterStatus
		var followed, last int64
		found, err := t.get(booterStands, []any{name}, &document, &followed, &last)
		if err != nil {
			return err
		}
		if !found {
			return muster.Problemf(muster.CodeNotFound, "there is no booter %s; \"muster booter ls\" lists them", name)
		}
		if err := json.Unmarshal([]byte(document), &b); err != nil {
			return fmt.Errorf("booter's status: %w", err)
		}
		seen := fromMicro(last)
		if p, ok := s.seen.position(name); ok && p.at.After(seen) {
			seen = p.at
		}
		if ago := t.now.Sub(seen); !b.Stopped && ago < BooterSilence {
			p := muster.Problemf(muster.CodeConflict, "booter %s is not gone: it was last heard %s ago. Stop it, and make sure that nothing starts it again; it can be removed once it said that it stops, or was silent for %s",
				name, ago.Round(time.Second), BooterSilence)
			p.State = "reporting"
			return p
		}
		lost, err := t.heldBy(name, math.MaxInt64)
		if err != nil {
			return err
		}
		if _, err := t.record("remove_booter", "booter/"+name, detail{"last_seen": seen, "followed": followed, "sessions_lost": len(lost)}); err != nil {
			return err
		}
		for _, l := range lost {
			if err := t.lose(l.uuid, fmt.Sprintf("booter %s, which held its connection, was removed", name)); err != nil {
				return err
			}
		}
		return t.change(dropBooter, name)
	})
	if err == nil {
		s.seen.forget(name)
	}
	return err
}

// Booters lists every booter that reported and was not removed since.
func (s *Store) Booters(ctx context.Context) ([]muster.BooterStatus, error) {
	bs := []muster.BooterStatus{}
	err := s.read(ctx, "listing booters", func(r *reading) error {
		bs = bs[:0]
		return r.each(bootersAll, nil, func(scan func(...any) error) error {
			var document string
			var seen int64
			var b muster.BooterStatus
			if err := scan(&document, &seen); err != nil {
				return err
			}
			if err := json.Unmarshal([]byte(document), &b); err != nil {
				return fmt.Errorf("booter's status: %w", err)
			}
			at := fromMicro(seen)
			b.LastSeen = &at
			bs = append(bs, b)
			return nil
		})
	})
	return bs, err
}
