package muster

import (
	"time"

	"muster.internal/module"
)

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
