package store

import (
	"context"
	"slices"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
	"muster.internal/resource"
)

// A node is told to retire once nothing is placed on it any more, and nobody
// claims it; to restart drained, once it is quiesced.
const dueNow = `(o.verb <> 'retire' OR NOT EXISTS (
 SELECT 1 FROM placements p WHERE p.node_id = o.node_id AND p.kind = 'service' AND p.state <> 'removed' AND p.state IN ('reserved', 'placed', 'moving'))
 AND NOT EXISTS (SELECT 1 FROM claims c WHERE c.node_id = o.node_id AND c.state <> 'released')) AND (o.verb <> 'reboot_drained' OR EXISTS (SELECT 1 FROM nodes n WHERE n.node_id = o.node_id AND n.state = 'quiesced'))`

var (
	ordersOf  = define("node-orders/of", `SELECT verb, asked_at, asked_by, told_at FROM node_orders WHERE node_id = $1 ORDER BY verb`)
	ordersDue = define("node-orders/due", `
SELECT verb, asked_at, asked_by, told_at FROM node_orders o WHERE node_id = $1 AND `+dueNow+`
ORDER BY verb`)
	// A link is written down some time after what comes over it.
	everLinked = define("node-orders/linked", `
SELECT 1 FROM nodes n WHERE node_id = $1 AND (EXISTS (SELECT 1 FROM node_mirrors m WHERE m.node_id = n.node_id) OR EXISTS (SELECT 1 FROM node_links l WHERE l.node_id = n.node_id))`)
	addOrder  = define("node-orders/add", `INSERT INTO node_orders (node_id, verb, asked_at, asked_by, policy) VALUES ($1, $2, $3, $4, $5)`)
	dropOrder = define("node-orders/drop", `DELETE FROM node_orders WHERE node_id = $1 AND verb = $2`)
	tellOrder = define("node-orders/tell", `
UPDATE node_orders AS o SET told_at = $2, boot_id = $3 WHERE node_id = $1 AND told_at IS NULL AND `+dueNow)
	toldReboots = define("node-orders/reboots", `
SELECT verb, boot_id, policy FROM node_orders WHERE node_id = $1 AND verb IN ('reboot', 'reboot_drained') AND told_at IS NOT NULL ORDER BY verb`)
	setNextKey = define("node-orders/key", `UPDATE node_orders SET key_id = $2, key_hash = $3, replaces = $4 WHERE node_id = $1 AND verb = 'rekey'`)
	// The next key is good only for as long as the one that it replaces.
	nextKey = define("node-orders/next-key", `
SELECT o.node_id, o.key_hash, o.replaces, r.server_uuid FROM node_orders o JOIN registrations r ON r.node_id = o.node_id
WHERE o.key_id = $1 AND o.key_id <> '' AND o.replaces <> '' AND r.key_id = o.replaces
 AND r.node_id <> '' AND r.state IN ('approved', 'setting_up')`)
)

// ActionOrder is how the audit calls it that a host was asked for something.
const ActionOrder = "order"

// OrderNode asks the host of a node for something. It is told when it comes; to
// ask again for what it was asked for already changes nothing. To be retired, it
// leaves the fleet gracefully, too.
func (s *Store) OrderNode(ctx context.Context, now time.Time, by muster.Caller, nodeID string, kind muster.OrderKind) (o muster.NodeOrder, err error) {
	if !slices.Contains(muster.OrderKinds, kind) {
		return o, muster.Invalid("verb", "a host is asked for one of %v, nothing else", muster.OrderKinds)
	}
	err = s.write(ctx, "asking a host", now, by, func(t *tx) error {
		m, err := t.onNode(nodeID)
		if err != nil {
			return err
		}
		if err := m.over(); err != nil {
			return err
		}
		linked, err := t.get(everLinked, []any{nodeID}, new(int))
		if err != nil {
			return err
		}
		if !linked {
			p := muster.Problemf(muster.CodeConflict, "the host of node %s never was linked, so there is nobody to ask: to let the node go, use graceful-remove", nodeID)
			p.State = string(m.node.State)
			return p
		}
		all, err := findOrders(t, ordersOf, nodeID)
		if err != nil {
			return err
		}
		for _, o = range all {
			if o.Kind == kind {
				return nil
			}
		}
		if kind == muster.OrderRetire {
			if err := t.moveNode(m, lifecycle.GracefulRemove, lifecycle.Facts{}); err != nil {
				return err
			}
		}
		wanted := m.node.Policy
		if kind == muster.OrderRebootDrained {
			if err := t.moveNode(m, lifecycle.Quiesce, lifecycle.Facts{}); err != nil {
				return err
			}
		}
		o = muster.NodeOrder{Kind: kind, AskedAt: t.now, AskedBy: by.String()}
		if _, err := t.exec(addOrder, nodeID, string(kind), micro(t.now), o.AskedBy, string(wanted)); err != nil {
			return err
		}
		_, err = t.record(ActionOrder, nodeSubject(nodeID), detail{"verb": kind})
		return err
	})
	return o, err
}

func findOrders(from source, q *query, nodeID string) (all []muster.NodeOrder, err error) {
	err = from.each(q, []any{nodeID}, func(scan func(...any) error) error {
		var o muster.NodeOrder
		var asked int64
		var told *int64
		err := scan(&o.Kind, &asked, &o.AskedBy, &told)
		o.AskedAt, o.ToldAt = fromMicro(asked), fromMicroPtr(told)
		all = append(all, o)
		return err
	})
	return all, err
}

func findOrder(from source, nodeID string, kind muster.OrderKind) (*muster.NodeOrder, error) {
	all, err := findOrders(from, ordersOf, nodeID)
	for i := range all {
		if all[i].Kind == kind {
			return &all[i], err
		}
	}
	return nil, err
}

// TellOrders notes that a node's host is told what it is asked for, in this boot
// of its machine.
func (s *Store) TellOrders(ctx context.Context, now time.Time, by muster.Caller, bootID string) error {
	return s.write(ctx, "telling a host what it is asked for", now, by, func(t *tx) error {
		_, err := t.exec(tellOrder, by.NodeID, micro(t.now), bootID)
		return err
	})
}

// answers is what a report was asked for; empty: nothing, or it does not say
// that it was done.
func answers(r resource.Report) muster.OrderKind {
	switch {
	case r.Trigger == resource.TriggerAsked:
		return muster.OrderReportNow
	case r.Trigger == resource.TriggerRetire && r.Outcome != resource.OutcomeFailed && r.Outcome != resource.OutcomeUnknown:
		return muster.OrderRetire
	}
	return ""
}

// fulfil ends the order that a report answers. A host that has given everything
// up is let go.
func (t *tx) fulfil(r resource.Report) error {
	kind := answers(r)
	if kind == "" {
		return nil
	}
	n, err := t.exec(dropOrder, t.by.NodeID, string(kind))
	if err != nil || n == 0 || kind != muster.OrderRetire {
		return err
	}
	if _, err := t.record("retired", nodeSubject(t.by.NodeID), detail{}); err != nil {
		return err
	}
	m, err := t.onNode(t.by.NodeID)
	if err != nil {
		return err
	}
	_, err = t.settleNode(m.uuid, true)
	return err
}

// resumable refuses to take a node back whose host gives everything up already.
// A host that was not told yet is told nothing.
func (t *tx) resumable(nodeID string) error {
	if drain, err := findOrder(t, nodeID, muster.OrderRebootDrained); err != nil {
		return err
	} else if drain != nil && drain.ToldAt == nil {
		if _, err := t.exec(dropOrder, nodeID, string(muster.OrderRebootDrained)); err != nil {
			return err
		}
	}
	o, err := findOrder(t, nodeID, muster.OrderRetire)
	if err != nil || o == nil {
		return err
	}
	if o.ToldAt != nil {
		p := muster.Problemf(muster.CodeConflict, "the host of node %s was told at %s to give everything up, and cannot be told to stop: once it is out, its machine comes in as a new node, by a token", nodeID, o.ToldAt.Format(time.RFC3339))
		p.State = string(muster.PolicyGracefulRemove)
		return p
	}
	_, err = t.exec(dropOrder, nodeID, string(muster.OrderRetire))
	return err
}

// Rebooted ends the orders to restart of a machine that is in another boot than
// the one in which its host was told. What was drained for it serves again.
func (s *Store) Rebooted(ctx context.Context, now time.Time, by muster.Caller, bootID string) error {
	return s.write(ctx, "hearing that a machine was restarted", now, by, func(t *tx) error {
		m, err := t.onNode(by.NodeID)
		if err != nil {
			return err
		}
		told, err := findReboots(t, by.NodeID)
		if err != nil {
			return err
		}
		for _, r := range told {
			if !r.over(bootID) {
				continue
			}
			if _, err := t.exec(dropOrder, by.NodeID, string(r.kind)); err != nil {
				return err
			}
			if _, err := t.record("rebooted", nodeSubject(by.NodeID), detail{"verb": r.kind}); err != nil {
				return err
			}
			if r.kind != muster.OrderRebootDrained || r.policy == muster.PolicyQuiesce || m.node.Policy != muster.PolicyQuiesce {
				continue
			}
			if err := t.moveNode(m, lifecycle.Resume, lifecycle.Facts{}); err != nil {
				return err
			}
			if r.policy == muster.PolicyNoProvision {
				if err := t.moveNode(m, lifecycle.NoProvision, lifecycle.Facts{}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// A reboot is an order to restart that a host was told.
type reboot struct {
	kind   muster.OrderKind
	boot   string // in which it was told
	policy muster.NodePolicy
}

// over tells whether the machine was restarted since.
func (r reboot) over(bootID string) bool { return r.boot != "" && bootID != "" && r.boot != bootID }

func findReboots(from source, nodeID string) (all []reboot, err error) {
	err = from.each(toldReboots, []any{nodeID}, func(scan func(...any) error) error {
		var r reboot
		err := scan(&r.kind, &r.boot, &r.policy)
		all = append(all, r)
		return err
	})
	return all, err
}

// Back tells whether a machine was restarted since its host was told to.
func (s *Store) Back(ctx context.Context, nodeID, bootID string) (back bool, err error) {
	err = s.read(ctx, "looking whether a machine was restarted", func(r *reading) error {
		told, err := findReboots(r, nodeID)
		back = slices.ContainsFunc(told, func(r reboot) bool { return r.over(bootID) })
		return err
	})
	return back, err
}

// NextKey gives a host that was asked for another key pair the agent key that
// goes with it. The one there is dies when a certificate is signed for the new
// one; until then another call makes another.
func (s *Store) NextKey(ctx context.Context, now time.Time, by muster.Caller) (secret string, err error) {
	err = s.write(ctx, "making a node's next key", now, by, func(t *tx) error {
		o, err := findOrder(t, by.NodeID, muster.OrderRekey)
		if err != nil {
			return err
		}
		if o == nil {
			return muster.Problemf(muster.CodeConflict, "nobody has asked node %s for another key (muster node rekey)", by.NodeID)
		}
		id, err := s.newID()
		if err != nil {
			return err
		}
		var hash []byte
		if secret, hash, err = s.newSecret(keyPrefix, id); err != nil {
			return err
		}
		if err := t.change(setNextKey, by.NodeID, id, hash, by.KeyID); err != nil {
			return err
		}
		_, err = t.record("next_key", nodeSubject(by.NodeID), detail{"api_key": id, "replaces": by.KeyID})
		return err
	})
	return secret, err
}

// A next is a key that takes another's place once it was used.
type next struct {
	nodeID, replaces, uuid string
	hash                   []byte
}

func findNext(from source, id string) (n next, found bool, err error) {
	found, err = from.get(nextKey, []any{id}, &n.nodeID, &n.hash, &n.replaces, &n.uuid)
	return n, found, err
}

// TakeKey makes the key that the caller came with its machine's: the one that it
// replaces is dead from the commit on, and so is every certificate that was
// signed for that.
func (s *Store) TakeKey(ctx context.Context, now time.Time, by muster.Caller) error {
	return s.write(ctx, "changing a node's key", now, by, func(t *tx) error {
		n, found, err := findNext(t, by.KeyID)
		if err != nil || !found {
			return err // it was taken a moment ago
		}
		m, err := t.load(n.uuid)
		if err != nil {
			return err
		}
		if _, err := t.exec(dropAgentKey, n.uuid); err != nil {
			return err
		}
		if _, err := t.exec(addKey, by.KeyID, string(muster.ScopeAgent), n.hash, "", n.uuid, micro(t.now), "node:"+n.nodeID, nil); err != nil {
			return err
		}
		if _, err := t.exec(dropOrder, n.nodeID, string(muster.OrderRekey)); err != nil {
			return err
		}
		if _, err := t.record("rekeyed", nodeSubject(n.nodeID), detail{"api_key": by.KeyID, "revoked_key": n.replaces}); err != nil {
			return err
		}
		seq, err := t.record("rekeyed", subject(n.uuid), detail{"api_key": by.KeyID, "revoked_key": n.replaces})
		if err != nil {
			return err
		}
		m.reg.BoundKeyID, m.reg.seq = by.KeyID, seq
		return t.putRegistration(m.reg, m.had)
	})
}
