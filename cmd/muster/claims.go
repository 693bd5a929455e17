package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"muster.internal"
)

func (a *app) claimCmd() *cobra.Command {
	return group("claim", "What other schedulers still need",
		`A claim is the word of another scheduler (Kubernetes, Nomad, a manager of virtual
machines) that it still needs a node or a disk. Quiescing a node, removing it
gracefully, retiring it, resetting it, and removing a disk wait until the claims
on it are over; their state is "draining" then, which tells their holders to take
away what they have there. An expunge waits for nothing.

A claim holds for ten minutes, or as long as its maker says, a day at most, and
is renewed. Whoever made it, an operator or a key of scope full, renews and
releases it. One that is not renewed expires by itself, but never within a lease's
time of a restart of the control plane. An operator can break another's claim.`,
		a.claimLs(), a.claimShow(), a.claimAdd(), a.claimRenew(), a.claimRelease(), a.claimBreak(), a.claimKubernetes())
}

// claimed is what a claim is on, in words.
func claimed(c muster.Claim) string {
	if c.DiskID != "" {
		return "disk " + c.DiskID
	}
	return "node " + c.NodeID
}

// claimEnd is when a claim ends, or how it did.
func (a *app) claimEnd(c muster.Claim) string {
	if !c.Live() {
		return string(c.Ended)
	}
	return "in " + left(c.ExpiresAt.Sub(a.now()))
}

func (a *app) claimLs() *cobra.Command {
	var f muster.ClaimFilter
	var on string
	c := &cobra.Command{
		Use:   "ls",
		Short: "List claims, and who waits for which",
		Example: `  muster claim ls
  muster claim ls --node 8CX2P53 --ended`,
		Args: names(),
		RunE: a.with(func(c *cobra.Command, fl fleet, _ []string) error {
			if on != "" {
				n, err := node(c.Context(), fl, on)
				if err != nil {
					return err
				}
				f.NodeID = n.ID
			}
			cs, err := fl.Claims(c.Context(), f)
			if err != nil {
				return err
			}
			return a.show(list(cs), func(w io.Writer) {
				if len(cs) == 0 {
					fmt.Fprintln(a.stderr, "nobody claims anything")
					return
				}
				rows := make([][]string, len(cs))
				for i, k := range cs {
					rows[i] = []string{k.ID, said(k.Holder), claimed(k), string(k.State), a.ago(&k.Since), a.claimEnd(k), dash(said(k.Reason)), dash(said(k.Why))}
				}
				grid(w, []string{"CLAIM", "HOLDER", "ON", "STATE", "SINCE", "ENDS", "REASON", "WHY"}, rows)
			})
		}),
	}
	c.Flags().StringVar(&on, "node", "", "only those on this node and its disks")
	c.Flags().StringVar(&f.Holder, "holder", "", "only those of this holder")
	c.Flags().BoolVar(&f.Ended, "ended", false, "those that are over, too; they are kept for 30 days")
	return c
}

func (a *app) claimShow() *cobra.Command {
	wait := false
	c := &cobra.Command{
		Use:   "show CLAIM",
		Short: "Show a claim, or wait for its next state",
		Example: `  muster claim show 019add0c-7b00-7000-8000-0000000000c1
  muster claim show 019add0c-7b00-7000-8000-0000000000c1 --wait -o json`,
		Args: names("CLAIM"),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			k, err := f.Claim(c.Context(), args[0], muster.ClaimWait{})
			for now := k.State; wait && err == nil && k.Live() && k.State == now && c.Context().Err() == nil; {
				k, err = f.Claim(c.Context(), args[0], muster.ClaimWait{Unless: now, Wait: time.Minute})
			}
			if err != nil {
				return err
			}
			return a.show(k, func(w io.Writer) {
				a.fields(w, "claim", k.ID, "holder", said(k.Holder), "on", claimed(k), "reason", said(k.Reason), "state", string(k.State), "since", a.ago(&k.Since),
					"why", said(k.Why), "ends", a.claimEnd(k), "made", a.ago(&k.MadeAt), "by", said(k.MadeBy))
			})
		}),
	}
	c.Flags().BoolVar(&wait, "wait", false, "wait until its state is another one")
	return c
}

func leaseVar(c *cobra.Command, to *lifetime, otherwise string) {
	c.Flags().Var(to, "for", "how long it holds without being renewed, at most 24h (default "+otherwise+")")
}

func (a *app) claimAdd() *cobra.Command {
	var n muster.NewClaim
	var lease lifetime
	c := &cobra.Command{
		Use:   "add NODE|DISK --holder HOLDER",
		Short: "Claim a node or a disk; a claim of one's own there is renewed",
		Long: `Claim a node or a disk; a claim of one's own there is renewed. What is to leave
takes no new claim: its leaving would never come to an end.

Exit code 6: it is to leave, or another holds it under this name.`,
		Example: `  muster claim add 8CX2P53 --holder nomad/dc1 --reason "7 allocations" --for 5m
  muster claim add 019add0c-7b00-7000-8000-0000000000d1 --holder ceph`,
		Args: names("NODE|DISK"), ValidArgsFunction: a.completeWith(machineWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			if n.Holder == "" {
				return usagef("--holder is needed: which scheduler this is, like kubernetes/prod")
			}
			n.Lease = int(lease)
			var err error
			if n.NodeID, n.DiskID, err = nodeOrDisk(c.Context(), f, args[0]); err != nil {
				return err
			}
			return a.claimSaid(f.AddClaim(c.Context(), n))
		}),
	}
	c.Flags().StringVar(&n.Holder, "holder", "", "which scheduler this is, for people (needed)")
	c.Flags().StringVar(&n.Reason, "reason", "", "what it has there, in one line")
	leaseVar(c, &lease, "10m")
	return c
}

// nodeOrDisk tells what ref names.
func nodeOrDisk(ctx context.Context, f fleet, ref string) (nodeID, diskID string, err error) {
	n, err := node(ctx, f, ref)
	if !muster.IsCode(err, muster.CodeNotFound) {
		return n.ID, "", err
	}
	d, e := disk(ctx, f, ref)
	if muster.IsCode(e, muster.CodeNotFound) {
		return "", "", &hinted{muster.Problemf(muster.CodeNotFound, "%q is no node and no disk, and names no machine", ref), "muster node ls, muster disk ls"}
	}
	return "", d.ID, e
}

// claimSaid shows a claim as it is now.
func (a *app) claimSaid(k muster.Claim, err error) error {
	if err != nil {
		return err
	}
	return a.show(k, func(w io.Writer) {
		switch {
		case !k.Live():
			fmt.Fprintf(w, "claim %s of %s on %s is over: %s\n", k.ID, said(k.Holder), claimed(k), said(k.Why))
		case k.State == muster.ClaimDraining:
			fmt.Fprintf(w, "claim %s of %s on %s is to drain: %s; it ends in %s\n", k.ID, said(k.Holder), claimed(k), said(k.Why), left(k.ExpiresAt.Sub(a.now())))
		default:
			fmt.Fprintf(w, "claim %s of %s on %s holds for %s\n", k.ID, said(k.Holder), claimed(k), left(k.ExpiresAt.Sub(a.now())))
		}
	})
}

func (a *app) claimRenew() *cobra.Command {
	var r muster.ClaimRenewal
	var lease lifetime
	c := &cobra.Command{
		Use:     "renew CLAIM",
		Short:   "Give one's claim another lease, from now on",
		Example: `  muster claim renew 019add0c-7b00-7000-8000-0000000000c1 --for 1h`,
		Args:    names("CLAIM"),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			r.Lease = int(lease)
			return a.claimSaid(f.RenewClaim(c.Context(), args[0], r))
		}),
	}
	c.Flags().StringVar(&r.Reason, "reason", "", "what its holder still has there, in one line (default as before)")
	leaseVar(c, &lease, "as long as before")
	return c
}

func (a *app) claimRelease() *cobra.Command {
	return &cobra.Command{
		Use:     "release CLAIM",
		Short:   "Give one's claim up; what waits for it goes on",
		Example: `  muster claim release 019add0c-7b00-7000-8000-0000000000c1`,
		Args:    names("CLAIM"),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			return a.claimSaid(f.ReleaseClaim(c.Context(), args[0]))
		}),
	}
}

func (a *app) claimBreak() *cobra.Command {
	var b muster.ClaimBreak
	c := &cobra.Command{
		Use:   "break CLAIM",
		Short: "End somebody else's claim: its holder may lose what it has there",
		Long: `End somebody else's claim, although its holder has not said that it is done: what
waits for it goes on, and the holder may lose what it has there. It takes an admin
in person, and a reason, which the holder is told.`,
		Example: `  muster claim break 019add0c-7b00-7000-8000-0000000000c1 --reason "that cluster is gone"`,
		Args:    names("CLAIM"),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			return a.claimSaid(f.BreakClaim(c.Context(), args[0], b))
		}),
	}
	needsReason(c, &b.Reason)
	return c
}

// drawClaims tells who holds up what leaves, or would.
func (a *app) drawClaims(w io.Writer, cs []muster.Claim) {
	for _, k := range cs {
		what := fmt.Sprintf("%s claims %s since %s (%s), for another %s", said(k.Holder), claimed(k), a.ago(&k.Since), dash(said(k.Reason)), left(k.ExpiresAt.Sub(a.now())))
		switch {
		case k.Ended == muster.ClaimGone:
			what = fmt.Sprintf("%s claimed %s, and was not waited for", said(k.Holder), claimed(k))
		case k.State == muster.ClaimDraining:
			what = fmt.Sprintf("waiting for %s, which claims %s (%s) and was told to drain it %s; the claim ends in %s", said(k.Holder), claimed(k), dash(said(k.Reason)), a.ago(&k.Since), left(k.ExpiresAt.Sub(a.now())))
		}
		fmt.Fprintln(w, what)
	}
}

func (a *app) drawNodeClaims(w io.Writer, d muster.NodeDetail) {
	a.drawClaims(w, d.Claims)
	for _, k := range d.Disks {
		a.drawClaims(w, k.Claims)
	}
}
