package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	muster "muster.internal"
)

func (a *app) providerCmd() *cobra.Command {
	return group("provider", "Databases in which nodes get roles of their own",
		`A provider is a service in which each node gets a credential of its own, so that a
node that is gone can be cut off there, too, though nobody can reach it. The
first kind is PostgreSQL: a node's grant is a login role, a member of a role that
you have made. "muster node grant" makes one.`,
		a.providerAdd(), a.providerLs(), a.providerRm())
}

func (a *app) providerAdd() *cobra.Command {
	return &cobra.Command{
		Use:   "add NAME",
		Short: "Add a PostgreSQL database; its URL is asked for",
		Long: `Add a PostgreSQL database; its URL is asked for, since it holds a password:

  postgres://USER:PASSWORD@HOST:PORT/DATABASE

USER needs CREATEROLE, pg_signal_backend, and WITH ADMIN OPTION the roles whose
rights nodes are to get. NAME is what templates call it: small letters, digits and
underlines.`,
		Example: `  muster provider add app
  muster provider add app < url-file`,
		Args: names("NAME"),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			u, err := a.secret(c.Context(), "URL of "+args[0]+" (not shown): ")
			if err != nil {
				return fmt.Errorf("no URL: %w", err)
			}
			p, err := f.AddProvider(c.Context(), muster.NewProvider{Name: args[0], Kind: muster.ProviderPostgreSQL, URL: u})
			if err != nil {
				return err
			}
			return a.show(p, func(w io.Writer) {
				fmt.Fprintf(w, "nodes can be granted roles at %s (%s)\n", said(p.Name), said(p.Address))
			})
		}),
	}
}

func (a *app) providerLs() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List providers",
		Example: `  muster provider ls`,
		Args:    names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			ps, err := f.Providers(c.Context())
			if err != nil {
				return err
			}
			return a.show(list(ps), func(w io.Writer) {
				rows := make([][]string, len(ps))
				for i, p := range ps {
					rows[i] = []string{said(p.Name), string(p.Kind), said(p.Address), a.ago(&p.AddedAt), said(p.AddedBy)}
				}
				grid(w, []string{"NAME", "KIND", "ADDRESS", "ADDED", "BY"}, rows)
			})
		}),
	}
}

func (a *app) providerRm() *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME",
		Short:   "Forget a provider at which no grant stands",
		Example: `  muster provider rm app`,
		Args:    names("NAME"),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			if err := f.RemoveProvider(c.Context(), args[0]); err != nil {
				return err
			}
			return a.show(map[string]string{"name": args[0]}, func(w io.Writer) { fmt.Fprintf(w, "provider %s is forgotten\n", args[0]) })
		}),
	}
}

func (a *app) nodeGrant() *cobra.Command {
	return &cobra.Command{
		Use:   "grant NODE PROVIDER ROLE",
		Short: "Make a node a login role of its own at a provider",
		Long: `Make a node a login role of its own at a provider, as a member of ROLE. Files of
its declaration that are "secret" can have it in their template:

  postgres://{{ grant_app_user }}:{{ grant_app_password }}@{{ grant_app_host }}:{{ grant_app_port }}/{{ grant_app_database }}

It ends by itself when the node is disabled, retired, removed or expunged: the
role can log in no more, its connections are cut, and it is dropped. Until the
provider has done so, it is tried again, and "muster node grants" says why.`,
		Example: `  muster node grant 8CX2P53 app app_readwrite`,
		Args:    names("NODE", "PROVIDER", "ROLE"), ValidArgsFunction: a.completeWith(machineWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			n, err := node(c.Context(), f, args[0])
			if err != nil {
				return err
			}
			g, err := f.GrantNode(c.Context(), n.ID, muster.NewGrant{Provider: args[1], MemberOf: args[2]})
			if err != nil {
				return err
			}
			return a.show(g, func(w io.Writer) {
				fmt.Fprintf(w, "%s (%s) gets the role %s at %s\n", n.ID, dash(n.Hostname), said(g.Name), said(g.Provider))
				fmt.Fprintf(a.stderr, "whether it is there: muster node grants %s\n", n.ID)
			})
		}),
	}
}

func (a *app) nodeRevoke() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke NODE PROVIDER",
		Short:   "End what a node may use at a provider",
		Example: `  muster node revoke 8CX2P53 app`,
		Args:    names("NODE", "PROVIDER"), ValidArgsFunction: a.completeWith(machineWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			n, err := node(c.Context(), f, args[0])
			if err != nil {
				return err
			}
			g, err := f.RevokeGrant(c.Context(), n.ID, args[1])
			if err != nil {
				return err
			}
			return a.show(g, func(w io.Writer) {
				fmt.Fprintf(w, "the role %s of %s at %s is being ended\n", said(g.Name), n.ID, said(g.Provider))
				fmt.Fprintf(a.stderr, "whether it is over: muster node grants %s\n", n.ID)
			})
		}),
	}
}

func (a *app) nodeGrants() *cobra.Command {
	return &cobra.Command{
		Use:   "grants NODE",
		Short: "List what a node may use, and what it might",
		Long: `List what a node may use, and what it might: its agent key and its link, which
end at once with its registration, and what it was granted at providers. What is
"revoking" is not over yet: the provider did not answer so far.`,
		Example:           `  muster node grants 8CX2P53`,
		Args:              names("NODE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, node, func(c *cobra.Command, f fleet, n muster.Node) error {
			gs, err := f.NodeGrants(c.Context(), n.ID)
			if err != nil {
				return err
			}
			return a.show(list(gs), func(w io.Writer) {
				rows := make([][]string, len(gs))
				for i, g := range gs {
					why := "-"
					if g.Error != "" {
						why = fmt.Sprintf("tried %d times: %s", g.Tries, said(g.Error))
					}
					rows[i] = []string{said(g.Provider), dash(said(g.Name)), dash(said(g.MemberOf)), string(g.State), a.ago(&g.ChangedAt), why}
				}
				grid(w, []string{"PROVIDER", "NAME", "MEMBER OF", "STATE", "SINCE", "WHY"}, rows)
			})
		}),
	}
}
