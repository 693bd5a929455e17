package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/module"
	"muster.internal/resource"
)

var (
	fleetNodes = define("fleet/nodes", `
SELECT `+nodeColumns+` FROM nodes WHERE state <> 'decommissioned' ORDER BY node_id`)
	fleetRegistrations = define("fleet/registrations", `
SELECT server_uuid, state, rev, source, refreshed_at, disk_layout FROM registrations WHERE node_id <> ''`)
	fleetAddresses   = define("fleet/addresses", `SELECT server_uuid, address FROM boot_records WHERE server_uuid <> '' AND address <> '' ORDER BY mac`)
	fleetDisks       = define("fleet/disks", `SELECT disk_id, node_id, policy, state, labels, member, missing_since FROM disks WHERE state <> 'decommissioned' ORDER BY node_id, disk_id`)
	fleetReports     = define("fleet/reports", `SELECT node_id, digest FROM node_reports WHERE slot = 'newest'`)
	fleetMirrors     = define("fleet/mirrors", `SELECT node_id, kind, digest FROM node_mirrors`)
	fleetGenerations = define("fleet/generations", `SELECT node_id, max(generation) FROM declarations GROUP BY node_id`)
	anyDiskLeaves    = define("fleet/leaving-disk", `SELECT 1 FROM disks WHERE state <> 'decommissioned' AND policy <> 'in_service' LIMIT 1`)
	firstEntry       = define("audit/first", `SELECT hash FROM audit WHERE seq = 1`)
)

// A FleetState is everything that a plan is made of, as it stood at one moment.
// What it points to is shared with later ones: nobody may write to it.
type FleetState struct {
	Planned   bool // false: there is nothing to plan
	Target    muster.BlueprintTarget
	Blueprint *muster.Blueprint // nil: there is none yet
	Modules   []module.Module   // that are wanted
	Seed      uint64            // the same for this fleet for ever
	Fresh     string            // the id of the blueprint that is made of it, if one is
	Nodes     []FleetNode       // that are in the fleet, or in the blueprint, by id
}

// A FleetNode is a node, with the newest that its host has said.
type FleetNode struct {
	muster.Node
	Registration muster.RegistrationState
	Reserved     string // the address of its boot record
	Source       string // the address that it registered from
	Arrived      bool   // its inventory, since it is this node
	Disks        []muster.NodeDisk
	Claims       []muster.Claim // that other schedulers hold on it, or on a disk of it
	Declared     int64          // the newest generation that it was told
	Execution    *Execution
	Said
}

// Said is what a host has said, read.
type Said struct {
	Report  *resource.Report // nil: none
	Owned   []resource.Owned
	Profile *muster.Profile   // nil: it was never linked
	System  inventory.Profile // of that profile
	Health  []muster.PlacementHealth
	Machine *Machinery // nil: its sysinfo was never seen, or cannot be read
}

// Machinery is what a machine is made of, as far as plans go.
type Machinery struct {
	CPUs, MemoryMiB, PoolMiB int64
}

// A FleetReader reads the fleet again and again. It remembers what hosts have
// said and reads only what is new: of a fleet at rest, a few short lists. It is
// for one goroutine at a time.
type FleetReader struct {
	s     *Store
	known map[string]*known // by node
	disks map[string]muster.NodeDisk
	seed  uint64
}

// A known is what was read of a node, and of what.
type known struct {
	reg                            int64
	report, owned, profile, health []byte // digests
	said                           Said
}

// NewFleetReader makes one that knows nothing yet.
func (s *Store) NewFleetReader() *FleetReader {
	return &FleetReader{s: s, known: map[string]*known{}, disks: map[string]muster.NodeDisk{}}
}

// Read is the fleet as it stands. Of one in which nothing was ever to be planned
// it says no more than that.
func (f *FleetReader) Read(ctx context.Context, now time.Time) (state FleetState, err error) {
	return f.reading(ctx, now, false)
}

// ReadWhole is Read, of whatever fleet.
func (f *FleetReader) ReadWhole(ctx context.Context, now time.Time) (state FleetState, err error) {
	return f.reading(ctx, now, true)
}

func (f *FleetReader) reading(ctx context.Context, now time.Time, whole bool) (state FleetState, err error) {
	fresh, err := f.s.newUUID(now.UnixMilli())
	if err != nil {
		return state, err
	}
	err = f.s.snapshot(ctx, "reading the fleet", func(r *reading) error {
		state = FleetState{Fresh: fresh}
		err := f.read(r, &state, whole)
		if err != nil {
			*f = *f.s.NewFleetReader() // what was read half is read again
		}
		return err
	})
	return state, err
}

func (f *FleetReader) read(r *reading, state *FleetState, whole bool) (err error) {
	if state.Seed, err = f.readSeed(r); err != nil {
		return err
	}
	if state.Target, state.Blueprint, err = f.s.findTargetBlueprint(r); err != nil {
		return err
	}
	wanted, err := findModules(r, modulesWanted)
	if err != nil {
		return err
	}
	for _, v := range wanted {
		state.Modules = append(state.Modules, *v.Document)
	}
	if state.Blueprint == nil && len(wanted) == 0 && !whole {
		if leaves, err := r.get(anyDiskLeaves, nil, new(int)); err != nil || !leaves {
			return err
		}
	}
	state.Planned = true
	state.Nodes, err = f.nodes(r, state.Blueprint)
	return err
}

// readSeed derives it from the first entry of the audit, which no two fleets
// have in common and which never changes.
func (f *FleetReader) readSeed(r *reading) (uint64, error) {
	if f.seed != 0 {
		return f.seed, nil
	}
	hash := ""
	if found, err := r.get(firstEntry, nil, &hash); err != nil || !found {
		return 0, err
	}
	sum := sha256.Sum256([]byte(hash))
	f.seed = binary.BigEndian.Uint64(sum[:])
	return f.seed, nil
}

func (f *FleetReader) nodes(r *reading, b *muster.Blueprint) ([]FleetNode, error) {
	at := map[string]int{} // by id
	var all []FleetNode
	add := func(scan func(...any) error) error {
		n, err := scanNode(scan)
		at[n.ID] = len(all)
		all = append(all, FleetNode{Node: n})
		return err
	}
	if err := r.each(fleetNodes, nil, add); err != nil {
		return nil, err
	}
	live := len(all)
	if b != nil {
		for i := range b.Nodes {
			if _, there := at[b.Nodes[i].ID]; there {
				continue
			}
			if err := r.each(nodeByID, []any{b.Nodes[i].ID}, add); err != nil {
				return nil, err
			}
		}
	}
	for _, read := range []func(*reading, []FleetNode, map[string]int) error{f.registrations, f.links, f.says} {
		if err := read(r, all, at); err != nil {
			return nil, err
		}
	}
	if err := f.allDisks(r, all, at, b); err != nil {
		return nil, err
	}
	for id := range f.known {
		if _, there := at[id]; !there {
			delete(f.known, id)
		}
	}
	if live < len(all) {
		sortNodes(all)
	}
	return all, nil
}

// registrations reads what each node's machine is.
func (f *FleetReader) registrations(r *reading, all []FleetNode, _ map[string]int) error {
	of := map[string]int{} // the live node of a machine
	for i := range all {
		if all[i].State != muster.NodeDecommissioned {
			of[all[i].ServerUUID] = i
		}
	}
	if err := r.each(fleetAddresses, nil, func(scan func(...any) error) error {
		var uuid, address string
		err := scan(&uuid, &address)
		if i, there := of[uuid]; there && all[i].Reserved == "" {
			all[i].Reserved = address
		}
		return err
	}); err != nil {
		return err
	}
	var fresh []int
	if err := r.each(fleetRegistrations, nil, func(scan func(...any) error) error {
		var uuid, source string
		var state muster.RegistrationState
		var rev int64
		var refreshed *int64
		var layout *string
		if err := scan(&uuid, &state, &rev, &source, &refreshed, &layout); err != nil {
			return err
		}
		i, there := of[uuid]
		if !there {
			return nil
		}
		n := &all[i]
		n.Registration, n.Source = state, source
		n.Arrived = refreshed != nil && !fromMicro(*refreshed).Before(n.CreatedAt)
		k := f.of(n.ID)
		if k.reg == rev {
			return nil
		}
		m, err := machinery(layout)
		if err != nil {
			return fmt.Errorf("registration %s: %w", uuid, err)
		}
		k.reg, k.said.Machine = rev, m
		fresh = append(fresh, i)
		return nil
	}); err != nil {
		return err
	}
	for _, i := range fresh {
		document := ""
		if found, err := r.get(getSysinfo, []any{all[i].ServerUUID}, &document); err != nil || !found {
			return err
		}
		m := f.of(all[i].ID).said.Machine
		facts, err := inventory.Parse([]byte(document))
		if err != nil {
			continue // whoever took it in has said so
		}
		m.CPUs, m.MemoryMiB = facts.CPUs, facts.MemoryMiB
	}
	return nil
}

// machinery is what the setup of a machine made of it.
func machinery(layout *string) (*Machinery, error) {
	m := new(Machinery)
	if layout == nil {
		return m, nil
	}
	var plan muster.SetupPlan
	err := json.Unmarshal([]byte(*layout), &plan)
	m.PoolMiB = plan.Capacity >> 20
	return m, err
}

func (f *FleetReader) of(node string) *known {
	k := f.known[node]
	if k == nil {
		k = new(known)
		f.known[node] = k
	}
	return k
}

// links reads when each node was linked, and what it was told.
func (f *FleetReader) links(r *reading, all []FleetNode, at map[string]int) error {
	linked, err := findLinks(r)
	if err != nil {
		return err
	}
	for id, i := range at {
		all[i].Link = linked[id]
	}
	if err := r.each(fleetGenerations, nil, func(scan func(...any) error) error {
		var id string
		var generation int64
		err := scan(&id, &generation)
		if i, there := at[id]; there {
			all[i].Declared = generation
		}
		return err
	}); err != nil {
		return err
	}
	claims, err := findClaims(r, claimsLive)
	if err != nil {
		return err
	}
	for _, c := range claims {
		if i, there := at[c.NodeID]; there {
			all[i].Claims = append(all[i].Claims, c)
		}
	}
	failing, err := findExecutions(r)
	for i := range failing {
		if k, there := at[failing[i].NodeID]; there {
			all[k].Execution = &failing[i]
		}
	}
	return err
}

// says reads what hosts have said since.
func (f *FleetReader) says(r *reading, all []FleetNode, at map[string]int) error {
	type news struct{ node, kind string }
	var fresh []news
	changed := func(kind string, was *[]byte, id string, digest []byte) {
		if !bytes.Equal(*was, digest) {
			fresh = append(fresh, news{id, kind})
			*was = digest
		}
	}
	if err := r.each(fleetReports, nil, func(scan func(...any) error) error {
		var id string
		var digest []byte
		err := scan(&id, &digest)
		if _, there := at[id]; there {
			changed(newestReport, &f.of(id).report, id, digest)
		}
		return err
	}); err != nil {
		return err
	}
	if err := r.each(fleetMirrors, nil, func(scan func(...any) error) error {
		var id, kind string
		var digest []byte
		err := scan(&id, &kind, &digest)
		if _, there := at[id]; there {
			k := f.of(id)
			if was := map[string]*[]byte{ownedMirror: &k.owned, profileMirror: &k.profile, healthMirror: &k.health}[kind]; was != nil {
				changed(kind, was, id, digest)
			}
		}
		return err
	}); err != nil {
		return err
	}
	for _, n := range fresh {
		if err := f.hear(r, n.node, n.kind); err != nil {
			return err
		}
	}
	for id, i := range at {
		all[i].Said = f.of(id).said
	}
	return nil
}

// hear reads one thing that a host has said.
func (f *FleetReader) hear(r *reading, node, kind string) error {
	said := &f.of(node).said
	if kind == newestReport {
		kept, err := findReport(r, node, newestReport)
		said.Report = &kept.report
		return err
	}
	document := ""
	if _, err := r.get(getMirror, []any{node, kind}, new(int64), new([]byte), &document); err != nil {
		return err
	}
	switch kind {
	case ownedMirror:
		said.Owned = nil
		return json.Unmarshal([]byte(document), &said.Owned)
	case healthMirror:
		said.Health = nil
		return json.Unmarshal([]byte(document), &said.Health)
	}
	p := new(muster.Profile)
	if err := json.Unmarshal([]byte(document), p); err != nil {
		return err
	}
	said.Profile, said.System = p, inventory.Profile{}
	if len(p.Profile) > 0 && json.Unmarshal(p.Profile, &said.System) != nil {
		said.System = inventory.Profile{} // a newer host's: what cannot be read is not there
	}
	return nil
}

// allDisks reads those that are in service, and those that the blueprint still
// names.
func (f *FleetReader) allDisks(r *reading, all []FleetNode, at map[string]int, b *muster.Blueprint) error {
	var fresh []string
	seen := map[string]bool{}
	add := func(d muster.NodeDisk) {
		if i, there := at[d.NodeID]; there {
			all[i].Disks = append(all[i].Disks, d)
		}
	}
	if err := r.each(fleetDisks, nil, func(scan func(...any) error) error {
		var d muster.NodeDisk
		var labels string
		var missing *int64
		if err := scan(&d.ID, &d.NodeID, &d.Policy, &d.State, &labels, &d.Member, &missing); err != nil {
			return err
		}
		seen[d.ID], d.MissingSince = true, fromMicroPtr(missing)
		old, read := f.disks[d.ID]
		if !read {
			fresh = append(fresh, d.ID)
			return nil
		}
		if d.Disk = old.Disk; labels != "{}" {
			if err := json.Unmarshal([]byte(labels), &d.Labels); err != nil {
				return fmt.Errorf("disk %s: %w", d.ID, err)
			}
		}
		add(d)
		return nil
	}); err != nil {
		return err
	}
	for id := range f.disks {
		if !seen[id] {
			delete(f.disks, id)
		}
	}
	if b != nil {
		for i := range b.Nodes {
			for _, d := range b.Nodes[i].Disks {
				if !seen[d.ID] {
					fresh = append(fresh, d.ID)
				}
			}
		}
	}
	for _, id := range fresh {
		d, err := diskOf(r, id)
		if err != nil {
			return err
		}
		f.disks[id] = d
		add(d)
	}
	if len(fresh) > 0 {
		for i := range all {
			slices.SortFunc(all[i].Disks, func(a, b muster.NodeDisk) int { return strings.Compare(a.ID, b.ID) })
		}
	}
	return nil
}
