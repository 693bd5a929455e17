//go:build linux

package main

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/module"
	"muster.internal/planner"
	"muster.internal/resource"
)

const racks = 50

// fleet is nodes of one size in fifty racks, and a module that wants count
// replicas.
func fleet(nodes, count int) planner.Input {
	minimum := count - 1
	in := planner.Input{ID: "first", MadeAt: time.Unix(0, 0).UTC(), Seed: 1, Modules: []module.Module{{
		Name: "job", Version: 1, Place: module.Rule{Replicas: count, Spread: "rack", Minimum: &minimum}, Moves: module.Surge,
		Needs:     module.Needs{"arch": {"amd64"}},
		Asks:      module.Capacity{CPUMillis: 100, MemoryMiB: 64, DiskMiB: 10},
		Resources: []resource.Resource{{Container: &resource.Container{Name: "{{ placement.name }}", Image: "job"}}},
	}}}
	for i := range nodes {
		in.Nodes = append(in.Nodes, planner.Node{ID: id(i), Hostname: fmt.Sprintf("node-%d", i), Address: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255),
			Registration: muster.Approved, Policy: muster.PolicyInService, State: muster.NodeInService,
			Labels: map[string]string{"rack": fmt.Sprintf("r%02d", i%racks)},
			Seen:   &planner.Seen{Profile: inventory.Profile{Arch: "amd64", OS: "debian"}, Capacity: module.Capacity{CPUMillis: 4000, MemoryMiB: 32_000, DiskMiB: 100 << 10}}})
	}
	return in
}

// id looks like a node's, and is in order.
func id(i int) string { return fmt.Sprintf("019a0000-%04x-7%03x-8000-%012x", i>>12, i&0xfff, i) }

// carriedOut is the next input, once every host is as it was told.
func carriedOut(in planner.Input, b *muster.Blueprint) planner.Input {
	in.Parent, in.ID = b, "next"
	nodes := make([]planner.Node, len(in.Nodes))
	for i, n := range in.Nodes {
		s := *n.Seen
		s.Holds, s.Reconciled = b.Nodes[i].Generation, b.Nodes[i].Generation
		for _, p := range b.Nodes[i].Placements {
			s.Placements = append(s.Placements, planner.SeenPlacement{ID: p.ID, Healthy: true, CaughtUp: true})
		}
		n.Seen = &s
		nodes[i] = n
	}
	in.Nodes = nodes
	return in
}

// scan places as the least of programs would: for each replica it looks at every
// node's room, rack and count. It has no ids, no reasons and no blueprint.
func scan(nodes, count int) int {
	type node struct{ cpu, memory, disk, rack, n int32 }
	all := make([]node, nodes)
	for i := range all {
		all[i] = node{4000, 32_000, 100 << 10, int32(i % racks), 0}
	}
	var rack [racks]int32
	for k := range count {
		best, least := -1, int64(math.MaxInt64)
		for i := range all {
			n := &all[i]
			if n.cpu < 100 || n.memory < 64 || n.disk < 10 {
				continue
			}
			if key := int64(rack[n.rack])<<32 | int64(n.n); key < least {
				best, least = i, key
			}
		}
		if best < 0 {
			return k
		}
		n := &all[best]
		n.cpu, n.memory, n.disk, n.n = n.cpu-100, n.memory-64, n.disk-10, n.n+1
		rack[n.rack]++
	}
	return count
}

func collect() { runtime.GC() }

// judge says of each goal whether it was met.
func judge(all []result) error {
	missed := 0
	say := func(is, most float64, unit, format string, args ...any) {
		word := "met   "
		if is > most {
			word, missed = "missed", missed+1
		}
		fmt.Printf("%s  %s: %.2f%s, at most %g%s\n", word, fmt.Sprintf(format, args...), is, unit, most, unit)
	}
	for _, r := range all {
		switch r.nodes {
		case 1000:
			say(r.first*1e3, 100, " ms", "1,000 placed on 1,000")
		case 10_000:
			say(r.first*1e3, 700, " ms", "10,000 placed on 10,000")
			say(r.none*1e3, 10, " ms", "10,000 planned again, nothing changed")
			say(r.expunged*1e3, 50, " ms", "10,000 planned again, one node expunged")
		}
	}
	whole := all[len(all)-1].first / all[0].first / (work(all[len(all)-1].nodes) / work(all[0].nodes))
	say(whole, 1.5, "", "cost from %d to %d over that of n log n", all[0].nodes, all[len(all)-1].nodes)
	fmt.Println("met     the same input made the same bytes, each time")
	if missed > 0 {
		return errors.New("a goal was missed")
	}
	return nil
}

func work(n int) float64 { return float64(n) * math.Log2(float64(n)) }
