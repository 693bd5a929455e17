package store

import (
	"context"
	"slices"
	"time"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/lifecycle"
)

var (
	listMachines   = define("machines/list", `SELECT `+machineColumns+` FROM machines WHERE machine_id > $1 ORDER BY machine_id LIMIT $2`)
	listMachinesIn = define("machines/list-state", `SELECT `+machineColumns+` FROM machines WHERE state = $1 AND machine_id > $2 ORDER BY machine_id LIMIT $3`)
)

// Machines lists hardware by machine id: what is registered, and what waits.
func (s *Store) Machines(ctx context.Context, f muster.MachineFilter) ([]muster.Machine, error) {
	if f.State != "" && !slices.Contains(muster.MachineStates, f.State) {
		return nil, muster.Invalid("state", "%q is none of %s", f.State, join(muster.MachineStates))
	}
	var ms []muster.Machine
	err := s.read(ctx, "listing machines", func(r *reading) (err error) {
		if f.State != "" {
			ms, err = hardware(r, listMachinesIn, string(f.State), f.After, limit(f.Limit))
		} else {
			ms, err = hardware(r, listMachines, f.After, limit(f.Limit))
		}
		return err
	})
	return ms, err
}

// Newcomers are those that wait behind a network card, the latest last.
func (s *Store) Newcomers(ctx context.Context, mac string) ([]muster.Machine, error) {
	mac, err := parseMAC(mac)
	if err != nil {
		return nil, err
	}
	var ms []muster.Machine
	err = s.read(ctx, "looking for newcomers", func(r *reading) (err error) {
		ms, err = hardware(r, newcomersBy, mac)
		return err
	})
	return ms, err
}

// Machine finds one, and who waits because of it.
func (s *Store) Machine(ctx context.Context, id string) (muster.Machine, error) {
	var found muster.Machine
	err := s.snapshot(ctx, "reading a machine", func(r *reading) error {
		m, err := findHardware(r, getMachine, id)
		if err != nil {
			return err
		}
		if m == nil {
			return noMachine(id)
		}
		found = *m
		if m.ServerUUID == "" {
			return nil
		}
		waiting, err := hardware(r, newcomersTo, m.ServerUUID)
		for _, n := range waiting {
			found.Newcomers = append(found.Newcomers, n.ID)
		}
		return err
	})
	return found, err
}

func noMachine(id string) error {
	return muster.Problemf(muster.CodeNotFound, "no machine has the id %.64s: a newcomer that got in, was forgotten or fell silent has none", id)
}

var machineVerbs = map[muster.Event]string{
	lifecycle.Accept: inventory.VerbAccept, lifecycle.Separate: inventory.VerbSeparate,
	lifecycle.MoveNIC: inventory.VerbMoveNIC, lifecycle.Forget: inventory.VerbForget,
}

// RaiseMachine resolves a conflict as an operator says. The machine comes back
// as it was, with what happens next as its reason.
func (s *Store) RaiseMachine(ctx context.Context, now time.Time, by muster.Caller, id string, e muster.Event) (muster.Machine, error) {
	var found muster.Machine
	if machineVerbs[e] == "" {
		return found, muster.Problemf(muster.CodeNotFound, "a machine has no event %s", e)
	}
	err := s.write(ctx, string(e), now, by, func(t *tx) error {
		n, err := findHardware(t, getMachine, id)
		if err != nil {
			return err
		}
		if n == nil {
			return noMachine(id)
		}
		found = *n
		return t.resolve(&found, e)
	})
	return found, err
}

// resolve asks the rows, and does what the verb says.
func (t *tx) resolve(n *muster.Machine, e muster.Event) error {
	sh, err := t.shared()
	if err != nil {
		return err
	}
	of := n.Incumbent
	if n.State == muster.MachineKnown {
		of = n.ServerUUID
	}
	m, err := t.load(of, n.MACs...)
	if err != nil {
		return err
	}
	f := lifecycle.Facts{CaseAllows: slices.Contains(n.Verbs, machineVerbs[e]), Incumbent: m.had != lifecycle.NoRegistration}
	own := n.UUID
	f.OwnUUID = true
	if muster.SameUUID(n.UUID, m.uuid) {
		own, f.OwnUUID = sh.Own(n.Serial, n.BootMAC)
	}
	state := lifecycle.State{Machine: n.State}
	if n.State == muster.MachineKnown {
		state.Registration = m.had
	}
	if _, err := lifecycle.Apply(state, e, -1, f); err != nil {
		err = refusal(err, "machine "+n.ID)
		if p, ok := err.(*muster.Problem); ok && len(n.Verbs) > 0 {
			p.Allowed = n.Verbs
		}
		return err
	}
	d := detail{"uuid": n.UUID, "serial": n.Serial, "macs": n.MACs, "case": n.Case, "incumbent": m.uuid}
	if e == lifecycle.Separate {
		d["own_uuid"] = own
	}
	seq, err := t.record(string(e), machineSubject(n.ID), d)
	if err != nil {
		return err
	}
	if n.State == muster.MachineKnown {
		n.Case, n.Reason, n.Verbs = "", "", nil
		_, err := t.exec(setOddity, m.uuid, "", "", seq)
		return err
	}
	if err := t.forgetNewcomer(n); err != nil {
		return err
	}
	switch e {
	case lifecycle.Accept:
		return t.acceptNewcomer(n, of)
	case lifecycle.Separate:
		return t.separate(n, of, own)
	case lifecycle.MoveNIC:
		return t.moveNIC(n, of)
	}
	n.Reason = "it is forgotten; if it speaks again it waits again"
	return nil
}

// acceptNewcomer takes the newcomer's evidence into the known machine, which
// keeps node and registration. Its cards are told the machine's UUID.
func (t *tx) acceptNewcomer(n *muster.Machine, of string) error {
	m, err := t.load(of, n.MACs...)
	if err != nil {
		return err
	}
	for _, mac := range n.MACs {
		m.reg.addMAC(mac)
	}
	m.reg.Serial = n.Serial
	seq, err := t.record("evidence", subject(m.uuid), detail{"macs": m.reg.MACs, "serial": m.reg.Serial, "from": n.ID})
	if err != nil {
		return err
	}
	m.reg.seq = seq
	if err := t.putRegistration(m.reg, m.had); err != nil {
		return err
	}
	n.Reason = "it is machine " + m.uuid + ": it gets in when it speaks again"
	if n.UUID == m.uuid {
		return nil
	}
	n.Reason = "it is machine " + m.uuid + ": restart it, and it calls itself so"
	return t.giveCards(n, m.uuid, "an operator accepted it as machine "+m.uuid)
}

// giveCards tells the machine behind a newcomer's cards its UUID: all that were
// seen and are no other machine's, and the one that it came by in any case.
func (t *tx) giveCards(n *muster.Machine, uuid, why string) error {
	macs := n.MACs
	if n.BootMAC != "" && !slices.Contains(macs, n.BootMAC) {
		macs = append(slices.Clone(macs), n.BootMAC)
	}
	for _, mac := range macs {
		r, err := findRecord(t, mac)
		if err != nil {
			return err
		}
		foreign := r.ServerUUID != "" && r.ServerUUID != uuid
		if r.stored == lifecycle.Unseen && mac != n.BootMAC || foreign && mac != n.BootMAC || r.OwnUUID == uuid {
			continue
		}
		if foreign && r.State == muster.Enrolled {
			return muster.Problemf(muster.CodeConflict, "network card %s boots for machine %s: first muster boot decommission %s and muster boot reactivate %s", mac, r.ServerUUID, mac, mac)
		}
		if r.stored == lifecycle.Unseen {
			next, err := r.raise(lifecycle.SetRecord, lifecycle.Facts{})
			if err != nil {
				return err
			}
			r.settle(next, "", nil)
		}
		r.touched = true
		if err := t.give(r, uuid, why); err != nil {
			return err
		}
	}
	return nil
}

// separate lets the newcomer in as a machine of its own: under a UUID of its
// own when it came with another's, and from then on judged apart.
func (t *tx) separate(n *muster.Machine, of, own string) error {
	if held, err := findRegistration(t, own); err != nil {
		return err
	} else if held != nil && own != n.UUID {
		return muster.Problemf(muster.CodeConflict, "the UUID that would be derived for it, %s, is registered already: accept it as that machine, or set another with muster boot set %s --uuid UUID", own, n.BootMAC)
	}
	if _, err := t.exec(setApart, of, inventory.UUIDKey(own)); err != nil {
		return err
	}
	if own == n.UUID {
		n.Reason = "it is a machine of its own: it gets in when it speaks again"
		return nil
	}
	n.Reason = "it is a machine of its own: restart it, and it calls itself " + own + " (one that does not boot from the network: muster-host register --uuid " + own + ")"
	return t.giveCards(&muster.Machine{BootMAC: n.BootMAC}, own, "an operator separated it from machine "+of)
}

// moveNIC takes the newcomer's cards from the known machine. Their records
// start over, with their addresses.
func (t *tx) moveNIC(n *muster.Machine, of string) error {
	m, err := t.load(of, n.MACs...)
	if err != nil {
		return err
	}
	var moved []string
	for _, mac := range n.MACs {
		if !slices.Contains(m.reg.MACs, mac) && (m.boot(mac) < 0 || m.boots[m.boot(mac)].ServerUUID != m.uuid) {
			continue
		}
		moved = append(moved, mac)
		m.reg.MACs = slices.DeleteFunc(slices.Clone(m.reg.MACs), func(s string) bool { return s == mac })
	}
	seq, err := t.record(string(lifecycle.MoveNIC), subject(m.uuid), detail{"macs": moved, "to": n.UUID})
	if err != nil {
		return err
	}
	m.reg.seq = seq
	if err := t.putRegistration(m.reg, m.had); err != nil {
		return err
	}
	for _, mac := range moved {
		if err := t.startOver(mac, m.uuid); err != nil {
			return err
		}
	}
	n.Reason = "its network cards are its own now: it gets in when it speaks again"
	return nil
}

// startOver brings a bound record back to discovered: decommissioned, and
// reactivated.
func (t *tx) startOver(mac, of string) error {
	m, i, err := t.onRecord(mac)
	if err != nil {
		return err
	}
	c := &recordChange{t: t, m: m, i: i, r: m.boots[i]}
	if c.r.stored == lifecycle.Unseen || c.r.ServerUUID != of && c.r.OwnUUID != of {
		return nil
	}
	c.r.OwnUUID, c.touched = "", true
	if c.r.ServerUUID == of {
		for _, e := range []muster.Event{lifecycle.Decommission, lifecycle.Reactivate} {
			if _, err := c.raise(e, lifecycle.Facts{}); err != nil {
				return err
			}
		}
	}
	return c.put(lifecycle.MoveNIC, detail{"state": c.r.State, "address": c.r.Address, "from": of})
}

// odd writes down, and clears by itself, that a node's key is used by other
// hardware than it was given to: the key proves more than the hardware does.
func (t *tx) odd(m *machine, what said) error {
	if len(what.redacted) == 0 {
		return nil
	}
	sh, err := t.shared()
	if err != nil {
		return err
	}
	known, now := sh.EvidenceOf(m.reg.Registration), sh.Evidence(what.facts)
	known.Key, now.Key = m.reg.BoundKeyID, m.reg.BoundKeyID
	v := inventory.Judge(known, now)
	if v.Outcome != inventory.SameKeyNewHardware {
		return nil
	}
	seq, err := t.record("hardware_changed", "machine-of/"+m.uuid, detail{"reason": v.Reason, "serial": now.Serial, "macs": now.MACs})
	if err != nil {
		return err
	}
	_, err = t.exec(setOddity, m.uuid, string(v.Case), v.Reason, seq)
	return err
}
