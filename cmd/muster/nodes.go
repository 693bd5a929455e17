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

// node finds a node by its id, or the newest one of the machine that ref names.
func node(ctx context.Context, f muster.Fleet, ref string) (muster.Node, error) {
	ns, err := f.Nodes(ctx)
	if err != nil {
		return muster.Node{}, err
	}
	for _, n := range ns {
		if n.ID == strings.ToLower(ref) {
			return n, nil
		}
	}
	m, err := machine(ctx, f, ref)
	if muster.IsCode(err, muster.CodeNotFound) {
		return muster.Node{}, &hinted{muster.Problemf(muster.CodeNotFound, "%q is no node, and names no machine", ref), "muster node ls"}
	}
	if err != nil {
		return muster.Node{}, err
	}
	for i := len(ns) - 1; i >= 0; i-- {
		if ns[i].ServerUUID == m.ServerUUID {
			return ns[i], nil
		}
	}
	return muster.Node{}, muster.Problemf(muster.CodeNotFound, "machine %s is %s, and has no node", m.ServerUUID, m.State)
}

func (a *app) nodeShow() *cobra.Command {
	return &cobra.Command{
		Use:               "show NODE",
		Short:             "Show a node, its disks, what is placed on it, and who knows that it was expunged",
		Example:           `  muster node show 8CX2P53`,
		Args:              names("NODE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, node, func(c *cobra.Command, f fleet, n muster.Node) error {
			d, err := f.Node(c.Context(), n.ID)
			if err != nil {
				return err
			}
			return a.show(d, func(w io.Writer) { a.drawNode(w, d) })
		}),
	}
}

func (a *app) drawNode(w io.Writer, d muster.NodeDetail) {
	holds, version, told := "", "", ""
	if d.ByHand {
		told = `by hand; nothing is placed on it before "muster node hand-over"`
	}
	if d.Link != nil {
		holds, version = fmt.Sprintf("generation %d", d.Link.Holds), said(d.Link.Version)
	}
	a.fields(w, "node", d.ID, "machine", d.ServerUUID, "host", said(d.Hostname), "serial", said(d.Serial),
		"policy", said(string(d.Policy)), "state", said(string(d.State)), "made", a.ago(&d.CreatedAt), "seen", a.ago(d.LastSeen), "link", a.linked(d.Link), "holds", holds, "version", version, "declared", told,
		"labels", said(labelText(d.Labels)), "holds back", capacity(d.Reservoir), "note", said(d.Note))
	for _, o := range d.Orders {
		told := "and was not told yet"
		if o.ToldAt != nil {
			told = "and was told " + a.ago(o.ToldAt)
		}
		fmt.Fprintf(w, "waiting for its host, which was asked %s by %s to %s, %s\n", a.ago(&o.AskedAt), said(o.AskedBy), o.Kind.Words(), told)
	}
	a.drawNodeClaims(w, d)
	a.drawTombstone(w, d.Expunged)
	if len(d.Disks) > 0 {
		slices.SortStableFunc(d.Disks, func(a, b muster.NodeDisk) int { return strings.Compare(a.Disk.Path, b.Disk.Path) })
		rows := make([][]string, len(d.Disks))
		for i, k := range d.Disks {
			rows[i] = []string{k.ID, dash(k.Disk.Path), dash(k.Disk.Serial), size(k.Disk.Size), inPool(k), said(string(k.Policy)), a.diskState(k), dash(labelText(k.Labels))}
		}
		fmt.Fprintln(w)
		grid(w, []string{"DISK", "PATH", "SERIAL", "SIZE", "POOL", "POLICY", "STATE", "LABELS"}, rows)
	}
	if len(d.Placements) > 0 {
		rows := make([][]string, len(d.Placements))
		for i, p := range d.Placements {
			rows[i] = []string{p.ID, said(p.Module), said(string(p.Kind)), said(string(p.State))}
		}
		fmt.Fprintln(w)
		grid(w, []string{"PLACEMENT", "MODULE", "KIND", "STATE"}, rows)
	}
	for _, v := range d.Moves {
		fmt.Fprintf(w, "move %s brings %s from %s to %s since %s\n", v.ID, v.Placement, v.From, v.To, a.ago(&v.StartedAt))
	}
	for _, x := range d.Foreign {
		if x.AcknowledgedAt == nil {
			a.warn(w, "%s %s runs here and is not muster's", said(x.Kind), said(x.Name))
			continue
		}
		fmt.Fprintf(w, "%s %s runs here and is not muster's; acknowledged by %s\n", said(x.Kind), said(x.Name), said(x.AcknowledgedBy))
	}
}

// nodeRaise is a verb that changes what is wanted of a node. A warning makes it
// ask for the machine to be named twice.
func (a *app) nodeRaise(verb, shortHelp, long, done, warning string) *cobra.Command {
	e := raises(lifecycle.Nodes, verb)
	var o repeated
	c := &cobra.Command{
		Use:               verb + " NODE",
		Short:             shortHelp,
		Long:              long,
		Example:           "  muster node " + verb + " 8CX2P53",
		Args:              names("NODE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, node, func(c *cobra.Command, f fleet, n muster.Node) error {
			if warning != "" {
				d, err := f.Node(c.Context(), n.ID)
				if err != nil {
					return err
				}
				if _, err := o.ask(c.Context(), a, d.Serial, d.ServerUUID, "machine "+d.ServerUUID, warning); err != nil {
					return err
				}
			}
			n, err := f.RaiseNode(c.Context(), n.ID, e)
			if err != nil {
				return err
			}
			cs, err := f.Claims(c.Context(), muster.ClaimFilter{NodeID: n.ID})
			if err != nil {
				return err
			}
			return a.show(n, func(w io.Writer) {
				fmt.Fprintf(w, "%s (%s) %s\n", n.ID, dash(n.Hostname), done)
				if e == lifecycle.Quiesce || e == lifecycle.GracefulRemove {
					a.drawClaims(w, cs)
				}
			})
		}),
	}
	if warning != "" {
		o.bind(c)
	}
	return c
}

func (a *app) nodeExpunge() *cobra.Command {
	var o repeated
	var x muster.Expunge
	c := &cobra.Command{
		Use:   "expunge NODE",
		Short: "Cut a node off for good: it is gone, stolen, or must be treated so",
		Long: `Cut a node off at once and for good: its key is dead for ever, its boot records
serve nothing, its disks are expunged and what is placed there is lost. A
tombstone keeps the machine out, whatever it says of itself, until an operator
readmits it. It cannot be taken back.

To let a node go in good order, use graceful-remove. This waits for nothing, not
even for the claims of other schedulers (muster claim). It takes an admin in person,
the machine's serial number, and a reason, which everybody who asks is told. A
node that was expunged before keeps its first reason.`,
		Example: `  muster node expunge 8CX2P53 --reason "its mainboard burnt"
  muster node expunge 8CX2P53 --yes --serial 8CX2P53 --reason "stolen from rack 4"`,
		Args:              names("NODE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, node, func(c *cobra.Command, f fleet, n muster.Node) error {
			d, err := f.Node(c.Context(), n.ID)
			if err != nil {
				return err
			}
			if x.Confirm, err = o.ask(c.Context(), a, d.Serial, d.ServerUUID, "machine "+d.ServerUUID, "it is cut off for good, and everything that is placed there is lost"); err != nil {
				return err
			}
			if d, err = f.ExpungeNode(c.Context(), n.ID, x); err != nil {
				return err
			}
			return a.show(d, func(w io.Writer) {
				fmt.Fprintf(w, "%s (%s) is expunged\n", d.ID, dash(d.Hostname))
				a.drawNodeClaims(w, d)
				a.drawTombstone(w, d.Expunged)
				fmt.Fprintf(a.stderr, "who knows of it: muster node show %s\n", d.ID)
			})
		}),
	}
	o.bind(c)
	needsReason(c, &x.Reason)
	return c
}

// needsReason is for what cannot be taken back: whoever finds it gone is told why.
func needsReason(c *cobra.Command, reason *string) {
	c.Flags().StringVar(reason, "reason", "", "why, in one line, for the audit and whoever asks later (needed)")
	c.PreRunE = func(*cobra.Command, []string) error {
		if *reason == "" {
			return usagef("--reason is needed: why, for the audit and whoever asks later")
		}
		return nil
	}
}

func (a *app) nodeAcknowledge() *cobra.Command {
	return &cobra.Command{
		Use:   "acknowledge-foreign NODE",
		Short: "Say that workloads there which are not muster's may be lost",
		Long: `Say that the virtual machines and containers which run on a node now, and are
not muster's, may be lost: a factory reset is refused until somebody has looked.
One that turns up later has to be acknowledged again.`,
		Example:           `  muster node acknowledge-foreign 8CX2P53`,
		Args:              names("NODE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, node, func(c *cobra.Command, f fleet, n muster.Node) error {
			d, err := f.AcknowledgeForeign(c.Context(), n.ID)
			if err != nil {
				return err
			}
			return a.show(d, func(w io.Writer) {
				fmt.Fprintf(w, "%d foreign workload(s) on %s are acknowledged\n", len(d.Foreign), d.ID)
			})
		}),
	}
}

func (a *app) diskCmd() *cobra.Command {
	many := func(c *cobra.Command) *cobra.Command { return a.inBulk(c, "DISK", ofDisks) }
	return group("disk", "Disks that the fleet holds",
		`The disks of its pool are adopted with a node, others by a word of yours. A disk is named by its id, the beginning of
that, or its serial number.`,
		a.diskLs(), a.diskAdopt(), many(a.diskLabel()),
		many(a.diskRaise("graceful-remove", "Replace what is on a disk, then let it go", "leaves once what is on it is elsewhere")),
		many(a.diskRaise("keep", "Take back a removal that is not finished", "stays")),
		many(a.diskExpunge()))
}

func (a *app) diskRaise(verb, shortHelp, done string) *cobra.Command {
	e := raises(lifecycle.Disks, verb)
	return &cobra.Command{
		Use:               verb + " DISK",
		Short:             shortHelp,
		Example:           "  muster disk " + verb + " S4EVNX0R",
		Args:              names("DISK"),
		ValidArgsFunction: a.completeWith(diskWords),
		RunE: on(a, disk, func(c *cobra.Command, f fleet, d muster.NodeDisk) error {
			d, err := f.RaiseDisk(c.Context(), d.ID, e)
			if err != nil {
				return err
			}
			return a.show(d, func(w io.Writer) {
				fmt.Fprintf(w, "disk %s (%s) %s\n", d.ID, dash(d.Disk.Serial), done)
				a.drawClaims(w, d.Claims)
			})
		}),
	}
}

func (a *app) diskExpunge() *cobra.Command {
	var o repeated
	var reason string
	c := &cobra.Command{
		Use:   "expunge DISK",
		Short: "Say that a disk is gone or must go, for good",
		Long: `Say that a disk is gone, or must be treated so. What is on it counts as lost, no
claim on it is waited for, and it cannot be taken back. It takes an admin in
person, and the disk's serial number again.`,
		Example:           `  muster disk expunge S4EVNX0R --reason "reads fail"`,
		Args:              names("DISK"),
		ValidArgsFunction: a.completeWith(diskWords),
		RunE: on(a, disk, func(c *cobra.Command, f fleet, d muster.NodeDisk) error {
			typed, err := o.ask(c.Context(), a, d.Disk.Serial, d.ID, "disk "+d.ID, "what is on it counts as lost, for good")
			if err != nil {
				return err
			}
			d, err = f.ExpungeDisk(c.Context(), d.ID, muster.Expunge{Confirm: typed, Reason: reason})
			if err != nil {
				return err
			}
			return a.show(d, func(w io.Writer) {
				fmt.Fprintf(w, "disk %s (%s) is expunged\n", d.ID, dash(d.Disk.Serial))
				a.drawClaims(w, d.Claims)
			})
		}),
	}
	o.bind(c)
	needsReason(c, &reason)
	return c
}
