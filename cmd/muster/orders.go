package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	muster "muster.internal"
)

func (a *app) nodeRekey() *cobra.Command {
	return &cobra.Command{
		Use:   "rekey NODE",
		Short: "Have a node make a new key pair",
		Long: `Have the host of a node make a new key pair, with a new certificate and a new
agent key. The old ones are dead once the new ones were used for the first time,
and not before. A host that is away does it when it is back; "muster node show"
says so until then.`,
		Example:           `  muster node rekey 8CX2P53`,
		Args:              names("NODE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, node, func(c *cobra.Command, f fleet, n muster.Node) error {
			return a.order(c.Context(), f, n, muster.OrderRekey, "makes a new key pair")
		}),
	}
}

func (a *app) nodeReboot() *cobra.Command {
	var drained, now bool
	c := &cobra.Command{
		Use:   "reboot NODE",
		Short: "Have the host of a node restart its machine, drained or at once",
		Long: `Have the host of a node restart its machine, once. With --drained the node is
quiesced first, its host is told when nothing runs there any more, and once the
machine is back the node serves again as before; resume, before its host was told,
takes it back. With --now what runs there goes down with the machine.

It is done when the machine is back in another boot: "muster node show" says so
until then, and "muster audit ls" has each step. A host that is away restarts when
it is back. That the power was off is not seen by anybody.`,
		Example: `  muster node reboot 8CX2P53 --drained
  muster node reboot --selector rack=r1 --now`,
		Args:              names("NODE"),
		ValidArgsFunction: a.completeWith(machineWords),
		PreRunE: func(*cobra.Command, []string) error {
			if drained == now {
				return usagef("say --drained (what runs there moves or stops first) or --now (it goes down with the machine)")
			}
			return nil
		},
		RunE: on(a, node, func(c *cobra.Command, f fleet, n muster.Node) error {
			if drained {
				return a.order(c.Context(), f, n, muster.OrderRebootDrained, "restarts its machine once nothing runs there")
			}
			return a.order(c.Context(), f, n, muster.OrderReboot, "restarts its machine")
		}),
	}
	c.Flags().BoolVar(&drained, "drained", false, "quiesce the node first, and resume it afterwards")
	c.Flags().BoolVar(&now, "now", false, "at once")
	return c
}

func (a *app) nodeRetire() *cobra.Command {
	var r repeated
	c := &cobra.Command{
		Use:   "retire NODE",
		Short: "Have a node give everything up, then let it go",
		Long: `Have the host of a node give up everything that it was told to be, then let the
node go. What it made is removed, services are stopped, files and directories that
it adopted get their originals back, packages stay; its last report says what
became of each. Then it drops its identity and does nothing any more, and the node
is decommissioned: its machine would come back as a new one, by a token.

What was made on the machine itself, with "muster-host apply FILE", stays, and the
report names it.

A node on which something is placed waits until that is elsewhere, and a host that
is away does it when it is back; "muster node show" says so until then. Before its
host was told, resume takes it back. A host that will not come back is expunged
instead ("muster node expunge").`,
		Example:           `  muster node retire 8CX2P53`,
		Args:              names("NODE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, node, func(c *cobra.Command, f fleet, n muster.Node) error {
			d, err := f.Node(c.Context(), n.ID)
			if err != nil {
				return err
			}
			if _, err := r.ask(c.Context(), a, d.Serial, d.ServerUUID, "machine "+d.ServerUUID, "it gives up everything that it was told to be, and leaves the fleet"); err != nil {
				return err
			}
			return a.order(c.Context(), f, n, muster.OrderRetire, "gives everything up, then leaves")
		}),
	}
	r.bind(c)
	return c
}

// order asks the host of a node for something.
func (a *app) order(ctx context.Context, f fleet, n muster.Node, kind muster.OrderKind, does string) error {
	o, err := f.OrderNode(ctx, n.ID, kind)
	if err != nil {
		return err
	}
	return a.show(o, func(w io.Writer) {
		if n.Link != nil && !n.Link.Linked {
			does += " when it is back: it is away since " + n.Link.LastLinked.UTC().Format(time.DateTime) + " UTC"
		}
		fmt.Fprintf(w, "the host of %s (%s) %s\n", n.ID, dash(n.Hostname), does)
	})
}

const (
	reportWithin = time.Minute // an apply that takes longer is looked at later
	reportEvery  = 250 * time.Millisecond
)

// reportNow has the host of a node apply and report, and waits for that.
func (a *app) reportNow(ctx context.Context, f fleet, n muster.Node) error {
	if n.Link != nil && !n.Link.Linked {
		return fmt.Errorf("the host of %s is away since %s UTC, and cannot report now", n.ID, n.Link.LastLinked.UTC().Format(time.DateTime))
	}
	asked, err := f.OrderNode(ctx, n.ID, muster.OrderReportNow)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stderr, "waiting for the report of %s (%s), which was asked for it at %s UTC\n", n.ID, dash(n.Hostname), asked.AskedAt.UTC().Format(time.DateTime))
	for end := time.Now().Add(reportWithin); ; {
		d, err := f.Node(ctx, n.ID)
		if err != nil || !slices.ContainsFunc(d.Orders, func(o muster.NodeOrder) bool { return o.Kind == muster.OrderReportNow }) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("the host of %s was asked for a report and has not sent it within %v: it may be at a long apply; \"muster node report\" shows it once it came", n.ID, reportWithin)
		}
		select {
		case <-time.After(reportEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
