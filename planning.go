package muster

import (
	"context"
	"time"

	"muster.internal/module"
)

// Planning is what a fleet shall be: modules, the blueprints that planners make of
// them, and the one that is the target.
type Planning interface {
	// AddModule keeps a version of a module, and has the planner want it.
	AddModule(ctx context.Context, n NewModule) (ModuleVersion, error)
	// Modules are the newest version of each, or the one that is wanted; Module is
	// every version of one, the newest first, with its document.
	Modules(ctx context.Context) ([]ModuleVersion, error)
	Module(ctx context.Context, name string) ([]ModuleVersion, error)
	// WantModule has the planner want a version that is kept, and no other.
	WantModule(ctx context.Context, name string, version int64) (ModuleVersion, error)
	// RemoveModule has the planner want none: its placements leave. Its versions
	// are kept.
	RemoveModule(ctx context.Context, name string) error

	// Blueprints are those that were the target, the newest first; with a number,
	// those before it.
	Blueprints(ctx context.Context, before int64, limit int) ([]BlueprintEntry, error)
	// Blueprint is one by its number or id, or "target".
	Blueprint(ctx context.Context, ref string) (BlueprintDetail, error)
	// BlueprintDiff is what differs between two; from empty is the parent of to.
	BlueprintDiff(ctx context.Context, from, to string) (BlueprintDiff, error)
	Target(ctx context.Context) (BlueprintTarget, error)
	// SetTarget makes what an older blueprint says the target again, as a child
	// of the target: hosts refuse generations that are older than what they hold.
	// It takes that planning is stopped, which would go on from what is wanted.
	SetTarget(ctx context.Context, n NewTarget) (BlueprintEntry, error)
	// SetPlanning allows planning, or stops it for a reason. What the target says
	// goes on being made true.
	SetPlanning(ctx context.Context, c PlanningChange) (BlueprintTarget, error)
	// PruneBlueprints forgets all but the target and some of its ancestors.
	PruneBlueprints(ctx context.Context, p BlueprintPrune) (BlueprintsPruned, error)

	Placements(ctx context.Context, f PlacementFilter) ([]PlacementRecord, error)
	Placement(ctx context.Context, id string) (PlacementDetail, error)
	// HandOver lets blueprints say what a node is to be, which people did until
	// now.
	HandOver(ctx context.Context, nodeID string) (Node, error)
}

// A NewModule is a version of a module. Without a number it becomes the next
// one, or is the newest if that says the same.
type NewModule struct {
	Module   module.Module
	Unwanted bool // only keep it
}

// A NewTarget names the blueprint whose content is to be the target again.
type NewTarget struct {
	Blueprint string `json:"blueprint"` // number or id
	Reason    string `json:"reason"`
}

// A PlanningChange allows or stops planning. Whoever stops it says why.
type PlanningChange struct {
	Planning bool   `json:"planning"`
	Reason   string `json:"reason,omitempty"`
}

// A BlueprintPrune says how many ancestors of the target are kept.
type BlueprintPrune struct {
	Keep int64 `json:"keep"`
}

// BlueprintsPruned says how many blueprints were forgotten.
type BlueprintsPruned struct {
	Forgotten int64 `json:"forgotten"`
}

// A PlacementDetail is a placement with what the target says of it.
type PlacementDetail struct {
	PlacementRecord
	Hostname string `json:"hostname,omitempty"`
	// Target is absent once the target does not know it any more.
	Target *BlueprintPlacement `json:"target,omitempty"`
}

// A ModuleVersion is one version of a module. What it says never changes.
type ModuleVersion struct {
	Name    string    `json:"module"`
	Version int64     `json:"version"`
	Wanted  bool      `json:"wanted,omitempty"` // by the planner; at most one version of each module
	Place   string    `json:"place"`            // its rule, in words
	AddedAt time.Time `json:"added_at"`
	AddedBy string    `json:"added_by"`
	// Document is the whole of it; lists go without.
	Document *module.Module `json:"document,omitempty"`
}

// A BlueprintEntry is a blueprint as lists have it. Each was the target once;
// they are numbered in the order in which they were.
type BlueprintEntry struct {
	Number int64     `json:"number"`
	ID     string    `json:"blueprint_id"`
	Parent string    `json:"parent_id,omitempty"`
	MadeAt time.Time `json:"made_at"`
	MadeBy string    `json:"made_by"`
	Why    string    `json:"why,omitempty"`
	// Changes are how many lines its report has of what was done.
	Changes int64 `json:"changes"`
	Target  bool  `json:"target,omitempty"`
}

// A BlueprintDetail is a blueprint with the report of its plan.
type BlueprintDetail struct {
	BlueprintEntry
	Blueprint Blueprint  `json:"blueprint"`
	Report    PlanReport `json:"report"`
}

// A BlueprintTarget says which blueprint is to be made true, and whether
// planners may go on from it.
type BlueprintTarget struct {
	Number int64  `json:"number"`                 // 0: there is none yet
	ID     string `json:"blueprint_id,omitempty"` // empty: there is none yet
	// Planning is false when an operator stopped it, for a reason.
	Planning bool       `json:"planning"`
	SetAt    *time.Time `json:"set_at,omitempty"` // when planning was allowed or stopped last
	SetBy    string     `json:"set_by,omitempty"`
	Reason   string     `json:"reason,omitempty"`
}

// A PlacementRecord is a placement as the store has it, whether or not it is
// still in a blueprint.
type PlacementRecord struct {
	Placement
	NodeID    string    `json:"node_id"`
	Name      string    `json:"name,omitempty"`
	Version   int64     `json:"version,omitempty"`
	Disk      string    `json:"disk_id,omitempty"`
	Transient string    `json:"transient_disk_id,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	ChangedAt time.Time `json:"changed_at"` // its state
}

// A PlacementFilter with a zero field does not filter by it, but for those that
// have ended: they are listed when they are asked for. Lists come ordered by id.
type PlacementFilter struct {
	Node   string
	Module string
	State  PlacementState // or PlacementAny
	After  string
	Limit  int // 0: 1000
}

// PlacementAny asks for placements in every state.
const PlacementAny PlacementState = "any"

// PlacementStates are all of them.
var PlacementStates = []PlacementState{PlacementReserved, PlacementPlaced, PlacementMoving, PlacementRemoved, PlacementLost}
