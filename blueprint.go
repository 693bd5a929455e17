package muster

import (
	"time"

	"muster.internal/module"
)

// A Blueprint is what a whole fleet shall be. It never changes: whoever wants
// something else makes its child.
type Blueprint struct {
	ID     string    `json:"blueprint_id"`
	Parent string    `json:"parent_id,omitempty"` // empty: the first
	MadeAt time.Time `json:"made_at"`
	Why    string    `json:"why,omitempty"`
	// Modules are every version that one of its placements has, by name and
	// version: a blueprint needs nothing else to be read.
	Modules []module.Module `json:"modules"`
	Nodes   []BlueprintNode `json:"nodes"` // by id
}

// A BlueprintNode is one node's share of a blueprint.
type BlueprintNode struct {
	ID       string    `json:"node_id"`
	Hostname string    `json:"hostname,omitempty"`
	Address  string    `json:"address,omitempty"`
	State    NodeState `json:"state"`
	// Generation is that of its declaration; 0: it was never told anything. It
	// grows with every change of what it is told, a module's version included.
	Generation int64 `json:"generation"`
	// Drawn counts the ids that came from this node's stream, so that none comes
	// twice.
	Drawn      int64                `json:"drawn"`
	Placements []BlueprintPlacement `json:"placements,omitempty"`
	Disks      []BlueprintDisk      `json:"disks,omitempty"` // that are on their way out
}

// A BlueprintPlacement is a placement as a blueprint has it.
type BlueprintPlacement struct {
	Placement
	Name    string `json:"name"` // one label of a DNS name
	Number  int    `json:"number,omitempty"`
	Version int64  `json:"version"`
	// Disk is the durable disk that it is on, Transient the one it can lose; their
	// identities are how a host finds them.
	Disk              string `json:"disk_id,omitempty"`
	DiskIdentity      string `json:"disk_identity,omitempty"`
	Transient         string `json:"transient_disk_id,omitempty"`
	TransientIdentity string `json:"transient_disk_identity,omitempty"`
	// Since is the generation as of which its node is told of it, as it is now.
	Since int64 `json:"since,omitempty"`
	// Held: its room is kept, and its node is not told of it.
	Held bool `json:"held,omitempty"`
	// AsOf is the generation as of which its node is told of it no longer; Ready,
	// that it is certainly gone from there, and can be cleaned up after.
	AsOf  int64 `json:"as_of,omitempty"`
	Ready bool  `json:"ready,omitempty"`
	// Replaces is the placement that it came in the stead of.
	Replaces string `json:"replaces,omitempty"`
}

// Declared tells whether its node is told to have it.
func (p *BlueprintPlacement) Declared() bool {
	return !p.Held && (p.State == PlacementReserved || p.State == PlacementPlaced || p.State == PlacementMoving)
}

// Gone tells whether nothing of it can be left on its node.
func (p *BlueprintPlacement) Gone() bool {
	return p.Ready && (p.State == PlacementRemoved || p.State == PlacementLost)
}

// A BlueprintDisk is a disk that is on its way out: nothing uses it as of a
// generation, and once that is certain it is ready to be decommissioned.
type BlueprintDisk struct {
	ID     string `json:"disk_id"`
	Unused bool   `json:"unused,omitempty"` // by every placement, as of a generation
	AsOf   int64  `json:"as_of,omitempty"`
	Ready  bool   `json:"ready,omitempty"`
}

// A PlanReport says what a plan changed, and why, and everything that it could
// not do.
type PlanReport struct {
	Parent    string `json:"parent_id,omitempty"`
	Blueprint string `json:"blueprint_id,omitempty"` // empty: nothing changed, and there is none
	// Done are the changes, Waits what will go on by itself once something else
	// has happened, Refused what will not unless somebody does something, Notes
	// what people should know.
	Done    []PlanLine `json:"done,omitempty"`
	Waits   []PlanLine `json:"waits,omitempty"`
	Refused []PlanLine `json:"refused,omitempty"`
	Notes   []PlanLine `json:"notes,omitempty"`
}

// A PlanLine is one sentence of a report, and what it is about.
type PlanLine struct {
	Node      string `json:"node_id,omitempty"`
	Disk      string `json:"disk_id,omitempty"`
	Module    string `json:"module,omitempty"`
	Placement string `json:"placement_id,omitempty"`
	Text      string `json:"text"`
}

// A BlueprintDiff is what differs between two blueprints.
type BlueprintDiff struct {
	From    string                `json:"from"`
	To      string                `json:"to"`
	Modules []BlueprintDifference `json:"modules,omitempty"`
	Nodes   []BlueprintNodeDiff   `json:"nodes,omitempty"`
}

// A BlueprintNodeDiff is what differs of one node.
type BlueprintNodeDiff struct {
	BlueprintDifference
	Placements []BlueprintDifference `json:"placements,omitempty"`
	Disks      []BlueprintDifference `json:"disks,omitempty"`
}

// A BlueprintDifference is one thing that came, went or is otherwise.
type BlueprintDifference struct {
	Change string `json:"change"` // added, removed, changed
	ID     string `json:"id"`
	Name   string `json:"name"` // for people
	// Fields are those that are otherwise; of what came or went, those that say
	// the most.
	Fields []FieldChange `json:"fields,omitempty"`
}

// A FieldChange is a field before and after.
type FieldChange struct {
	Field string `json:"field"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
}
