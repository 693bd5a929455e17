package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	muster "muster.internal"
)

func (a *app) nodeInventory() *cobra.Command {
	var history, diff bool
	var numbers [2]int64
	c := &cobra.Command{
		Use:   "inventory NODE [FROM TO]",
		Short: "Show what a node's machine is made of, and what changed of it",
		Long: `Show what a node's machine is made of, as its host said last: firmware,
processors, memory modules by slot, network cards, disks by slot. Firmware below a
stated minimum is warned of (muster firmware minimum).

Each time that something is otherwise makes a collection, with the next number.
--history lists those that are kept. --diff says what came, went and moved between
two of them (the last two, or those whose numbers are given), and for a disk, which
machine it went to or came from.`,
		Example: `  muster node inventory 8CX2P53
  muster node inventory 8CX2P53 --history
  muster node inventory 8CX2P53 --diff
  muster node inventory 8CX2P53 --diff 3 7`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 3 {
				return names("NODE")(c, args)
			}
			for i, word := range args[1:] {
				n, err := strconv.ParseInt(word, 10, 64)
				if err != nil || n < 1 || n > maxSeq {
					return usagef("%q is not the number of a collection (muster node inventory %s --history)", word, args[0])
				}
				numbers[i] = n
			}
			return nil
		},
		ValidArgsFunction: a.completeWith(machineWords),
		PreRunE: func(c *cobra.Command, args []string) error {
			if history && diff || len(args) > 1 && !diff {
				return usagef("--history and --diff exclude each other, and numbers go with --diff")
			}
			return nil
		},
		RunE: on(a, node, func(c *cobra.Command, f fleet, n muster.Node) error {
			switch {
			case history:
				cs, err := f.NodeInventories(c.Context(), n.ID)
				if err != nil {
					return err
				}
				return a.show(list(cs), func(w io.Writer) { a.drawCollections(w, cs) })
			case diff:
				d, err := f.DiffInventory(c.Context(), n.ID, numbers[0], numbers[1])
				if err != nil {
					return err
				}
				return a.show(d, func(w io.Writer) { a.drawHardwareDiff(w, d) })
			}
			col, err := f.NodeInventory(c.Context(), n.ID, 0)
			if err != nil {
				return err
			}
			return a.show(col, func(w io.Writer) { a.drawInventory(w, col) })
		}),
	}
	c.Flags().BoolVar(&history, "history", false, "list the collections that are kept")
	c.Flags().BoolVar(&diff, "diff", false, "what differs between two collections")
	return c
}

func (a *app) drawCollections(w io.Writer, cs []muster.Collection) {
	rows := make([][]string, len(cs))
	for i, c := range cs {
		rows[i] = []string{fmt.Sprint(c.Number), a.ago(&c.CollectedAt), said(string(c.Source)), dash(c.NodeID)}
	}
	grid(w, []string{"NUMBER", "COLLECTED", "BY", "NODE"}, rows)
}

func (a *app) drawInventory(w io.Writer, c muster.Collection) {
	h := c.Hardware
	a.fields(w, "collection", fmt.Sprintf("%d, by %s, %s", c.Number, c.Source, a.ago(&c.CollectedAt)), "machine", c.ServerUUID,
		"product", said(strings.TrimSpace(h.Vendor+" "+h.Product)), "serial", said(h.Serial),
		"firmware", said(strings.TrimSpace(h.BIOS.Vendor+" "+h.BIOS.Version+" "+h.BIOS.Date)), "memory", memorySize(h.MemoryMiB))
	for _, p := range h.CPUs {
		fmt.Fprintf(w, "processor %s\n", said(strings.Join(strings.Fields(fmt.Sprintf("%s %s, %s", p.Socket, cmp.Or(p.Model, "of unknown kind"), threads(p))), " ")))
	}
	var rows [][]string
	for _, d := range h.DIMMs {
		rows = append(rows, []string{dash(d.Slot), fmt.Sprintf("%d MiB", d.SizeMiB), dash(d.Vendor), dash(d.Part), dash(d.Serial)})
	}
	section(w, []string{"MEMORY SLOT", "SIZE", "VENDOR", "PART", "SERIAL"}, rows)
	rows = nil
	for _, n := range h.NICs {
		rows = append(rows, []string{n.MAC, dash(n.Name), dash(n.Part), dash(n.Driver), dash(n.Firmware), dash(strings.Join(n.Tags, " "))})
	}
	section(w, []string{"CARD", "INTERFACE", "PART", "DRIVER", "FIRMWARE", "TAGS"}, rows)
	rows = nil
	for _, d := range h.Disks {
		rows = append(rows, []string{dash(d.Path), dash(d.Slot), dash(strings.TrimSpace(d.Vendor + " " + d.Model)), dash(d.Serial), size(d.Size), dash(d.Firmware), dash(holds(d.Disk))})
	}
	section(w, []string{"DISK", "SLOT", "PART", "SERIAL", "SIZE", "FIRMWARE", "HOLDS"}, rows)
	for _, f := range h.Foreign {
		a.warn(w, "%s %s runs here and is not muster's", said(f.Kind), said(f.Name))
	}
	for _, warning := range c.Warnings {
		a.warn(w, "%s", said(warning))
	}
}

func memorySize(mib int64) string {
	if mib == 0 {
		return ""
	}
	return fmt.Sprintf("%d MiB", mib)
}

func threads(c muster.CPU) string {
	if c.Cores == 0 {
		return fmt.Sprintf("%d threads", c.Threads)
	}
	return fmt.Sprintf("%d cores, %d threads", c.Cores, c.Threads)
}

// holds is what is on a disk.
func holds(d muster.Disk) string {
	var words []string
	for _, c := range d.Contents {
		words = append(words, strings.TrimSpace(c.Kind+" "+c.Name))
	}
	return strings.Join(words, ", ")
}

// section is a grid below something else, if it has a row.
func section(w io.Writer, header []string, rows [][]string) {
	if len(rows) > 0 {
		fmt.Fprintln(w)
		grid(w, header, rows)
	}
}

func (a *app) drawHardwareDiff(w io.Writer, d muster.HardwareDiff) {
	fmt.Fprintf(w, "from collection %d (%s) to %d (%s)\n", d.From.Number, a.ago(&d.From.CollectedAt), d.To.Number, a.ago(&d.To.CollectedAt))
	if len(d.Changes) == 0 {
		fmt.Fprintln(w, "nothing differs")
	}
	for _, c := range d.Changes {
		name := said(c.Part + " " + c.Name)
		switch c.Change {
		case "added":
			fmt.Fprintf(w, "%s %s%s%s\n", a.paint(green, "+"), name, at(" at ", c.To), a.whence(c))
		case "removed":
			fmt.Fprintf(w, "%s %s%s%s\n", a.paint(red, "-"), name, at(", which was at ", c.From), a.whence(c))
		case "moved":
			fmt.Fprintf(w, "%s %s moved from %s to %s\n", a.paint(yellow, "~"), name, dash(c.From), dash(c.To))
		default:
			fmt.Fprintf(w, "%s %s: %s %s -> %s\n", a.paint(yellow, "~"), name, said(c.Field), dash(c.From), dash(c.To))
		}
	}
}

func at(word, place string) string {
	if place == "" {
		return ""
	}
	return word + said(place)
}

// whence says where a disk is now, or was before.
func (a *app) whence(c muster.HardwareChange) string {
	e := c.Elsewhere
	if e == nil {
		return ""
	}
	name := said(cmp.Or(e.Hostname, e.NodeID, e.ServerUUID))
	switch {
	case e.Until == nil && c.Change == "removed":
		return "; it is in " + name + " now" + at(", at ", e.Slot)
	case e.Until == nil:
		return "; it was in " + name + ", which has not said that it went"
	case c.Change == "removed":
		return "; it was in " + name + " until " + a.ago(e.Until)
	}
	return "; it came from " + name + ", where it was until " + a.ago(e.Until)
}

func (a *app) diskAdopt() *cobra.Command {
	return &cobra.Command{
		Use:   "adopt NODE DISK",
		Short: "Take a disk that a node's inventory shows into the fleet",
		Long: `Take a disk that a node's inventory shows into the fleet: from then on something
can be placed on it. DISK is its serial number, WWN or path; "muster disk ls
--unadopted" lists them. One that was decommissioned comes back as a new disk.

A disk that holds a pool, a file system or anything else is refused, whosever it
is: look at it, and empty it first. So is one that is in service at another node.
"muster policy set --adopt-disks auto" adopts disks by themselves that are empty
and never were adopted at that node before.`,
		Example: `  muster disk adopt 8CX2P53 S4EVNX0R`,
		Args:    names("NODE", "DISK"), ValidArgsFunction: a.completeWith(machineWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			n, err := node(c.Context(), f, args[0])
			if err != nil {
				return err
			}
			d, err := f.AdoptDisk(c.Context(), n.ID, muster.AdoptDisk{Disk: args[1]})
			if err != nil {
				return err
			}
			return a.show(d, func(w io.Writer) {
				fmt.Fprintf(w, "disk %s (%s) of %s is adopted\n", d.ID, dash(d.Disk.Serial), dash(n.Hostname))
				for _, warning := range d.Warnings {
					a.warn(w, "%s", said(warning))
				}
			})
		}),
	}
}

func (a *app) drawUnadoptedDisks(w io.Writer, ds []muster.UnadoptedDisk) {
	if len(ds) == 0 {
		fmt.Fprintln(a.stderr, "every disk that a node's host sees is adopted")
		return
	}
	rows := make([][]string, len(ds))
	for i, u := range ds {
		next := "muster disk adopt " + cmp.Or(u.Hostname, u.NodeID) + " " + cmp.Or(u.Disk.Serial, u.Disk.WWN)
		if u.Before != "" {
			next = "was disk " + u.Before + "; " + next
		}
		if u.Refused != "" {
			next = "refused: " + u.Refused
		}
		rows[i] = []string{dash(cmp.Or(u.Hostname, u.NodeID)), dash(u.Disk.Path), dash(u.Disk.Vendor), dash(u.Disk.Model), dash(u.Disk.Serial), size(u.Disk.Size), said(next)}
	}
	grid(w, []string{"NODE", "PATH", "VENDOR", "PART", "SERIAL", "SIZE", "NEXT"}, rows)
}

func (a *app) drawUnadoptedMachines(w io.Writer, ms []muster.UnadoptedMachine) {
	if len(ms) == 0 {
		fmt.Fprintln(a.stderr, "every machine that is known is of the fleet")
		return
	}
	rows := make([][]string, len(ms))
	for i, m := range ms {
		rows[i] = []string{dash(m.Vendor), dash(m.Part), dash(m.Serial), m.ServerUUID, said(m.State), a.ago(&m.LastSeen), said(m.Next)}
	}
	grid(w, []string{"VENDOR", "PART", "SERIAL", "UUID", "STATE", "SEEN", "NEXT"}, rows)
}

func (a *app) firmwareCmd() *cobra.Command {
	return group("firmware", "Firmware: the versions that there should be at least",
		`Firmware below a stated minimum is warned of where a disk or machine is adopted, and
in "muster node inventory". Versions are compared part by part, digits as numbers.`,
		group("minimum", "State the least version of a part's firmware",
			`VENDOR and PART are as the inventory has them: a disk's vendor and model, a network
card's PCI vendor and device (8086 8086:1521), a machine's vendor and product for
its BIOS. A vendor that the inventory does not have is -.`,
			a.firmwareSet(), a.firmwareLs(), a.firmwareRm()))
}

func (a *app) firmwareSet() *cobra.Command {
	return &cobra.Command{
		Use:     "set VENDOR PART VERSION",
		Short:   "State the least version",
		Example: `  muster firmware minimum set "Dell Inc." "PowerEdge R640" 2.10.0`,
		Args:    names("VENDOR", "PART", "VERSION"),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			m, err := f.SetFirmwareMinimum(c.Context(), muster.FirmwareMinimum{Vendor: vendor(args[0]), Part: args[1], Version: args[2]})
			if err != nil {
				return err
			}
			return a.show(m, func(w io.Writer) {
				fmt.Fprintf(w, "firmware of %s below %s is warned of\n", said(strings.TrimSpace(m.Vendor+" "+m.Part)), said(m.Version))
			})
		}),
	}
}

func vendor(word string) string {
	if word == "-" {
		return ""
	}
	return word
}

func (a *app) firmwareLs() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List what is stated",
		Example: `  muster firmware minimum ls`,
		Args:    names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			ms, err := f.FirmwareMinimums(c.Context())
			if err != nil {
				return err
			}
			return a.show(list(ms), func(w io.Writer) {
				rows := make([][]string, len(ms))
				for i, m := range ms {
					rows[i] = []string{dash(m.Vendor), said(m.Part), said(m.Version), a.ago(&m.SetAt), said(m.SetBy)}
				}
				grid(w, []string{"VENDOR", "PART", "MINIMUM", "SET", "BY"}, rows)
			})
		}),
	}
}

func (a *app) firmwareRm() *cobra.Command {
	return &cobra.Command{
		Use:     "rm VENDOR PART",
		Short:   "State none any more",
		Example: `  muster firmware minimum rm "Dell Inc." "PowerEdge R640"`,
		Args:    names("VENDOR", "PART"),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			if err := f.RemoveFirmwareMinimum(c.Context(), vendor(args[0]), args[1]); err != nil {
				return err
			}
			return a.show(map[string]string{"vendor": args[0], "part": args[1]}, func(w io.Writer) {
				fmt.Fprintf(w, "no minimum is stated for %s any more\n", said(strings.TrimSpace(args[0]+" "+args[1])))
			})
		}),
	}
}
