package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	muster "muster.internal"
)

const windowLong = `A window is a door that stands open for a while, for at most a day and, with
--count, for so many machines.

  auto-approve  machines that register by themselves are approved without a claim
                code, those that wait already when they register again. A machine
                that was ever disabled is not taken.
  enrollment    while the boot policy's auto_enroll is off: new machines may
                announce themselves from the enrollment image. They await their
                setup; a window approves nothing and wipes nothing.`

func (a *app) windowCmd() *cobra.Command {
	return group("window", "Let machines in for a while: auto-approve, enrollment", windowLong,
		a.windowOpen(), a.windowShow(), a.windowClose())
}

func windowKind(s string) (muster.WindowKind, error) {
	for _, k := range muster.WindowKinds {
		if s == string(k) {
			return k, nil
		}
	}
	return "", usagef("there is no window %q: auto-approve or enrollment", s)
}

func windowWords(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return states(muster.WindowKinds), cobra.ShellCompDirectiveNoFileComp
}

func (a *app) windowOpen() *cobra.Command {
	var life lifetime
	var count int
	c := &cobra.Command{
		Use:   "open KIND --for DURATION",
		Short: "Open a window, in place of one that is open",
		Long:  windowLong + "\n\nIt takes an admin in person. A window that is open is replaced.",
		Example: `  muster window open auto-approve --for 2h --count 10
  muster window open enrollment --for 30m`,
		Args: names("KIND"), ValidArgsFunction: windowWords,
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			k, err := windowKind(args[0])
			if err != nil {
				return err
			}
			if life == 0 {
				return usagef("--for is needed: how long, as in 2h (at most 24h)")
			}
			n := muster.NewWindow{Duration: int(life)}
			if c.Flags().Changed("count") {
				n.Count = &count
			}
			w, err := f.OpenWindow(c.Context(), k, n)
			if err != nil {
				return err
			}
			if w.Clamped {
				fmt.Fprintln(a.stderr, "a window is open for 24 hours at most: that is what was set")
			}
			return a.show(w, func(out io.Writer) { fmt.Fprintln(out, a.windowLine(w)) })
		}),
	}
	c.Flags().Var(&life, "for", "how long: 30m, 2h (at most 24h)")
	numberVar(c.Flags(), &count, "count", 0, 1, 1_000_000, "for how many machines (default: as many as come)")
	return c
}

// windowLine says in one line how a window stands.
func (a *app) windowLine(w muster.Window) string {
	b := new(strings.Builder)
	fmt.Fprintf(b, "%s: ", w.Kind)
	if !w.Open {
		b.WriteString("closed")
		switch w.Ended {
		case "":
			return b.String()
		case muster.WindowUsedUp:
			fmt.Fprintf(b, ", its last slot was taken %s", a.ago(w.EndedAt))
		case muster.WindowExpired:
			fmt.Fprintf(b, ", its time was over %s", a.ago(w.EndedAt))
		default:
			fmt.Fprintf(b, " %s", a.ago(w.EndedAt))
		}
		fmt.Fprintf(b, "; %d came in by it (opened by %s)", w.Taken, said(w.OpenedBy))
		return b.String()
	}
	fmt.Fprintf(b, "%s, closes %s", a.paint(green, "open"), a.ago(w.ClosesAt))
	if w.Count != nil && w.Remaining != nil {
		fmt.Fprintf(b, ", %d of %d slots left", *w.Remaining, *w.Count)
	} else {
		fmt.Fprintf(b, ", for as many as come (%d so far)", w.Taken)
	}
	fmt.Fprintf(b, "; opened by %s", said(w.OpenedBy))
	return b.String()
}

func (a *app) windowShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show [KIND]",
		Short:   "Show how the windows stand",
		Example: "  muster window show\n  muster window show auto-approve --output json",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%s: unexpected %q", c.CommandPath(), args[1])
			}
			return nil
		},
		ValidArgsFunction: windowWords,
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			kinds := muster.WindowKinds
			if len(args) == 1 {
				k, err := windowKind(args[0])
				if err != nil {
					return err
				}
				kinds = []muster.WindowKind{k}
			}
			ws := []muster.Window{}
			for _, k := range kinds {
				w, err := f.Window(c.Context(), k)
				if err != nil {
					return err
				}
				ws = append(ws, w)
			}
			var v any = ws
			if len(args) == 1 {
				v = ws[0]
			}
			return a.show(v, func(out io.Writer) {
				for _, w := range ws {
					fmt.Fprintln(out, a.windowLine(w))
				}
			})
		}),
	}
}

func (a *app) windowClose() *cobra.Command {
	return &cobra.Command{
		Use: "close KIND", Short: "Close a window; one that is closed stays closed",
		Example: "  muster window close auto-approve",
		Args:    names("KIND"), ValidArgsFunction: windowWords,
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			k, err := windowKind(args[0])
			if err != nil {
				return err
			}
			if err := f.CloseWindow(c.Context(), k); err != nil {
				return err
			}
			w, err := f.Window(c.Context(), k)
			if err != nil {
				return err
			}
			return a.show(w, func(out io.Writer) { fmt.Fprintln(out, a.windowLine(w)) })
		}),
	}
}
