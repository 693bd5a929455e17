package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	muster "muster.internal"
)

func (a *app) placementCmd() *cobra.Command {
	return group("placement", "Placements: what is where",
		`A placement is one replica of a module on a node. It is reserved until its host
says that it is up, placed then, moving while another takes its place, and removed
or lost in the end. A placement is named by its id, the beginning of that, or its
name.`,
		a.placementLs(), a.placementShow())
}

func (a *app) placementLs() *cobra.Command {
	var q muster.PlacementFilter
	c := &cobra.Command{
		Use:   "ls",
		Short: "List placements: those that have not ended, unless asked for",
		Example: `  muster placement ls
  muster placement ls --module web
  muster placement ls --node 8CX2P53 --state any`,
		Args: names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			if q.Node != "" {
				n, err := node(c.Context(), f, q.Node)
				if err != nil {
					return err
				}
				q.Node = n.ID
			}
			ps, err := allPlacements(c.Context(), f, q)
			if err != nil {
				return err
			}
			return a.show(list(ps), func(w io.Writer) {
				if len(ps) == 0 {
					fmt.Fprintln(a.stderr, "there is none; those that have ended: --state any")
					return
				}
				rows := make([][]string, len(ps))
				for i, p := range ps {
					rows[i] = []string{p.ID, dash(p.Name), said(p.Module), fmt.Sprint(p.Version), a.placementState(p.State), a.ago(&p.ChangedAt), p.NodeID}
				}
				grid(w, []string{"PLACEMENT", "NAME", "MODULE", "VERSION", "STATE", "SINCE", "NODE"}, rows)
			})
		}),
	}
	c.Flags().StringVar(&q.Node, "node", "", "only on this node")
	c.Flags().StringVar(&q.Module, "module", "", "only of this module")
	c.Flags().StringVar((*string)(&q.State), "state", "", "only in this state, or any")
	a.complete(c, "state", append(states(muster.PlacementStates), string(muster.PlacementAny))...)
	return c
}

func allPlacements(ctx context.Context, f muster.Fleet, q muster.PlacementFilter) ([]muster.PlacementRecord, error) {
	return everyPage(func(after string) ([]muster.PlacementRecord, error) {
		q.After, q.Limit = after, page
		return f.Placements(ctx, q)
	}, func(p muster.PlacementRecord) string { return p.ID })
}

// placement finds a placement by its id, by its name, or by the beginning of its
// id among those that have not ended.
func placement(ctx context.Context, f muster.Fleet, ref string) (muster.PlacementDetail, error) {
	d, err := f.Placement(ctx, ref)
	if !muster.IsCode(err, muster.CodeNotFound) {
		return d, err
	}
	ps, err := allPlacements(ctx, f, muster.PlacementFilter{})
	if err != nil {
		return d, err
	}
	named := slices.DeleteFunc(slices.Clone(ps), func(p muster.PlacementRecord) bool { return p.Name != ref })
	if len(named) == 0 && len(ref) >= 4 {
		named = slices.DeleteFunc(ps, func(p muster.PlacementRecord) bool { return !strings.HasPrefix(p.ID, strings.ToLower(ref)) })
	}
	switch len(named) {
	case 0:
		return d, &hinted{muster.Problemf(muster.CodeNotFound, "no placement is called %q", ref), "muster placement ls; those that have ended are named by their whole id"}
	case 1:
		return f.Placement(ctx, named[0].ID)
	}
	return d, usagef("%q names %d placements: name one by its id", ref, len(named))
}

func (a *app) placementShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show PLACEMENT",
		Short: "Show a placement, what the target says of it, and what happened to it",
		Example: `  muster placement show db-2
  muster placement show 4c1f09d2`,
		Args:              names("PLACEMENT"),
		ValidArgsFunction: a.completeWith(placementWords),
		RunE: on(a, placement, func(c *cobra.Command, f fleet, d muster.PlacementDetail) error {
			return a.show(d, func(w io.Writer) {
				a.drawPlacement(w, d)
				fmt.Fprintf(a.stderr, "why: muster explain placement %s; its history: muster audit ls --after 0 --subject placement/%s\n", d.ID, d.ID)
			})
		}),
	}
}

func (a *app) drawPlacement(w io.Writer, d muster.PlacementDetail) {
	a.fields(w, "placement", d.ID, "name", said(d.Name), "module", fmt.Sprintf("%s version %d", said(d.Module), d.Version), "kind", said(string(d.Kind)),
		"state", a.placementState(d.State)+", "+a.ago(&d.ChangedAt), "node", strings.TrimSpace(d.NodeID+" "+said(d.Hostname)), "disk", said(d.Disk), "transient disk", said(d.Transient), "made", a.ago(&d.CreatedAt))
	t := d.Target
	switch {
	case t == nil:
		fmt.Fprintln(w, "the target does not know it any more")
	case t.Held:
		fmt.Fprintln(w, "its room is kept, and its node is not told of it")
	case t.Declared():
		fmt.Fprintf(w, "its node is told of it since generation %d\n", t.Since)
	case t.Gone():
		fmt.Fprintf(w, "its node is told of it no longer as of generation %d, and nothing of it is left there\n", t.AsOf)
	default:
		fmt.Fprintf(w, "its node is told of it no longer as of generation %d, and has not said that nothing of it is left\n", t.AsOf)
	}
	if t != nil && t.Replaces != "" {
		fmt.Fprintf(w, "it came in the stead of placement %s\n", said(t.Replaces))
	}
}

func (a *app) placementState(s muster.PlacementState) string {
	switch s {
	case muster.PlacementPlaced:
		return a.paint(green, string(s))
	case muster.PlacementReserved, muster.PlacementMoving:
		return a.paint(yellow, string(s))
	case muster.PlacementLost:
		return a.paint(red, string(s))
	}
	return said(string(s))
}

func placementWords(ctx context.Context, f fleet) ([]string, error) {
	ps, err := allPlacements(ctx, f, muster.PlacementFilter{})
	var words []string
	for _, p := range ps {
		if p.Name != "" {
			words = append(words, p.Name+"\t"+said(p.Module+" "+string(p.State)))
		}
		words = append(words, p.ID+"\t"+said(p.Module+" "+string(p.State)))
	}
	return words, err
}

func (a *app) nodeHandOver() *cobra.Command {
	return &cobra.Command{
		Use:   "hand-over NODE",
		Short: "Let blueprints say what a node is to be, which people did until now",
		Long: `Let blueprints say what a node is to be. A node that was told by hand (muster node
declare) is left alone by the planner until then. Afterwards it gets what the
modules that are wanted say; what was declared by hand and is in none of them is
taken back by its host. What one node alone is to have is a module that is pinned
to it.`,
		Example:           `  muster node hand-over 8CX2P53`,
		Args:              names("NODE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, node, func(c *cobra.Command, f fleet, n muster.Node) error {
			n, err := f.HandOver(c.Context(), n.ID)
			if err != nil {
				return err
			}
			return a.show(n, func(w io.Writer) {
				fmt.Fprintf(w, "%s (%s) is told by blueprints what to be\n", n.ID, dash(n.Hostname))
			})
		}),
	}
}
