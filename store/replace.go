package store

import (
	"fmt"
	"slices"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/lifecycle"
)

// The condition makes a node leave the machine that it was on, once.
var handNode = define("nodes/hand", `
UPDATE nodes SET server_uuid = $2, state = $4, seq = $5 WHERE node_id = $1 AND server_uuid = $3 AND state <> 'decommissioned'`)

// takeOver lets other hardware in as the node that its token names. The machine
// that was the node is out in the same transaction: there is no moment at which
// both are. Refused is what the machine is told when what it leads to is kept.
func (t *tx) takeOver(old, m *machine, sh *inventory.Shared, e enrolment, q muster.EnrolRequest, what said) (reply muster.EnrolReply, refused, err error) {
	// The cards and disks of the hardware that it replaces are no evidence
	// against it: a new board may hold them all.
	incumbent, verdict, err := t.judge(m, sh, what, old.uuid)
	if err != nil {
		return reply, nil, err
	}
	f := lifecycle.Facts{TokenGood: true, MayReplace: true, SameMachine: incumbent == nil,
		ComesRemoved:  old.node.Policy == muster.PolicyGracefulRemove,
		ComesQuiesced: old.node.Policy == muster.PolicyQuiesce,
		ComesKept:     old.node.Policy == muster.PolicyNoProvision}
	next, _, err := m.raise(lifecycle.TakeOver, f)
	if err != nil {
		if incumbent != nil && m.onlyEvidence(lifecycle.TakeOver, f) {
			return reply, waiting(err, verdict), t.contest(incumbent, m.uuid, what, verdict, bootMACOf(what), t.by.Source)
		}
		return reply, nil, m.busy(e, old, err)
	}
	if m.had == lifecycle.NoRegistration {
		if err := t.roomForMachine(""); err != nil {
			return reply, nil, err
		}
	}
	if err := t.settledIn(m, bootMACOf(what)); err != nil {
		return reply, nil, err
	}
	if old, err = t.load(old.uuid); err != nil { // what it showed of a newcomer is gone
		return reply, nil, err
	}
	as := muster.ComesAs{Outcome: string(lifecycle.AsReplacement), NodeID: e.AsNode,
		Why: fmt.Sprintf("it is node %s now, with its placements, disks and labels; machine %s, which was that node, is out and its key is dead", e.AsNode, old.uuid)}
	was, layout := old.uuid, old.reg.DiskLayout
	n := old.node
	if err := t.supersede(old, f, m.uuid, e, what); err != nil {
		return reply, nil, err
	}
	n.ServerUUID, n.State = m.uuid, next.NodeState
	m.node, m.disks = n, nil // they come with their node, and nothing of them changes
	m.reg.NodeID, m.reg.DiskLayout, m.reg.RefreshedAt = n.ID, layout, nil
	reply, err = t.redeem(m, next, redemption{event: lifecycle.TakeOver, token: e, request: q, what: what, as: as, replaces: was})
	return reply, nil, err
}

// supersede takes the node from the machine that it was, which is out.
func (t *tx) supersede(old *machine, f lifecycle.Facts, by string, e enrolment, what said) error {
	next, _, err := old.raise(lifecycle.Supersede, f)
	if err != nil {
		return err
	}
	d := detail{"from": old.had, "to": next.Registration, "node_id": old.node.ID, "taken_over_by": by, "serial": old.reg.Serial, "token": e.ID, "issued_by": e.CreatedBy}
	if old.reg.BoundKeyID != "" {
		d["revoked_key"] = old.reg.BoundKeyID
	}
	if _, err := t.record(string(lifecycle.Supersede), nodeSubject(old.node.ID), detail{"from_machine": old.uuid, "to_machine": by, "token": e.ID, "issued_by": e.CreatedBy}); err != nil {
		return err
	}
	seq, err := t.record(string(lifecycle.Supersede), subject(old.uuid), d)
	if err != nil {
		return err
	}
	if err := t.change(handNode, old.node.ID, by, old.uuid, string(muster.NodeInitializing), seq); err != nil {
		return err
	}
	if _, err := t.exec(dropRootPassword, old.uuid); err != nil {
		return err
	}
	old.node, old.disks = muster.Node{}, nil
	old.reg.NodeID, old.reg.DiskLayout = "", nil
	moved := old.giveUp(what)
	if err := t.save(old, next, seq); err != nil {
		return err
	}
	for _, mac := range moved {
		if err := t.startOver(mac, old.uuid); err != nil {
			return err
		}
	}
	return nil
}

// giveUp takes from a machine's evidence the cards and disks that the hardware
// which replaces it reports, so that neither is taken for the other later. It
// returns the cards.
func (m *machine) giveUp(what said) (cards []string) {
	for _, mac := range what.facts.MACs {
		if i := m.boot(mac); slices.Contains(m.reg.MACs, mac) || i >= 0 && m.boots[i].ServerUUID == m.uuid {
			cards = append(cards, mac)
		}
	}
	m.reg.MACs = slices.DeleteFunc(slices.Clone(m.reg.MACs), func(mac string) bool { return slices.Contains(cards, mac) })
	theirs := diskIdentities(what.facts.Disks)
	m.reg.Disks = slices.DeleteFunc(slices.Clone(m.reg.Disks), func(d muster.Disk) bool { return slices.Contains(theirs, d.Identity()) })
	return cards
}

// busy says why hardware cannot become the node that its token names.
func (m *machine) busy(e enrolment, old *machine, err error) error {
	if m.node.ID == "" || m.node.State == muster.NodeDecommissioned {
		return err
	}
	p := muster.Problemf(muster.CodeConflict, "enrolment token %s is for node %s, which is machine %s, and this is machine %s, which is live node %s itself: have node %s decommissioned first, or redeem a token for that node (muster token issue --as %s)",
		e.ID, e.AsNode, old.uuid, m.uuid, m.node.ID, m.node.ID, m.node.ID)
	p.State = string(m.had)
	return p
}
