package store

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

var (
	getTombstone  = define("tombstones/get", `SELECT node_id, at, set_by, reason, seq FROM tombstones WHERE server_uuid = $1`)
	allTombstones = define("tombstones/list", `SELECT server_uuid, at, set_by, reason, seq FROM tombstones`)
	addTombstone  = define("tombstones/add", `INSERT INTO tombstones (server_uuid, node_id, at, set_by, reason, seq) VALUES ($1, $2, $3, $4, $5, $6)`)
	dropTombstone = define("tombstones/drop", `DELETE FROM tombstones WHERE server_uuid = $1`)

	buryKey = define("dead-keys/bury", `
INSERT INTO dead_keys (id, secret_hash, server_uuid, died_at, expunged)
SELECT id, secret_hash, server_uuid, $2, FALSE FROM api_keys WHERE server_uuid = $1 AND server_uuid <> '' AND scope = 'agent'`)
	expungeKeys  = define("dead-keys/expunge", `UPDATE dead_keys SET expunged = TRUE WHERE server_uuid = $1`)
	forgetKeys   = define("dead-keys/forget", `DELETE FROM dead_keys WHERE server_uuid = $1 AND NOT expunged`)
	findDeadKey  = define("dead-keys/get", `SELECT secret_hash, server_uuid, expunged FROM dead_keys WHERE id = $1`)
	bootersKnown = define("booters/followed", `SELECT name, followed, last_seen FROM booters ORDER BY name`)
	booterMoved  = define("booters/moved", `UPDATE booters SET followed = $2, last_seen = $3 WHERE name = $1`)
)

// A tombstone keeps a machine out.
type tombstone struct {
	muster.Expunged
	nodeID string
}

func findTombstone(from source, uuid string) (*tombstone, error) {
	var x tombstone
	var at int64
	found, err := from.get(getTombstone, []any{uuid}, &x.nodeID, &at, &x.By, &x.Reason, &x.Seq)
	if err != nil || !found {
		return nil, err
	}
	x.At = fromMicro(at)
	return &x, nil
}

// Tombstone is what keeps a machine out, in whichever byte order its UUID is
// spelled; nil: nothing does.
func (s *Store) Tombstone(ctx context.Context, uuid string) (*muster.Expunged, error) {
	var found *muster.Expunged
	err := s.read(ctx, "reading a tombstone", func(r *reading) error {
		found = nil
		for _, spelled := range []string{uuid, muster.SwapUUID(uuid)} {
			x, err := findTombstone(r, spelled)
			if err != nil {
				return err
			}
			if x != nil {
				found = &x.Expunged
				return nil
			}
		}
		return nil
	})
	return found, err
}

// tombstones are all there are, by machine; an operator expunges few.
func tombstones(from source) (map[string]*muster.Expunged, error) {
	all := map[string]*muster.Expunged{}
	err := from.each(allTombstones, nil, func(scan func(...any) error) error {
		var uuid string
		var at int64
		x := new(muster.Expunged)
		err := scan(&uuid, &at, &x.By, &x.Reason, &x.Seq)
		x.At, all[uuid] = fromMicro(at), x
		return err
	})
	return all, err
}

// Expunge cuts a node off for good, in one transaction: policy, registration,
// keys, boot records, disks and placements, and a tombstone that only an
// operator's readmit lifts.
func (s *Store) ExpungeNode(ctx context.Context, now time.Time, by muster.Caller, nodeID string, x muster.Expunge) (muster.NodeDetail, error) {
	if err := checkReason(x.Reason); err != nil {
		return muster.NodeDetail{}, err
	}
	err := s.write(ctx, "expunging a node", now, by, func(t *tx) error {
		m, err := t.onNode(nodeID)
		if err != nil {
			return err
		}
		if err := m.confirmed(x.Confirm); err != nil {
			return err
		}
		next, changed, err := m.raiseNode(lifecycle.Expunge, lifecycle.Facts{})
		if err != nil {
			return err
		}
		if !changed {
			return t.expungedAgain(lifecycle.Expunge, nodeSubject(nodeID), x.Reason)
		}
		return t.expunge(m, next, x.Reason)
	})
	if err != nil {
		return muster.NodeDetail{}, err
	}
	return s.Node(ctx, nodeID)
}

// expungedAgain lets a repetition with the same reason pass: its answer may have
// been lost. Another reason would be lost with it, and its author should know
// who came first.
func (t *tx) expungedAgain(e muster.Event, subject, reason string) error {
	var at int64
	var by, text string
	if _, err := t.get(lastOfKind, []any{subject, string(e)}, &at, &by, &text); err != nil {
		return err
	}
	var d struct{ Reason string }
	if err := json.Unmarshal([]byte(text), &d); err != nil || d.Reason == reason {
		return err
	}
	p := muster.Problemf(muster.CodeConflict, "%s is expunged already, since %s, by %s, for this reason: %s; nothing was changed",
		strings.Replace(subject, "/", " ", 1), fromMicro(at).Format(time.RFC3339), by, cmp.Or(d.Reason, "none was given"))
	p.State = string(muster.PolicyExpunged)
	return p
}

func checkReason(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return muster.Invalid("reason", "say why it is expunged: whoever asks later is told")
	}
	if len(reason) > 512 || !printable(reason) {
		return muster.Invalid("reason", "a reason is one line of at most 512 bytes")
	}
	return nil
}

// confirmed compares what the operator repeated.
func (m *machine) confirmed(said string) error {
	want, what := m.reg.Serial, "serial number"
	if want == "" {
		want, what = m.uuid, "UUID"
	}
	if said != want && said != m.uuid {
		return muster.Invalid("confirm", "this is not the %s of machine %s", what, m.uuid)
	}
	return nil
}

func (t *tx) expunge(m *machine, next lifecycle.State, reason string) error {
	d := detail{"from": m.node.Policy, "node_id": m.node.ID, "server_uuid": m.uuid, "registration": m.had, "serial": m.reg.Serial, "reason": reason}
	if m.reg.BoundKeyID != "" {
		d["revoked_key"] = m.reg.BoundKeyID
	}
	if _, err := t.record(string(lifecycle.Expunge), nodeSubject(m.node.ID), d); err != nil {
		return err
	}
	if err := t.leave(m, muster.PlacementLost); err != nil {
		return err
	}
	seq, err := t.record(string(lifecycle.Expunge), subject(m.uuid), d)
	if err != nil {
		return err
	}
	m.reason = reason
	return t.save(m, next, seq)
}

// saveTombstone writes the difference between the tombstone there is and the
// one that the rows call for.
func (t *tx) saveTombstone(m *machine, next lifecycle.State, seq int64) error {
	switch {
	case next.Tombstone == lifecycle.Tombstoned && m.tomb == nil:
		m.tomb = &tombstone{muster.Expunged{At: t.now, By: t.by.String(), Reason: m.reason, Seq: seq}, m.node.ID}
		_, err := t.exec(addTombstone, m.uuid, m.node.ID, micro(t.now), t.by.String(), m.reason, seq)
		return err
	case next.Tombstone == lifecycle.NoTombstone && m.tomb != nil:
		m.tomb = nil
		return t.change(dropTombstone, m.uuid)
	}
	return nil
}

// readmit lifts the tombstone, whether there still is a registration or not.
// The keys that died with it stay dead.
func (t *tx) readmit(m *machine) error {
	next, changed, err := m.raise(lifecycle.Readmit, lifecycle.Facts{})
	if err != nil || !changed {
		return err
	}
	seq, err := t.record(string(lifecycle.Readmit), subject(m.uuid), detail{"expunged_at": m.tomb.At, "expunged_by": m.tomb.By})
	if err != nil {
		return err
	}
	return t.save(m, next, seq)
}

// expunged tells whoever comes with a key that died with its machine so, or with
// a certificate of it, which has no secret. It is not a guesser, and waits for
// nothing.
func expunged(r source, id string, given []byte) error {
	var hash []byte
	var uuid string
	var gone bool
	found, err := r.get(findDeadKey, []any{id}, &hash, &uuid, &gone)
	if err != nil {
		return err
	}
	if given != nil && !equal(hash, given) || !found || !gone {
		return unauthenticated()
	}
	p := muster.Problemf(muster.CodeGone, "machine %s was expunged from the fleet: this key is dead for ever; once an operator has readmitted the machine, it registers again without it", uuid)
	p.Type = muster.TypeExpunged
	return p
}

// Followed notes how far a booter has followed the feed: it asks for what comes
// after. It writes nothing; FlushSeen does.
func (s *Store) Followed(now time.Time, booter string, seq int64) { s.seen.booter(booter, seq, now) }

// confirmations says which booters have followed the feed to seq.
func (s *Store) confirmations(from source, seq int64) ([]muster.BooterConfirmation, error) {
	cs := []muster.BooterConfirmation{}
	err := from.each(bootersKnown, nil, func(scan func(...any) error) error {
		var name string
		var at, last int64
		if err := scan(&name, &at, &last); err != nil {
			return err
		}
		seen := fromMicro(last)
		if p, ok := s.seen.position(name); ok && (p.seq > at || p.at.After(seen)) {
			at, seen = p.seq, p.at
		}
		cs = append(cs, muster.BooterConfirmation{Booter: name, Confirmed: at >= seq, LastSeen: &seen})
		return nil
	})
	return cs, err
}
