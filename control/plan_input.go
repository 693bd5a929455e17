package control

import (
	"cmp"
	"net/netip"
	"time"

	"muster.internal"
	"muster.internal/blueprint"
	"muster.internal/module"
	"muster.internal/planner"
	"muster.internal/store"
)

// planInput is what a plan is made of, from one moment of the store and from who
// is linked. The renderer is of the target, and nil while there is none.
func planInput(state store.FleetState, r *blueprint.Renderer, now time.Time, linked func(*muster.Node)) planner.Input {
	in := planner.Input{Parent: state.Blueprint, ID: state.Fresh, MadeAt: now.UTC().Truncate(time.Microsecond), Why: "planned", Seed: state.Seed, Modules: state.Modules,
		Nodes: make([]planner.Node, len(state.Nodes)), Cleaned: map[string]bool{}}
	if r == nil {
		r = blueprint.NewRenderer(&muster.Blueprint{})
	}
	addresses := addressesOf(state.Nodes)
	for i := range state.Nodes {
		from := &state.Nodes[i]
		linked(&from.Node)
		n := &in.Nodes[i]
		*n = planner.Node{ID: from.ID, Hostname: from.Hostname, Address: addresses[i], Registration: from.Registration, Policy: from.Policy, State: from.State,
			Labels: from.Labels, Reservoir: from.Reservoir, Away: from.Link == nil || !from.Link.Linked, Floor: from.Declared, ByHand: from.ByHand}
		n.Disks = plannedDisks(from)
		claimed(n, from.Claims)
		if from.Arrived {
			n.Seen = planner.Observe(r, from.ID, heard(from))
		}
	}
	if b := state.Blueprint; b != nil {
		for i := range b.Nodes {
			for k := range b.Nodes[i].Placements {
				// What is to be cleaned up after it was done with the target that says
				// that it is gone.
				if p := &b.Nodes[i].Placements[k]; p.Gone() {
					in.Cleaned[p.ID] = true
				}
			}
		}
	}
	return in
}

// claimed says who still needs a node or one of its disks.
func claimed(n *planner.Node, claims []muster.Claim) {
	for _, c := range claims {
		if c.DiskID == "" {
			n.Claims = append(n.Claims, c.Holder)
			continue
		}
		for i := range n.Disks {
			if n.Disks[i].ID == c.DiskID {
				n.Disks[i].Claims = append(n.Disks[i].Claims, c.Holder)
			}
		}
	}
}

func plannedDisks(from *store.FleetNode) []planner.Disk {
	if len(from.Disks) == 0 {
		return nil
	}
	all := make([]planner.Disk, len(from.Disks))
	for i, d := range from.Disks {
		all[i] = planner.Disk{ID: d.ID, Identity: d.Disk.Identity(), Policy: d.Policy, State: d.State, Labels: d.Labels, SizeMiB: d.Disk.Size >> 20, Member: d.Member}
	}
	return all
}

// heard is what the host of a node has said.
func heard(from *store.FleetNode) planner.Heard {
	h := planner.Heard{Report: from.Report, Owned: from.Owned, Profile: from.System, Health: from.Health}
	if from.Link != nil {
		h.Holds = from.Link.Holds
	}
	if m := from.Machine; m != nil {
		h.Capacity = module.Capacity{CPUMillis: m.CPUs * 1000, MemoryMiB: m.MemoryMiB, DiskMiB: m.PoolMiB}
	}
	for _, d := range from.Disks {
		if d.MissingSince == nil {
			h.Disks = append(h.Disks, d.ID)
		}
	}
	return h
}

// addressesOf are where nodes are reached: by the address that was reserved for
// them, else by what their host says, else by where they came from. One that
// several say, as behind one router, is nobody's.
func addressesOf(nodes []store.FleetNode) []string {
	all := make([]string, len(nodes))
	said := map[string]int{}
	for i := range nodes {
		n := &nodes[i]
		own := ""
		if n.Profile != nil {
			own = n.Profile.Facts["address"]
		}
		if n.State != muster.NodeDecommissioned {
			all[i] = cmp.Or(reachable(n.Reserved), reachable(own), reachable(n.Source))
			said[all[i]]++
		}
	}
	for i := range all {
		if said[all[i]] > 1 && all[i] != reachable(nodes[i].Reserved) {
			all[i] = ""
		}
	}
	return all
}

// reachable is an address that others can reach, or nothing.
func reachable(text string) string {
	a, err := netip.ParseAddr(text)
	if err != nil {
		p, err := netip.ParseAddrPort(text)
		if err != nil {
			return ""
		}
		a = p.Addr()
	}
	if a = a.Unmap().WithZone(""); !a.IsGlobalUnicast() {
		return ""
	}
	return a.String()
}
