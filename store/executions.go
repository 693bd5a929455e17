package store

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
	"muster.internal/resource"
)

var (
	allExecutions = define("executions/all", `SELECT node_id, generation, tries, again_at, error FROM executions ORDER BY node_id`)
	getExecution  = define("executions/get", `SELECT node_id, generation, tries, again_at, error FROM executions WHERE node_id = $1`)
	putExecution  = define("executions/put", `
INSERT INTO executions (node_id, generation, tries, again_at, error) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (node_id) DO UPDATE SET generation = excluded.generation, tries = excluded.tries, again_at = excluded.again_at, error = excluded.error`)
	dropExecution = define("executions/drop", `DELETE FROM executions WHERE node_id = $1`)
)

// An Execution is a node that could not be told what the target says of it.
type Execution struct {
	NodeID     string
	Generation int64 // that it could not be told
	Tries      int
	AgainAt    time.Time
	Error      string
}

// ActionDeclareFailed is how the audit calls it.
const ActionDeclareFailed = "declare_failed"

// Pauses between tries to tell a node. Once the budget is spent it is tried
// seldom, and at once when the target says something newer of it.
const (
	executeAgain    = 2 * time.Second
	executeAgainMax = 5 * time.Minute
	executeBudget   = 12
	executeSeldom   = time.Hour
)

func scanExecution(scan func(...any) error) (e Execution, err error) {
	var again int64
	err = scan(&e.NodeID, &e.Generation, &e.Tries, &again, &e.Error)
	e.AgainAt = fromMicro(again)
	return e, err
}

func findExecutions(from source) (all []Execution, err error) {
	err = from.each(allExecutions, nil, func(scan func(...any) error) error {
		e, err := scanExecution(scan)
		all = append(all, e)
		return err
	})
	return all, err
}

// Realise tells a node what the blueprint says of it, with exactly the
// generation of d. It is refused with a conflict when the blueprint is not the
// target any more, when the node may be told nothing, and when it was told
// something newer, or the same generation with another content. To say it again
// changes nothing.
func (s *Store) Realise(ctx context.Context, now time.Time, by muster.Caller, nodeID, blueprintID string, d resource.Declaration) error {
	generation := d.Generation
	d.Generation = 0
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	var was declared
	if err := s.read(ctx, "reading a declaration", func(r *reading) (err error) {
		was, err = s.findDeclaration(r, nodeID)
		return err
	}); err != nil || was.Generation == generation && equal(was.digest, sum[:]) {
		return err
	}
	return s.write(ctx, "telling a node what it shall be", now, by, func(t *tx) error {
		if is, err := findTarget(t); err != nil {
			return err
		} else if is.ID != blueprintID {
			return muster.Problemf(muster.CodeConflict, "blueprint %s is not the target any more, which is %s: node %s is told nothing of it", blueprintID, named(is), nodeID)
		}
		m, err := t.onNode(nodeID)
		if err != nil {
			return err
		}
		if err := m.over(); err != nil {
			return err
		}
		if m.node.ByHand {
			return muster.Problemf(muster.CodeConflict, "node %s is declared by hand: it is told nothing of blueprint %s until it is handed over", nodeID, blueprintID)
		}
		was, err := s.findDeclaration(t, nodeID)
		if err != nil {
			return err
		}
		if was.Generation == generation && equal(was.digest, sum[:]) {
			return nil
		}
		next, err := t.nextGeneration(nodeID, was.Generation)
		if err != nil {
			return err
		}
		if generation < next {
			return muster.Problemf(muster.CodeConflict, "node %s has heard of generation %d, by %s, and generation %d of blueprint %s is not newer: the next plan gives it a newer one", nodeID, next-1, declarer(was), generation, blueprintID)
		}
		if _, err := t.exec(dropExecution, nodeID); err != nil {
			return err
		}
		_, err = t.putDeclaration(nodeID, generation-1, d, text)
		return err
	})
}

func declarer(d declared) string {
	if d.DeclaredBy == "" {
		return "its own word"
	}
	return d.DeclaredBy
}

// RealiseFailed notes that a node could not be told, and when it is tried again.
func (s *Store) RealiseFailed(ctx context.Context, now time.Time, by muster.Caller, nodeID string, generation int64, failure error) (e Execution, err error) {
	err = s.write(ctx, "noting that a node could not be told", now, by, func(t *tx) error {
		e = Execution{NodeID: nodeID}
		if err := t.each(getExecution, []any{nodeID}, func(scan func(...any) error) (err error) {
			e, err = scanExecution(scan)
			return err
		}); err != nil {
			return err
		}
		if e.Generation != generation {
			e.Tries = 0
		} else if e.AgainAt.After(t.now) {
			return nil // another control plane tried at the same time
		}
		e.Generation, e.Error, e.Tries = generation, failure.Error(), e.Tries+1
		pause := min(executeAgain<<min(e.Tries-1, 20), executeAgainMax)
		if e.Tries >= executeBudget {
			pause = executeSeldom
		}
		e.AgainAt = t.now.Add(pause)
		if _, err := t.exec(putExecution, nodeID, generation, e.Tries, micro(e.AgainAt), e.Error); err != nil || e.Tries != 1 && e.Tries != executeBudget {
			return err
		}
		_, err := t.record(ActionDeclareFailed, nodeSubject(nodeID), detail{"generation": generation, "tries": e.Tries, "error": e.Error})
		return err
	})
	return e, err
}

// DecommissionDisk says that a disk's host does not use it any more, as its
// blueprint knows. Repeating it changes nothing.
func (s *Store) DecommissionDisk(ctx context.Context, now time.Time, by muster.Caller, diskID, blueprintID string) error {
	return s.write(ctx, "decommissioning a disk", now, by, func(t *tx) error {
		if is, err := findTarget(t); err != nil || is.ID != blueprintID {
			return err // whoever has the target does it
		}
		d, m, at, err := t.disk(diskID)
		if err != nil || d.State == muster.DiskDecommissioned {
			return err
		}
		old := m.look()
		next, err := lifecycle.Apply(old, lifecycle.DecommissionDisk, at, lifecycle.Facts{HostConfirmed: true})
		if err != nil || next.Equal(old) {
			return refusal(err, "disk "+diskID)
		}
		seq, err := t.record(string(lifecycle.DecommissionDisk), "disk/"+diskID, detail{"node_id": d.NodeID, "server_uuid": m.uuid, "serial": d.Disk.Serial, "from": d.State, "to": next.Disks[at].State})
		if err != nil {
			return err
		}
		return t.putDisks(m, next, seq)
	})
}

func sortNodes(all []FleetNode) {
	slices.SortFunc(all, func(a, b FleetNode) int { return strings.Compare(a.ID, b.ID) })
}
