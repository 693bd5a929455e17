package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

const diskColumns = `disk_id, node_id, document, policy, state, created_at, labels, member, missing_since`

var (
	diskByID   = define("disks/get", `SELECT `+diskColumns+` FROM disks WHERE disk_id = $1`)
	disksShown = define("disks/shown", `SELECT `+diskColumns+` FROM disks WHERE node_id = $1 ORDER BY created_at, disk_id`)
	disksAll   = define("disks/list", `SELECT `+diskColumns+` FROM disks ORDER BY node_id, created_at, disk_id`)
)

func nodeSubject(id string) string { return "node/" + id }

// onNode loads the machine of a node that is its newest one.
func (t *tx) onNode(nodeID string) (*machine, error) {
	n, err := nodeOf(t, nodeID)
	if err != nil {
		return nil, err
	}
	m, err := t.load(n.ServerUUID)
	if err == nil && m.node.ID != nodeID {
		p := muster.Problemf(muster.CodeConflict, "node %s is decommissioned for good: its machine %s came back as node %s", nodeID, n.ServerUUID, m.node.ID)
		p.State = string(n.State)
		return nil, p
	}
	return m, err
}

func nodeOf(from source, nodeID string) (n muster.Node, err error) {
	found := false
	err = from.each(nodeByID, []any{nodeID}, func(scan func(...any) error) error {
		found = true
		n, err = scanNode(scan)
		return err
	})
	if err == nil && !found {
		err = muster.Problemf(muster.CodeNotFound, "there is no node %.64q", nodeID)
	}
	return n, err
}

// raiseNode is raise, whose refusal speaks of the node.
func (m *machine) raiseNode(e muster.Event, f lifecycle.Facts) (next lifecycle.State, changed bool, err error) {
	old := m.look()
	next, err = lifecycle.Apply(old, e, -1, f)
	return next, err == nil && !next.Equal(old), refusal(err, "node "+m.node.ID)
}

var nodeEvents = []muster.Event{lifecycle.NoProvision, lifecycle.Quiesce, lifecycle.Resume, lifecycle.GracefulRemove}

// RaiseNode raises an operator's event that needs no input on a node.
func (s *Store) RaiseNode(ctx context.Context, now time.Time, by muster.Caller, nodeID string, e muster.Event) (muster.Node, error) {
	var n muster.Node
	if !slices.Contains(nodeEvents, e) {
		return n, muster.Problemf(muster.CodeNotFound, "a node has no event %s that needs no input", e)
	}
	err := s.write(ctx, string(e), now, by, func(t *tx) error {
		m, err := t.onNode(nodeID)
		if err != nil {
			return err
		}
		if e == lifecycle.Resume {
			if err := t.resumable(nodeID); err != nil {
				return err
			}
		}
		n, err = m.node, t.moveNode(m, e, lifecycle.Facts{})
		if err == nil {
			n = m.node
		}
		return err
	})
	return n, err
}

// moveNode raises an event that changes a node's policy or state.
func (t *tx) moveNode(m *machine, e muster.Event, f lifecycle.Facts) error {
	next, changed, err := m.raiseNode(e, f)
	if err != nil || !changed {
		return err
	}
	d := detail{"server_uuid": m.uuid, "from": m.node.Policy, "to": next.NodePolicy}
	if next.NodeState != m.node.State {
		d["from"], d["to"] = m.node.State, next.NodeState
	}
	if m.reg.BoundKeyID != "" && next.Credential == lifecycle.NoCredential {
		d["revoked_key"] = m.reg.BoundKeyID
	}
	seq, err := t.record(string(e), nodeSubject(m.node.ID), d)
	if err != nil {
		return err
	}
	if e == lifecycle.DecommissionNode {
		if err := t.leave(m, muster.PlacementRemoved); err != nil {
			return err
		}
		if seq, err = t.record(string(e), subject(m.uuid), detail{"node_id": m.node.ID, "from": m.had, "to": next.Registration}); err != nil {
			return err
		}
	}
	return t.save(m, next, seq)
}

// Node is one node with all that it holds.
func (s *Store) Node(ctx context.Context, nodeID string) (muster.NodeDetail, error) {
	var d muster.NodeDetail
	err := s.snapshot(ctx, "reading a node", func(r *reading) error {
		n, err := nodeOf(r, nodeID)
		if err != nil {
			return err
		}
		d = muster.NodeDetail{Node: n, Disks: []muster.NodeDisk{}, Placements: []muster.Placement{}, Moves: []muster.Move{}, Foreign: []muster.ForeignWorkload{}, Orders: []muster.NodeOrder{}, Claims: []muster.Claim{}}
		if at, ok := s.LastHeard(n.ServerUUID); ok && n.State != muster.NodeDecommissioned {
			d.LastSeen = &at
		}
		if d.Link, err = findLink(r, nodeID); err != nil {
			return err
		}
		if err := r.each(disksShown, []any{nodeID}, func(scan func(...any) error) error {
			k, err := scanNodeDisk(scan)
			d.Disks = append(d.Disks, k)
			return err
		}); err != nil {
			return err
		}
		claims, err := findClaims(r, claimsOf, nodeID)
		if err != nil {
			return err
		}
		d.Claims = waitedFor(claims, "", n.Policy == muster.PolicyExpunged || n.State == muster.NodeDecommissioned)
		for i := range d.Disks {
			k := &d.Disks[i]
			k.Claims = waitedFor(claims, k.ID, k.Policy == muster.DiskPolicyExpunged || k.State == muster.DiskDecommissioned)
		}
		m, err := findMachine(r, n.ServerUUID)
		if err != nil {
			return err
		}
		d.Serial = m.reg.Serial
		var h holdings
		if err := h.ofNode(r, nodeID); err != nil {
			return err
		}
		d.Placements, d.Moves = h.placements, h.moves
		if m.node.ID == nodeID && n.State != muster.NodeDecommissioned {
			if h, err = findHoldings(r, m); err != nil {
				return err
			}
			d.Foreign = h.foreign
			orders, err := findOrders(r, ordersOf, nodeID)
			if err != nil {
				return err
			}
			d.Orders = append(d.Orders, orders...)
		}
		if m.tomb != nil && m.tomb.nodeID == nodeID {
			x := m.tomb.Expunged
			d.Expunged = &x
			x.Booters, err = s.confirmations(r, x.Seq)
		}
		return err
	})
	return d, err
}

func diskOf(from source, diskID string) (d muster.NodeDisk, err error) {
	found := false
	err = from.each(diskByID, []any{diskID}, func(scan func(...any) error) (err error) {
		found = true
		d, err = scanNodeDisk(scan)
		return err
	})
	if err == nil && !found {
		err = muster.Problemf(muster.CodeNotFound, "there is no disk %.64q", diskID)
	}
	return d, err
}

func scanNodeDisk(scan func(...any) error) (d muster.NodeDisk, err error) {
	var document, labels string
	var created int64
	var missing *int64
	if err := scan(&d.ID, &d.NodeID, &document, &d.Policy, &d.State, &created, &labels, &d.Member, &missing); err != nil {
		return d, err
	}
	d.CreatedAt = fromMicro(created)
	if d.State == muster.DiskInService {
		d.MissingSince = fromMicroPtr(missing)
	}
	if err := errors.Join(json.Unmarshal([]byte(document), &d.Disk), json.Unmarshal([]byte(labels), &d.Labels)); err != nil {
		return d, fmt.Errorf("disk %s: %w", d.ID, err)
	}
	return d, nil
}

// AcknowledgeForeign says that what runs on a node and is not ours may be lost.
func (s *Store) AcknowledgeForeign(ctx context.Context, now time.Time, by muster.Caller, nodeID string) (muster.NodeDetail, error) {
	err := s.write(ctx, "acknowledging foreign workloads", now, by, func(t *tx) error {
		m, err := t.onNode(nodeID)
		if err != nil {
			return err
		}
		h, err := findHoldings(t, m)
		names := h.unacknowledged()
		if err != nil || len(names) == 0 {
			return err
		}
		if _, err := t.exec(acknowledge, m.uuid, micro(t.now), by.String()); err != nil {
			return err
		}
		_, err = t.record("acknowledge_foreign", nodeSubject(nodeID), detail{"server_uuid": m.uuid, "workloads": names})
		return err
	})
	if err != nil {
		return muster.NodeDetail{}, err
	}
	return s.Node(ctx, nodeID)
}

var diskEvents = []muster.Event{lifecycle.RemoveDisk, lifecycle.KeepDisk, lifecycle.ExpungeDisk}

// RaiseDisk raises an operator's event on one disk. With confirm it must be the
// disk's serial number, or its id.
func (s *Store) RaiseDisk(ctx context.Context, now time.Time, by muster.Caller, diskID string, e muster.Event, confirm *muster.Expunge) (muster.NodeDisk, error) {
	var d muster.NodeDisk
	if !slices.Contains(diskEvents, e) || (e == lifecycle.ExpungeDisk) != (confirm != nil) {
		return d, muster.Problemf(muster.CodeNotFound, "a disk has no event %s that needs no input", e)
	}
	err := s.write(ctx, string(e), now, by, func(t *tx) (err error) {
		d, err = t.moveDisk(diskID, e, confirm)
		return err
	})
	return d, err
}

// disk is one by its id, with its machine and its place there.
func (t *tx) disk(diskID string) (d muster.NodeDisk, m *machine, at int, err error) {
	if d, err = diskOf(t, diskID); err != nil {
		return d, nil, 0, err
	}
	if m, err = t.onNode(d.NodeID); err != nil {
		return d, nil, 0, err
	}
	at = slices.IndexFunc(m.disks, func(k *disk) bool { return k.id == diskID })
	if at < 0 {
		return d, nil, 0, muster.Problemf(muster.CodeConflict, "disk %s was adopted again since, as another one", diskID)
	}
	return d, m, at, nil
}

func (t *tx) moveDisk(diskID string, e muster.Event, confirm *muster.Expunge) (d muster.NodeDisk, err error) {
	d, m, at, err := t.disk(diskID)
	if err != nil {
		return d, err
	}
	said := detail{"node_id": d.NodeID, "server_uuid": m.uuid, "serial": d.Disk.Serial, "from": d.Policy}
	if confirm != nil {
		if confirm.Confirm != diskID && (d.Disk.Serial == "" || confirm.Confirm != d.Disk.Serial) {
			return d, muster.Invalid("confirm", "this is not the serial number of disk %s", diskID)
		}
		if err := checkReason(confirm.Reason); err != nil {
			return d, err
		}
		said["reason"] = confirm.Reason
	}
	old := m.look()
	next, err := lifecycle.Apply(old, e, at, lifecycle.Facts{})
	switch {
	case err != nil:
		return d, refusal(err, "disk "+diskID)
	case next.Equal(old) && confirm != nil:
		return d, t.expungedAgain(e, "disk/"+diskID, confirm.Reason)
	case next.Equal(old):
		return d, nil
	}
	said["to"] = next.Disks[at].Policy
	seq, err := t.record(string(e), "disk/"+diskID, said)
	if err != nil {
		return d, err
	}
	d.Policy, d.State = next.Disks[at].Policy, next.Disks[at].State
	if err := t.putDisks(m, next, seq); err != nil {
		return d, err
	}
	claims, err := findClaims(t, claimsOf, d.NodeID)
	d.Claims = waitedFor(claims, diskID, confirm != nil)
	return d, err
}
