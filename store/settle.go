package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

var nodesDue = define("clock/nodes", `
SELECT `+nodeColumns+` FROM nodes WHERE state <> 'decommissioned' AND
 (policy IN ('graceful_remove', 'expunged') OR policy = 'quiesce' AND state <> 'quiesced' OR state = 'quiesced' AND policy IN ('in_service', 'no_provision'))
UNION ALL
SELECT `+nodeColumns+` FROM nodes WHERE state = 'initializing' AND policy IN ('in_service', 'no_provision') AND EXISTS (
 SELECT 1 FROM registrations r JOIN sysinfos i ON i.server_uuid = r.server_uuid WHERE r.server_uuid = nodes.server_uuid AND r.refreshed_at >= nodes.created_at)`)

var anyWanted = define("modules/any-wanted", `SELECT 1 FROM modules WHERE wanted LIMIT 1`)

// A sharing is what the target says of one node, where it says anything.
type sharing struct {
	planned  bool                  // there is a target, or one is about to be made
	planning bool                  // and it goes on from there
	share    *muster.BlueprintNode // nil: the target does not know it
}

// shares tells what the target says of each node.
func (s *Store) shares(from source) (of func(nodeID string) sharing, err error) {
	is, b, err := s.findTargetBlueprint(from)
	if err != nil {
		return nil, err
	}
	planned := b != nil
	if !planned {
		if planned, err = from.get(anyWanted, nil, new(int)); err != nil {
			return nil, err
		}
	}
	return func(nodeID string) sharing {
		s := sharing{planned: planned, planning: is.Planning}
		if b == nil {
			return s
		}
		if i, found := slices.BinarySearchFunc(b.Nodes, nodeID, func(n muster.BlueprintNode, id string) int { return strings.Compare(n.ID, id) }); found {
			s.share = &b.Nodes[i]
		}
		return s
	}, nil
}

// ripe tells whether the target agrees that an event may be raised: while it has
// placements on a node, it alone knows what really runs there. Without a target,
// and for a node that people declare, the store's own rows decide.
func (s sharing) ripe(n muster.Node, e muster.Event) bool {
	if !s.planned || n.ByHand {
		return true
	}
	state := muster.NodeState("")
	placed := false
	if s.share != nil {
		state = s.share.State
		placed = slices.ContainsFunc(s.share.Placements, func(p muster.BlueprintPlacement) bool { return !p.Gone() })
	}
	switch e {
	case lifecycle.Confirm:
		return state == muster.NodeInService || !s.planning && !placed
	case lifecycle.Quiesced:
		return state == muster.NodeQuiesced || !placed
	case lifecycle.DecommissionNode:
		return n.Policy == muster.PolicyExpunged || state == muster.NodeDecommissioned || !placed
	}
	return true
}

var settling = []muster.Event{lifecycle.Confirm, lifecycle.Quiesced, lifecycle.Resumed, lifecycle.DecommissionNode}

// settleNodes makes true what operators want of nodes, once it can be. A node
// that still waits for the target costs no transaction.
func (s *Store) settleNodes(ctx context.Context, now time.Time) (settled int, err error) {
	var due []muster.Node
	if err := s.read(ctx, "looking for nodes that are to become something else", func(r *reading) error {
		due = due[:0]
		if err := r.each(nodesDue, nil, func(scan func(...any) error) error {
			n, err := scanNode(scan)
			due = append(due, n)
			return err
		}); err != nil || len(due) == 0 {
			return err
		}
		of, err := s.shares(r)
		if err != nil {
			return err
		}
		due = slices.DeleteFunc(due, func(n muster.Node) bool {
			s := of(n.ID)
			return !slices.ContainsFunc(settling, func(e muster.Event) bool { return raises(n, e) && s.ripe(n, e) })
		})
		return nil
	}); err != nil {
		return 0, err
	}
	for _, n := range due {
		moved := false
		e := s.write(ctx, "settling what a node is", now, muster.Clock, func(t *tx) (err error) {
			moved, err = t.settleNode(n.ServerUUID, false)
			return err
		})
		if moved {
			settled++
		}
		if e != nil && !muster.IsCode(e, muster.CodeConflict) && err == nil {
			err = e
		}
	}
	return settled, err
}

// raises tells whether an event could change anything of a node.
func raises(n muster.Node, e muster.Event) bool {
	switch e {
	case lifecycle.Confirm:
		return n.State == muster.NodeInitializing
	case lifecycle.Quiesced:
		return n.Policy == muster.PolicyQuiesce
	case lifecycle.Resumed:
		return n.State == muster.NodeQuiesced && n.Policy != muster.PolicyQuiesce
	}
	return n.Policy == muster.PolicyGracefulRemove || n.Policy == muster.PolicyExpunged
}

// settleNode is the control plane's part of a node's life: what an operator
// wants becomes true once it can be. Of a node whose host has given up everything
// nothing is left, whatever the target says.
func (t *tx) settleNode(uuid string, gaveUp bool) (moved bool, err error) {
	m, err := t.load(uuid)
	if err != nil {
		return false, err
	}
	h, err := findHoldings(t, m)
	if err != nil {
		return false, err
	}
	of, err := t.s.shares(t)
	if err != nil {
		return false, err
	}
	s := of(m.node.ID)
	for _, e := range settling {
		if !s.ripe(m.node, e) && !(gaveUp && e == lifecycle.DecommissionNode) {
			continue
		}
		f := lifecycle.Facts{Inventory: m.reg.RefreshedAt != nil && !m.reg.RefreshedAt.Before(m.node.CreatedAt)}
		h.facts(e, &f)
		if e == lifecycle.DecommissionNode && m.node.Policy == muster.PolicyGracefulRemove {
			if o, err := findOrder(t, m.node.ID, muster.OrderRetire); err != nil || o != nil {
				return moved, err // its host gives everything up first, and says so
			}
		}
		was := m.node.State
		if err := t.moveNode(m, e, f); err != nil && !muster.IsCode(err, muster.CodeConflict) {
			return moved, err
		}
		moved = moved || m.node.State != was
	}
	return moved, nil
}
