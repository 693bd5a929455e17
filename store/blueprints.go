package store

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"muster.internal"
)

const blueprintColumns = `SELECT number, blueprint_id, parent_id, made_at, made_by, why, changes`

var (
	theTarget      = define("blueprints/target", `SELECT number, blueprint_id, planning, set_at, set_by, reason FROM blueprint_target WHERE id = 1`)
	blueprintsPage = define("blueprints/list", blueprintColumns+` FROM blueprints WHERE number < $1 ORDER BY number DESC LIMIT $2`)
	blueprintBy    = define("blueprints/by-id", blueprintColumns+`, document, report FROM blueprints WHERE blueprint_id = $1`)
	blueprintNo    = define("blueprints/by-number", blueprintColumns+`, document, report FROM blueprints WHERE number = $1`)
	reportsBack    = define("blueprints/reports", `SELECT number, made_at, made_by, why, report FROM blueprints WHERE number > 0 ORDER BY number DESC LIMIT $1`)
	addBlueprint   = define("blueprints/add", `
INSERT INTO blueprints (number, blueprint_id, parent_id, made_at, made_by, why, changes, document, report) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`)
	oldBlueprints = define("blueprints/forget", `DELETE FROM blueprints WHERE number < $1`)
	// Whoever set the target first wins: the parent must be it still.
	setTarget   = define("blueprints/set-target", `UPDATE blueprint_target SET number = $1, blueprint_id = $2, seq = $3 WHERE id = 1 AND number = $4 AND blueprint_id = $5`)
	setPlanning = define("blueprints/planning", `UPDATE blueprint_target SET planning = $1, set_at = $2, set_by = $3, reason = $4 WHERE id = 1`)
)

// How the audit calls what happens to blueprints.
const (
	ActionSetTarget       = "set_target"
	ActionPlanning        = "planning"
	ActionPruneBlueprints = "prune_blueprints"
)

// theTargetRef names the blueprint that is the target, where one is asked for.
const theTargetRef = "target"

func findTarget(from source) (t muster.BlueprintTarget, err error) {
	var at *int64
	found, err := from.get(theTarget, nil, &t.Number, &t.ID, &t.Planning, &at, &t.SetBy, &t.Reason)
	if err == nil && !found {
		err = fmt.Errorf("the row of the target is gone")
	}
	t.SetAt = fromMicroPtr(at)
	return t, err
}

// NewBlueprintID is the id of a blueprint that is about to be made.
func (s *Store) NewBlueprintID(now time.Time) (string, error) { return s.newUUID(now.UnixMilli()) }

// SetTarget makes the target's child the target, and the placements and moves
// what it says, in one transaction. It is refused with a conflict whose state is
// the target's id when the parent is not the target any more, when planning was
// stopped, and when a node that is to get something was meanwhile cut off or
// declared by hand: then the plan is made again. Nobody may write to b
// afterwards.
func (s *Store) SetTarget(ctx context.Context, now time.Time, by muster.Caller, b *muster.Blueprint, report muster.PlanReport) (e muster.BlueprintEntry, err error) {
	return s.setTarget(ctx, now, by, b, report, false)
}

// SetTargetByHand is SetTarget while planning is stopped: of what an operator
// made of an older blueprint.
func (s *Store) SetTargetByHand(ctx context.Context, now time.Time, by muster.Caller, b *muster.Blueprint, report muster.PlanReport) (e muster.BlueprintEntry, err error) {
	return s.setTarget(ctx, now, by, b, report, true)
}

func (s *Store) setTarget(ctx context.Context, now time.Time, by muster.Caller, b *muster.Blueprint, report muster.PlanReport, byHand bool) (e muster.BlueprintEntry, err error) {
	document, err := pack(b)
	if err != nil {
		return e, err
	}
	said, err := pack(report)
	if err != nil {
		return e, err
	}
	parent := s.target.Load()
	if parent != nil && parent.ID != b.Parent {
		parent = nil
	}
	if parent == nil && b.Parent != "" {
		d, err := s.Blueprint(ctx, b.Parent)
		if muster.IsCode(err, muster.CodeNotFound) {
			return e, s.staleNow(ctx, b)
		} else if err != nil {
			return e, err
		}
		parent = &d.Blueprint
	}
	err = s.write(ctx, "setting the target", now, by, func(t *tx) error {
		was, err := findTarget(t)
		if err != nil {
			return err
		}
		if was.ID != b.Parent {
			return stale(b, was)
		}
		if err := mayFollow(was, byHand); err != nil {
			return err
		}
		e = muster.BlueprintEntry{Number: was.Number + 1, ID: b.ID, Parent: b.Parent, MadeAt: b.MadeAt, MadeBy: by.String(), Why: b.Why, Changes: int64(len(report.Done)), Target: true}
		if _, err := t.exec(addBlueprint, e.Number, e.ID, e.Parent, micro(e.MadeAt), e.MadeBy, e.Why, e.Changes, document, said); err != nil {
			return err
		}
		seq, err := t.record(ActionSetTarget, "blueprint/"+e.ID, detail{"number": e.Number, "parent": e.Parent, "why": e.Why, "changes": e.Changes})
		if err != nil {
			return err
		}
		if err := t.change(setTarget, e.Number, e.ID, seq, was.Number, was.ID); err != nil {
			return err
		}
		if e.Number%100 == 0 {
			if _, err := t.exec(oldBlueprints, e.Number-blueprintsKept); err != nil {
				return err
			}
		}
		return t.follow(parent, b, seq, was)
	})
	if err == nil {
		s.target.Store(b)
	}
	return e, err
}

// mayFollow: either planners set the target or people do.
func mayFollow(was muster.BlueprintTarget, byHand bool) error {
	if was.Planning != byHand {
		return nil
	}
	p := muster.Problemf(muster.CodeConflict, "planning was stopped by %s: %s; the target stays %s", was.SetBy, was.Reason, named(was))
	if byHand {
		p = muster.Problemf(muster.CodeConflict, "planning goes on, and the next plan would make of the fleet what is wanted again: stop it first (muster blueprint disable --reason WHY), or want other modules (muster module wanted)")
	}
	p.State = was.ID
	return p
}

func named(t muster.BlueprintTarget) string {
	if t.Number == 0 {
		return "none"
	}
	return fmt.Sprintf("blueprint %d (%s)", t.Number, t.ID)
}

// stale says that somebody else was faster, or the parent older than its author
// knew.
func stale(b *muster.Blueprint, is muster.BlueprintTarget) error {
	p := muster.Problemf(muster.CodeConflict, "blueprint %s was made from %s, and the target is %s: it was discarded, and nothing was changed; plan again from the target", b.ID, orNone(b.Parent), named(is))
	p.State = is.ID
	return p
}

func orNone(id string) string {
	if id == "" {
		return "none"
	}
	return id
}

func (s *Store) staleNow(ctx context.Context, b *muster.Blueprint) error {
	var is muster.BlueprintTarget
	if err := s.read(ctx, "reading the target", func(r *reading) (err error) {
		is, err = findTarget(r)
		return err
	}); err != nil {
		return err
	}
	return stale(b, is)
}

// Target is which blueprint is to be made true, and that blueprint, nil when
// there is none yet. It is shared: nobody may write to it.
func (s *Store) Target(ctx context.Context) (is muster.BlueprintTarget, b *muster.Blueprint, err error) {
	err = s.snapshot(ctx, "reading the target", func(r *reading) (err error) {
		is, b, err = s.findTargetBlueprint(r)
		return err
	})
	return is, b, err
}

func (s *Store) findTargetBlueprint(r source) (is muster.BlueprintTarget, b *muster.Blueprint, err error) {
	if is, err = findTarget(r); err != nil || is.ID == "" {
		return is, nil, err
	}
	if b = s.target.Load(); b != nil && b.ID == is.ID {
		return is, b, nil
	}
	d, err := s.findBlueprint(r, is.ID)
	if err == nil {
		s.target.Store(&d.Blueprint)
	}
	return is, &d.Blueprint, err
}

// Blueprint is one by its id or its number, or the target.
func (s *Store) Blueprint(ctx context.Context, ref string) (d muster.BlueprintDetail, err error) {
	err = s.snapshot(ctx, "reading a blueprint", func(r *reading) (err error) {
		d, err = s.findBlueprint(r, ref)
		return err
	})
	return d, err
}

func (s *Store) findBlueprint(r source, ref string) (d muster.BlueprintDetail, err error) {
	is, err := findTarget(r)
	if err != nil {
		return d, err
	}
	q, arg := blueprintBy, any(ref)
	if n, bad := strconv.ParseInt(ref, 10, 64); bad == nil {
		q, arg = blueprintNo, n
	} else if ref == theTargetRef {
		q, arg = blueprintNo, is.Number
	}
	found := false
	err = r.each(q, []any{arg}, func(scan func(...any) error) error {
		found = true
		var document, report []byte
		if d.BlueprintEntry, err = scanBlueprint(scan, &document, &report); err != nil {
			return err
		}
		if t := s.target.Load(); t != nil && t.ID == d.ID {
			d.Blueprint = *t
		} else if err := unpack(document, &d.Blueprint); err != nil {
			return fmt.Errorf("blueprint %s: %w", d.ID, err)
		}
		return unpack(report, &d.Report)
	})
	if d.Target = d.Number == is.Number; err == nil && !found {
		if ref == theTargetRef {
			return d, muster.Problemf(muster.CodeNotFound, "there is no blueprint yet: the first is made once a node or a module is there, and planning is allowed")
		}
		err = muster.Problemf(muster.CodeNotFound, "there is no blueprint %.64q: name one by its number or id, or say target; old ones are pruned", ref)
	}
	return d, err
}

func scanBlueprint(scan func(...any) error, more ...any) (e muster.BlueprintEntry, err error) {
	var at int64
	err = scan(append([]any{&e.Number, &e.ID, &e.Parent, &at, &e.MadeBy, &e.Why, &e.Changes}, more...)...)
	e.MadeAt = fromMicro(at)
	return e, err
}

// blueprintsKept is how many of the target's ancestors stay by themselves, give or
// take a hundred.
const blueprintsKept = 1000

// lookBack is how many blueprints are searched for what was done last.
const lookBack = 200

// LastChange is what the newest blueprint did that did anything about a node, a
// disk or a placement; nil: none of the newest did.
func (s *Store) LastChange(ctx context.Context, kind muster.Subject, id string) (found *muster.ExplainedChange, err error) {
	about := map[muster.Subject]func(l *muster.PlanLine) bool{
		muster.SubjectNode:      func(l *muster.PlanLine) bool { return l.Node == id },
		muster.SubjectDisk:      func(l *muster.PlanLine) bool { return l.Disk == id },
		muster.SubjectPlacement: func(l *muster.PlanLine) bool { return l.Placement == id },
	}[kind]
	err = s.read(ctx, "looking for the last change", func(r *reading) error {
		found = nil
		return r.each(reportsBack, []any{lookBack}, func(scan func(...any) error) error {
			c := &muster.ExplainedChange{}
			var at int64
			var said []byte
			if err := scan(&c.Number, &at, &c.By, &c.Why, &said); err != nil || found != nil {
				return err
			}
			var report muster.PlanReport
			if err := unpack(said, &report); err != nil {
				return err
			}
			for i := range report.Done {
				if about(&report.Done[i]) {
					c.Lines = append(c.Lines, report.Done[i])
				}
			}
			if c.At = fromMicro(at); len(c.Lines) > 0 {
				found = c
			}
			return nil
		})
	})
	return found, err
}

// Blueprints are those numbered below before, the newest first; 0: from the
// newest on.
func (s *Store) Blueprints(ctx context.Context, before int64, most int) (all []muster.BlueprintEntry, err error) {
	if before <= 0 {
		before = 1<<63 - 1
	}
	err = s.snapshot(ctx, "listing blueprints", func(r *reading) error {
		is, err := findTarget(r)
		if err != nil {
			return err
		}
		all = []muster.BlueprintEntry{}
		return r.each(blueprintsPage, []any{before, limit(most)}, func(scan func(...any) error) error {
			e, err := scanBlueprint(scan)
			e.Target = e.Number == is.Number
			all = append(all, e)
			return err
		})
	})
	return all, err
}

// SetPlanning allows or stops planning. Whoever stops it says why.
func (s *Store) SetPlanning(ctx context.Context, now time.Time, by muster.Caller, on bool, reason string) (is muster.BlueprintTarget, err error) {
	if !on || reason != "" {
		if err := checkReason(reason); err != nil {
			return is, err
		}
	}
	err = s.write(ctx, "allowing or stopping planning", now, by, func(t *tx) error {
		if is, err = findTarget(t); err != nil || is.Planning == on && is.Reason == reason {
			return err
		}
		is.Planning, is.SetAt, is.SetBy, is.Reason = on, &t.now, by.String(), reason
		if err := t.change(setPlanning, on, micro(t.now), is.SetBy, reason); err != nil {
			return err
		}
		_, err := t.record(ActionPlanning, "blueprint/target", detail{"planning": on, "reason": reason})
		return err
	})
	return is, err
}

// Generations are the newest that each node was declared, by whomever.
func (s *Store) Generations(ctx context.Context) (all map[string]int64, err error) {
	err = s.read(ctx, "reading generations", func(r *reading) error {
		all = map[string]int64{}
		return r.each(fleetGenerations, nil, func(scan func(...any) error) error {
			var id string
			var n int64
			err := scan(&id, &n)
			all[id] = n
			return err
		})
	})
	return all, err
}

// PruneBlueprints forgets all but the target and the newest of its ancestors,
// and tells how many those were.
func (s *Store) PruneBlueprints(ctx context.Context, now time.Time, by muster.Caller, ancestors int64) (forgotten int64, err error) {
	if ancestors < 0 {
		return 0, muster.Invalid("keep", "keep 0 ancestors or more: the target itself always stays")
	}
	err = s.write(ctx, "forgetting old blueprints", now, by, func(t *tx) error {
		is, err := findTarget(t)
		if err != nil {
			return err
		}
		if forgotten, err = t.exec(oldBlueprints, is.Number-ancestors); err != nil || forgotten == 0 {
			return err
		}
		_, err = t.record(ActionPruneBlueprints, "blueprint/target", detail{"forgotten": forgotten, "ancestors": ancestors})
		return err
	})
	return forgotten, err
}

// pack is a document as it is kept: of ten thousand placements it is a tenth of
// its length.
func pack(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

func unpack(b []byte, v any) error {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return err
	}
	return json.NewDecoder(r).Decode(v)
}
