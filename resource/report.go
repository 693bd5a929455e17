package resource

import (
	"slices"
	"time"
)

// An Outcome is how one resource fared, or all of them.
type Outcome string

// The outcomes, from the best to the worst.
const (
	OutcomeOK      Outcome = "ok"      // it was as wanted
	OutcomeChanged Outcome = "changed" // and now is
	OutcomeKept    Outcome = "kept"    // it is not as wanted, and the host may not touch it
	OutcomeUnknown Outcome = "unknown" // it could not be told, or was not tried
	OutcomeFailed  Outcome = "failed"
)

var outcomes = []Outcome{OutcomeOK, OutcomeChanged, OutcomeKept, OutcomeUnknown, OutcomeFailed}

// Worst is the worst of them; ok when there are none. A word of a newer host
// counts as unknown.
func Worst(all ...Outcome) Outcome {
	worst := 0
	for _, o := range all {
		i := slices.Index(outcomes, o)
		if i < 0 {
			i = slices.Index(outcomes, OutcomeUnknown)
		}
		worst = max(worst, i)
	}
	return outcomes[worst]
}

// A Line is how one resource fared.
type Line struct {
	Ref     Ref     `json:"ref"`
	Outcome Outcome `json:"outcome"`
	// Did says what was done, in one word: created, updated, adopted, removed,
	// restored, stopped, unmounted, forgotten, restarted,
	// mounted, started, ran.
	Did    string `json:"did,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Differences are what was, or would be, changed. Contents are hashes.
	Differences []Difference `json:"differences,omitempty"`
	// Drift: it had been as wanted, and somebody else has changed it since.
	Drift bool `json:"drift,omitempty"`
	// Fought: the same change has come back after the host undid it.
	Fought bool `json:"fought,omitempty"`
}

// LetGo tells whether the host answers for it no longer, as of this line.
func (l Line) LetGo() bool {
	return slices.Contains([]string{"removed", "stopped", "restored", "unmounted", "forgotten"}, l.Did)
}

// DeclarationRef is what the line of a report is about that says why a
// declaration was not applied, or not to its end.
const DeclarationRef Ref = "declaration"

// TriggerRevert is the trigger of a report that says how a declaration was taken
// back, because it had cut the machine off.
const TriggerRevert = "revert"

// Triggers of reports that answer what a host was asked for.
const (
	TriggerAsked  = "asked"
	TriggerRetire = "retire"
)

// A Report is what one apply did.
type Report struct {
	Generation int64     `json:"generation"`
	Trigger    string    `json:"trigger"` // start, declaration, timer, reconnect, local, revert
	Started    time.Time `json:"started"`
	Finished   time.Time `json:"finished"`
	Version    string    `json:"version"` // of the host that ran, not the one installed
	Outcome    Outcome   `json:"outcome"`
	Lines      []Line    `json:"lines,omitempty"`
}

// Sum counts the lines by outcome.
func (r Report) Sum() map[Outcome]int {
	n := map[Outcome]int{}
	for _, l := range r.Lines {
		n[l.Outcome]++
	}
	return n
}
