package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster.internal"
	"muster.internal/module"
)

func (a *app) nodeCmd() *cobra.Command {
	many := func(c *cobra.Command) *cobra.Command { return a.inBulk(c, "NODE", ofNodes) }
	return group("node", "Nodes: machines that belong to the fleet",
		`A node is a machine that belongs to the fleet. Its policy is what you want of it,
its state what is true. A node is named by its id, or by its machine: serial
number, host name, MAC address, UUID.

Verbs that change something take --selector rack=r1,model="PowerEdge R640" in place
of NODE: all nodes with these labels, or this policy, state, host, vendor, model or
serial. What would be done is shown, and the number of nodes has to be typed; one
that fails stops no other.`,
		a.nodeLs(), a.nodeShow(), many(a.nodeLabel()), many(a.nodeReservoir()), many(a.nodeNote()), a.nodeTicket(),
		a.nodeDeclare(), a.nodeHandOver(), a.nodeDeclaration(), a.nodeReport(), a.nodeBriefing(), a.nodeOwned(), a.nodeHealth(), a.nodeResolve(), a.nodeGrant(), a.nodeGrants(), a.nodeRevoke(), a.nodeProfile(),
		a.nodeInventory(), many(a.nodeReboot()),
		many(a.nodeRaise("no-provision", "Place nothing new on a node", "Place nothing new on a node. What runs there is left alone. Resume takes it back.", "gets nothing new", "")),
		many(a.nodeRaise("quiesce", "Move away what can move, stop the rest, for a while", "Move away what can move and stop the rest, for work on the machine. Resume takes it back.", "is to be quiet", "")),
		many(a.nodeRaise("resume", "Take a node back into service", "Take back no-provision, quiesce, or a graceful removal that is not finished.", "is to serve", "")),
		many(a.nodeRaise("graceful-remove", "Replace everything on a node, then let it go",
			`Replace everything on a node, then let it go: once nothing is left, the node and
its disks are decommissioned, its key stops working and its boot records serve
nothing. A node that holds nothing, and that no other scheduler claims, goes at once. Until then, resume takes it back.`,
			"leaves once nothing is left on it", "it leaves the fleet as soon as nothing is placed on it")),
		many(a.nodeRetire()), many(a.nodeRekey()), many(a.nodeExpunge()), many(a.nodeAcknowledge()))
}

func (a *app) nodeLs() *cobra.Command {
	var labels []string
	c := &cobra.Command{
		Use:   "ls",
		Short: "List nodes",
		Example: `  muster node ls
  muster node ls --label rack=r1`,
		Args: names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			want, err := selected(labels)
			if err != nil {
				return err
			}
			ns, err := f.Nodes(c.Context())
			if err != nil {
				return err
			}
			ns = slices.DeleteFunc(slices.Clone(ns), func(n muster.Node) bool { return !module.Selects(want, n.Labels) })
			return a.show(list(ns), func(w io.Writer) {
				if len(ns) == 0 {
					none := "the fleet has no node"
					if len(labels) > 0 {
						none = "no node has " + strings.Join(labels, " and ")
					}
					fmt.Fprintln(a.stderr, none)
					return
				}
				uuids := make([]string, len(ns))
				for i, n := range ns {
					uuids[i] = n.ServerUUID
				}
				short := brief(uuids)
				rows := make([][]string, len(ns))
				for i, n := range ns {
					rows[i] = []string{n.ID, dash(n.Hostname), short(n.ServerUUID), said(string(n.Policy)), said(string(n.State)), a.linked(n.Link), a.ago(n.LastSeen), dash(labelText(n.Labels))}
				}
				grid(w, []string{"NODE", "HOST", "UUID", "POLICY", "STATE", "LINK", "SEEN", "LABELS"}, rows)
			})
		}),
	}
	c.Flags().StringArrayVar(&labels, "label", nil, "only nodes with this label, as key=value; repeat it for several")
	return c
}

func (a *app) nodeTicket() *cobra.Command {
	r := muster.TicketRequest{}
	c := &cobra.Command{
		Use:   "ticket MACHINE --kind KIND",
		Short: "Make a short-lived ticket to a machine",
		Long: `Make a short-lived ticket to a machine: it proves there that the control plane
sent whoever presents it. The machine checks it by itself, with
"muster-host ticket". A console ticket lives for a minute at most, a move ticket
for ten, a metadata ticket for six hours.`,
		Example:           `  muster node ticket 8CX2P53 --kind metadata --seconds 600`,
		Args:              names("MACHINE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, machine, func(c *cobra.Command, f fleet, m muster.Registration) error {
			t, err := f.IssueTicket(c.Context(), m.ServerUUID, r)
			if err != nil {
				return err
			}
			return a.show(t, func(w io.Writer) {
				fmt.Fprintln(w, t.Ticket)
				fmt.Fprintf(a.stderr, "a %s ticket for %s, good until %s\n", t.Kind, t.ServerUUID, t.ExpiresAt.Format(time.RFC3339))
			})
		}),
	}
	c.Flags().StringVar((*string)(&r.Kind), "kind", string(muster.TicketConsole), "console, metadata or move")
	numberVar(c.Flags(), &r.Seconds, "seconds", 0, 1, 6*3600, "how long it lives (default: as long as its kind may)")
	return c
}

func (a *app) booterCmd() *cobra.Command {
	return group("booter", "Booters: who serves DHCP, boot files and the boot bus", "", a.booterLs(), a.booterRm())
}

// segment tells what a booter has seen that an operator should look into.
func (a *app) segment(w io.Writer, b muster.BooterStatus) {
	for _, s := range b.OtherServers {
		switch {
		case s.Differs == 0:
			fmt.Fprintf(w, "%s: %s answers DHCP as the boot records say, %d times: another booter\n", said(b.Booter), said(s.Address), s.Same)
		case b.Proxy:
			fmt.Fprintf(w, "%s: %s gives addresses on its segment, %d times\n", said(b.Booter), said(s.Address), s.Differs)
		default:
			did := "offered " + said(s.Offered) + " to " + said(s.MAC)
			if s.Offered == "" {
				did = "refused " + said(s.MAC) + " its address"
			}
			a.warn(w, "%s: a second DHCP server, %s, answered %d times on its segment, last %s (it %s); turn it off there, or run the booter with --proxy",
				said(b.Booter), said(s.Address), s.Differs, a.ago(&s.LastSeen), did)
		}
	}
	for _, l := range b.Loops {
		a.warn(w, "%s: %s was served its %s %d times without going on from there; serving it rests until %s",
			said(b.Booter), said(l.MAC), said(l.Stage), l.Count, l.Until.UTC().Format("15:04:05 UTC"))
	}
}

func (a *app) booterLs() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List booters, what they have staged and how far they follow",
		Example: `  muster booter ls`,
		Args:    names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			bs, err := f.Booters(c.Context())
			if err != nil {
				return err
			}
			return a.show(list(bs), func(w io.Writer) {
				if len(bs) == 0 {
					fmt.Fprintln(a.stderr, "no booter has reported yet")
					return
				}
				rows := make([][]string, len(bs))
				for i, b := range bs {
					rows[i] = []string{dash(b.Booter), fmt.Sprint(b.Seq), fmt.Sprint(len(b.Staged)), fmt.Sprint(b.Held), a.booterSeen(b)}
				}
				grid(w, []string{"BOOTER", "FOLLOWED TO", "STAGED IMAGES", "ON THE BUS", "SEEN"}, rows)
				for _, b := range bs {
					for _, e := range b.Errors {
						a.warn(w, "%s: %s", said(b.Booter), said(e))
					}
					a.segment(w, b)
				}
			})
		}),
	}
}

func (a *app) booterSeen(b muster.BooterStatus) string {
	if b.Stopped {
		return "stopped " + a.ago(b.LastSeen)
	}
	return a.ago(b.LastSeen)
}

func (a *app) booterRm() *cobra.Command {
	return &cobra.Command{
		Use:   "rm BOOTER",
		Short: "Forget a booter that is gone for good",
		Long: `Forget a booter that is gone for good: its host died, or another one took its
place. Nothing waits for it any more: an expunged node's count of booters that
have confirmed goes without it. The machines that were connected to it count as
away, and their approvals are void unless the setup had begun.

A booter that was heard within the last 45 seconds is refused, unless its last
word was that it stops: stop it first, or wait. One that reports again later is a
booter again. Its keys are not touched: revoke those of a booter that was lost
or stolen (muster key revoke).

Exit code 4: there is no such booter. 6: it still reports.`,
		Example: `  muster booter ls
  muster booter rm rack1`,
		Args:              names("BOOTER"),
		ValidArgsFunction: a.completeWith(booterWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			if err := f.RemoveBooter(c.Context(), args[0]); err != nil {
				return err
			}
			return a.show(map[string]string{"booter": args[0], "removed": "true"}, func(w io.Writer) {
				fmt.Fprintf(w, "booter %s is removed\n", said(args[0]))
			})
		}),
	}
}
