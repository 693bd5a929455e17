package store

import (
	"encoding/json"
	"fmt"
	"strings"

	"muster.internal"
	"muster.internal/inventory"
)

const machineColumns = `machine_id, state, server_uuid, uuid, uuid_key, serial, macs, disks, key_id, product, oddity, reason,
 incumbent, boot_mac, source, first_seen, last_seen, seq`

var (
	getMachine    = define("machines/get", `SELECT `+machineColumns+`, note FROM machines WHERE machine_id = $1`)
	machineOf     = define("machines/registration", `SELECT `+machineColumns+`, note FROM machines WHERE server_uuid = $1 AND server_uuid <> '' AND state = 'known'`)
	newcomerOf    = define("machines/newcomer", `SELECT `+machineColumns+`, note FROM machines WHERE uuid_key = $1 AND boot_mac = $2 AND state = 'conflict'`)
	newcomersTo   = define("machines/newcomers", `SELECT `+machineColumns+`, note FROM machines WHERE incumbent = $1 AND state = 'conflict' ORDER BY machine_id`)
	newcomersBy   = define("machines/by-card", `SELECT `+machineColumns+`, note FROM machines WHERE boot_mac = $1 AND state = 'conflict' ORDER BY last_seen`)
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
		&m.Incumbent, &m.BootMAC, &m.Source, &first, &last, &seq, &m.Note); err != nil {
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

func (t *tx) hardwareSeq(id string) (found bool, seq int64, err error) {
	err = t.each(getMachine, []any{id}, func(scan func(...any) error) error {
		found = true
		_, seq, err = scanHardware(scan)
		return err
	})
	return found, seq, err
}
