package store

import (
	"errors"
	"fmt"

	"muster.internal"
	"muster.internal/lifecycle"
)

// comesAs says as what node the machine would come in now, by any door. Named
// says that a token names its live node.
func (m *machine) comesAs(named bool) muster.ComesAs {
	s := m.look()
	r := lifecycle.Returns(s, named)
	c := muster.ComesAs{Outcome: string(r)}
	if m.node.ID != "" && m.node.State != muster.NodeDecommissioned {
		c.NodeID = m.node.ID
	}
	switch r {
	case lifecycle.AsSame:
		c.Why = fmt.Sprintf("it would be node %s again, with its placements, disks and labels; its old key stays dead", c.NodeID)
	case lifecycle.RefusedLive:
		c.Why = fmt.Sprintf("it is node %s, which is live: to let the machine in again as that node, disable its registration first or issue an enrolment token for the node (--as %s); to let it in as a new one, have the node decommissioned first", c.NodeID, c.NodeID)
	case lifecycle.RefusedExpunged:
		c.Why = "it was expunged: an operator must readmit it first"
	default:
		c.Why = "it would be a new node"
		if m.node.ID != "" {
			c.Why += fmt.Sprintf(": node %s, which it was, is decommissioned", m.node.ID)
		}
	}
	return c
}

// waysIn adds the ways out to the refusal of a machine whose node is live.
func (m *machine) waysIn(err error) error {
	var p *muster.Problem
	if !errors.As(err, &p) || p.Code != muster.CodeConflict || m.had != muster.Approved {
		return err
	}
	p.Detail += ": " + m.comesAs(false).Why
	return err
}

// out tells whether the machine could be let in: it is neither in nor about to
// be.
func (m *machine) out() bool { return m.had != muster.Approved && m.had != muster.SettingUp }

// nodesOfOut are the live nodes of machines that are out: few, whatever the
// fleet's size.
var nodesOfOut = define("nodes/of-out", `
SELECT n.server_uuid, n.node_id, n.state FROM registrations r JOIN nodes n ON n.server_uuid = r.server_uuid AND n.state <> 'decommissioned'
WHERE r.state IN ('pending', 'disabled')`)

func liveNodes(from source) (map[string]muster.Node, error) {
	all := map[string]muster.Node{}
	err := from.each(nodesOfOut, nil, func(scan func(...any) error) error {
		var n muster.Node
		err := scan(&n.ServerUUID, &n.ID, &n.State)
		all[n.ServerUUID] = n
		return err
	})
	return all, err
}

// listedAs is comesAs for a list, which leaves nodes of the past out.
func listedAs(r *registration, live muster.Node, buried *muster.Expunged) *muster.ComesAs {
	m := &machine{uuid: r.ServerUUID, reg: r, had: r.State, node: live}
	if !m.out() {
		return nil
	}
	if buried != nil {
		m.tomb = &tombstone{Expunged: *buried}
	}
	c := m.comesAs(false)
	return &c
}
