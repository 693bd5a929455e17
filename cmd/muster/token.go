package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	muster "muster.internal"
)

func (a *app) tokenCmd() *cobra.Command {
	return group("token", "Enrolment tokens: let one machine in, straight to approved",
		`An enrolment token lets one machine in that runs an operating system already,
straight to approved, without a claim code. It is one word, which holds the
control plane's address, the fingerprint of its certificate and a secret. It is
good once, and for an hour unless told otherwise. On the machine:

  muster-host enrol --token -`,
		a.tokenIssue(), a.tokenLs(), a.tokenRevoke())
}

func (a *app) tokenIssue() *cobra.Command {
	var n muster.NewEnrolmentToken
	var expires lifetime
	c := &cobra.Command{
		Use:   "issue",
		Short: "Issue a token; it is shown once",
		Long: `Issue a token. The token goes to standard output, alone, this once; what is said
about it goes to standard error. It takes an admin in person.

A machine whose node was only disabled comes back as that node, one whose node
is decommissioned as a new one. A machine whose node is live is refused, unless
the token names that node: --as NODE lets it in as the same node and ends its
old key. That is for a machine whose system was installed anew, or that lost its
key, and for new hardware in the place of old: other hardware that redeems such
a token is the node from then on, with its placements, disks and labels, and the
old hardware is disabled in the same moment.`,
		Example: `  muster token issue --comment 'rack 7' --expires 2d
  muster token issue --as 0197a3c2-6d1b-7cc0-9d5e-2f1f6f0c9a11
  umask 077; muster token issue > token; scp token new-machine:`,
		Args: names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			n.ExpiresIn = int(expires)
			t, err := f.IssueEnrolmentToken(c.Context(), n)
			if err != nil {
				return err
			}
			about := fmt.Sprintf("enrolment token %s, good once, expires %s; it is not shown again", t.ID, a.ago(&t.ExpiresAt))
			if t.ComesAs != nil {
				about += "\n" + t.ComesAs.Why
			}
			return a.handOver(t, t.Token, about,
				fmt.Sprintf("enrolment token %s was issued, but could not be written", t.ID), "nobody has it: muster token revoke "+t.ID)
		}),
	}
	f := c.Flags()
	f.StringVar(&n.Comment, "comment", "", "what it is for")
	f.Var(&expires, "expires", "lifetime: 10m, 2d (default: 1h, at most 30d)")
	f.StringVar(&n.AsNode, "as", "", "the live node that whoever redeems it comes in as")
	return c
}

func (a *app) tokenLs() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List tokens, without their secrets",
		Example: "  muster token ls",
		Args:    names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			ts, err := f.EnrolmentTokens(c.Context())
			if err != nil {
				return err
			}
			return a.show(list(ts), func(w io.Writer) {
				if len(ts) == 0 {
					fmt.Fprintln(a.stderr, "no enrolment token was issued; to issue one: muster token issue")
					return
				}
				rows := make([][]string, len(ts))
				for i, t := range ts {
					end := "-"
					if t.State == muster.TokenUnused {
						end = a.ago(&t.ExpiresAt)
					}
					rows[i] = []string{t.ID, said(string(t.State)), dash(t.CreatedBy), a.ago(&t.CreatedAt), end, dash(short(t.UsedBy)), dash(t.AsNode), said(t.Comment)}
				}
				grid(w, []string{"ID", "STATE", "BY", "ISSUED", "EXPIRES", "USED BY", "AS NODE", "COMMENT"}, rows)
			})
		}),
	}
}

func (a *app) tokenRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "End a token that was not used",
		Example: "  muster token revoke q2qywnguwzb4",
		Args:    names("ID"),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			if err := f.RevokeEnrolmentToken(c.Context(), args[0]); err != nil {
				return err
			}
			return a.show(map[string]string{"id": args[0], "revoked": "true"}, func(w io.Writer) {
				fmt.Fprintf(w, "enrolment token %s is revoked\n", args[0])
			})
		}),
	}
}
