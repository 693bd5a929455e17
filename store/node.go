package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

const nodeColumns = `node_id, server_uuid, hostname, policy, state, by_hand, created_at, last_seen, labels, reservoir, note`

var (
	newestNode = define("nodes/newest", `
SELECT `+nodeColumns+` FROM nodes
WHERE server_uuid = $1 ORDER BY state = 'decommissioned', created_at DESC, node_id DESC LIMIT 1`)
	nodesAll = define("nodes/list", `SELECT `+nodeColumns+` FROM nodes ORDER BY created_at, node_id`)
	addNode  = define("nodes/add", `
INSERT INTO nodes (node_id, server_uuid, hostname, policy, state, created_at, last_seen, seq) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`)
	setNode = define("nodes/set", `
UPDATE nodes SET policy = $2, state = $3, hostname = $4, seq = $5 WHERE node_id = $1 AND policy = $6 AND state = $7`)

	disksOfNode = define("disks/node", `
SELECT disk_id, identity, policy, state, missing_since FROM disks WHERE node_id = $1 ORDER BY created_at, disk_id`)
	addDisk = define("disks/add", `
INSERT INTO disks (disk_id, node_id, identity, document, policy, state, created_at, seq, member) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`)
	setDisk = define("disks/set", `
UPDATE disks SET policy = $2, state = $3, seq = $4 WHERE disk_id = $1 AND policy = $5 AND state = $6`)
)

// A disk is one that the fleet holds or held, or one that a plan would use.
type disk struct {
	id       string // empty: not adopted
	identity string
	planned  *muster.Disk
	found    *muster.Disk // and is to be adopted now, under the id next
	next     string
	missing  *time.Time // since when it is not there
	policy   muster.DiskPolicy
	state    muster.DiskState
}

func scanNode(scan func(...any) error) (muster.Node, error) {
	var n muster.Node
	var created int64
	var seen *int64
	var labels, reservoir string
	if err := scan(&n.ID, &n.ServerUUID, &n.Hostname, &n.Policy, &n.State, &n.ByHand, &created, &seen, &labels, &reservoir, &n.Note); err != nil {
		return n, err
	}
	n.CreatedAt, n.LastSeen = fromMicro(created), fromMicroPtr(seen)
	err := errors.Join(json.Unmarshal([]byte(labels), &n.Labels), json.Unmarshal([]byte(reservoir), &n.Reservoir))
	if err != nil {
		return n, fmt.Errorf("node %s: %w", n.ID, err)
	}
	return n, nil
}

// findNode is the machine's live node, or else its newest. One that it took
// over may be older than those that it was itself.
func findNode(from source, uuid string) (n muster.Node, err error) {
	err = from.each(newestNode, []any{uuid}, func(scan func(...any) error) error {
		n, err = scanNode(scan)
		return err
	})
	return n, err
}

// findDisks are those of the node, the newest of each identity, and those of
// the plan.
func findDisks(from source, nodeID string, plan *muster.SetupPlan) ([]*disk, error) {
	var ds []*disk
	at := map[string]*disk{}
	if nodeID != "" {
		if err := from.each(disksOfNode, []any{nodeID}, func(scan func(...any) error) error {
			d := new(disk)
			var missing *int64
			if err := scan(&d.id, &d.identity, &d.policy, &d.state, &missing); err != nil {
				return err
			}
			d.missing = fromMicroPtr(missing)
			if old := at[d.identity]; old != nil {
				*old = *d // adopted again: the older one is history
				return nil
			}
			at[d.identity] = d
			ds = append(ds, d)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	if plan == nil {
		return ds, nil
	}
	for _, m := range plan.Members() {
		d := at[m.Identity()]
		if d == nil {
			d = &disk{identity: m.Identity()}
			at[d.identity] = d
			ds = append(ds, d)
		}
		d.planned = &m
	}
	return ds, nil
}

// putNode makes the node that the rows call for, or moves the one there is.
func (t *tx) putNode(m *machine, next lifecycle.State, seq int64) error {
	n := &m.node
	if next.NodeState == n.State && next.NodePolicy == n.Policy && (n.ID == "" || n.Hostname == m.reg.Hostname || m.reg.Hostname == "") {
		return nil
	}
	fresh := n.ID == "" || n.State == muster.NodeDecommissioned && next.NodeState != muster.NodeDecommissioned
	if !fresh {
		was := *n
		n.Policy, n.State = next.NodePolicy, next.NodeState
		if m.reg.Hostname != "" && n.State != muster.NodeDecommissioned {
			n.Hostname = m.reg.Hostname
		}
		if err := t.change(setNode, n.ID, string(n.Policy), string(n.State), n.Hostname, seq, string(was.Policy), string(was.State)); err != nil {
			return err
		}
		return t.tellClaims(n.ID)
	}
	id, err := t.s.newUUID(t.now.UnixMilli())
	if err != nil {
		return err
	}
	*n = muster.Node{ID: id, ServerUUID: m.reg.ServerUUID, Hostname: m.reg.Hostname, Policy: next.NodePolicy, State: next.NodeState, CreatedAt: t.now, LastSeen: &t.now}
	m.reg.NodeID = id
	_, err = t.exec(addNode, id, n.ServerUUID, n.Hostname, string(n.Policy), string(n.State), micro(t.now), micro(t.now), seq)
	return err
}

// putDisks does the same for its disks. A disk that was decommissioned and
// serves again is a new one.
func (t *tx) putDisks(m *machine, next lifecycle.State, seq int64) error {
	told := false
	for i, d := range m.disks {
		to := next.Disks[i]
		if to.Policy == d.policy && to.State == d.state {
			continue
		}
		if d.state == muster.DiskInService || d.id != "" && to.State != muster.DiskInService {
			if err := t.change(setDisk, d.id, string(to.Policy), string(to.State), seq, string(d.policy), string(d.state)); err != nil {
				return err
			}
			d.policy, d.state = to.Policy, to.State
			told = true
			continue
		}
		adopted := cmp.Or(d.found, d.planned)
		if adopted == nil || m.node.ID == "" {
			return fmt.Errorf("machine %s: a disk is to be adopted that no plan names, or without a node", m.reg.ServerUUID)
		}
		document, err := json.Marshal(adopted)
		if err != nil {
			return err
		}
		id := d.next
		if id == "" {
			id, err = t.s.newUUID(t.now.UnixMilli())
		}
		if err != nil {
			return err
		}
		d.id, d.policy, d.state = id, to.Policy, to.State
		if _, err := t.exec(addDisk, id, m.node.ID, d.identity, string(document), string(d.policy), string(d.state), micro(t.now), seq, d.found == nil); err != nil {
			return err
		}
	}
	if told {
		return t.tellClaims(m.node.ID)
	}
	return nil
}

// Nodes lists every node, oldest first, decommissioned ones too.
func (s *Store) Nodes(ctx context.Context) ([]muster.Node, error) {
	ns := []muster.Node{}
	err := s.read(ctx, "listing nodes", func(r *reading) error {
		ns = ns[:0]
		links, err := findLinks(r)
		if err != nil {
			return err
		}
		return r.each(nodesAll, nil, func(scan func(...any) error) error {
			n, err := scanNode(scan)
			if at, ok := s.LastHeard(n.ServerUUID); ok && n.State != muster.NodeDecommissioned {
				n.LastSeen = &at
			}
			n.Link = links[n.ID]
			ns = append(ns, n)
			return err
		})
	})
	return ns, err
}
