package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	muster "muster.internal"
)

func (a *app) keyCmd() *cobra.Command {
	return group("key", "API keys for programs",
		`API keys are for programs; people log in. Scopes: full and read_only for
operators' programs, audit_only for who watches, booter and ur_enroll for a
booter (it holds both), agent for machines (made by approvals alone). No key may
approve a setup or manage keys: that takes a person.`,
		a.keyCreate(), a.keyLs(), a.keyRotate(), a.keyRevoke())
}

func (a *app) keyCreate() *cobra.Command {
	var n muster.NewKey
	var scope string
	var expires lifetime
	c := &cobra.Command{
		Use:   "create",
		Short: "Make a key; its secret is shown once",
		Long: `Make a key. The secret goes to standard output, alone, this once; what is said
about it goes to standard error.`,
		Example: `  muster key create --scope read_only --comment dashboard --expires 90d
  umask 077; muster key create --scope booter > booter.key`,
		Args: names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			n.Scope = muster.Scope(scope)
			if scope == "" {
				return usagef("--scope is needed: %s", strings.Join(grantable(), ", "))
			}
			n.ExpiresIn = int(expires)
			k, err := f.CreateKey(c.Context(), n)
			if err != nil {
				return err
			}
			end := "never expires"
			if k.ExpiresAt != nil {
				end = "expires " + k.ExpiresAt.UTC().Format(time.RFC3339)
			}
			return a.handOver(k, k.Secret, fmt.Sprintf("key %s, scope %s, %s; the secret is not shown again", k.ID, k.Scope, end),
				fmt.Sprintf("key %s was made, but its secret could not be written", k.ID), "nobody has the secret: muster key revoke "+k.ID)
		}),
	}
	f := c.Flags()
	f.StringVar(&scope, "scope", "", strings.Join(grantable(), ", "))
	f.StringVar(&n.Comment, "comment", "", "what it is for")
	f.Var(&expires, "expires", "lifetime: 12h, 90d (default: never)")
	a.complete(c, "scope", grantable()...)
	return c
}

// handOver prints a secret that is shown this once, alone; about goes to eyes
// beside it. When it is lost on the way, lost and redo are the error.
func (a *app) handOver(v any, secret, about, lost, redo string) error {
	var unwritten error
	err := a.show(v, func(w io.Writer) {
		fmt.Fprintln(a.stderr, about)
		_, unwritten = fmt.Fprintln(w, secret)
	})
	if err = errors.Join(err, unwritten); err != nil {
		return &hinted{fmt.Errorf("%s: %w", lost, err), redo}
	}
	return nil
}

func (a *app) keyLs() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List keys, without their secrets",
		Example: `  muster key ls`,
		Args:    names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			ks, err := f.Keys(c.Context())
			if err != nil {
				return err
			}
			return a.show(list(ks), func(w io.Writer) {
				if len(ks) == 0 {
					fmt.Fprintln(a.stderr, "there is no key")
					return
				}
				rows := make([][]string, len(ks))
				for i, k := range ks {
					rows[i] = []string{k.ID, string(k.Scope), dash(short(k.ServerUUID)), dash(k.CreatedBy), a.ago(&k.CreatedAt), a.ago(k.LastUsed), a.keyEnd(k), said(k.Comment)}
				}
				grid(w, []string{"ID", "SCOPE", "MACHINE", "BY", "CREATED", "USED", "EXPIRES", "COMMENT"}, rows)
			})
		}),
	}
}

func (a *app) keyRevoke() *cobra.Command {
	return &cobra.Command{
		Use:               "revoke ID",
		Short:             "Make a key stop working at once",
		Example:           `  muster key revoke q2qywnguwzb4`,
		Args:              names("ID"),
		ValidArgsFunction: a.completeWith(keyWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			// To the API a key that is gone is revoked; to a person who mistyped
			// one, that would be a lie about the key that is meant.
			ks, err := f.Keys(c.Context())
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(ks, func(k muster.APIKey) bool { return k.ID == args[0] }) {
				return &hinted{
					err:  muster.Problemf(muster.CodeNotFound, "no key has the ID %q: it was revoked before, or never was", args[0]),
					hint: "muster key ls",
				}
			}
			if err := f.RevokeKey(c.Context(), args[0]); err != nil {
				return err
			}
			return a.show(map[string]string{"id": args[0], "revoked": "true"}, func(w io.Writer) {
				fmt.Fprintf(w, "key %s is revoked\n", args[0])
			})
		}),
	}
}

// grantable are the scopes that a person can give: agent keys are made by
// approvals alone.
func grantable() []string {
	return slices.DeleteFunc(states(muster.Scopes), func(s string) bool { return s == string(muster.ScopeAgent) })
}
