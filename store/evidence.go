package store

import (
	"context"
	"encoding/json"
	"fmt"
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

const machineColumns = `machine_id, state, server_uuid, uuid, uuid_key, serial, macs, disks, key_id, product, oddity, reason,
 incumbent, boot_mac, source, first_seen, last_seen, seq`

var (
	getMachine    = define("machines/get", `SELECT `+machineColumns+` FROM machines WHERE machine_id = $1`)
	machineOf     = define("machines/registration", `SELECT `+machineColumns+` FROM machines WHERE server_uuid = $1 AND server_uuid <> '' AND state = 'known'`)
	newcomerOf    = define("machines/newcomer", `SELECT `+machineColumns+` FROM machines WHERE uuid_key = $1 AND boot_mac = $2 AND state = 'conflict'`)
	newcomersTo   = define("machines/newcomers", `SELECT `+machineColumns+` FROM machines WHERE incumbent = $1 AND state = 'conflict' ORDER BY machine_id`)
	newcomersBy   = define("machines/by-card", `SELECT `+machineColumns+` FROM machines WHERE boot_mac = $1 AND state = 'conflict' ORDER BY last_seen`)
	newcomerCount = define("machines/count", `SELECT count(*) FROM machines WHERE state = 'conflict'`)
	conflictsDue  = define("clock/conflicts", `SELECT machine_id FROM machines WHERE state = 'conflict' AND last_seen <= $1 ORDER BY last_seen, machine_id`)
	setMachine    = define("machines/set", `
INSERT INTO machines (`+machineColumns+`) VALUES (`+placeholders(1, 18)+`)
ON CONFLICT (machine_id) DO UPDATE SET (state, server_uuid, uuid, uuid_key, serial, macs, disks, key_id, product, oddity, reason,
 incumbent, boot_mac, source, first_seen, last_seen, seq) = (`+placeholders(2, 18)+`)`)
	dropMachineRow  = define("machines/drop", `DELETE FROM machines WHERE machine_id = $1`)
	dropEvidence    = define("evidence/drop", `DELETE FROM evidence WHERE machine_id = $1`)
	addEvidence     = define("evidence/add", `INSERT INTO evidence (kind, value, machine_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`)
	evidenceHolders = define("evidence/holders", `
SELECT m.server_uuid FROM evidence e JOIN machines m ON m.machine_id = e.machine_id
WHERE e.kind = $1 AND e.value = $2 AND m.state = 'known' ORDER BY m.server_uuid LIMIT 16`)
	setApart   = define("machines/apart-set", `INSERT INTO machines_apart (server_uuid, uuid_key) VALUES ($1, $2) ON CONFLICT DO NOTHING`)
	getApart   = define("machines/apart", `SELECT uuid_key FROM machines_apart WHERE server_uuid = $1 AND uuid_key = $2`)
	dropApart  = define("machines/apart-drop", `DELETE FROM machines_apart WHERE server_uuid = $1`)
	setOddity  = define("machines/oddity", `UPDATE machines SET oddity = $2, reason = $3, seq = $4 WHERE server_uuid = $1 AND server_uuid <> '' AND state = 'known'`)
	unknownYet = define("machines/unknown", `
SELECT server_uuid FROM registrations r WHERE NOT EXISTS (SELECT 1 FROM machines m WHERE m.server_uuid = r.server_uuid AND m.server_uuid <> '') ORDER BY server_uuid`)
)

func machineSubject(id string) string { return "machine/" + id }

// print is a registration's evidence as one text, to notice that it changed.
func (r *registration) print() string {
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
	now := r.print()
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

func (t *tx) putHardware(m *muster.Machine, seq int64) error {
	macs, err := json.Marshal(m.MACs)
	if err != nil {
		return err
	}
	disks, err := json.Marshal(m.Disks)
	if err != nil {
		return err
	}
	if _, err := t.exec(setMachine, m.ID, string(m.State), m.ServerUUID, m.UUID, inventory.UUIDKey(m.UUID), m.Serial, string(macs), string(disks),
		m.KeyID, m.Product, m.Case, m.Reason, m.Incumbent, m.BootMAC, m.Source, micro(m.FirstSeen), micro(m.LastSeen), seq); err != nil {
		return err
	}
	if _, err := t.exec(dropEvidence, m.ID); err != nil {
		return err
	}
	for _, e := range evidenceOf(m) {
		if _, err := t.exec(addEvidence, e[0], e[1], m.ID); err != nil {
			return err
		}
	}
	return nil
}

func evidenceOf(m *muster.Machine) (all [][2]string) {
	all = append(all, [2]string{"uuid", inventory.UUIDKey(m.UUID)})
	if m.Serial != "" {
		all = append(all, [2]string{"serial", strings.ToLower(m.Serial)})
	}
	for _, mac := range m.MACs {
		all = append(all, [2]string{"mac", mac})
	}
	for _, d := range m.Disks {
		all = append(all, [2]string{"disk", d})
	}
	return all
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

func (t *tx) dropHardware(id string) error {
	if _, err := t.exec(dropEvidence, id); err != nil {
		return err
	}
	_, err := t.exec(dropMachineRow, id)
	return err
}

func scanHardware(scan func(...any) error) (m muster.Machine, seq int64, err error) {
	var key, macs, disks string
	var first, last int64
	if err = scan(&m.ID, &m.State, &m.ServerUUID, &m.UUID, &key, &m.Serial, &macs, &disks, &m.KeyID, &m.Product, &m.Case, &m.Reason,
		&m.Incumbent, &m.BootMAC, &m.Source, &first, &last, &seq); err != nil {
		return m, 0, err
	}
	m.FirstSeen, m.LastSeen = fromMicro(first), fromMicro(last)
	if err = json.Unmarshal([]byte(macs), &m.MACs); err == nil {
		err = json.Unmarshal([]byte(disks), &m.Disks)
	}
	if err != nil {
		return m, 0, fmt.Errorf("machine %s: %w", m.ID, err)
	}
	m.Verbs = inventory.Case(m.Case).Verbs()
	return m, seq, nil
}

func hardware(from source, q *query, args ...any) ([]muster.Machine, error) {
	ms := []muster.Machine{}
	err := from.each(q, args, func(scan func(...any) error) error {
		m, _, err := scanHardware(scan)
		ms = append(ms, m)
		return err
	})
	return ms, err
}

// findHardware returns nil when there is none.
func findHardware(from source, q *query, args ...any) (*muster.Machine, error) {
	ms, err := hardware(from, q, args...)
	if err != nil || len(ms) == 0 {
		return nil, err
	}
	return &ms[0], nil
}

// rival is the registered machine that a newcomer without a registration is in
// conflict with, by its cards and disks; nil: there is none.
// The machines of but are passed over.
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

func (t *tx) hardwareSeq(id string) (found bool, seq int64, err error) {
	err = t.each(getMachine, []any{id}, func(scan func(...any) error) error {
		found = true
		_, seq, err = scanHardware(scan)
		return err
	})
	return found, seq, err
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
				if t.now = r.RegisteredAt; r.evidence != "" {
					r.evidence = ""
				}
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
