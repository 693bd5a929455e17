package store

import (
	"context"
	"slices"
	"time"

	"muster.internal"
)

var (
	getWindow = define("windows/get", `
SELECT opened_by, opened_at, closes_at, slots, taken, ended, ended_at FROM windows WHERE kind = $1`)
	setWindow = define("windows/set", `
INSERT INTO windows (kind, opened_by, opened_at, closes_at, slots, taken, ended, ended_at, seq)
VALUES ($1, $2, $3, $4, $5, 0, '', NULL, $6)
ON CONFLICT (kind) DO UPDATE SET opened_by = excluded.opened_by, opened_at = excluded.opened_at,
 closes_at = excluded.closes_at, slots = excluded.slots, taken = 0, ended = '', ended_at = NULL, seq = excluded.seq`)
	// The condition, and not what was read before, is what makes a slot one's own.
	takeSlot = define("windows/take", `
UPDATE windows SET taken = taken + 1, seq = $3
WHERE kind = $1 AND ended = '' AND closes_at > $2 AND (slots IS NULL OR taken < slots)`)
	endWindow = define("windows/end", `
UPDATE windows SET ended = $2, ended_at = $3, seq = $4 WHERE kind = $1 AND ended = ''`)
	windowsDue = define("clock/windows", `SELECT kind FROM windows WHERE ended = '' AND closes_at <= $1 ORDER BY kind`)
)

// longestWindow is in seconds.
const longestWindow = int(muster.WindowAtMost / time.Second)

func windowSubject(k muster.WindowKind) string { return "window/" + string(k) }

// findWindow is a window as it stands at now: closed when its time is over,
// whether the clock has looked at it or not.
func findWindow(from source, k muster.WindowKind, now time.Time) (muster.Window, error) {
	w := muster.Window{Kind: k}
	var opened, closes int64
	var slots, ended *int64
	found, err := from.get(getWindow, []any{string(k)}, &w.OpenedBy, &opened, &closes, &slots, &w.Taken, &w.Ended, &ended)
	if err != nil || !found {
		return w, err
	}
	openedAt, closesAt := fromMicro(opened), fromMicro(closes)
	w.OpenedAt, w.ClosesAt, w.EndedAt = &openedAt, &closesAt, fromMicroPtr(ended)
	w.Duration = int(closesAt.Sub(openedAt) / time.Second)
	if slots != nil {
		count := int(*slots)
		left := count - w.Taken
		w.Count, w.Remaining = &count, &left
	}
	if w.Ended == "" && !now.Before(closesAt) {
		w.Ended, w.EndedAt = muster.WindowExpired, &closesAt
	}
	w.Open = w.Ended == ""
	return w, nil
}

func checkKind(k muster.WindowKind) error {
	if !slices.Contains(muster.WindowKinds, k) {
		return muster.Problemf(muster.CodeNotFound, "there is no window %q: there are %s", k, join(muster.WindowKinds))
	}
	return nil
}

// Window says how a window stands at now.
func (s *Store) Window(ctx context.Context, now time.Time, k muster.WindowKind) (w muster.Window, err error) {
	if err := checkKind(k); err != nil {
		return w, err
	}
	err = s.read(ctx, "reading a window", func(r *reading) error {
		w, err = findWindow(r, k, now)
		return err
	})
	return w, err
}

// OpenWindow opens a window in place of the one that is open. A longer
// duration than a day is cut to it.
func (s *Store) OpenWindow(ctx context.Context, now time.Time, by muster.Caller, k muster.WindowKind, n muster.NewWindow) (muster.Window, error) {
	var w muster.Window
	if err := checkKind(k); err != nil {
		return w, err
	}
	if n.Duration < 1 {
		return w, muster.Invalid("duration_seconds", "a window is open for at least a second, and at most %d", longestWindow)
	}
	if n.Count != nil && (*n.Count < 1 || *n.Count > 1_000_000) {
		return w, muster.Invalid("count", "a window has 1 to 1000000 slots; leave count out to bound it by time alone")
	}
	seconds := min(n.Duration, longestWindow)
	err := s.write(ctx, "opening a window", now, by, func(t *tx) error {
		old, err := findWindow(t, k, t.now)
		if err != nil {
			return err
		}
		closes := t.now.Add(time.Duration(seconds) * time.Second)
		d := detail{"duration_seconds": seconds, "closes_at": closes, "count": n.Count}
		if seconds < n.Duration {
			d["asked_for_seconds"] = n.Duration
		}
		if old.Open {
			d["replaces"] = detail{"opened_by": old.OpenedBy, "closes_at": old.ClosesAt, "taken": old.Taken, "remaining": old.Remaining}
		}
		seq, err := t.record("open_window", windowSubject(k), d)
		if err != nil {
			return err
		}
		var slots any
		if n.Count != nil {
			slots = int64(*n.Count)
		}
		if _, err := t.exec(setWindow, string(k), by.String(), micro(t.now), micro(closes), slots, seq); err != nil {
			return err
		}
		w, err = findWindow(t, k, t.now)
		return err
	})
	w.Clamped = seconds < n.Duration
	return w, err
}

// CloseWindow closes a window. One that is not open stays as it is.
func (s *Store) CloseWindow(ctx context.Context, now time.Time, by muster.Caller, k muster.WindowKind) error {
	if err := checkKind(k); err != nil {
		return err
	}
	return s.write(ctx, "closing a window", now, by, func(t *tx) error {
		w, err := findWindow(t, k, t.now)
		if err != nil || !w.Open {
			return err
		}
		return t.endWindow(w, muster.WindowClosed, "close_window")
	})
}

func (t *tx) endWindow(w muster.Window, how muster.WindowEnded, action string) error {
	seq, err := t.record(action, windowSubject(w.Kind), detail{"opened_by": w.OpenedBy, "closes_at": w.ClosesAt, "taken": w.Taken, "remaining": w.Remaining})
	if err != nil {
		return err
	}
	at := t.now
	if how == muster.WindowExpired {
		at = *w.ClosesAt
	}
	return t.change(endWindow, string(w.Kind), string(how), micro(at), seq)
}

// expireWindow puts on record that a window's time is over. Nothing depends on
// it: whoever uses a window looks at the time.
func (t *tx) expireWindow(kind string) (bool, error) {
	w, err := findWindow(t, muster.WindowKind(kind), t.now)
	if err != nil || w.Ended != muster.WindowExpired {
		return false, err
	}
	return true, t.endWindow(w, muster.WindowExpired, "expire_window")
}

// takeSlot takes one slot for a machine, in the transaction that lets it in.
// The last one ends the window.
func (t *tx) takeSlot(w muster.Window, uuid string) error {
	w.Taken++
	d := detail{"server_uuid": uuid, "opened_by": w.OpenedBy, "taken": w.Taken}
	last := w.Remaining != nil && *w.Remaining == 1
	if w.Remaining != nil {
		left := *w.Remaining - 1
		w.Remaining = &left
		d["remaining"] = left
	}
	seq, err := t.record("take_slot", windowSubject(w.Kind), d)
	if err != nil {
		return err
	}
	if err := t.change(takeSlot, string(w.Kind), micro(t.now), seq); err != nil || !last {
		return err
	}
	return t.endWindow(w, muster.WindowUsedUp, "use_up_window")
}
