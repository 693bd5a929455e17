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
	case lifecycle.NotLive:
		c.Why = fmt.Sprintf("it is node %s, which is live: to let the machine in again as that node, disable its registration first or issue an enrolment token for the node (--as %s); to let it in as a new one, have the node decommissioned first", c.NodeID, c.NodeID)
	case lifecycle.NotBuried:
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
