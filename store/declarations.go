package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"muster.internal"
	"muster.internal/resource"
)

var (
	newestDeclaration = define("declarations/newest", `
SELECT generation, declared_at, declared_by, digest, sealed FROM declarations WHERE node_id = $1 ORDER BY generation DESC LIMIT 1`)
	newestGeneration = define("declarations/generation", `
SELECT generation FROM declarations WHERE node_id = $1 ORDER BY generation DESC LIMIT 1`)
	addDeclaration = define("declarations/add", `
INSERT INTO declarations (node_id, generation, declared_at, declared_by, digest, sealed) VALUES ($1, $2, $3, $4, $5, $6)`)
	setByHand       = define("nodes/by-hand", `UPDATE nodes SET by_hand = $2 WHERE node_id = $1`)
	oldDeclarations = define("declarations/forget", `DELETE FROM declarations WHERE node_id = $1 AND generation <= $2`)
)

// How the audit calls it that a node is declared by hand, and is not any more.
const (
	ActionDeclare  = "declare"
	ActionHandOver = "hand_over"
)

// declarationsKept is how many of a node's declarations stay, for whoever has to
// find out what it was told before.
const declarationsKept = 10

// A declared is a declaration's row.
type declared struct {
	muster.NodeDeclaration
	digest []byte
}

func declarationOwner(nodeID string, generation int64) string {
	return fmt.Sprintf("declaration %s %d", nodeID, generation)
}

// findDeclaration is a node's newest; generation 0 when it has none.
func (s *Store) findDeclaration(from source, nodeID string) (d declared, err error) {
	var at int64
	var sealed []byte
	d.NodeID = nodeID
	found, err := from.get(newestDeclaration, []any{nodeID}, &d.Generation, &at, &d.DeclaredBy, &d.digest, &sealed)
	if err != nil || !found {
		return d, err
	}
	d.DeclaredAt = fromMicro(at)
	text, err := s.vault.open(sealed, declarationOwner(nodeID, d.Generation))
	if err != nil {
		return d, fmt.Errorf("declaration %d of node %s: %w (was the master key changed?)", d.Generation, nodeID, err)
	}
	err = json.Unmarshal(text, &d.Declaration)
	d.Declaration.Generation = d.Generation
	return d, err
}

// Declare keeps what a node is told to be from now on. What stands already is
// not declared again. A generation that is given must be the one that stands.
func (s *Store) Declare(ctx context.Context, now time.Time, by muster.Caller, nodeID string, d resource.Declaration) (muster.NodeDeclaration, error) {
	seen := d.Generation
	d.Generation = 0
	text, err := json.Marshal(d)
	if err != nil {
		return muster.NodeDeclaration{}, err
	}
	sum := sha256.Sum256(text)
	var out muster.NodeDeclaration
	err = s.write(ctx, "declaring a node", now, by, func(t *tx) error {
		m, err := t.onNode(nodeID)
		if err != nil {
			return err
		}
		if err := m.over(); err != nil {
			return err
		}
		if err := t.declaredByBlueprint(nodeID); err != nil {
			return err
		}
		was, err := s.findDeclaration(t, nodeID)
		if err != nil {
			return err
		}
		if seen != 0 && seen != was.Generation {
			return muster.Problemf(muster.CodeConflict, "node %s is at generation %d, and this was made from %d: look at what was declared since (muster node declaration %s), then declare again", nodeID, was.Generation, seen, nodeID)
		}
		if was.Generation > 0 && equal(was.digest, sum[:]) && m.node.ByHand {
			out = was.NodeDeclaration
			return nil
		}
		if _, err := t.exec(setByHand, nodeID, true); err != nil {
			return err
		}
		out, err = t.putDeclaration(nodeID, was.Generation, d, text)
		return err
	})
	return out, err
}

// declaredByBlueprint refuses a declaration by hand where the target has its own.
func (t *tx) declaredByBlueprint(nodeID string) error {
	live := 0
	if _, err := t.get(liveOnNode, []any{nodeID}, &live); err != nil || live == 0 {
		return err
	}
	return muster.Problemf(muster.CodeConflict, "node %s has %d placements (muster placement ls --node %s), and is told what to be by the blueprint: what it alone is to have is a module that is pinned to it (place: {pinned: [%s]}; muster module add --help)", nodeID, live, nodeID, nodeID)
}

// HandOver lets blueprints say what a node is to be, which people did until now.
func (s *Store) HandOver(ctx context.Context, now time.Time, by muster.Caller, nodeID string) (n muster.Node, err error) {
	err = s.write(ctx, "handing a node over", now, by, func(t *tx) error {
		m, err := t.onNode(nodeID)
		if err != nil {
			return err
		}
		if err := m.over(); err != nil {
			return err
		}
		if n = m.node; !n.ByHand {
			return nil
		}
		n.ByHand = false
		if err := t.change(setByHand, nodeID, false); err != nil {
			return err
		}
		_, err = t.record(ActionHandOver, nodeSubject(nodeID), nil)
		return err
	})
	return n, err
}

// putDeclaration keeps d, whose text has no generation, as the next after last.
func (t *tx) putDeclaration(nodeID string, last int64, d resource.Declaration, text []byte) (out muster.NodeDeclaration, err error) {
	next, err := t.nextGeneration(nodeID, last)
	if err != nil {
		return out, err
	}
	nonce, err := t.s.random(t.s.vault.seals.NonceSize())
	if err != nil {
		return out, err
	}
	sum := sha256.Sum256(text)
	out = muster.NodeDeclaration{NodeID: nodeID, Generation: next, DeclaredAt: t.now, DeclaredBy: t.by.String(), Declaration: d}
	out.Declaration.Generation = next
	if _, err := t.exec(addDeclaration, nodeID, next, micro(t.now), out.DeclaredBy, sum[:], t.s.vault.seal(nonce, text, declarationOwner(nodeID, next))); err != nil {
		return out, err
	}
	if _, err := t.exec(oldDeclarations, nodeID, next-declarationsKept); err != nil {
		return out, err
	}
	_, err = t.record(ActionDeclare, nodeSubject(nodeID), declaredDetail(d, next, sum[:]))
	return out, err
}

// over tells why nothing can be declared of a machine's node any more, or nil.
func (m *machine) over() error {
	state, next := string(m.node.State), "enrol its machine again: it comes as a new node"
	switch {
	case m.node.Policy == muster.PolicyExpunged:
		state, next = string(m.node.Policy), "readmit its machine first, which then comes as a new node"
	case m.node.State != muster.NodeDecommissioned:
		return nil
	}
	p := muster.Problemf(muster.CodeConflict, "node %s is %s: nothing can be declared of it any more; %s", m.node.ID, state, next)
	p.State = state
	return p
}

// nextGeneration is above every one that the node may have heard of: a store
// that was restored from a backup does not know of the last ones.
func (t *tx) nextGeneration(nodeID string, last int64) (int64, error) {
	var held, reported int64
	if _, err := t.get(heldGeneration, []any{nodeID}, &held); err != nil {
		return 0, err
	}
	_, err := t.get(reportedGeneration, []any{nodeID}, &reported)
	return max(last, held, reported) + 1, err
}

// declaredDetail is what the audit says: counts and hashes, and no content.
func declaredDetail(d resource.Declaration, generation int64, sum []byte) detail {
	kinds := map[resource.Kind]int{}
	for i := range d.Resources {
		kinds[d.Resources[i].Kind()]++
	}
	said := detail{"generation": generation, "resources": kinds, "digest": "sha256:" + hex.EncodeToString(sum)}
	if d.Confirm != "" {
		said["confirm"] = d.Confirm
	}
	return said
}

// Declaration is a node's newest, with its secrets.
func (s *Store) Declaration(ctx context.Context, nodeID string) (muster.NodeDeclaration, error) {
	var d declared
	err := s.read(ctx, "reading a declaration", func(r *reading) error {
		if _, err := nodeOf(r, nodeID); err != nil {
			return err
		}
		var err error
		d, err = s.findDeclaration(r, nodeID)
		if err == nil && d.Generation == 0 {
			err = muster.Problemf(muster.CodeNotFound, "nothing was declared of node %s yet", nodeID)
		}
		return err
	})
	return d.NodeDeclaration, err
}

// News is what a node's host does not know yet.
type News struct {
	Generation int64                 // of the newest declaration; 0: there is none
	Newer      *resource.Declaration // if it is newer than what the host holds
	Orders     []muster.NodeOrder    // what it is asked for
}

// News is what is new for the caller's node, whose host holds a generation.
func (s *Store) News(ctx context.Context, nodeID string, holds int64) (n News, err error) {
	err = s.read(ctx, "looking for what is new for a node", func(r *reading) (err error) {
		n = News{}
		if n.Orders, err = findOrders(r, ordersDue, nodeID); err != nil {
			return err
		}
		if _, err := r.get(newestGeneration, []any{nodeID}, &n.Generation); err != nil || n.Generation <= holds {
			return err
		}
		d, err := s.findDeclaration(r, nodeID)
		if err == nil {
			err = s.addGrants(r, nodeID, &d.Declaration)
		}
		n.Generation, n.Newer = d.Generation, &d.Declaration
		return err
	})
	return n, err
}
