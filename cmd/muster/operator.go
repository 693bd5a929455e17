package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	muster "muster.internal"
)

func (a *app) operatorCmd() *cobra.Command {
	return group("operator", "The people who may log in",
		`Operators are named people, admin or viewer. Managing them takes an admin in
person.`, a.operatorCreate(), a.operatorLs(), a.operatorSet(), a.operatorPassword(), a.operatorRm())
}

func (a *app) operatorCreate() *cobra.Command {
	var role string
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Add a person; the first password is asked for",
		Example: `  muster operator create maria --role admin
  muster operator create night-shift --role viewer < password-file`,
		Args: names("NAME"),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			if r := muster.Role(role); r != muster.Admin && r != muster.Viewer {
				return usagef("--role is admin or viewer, not %q", role)
			}
			password, err := a.secret(c.Context(), "first password of "+args[0]+": ")
			if err != nil {
				return fmt.Errorf("no password: %w", err)
			}
			o, err := f.CreateOperator(c.Context(), muster.NewOperator{Name: args[0], Role: muster.Role(role), Password: password})
			if err != nil {
				return err
			}
			return a.show(o, func(w io.Writer) { fmt.Fprintf(w, "%s may log in as %s\n", said(o.Name), o.Role) })
		}),
	}
	c.Flags().StringVar(&role, "role", string(muster.Viewer), "admin or viewer")
	a.complete(c, "role", string(muster.Admin), string(muster.Viewer))
	return c
}

func (a *app) operatorLs() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List operators",
		Example: `  muster operator ls`,
		Args:    names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			os, err := f.Operators(c.Context())
			if err != nil {
				return err
			}
			return a.show(list(os), func(w io.Writer) {
				rows := make([][]string, len(os))
				for i, o := range os {
					rows[i] = []string{said(o.Name), string(o.Role), a.ago(&o.CreatedAt), a.ago(o.LastLogin)}
				}
				grid(w, []string{"NAME", "ROLE", "CREATED", "LAST LOGIN"}, rows)
			})
		}),
	}
}
