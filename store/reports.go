package store

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/resource"
)

var (
	getReport = define("reports/get", `
SELECT generation, finished_at, reported_at, digest, document FROM node_reports WHERE node_id = $1 AND slot = $2`)
	reportedGeneration = define("reports/generation", `SELECT generation FROM node_reports WHERE node_id = $1 AND slot = 'newest'`)
	putReport          = define("reports/put", `
INSERT INTO node_reports (node_id, slot, generation, finished_at, reported_at, digest, document) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (node_id, slot) DO UPDATE SET generation = excluded.generation, finished_at = excluded.finished_at, reported_at = excluded.reported_at,
 digest = excluded.digest, document = excluded.document`)
	getMirror = define("mirrors/get", `SELECT said_at, digest, document FROM node_mirrors WHERE node_id = $1 AND kind = $2`)
	putMirror = define("mirrors/put", `
INSERT INTO node_mirrors (node_id, kind, said_at, digest, document) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (node_id, kind) DO UPDATE SET said_at = excluded.said_at, digest = excluded.digest, document = excluded.document`)
)

// Slots of reports, and kinds of mirrors.
const (
	newestReport  = "newest"
	notableReport = "notable"
	ownedMirror   = "owned"
	profileMirror = "profile"
	healthMirror  = "health"
)

// lateReport is by how much an older report may be late. One that is older
// still is of a host whose clock was set back: it is believed.
const lateReport = time.Hour

// A keptReport is a report's row.
type keptReport struct {
	there      bool
	generation int64
	finished   time.Time
	reported   time.Time
	digest     []byte
	report     resource.Report
}

func findReport(from source, nodeID, slot string) (k keptReport, err error) {
	var finished, reported int64
	var document string
	if k.there, err = from.get(getReport, []any{nodeID, slot}, &k.generation, &finished, &reported, &k.digest, &document); err != nil || !k.there {
		return k, err
	}
	k.finished, k.reported = fromMicro(finished), fromMicro(reported)
	if err := json.Unmarshal([]byte(document), &k.report); err != nil {
		return k, fmt.Errorf("report of node %s: %w", nodeID, err)
	}
	return k, nil
}

// late tells whether a report came after one that was made after it.
func (k keptReport) late(r resource.Report) bool {
	return k.there && r.Finished.Before(k.finished) && k.finished.Sub(r.Finished) < lateReport
}

// says is a report's digest, without its times and what caused it: of an apply
// that finds what the one before it left, there is no more to say.
func says(r resource.Report) ([]byte, error) {
	r.Started, r.Finished, r.Trigger = time.Time{}, time.Time{}, ""
	text, err := json.Marshal(r)
	sum := sha256.Sum256(text)
	return sum[:], err
}

// KeepReport keeps what the host of the caller's node says, if it is new. One
// that is doubled, or overtaken by a later one, changes nothing.
func (s *Store) KeepReport(ctx context.Context, now time.Time, by muster.Caller, r resource.Report) error {
	digest, err := says(r)
	if err != nil {
		return err
	}
	var was keptReport
	var asked *muster.NodeOrder
	if err := s.read(ctx, "reading a report", func(from *reading) (err error) {
		if asked, err = findOrder(from, by.NodeID, answers(r)); err == nil {
			was, err = findReport(from, by.NodeID, newestReport)
		}
		return err
	}); err != nil || was.there && equal(was.digest, digest) && asked == nil {
		return err
	}
	document, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return s.write(ctx, "keeping a report", now, by, func(t *tx) error {
		was, err := findReport(t, by.NodeID, newestReport)
		if err != nil || was.late(r) || was.there && equal(was.digest, digest) && asked == nil {
			return err
		}
		slots := []string{newestReport}
		if r.Outcome != resource.OutcomeOK {
			slots = append(slots, notableReport)
		}
		for _, slot := range slots {
			if _, err := t.exec(putReport, by.NodeID, slot, r.Generation, micro(r.Finished), micro(t.now), digest, string(document)); err != nil {
				return err
			}
		}
		if err := t.tellReport(was.report, r); err != nil {
			return err
		}
		return t.fulfil(r)
	})
}

// How many resources an event names, and of how many bytes each: the audit is
// kept for good, and a host says what it likes.
const (
	maxTold    = 20
	maxToldRef = 256
)

// tellReport records what a report says that the one before it did not: that the
// host and somebody else undo each other's changes, that something failed, that
// a declaration was taken back.
func (t *tx) tellReport(was, is resource.Report) error {
	for _, e := range []struct {
		action string
		lines  func(resource.Report) []resource.Ref
	}{
		{"drift_fought", refs(func(l resource.Line) bool { return l.Fought })},
		{"apply_failed", refs(func(l resource.Line) bool { return l.Outcome == resource.OutcomeFailed })},
		{"reverted", func(r resource.Report) []resource.Ref {
			if r.Trigger != resource.TriggerRevert {
				return nil
			}
			return refs(func(l resource.Line) bool { return l.Outcome == resource.OutcomeChanged })(r)
		}},
	} {
		before, now := e.lines(was), e.lines(is)
		if now == nil || before != nil && was.Generation == is.Generation && slices.Equal(before, now) {
			continue
		}
		d := detail{"generation": is.Generation, "count": len(now), "resources": told(now)}
		if _, err := t.record(e.action, nodeSubject(t.by.NodeID), d); err != nil {
			return err
		}
	}
	return nil
}

// told are resources as an event names them.
func told(all []resource.Ref) []string {
	names := make([]string, min(len(all), maxTold))
	for i := range names {
		if names[i] = string(all[i]); len(names[i]) > maxToldRef {
			names[i] = strings.ToValidUTF8(names[i][:maxToldRef], "") + "…"
		}
	}
	return names
}

// refs are the resources of the lines that are so; nil when there is none.
func refs(so func(resource.Line) bool) func(resource.Report) []resource.Ref {
	return func(r resource.Report) (all []resource.Ref) {
		for _, l := range r.Lines {
			if so(l) {
				all = append(all, l.Ref)
			}
		}
		return all
	}
}

// NodeReport is the newest that a node's host said, and the newest that was not
// ok throughout.
func (s *Store) NodeReport(ctx context.Context, nodeID string) (muster.NodeReport, error) {
	out := muster.NodeReport{NodeID: nodeID}
	err := s.snapshot(ctx, "reading a report", func(r *reading) error {
		if _, err := nodeOf(r, nodeID); err != nil {
			return err
		}
		newest, err := findReport(r, nodeID, newestReport)
		if err != nil {
			return err
		}
		if !newest.there {
			return muster.Problemf(muster.CodeNotFound, "the host of node %s has reported nothing yet", nodeID)
		}
		notable, err := findReport(r, nodeID, notableReport)
		out.ReportedAt, out.Report, out.Notable = newest.reported, newest.report, nil
		if notable.there {
			out.Notable = &notable.report
		}
		return err
	})
	return out, err
}

// keepMirror keeps a document that a host says, if it is another one. tell, if
// there is one, records what has changed of it.
func (s *Store) keepMirror(ctx context.Context, now time.Time, by muster.Caller, kind string, v any, tell func(t *tx, was string) error) error {
	document, err := json.Marshal(v)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(document)
	var digest []byte
	if err := s.read(ctx, "reading what a host said", func(r *reading) error {
		_, err := r.get(getMirror, []any{by.NodeID, kind}, new(int64), &digest, new(string))
		return err
	}); err != nil || equal(digest, sum[:]) {
		return err
	}
	return s.write(ctx, "keeping what a host says", now, by, func(t *tx) error {
		if tell != nil {
			was := "null"
			if _, err := t.get(getMirror, []any{by.NodeID, kind}, new(int64), new([]byte), &was); err != nil {
				return err
			}
			if err := tell(t, was); err != nil {
				return err
			}
		}
		_, err := t.exec(putMirror, by.NodeID, kind, micro(t.now), sum[:], string(document))
		return err
	})
}

// mirror reads what a host said, into v.
func (s *Store) mirror(ctx context.Context, nodeID, kind string, v any) (at time.Time, found bool, err error) {
	err = s.read(ctx, "reading what a host said", func(r *reading) error {
		if _, err := nodeOf(r, nodeID); err != nil {
			return err
		}
		var said int64
		var document string
		if found, err = r.get(getMirror, []any{nodeID, kind}, &said, new([]byte), &document); err != nil || !found {
			return err
		}
		at = fromMicro(said)
		return json.Unmarshal([]byte(document), v)
	})
	return at, found, err
}

// KeepOwned mirrors what the host of the caller's node answers for, whole.
func (s *Store) KeepOwned(ctx context.Context, now time.Time, by muster.Caller, owned []resource.Owned) error {
	return s.keepMirror(ctx, now, by, ownedMirror, owned, nil)
}

// NodeOwned is the mirror; what was never mirrored is empty, as of no time.
func (s *Store) NodeOwned(ctx context.Context, nodeID string) (muster.NodeOwned, error) {
	out := muster.NodeOwned{NodeID: nodeID, Owned: []resource.Owned{}}
	at, _, err := s.mirror(ctx, nodeID, ownedMirror, &out.Owned)
	out.MirroredAt = at
	return out, err
}

// KeepProfile keeps what the host of the caller's node says of the machine.
func (s *Store) KeepProfile(ctx context.Context, now time.Time, by muster.Caller, p muster.Profile) error {
	return s.keepMirror(ctx, now, by, profileMirror, p, nil)
}

// NodeProfile is what a node's host said of its machine.
func (s *Store) NodeProfile(ctx context.Context, nodeID string) (muster.NodeProfile, error) {
	out := muster.NodeProfile{NodeID: nodeID}
	at, found, err := s.mirror(ctx, nodeID, profileMirror, &out.Profile)
	if out.ProfiledAt = at; err == nil && !found {
		err = muster.Problemf(muster.CodeNotFound, "the host of node %s has said nothing of its machine yet", nodeID)
	}
	return out, err
}
