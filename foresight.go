package muster

import (
	"context"
	"time"

	"muster.internal/module"
)

// Foresight is what a plan made now would change, and why things are as they
// are. It changes nothing.
type Foresight interface {
	// Plan is what the planner would do next, with one change assumed or none.
	Plan(ctx context.Context, w WhatIf) (DryPlan, error)
	// Explain says why a node, a disk or a placement is as it is, what would happen
	// next, and what it waits for.
	Explain(ctx context.Context, kind Subject, id string) (Explained, error)
}

// A WhatIf is a change that a plan assumes and nobody has made: an operator's
// event of a node or of a disk, a module that is added or one that is wanted no
// more. Empty, it assumes none.
type WhatIf struct {
	Event        Event          `json:"event,omitempty"` // expunge, graceful_remove, quiesce, no_provision or resume; of a disk, the first two
	Node         string         `json:"node_id,omitempty"`
	Disk         string         `json:"disk_id,omitempty"`
	AddModule    *module.Module `json:"add_module,omitempty"`
	RemoveModule string         `json:"remove_module,omitempty"`
}

// A DryPlan is the next blueprint as it would be, beside the target.
type DryPlan struct {
	Diff   BlueprintDiff `json:"diff"`
	Report PlanReport    `json:"report"`
	// Stopped says by whom and why planning was stopped: then none of it happens
	// until it goes on.
	Stopped string `json:"stopped,omitempty"`
}

// A Subject is what can be explained.
type Subject string

const (
	SubjectNode      Subject = "node"
	SubjectDisk      Subject = "disk"
	SubjectPlacement Subject = "placement"
)

// Subjects are all of them.
var Subjects = []Subject{SubjectNode, SubjectDisk, SubjectPlacement}

// An Explained says of one thing why it is as it is.
type Explained struct {
	Kind  Subject `json:"kind"`
	ID    string  `json:"id"`
	Title string  `json:"title"` // for people
	// Is are sentences on what it is now, the most important first.
	Is []string `json:"is"`
	// Why are the lines of the newest blueprint that did something about it.
	Why *ExplainedChange `json:"why,omitempty"`
	// Next are what a plan made now would do, Waits what that waits for, Refused
	// what cannot be done unless somebody acts, Notes what people should know.
	Next    []PlanLine `json:"next,omitempty"`
	Waits   []PlanLine `json:"waits,omitempty"`
	Refused []PlanLine `json:"refused,omitempty"`
	Notes   []PlanLine `json:"notes,omitempty"`
}

// An ExplainedChange is what a blueprint changed of something.
type ExplainedChange struct {
	Number int64      `json:"number"`
	At     time.Time  `json:"at"`
	By     string     `json:"by"`
	Why    string     `json:"why,omitempty"`
	Lines  []PlanLine `json:"lines"`
}
