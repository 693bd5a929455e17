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
	listMachines   = define("machines/list", `SELECT `+machineColumns+`, note FROM machines WHERE machine_id > $1 ORDER BY machine_id LIMIT $2`)
	listMachinesIn = define("machines/list-state", `SELECT `+machineColumns+`, note FROM machines WHERE state = $1 AND machine_id > $2 ORDER BY machine_id LIMIT $3`)
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
	m, cards, err := t.against(n, sh)
	if err != nil {
		return err
	}
	f := lifecycle.Facts{CaseAllows: slices.Contains(n.Verbs, machineVerbs[e]), Incumbent: m.had != lifecycle.NoRegistration}
	own := n.UUID
	f.OwnUUID = true
	if muster.SameUUID(n.UUID, m.uuid) {
		own, f.OwnUUID = sh.Own(n.Serial, n.BootMAC)
	}
	if _, err := lifecycle.Apply(lifecycle.State{Machine: n.State}, e, -1, f); err != nil {
		return unresolved(refusal(err, "machine "+n.ID), n)
	}
	d := detail{"uuid": n.UUID, "serial": n.Serial, "macs": n.MACs, "case": n.Case, "incumbent": m.uuid}
	if e == lifecycle.Separate && n.State == muster.MachineConflict {
		d["own_uuid"] = own
	}
	seq, err := t.record(string(e), machineSubject(n.ID), d)
	if err != nil {
		return err
	}
	of := m.uuid
	if n.State == muster.MachineKnown {
		return t.resolveKnown(n, e, of, cards, seq)
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

// against is the machine that the evidence of n speaks of, and the cards that
// are in question when n is registered itself.
func (t *tx) against(n *muster.Machine, sh *inventory.Shared) (m *machine, cards []string, err error) {
	switch {
	case n.State == muster.MachineConflict:
		m, err = t.load(n.Incumbent, n.MACs...)
	case n.Case == string(inventory.NICTwice):
		return t.twice(n, sh)
	default:
		m, err = t.load(n.ServerUUID)
	}
	return m, nil, err
}

// unresolved says of a refused verb which ones the case has.
func unresolved(err error, n *muster.Machine) error {
	p, ok := err.(*muster.Problem)
	if !ok {
		return err
	}
	if p.Allowed = n.Verbs; n.Case == "" {
		p.Detail = "machine " + n.ID + " is registered, and nothing about it is odd: there is nothing to resolve (muster machine ls --state conflict shows who waits)"
	}
	return p
}

// resolveKnown does what the verb says about what is odd of a registered
// machine: its key in other hardware, or the cards of another machine.
func (t *tx) resolveKnown(n *muster.Machine, e muster.Event, of string, cards []string, seq int64) error {
	n.Case, n.Reason, n.Verbs = "", "", nil
	if _, err := t.exec(setOddity, n.ServerUUID, "", "", seq); err != nil {
		return err
	}
	switch e {
	case lifecycle.Separate:
		n.Reason = "both machines may have the card: it is no evidence between the two"
		if of == "" {
			return nil
		}
		_, err := t.exec(setApart, of, inventory.UUIDKey(n.ServerUUID))
		return err
	case lifecycle.MoveNIC:
		return t.moveToKnown(n, of, cards)
	case lifecycle.Forget:
		n.Reason = "it is forgotten; if the machine shows the card again it is written down again"
	}
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
	if n.UUID != m.uuid {
		n.Reason = "it is machine " + m.uuid + ": restart it, and it calls itself so"
		if err := t.giveCards(n, m.uuid, "an operator accepted it as machine "+m.uuid); err != nil {
			return err
		}
	}
	return t.joinCards(m.uuid, cardsOf(n))
}

// separate lets the newcomer in as a machine of its own: under a UUID of its
// own when it came with another's, with the cards that it shows, and from then on
// judged apart.
func (t *tx) separate(n *muster.Machine, of, own string) error {
	if held, err := findRegistration(t, own); err != nil {
		return err
	} else if held != nil && own != n.UUID {
		return muster.Problemf(muster.CodeConflict, "the UUID that would be derived for it, %s, is registered already: accept it as that machine, or set another with muster boot set %s --uuid UUID", own, n.BootMAC)
	}
	if _, err := t.exec(setApart, of, inventory.UUIDKey(own)); err != nil {
		return err
	}
	// With one MAC address on two machines the card stays where it is; else the
	// newcomer shows that it has it now.
	if n.Case != string(inventory.NICTwice) {
		if err := t.takeCards(n, of); err != nil {
			return err
		}
	}
	if own == n.UUID {
		n.Reason = "it is a machine of its own: it gets in when it speaks again"
		return nil
	}
	n.Reason = "it is a machine of its own: restart it, and it calls itself " + own + " (one that does not boot from the network: muster-host register --uuid " + own + ")"
	return t.giveCards(&muster.Machine{BootMAC: n.BootMAC}, own, "an operator separated it from machine "+of)
}
