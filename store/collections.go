package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/layout"
)

// How many collections are kept of a machine; of one that nobody let in, few:
// it may say what it likes.
const (
	keptCollections = 50
	keptUnadopted   = 5
)

const collectionColumns = `server_uuid, number, node_id, source, collected_at, document`

var (
	newestCollection = define("collections/newest", `
SELECT number, source, digest, document FROM collections WHERE server_uuid = $1 ORDER BY number DESC LIMIT 1`)
	collectionBy   = define("collections/get", `SELECT `+collectionColumns+` FROM collections WHERE server_uuid = $1 AND number = $2`)
	collectionsOf  = define("collections/of", `SELECT `+collectionColumns+` FROM collections WHERE server_uuid = $1 ORDER BY number DESC`)
	addCollection  = define("collections/add", `INSERT INTO collections (server_uuid, number, node_id, source, collected_at, digest, document) VALUES ($1, $2, $3, $4, $5, $6, $7)`)
	trimCollection = define("collections/trim", `DELETE FROM collections WHERE server_uuid = $1 AND number <= $2`)
	// Of a machine that was a node once, they tell what that was.
	dropCollections = define("collections/drop", `
DELETE FROM collections WHERE server_uuid = $1 AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.server_uuid = collections.server_uuid)`)
	collectionsNow = define("collections/now", `
SELECT n.node_id, n.hostname, c.document FROM nodes n JOIN collections c ON c.server_uuid = n.server_uuid
WHERE n.state <> 'decommissioned' AND c.source = 'host' AND c.node_id = n.node_id AND
 c.number = (SELECT max(x.number) FROM collections x WHERE x.server_uuid = n.server_uuid) ORDER BY n.created_at, n.node_id`)

	placesOf = define("disk-places/machine", `SELECT identity, slot, until FROM disk_places WHERE server_uuid = $1`)
	placesBy = define("disk-places/disk", `SELECT server_uuid, slot, until FROM disk_places WHERE identity = $1 AND server_uuid <> $2 ORDER BY until IS NOT NULL, since DESC, server_uuid`)
	setPlace = define("disk-places/set", `
INSERT INTO disk_places (identity, server_uuid, slot, since, until) VALUES ($1, $2, $3, $4, NULL)
ON CONFLICT (identity, server_uuid) DO UPDATE SET slot = excluded.slot, since = excluded.since, until = NULL`)
	leavePlace = define("disk-places/leave", `UPDATE disk_places SET until = $3 WHERE identity = $1 AND server_uuid = $2`)
	dropPlaces = define("disk-places/drop", `DELETE FROM disk_places WHERE server_uuid = $1`)

	setMissing = define("disks/missing", `UPDATE disks SET missing_since = $2 WHERE disk_id = $1`)
	addForeign = define("foreign/add", `
INSERT INTO foreign_workloads (server_uuid, kind, name, first_seen, acknowledged_at, acknowledged_by) VALUES ($1, $2, $3, $4, NULL, '') ON CONFLICT DO NOTHING`)
	forgetForeign = define("foreign/forget", `DELETE FROM foreign_workloads WHERE server_uuid = $1 AND kind = $2 AND name = $3`)
)

// What is told of disks that the fleet holds.
const (
	ActionDiskMissing = "disk_missing"
	ActionDiskBack    = "disk_back"
)

// digested is a document with its digest.
func digested(h muster.Hardware) (document string, digest []byte, err error) {
	b, err := json.Marshal(h)
	sum := sha256.Sum256(b)
	return string(b), sum[:], err
}

// A lastCollection is a machine's last collection.
type lastCollection struct {
	number   int64 // 0: there is none
	source   muster.CollectionSource
	digest   []byte
	document string
}

func findNewest(from source, uuid string) (n lastCollection, err error) {
	_, err = from.get(newestCollection, []any{uuid}, &n.number, &n.source, &n.digest, &n.document)
	return n, err
}

func (n lastCollection) hardware() (h muster.Hardware, err error) {
	if n.number == 0 {
		return h, nil
	}
	err = json.Unmarshal([]byte(n.document), &h)
	return h, err
}

// KeepHardware keeps what the host of the caller's node says that its machine is
// made of, when it is otherwise than before.
func (s *Store) KeepHardware(ctx context.Context, now time.Time, by muster.Caller, h muster.Hardware) error {
	_, digest, err := digested(h)
	if err != nil {
		return err
	}
	same := false
	if err := s.read(ctx, "reading an inventory", func(r *reading) error {
		n, err := nodeOf(r, by.NodeID)
		if err != nil {
			return err
		}
		last, err := findNewest(r, n.ServerUUID)
		same = last.source == muster.SourceHost && equal(last.digest, digest)
		return err
	}); err != nil || same {
		return err
	}
	return s.write(ctx, "keeping an inventory", now, by, func(t *tx) error {
		m, err := t.onNode(by.NodeID)
		if err != nil {
			return err
		}
		if err := t.collect(m, muster.SourceHost, h); err != nil {
			return err
		}
		if err := t.placeDisks(m, h); err != nil {
			return err
		}
		if err := t.missDisks(m, h); err != nil {
			return err
		}
		if err := t.keepForeign(m, h); err != nil {
			return err
		}
		return t.adoptByPolicy(m, h)
	})
}

// collect keeps one more collection, if it says something else than the last.
// A node's host sees more than its machine says at a door.
func (t *tx) collect(m *machine, from muster.CollectionSource, h muster.Hardware) error {
	document, digest, err := digested(h)
	if err != nil {
		return err
	}
	last, err := findNewest(t, m.uuid)
	if err != nil {
		return err
	}
	node, kept := m.node.ID, int64(keptCollections)
	if m.node.State == muster.NodeDecommissioned {
		node = ""
	}
	if node == "" {
		kept = keptUnadopted
	}
	if equal(last.digest, digest) && last.source == from || node != "" && last.source == muster.SourceHost && from != muster.SourceHost {
		return nil
	}
	if _, err := t.exec(addCollection, m.uuid, last.number+1, node, string(from), micro(t.now), digest, document); err != nil {
		return err
	}
	_, err = t.exec(trimCollection, m.uuid, last.number+1-kept)
	return err
}

// surveyed keeps what a survey found, beside what the machine had said.
func (t *tx) surveyed(m *machine, disks []muster.Disk) error {
	last, err := findNewest(t, m.uuid)
	if err != nil {
		return err
	}
	h, err := last.hardware()
	if err != nil {
		return fmt.Errorf("inventory of %s: %w", m.uuid, err)
	}
	h.Disks = nil
	for _, d := range disks {
		h.Disks = append(h.Disks, muster.HardwareDisk{Disk: layout.AtRest(d)})
	}
	if err := t.collect(m, muster.SourceSurvey, h); err != nil {
		return err
	}
	return t.placeDisks(m, h)
}

// placeDisks notes where each disk is, and was.
func (t *tx) placeDisks(m *machine, h muster.Hardware) error {
	type place struct {
		slot string
		gone bool
	}
	known := map[string]place{}
	if err := t.each(placesOf, []any{m.uuid}, func(scan func(...any) error) error {
		var identity string
		var p place
		var until *int64
		err := scan(&identity, &p.slot, &until)
		p.gone = until != nil
		known[identity] = p
		return err
	}); err != nil {
		return err
	}
	there := map[string]bool{}
	for _, d := range h.Disks {
		identity := d.Identity()
		if identity == "" || there[identity] {
			continue
		}
		there[identity] = true
		if was, is := known[identity]; is && !was.gone && was.slot == d.Slot {
			continue
		}
		if _, err := t.exec(setPlace, identity, m.uuid, d.Slot, micro(t.now)); err != nil {
			return err
		}
	}
	for _, identity := range slices.Sorted(maps.Keys(known)) {
		if known[identity].gone || there[identity] {
			continue
		}
		if _, err := t.exec(leavePlace, identity, m.uuid, micro(t.now)); err != nil {
			return err
		}
	}
	return nil
}

// missDisks notes which disks of the node are not there, and which are again. It
// changes neither their policy nor their state: a disk that was pulled may be
// put back.
func (t *tx) missDisks(m *machine, h muster.Hardware) error {
	slots := map[string]string{}
	for _, d := range h.Disks {
		slots[d.Identity()] = cmp.Or(d.Slot, d.Path)
	}
	for _, d := range m.disks {
		if d.id == "" || d.state != muster.DiskInService {
			continue
		}
		slot, there := slots[d.identity]
		if there == (d.missing == nil) {
			continue
		}
		action, since := ActionDiskMissing, any(micro(t.now))
		what := detail{"node_id": m.node.ID, "disk": d.identity}
		if there {
			action, since = ActionDiskBack, nil
			what["slot"], what["missing_since"] = slot, d.missing
		}
		if _, err := t.record(action, "disk/"+d.id, what); err != nil {
			return err
		}
		if err := t.change(setMissing, d.id, since); err != nil {
			return err
		}
	}
	return nil
}

// keepForeign notes which workloads run there that are not muster's, if its host
// has looked.
func (t *tx) keepForeign(m *machine, h muster.Hardware) error {
	if !h.Looked {
		return nil
	}
	held, err := findHoldings(t, m)
	if err != nil {
		return err
	}
	for _, w := range held.foreign {
		if !slices.Contains(h.Foreign, muster.ForeignName{Kind: w.Kind, Name: w.Name}) {
			if _, err := t.exec(forgetForeign, m.uuid, w.Kind, w.Name); err != nil {
				return err
			}
		}
	}
	for _, w := range h.Foreign {
		if _, err := t.exec(addForeign, m.uuid, w.Kind, w.Name, micro(t.now)); err != nil {
			return err
		}
	}
	return nil
}

// NodeInventory is one collection of a node's machine; number 0 is the newest.
func (s *Store) NodeInventory(ctx context.Context, nodeID string, number int64) (c muster.Collection, err error) {
	err = s.snapshot(ctx, "reading an inventory", func(r *reading) error {
		n, err := nodeOf(r, nodeID)
		if err != nil {
			return err
		}
		if number == 0 {
			last, err := findNewest(r, n.ServerUUID)
			if err != nil {
				return err
			}
			number = last.number
		}
		if c, err = findCollection(r, n, number); err != nil {
			return err
		}
		minimums, err := findMinimums(r)
		c.Warnings = inventory.BelowMinimum(*c.Hardware, minimums)
		return err
	})
	return c, err
}

func findCollection(from source, n muster.Node, number int64) (c muster.Collection, err error) {
	found := false
	err = from.each(collectionBy, []any{n.ServerUUID, number}, func(scan func(...any) error) error {
		found = true
		c, err = scanCollection(scan)
		return err
	})
	switch {
	case err != nil || found:
	case number == 0:
		err = muster.Problemf(muster.CodeNotFound, "nothing is known yet of what the machine of node %s is made of: its host says it once it is linked", n.ID)
	default:
		err = muster.Problemf(muster.CodeNotFound, "node %s has no collection %d: the newest %d are kept", n.ID, number, keptCollections)
	}
	return c, err
}

func scanCollection(scan func(...any) error) (c muster.Collection, err error) {
	var at int64
	var document string
	if err := scan(&c.ServerUUID, &c.Number, &c.NodeID, &c.Source, &at, &document); err != nil {
		return c, err
	}
	c.CollectedAt, c.Hardware = fromMicro(at), new(muster.Hardware)
	if err := json.Unmarshal([]byte(document), c.Hardware); err != nil {
		return c, fmt.Errorf("inventory %d of %s: %w", c.Number, c.ServerUUID, err)
	}
	return c, nil
}

// NodeInventories lists what is kept, the newest first.
func (s *Store) NodeInventories(ctx context.Context, nodeID string) (cs []muster.Collection, err error) {
	err = s.snapshot(ctx, "listing inventories", func(r *reading) error {
		n, err := nodeOf(r, nodeID)
		if err != nil {
			return err
		}
		cs = []muster.Collection{}
		return r.each(collectionsOf, []any{n.ServerUUID}, func(scan func(...any) error) error {
			c, err := scanCollection(scan)
			c.Hardware = nil
			cs = append(cs, c)
			return err
		})
	})
	return cs, err
}

// DiffInventory compares two collections of a node's machine. Without numbers
// it is the newest with the one before it that the same source made.
func (s *Store) DiffInventory(ctx context.Context, nodeID string, from, to int64) (d muster.HardwareDiff, err error) {
	if to == 0 || from == 0 {
		all, err := s.NodeInventories(ctx, nodeID)
		if err != nil {
			return d, err
		}
		if from, to, err = lastTwo(nodeID, all, from, to); err != nil {
			return d, err
		}
	}
	err = s.snapshot(ctx, "comparing inventories", func(r *reading) error {
		n, err := nodeOf(r, nodeID)
		if err != nil {
			return err
		}
		if d.From, err = findCollection(r, n, from); err != nil {
			return err
		}
		if d.To, err = findCollection(r, n, to); err != nil {
			return err
		}
		d.Changes = inventory.DiffHardware(*d.From.Hardware, *d.To.Hardware)
		d.From.Hardware, d.To.Hardware = nil, nil
		for i, c := range d.Changes {
			if c.Identity != "" && (c.Change == "added" || c.Change == "removed") {
				if d.Changes[i].Elsewhere, err = elsewhere(r, c.Identity, n.ServerUUID); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return d, err
}

func lastTwo(nodeID string, all []muster.Collection, from, to int64) (int64, int64, error) {
	if len(all) == 0 || from == 0 && len(all) < 2 {
		return 0, 0, muster.Problemf(muster.CodeNotFound, "node %s has %d collections: it takes two to compare", nodeID, len(all))
	}
	last := all[0]
	if to == 0 {
		to = last.Number
	}
	for _, c := range all {
		if from == 0 && c.Number < to && c.Source == last.Source {
			from = c.Number
		}
	}
	if from == 0 {
		from = all[1].Number
	}
	return from, to, nil
}

// elsewhere is another machine that has a disk, or else the last that had it.
func elsewhere(from source, identity, but string) (at *muster.Whereabouts, err error) {
	if err = from.each(placesBy, []any{identity, but}, func(scan func(...any) error) error {
		if at != nil {
			return nil
		}
		at = new(muster.Whereabouts)
		var until *int64
		err := scan(&at.ServerUUID, &at.Slot, &until)
		at.Until = fromMicroPtr(until)
		return err
	}); err != nil || at == nil {
		return nil, err
	}
	n, err := findNode(from, at.ServerUUID)
	at.NodeID, at.Hostname = n.ID, n.Hostname
	return at, err
}
