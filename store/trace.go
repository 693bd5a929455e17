package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"muster.internal"
)

// How long a trace is kept, and how many there may be: the oldest go first.
const (
	traceKeep = 14 * 24 * time.Hour
	traceMost = 20_000
)

var (
	// The clocks of booters differ, their own does not: a report that was
	// overtaken by a later one of the same booter changes nothing.
	setTrace = define("traces/set", `
INSERT INTO boot_traces (booter, mac, at, document) VALUES ($1, $2, $3, $4)
ON CONFLICT (booter, mac) DO UPDATE SET at = excluded.at, document = excluded.document WHERE boot_traces.at <= excluded.at`)
	tracesOf   = define("traces/card", `SELECT document FROM boot_traces WHERE mac = $1 ORDER BY booter`)
	tracesDue  = define("traces/due", `SELECT mac FROM boot_traces WHERE at < $1 LIMIT 1`)
	tracesOld  = define("traces/expire", `DELETE FROM boot_traces WHERE at < $1`)
	tracesMark = define("traces/most", `SELECT at FROM boot_traces ORDER BY at DESC LIMIT 1 OFFSET $1`)

	machineOfCard = define("traces/machine", `SELECT server_uuid FROM registrations WHERE boot_mac = $1 AND boot_mac <> '' ORDER BY last_seen DESC, server_uuid LIMIT 1`)
)

// MachineOfCard is the machine that announced itself from a NIC last; "": none.
func (s *Store) MachineOfCard(ctx context.Context, mac string) (uuid string, err error) {
	err = s.read(ctx, "looking for a card's machine", func(r *reading) error {
		_, err := r.get(machineOfCard, []any{mac}, &uuid)
		return err
	})
	return uuid, err
}

// KeepTraces takes in what a booter saw. It is a report, not a change: it stays
// out of audit and feed. A time that is still to come reads as now, so that a
// booter with a wrong clock does not hold its rows for ever.
func (s *Store) KeepTraces(ctx context.Context, now time.Time, by muster.Caller, booter string, ts []muster.BootTrace) error {
	type row struct {
		mac, document string
		at            time.Time
	}
	rows := make([]row, 0, len(ts))
	for _, v := range ts {
		mac, err := parseMAC(v.MAC)
		if err != nil {
			return err
		}
		v.Booter, v.MAC = booter, mac
		if v.At.After(now) {
			v.At = now
		}
		document, err := json.Marshal(v)
		if err != nil {
			return err
		}
		rows = append(rows, row{mac, string(document), v.At})
	}
	return s.write(ctx, "keeping boot traces", now, by, func(t *tx) error {
		for _, r := range rows {
			if _, err := t.exec(setTrace, booter, r.mac, micro(r.at), r.document); err != nil {
				return err
			}
		}
		return nil
	})
}

// Traces returns what every booter last saw of a NIC.
func (s *Store) Traces(ctx context.Context, mac string) ([]muster.BootTrace, error) {
	mac, err := parseMAC(mac)
	if err != nil {
		return nil, err
	}
	var ts []muster.BootTrace
	err = s.read(ctx, "reading boot traces", func(r *reading) error {
		ts = ts[:0]
		return r.each(tracesOf, []any{mac}, func(scan func(...any) error) error {
			var document string
			if err := scan(&document); err != nil {
				return err
			}
			var v muster.BootTrace
			if err := json.Unmarshal([]byte(document), &v); err != nil {
				return fmt.Errorf("trace of %s: %w", mac, err)
			}
			ts = append(ts, v)
			return nil
		})
	})
	return ts, err
}

// ExpireTraces forgets what is old, and the oldest of what is too much. It
// writes nothing when there is nothing to forget.
func (s *Store) ExpireTraces(ctx context.Context, now time.Time) error {
	return s.expireTraces(ctx, now, traceMost)
}

func (s *Store) expireTraces(ctx context.Context, now time.Time, most int) error {
	return s.write(ctx, "forgetting old boot traces", now, muster.Clock, func(t *tx) error {
		limit := micro(now.Add(-traceKeep))
		var mark int64
		over, err := t.get(tracesMark, []any{most - 1}, &mark)
		if err != nil {
			return err
		}
		if over {
			limit = max(limit, mark)
		}
		var mac string
		due, err := t.get(tracesDue, []any{limit}, &mac)
		if err == nil && due {
			_, err = t.exec(tracesOld, limit)
		}
		return err
	})
}
