package store

import (
	"context"
	"encoding/json"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"muster.internal"
	"muster.internal/module"
)

var (
	setNodeLabels  = define("nodes/labels", `UPDATE nodes SET labels = $2, seq = $3 WHERE node_id = $1`)
	setReservoir   = define("nodes/reservoir", `UPDATE nodes SET reservoir = $2, seq = $3 WHERE node_id = $1`)
	setNodeNote    = define("nodes/note", `UPDATE nodes SET note = $2, seq = $3 WHERE node_id = $1`)
	setDiskLabels  = define("disks/labels", `UPDATE disks SET labels = $2, seq = $3 WHERE disk_id = $1`)
	setMachineNote = define("machines/note", `UPDATE machines SET note = $2, seq = $3 WHERE machine_id = $1`)
)

// How the audit calls what people say of hardware.
const (
	ActionLabel     = "label"
	ActionReservoir = "reservoir"
	ActionNote      = "note"
)

// LabelNode sets and removes labels of a node; what it has already changes
// nothing.
func (s *Store) LabelNode(ctx context.Context, now time.Time, by muster.Caller, nodeID string, c muster.LabelChange) (muster.Node, error) {
	return s.sayOfNode(ctx, now, by, nodeID, func(t *tx, n *muster.Node) error {
		next, changed, err := c.Apply(n.Labels)
		if err != nil || !changed {
			return err
		}
		n.Labels = next
		return t.say(ActionLabel, nodeSubject(n.ID), labelDetail(c), setNodeLabels, n.ID, next)
	})
}

// SetReservoir holds back capacity of a node.
func (s *Store) SetReservoir(ctx context.Context, now time.Time, by muster.Caller, nodeID string, r module.Capacity) (muster.Node, error) {
	const most = 1 << 50
	if r.DurableMiB != 0 || r.TransientMiB != 0 {
		return muster.Node{}, muster.Invalid("reservoir", "a reservoir is of the node itself: cpu_millis, memory_mib and disk_mib (of its pool)")
	}
	if min(r.CPUMillis, r.MemoryMiB, r.DiskMiB) < 0 || max(r.CPUMillis, r.MemoryMiB, r.DiskMiB) > most {
		return muster.Node{}, muster.Invalid("reservoir", "it is not below zero, and at most %d", int64(most))
	}
	return s.sayOfNode(ctx, now, by, nodeID, func(t *tx, n *muster.Node) error {
		if n.Reservoir == r {
			return nil
		}
		d := detail{"from": n.Reservoir, "to": r}
		n.Reservoir = r
		return t.say(ActionReservoir, nodeSubject(n.ID), d, setReservoir, n.ID, r)
	})
}

// NoteNode keeps a note on a node.
func (s *Store) NoteNode(ctx context.Context, now time.Time, by muster.Caller, nodeID string, note muster.Note) (muster.Node, error) {
	text, err := noteText(note)
	if err != nil {
		return muster.Node{}, err
	}
	return s.sayOfNode(ctx, now, by, nodeID, func(t *tx, n *muster.Node) error {
		if n.Note == text {
			return nil
		}
		n.Note = text
		return t.note(nodeSubject(n.ID), setNodeNote, n.ID, text)
	})
}

// sayOfNode lets f say something of a node that is one still.
func (s *Store) sayOfNode(ctx context.Context, now time.Time, by muster.Caller, nodeID string, f func(*tx, *muster.Node) error) (n muster.Node, err error) {
	err = s.write(ctx, "saying something of a node", now, by, func(t *tx) error {
		m, err := t.onNode(nodeID)
		if err != nil {
			return err
		}
		if n = m.node; n.State == muster.NodeDecommissioned {
			p := muster.Problemf(muster.CodeConflict, "node %s is decommissioned: what is said of it would change nothing any more", nodeID)
			p.State = string(n.State)
			return p
		}
		return f(t, &n)
	})
	return n, err
}

// LabelDisk sets and removes labels of a disk.
func (s *Store) LabelDisk(ctx context.Context, now time.Time, by muster.Caller, diskID string, c muster.LabelChange) (d muster.NodeDisk, err error) {
	err = s.write(ctx, "labelling a disk", now, by, func(t *tx) error {
		if d, err = diskOf(t, diskID); err != nil {
			return err
		}
		if d.State == muster.DiskDecommissioned {
			p := muster.Problemf(muster.CodeConflict, "disk %s is decommissioned: what is said of it would change nothing any more", diskID)
			p.State = string(d.State)
			return p
		}
		next, changed, err := c.Apply(d.Labels)
		if err != nil || !changed {
			return err
		}
		d.Labels = next
		return t.say(ActionLabel, "disk/"+d.ID, labelDetail(c), setDiskLabels, d.ID, next)
	})
	return d, err
}

// NoteMachine keeps a note on a machine.
func (s *Store) NoteMachine(ctx context.Context, now time.Time, by muster.Caller, id string, note muster.Note) (muster.Machine, error) {
	var found muster.Machine
	text, err := noteText(note)
	if err != nil {
		return found, err
	}
	err = s.write(ctx, "noting something of a machine", now, by, func(t *tx) error {
		m, err := findHardware(t, getMachine, id)
		if err != nil {
			return err
		}
		if m == nil {
			return noMachine(id)
		}
		if found = *m; found.Note == text {
			return nil
		}
		found.Note = text
		return t.note(machineSubject(id), setMachineNote, id, text)
	})
	return found, err
}

// Disks lists all that the fleet holds or held, by node.
func (s *Store) Disks(ctx context.Context) (ds []muster.NodeDisk, err error) {
	err = s.snapshot(ctx, "listing disks", func(r *reading) error {
		ds = []muster.NodeDisk{}
		live, err := findClaims(r, claimsLive)
		if err != nil {
			return err
		}
		on := map[string][]muster.Claim{}
		for _, c := range live {
			on[c.DiskID] = append(on[c.DiskID], c)
		}
		return r.each(disksAll, nil, func(scan func(...any) error) error {
			d, err := scanNodeDisk(scan)
			d.Claims = on[d.ID]
			ds = append(ds, d)
			return err
		})
	})
	return ds, err
}

// say writes the audit's entry, and the value that q sets, as JSON.
func (t *tx) say(action, subject string, d detail, q *query, id string, value any) error {
	seq, err := t.record(action, subject, d)
	if err != nil {
		return err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return t.change(q, id, string(text), seq)
}

// note is say of a text, which the audit holds too.
func (t *tx) note(subject string, q *query, id, text string) error {
	seq, err := t.record(ActionNote, subject, detail{"note": text})
	if err != nil {
		return err
	}
	return t.change(q, id, text, seq)
}

func labelDetail(c muster.LabelChange) detail {
	d := detail{}
	if len(c.Set) > 0 {
		d["set"] = c.Set
	}
	if len(c.Remove) > 0 {
		d["removed"] = c.Remove
	}
	return d
}

// noteText is a note without the blanks around it.
func noteText(n muster.Note) (string, error) {
	text := strings.TrimSpace(n.Note)
	if len(text) > muster.MaxNoteBytes || !utf8.ValidString(text) ||
		strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
		return "", muster.Invalid("note", "a note is text of at most %d bytes, without control characters", muster.MaxNoteBytes)
	}
	return text, nil
}
