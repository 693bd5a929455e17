package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func (a *app) bootNetworks() *cobra.Command {
	return &cobra.Command{
		Use:     "networks",
		Short:   "Count the addresses of every admin network",
		Example: `  muster boot networks`,
		Long: `Count the addresses of every admin network: how many may be given out, are
reserved and are free. Unannounced are those that the boot policy reserved for
cards behind which no machine has said who it is; they expire after half an hour
without a sign of life, and leave an eighth of a network (64 addresses at most)
to muster boot enroll.`,
		Args: names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			ns, err := f.NetworkUsage(c.Context())
			if err != nil {
				return err
			}
			return a.show(list(ns), func(w io.Writer) {
				if len(ns) == 0 {
					fmt.Fprintln(a.stderr, "the boot policy has no network: muster policy set --network …")
					return
				}
				rows := make([][]string, len(ns))
				for i, n := range ns {
					rows[i] = []string{said(n.Name), fmt.Sprint(n.Total), fmt.Sprint(n.Used), fmt.Sprint(n.Free),
						fmt.Sprintf("%d of %d", n.Unannounced, n.UnannouncedCap), fmt.Sprint(n.Outside)}
				}
				grid(w, []string{"NETWORK", "ADDRESSES", "USED", "FREE", "UNANNOUNCED", "OUTSIDE"}, rows)
				for _, n := range ns {
					if n.Note != "" {
						a.warn(w, "%s: %s", said(n.Name), said(n.Note))
					}
				}
			})
		}),
	}
}

func (a *app) bootLimits() *cobra.Command {
	return &cobra.Command{
		Use:     "limits",
		Short:   "Show the caps on what nobody approved, and how near they are",
		Example: `  muster boot limits`,
		Args:    names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			ls, err := f.NoiseLimits(c.Context())
			if err != nil {
				return err
			}
			return a.show(list(ls), func(w io.Writer) {
				rows := make([][]string, len(ls))
				for i, l := range ls {
					rows[i] = []string{said(l.Name), dash(l.Booter), fmt.Sprint(l.Used), fmt.Sprint(l.Cap), lasts(l.Expires)}
				}
				grid(w, []string{"WHAT", "BOOTER", "NOW", "AT MOST", "EXPIRES AFTER"}, rows)
				for _, l := range ls {
					if l.Note != "" {
						a.warn(w, "%s: %s", said(l.Name), said(l.Note))
					}
				}
			})
		}),
	}
}

func lasts(seconds int) string {
	switch {
	case seconds%86400 == 0:
		return fmt.Sprintf("%d d", seconds/86400)
	case seconds%3600 == 0:
		return fmt.Sprintf("%d h", seconds/3600)
	}
	return fmt.Sprintf("%d min", seconds/60)
}
