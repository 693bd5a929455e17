package planner

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"

	"muster.internal"
)

func (n *node) title() string { return cmp.Or(n.now.Hostname, n.now.ID) }

// edit is a placement that may be written to.
func (n *node) edit(at int) *muster.BlueprintPlacement {
	if !n.own {
		n.now.Placements, n.own = slices.Clone(n.now.Placements), true
	}
	n.changed = true
	return &n.now.Placements[at]
}

// tell is the generation with which the node hears of a change. It is beyond
// whatever its host may have heard: a blueprint that was set back must get its
// way.
func (n *node) tell() int64 {
	if n.told == 0 {
		n.told, n.changed = max(n.now.Generation, n.floor())+1, true
	}
	return n.told
}

// floor is the newest generation that the node's host may have heard of.
func (n *node) floor() int64 {
	if n.in == nil {
		return 0
	}
	if s := n.in.Seen; s != nil {
		return max(n.in.Floor, s.Holds, s.Reconciled)
	}
	return n.in.Floor
}

func (n *node) seen() *Seen {
	if n.in == nil {
		return nil
	}
	return n.in.Seen
}

// held: nobody speaks with it, and what runs there is left alone.
func (n *node) held() bool { return n.in == nil || n.in.Registration != muster.Approved }

// gone: it is no more, or must be treated so.
func (n *node) gone() bool {
	return n.in != nil && (n.in.Policy == muster.PolicyExpunged || n.in.State == muster.NodeDecommissioned)
}

// observed is what the inventory says of a placement, or nil. As a rule both
// lists have one order.
func (s *Seen) observed(id string, at int) *SeenPlacement {
	if at < len(s.Placements) && s.Placements[at].ID == id {
		return &s.Placements[at]
	}
	i := slices.IndexFunc(s.Placements, func(o SeenPlacement) bool { return o.ID == id })
	if i < 0 {
		return nil
	}
	return &s.Placements[i]
}

// disk is one of its adopted disks, or nil.
func (n *node) disk(id string) *Disk {
	if n.in == nil || id == "" {
		return nil
	}
	for i := range n.in.Disks {
		if n.in.Disks[i].ID == id {
			return &n.in.Disks[i]
		}
	}
	return nil
}

// identity is that of one of its adopted disks.
func (n *node) identity(id string) string {
	if d := n.disk(id); d != nil {
		return d.Identity
	}
	return ""
}

// there tells whether a disk is plugged in.
func (n *node) there(id string) bool {
	s := n.seen()
	return s != nil && slices.ContainsFunc(s.Disks, func(d SeenDisk) bool { return d.ID == id })
}

// usable: a disk may be given something.
func (n *node) usable(d *Disk) bool {
	return d.Policy == muster.DiskPolicyInService && d.State == muster.DiskInService && !d.Member && n.there(d.ID)
}

// available tells whether a placement counts: it is told to be there, and was
// seen well by an inventory that is not older than that word.
func (n *node) available(pl *muster.BlueprintPlacement, at int) bool {
	if !pl.Declared() || n.held() || n.in.Away {
		return false
	}
	s := n.in.Seen
	if s == nil || s.Reconciled < pl.Since {
		return false
	}
	o := s.observed(pl.ID, at)
	return o != nil && o.Healthy && o.CaughtUp && (pl.Disk == "" || n.there(pl.Disk)) && (pl.Transient == "" || n.there(pl.Transient))
}

// notUp says why a placement is not available.
func (n *node) notUp(pl *muster.BlueprintPlacement, at int) string {
	switch s := n.seen(); {
	case n.in == nil:
		return "the store does not know its node"
	case pl.Held:
		return "it is not told to be there yet"
	case n.held():
		return fmt.Sprintf("its node is held: its registration is %s", n.in.Registration)
	case n.in.Away:
		return "its node is not linked"
	case s == nil:
		return "nothing was heard of its node yet"
	case s.Reconciled < pl.Since:
		return n.behind(pl.Since)
	case pl.Disk != "" && !n.there(pl.Disk):
		return fmt.Sprintf("its disk %s is not plugged in", pl.Disk)
	case pl.Transient != "" && !n.there(pl.Transient):
		return fmt.Sprintf("its transient disk %s is not plugged in", pl.Transient)
	default:
		o := s.observed(pl.ID, at)
		switch {
		case o == nil:
			return "there is nothing of it on its node"
		case !o.Healthy:
			return "it is not healthy" + because(o.Reason)
		}
		return "it has not caught up" + because(o.Reason)
	}
}

// behind says that a host is not as far as a generation.
func (n *node) behind(generation int64) string {
	switch s := n.seen(); {
	case n.held():
		return "its node is held, and hears nothing"
	case s == nil:
		return "nothing was heard of its node yet"
	case s.Holds >= generation:
		return fmt.Sprintf("its host holds generation %d and has not reconciled it (last %d)", s.Holds, s.Reconciled)
	default:
		return fmt.Sprintf("its host has reconciled generation %d, not yet %d", s.Reconciled, generation)
	}
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// draw takes the next id from a node's own stream: a UUID of version 8 (RFC
// 9562, section 5.8).
func (n *node) draw(seed uint64) string {
	n.now.Drawn++
	b := binary.BigEndian.AppendUint64(nil, seed)
	b = binary.BigEndian.AppendUint64(b, uint64(n.now.Drawn))
	sum := sha256.Sum256(append(b, n.now.ID...))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	id := make([]byte, 36)
	for i, part := range [][2]int{{0, 4}, {4, 6}, {6, 8}, {8, 10}, {10, 16}} {
		hex.Encode(id[2*part[0]+i:], sum[part[0]:part[1]])
		if i < 4 {
			id[2*part[1]+i] = '-'
		}
	}
	return string(id)
}
