package planner

import (
	"fmt"

	"muster.internal"
)

// A line is what a sentence of the report is about.
type line struct{ node, disk, module, placement string }

func (l line) say(format string, args []any) muster.PlanLine {
	return muster.PlanLine{Node: l.node, Disk: l.disk, Module: l.module, Placement: l.placement, Text: fmt.Sprintf(format, args...)}
}

func (p *plan) did(l line, format string, args ...any) {
	p.report.Done = append(p.report.Done, l.say(format, args))
}

func (p *plan) wait(l line, format string, args ...any) {
	p.report.Waits = append(p.report.Waits, l.say(format, args))
}

func (p *plan) refuse(l line, format string, args ...any) {
	p.report.Refused = append(p.report.Refused, l.say(format, args))
}

func (p *plan) note(l line, format string, args ...any) {
	p.report.Notes = append(p.report.Notes, l.say(format, args))
}

// of is the line of a placement.
func (n *node) of(pl *muster.BlueprintPlacement) line {
	return line{node: n.now.ID, module: pl.Module, placement: pl.ID, disk: pl.Disk}
}
