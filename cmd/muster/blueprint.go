package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	muster "muster.internal"
	"muster.internal/blueprint"
)

func (a *app) blueprintCmd() *cobra.Command {
	return group("blueprint", "Blueprints: what the whole fleet shall be",
		`A blueprint says of every node what is placed there, in which version, and which
generation of its declaration says so. It never changes: when something is to be
otherwise, planners make its child. One blueprint is the target, and is made true;
only its child can take its place, so that of several control planes that plan at
once one wins, and the others plan again from what it made.

A blueprint is named by its number or its id, or by the word "target".`,
		a.blueprintLs(), a.blueprintShow(), a.blueprintDiff(), a.blueprintTarget(), a.blueprintSet(), a.blueprintEnable(), a.blueprintDisable(), a.blueprintPrune())
}

func (a *app) blueprintLs() *cobra.Command {
	var before int64
	most := 20
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the blueprints that were the target, the newest first",
		Example: `  muster blueprint ls
  muster blueprint ls --before 41   # those before number 41`,
		Args: names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			bs, err := f.Blueprints(c.Context(), before, most)
			if err != nil {
				return err
			}
			return a.show(list(bs), func(w io.Writer) {
				if len(bs) == 0 {
					fmt.Fprintln(a.stderr, "there is none: the first is made once a module is wanted")
					return
				}
				rows := make([][]string, len(bs))
				for i, b := range bs {
					rows[i] = []string{a.blueprintNumber(b), said(b.ID), fmt.Sprint(b.Changes), a.ago(&b.MadeAt), said(b.MadeBy), dash(b.Why)}
				}
				grid(w, []string{"NUMBER", "BLUEPRINT", "CHANGES", "MADE", "BY", "WHY"}, rows)
			})
		}),
	}
	numberVar(c.Flags(), &before, "before", 0, 1, maxSeq, "only those before this number")
	numberVar(c.Flags(), &most, "limit", most, 1, 1000, "how many")
	return c
}

func (a *app) blueprintNumber(b muster.BlueprintEntry) string {
	if b.Target {
		return a.paint(green, fmt.Sprintf("%d target", b.Number))
	}
	return fmt.Sprint(b.Number)
}

func (a *app) blueprintShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show [BLUEPRINT]",
		Short: "Show a blueprint (the target), node by node, and why it is so",
		Example: `  muster blueprint show
  muster blueprint show 41 -o json`,
		Args:              atMost("BLUEPRINT"),
		ValidArgsFunction: a.completeWith(blueprintWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			d, err := f.Blueprint(c.Context(), first(append(args, "target")...))
			if err != nil {
				return err
			}
			return a.show(d, func(w io.Writer) { a.drawBlueprint(w, d) })
		}),
	}
}

func (a *app) drawBlueprint(w io.Writer, d muster.BlueprintDetail) {
	a.fields(w, "blueprint", said(d.ID), "number", a.blueprintNumber(d.BlueprintEntry), "parent", said(d.Parent), "made", a.ago(&d.MadeAt), "by", said(d.MadeBy), "why", said(d.Why))
	a.drawPlanReport(w, d.Report)
	var rows [][]string
	for i := range d.Blueprint.Nodes {
		n := &d.Blueprint.Nodes[i]
		rows = append(rows, []string{first(said(n.Hostname), n.ID), said(string(n.State)), fmt.Sprint(n.Generation), "", "", "", ""})
		for _, p := range n.Placements {
			rows = append(rows, []string{"", a.placementState(p.State), "", said(p.Name), said(p.Module), fmt.Sprint(p.Version), dash(p.Disk)})
		}
	}
	fmt.Fprintln(w)
	grid(w, []string{"NODE", "STATE", "GENERATION", "PLACEMENT", "MODULE", "VERSION", "DISK"}, rows)
}

// drawPlanReport draws what a plan says, what stands still first.
func (a *app) drawPlanReport(w io.Writer, r muster.PlanReport) {
	for _, part := range []struct {
		title string
		style style
		lines []muster.PlanLine
	}{{"refused", red, r.Refused}, {"waits", yellow, r.Waits}, {"done", green, r.Done}, {"note", dim, r.Notes}} {
		for _, l := range part.lines {
			fmt.Fprintf(w, "%s%s  %s\n", a.paint(part.style, part.title), strings.Repeat(" ", len("refused")-len(part.title)), said(l.Text))
		}
	}
}

func (a *app) blueprintDiff() *cobra.Command {
	return &cobra.Command{
		Use:   "diff [FROM] [TO]",
		Short: "Show what differs between two blueprints",
		Long: `Show what differs between two blueprints, node by node: what came (+), what went
(-) and what is otherwise (~). With one, what it changed in its parent; with none,
what the target changed.`,
		Example: `  muster blueprint diff
  muster blueprint diff 41
  muster blueprint diff 38 target`,
		Args:              atMost("FROM", "TO"),
		ValidArgsFunction: a.completeWith(blueprintWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			from, to := "", "target"
			switch len(args) {
			case 1:
				to = args[0]
			case 2:
				from, to = args[0], args[1]
			}
			d, err := f.BlueprintDiff(c.Context(), from, to)
			if err != nil {
				return err
			}
			return a.show(d, func(w io.Writer) { a.drawBlueprintDiff(w, d) })
		}),
	}
}

func (a *app) drawBlueprintDiff(w io.Writer, d muster.BlueprintDiff) {
	colours := map[byte]style{'+': green, '-': red, '~': yellow}
	for _, line := range strings.Split(strings.TrimSuffix(blueprint.Text(d), "\n"), "\n") {
		if c, is := colours[line[0]]; is {
			line = a.paint(c, said(line))
		}
		fmt.Fprintln(w, line)
	}
}

func (a *app) blueprintTarget() *cobra.Command {
	return &cobra.Command{
		Use:     "target",
		Short:   "Show which blueprint is being made true, and whether there is planning",
		Example: `  muster blueprint target`,
		Args:    names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			t, err := f.Target(c.Context())
			if err != nil {
				return err
			}
			return a.show(t, func(w io.Writer) { a.drawTarget(w, t) })
		}),
	}
}

func (a *app) drawTarget(w io.Writer, t muster.BlueprintTarget) {
	target := "none yet"
	if t.Number > 0 {
		target = fmt.Sprintf("%d (%s)", t.Number, said(t.ID))
	}
	planning := a.paint(green, "goes on")
	if !t.Planning {
		planning = a.paint(red, "stopped") + " " + a.ago(t.SetAt) + " by " + said(t.SetBy) + ": " + said(t.Reason)
	}
	a.fields(w, "target", target, "planning", planning)
}

func (a *app) blueprintSet() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:   "set BLUEPRINT",
		Short: "Make what an older blueprint says the target again",
		Long: `Make what an older blueprint says the target again: placements that came since
leave, those that left come back where they were, in the version that they had.
Planning must be stopped first, or the next plan would make of the fleet what is
wanted now. To go back to an older version of a module for good, use "muster module
wanted" instead; nothing needs to be stopped for that.

The old blueprint itself cannot be the target: its generations are older than what
hosts hold, and they refuse those. So its child of today is made, with what it says
and with generations above. What is true now stays true: nodes that came since, or
that are not in service, are left as they are, and data that is gone is gone.`,
		Example: `  muster blueprint disable --reason "version 4 of web answers 500"
  muster blueprint diff target 38
  muster blueprint set 38 --reason "version 4 of web answers 500"`,
		Args:              names("BLUEPRINT"),
		ValidArgsFunction: a.completeWith(blueprintWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			e, err := f.SetTarget(c.Context(), muster.NewTarget{Blueprint: args[0], Reason: reason})
			if err != nil {
				return err
			}
			return a.show(e, func(w io.Writer) {
				fmt.Fprintf(w, "blueprint %d (%s) is the target\n", e.Number, said(e.ID))
				fmt.Fprintf(a.stderr, "what it changed: muster blueprint diff; to plan again: muster blueprint enable\n")
			})
		}),
	}
	needsReason(c, &reason)
	return c
}

func (a *app) blueprintEnable() *cobra.Command {
	return &cobra.Command{
		Use:     "enable",
		Short:   "Let planning go on",
		Long:    `Let planning go on, from the blueprint that is the target, to what is wanted now.`,
		Example: `  muster blueprint enable`,
		Args:    names(),
		RunE:    a.planning(&muster.PlanningChange{Planning: true}),
	}
}

func (a *app) blueprintDisable() *cobra.Command {
	change := &muster.PlanningChange{}
	c := &cobra.Command{
		Use:   "disable",
		Short: "Stop planning; what the target says goes on being made true",
		Long: `Stop planning, for a reason that everybody who asks is told. What the target says
goes on being made true, and no other blueprint takes its place, but by "muster
blueprint set": a node that fails is not made up for meanwhile.`,
		Example: `  muster blueprint disable --reason "the switch of rack 7 is being replaced"`,
		Args:    names(),
		RunE:    a.planning(change),
	}
	needsReason(c, &change.Reason)
	return c
}

func (a *app) planning(change *muster.PlanningChange) func(*cobra.Command, []string) error {
	return a.with(func(c *cobra.Command, f fleet, _ []string) error {
		t, err := f.SetPlanning(c.Context(), *change)
		if err != nil {
			return err
		}
		return a.show(t, func(w io.Writer) { a.drawTarget(w, t) })
	})
}

func (a *app) blueprintPrune() *cobra.Command {
	p := muster.BlueprintPrune{}
	c := &cobra.Command{
		Use:   "prune",
		Short: "Forget old blueprints; the target always stays",
		Long: `Forget old blueprints; the target always stays. Of very many, about a thousand of
the target's ancestors stay by themselves.`,
		Example: `  muster blueprint prune              # keep a hundred beside the target
  muster blueprint prune --keep 10`,
		Args: names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			done, err := f.PruneBlueprints(c.Context(), p)
			if err != nil {
				return err
			}
			return a.show(done, func(w io.Writer) { fmt.Fprintf(w, "%d blueprints are forgotten\n", done.Forgotten) })
		}),
	}
	numberVar(c.Flags(), &p.Keep, "keep", 100, 0, maxSeq, "how many of the target's ancestors to keep")
	return c
}

// atMost checks the number of arguments that may be left out.
func atMost(want ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > len(want) {
			return usagef("%s: unexpected %q", c.CommandPath(), args[len(want)])
		}
		return nil
	}
}

func blueprintWords(ctx context.Context, f fleet) ([]string, error) {
	bs, err := f.Blueprints(ctx, 0, 50)
	words := []string{"target\tthe one that is being made true"}
	for _, b := range bs {
		words = append(words, strconv.FormatInt(b.Number, 10)+"\t"+said(b.Why))
	}
	return words, err
}
