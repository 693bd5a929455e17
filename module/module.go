// Package module holds modules: what can be placed on nodes. A module is a
// named and versioned list of resources with a rule that says where, and how
// many. What the control plane itself needs, customers' instances and replicas of
// volumes are all modules; there is no second mechanism.
//
// Its resources are templates: names with a dot, such as {{ placement.name }},
// are filled in when a node's declaration is made, all others by the host.
//
// It must never look at a fleet: no I/O, no clock, no dice. Which node gets what
// is package planner's to say.
package module

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"muster.internal/resource"
)

// A Module is one version of it. What a version means never changes.
type Module struct {
	Name    string `json:"module"`
	Version int64  `json:"version,omitempty"`
	// Base modules are part of being a node: they come first, while the node is
	// still initializing, and the node serves only once they are up.
	Base  bool     `json:"base,omitempty"`
	Place Rule     `json:"place"`
	Needs Needs    `json:"needs,omitempty"`
	Asks  Capacity `json:"asks,omitzero"`
	// Moves is how a replica comes to another node, or to another version.
	Moves     Movement  `json:"moves,omitempty"`
	HandOver  *HandOver `json:"hand_over,omitempty"`
	Health    *Health   `json:"health,omitempty"`
	OnExpunge []Hook    `json:"on_expunge,omitempty"`
	// After are modules that must be up somewhere before this one is placed. On a
	// node that has both, theirs come first.
	After     []string            `json:"after,omitempty"`
	Resources []resource.Resource `json:"resources"`
}

// A Rule says where a module's placements go. It is exactly one of the first
// four.
type Rule struct {
	EachNode bool     `json:"each_node,omitempty"`
	EachDisk bool     `json:"each_disk,omitempty"`
	Replicas int      `json:"replicas,omitempty"`
	Pinned   []string `json:"pinned,omitempty"` // ids of nodes

	// Spread is the label over whose values replicas are spread, such as rack;
	// over nodes they always are.
	Spread string `json:"spread,omitempty"`
	// Minimum is how many must stay available whenever muster itself takes one
	// away; absent, one less than there are replicas.
	Minimum *int `json:"minimum,omitempty"`
	// Where and WhereDisk are labels that a node, or a disk, must have.
	Where     map[string]string `json:"where,omitempty"`
	WhereDisk map[string]string `json:"where_disk,omitempty"`
}

// Capacity is what a placement asks for, or a node has.
type Capacity struct {
	CPUMillis int64 `json:"cpu_millis,omitempty"` // thousandths of a processor
	MemoryMiB int64 `json:"memory_mib,omitempty"`
	DiskMiB   int64 `json:"disk_mib,omitempty"` // of the node's pool
	// DurableMiB and TransientMiB are of one disk each, which the placement then
	// names. What is lost with a durable disk is lost; a placement that loses its
	// transient disk is started again on the same node.
	DurableMiB   int64 `json:"durable_mib,omitempty"`
	TransientMiB int64 `json:"transient_mib,omitempty"`
}

// Plus adds what is taken of the node itself.
func (c Capacity) Plus(o Capacity) Capacity {
	c.CPUMillis, c.MemoryMiB, c.DiskMiB = c.CPUMillis+o.CPUMillis, c.MemoryMiB+o.MemoryMiB, c.DiskMiB+o.DiskMiB
	return c
}

// Minus takes from what the node itself has.
func (c Capacity) Minus(o Capacity) Capacity {
	c.CPUMillis, c.MemoryMiB, c.DiskMiB = c.CPUMillis-o.CPUMillis, c.MemoryMiB-o.MemoryMiB, c.DiskMiB-o.DiskMiB
	return c
}

// A Movement is how a replica moves.
type Movement string

const (
	// Restart: it ends in the old place before it begins in the new one. There
	// are never more than were asked for.
	Restart Movement = "restart"
	// Surge: it is up, healthy and caught up in the new place before the old one
	// goes.
	Surge Movement = "surge"
	// Live is Surge with a hand-over.
	Live Movement = "live"
)

// Movements are all of them.
var Movements = []Movement{Restart, Surge, Live}

// A HandOver is what both ends are told while a live move runs; afterwards the
// new end is told the module's own resources.
type HandOver struct {
	Leaving  []resource.Resource `json:"leaving"`
	Arriving []resource.Resource `json:"arriving"`
}

// Health says how to see that a placement is up; its node's host looks. Without
// it, one is healthy as soon as its resources are as declared. A host that is too
// old to look leaves it unhealthy.
type Health struct {
	Port int    `json:"port"`           // of the node; it must take a TCP connection,
	Path string `json:"path,omitempty"` // or answer this path over HTTP with success
	// CaughtUp is a second path, of a replica that holds data: it answers with
	// success once the replica has what the others have.
	CaughtUp string `json:"caught_up,omitempty"`
}

// A Hook is what the control plane does when a placement is lost with its node
// or disk. It is exactly one of these, and never a command.
type Hook struct {
	Webhook string `json:"webhook,omitempty"` // a URL that is sent the event
	Event   string `json:"event,omitempty"`   // an event of this name
}

// Surges tells whether a new replica comes before the old one goes.
func (m *Module) Surges() bool { return m.Moves == Surge || m.Moves == Live }

// Movable tells whether its placements can leave a node that is only quiesced:
// nothing ties them to it.
func (m *Module) Movable() bool { return m.Place.Replicas > 0 && m.Asks.DurableMiB == 0 }

// Minimum is how many must stay available.
func (m *Module) Minimum() int {
	switch {
	case m.Place.Minimum != nil:
		return *m.Place.Minimum
	case m.Place.Replicas > 0:
		return m.Place.Replicas - 1
	}
	return 0
}

// Selects tells whether a node, or a disk, has the labels that are asked for.
func Selects(want, labels map[string]string) bool {
	for k, v := range want {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// Find is the module of that name in a list, or nil.
func Find(all []Module, name string) *Module {
	i := slices.IndexFunc(all, func(m Module) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// String is the rule for people.
func (r Rule) String() string {
	var words string
	switch {
	case r.EachNode:
		words = "each node"
	case r.EachDisk:
		words = "each disk"
	case r.Replicas == 1:
		words = "1 replica"
	case r.Replicas > 0:
		words = fmt.Sprintf("%d replicas", r.Replicas)
	default:
		words = "pinned to " + strings.Join(r.Pinned, ", ")
	}
	if r.Spread != "" {
		words += " over " + r.Spread
	}
	for _, on := range []struct {
		what string
		want map[string]string
	}{{"", r.Where}, {"on disks ", r.WhereDisk}} {
		for i, k := range slices.Sorted(maps.Keys(on.want)) {
			words += []string{" " + on.what + "with ", ", "}[min(i, 1)] + k + "=" + on.want[k]
		}
	}
	return words
}
