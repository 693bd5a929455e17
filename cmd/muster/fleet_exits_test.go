package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	muster "muster.internal"
	"muster.internal/api"
	"muster.internal/lifecycle"
	"muster.internal/module"
)

func (m *memory) node(id string) (*muster.Node, error) {
	for i := range m.nodes {
		if m.nodes[i].ID == id {
			return &m.nodes[i], m.up()
		}
	}
	return nil, muster.Problemf(muster.CodeNotFound, "there is no node %q", id)
}

const diskWeb1 = "019add0c-7b00-7000-8000-0000000000d1"

func (m *memory) Node(_ context.Context, id string) (muster.NodeDetail, error) {
	n, err := m.node(id)
	if err != nil {
		return muster.NodeDetail{}, err
	}
	d := muster.NodeDetail{Node: *n, Serial: m.regs[n.ServerUUID].Serial, Expunged: m.regs[n.ServerUUID].Tombstone,
		Disks: []muster.NodeDisk{}}
	k, err := m.disk(diskWeb1)
	if err != nil {
		return d, err
	}
	d.Disks = append(d.Disks, k)
	d.Claims = m.claims
	if m.foreign {
		d.Foreign = []muster.ForeignWorkload{{Kind: "vm", Name: "somebody-elses"}}
	}
	return d, nil
}

func (m *memory) RaiseNode(_ context.Context, id string, e muster.Event) (muster.Node, error) {
	n, err := m.node(id)
	if err != nil {
		return muster.Node{}, err
	}
	if n.Policy == muster.PolicyExpunged {
		return *n, conflict("expunged", "", "cannot %s node %s: the node policy is expunged", e, id)
	}
	n.Policy = map[muster.Event]muster.NodePolicy{lifecycle.NoProvision: muster.PolicyNoProvision, lifecycle.Quiesce: muster.PolicyQuiesce,
		lifecycle.Resume: muster.PolicyInService, lifecycle.GracefulRemove: muster.PolicyGracefulRemove}[e]
	for i := range m.claims {
		m.claims[i].State, m.claims[i].Why = muster.ClaimHeld, ""
		if n.Policy == muster.PolicyQuiesce || n.Policy == muster.PolicyGracefulRemove {
			m.claims[i].State, m.claims[i].Why = muster.ClaimDraining, "the node is to leave the fleet"
		}
	}
	m.note(string(e), "node/"+id)
	return *n, nil
}

func (m *memory) ExpungeNode(ctx context.Context, id string, x muster.Expunge) (muster.NodeDetail, error) {
	n, err := m.node(id)
	if err != nil {
		return muster.NodeDetail{}, err
	}
	r := m.regs[n.ServerUUID]
	if x.Reason == "" {
		return muster.NodeDetail{}, muster.Invalid("reason", "say why it is expunged")
	}
	if t := r.Tombstone; t != nil && t.Reason != x.Reason {
		return muster.NodeDetail{}, conflict("expunged", "", "node %s is expunged already, since %s, by %s, for this reason: %s", id, t.At, t.By, t.Reason)
	}
	if x.Confirm != r.Serial && x.Confirm != r.ServerUUID {
		return muster.NodeDetail{}, muster.Invalid("confirm", "this is not the serial number of machine %s", r.ServerUUID)
	}
	n.Policy, r.State = muster.PolicyExpunged, muster.Disabled
	for i := range m.claims {
		m.claims[i].State, m.claims[i].Ended = muster.ClaimReleased, muster.ClaimGone
	}
	seen := noon.Add(-3600e9)
	r.Tombstone = &muster.Expunged{At: noon, By: "operator:admin", Reason: x.Reason, Seq: 8, Booters: []muster.BooterConfirmation{
		{Booter: "rack1", Confirmed: true, LastSeen: &noon}, {Booter: "rack2", Confirmed: true, LastSeen: &noon}, {Booter: "rack3", LastSeen: &seen}}}
	m.note("expunge", "node/"+id)
	return m.Node(ctx, id)
}

func (m *memory) AcknowledgeForeign(ctx context.Context, id string) (muster.NodeDetail, error) {
	d, err := m.Node(ctx, id)
	for i := range d.Foreign {
		d.Foreign[i].AcknowledgedAt, d.Foreign[i].AcknowledgedBy = &noon, "operator:admin"
	}
	m.foreign = false
	return d, err
}

func (m *memory) disk(id string) (muster.NodeDisk, error) {
	if id != diskWeb1 {
		return muster.NodeDisk{}, muster.Problemf(muster.CodeNotFound, "there is no disk %q", id)
	}
	return muster.NodeDisk{ID: id, NodeID: m.nodes[0].ID, Disk: bareDisks()[0], Member: true, Policy: muster.DiskPolicyInService, State: muster.DiskInService, Labels: m.diskLabels}, m.up()
}

func (m *memory) Disks(context.Context) ([]muster.NodeDisk, error) {
	d, err := m.disk(diskWeb1)
	return []muster.NodeDisk{d}, err
}

func (m *memory) LabelDisk(_ context.Context, id string, c muster.LabelChange) (muster.NodeDisk, error) {
	d, err := m.disk(id)
	if err != nil {
		return d, err
	}
	if d.Labels, _, err = c.Apply(d.Labels); err == nil {
		m.diskLabels = d.Labels
		m.note("label", "disk/"+id)
	}
	return d, err
}

func (m *memory) LabelNode(_ context.Context, id string, c muster.LabelChange) (muster.Node, error) {
	n, err := m.node(id)
	if err != nil {
		return muster.Node{}, err
	}
	next, _, err := c.Apply(n.Labels)
	if err != nil {
		return muster.Node{}, err
	}
	n.Labels = next
	m.note("label", "node/"+id)
	return *n, nil
}

func (m *memory) SetReservoir(_ context.Context, id string, r module.Capacity) (muster.Node, error) {
	n, err := m.node(id)
	if err != nil {
		return muster.Node{}, err
	}
	n.Reservoir = r
	m.note("reservoir", "node/"+id)
	return *n, nil
}

func (m *memory) NoteNode(_ context.Context, id string, note muster.Note) (muster.Node, error) {
	n, err := m.node(id)
	if err != nil {
		return muster.Node{}, err
	}
	n.Note = note.Note
	m.note("note", "node/"+id)
	return *n, nil
}

func (m *memory) NoteMachine(ctx context.Context, id string, note muster.Note) (muster.Machine, error) {
	n, err := m.Machine(ctx, id)
	if err == nil {
		m.machineNote, n.Note = note.Note, note.Note
	}
	return n, err
}

func (m *memory) RaiseDisk(_ context.Context, id string, e muster.Event) (muster.NodeDisk, error) {
	d, err := m.disk(id)
	if e == lifecycle.RemoveDisk {
		d.Policy = muster.DiskPolicyGracefulRemove
	}
	return d, err
}

func (m *memory) ExpungeDisk(_ context.Context, id string, x muster.Expunge) (muster.NodeDisk, error) {
	if x.Confirm != id {
		return muster.NodeDisk{}, muster.Invalid("confirm", "this is not the serial number of disk %s", id)
	}
	return muster.NodeDisk{ID: id, Disk: bareDisks()[0], Policy: muster.DiskPolicyExpunged, State: muster.DiskInService}, m.up()
}

func (m *memory) SetRootPassword(_ context.Context, uuid string, p muster.RootPassword) (muster.RootPasswordSet, error) {
	r, err := m.reg(uuid)
	if err != nil {
		return muster.RootPasswordSet{}, err
	}
	if p.Hash != "" && !strings.HasPrefix(p.Hash, "$6$") {
		return muster.RootPasswordSet{}, muster.Invalid("hash", "this is not a SHA-512 crypt(3) hash")
	}
	set := muster.RootPasswordSet{SetAt: noon, SetBy: "operator:admin"}
	r.RootPassword = &set
	m.note("set_root_password", "registration/"+uuid)
	return set, nil
}

func (m *memory) ClearRootPassword(_ context.Context, uuid string) error {
	r, err := m.reg(uuid)
	if err == nil {
		r.RootPassword = nil
	}
	return err
}

func (m *memory) RotateKey(_ context.Context, id string, q muster.KeyRotation) (muster.CreatedKey, error) {
	for _, k := range m.keys {
		if k.ID == id {
			c := muster.CreatedKey{APIKey: k, Secret: "mus_" + id + "_ROTATED"}
			if q.Overlap > 0 {
				until := noon.Add(3600e9)
				c.OldUntil = &until
			}
			return c, m.up()
		}
	}
	return muster.CreatedKey{}, muster.Problemf(muster.CodeNotFound, "there is no key %q", id)
}

func (m *memory) operator(name string) (int, error) {
	i := slices.IndexFunc(m.people, func(o muster.Operator) bool { return o.Name == name })
	if i < 0 {
		return 0, muster.Problemf(muster.CodeNotFound, "there is no operator %q", name)
	}
	admins := 0
	for _, o := range m.people {
		if o.Role == muster.Admin {
			admins++
		}
	}
	if admins == 1 && m.people[i].Role == muster.Admin {
		return i, conflict("", "", "operator %s cannot go: nobody else is an admin", name)
	}
	return i, m.up()
}

func (m *memory) ChangeOperator(_ context.Context, name string, c muster.OperatorChange) (muster.Operator, error) {
	i, err := m.operator(name)
	if err != nil {
		return muster.Operator{}, err
	}
	if c.Role != "" {
		m.people[i].Role = c.Role
	}
	m.note("change_operator", "operator/"+name)
	return m.people[i], nil
}

func (m *memory) RemoveOperator(_ context.Context, name string) error {
	i, err := m.operator(name)
	if err == nil {
		m.people = slices.Delete(m.people, i, i+1)
	}
	return err
}

func (m *memory) ChangePassword(_ context.Context, c muster.PasswordChange) error {
	if c.Old != goodPass {
		return fmt.Errorf("%w", muster.Problemf(muster.CodeForbidden, "the old password is wrong; nothing was changed"))
	}
	return m.up()
}

func (f farEnd) Trusted(ctx context.Context, _ api.Proof, _ string) error {
	<-ctx.Done()
	return nil
}
