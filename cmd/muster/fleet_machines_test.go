package main

import (
	"context"
	"slices"

	muster "muster.internal"
	"muster.internal/inventory"
)

const (
	idWeb1     = "019add0c-7b00-7000-8000-0000000000a1"
	idNewcomer = "019add0c-7b00-7000-8000-0000000000b2"
)

// machines are web1's, and one that came with its UUID.
func (m *memory) machines() []muster.Machine {
	known := muster.Machine{ID: idWeb1, State: muster.MachineKnown, ServerUUID: uuidWeb1, UUID: uuidWeb1, Serial: "8CX2P53",
		MACs: []string{"52:54:00:77:00:01"}, BootMAC: "52:54:00:77:00:01", LastSeen: noon, Note: m.machineNote}
	if m.newcomer == "" {
		return []muster.Machine{known}
	}
	known.Newcomers = []string{idNewcomer}
	return []muster.Machine{known, {ID: idNewcomer, State: muster.MachineConflict, UUID: uuidWeb1, Serial: "8CX2P54", MACs: []string{"52:54:00:77:00:66"},
		BootMAC: "52:54:00:77:00:66", Source: "10.77.0.166", Incumbent: uuidWeb1, Case: m.newcomer, Verbs: inventory.Case(m.newcomer).Verbs(),
		Reason: "the UUID is the same, but the serial number is another", LastSeen: noon}}
}

func (m *memory) Machines(_ context.Context, f muster.MachineFilter) ([]muster.Machine, error) {
	ms := slices.DeleteFunc(m.machines(), func(n muster.Machine) bool {
		return f.State != "" && n.State != f.State || n.ID <= f.After
	})
	return ms, m.up()
}

func (m *memory) Machine(_ context.Context, id string) (muster.Machine, error) {
	for _, n := range m.machines() {
		if n.ID == id {
			return n, m.up()
		}
	}
	return muster.Machine{}, muster.Problemf(muster.CodeNotFound, "no machine has the id %s", id)
}

func (m *memory) RaiseMachine(ctx context.Context, id string, e muster.Event) (muster.Machine, error) {
	n, err := m.Machine(ctx, id)
	if err != nil {
		return n, err
	}
	m.note(string(e), "machine/"+id)
	if verb := string(e); !slices.Contains(n.Verbs, verb) && verb != "move_nic" {
		return n, conflict(string(n.State), "", "cannot %s machine %s: its case is not one that this resolves", verb, id)
	}
	m.newcomer, n.Reason = "", "it is a machine of its own: restart it"
	return n, nil
}

func (m *memory) SharedIdentities(context.Context) ([]muster.SharedIdentity, error) {
	return append([]muster.SharedIdentity{{Kind: muster.SharedUUID, Value: "00020003-0004-0005-0006-000700080009", Vendor: "AMI", Comment: "in captures", Builtin: true}}, m.shared...), m.up()
}

func (m *memory) AddSharedIdentity(_ context.Context, s muster.SharedIdentity) (muster.SharedIdentity, error) {
	v, err := inventory.CanonicalShared(s.Kind, s.Value)
	if err != nil {
		return s, muster.Invalid("value", "%v", err)
	}
	s.Value, s.AddedBy = v, "operator:ada"
	m.shared = append(m.shared, s)
	return s, m.up()
}

func (m *memory) RemoveSharedIdentity(_ context.Context, kind muster.SharedKind, value string) error {
	m.shared = slices.DeleteFunc(m.shared, func(s muster.SharedIdentity) bool { return s.Kind == kind && s.Value == value })
	return m.up()
}

func (m *memory) NetworkUsage(context.Context) ([]muster.NetworkUsage, error) {
	return []muster.NetworkUsage{{Name: "rack1", Total: 100, Used: 100, Unannounced: 88, UnannouncedCap: 88, Note: "no address is free"}}, m.up()
}

func (m *memory) NoiseLimits(context.Context) ([]muster.NoiseLimit, error) {
	return []muster.NoiseLimit{{Name: "newcomers in conflict", Used: 1000, Cap: 1000, Expires: 86400, Note: "the cap bites"}}, m.up()
}
