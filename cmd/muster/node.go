package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func (a *app) nodeCmd() *cobra.Command {
	return group("node", "Nodes: machines that belong to the fleet", "", a.nodeLs())
}

func (a *app) nodeLs() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List nodes",
		Example: `  muster node ls`,
		Args:    names(),
		RunE: func(c *cobra.Command, _ []string) error {
			f, err := a.fleet()
			if err != nil {
				return err
			}
			ns, err := f.Nodes(c.Context())
			if err != nil {
				return err
			}
			return a.show(list(ns), func(w io.Writer) {
				if len(ns) == 0 {
					fmt.Fprintln(a.stderr, "the fleet has no node")
					return
				}
				uuids := make([]string, len(ns))
				for i, n := range ns {
					uuids[i] = n.ServerUUID
				}
				short := brief(uuids)
				rows := make([][]string, len(ns))
				for i, n := range ns {
					rows[i] = []string{n.ID, dash(n.Hostname), short(n.ServerUUID), said(string(n.Policy)), said(string(n.State)), a.ago(n.LastSeen)}
				}
				grid(w, []string{"NODE", "HOST", "UUID", "POLICY", "STATE", "SEEN"}, rows)
			})
		},
	}
}

func (a *app) booterCmd() *cobra.Command {
	return group("booter", "Booters: who serves DHCP, boot files and the boot bus", "", a.booterLs())
}

func (a *app) booterLs() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List booters, what they have staged and how far they follow",
		Example: `  muster booter ls`,
		Args:    names(),
		RunE: func(c *cobra.Command, _ []string) error {
			f, err := a.fleet()
			if err != nil {
				return err
			}
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
					rows[i] = []string{dash(b.Booter), fmt.Sprint(b.Seq), fmt.Sprint(len(b.Staged)), a.ago(b.LastSeen)}
				}
				grid(w, []string{"BOOTER", "FOLLOWED TO", "STAGED IMAGES", "SEEN"}, rows)
				for _, b := range bs {
					for _, e := range b.Errors {
						a.warn(w, "%s: %s", said(b.Booter), said(e))
					}
				}
			})
		},
	}
}
