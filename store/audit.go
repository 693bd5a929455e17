package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"muster.internal"
	"muster.internal/audit"
)

var (
	lastOfKind = define("audit/last-of-kind", `
SELECT at, actor, detail FROM audit WHERE subject = $1 AND action = $2 ORDER BY seq DESC LIMIT 1`)
	headSeq = define("audit/head", `SELECT seq FROM audit_head WHERE id = 1`)
	getHead = define("audit/get-head", `SELECT seq, hash FROM audit_head WHERE id = 1`)
	setHead = define("audit/set-head", `UPDATE audit_head SET seq = $1, hash = $2 WHERE id = 1 AND seq = $3`)

	addEntry = define("audit/add", `
INSERT INTO audit (seq, at, actor, action, subject, detail, prev_hash, hash)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`)

	entriesAfter = define("audit/after", `
SELECT seq, at, actor, action, subject, detail, prev_hash, hash FROM audit
WHERE seq > $1 ORDER BY seq LIMIT $2`)

	entriesOfSubject = define("audit/subject", `
SELECT seq, at, actor, action, subject, detail, prev_hash, hash FROM audit
WHERE seq > $1 AND subject = $2 ORDER BY seq LIMIT $3`)
)

// chain is the end of the audit chain inside a group's transaction. It is read
// when the first entry is written, so that what writes none depends on none.
type chain struct {
	read  bool
	first int64
	seq   int64
	hash  string
}

// keep stores the new end of the chain.
func (h chain) keep(ctx context.Context, c *session) error {
	if h.seq == h.first {
		return nil
	}
	n, err := c.exec(ctx, setHead, h.seq, h.hash, h.first)
	if err == nil && n != 1 {
		return c.note(errLost)
	}
	return err
}

// detail is what an audit entry says beside who did what to whom. Its JSON has
// sorted keys.
type detail map[string]any

// record writes one audit entry and returns its position, which is that of the
// change in the feed. Detail must hold nothing secret.
func (t *tx) record(action, subject string, d detail) (int64, error) {
	if !t.chain.read {
		h := chain{read: true}
		found, err := t.get(getHead, nil, &h.seq, &h.hash)
		if err != nil {
			return 0, err
		}
		if !found {
			return 0, fmt.Errorf("the audit chain has lost its head")
		}
		h.first = h.seq
		t.chain = h
	}
	if t.by.Source != "" {
		with := detail{"source": t.by.Source}
		maps.Copy(with, d)
		d = with
	}
	raw, err := json.Marshal(d)
	if err != nil {
		return 0, err
	}
	e := muster.AuditEntry{
		Seq: t.chain.seq + 1, At: t.now, Actor: t.by.String(), Action: action, Subject: subject,
		Detail: raw, PrevHash: t.chain.hash,
	}
	e.Hash = audit.Hash(e)
	if _, err := t.exec(addEntry, e.Seq, micro(e.At), e.Actor, e.Action, e.Subject, string(raw), e.PrevHash, e.Hash); err != nil {
		return 0, err
	}
	t.chain.seq, t.chain.hash = e.Seq, e.Hash
	return e.Seq, nil
}

// Audit returns entries above f.After, oldest first: 1000 when no limit is set.
func (s *Store) Audit(ctx context.Context, f muster.AuditFilter) ([]muster.AuditEntry, error) {
	es := []muster.AuditEntry{}
	err := s.read(ctx, "listing the audit", func(r *reading) error {
		es = es[:0]
		q, args := entriesAfter, []any{f.After, limit(f.Limit)}
		if f.Subject != "" {
			q, args = entriesOfSubject, []any{f.After, f.Subject, limit(f.Limit)}
		}
		return r.each(q, args, func(scan func(...any) error) error {
			e, err := scanEntry(scan)
			es = append(es, e)
			return err
		})
	})
	return es, err
}

func scanEntry(scan func(...any) error) (muster.AuditEntry, error) {
	var e muster.AuditEntry
	var at int64
	var text string
	err := scan(&e.Seq, &at, &e.Actor, &e.Action, &e.Subject, &text, &e.PrevHash, &e.Hash)
	e.At, e.Detail = fromMicro(at), json.RawMessage(text)
	return e, err
}

func limit(n int) int {
	if n <= 0 || n > 1000 {
		return 1000
	}
	return n
}

// VerifyAudit walks the chain from its beginning and names the first entry
// that is not what was written.
func (s *Store) VerifyAudit(ctx context.Context) (muster.AuditVerdict, error) {
	var v muster.AuditVerdict
	err := s.snapshot(ctx, "verifying the audit", func(r *reading) error {
		v = muster.AuditVerdict{OK: true}
		var head chain
		if found, err := r.get(getHead, nil, &head.seq, &head.hash); err != nil {
			return err
		} else if !found {
			v.OK, v.BrokenAt, v.Reason = false, 1, "the record of the chain's end is missing"
			return nil
		}
		for v.OK {
			from := v.VerifiedTo
			if err := r.each(entriesAfter, []any{from, 1000}, func(scan func(...any) error) error {
				e, err := scanEntry(scan)
				if err == nil && v.OK {
					audit.Follow(&v, e)
				}
				return err
			}); err != nil {
				return err
			}
			if v.VerifiedTo == from {
				break
			}
		}
		if v.OK && (v.VerifiedTo != head.seq || v.Head != head.hash) {
			v.OK, v.BrokenAt = false, v.VerifiedTo+1
			v.Reason = fmt.Sprintf("the chain ends at entry %d, but %d were written", v.VerifiedTo, head.seq)
		}
		return nil
	})
	return v, err
}

// Head is the position of the last change that is durable.
func (s *Store) Head(ctx context.Context) (int64, error) {
	var seq int64
	err := s.read(ctx, "reading the feed's position", func(r *reading) error {
		_, err := r.get(headSeq, nil, &seq)
		return err
	})
	return seq, err
}

// Times are stored as microseconds since 1970, which both engines keep exactly.
func micro(t time.Time) int64     { return t.UnixMicro() }
func fromMicro(n int64) time.Time { return time.UnixMicro(n).UTC() }

// Optional times are NULL or microseconds.
func microPtr(t *time.Time) any {
	if t == nil {
		return nil
	}
	return t.UnixMicro()
}

func fromMicroPtr(n *int64) *time.Time {
	if n == nil {
		return nil
	}
	t := fromMicro(*n)
	return &t
}
