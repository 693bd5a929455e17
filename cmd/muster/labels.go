package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	muster "muster.internal"
	"muster.internal/module"
)

// labelWords reads key=value, which sets a label, and key-, which removes one.
func labelWords(words []string) (c muster.LabelChange, err error) {
	c.Set = map[string]string{}
	for _, w := range words {
		key, value, set := strings.Cut(w, "=")
		if !set {
			bare, removes := strings.CutSuffix(w, "-")
			if !removes || bare == "" {
				return c, usagef("%q is neither key=value, which sets a label, nor key-, which removes one", w)
			}
			c.Remove = append(c.Remove, bare)
			continue
		}
		if had, twice := c.Set[key]; twice && had != value {
			return c, usagef("label %q is given two values", key)
		}
		c.Set[key] = value
	}
	return c, nil
}

// labelText is every label as key=value, by key.
func labelText(labels map[string]string) string {
	words := make([]string, 0, len(labels))
	for _, key := range sortedKeys(labels) {
		words = append(words, key+"="+labels[key])
	}
	return strings.Join(words, " ")
}

// selected reads --label flags: what is listed must have all of them.
func selected(words []string) (map[string]string, error) {
	want := map[string]string{}
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok || key == "" || value == "" {
			return nil, usagef("--label %s: it is key=value", w)
		}
		if had, twice := want[key]; twice && had != value {
			return nil, usagef("--label %s: nothing has two values of one label", w)
		}
		want[key] = value
	}
	return want, nil
}

// labelUse checks the arguments of a command that labels.
func labelUse(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < 2 {
			return names(what, "KEY=VALUE")(c, args)
		}
		_, err := labelWords(args[1:])
		return err
	}
}

func (a *app) nodeLabel() *cobra.Command {
	return &cobra.Command{
		Use:   "label NODE KEY=VALUE [KEY-]...",
		Short: "Set and remove labels of a node",
		Long: `Set and remove labels of a node: KEY=VALUE sets one, KEY- removes it, all of them
or none. Replicas are spread over the values of a label such as rack, and modules
select nodes by theirs; what is placed moves only by the next plan. A label says
what no program finds out: rack, row, power feed, owner.`,
		Example: `  muster node label 8CX2P53 rack=r1 power=a
  muster node label 8CX2P53 rack=r2 power-
  muster node ls --label rack=r2`,
		Args:              labelUse("NODE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			n, err := node(c.Context(), f, args[0])
			if err != nil {
				return err
			}
			change, err := labelWords(args[1:])
			if err != nil {
				return err
			}
			if n, err = f.LabelNode(c.Context(), n.ID, change); err != nil {
				return err
			}
			return a.show(n, func(w io.Writer) {
				fmt.Fprintf(w, "%s (%s) has the labels: %s\n", n.ID, dash(n.Hostname), dash(labelText(n.Labels)))
			})
		}),
	}
}

func (a *app) diskLabel() *cobra.Command {
	return &cobra.Command{
		Use:   "label DISK KEY=VALUE [KEY-]...",
		Short: "Set and remove labels of a disk",
		Long: `Set and remove labels of a disk: KEY=VALUE sets one, KEY- removes it, all of them
or none. Modules that place something on each disk select them by labels.`,
		Example: `  muster disk label S4EVNX0R class=fast
  muster disk label S4EVNX0R class-`,
		Args:              labelUse("DISK"),
		ValidArgsFunction: a.completeWith(diskWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			d, err := disk(c.Context(), f, args[0])
			if err != nil {
				return err
			}
			change, err := labelWords(args[1:])
			if err != nil {
				return err
			}
			if d, err = f.LabelDisk(c.Context(), d.ID, change); err != nil {
				return err
			}
			return a.show(d, func(w io.Writer) {
				fmt.Fprintf(w, "disk %s (%s) has the labels: %s\n", d.ID, dash(d.Disk.Serial), dash(labelText(d.Labels)))
			})
		}),
	}
}

func (a *app) nodeReservoir() *cobra.Command {
	var r module.Capacity
	var none bool
	c := &cobra.Command{
		Use:   "reservoir NODE",
		Short: "Hold capacity of a node back from every placement",
		Long: `Hold capacity of a node back: the planner gives it to nobody. Each kind that is
not named becomes 0. What is placed already stays, though it may be more than is
left now; nothing new lands there then.`,
		Example: `  muster node reservoir 8CX2P53 --cpu-millis 2000 --memory-mib 8192
  muster node reservoir 8CX2P53 --clear`,
		Args:              names("NODE"),
		ValidArgsFunction: a.completeWith(machineWords),
		PreRunE: func(*cobra.Command, []string) error {
			if none == (r != module.Capacity{}) {
				return usagef("say what is held back (--cpu-millis, --memory-mib, --disk-mib), or --clear")
			}
			return nil
		},
		RunE: on(a, node, func(c *cobra.Command, f fleet, n muster.Node) error {
			n, err := f.SetReservoir(c.Context(), n.ID, r)
			if err != nil {
				return err
			}
			return a.show(n, func(w io.Writer) {
				fmt.Fprintf(w, "%s (%s) holds back: %s\n", n.ID, dash(n.Hostname), first(capacity(n.Reservoir), "nothing"))
			})
		}),
	}
	const most = 1 << 50
	numberVar(c.Flags(), &r.CPUMillis, "cpu-millis", 0, 0, most, "thousandths of a processor")
	numberVar(c.Flags(), &r.MemoryMiB, "memory-mib", 0, 0, most, "memory, in MiB")
	numberVar(c.Flags(), &r.DiskMiB, "disk-mib", 0, 0, most, "room in the node's pool, in MiB")
	c.Flags().BoolVar(&none, "clear", false, "hold nothing back any more")
	return c
}

// capacity says what there is of a node itself; empty: nothing.
func capacity(c module.Capacity) string {
	var words []string
	if c.CPUMillis > 0 {
		words = append(words, fmt.Sprintf("%d.%03d processors", c.CPUMillis/1000, c.CPUMillis%1000))
	}
	if c.MemoryMiB > 0 {
		words = append(words, fmt.Sprintf("%d MiB of memory", c.MemoryMiB))
	}
	if c.DiskMiB > 0 {
		words = append(words, fmt.Sprintf("%d MiB of the pool", c.DiskMiB))
	}
	return strings.Join(words, ", ")
}

func (a *app) nodeNote() *cobra.Command {
	c := &cobra.Command{
		Use:   "note NODE TEXT",
		Short: "Keep a note on a node, for people",
		Long: `Keep a note on a node: whom to ask, what was repaired, when its warranty ends.
Nothing goes by it. --clear instead of a text removes it.`,
		Example: `  muster node note 8CX2P53 "fan 3 was changed; ask storage before a restart"
  muster node note 8CX2P53 --clear`,
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			n, err := node(c.Context(), f, args[0])
			if err != nil {
				return err
			}
			if n, err = f.NoteNode(c.Context(), n.ID, muster.Note{Note: strings.Join(args[1:], "")}); err != nil {
				return err
			}
			return a.show(n, func(w io.Writer) { fmt.Fprintf(w, "%s (%s): %s\n", n.ID, dash(n.Hostname), noted(n.Note)) })
		}),
	}
	return clearable(c, "NODE")
}

func (a *app) machineNote() *cobra.Command {
	c := &cobra.Command{
		Use:   "note MACHINE TEXT",
		Short: "Keep a note on a machine, for people",
		Long: `Keep a note on a machine, in the fleet or not. Nothing goes by it. --clear instead
of a text removes it.`,
		Example:           `  muster machine note 8CX2P53 "lent by the lab until March"`,
		ValidArgsFunction: a.completeWith(hardwareWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			m, err := hardware(c.Context(), f, args[0])
			if err != nil {
				return err
			}
			if m, err = f.NoteMachine(c.Context(), m.ID, muster.Note{Note: strings.Join(args[1:], "")}); err != nil {
				return err
			}
			return a.show(m, func(w io.Writer) { fmt.Fprintf(w, "%s (%s): %s\n", m.ID, dash(m.Serial), noted(m.Note)) })
		}),
	}
	return clearable(c, "MACHINE")
}

// clearable gives a command that keeps a text the flag to keep none.
func clearable(c *cobra.Command, what string) *cobra.Command {
	none := c.Flags().Bool("clear", false, "remove it")
	c.Args = func(c *cobra.Command, args []string) error {
		if *none {
			return names(what)(c, args)
		}
		return names(what, "TEXT")(c, args)
	}
	return c
}

func noted(note string) string {
	if note == "" {
		return "there is no note any more"
	}
	return "noted"
}

// disk finds a disk by its id or the beginning of it, or by its serial number;
// of several, the one that is in service.
func disk(ctx context.Context, f muster.Fleet, ref string) (muster.NodeDisk, error) {
	ds, err := f.Disks(ctx)
	if err != nil {
		return muster.NodeDisk{}, err
	}
	low := strings.ToLower(strings.TrimSpace(ref))
	var found []muster.NodeDisk
	for _, d := range ds {
		if d.ID == low {
			return d, nil
		}
		if low != "" && strings.ToLower(d.Disk.Serial) == low || len(low) >= 8 && strings.HasPrefix(d.ID, low) {
			found = append(found, d)
		}
	}
	if live := slices.DeleteFunc(slices.Clone(found), func(d muster.NodeDisk) bool { return d.State != muster.DiskInService }); len(live) > 0 {
		found = live
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return muster.NodeDisk{}, &hinted{muster.Problemf(muster.CodeNotFound, "no disk of the fleet has the id or serial number %q", ref), "muster disk ls"}
	}
	ids := make([]string, len(found))
	for i, d := range found {
		ids[i] = d.ID
	}
	return muster.NodeDisk{}, usagef("%q names %d disks: %s", ref, len(found), strings.Join(ids, ", "))
}

func diskWords(ctx context.Context, f fleet) ([]string, error) {
	ds, err := f.Disks(ctx)
	var words []string
	for _, d := range ds {
		words = append(words, d.ID+"\t"+said(d.Disk.Describe()))
		if s := d.Disk.Serial; s != "" && !strings.ContainsAny(s, " \t\n") {
			words = append(words, said(s)+"\t"+said(d.Disk.Path))
		}
	}
	return words, err
}

func (a *app) diskLs() *cobra.Command {
	var labels []string
	var all, unadopted bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the disks that the fleet holds, or could",
		Example: `  muster disk ls
  muster disk ls --label class=fast
  muster disk ls --unadopted`,
		Args: names(),
		PreRunE: func(*cobra.Command, []string) error {
			if unadopted && (all || len(labels) > 0) {
				return usagef("--unadopted lists disks that the fleet does not hold: they have no labels")
			}
			return nil
		},
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			if unadopted {
				ds, err := f.UnadoptedDisks(c.Context())
				if err != nil {
					return err
				}
				return a.show(list(ds), func(w io.Writer) { a.drawUnadoptedDisks(w, ds) })
			}
			want, err := selected(labels)
			if err != nil {
				return err
			}
			ds, err := f.Disks(c.Context())
			if err != nil {
				return err
			}
			ds = slices.DeleteFunc(ds, func(d muster.NodeDisk) bool {
				return !module.Selects(want, d.Labels) || !all && d.State == muster.DiskDecommissioned
			})
			return a.show(list(ds), func(w io.Writer) { a.drawFleetDisks(w, ds) })
		}),
	}
	c.Flags().StringArrayVar(&labels, "label", nil, "only disks with this label, as key=value; repeat it for several")
	c.Flags().BoolVar(&all, "all", false, "decommissioned ones, too")
	c.Flags().BoolVar(&unadopted, "unadopted", false, "those that nodes see and the fleet does not hold, instead")
	return c
}

// diskState is a disk's state, and that it is not there.
func (a *app) diskState(d muster.NodeDisk) string {
	if d.MissingSince != nil {
		return a.paint(yellow, "missing since "+a.ago(d.MissingSince))
	}
	return said(string(d.State))
}

func inPool(d muster.NodeDisk) string {
	if d.Member {
		return "member"
	}
	return "-"
}

func (a *app) drawFleetDisks(w io.Writer, ds []muster.NodeDisk) {
	if len(ds) == 0 {
		fmt.Fprintln(a.stderr, "no disk is there")
		return
	}
	rows := make([][]string, len(ds))
	for i, d := range ds {
		rows[i] = []string{d.ID, d.NodeID, dash(d.Disk.Path), dash(d.Disk.Serial), size(d.Disk.Size), inPool(d), said(string(d.Policy)), a.diskState(d), dash(labelText(d.Labels))}
	}
	grid(w, []string{"DISK", "NODE", "PATH", "SERIAL", "SIZE", "POOL", "POLICY", "STATE", "LABELS"}, rows)
	for _, d := range ds {
		a.drawClaims(w, d.Claims)
	}
}
