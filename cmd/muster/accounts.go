package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	muster "muster.internal"
)

func (a *app) keyRotate() *cobra.Command {
	var overlap lifetime
	c := &cobra.Command{
		Use:   "rotate ID",
		Short: "Give a key another secret; it is shown once",
		Long: `Give a key another secret. The old one stops working at once, or with --overlap
after a while, in which both are good. Id, scope and expiry stay. The new secret
goes to standard output, alone, this once. A machine's own key is not rotated
here: only the machine may hold it.`,
		Example:           `  umask 077; muster key rotate q2qywnguwzb4 --overlap 1h > booter.key`,
		Args:              names("ID"),
		ValidArgsFunction: a.completeWith(keyWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			k, err := f.RotateKey(c.Context(), args[0], muster.KeyRotation{Overlap: int(overlap)})
			if err != nil {
				return err
			}
			old := "the old secret is dead"
			if k.OldUntil != nil {
				old = "the old secret is good until " + k.OldUntil.UTC().Format(time.RFC3339)
			}
			return a.handOver(k, k.Secret, fmt.Sprintf("key %s, scope %s: %s; the new one is not shown again", k.ID, k.Scope, old),
				fmt.Sprintf("key %s was rotated, but its secret could not be written", k.ID), "nobody has the new secret: muster key rotate "+k.ID)
		}),
	}
	c.Flags().Var(&overlap, "overlap", "how long the old secret stays good beside the new one: 10m, 1h (default: not at all)")
	return c
}

// expirySoon is when a key's end is worth a warning.
const expirySoon = 14 * 24 * time.Hour

// keyEnd says when a key ends, and warns when that is soon.
func (a *app) keyEnd(k muster.APIKey) string {
	if k.ExpiresAt == nil {
		return "never"
	}
	left := k.ExpiresAt.Sub(a.now())
	switch {
	case left <= 0:
		return a.paint(red, "expired "+a.ago(k.ExpiresAt))
	case left < expirySoon:
		return a.paint(yellow, a.ago(k.ExpiresAt)+" (soon)")
	}
	return a.ago(k.ExpiresAt)
}

func (a *app) operatorSet() *cobra.Command {
	var role string
	var password bool
	c := &cobra.Command{
		Use:   "set NAME",
		Short: "Change somebody's role, or give them another password",
		Long: `Change somebody's role, or give them another password, which is asked for. With
another password every login of theirs is over. The last admin stays one.`,
		Example: `  muster operator set maria --role viewer
  muster operator set maria --password`,
		Args: names("NAME"),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			if r := muster.Role(role); role != "" && r != muster.Admin && r != muster.Viewer {
				return usagef("--role is admin or viewer, not %q", role)
			}
			if role == "" && !password {
				return usagef("nothing to change: --role or --password is needed")
			}
			change := muster.OperatorChange{Role: muster.Role(role)}
			if password {
				var err error
				if change.Password, err = a.secret(c.Context(), "new password of "+args[0]+": "); err != nil {
					return fmt.Errorf("no password: %w", err)
				}
			}
			o, err := f.ChangeOperator(c.Context(), args[0], change)
			if err != nil {
				return err
			}
			return a.show(o, func(w io.Writer) {
				fmt.Fprintf(w, "%s is %s\n", said(o.Name), o.Role)
				if password {
					fmt.Fprintln(a.stderr, "every login with the old password is over")
				}
			})
		}),
	}
	c.Flags().StringVar(&role, "role", "", "admin or viewer")
	c.Flags().BoolVar(&password, "password", false, "ask for another password")
	a.complete(c, "role", string(muster.Admin), string(muster.Viewer))
	return c
}

func (a *app) operatorPassword() *cobra.Command {
	return &cobra.Command{
		Use:   "password",
		Short: "Change your own password",
		Long: `Change your own password. The old one is asked for first, then the new one.
Every login of yours is over then, this one too.`,
		Example: `  muster operator password`,
		Args:    names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			var p muster.PasswordChange
			var err error
			if p.Old, err = a.secret(c.Context(), "old password: "); err != nil {
				return fmt.Errorf("no password: %w", err)
			}
			if p.New, err = a.secret(c.Context(), "new password: "); err != nil {
				return fmt.Errorf("no password: %w", err)
			}
			if err := f.ChangePassword(c.Context(), p); err != nil {
				return err
			}
			return a.show(map[string]string{"changed": "true"}, func(w io.Writer) {
				fmt.Fprintln(w, "the password is changed; log in again: muster login")
			})
		}),
	}
}

func (a *app) operatorRm() *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "End somebody's access at once",
		Long: `End somebody's access: their logins are over at once. The last admin stays.
Nobody of that name: exit code 4.`,
		Example: `  muster operator rm maria`,
		Args:    names("NAME"),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			if err := f.RemoveOperator(c.Context(), args[0]); err != nil {
				return err
			}
			return a.show(map[string]string{"name": args[0], "removed": "true"}, func(w io.Writer) {
				fmt.Fprintf(w, "%s may not log in any more\n", said(args[0]))
			})
		}),
	}
}
