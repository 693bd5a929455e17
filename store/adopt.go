package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/lifecycle"
)

var (
	disksByIdentity = define("disks/identity", `
SELECT disk_id, node_id, state FROM disks WHERE identity = $1 ORDER BY created_at DESC, disk_id DESC`)
	setMinimum = define("firmware/set", `
INSERT INTO firmware_minimums (vendor, part, version, set_at, set_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (vendor, part) DO UPDATE SET version = excluded.version, set_at = excluded.set_at, set_by = excluded.set_by`)
	allMinimums = define("firmware/list", `SELECT vendor, part, version, set_at, set_by FROM firmware_minimums ORDER BY vendor, part`)
	dropMinimum = define("firmware/drop", `DELETE FROM firmware_minimums WHERE vendor = $1 AND part = $2`)
)

// How the audit calls what is stated of firmware.
const (
	ActionMinimum   = "set_firmware_minimum"
	ActionNoMinimum = "remove_firmware_minimum"
)

// AdoptDisk takes a disk that a node's host sees into the fleet. One that was
// decommissioned comes as a new disk.
func (s *Store) AdoptDisk(ctx context.Context, now time.Time, by muster.Caller, nodeID string, a muster.AdoptDisk) (out muster.AdoptedDisk, err error) {
	err = s.write(ctx, "adopting a disk", now, by, func(t *tx) error {
		m, err := t.onNode(nodeID)
		if err != nil {
			return err
		}
		last, err := findNewest(t, m.uuid)
		if err != nil {
			return err
		}
		if last.source != muster.SourceHost {
			return muster.Problemf(muster.CodeConflict, "the host of node %s has not said yet which disks it has: it does once it is linked", nodeID)
		}
		h, err := last.hardware()
		if err != nil {
			return err
		}
		d, err := pluggedAs(nodeID, h, a.Disk)
		if err != nil {
			return err
		}
		if why := inventory.Occupied(d.Disk); why != "" {
			return muster.Problemf(muster.CodeConflict, "disk %s of node %s is not adopted: %s", d.Describe(), nodeID, why)
		}
		id, err := t.adopt(m, d)
		if err != nil {
			return err
		}
		if out.NodeDisk, err = diskOf(t, id); err != nil {
			return err
		}
		minimums, err := findMinimums(t)
		out.Warnings = inventory.BelowMinimum(muster.Hardware{Disks: []muster.HardwareDisk{d}}, minimums)
		return err
	})
	return out, err
}

// pluggedAs finds the disk that an operator names by serial number, WWN, identity
// or path.
func pluggedAs(nodeID string, h muster.Hardware, name string) (d muster.HardwareDisk, err error) {
	var found []muster.HardwareDisk
	for _, d := range h.Disks {
		for _, word := range []string{d.Serial, d.WWN, d.Identity(), d.Path} {
			if word != "" && strings.EqualFold(word, strings.TrimSpace(name)) {
				found = append(found, d)
				break
			}
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return d, muster.Problemf(muster.CodeNotFound, "node %s has no disk with the serial number, WWN or path %.80q: muster disk ls --unadopted", nodeID, name)
	}
	return d, muster.Problemf(muster.CodeConflict, "%.80q names %d disks of node %s: name one by its WWN or path", name, len(found), nodeID)
}

// adopt raises the event on a disk that nothing stands in the way of but the
// rows, and another node that still has it.
func (t *tx) adopt(m *machine, d muster.HardwareDisk) (id string, err error) {
	identity := d.Identity()
	other, err := heldElsewhere(t, identity, m.node.ID)
	if err != nil {
		return "", err
	}
	if other != "" {
		return "", muster.Problemf(muster.CodeConflict, "disk %s is in service at another node still, as disk %s: expunge it there first, or put it back", d.Describe(), other)
	}
	at := slices.IndexFunc(m.disks, func(k *disk) bool { return k.identity == identity })
	if at < 0 {
		at = len(m.disks)
		m.disks = append(m.disks, &disk{identity: identity})
	}
	old := m.look()
	next, err := lifecycle.Apply(old, lifecycle.AdoptDisk, at, lifecycle.Facts{})
	if err != nil {
		return "", refusal(err, "disk "+d.Describe()+" of node "+m.node.ID)
	}
	if next.Equal(old) {
		return m.disks[at].id, nil
	}
	was := m.disks[at].id
	m.disks[at].found = &d.Disk
	said := detail{"node_id": m.node.ID, "server_uuid": m.uuid, "serial": d.Serial, "disk": d.Describe()}
	if was != "" {
		said["before"] = was
	}
	if id, err = t.s.newUUID(t.now.UnixMilli()); err != nil {
		return "", err
	}
	seq, err := t.record(string(lifecycle.AdoptDisk), "disk/"+id, said)
	if err != nil {
		return "", err
	}
	m.disks[at].next = id
	return id, t.putDisks(m, next, seq)
}

// heldElsewhere is the disk that is in service at another node and is the same
// one.
func heldElsewhere(from source, identity, but string) (id string, err error) {
	err = from.each(disksByIdentity, []any{identity}, func(scan func(...any) error) error {
		var disk, node string
		var state muster.DiskState
		err := scan(&disk, &node, &state)
		if node != but && state == muster.DiskInService {
			id = disk
		}
		return err
	})
	return id, err
}

// adoptByPolicy takes in what is new, where the site's policy says so. A disk
// that was adopted here once went for a reason; only an operator takes it back.
func (t *tx) adoptByPolicy(m *machine, h muster.Hardware) error {
	p, err := findPolicy(t)
	if err != nil || p.AdoptDisks != muster.AdoptAuto {
		return err
	}
	for _, d := range h.Disks {
		known := slices.ContainsFunc(m.disks, func(k *disk) bool { return k.identity == d.Identity() })
		if known || d.Removable || inventory.Occupied(d.Disk) != "" {
			continue
		}
		if _, err := t.adopt(m, d); err != nil && !muster.IsCode(err, muster.CodeConflict) {
			return err
		}
	}
	return nil
}

// UnadoptedDisks are plugged into nodes, and not of the fleet.
func (s *Store) UnadoptedDisks(ctx context.Context) (all []muster.UnadoptedDisk, err error) {
	err = s.snapshot(ctx, "looking for unadopted disks", func(r *reading) error {
		all = []muster.UnadoptedDisk{}
		return r.each(collectionsNow, nil, func(scan func(...any) error) error {
			var node, hostname, document string
			if err := scan(&node, &hostname, &document); err != nil {
				return err
			}
			var h muster.Hardware
			if err := json.Unmarshal([]byte(document), &h); err != nil {
				return fmt.Errorf("inventory of node %s: %w", node, err)
			}
			for _, d := range h.Disks {
				all = append(all, muster.UnadoptedDisk{NodeID: node, Hostname: hostname, Disk: d, Refused: inventory.Occupied(d.Disk)})
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	held, err := s.Disks(ctx)
	if err != nil {
		return nil, err
	}
	return unadopted(all, held), nil
}

// unadopted leaves out what the fleet holds, and says which were held once.
func unadopted(seen []muster.UnadoptedDisk, held []muster.NodeDisk) []muster.UnadoptedDisk {
	type key struct{ node, identity string }
	live, before, elsewhere := map[key]bool{}, map[key]string{}, map[string]muster.NodeDisk{}
	for _, d := range held {
		k := key{d.NodeID, d.Disk.Identity()}
		if before[k] = d.ID; d.State == muster.DiskInService {
			live[k], elsewhere[k.identity] = true, d
		}
	}
	all := []muster.UnadoptedDisk{}
	for _, u := range seen {
		identity := u.Disk.Identity()
		k := key{u.NodeID, identity}
		if identity != "" && live[k] {
			continue
		}
		u.Before = before[k]
		if d, is := elsewhere[identity]; is && identity != "" && u.Refused == "" {
			u.Refused = fmt.Sprintf("it is in service at node %s still, as disk %s", d.NodeID, d.ID)
		}
		all = append(all, u)
	}
	return all
}

// UnadoptedMachines are known, and not of the fleet.
func (s *Store) UnadoptedMachines(ctx context.Context) ([]muster.UnadoptedMachine, error) {
	all := []muster.UnadoptedMachine{}
	for after := ""; ; {
		rs, err := s.Registrations(ctx, muster.RegistrationFilter{After: after})
		if err != nil {
			return nil, err
		}
		for _, r := range rs {
			if after = r.ServerUUID; r.State == muster.Approved || r.State == muster.Disabled {
				continue
			}
			all = append(all, muster.UnadoptedMachine{ServerUUID: r.ServerUUID, Vendor: r.Manufacturer, Part: r.Product, Serial: r.Serial, Hostname: r.Hostname,
				State: string(r.State), LastSeen: r.LastSeen, Next: wayIn[r.State]})
		}
		if len(rs) < limit(0) {
			break
		}
	}
	waiting, err := s.Machines(ctx, muster.MachineFilter{State: muster.MachineConflict})
	for _, m := range waiting {
		all = append(all, muster.UnadoptedMachine{ServerUUID: m.UUID, Part: m.Product, Serial: m.Serial, State: string(m.State), LastSeen: m.LastSeen,
			Next: "muster machine show " + m.ID})
	}
	return all, err
}

// wayIn is what takes a machine in.
var wayIn = map[muster.RegistrationState]string{
	muster.Pending:       "muster registration approve CODE, which it shows",
	muster.AwaitingSetup: "muster registration approve-setup",
	muster.SettingUp:     "its setup runs",
}

// FirmwareMinimums lists what is stated.
func (s *Store) FirmwareMinimums(ctx context.Context) (all []muster.FirmwareMinimum, err error) {
	err = s.read(ctx, "listing firmware minimums", func(r *reading) error {
		all, err = findMinimums(r)
		return err
	})
	return all, err
}

func findMinimums(from source) ([]muster.FirmwareMinimum, error) {
	all := []muster.FirmwareMinimum{}
	err := from.each(allMinimums, nil, func(scan func(...any) error) error {
		var m muster.FirmwareMinimum
		var at int64
		err := scan(&m.Vendor, &m.Part, &m.Version, &at, &m.SetBy)
		m.SetAt = fromMicro(at)
		all = append(all, m)
		return err
	})
	return all, err
}

// SetFirmwareMinimum states the least firmware of a part; the same again changes
// nothing.
func (s *Store) SetFirmwareMinimum(ctx context.Context, now time.Time, by muster.Caller, m muster.FirmwareMinimum) (muster.FirmwareMinimum, error) {
	m.Vendor, m.Part = oneLine(m.Vendor), oneLine(m.Part)
	if err := checkLines("vendor", m.Vendor, "part", m.Part, "version", m.Version); err != nil {
		return m, err
	}
	if m.Part == "" || m.Version == "" || len(m.Vendor)+len(m.Part)+len(m.Version) > 512 {
		return m, muster.Invalid("part", "a minimum is of a part, by its vendor's name for it, and a version; together at most 512 bytes")
	}
	err := s.write(ctx, "stating a firmware minimum", now, by, func(t *tx) error {
		all, err := findMinimums(t)
		if err != nil {
			return err
		}
		for _, old := range all {
			if old.Vendor == m.Vendor && old.Part == m.Part && old.Version == m.Version {
				m = old
				return nil
			}
		}
		m.SetAt, m.SetBy = t.now, by.String()
		if _, err := t.exec(setMinimum, m.Vendor, m.Part, m.Version, micro(t.now), m.SetBy); err != nil {
			return err
		}
		_, err = t.record(ActionMinimum, "firmware", detail{"vendor": m.Vendor, "part": m.Part, "version": m.Version})
		return err
	})
	return m, err
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// RemoveFirmwareMinimum states none any more.
func (s *Store) RemoveFirmwareMinimum(ctx context.Context, now time.Time, by muster.Caller, vendor, part string) error {
	vendor, part = oneLine(vendor), oneLine(part)
	return s.write(ctx, "removing a firmware minimum", now, by, func(t *tx) error {
		n, err := t.exec(dropMinimum, vendor, part)
		if err != nil {
			return err
		}
		if n == 0 {
			return muster.Problemf(muster.CodeNotFound, "no minimum is stated for %.80q of %.80q", part, vendor)
		}
		_, err = t.record(ActionNoMinimum, "firmware", detail{"vendor": vendor, "part": part})
		return err
	})
}
