package store

import (
	"context"
	"slices"
	"strings"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/lifecycle"
)

const (
	newcomersKept  = 1000 // that wait, in all
	newcomersOfMAC = 4    // behind one network card
	evidenceAsked  = 64   // of a machine's cards and of its disks, when others are looked for
)

// evidenceText is a registration's evidence as one text, to notice that it changed.
func (r *registration) evidenceText() string {
	var ids []string
	for _, d := range r.Disks {
		ids = append(ids, d.Identity())
	}
	return strings.Join([]string{r.ServerUUID, r.Serial, strings.Join(r.MACs, " "), strings.Join(ids, "\x00"), r.BoundKeyID, r.Product, r.bootMAC, r.source}, "\x01")
}

func diskIdentities(ds []muster.Disk) []string {
	ids := []string{}
	for _, d := range ds {
		if id := d.Identity(); id != "" && !d.Removable && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// keepMachine writes down the machine behind a registration, when its evidence
// is news. A registration belongs to one machine.
func (t *tx) keepMachine(r *registration) error {
	now := r.evidenceText()
	if now == r.evidence {
		return nil
	}
	r.evidence = now
	m, err := findHardware(t, machineOf, r.ServerUUID)
	if err != nil {
		return err
	}
	if m == nil {
		id, err := t.s.newUUID(t.now.UnixMilli())
		if err != nil {
			return err
		}
		m = &muster.Machine{ID: id, State: muster.MachineKnown, ServerUUID: r.ServerUUID, FirstSeen: r.RegisteredAt}
	}
	m.UUID, m.Serial, m.MACs, m.Disks = r.ServerUUID, r.Serial, r.MACs, diskIdentities(r.Disks)
	m.KeyID, m.Product, m.BootMAC, m.Source, m.LastSeen = r.BoundKeyID, r.Product, r.bootMAC, r.source, r.LastSeen
	return t.putHardware(m, r.seq)
}

// dropMachine forgets the machine of a registration that ends, and who waited
// because of it: they get in by themselves when they speak again.
func (t *tx) dropMachine(uuid string) error {
	m, err := findHardware(t, machineOf, uuid)
	if err != nil {
		return err
	}
	waiting, err := hardware(t, newcomersTo, uuid)
	if err != nil {
		return err
	}
	if m != nil {
		waiting = append(waiting, *m)
	}
	for _, m := range waiting {
		if err := t.dropHardware(m.ID); err != nil {
			return err
		}
	}
	_, err = t.exec(dropApart, uuid)
	return err
}

// rival is the registered machine that a newcomer without a registration is in
// conflict with, by its cards and disks; nil: there is none. The machines of
// but are passed over.
func (t *tx) rival(uuid string, sh *inventory.Shared, new inventory.Evidence, but ...string) (*machine, inventory.Verdict, error) {
	var holders []string
	ask := func(kind, value string) error {
		return t.each(evidenceHolders, []any{kind, value}, func(scan func(...any) error) error {
			var u string
			if err := scan(&u); err != nil {
				return err
			}
			if !slices.Contains(holders, u) {
				holders = append(holders, u)
			}
			return nil
		})
	}
	for kind, values := range map[string][]string{"mac": new.MACs, "disk": new.Disks, "uuid": new.Stamps} {
		for _, v := range values[:min(len(values), evidenceAsked)] {
			if kind == "uuid" {
				v = inventory.UUIDKey(v)
			}
			if err := ask(kind, v); err != nil {
				return nil, inventory.Verdict{}, err
			}
		}
	}
	slices.Sort(holders) // a map was walked
	for _, h := range holders {
		if muster.SameUUID(h, uuid) || slices.Contains(but, h) {
			continue
		}
		var key string
		if apart, err := t.get(getApart, []any{h, inventory.UUIDKey(uuid)}, &key); err != nil || apart {
			if err != nil {
				return nil, inventory.Verdict{}, err
			}
			continue
		}
		m, err := t.load(h)
		if err != nil {
			return nil, inventory.Verdict{}, err
		}
		if m.had == lifecycle.NoRegistration {
			continue
		}
		if v := inventory.Judge(sh.EvidenceOf(m.reg.Registration), new); v.Outcome == inventory.Conflict {
			return m, v, nil
		}
	}
	return nil, inventory.Verdict{}, nil
}

// contest makes a newcomer wait: a machine without a registration. The
// incumbent shows the conflict when a booter heard it, and nothing else of it
// changes.
func (t *tx) contest(m *machine, uuid string, what said, v inventory.Verdict, mac, from string) error {
	// Nobody anonymous writes anything into another machine's registration.
	if t.by.KeyID != "" {
		if err := t.noteConflict(m, muster.Conflict{MAC: mac, Serial: what.facts.Serial, Source: from, Reason: v.Reason, At: t.now}); err != nil {
			return err
		}
	}
	n, err := findHardware(t, newcomerOf, inventory.UUIDKey(uuid), mac)
	if err != nil {
		return err
	}
	state := lifecycle.State{}
	if n != nil {
		state.Machine = n.State
	}
	if _, err := lifecycle.Apply(state, lifecycle.Contest, -1, lifecycle.Facts{}); err != nil {
		return err
	}
	fresh := n == nil
	if fresh {
		room, err := t.roomForNewcomer(mac)
		if err != nil || !room {
			return err
		}
		id, err := t.s.newUUID(t.now.UnixMilli())
		if err != nil {
			return err
		}
		n = &muster.Machine{ID: id, State: muster.MachineConflict, FirstSeen: t.now}
	}
	was := *n
	n.UUID, n.Serial, n.MACs, n.Disks = uuid, what.facts.Serial, what.facts.MACs, diskIdentities(what.facts.Disks)
	n.Product, n.BootMAC, n.Source, n.LastSeen = what.facts.Product, mac, from, t.now
	n.Case, n.Reason, n.Incumbent = string(v.Case), v.Reason, m.uuid
	_, seq, err := t.hardwareSeq(n.ID)
	if err != nil {
		return err
	}
	if fresh || was.Case != n.Case || was.Incumbent != n.Incumbent || t.now.Sub(was.LastSeen) >= conflictAgain {
		if seq, err = t.record(string(lifecycle.Contest), machineSubject(n.ID), detail{"uuid": uuid, "serial": n.Serial, "macs": n.MACs, "mac": mac,
			"address": from, "case": n.Case, "reason": n.Reason, "incumbent": n.Incumbent}); err != nil {
			return err
		}
	}
	return t.putHardware(n, seq)
}

// roomForNewcomer keeps noise within bounds: of the newcomers behind one card
// the one that was silent longest goes; when too many wait in all, no more is
// written down, and refusals still say why.
func (t *tx) roomForNewcomer(mac string) (bool, error) {
	same, err := hardware(t, newcomersBy, mac)
	if err != nil {
		return false, err
	}
	if len(same) >= newcomersOfMAC {
		for _, old := range same[:len(same)-newcomersOfMAC+1] {
			if err := t.dropHardware(old.ID); err != nil {
				return false, err
			}
		}
		return true, nil
	}
	var n int
	_, err = t.get(newcomerCount, nil, &n)
	return n < newcomersKept, err
}

// settledIn forgets that a machine waited: it has a registration now.
func (t *tx) settledIn(m *machine, mac string) error {
	n, err := findHardware(t, newcomerOf, inventory.UUIDKey(m.uuid), mac)
	if err != nil || n == nil {
		return err
	}
	if n.Incumbent != m.uuid {
		return t.forgetNewcomer(n)
	}
	// It waited for the very machine that it comes in as, which the caller holds
	// and will write.
	m.reg.Conflicts = withoutNewcomer(m.reg.Conflicts, n)
	return t.dropHardware(n.ID)
}

func withoutNewcomer(cs []muster.Conflict, n *muster.Machine) []muster.Conflict {
	return slices.DeleteFunc(slices.Clone(cs), func(c muster.Conflict) bool { return c.MAC == n.BootMAC })
}

// forgetNewcomer drops a newcomer and what its incumbent shows of it.
func (t *tx) forgetNewcomer(n *muster.Machine) error {
	if err := t.dropHardware(n.ID); err != nil {
		return err
	}
	reg, err := findRegistration(t, n.Incumbent)
	if err != nil || reg == nil {
		return err
	}
	kept := withoutNewcomer(reg.Conflicts, n)
	if len(kept) == len(reg.Conflicts) {
		return nil
	}
	reg.Conflicts = kept
	return t.putRegistration(reg, reg.State)
}

// knowMachines makes the machines of registrations that are older than they.
func (s *Store) knowMachines(ctx context.Context) error {
	var uuids []string
	if err := s.read(ctx, "looking for machines", func(r *reading) error {
		uuids = uuids[:0]
		return r.each(unknownYet, nil, func(scan func(...any) error) error {
			uuids = append(uuids, "")
			return scan(&uuids[len(uuids)-1])
		})
	}); err != nil {
		return err
	}
	for chunk := range slices.Chunk(uuids, 500) {
		if err := s.write(ctx, "knowing machines", timeZero, muster.Clock, func(t *tx) error {
			for _, u := range chunk {
				r, err := findRegistration(t, u)
				if err != nil {
					return err
				}
				if r == nil {
					continue
				}
				t.now, r.evidence = r.RegisteredAt, ""
				if err := t.keepMachine(r); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}
