package resource

import (
	"fmt"
	"strings"
	"time"
)

// A Briefing is a report as a person reads it after an adoption: of each
// resource whether it is as declared, was kept as it is, cannot be told or
// failed. Programs read it too, so its fields and words stay.
type Briefing struct {
	Generation int64           `json:"generation"`
	Trigger    string          `json:"trigger"`
	Finished   time.Time       `json:"finished"`
	Version    string          `json:"version"`
	Outcome    Outcome         `json:"outcome"` // the worst of the lines
	Sum        map[Outcome]int `json:"sum"`     // all four are there
	Lines      []BriefingLine  `json:"lines"`
}

// A BriefingLine is one resource's.
type BriefingLine struct {
	Ref     Ref     `json:"ref"`
	Outcome Outcome `json:"outcome"` // ok, kept, unknown or failed
	Did     string  `json:"did,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	// Differences are between the machine and the declaration, where it was kept.
	Differences []Difference `json:"differences,omitempty"`
}

// Briefing says a report in four words: what was changed is as declared.
func (r Report) Briefing() Briefing {
	b := Briefing{Generation: r.Generation, Trigger: r.Trigger, Finished: r.Finished, Version: r.Version, Outcome: brief(r.Outcome), Lines: []BriefingLine{},
		Sum: map[Outcome]int{OutcomeOK: 0, OutcomeKept: 0, OutcomeUnknown: 0, OutcomeFailed: 0}}
	for _, l := range r.Lines {
		line := BriefingLine{Ref: l.Ref, Outcome: brief(l.Outcome), Did: l.Did, Reason: l.Reason}
		if line.Outcome == OutcomeKept {
			line.Differences = l.Differences
		}
		b.Sum[line.Outcome]++
		b.Lines = append(b.Lines, line)
	}
	return b
}

// Text is the briefing as people read it.
func (b Briefing) Text() string {
	t := new(strings.Builder)
	for _, l := range b.Lines {
		t.WriteString(lineText(l.Outcome, l.Ref, l.Did, l.Reason))
		for _, d := range l.Differences {
			is := d.Is
			if is == "" {
				is = "-"
			}
			fmt.Fprintf(t, "           %s %s → %s\n", d.Field, is, d.Want)
		}
	}
	return t.String() + b.sum()
}

func (b Briefing) sum() string {
	generation := "applied by hand"
	if b.Generation > 0 {
		generation = fmt.Sprintf("generation %d", b.Generation)
	}
	return fmt.Sprintf("outcome: %s (%d ok, %d kept, %d unknown, %d failed), %s, %s\n", b.Outcome, b.Sum[OutcomeOK], b.Sum[OutcomeKept],
		b.Sum[OutcomeUnknown], b.Sum[OutcomeFailed], generation, b.Finished.Local().Format(time.DateTime))
}

// noteLines is how many resources a note names.
const noteLines = 10

// Note is the briefing as everybody reads it who logs in: what is not as
// declared, without reasons and differences, which may be of files that are not
// theirs to read.
func (b Briefing) Note() string {
	t, named := "This machine is looked after by muster-host; "+b.sum(), 0
	for _, l := range b.Lines {
		if l.Outcome == OutcomeOK {
			continue
		}
		if named++; named <= noteLines {
			t += lineText(l.Outcome, l.Ref, "", "")
		}
	}
	if named > noteLines {
		t += fmt.Sprintf("and %d more\n", named-noteLines)
	}
	if named > 0 {
		t += "As root, `muster-host briefing` says why.\n"
	}
	return t
}

// newsMost is how many resources a log's line names.
const newsMost = 5

// News is one line for a log; empty when nothing was changed and nothing failed.
func (r Report) News() string {
	sum, words := r.Sum(), []string{}
	for _, o := range []Outcome{OutcomeChanged, OutcomeFailed, OutcomeUnknown} {
		if sum[o] > 0 {
			words = append(words, fmt.Sprintf("%d %s", sum[o], o))
		}
	}
	if len(words) == 0 {
		return ""
	}
	text := fmt.Sprintf("applied generation %d (%s): %s of %d", r.Generation, r.Trigger, strings.Join(words, ", "), len(r.Lines))
	named := 0
	for _, l := range r.Lines {
		if l.Outcome == OutcomeOK || l.Outcome == OutcomeKept {
			continue
		}
		if named++; named > newsMost {
			return text + "; and more, see muster-host briefing"
		}
		text += "; " + strings.Join(strings.Fields(l.Text()), " ")
	}
	return text
}

// Text is one line of a report as people read it.
func (l Line) Text() string { return lineText(l.Outcome, l.Ref, l.Did, l.Reason) }

func lineText(o Outcome, ref Ref, did, reason string) string {
	text := fmt.Sprintf("%-8s %s", o, ref)
	if did != "" {
		text += "  " + did
	}
	if reason != "" {
		text += ": " + reason
	}
	return text + "\n"
}

func brief(o Outcome) Outcome {
	if o = Worst(o); o == OutcomeChanged {
		return OutcomeOK
	}
	return o
}
