package store

import (
	"context"
	"errors"
	"slices"
	"strings"

	"muster.internal"
)

const placementColumns = `
SELECT placement_id, module, kind, state, node_id, name, version, disk_id, transient_id, created_at, changed_at FROM placements `

// inState is for $2: a state, any of them, or those that have not ended.
const inState = ` AND placement_id > $1 AND ($2 = 'any' OR state = $2 OR $2 = '' AND state IN ('reserved', 'placed', 'moving')) `

var (
	placementsPage  = define("placements/list", placementColumns+`WHERE placement_id <> ''`+inState+`ORDER BY placement_id LIMIT $3`)
	placementsThere = define("placements/list-node", placementColumns+`WHERE node_id = $4`+inState+`AND ($5 = '' OR module = $5) ORDER BY placement_id LIMIT $3`)
	placementsNamed = define("placements/list-module", placementColumns+`WHERE module = $4`+inState+`ORDER BY placement_id LIMIT $3`)
	placementBy     = define("placements/by-id", placementColumns+`WHERE placement_id = $1`)
	liveOnNode      = define("placements/live", `
SELECT count(*) FROM placements WHERE node_id = $1 AND state <> 'removed' AND state IN ('reserved', 'placed', 'moving')`)
	// Nothing is placed on a node that was cut off, or declared by hand, since
	// the plan was made.
	addPlacement = define("placements/add", `
INSERT INTO placements (placement_id, node_id, disk_id, transient_id, module, kind, name, version, state, created_at, changed_at, seq)
SELECT $1, node_id, $3, $4, $5, $6, $7, $8, $9, $10, $10, $11 FROM nodes
WHERE node_id = $2 AND state <> 'decommissioned' AND policy <> 'expunged' AND NOT by_hand`)
	updatePlacement = define("placements/update", `
UPDATE placements SET disk_id = $2, transient_id = $3, version = $4, changed_at = CASE WHEN state = $5 THEN changed_at ELSE $6 END, state = $5, seq = $7
WHERE placement_id = $1 AND state = $8`)
	mayBePlaced = define("placements/may-be", `
SELECT 1 FROM nodes WHERE node_id = $1 AND state <> 'decommissioned' AND policy <> 'expunged' AND NOT by_hand`)
	addMove = define("moves/add", `INSERT INTO moves (move_id, placement_id, from_node, to_node, outcome, started_at) VALUES ($1, $2, $3, $4, '', $5)`)
	endMove = define("moves/end", `UPDATE moves SET outcome = $2, ended_at = $3 WHERE move_id = $1 AND outcome = ''`)
)

// A follower makes placements and moves what a blueprint says.
type follower struct {
	*tx
	was, is *muster.Blueprint
	seq     int64                  // of the target's entry
	target  muster.BlueprintTarget // that it takes the place of
	nodes   map[string]string      // of the placements that moves may begin at
}

// follow looks at what differs between two targets, so that placements that
// stay as they are cost nothing.
func (t *tx) follow(was, is *muster.Blueprint, seq int64, target muster.BlueprintTarget) error {
	if was == nil {
		was = &muster.Blueprint{}
	}
	f := &follower{tx: t, was: was, is: is, seq: seq, target: target}
	byID := func(n muster.BlueprintNode, id string) int { return strings.Compare(n.ID, id) }
	for i := range is.Nodes {
		n := &is.Nodes[i]
		var had []muster.BlueprintPlacement
		if k, found := slices.BinarySearchFunc(was.Nodes, n.ID, byID); found {
			had = was.Nodes[k].Placements
		}
		if err := f.node(n.ID, had, n.Placements); err != nil {
			return err
		}
	}
	for i := range was.Nodes {
		if n := &was.Nodes[i]; len(n.Placements) > 0 {
			if _, stays := slices.BinarySearchFunc(is.Nodes, n.ID, byID); !stays {
				if err := f.node(n.ID, n.Placements, nil); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// node goes through a node's placements. A list that was left alone is the very
// same; otherwise what stays has its place, as a rule.
func (f *follower) node(id string, was, is []muster.BlueprintPlacement) error {
	if len(was) == len(is) && (len(is) == 0 || &was[0] == &is[0]) {
		return nil
	}
	for i := range is {
		p := &is[i]
		old := in(was, p.ID, i)
		var err error
		switch {
		case old == nil:
			err = f.begin(id, p)
		case old.State != p.State || old.Version != p.Version || old.Disk != p.Disk || old.Transient != p.Transient:
			err = f.turn(id, old, p)
		}
		if err == nil && p.State == muster.PlacementLost && (old == nil || old.State != p.State) {
			err = f.hooks(id, p)
		}
		if err != nil {
			return err
		}
	}
	for i := range was {
		if old := &was[i]; !ended(old.State) && in(is, old.ID, i) == nil {
			gone := *old
			gone.State = muster.PlacementRemoved
			if err := f.turn(id, old, &gone); err != nil {
				return err
			}
		}
	}
	return nil
}

func in(all []muster.BlueprintPlacement, id string, at int) *muster.BlueprintPlacement {
	if at < len(all) && all[at].ID == id {
		return &all[at]
	}
	i := slices.IndexFunc(all, func(p muster.BlueprintPlacement) bool { return p.ID == id })
	if i < 0 {
		return nil
	}
	return &all[i]
}

func ended(s muster.PlacementState) bool {
	return s == muster.PlacementRemoved || s == muster.PlacementLost
}

// ActionPlacement is how the audit calls it that a placement comes to a state.
func ActionPlacement(s muster.PlacementState) string { return string(s) + "_placement" }

func (f *follower) entry(node string, p *muster.BlueprintPlacement, from muster.PlacementState) (int64, error) {
	return f.record(ActionPlacement(p.State), "placement/"+p.ID, detail{"module": p.Module, "name": p.Name, "node_id": node, "from": from, "to": p.State, "blueprint_id": f.is.ID})
}

// begin is a placement that came in. One that was there before and had ended
// comes back with an older blueprint.
func (f *follower) begin(node string, p *muster.BlueprintPlacement) error {
	if ended(p.State) {
		return nil
	}
	before, err := findPlacement(f, p.ID)
	if err != nil {
		return err
	}
	if before != nil {
		return f.put(node, p, before.State)
	}
	seq, err := f.entry(node, p, "")
	if err != nil {
		return err
	}
	n, err := f.exec(addPlacement, p.ID, node, p.Disk, p.Transient, p.Module, string(p.Kind), p.Name, p.Version, string(p.State), micro(f.now), seq)
	if err != nil {
		return err
	}
	if n != 1 {
		return f.noPlace(node, p)
	}
	if from := f.nodeOf(p.Replaces); from != "" && from != node {
		_, err = f.exec(addMove, p.ID, p.Replaces, from, node, micro(f.now))
	}
	return err
}

func (f *follower) noPlace(node string, p *muster.BlueprintPlacement) error {
	return f.meanwhile("nothing can be placed on node %s, and %s would be: it was cut off, decommissioned or declared by hand meanwhile", node, p.Name)
}

// meanwhile refuses a plan that knew less than the store does.
func (f *follower) meanwhile(format string, args ...any) error {
	p := muster.Problemf(muster.CodeConflict, format+"; nothing was changed: plan again", args...)
	p.State = f.target.ID
	return p
}

// nodeOf is where a placement is, or was until now.
func (f *follower) nodeOf(placement string) string {
	if placement == "" {
		return ""
	}
	if f.nodes == nil {
		f.nodes = map[string]string{}
		for _, b := range []*muster.Blueprint{f.was, f.is} {
			for i := range b.Nodes {
				for k := range b.Nodes[i].Placements {
					f.nodes[b.Nodes[i].Placements[k].ID] = b.Nodes[i].ID
				}
			}
		}
	}
	return f.nodes[placement]
}

// turn is a placement that is otherwise. What the store has ended since, such as
// with an expunged node, has ended.
func (f *follower) turn(node string, old, p *muster.BlueprintPlacement) error {
	row, err := findPlacement(f, p.ID)
	if err != nil || row == nil {
		return err
	}
	if ended(row.State) && !ended(old.State) {
		if ended(p.State) {
			return f.endMove(p)
		}
		return f.meanwhile("placement %s on node %s is %s meanwhile", p.Name, node, row.State)
	}
	return f.put(node, p, row.State)
}

// put writes what a placement is now.
func (f *follower) put(node string, p *muster.BlueprintPlacement, from muster.PlacementState) error {
	if ended(from) && !ended(p.State) {
		if may, err := f.get(mayBePlaced, []any{node}, new(int)); err != nil || !may {
			return errors.Join(err, f.noPlace(node, p))
		}
	}
	seq := f.seq
	if from != p.State {
		var err error
		if seq, err = f.entry(node, p, from); err != nil {
			return err
		}
	}
	if err := f.change(updatePlacement, p.ID, p.Disk, p.Transient, p.Version, string(p.State), micro(f.now), seq, string(from)); err != nil || from == p.State {
		return err
	}
	return f.endMove(p)
}

// endMove ends the move that brings a placement, once it is there or will not be.
func (f *follower) endMove(p *muster.BlueprintPlacement) error {
	outcome := map[muster.PlacementState]string{muster.PlacementPlaced: "done", muster.PlacementRemoved: "cancelled", muster.PlacementLost: "failed"}[p.State]
	if outcome == "" {
		return nil
	}
	_, err := f.exec(endMove, p.ID, outcome, micro(f.now))
	return err
}

func findPlacement(from source, id string) (found *muster.PlacementRecord, err error) {
	err = from.each(placementBy, []any{id}, func(scan func(...any) error) error {
		p, err := scanPlacement(scan)
		found = &p
		return err
	})
	return found, err
}

func scanPlacement(scan func(...any) error) (p muster.PlacementRecord, err error) {
	var created, changed int64
	err = scan(&p.ID, &p.Module, &p.Kind, &p.State, &p.NodeID, &p.Name, &p.Version, &p.Disk, &p.Transient, &created, &changed)
	p.CreatedAt, p.ChangedAt = fromMicro(created), fromMicro(changed)
	return p, err
}

// Placements lists them by id, without those that have ended unless they are
// asked for.
func (s *Store) Placements(ctx context.Context, f muster.PlacementFilter) (all []muster.PlacementRecord, err error) {
	if f.State != "" && f.State != muster.PlacementAny && !slices.Contains(muster.PlacementStates, f.State) {
		return nil, muster.Invalid("state", "%q is none of %s and %s", f.State, join(muster.PlacementStates), muster.PlacementAny)
	}
	q, args := placementsPage, []any{f.After, string(f.State), limit(f.Limit)}
	switch {
	case f.Node != "":
		q, args = placementsThere, append(args, f.Node, f.Module)
	case f.Module != "":
		q, args = placementsNamed, append(args, f.Module)
	}
	err = s.read(ctx, "listing placements", func(r *reading) error {
		all = []muster.PlacementRecord{}
		return r.each(q, args, func(scan func(...any) error) error {
			p, err := scanPlacement(scan)
			all = append(all, p)
			return err
		})
	})
	return all, err
}

// Placement is one by its id.
func (s *Store) Placement(ctx context.Context, id string) (p muster.PlacementRecord, err error) {
	err = s.read(ctx, "reading a placement", func(r *reading) error {
		found, err := findPlacement(r, id)
		if err == nil && found == nil {
			return muster.Problemf(muster.CodeNotFound, "there is no placement %.64q", id)
		} else if err == nil {
			p = *found
		}
		return err
	})
	return p, err
}
