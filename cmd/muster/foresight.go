package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	muster "muster.internal"
	"muster.internal/lifecycle"
)

// An assumption is a change that a dry plan can assume: what it is about, and
// how it is found.
type assumption struct {
	verb, about, what string
	find              func(a *app, ctx context.Context, f fleet, ref string) (muster.WhatIf, error)
}

var assumptions = []assumption{
	{"expunge", "NODE", "it is cut off for good, and what is there is lost", ofNode(lifecycle.Expunge)},
	{"remove", "NODE", "it is removed gracefully", ofNode(lifecycle.GracefulRemove)},
	{"quiesce", "NODE", "it is to be quiet for a while", ofNode(lifecycle.Quiesce)},
	{"no-provision", "NODE", "it gets nothing new", ofNode(lifecycle.NoProvision)},
	{"resume", "NODE", "it is to serve again", ofNode(lifecycle.Resume)},
	{"expunge-disk", "DISK", "it is gone, and what is on it is lost", ofDisk(lifecycle.Expunge)},
	{"remove-disk", "DISK", "it is removed gracefully", ofDisk(lifecycle.GracefulRemove)},
	{"add-module", "FILE", "this version of a module is wanted", func(a *app, _ context.Context, _ fleet, ref string) (muster.WhatIf, error) {
		m, err := a.readModule(ref)
		return muster.WhatIf{AddModule: &m}, err
	}},
	{"remove-module", "NAME", "a module is wanted no more", func(_ *app, _ context.Context, _ fleet, ref string) (muster.WhatIf, error) {
		return muster.WhatIf{RemoveModule: ref}, nil
	}},
}

func ofNode(e muster.Event) func(*app, context.Context, fleet, string) (muster.WhatIf, error) {
	return func(_ *app, ctx context.Context, f fleet, ref string) (muster.WhatIf, error) {
		n, err := node(ctx, f, ref)
		return muster.WhatIf{Event: e, Node: n.ID}, err
	}
}

func ofDisk(e muster.Event) func(*app, context.Context, fleet, string) (muster.WhatIf, error) {
	return func(_ *app, ctx context.Context, f fleet, ref string) (muster.WhatIf, error) {
		d, err := disk(ctx, f, ref)
		return muster.WhatIf{Event: e, Disk: d.ID}, err
	}
}

func (a *app) planCmd() *cobra.Command {
	var verb string
	var could strings.Builder
	verbs := make([]string, len(assumptions))
	for i, x := range assumptions {
		verbs[i] = x.verb
		fmt.Fprintf(&could, "  %-21s %s\n", x.verb+" "+x.about, x.what)
	}
	c := &cobra.Command{
		Use:   "plan [NODE | DISK | FILE | NAME]",
		Short: "Show what the planner would do next, and what it waits for; nothing is changed",
		Long: `Show what the planner would do next, and what it waits for; nothing is changed. The
lines say what is refused until somebody acts, what waits and for what, and what is
done; below them is what the next blueprint would differ by.

Plans go in steps: a replica leaves only once another is up, so of a removal the
first step is shown, and the lines tell what comes after. With --what-if a change
is assumed that nobody has made:

` + strings.TrimSuffix(could.String(), "\n"),
		Example: `  muster plan
  muster plan --what-if expunge 8CX2P53
  muster plan --what-if add-module web.yaml -o json`,
		Args: func(c *cobra.Command, args []string) error {
			i := slices.Index(verbs, verb)
			switch {
			case verb == "":
				return names()(c, args)
			case i < 0:
				return usagef("--what-if: %q is none of %s", verb, strings.Join(verbs, ", "))
			}
			return names(assumptions[i].about)(c, args)
		},
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			var w muster.WhatIf
			if i := slices.Index(verbs, verb); i >= 0 {
				var err error
				if w, err = assumptions[i].find(a, c.Context(), f, args[0]); err != nil {
					return err
				}
			}
			d, err := f.Plan(c.Context(), w)
			if err != nil {
				return err
			}
			return a.show(d, func(w io.Writer) { a.drawDryPlan(w, d) })
		}),
	}
	c.Flags().StringVar(&verb, "what-if", "", "assume a change: "+strings.Join(verbs, ", "))
	a.complete(c, "what-if", verbs...)
	return c
}

func (a *app) drawDryPlan(w io.Writer, d muster.DryPlan) {
	if d.Stopped != "" {
		a.warn(w, "planning was stopped by %s; this is what it would do", said(d.Stopped))
	}
	a.drawPlanReport(w, d.Report)
	a.drawBlueprintDiff(w, d.Diff)
}

func (a *app) explainCmd() *cobra.Command {
	return group("explain", "Why a node, a disk or a placement is as it is, and what comes next",
		`Say why a node, a disk or a placement is as it is: what is true of it, what was
done about it last and why, what a plan made now would do, and what that waits for.
Why a machine boots, or does not, is said by "muster boot explain".`,
		explaining(a, muster.SubjectNode, "NODE", "8CX2P53", machineWords, node, func(n muster.Node) string { return n.ID }),
		explaining(a, muster.SubjectDisk, "DISK", "S4EVNX0R", diskWords, disk, func(d muster.NodeDisk) string { return d.ID }),
		explaining(a, muster.SubjectPlacement, "PLACEMENT", "db-2", placementWords, placement, func(p muster.PlacementDetail) string { return p.ID }))
}

func explaining[T any](a *app, kind muster.Subject, arg, example string, words func(context.Context, fleet) ([]string, error),
	find func(context.Context, muster.Fleet, string) (T, error), id func(T) string) *cobra.Command {
	return &cobra.Command{
		Use:               string(kind) + " " + arg,
		Short:             "Say why a " + string(kind) + " is as it is, what comes next, and what it waits for",
		Example:           "  muster explain " + string(kind) + " " + example,
		Args:              names(arg),
		ValidArgsFunction: a.completeWith(words),
		RunE: on(a, find, func(c *cobra.Command, f fleet, found T) error {
			x, err := f.Explain(c.Context(), kind, id(found))
			if err != nil {
				return err
			}
			return a.show(x, func(w io.Writer) { a.drawExplained(w, x) })
		}),
	}
}

func (a *app) drawExplained(w io.Writer, x muster.Explained) {
	for _, line := range x.Is {
		fmt.Fprintln(w, said(line))
	}
	if x.Why != nil {
		why := ""
		if x.Why.Why != "" {
			why = ": " + said(x.Why.Why)
		}
		fmt.Fprintf(w, "\nlast, %s, in blueprint %d by %s%s\n", a.ago(&x.Why.At), x.Why.Number, said(x.Why.By), why)
		for _, l := range x.Why.Lines {
			fmt.Fprintf(w, "  %s\n", said(l.Text))
		}
	}
	fmt.Fprintln(w)
	if len(x.Next)+len(x.Waits)+len(x.Refused)+len(x.Notes) == 0 {
		fmt.Fprintln(w, "nothing comes next, and it waits for nothing")
		return
	}
	fmt.Fprintln(w, "next")
	a.drawPlanReport(w, muster.PlanReport{Done: x.Next, Waits: x.Waits, Refused: x.Refused, Notes: x.Notes})
}
