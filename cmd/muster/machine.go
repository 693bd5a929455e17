package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	muster "muster.internal"
	"muster.internal/inventory"
	"muster.internal/lifecycle"
)

func (a *app) machineCmd() *cobra.Command {
	return group("machine", "Machines: which hardware is which, and who waits in conflict",
		machineLong(), a.machineLs(), a.machineShow(), a.machineNote(),
		a.machineRaise("accept", "It is the known machine: take its new evidence in",
			"  muster machine accept 52:54:00:77:00:66"),
		a.machineRaise("separate", "It is another machine: let it in under a UUID of its own",
			"  muster machine separate 52:54:00:77:00:66"),
		a.machineRaise("move-nic", "The network card is in this machine now: take it from the other",
			"  muster machine move-nic 52:54:00:77:00:66"),
		a.machineRaise("forget", "Drop a newcomer; it waits again if it comes again",
			"  muster machine forget 52:54:00:77:00:66"),
		a.sharedCmd())
}

// machineLong is drawn from the table that refusals go by.
func machineLong() string {
	b := new(strings.Builder)
	b.WriteString(`A machine is known by its registration. A newcomer whose evidence (UUID, serial
number, MAC addresses, disks) is, in part, another machine's has none, and waits:
nothing of the other one changes. What is odd has a case, and each case the verbs
that resolve it, the likeliest first:

`)
	for _, c := range inventory.Cases {
		fmt.Fprintf(b, "  %-15s %s\n  %-15s   -> %s\n", c.Case, c.Looks, "", strings.Join(c.Verbs, ", "))
	}
	b.WriteString(`
MACHINE is a machine id or its beginning, a UUID, a serial number or a MAC
address. A newcomer that nobody resolves is forgotten after a day of silence.`)
	return b.String()
}

// hardware finds the machine that ref names. Newcomers win over those that are
// known: a verb about evidence is about who waits.
func hardware(ctx context.Context, f muster.Fleet, ref string) (muster.Machine, error) {
	ms, err := allMachines(ctx, f, "")
	if err != nil {
		return muster.Machine{}, err
	}
	low := strings.ToLower(strings.TrimSpace(ref))
	mac, _ := muster.ParseMAC(ref)
	uuid, _ := muster.ParseUUID(ref)
	var found []muster.Machine
	for _, m := range ms {
		if m.ID == low || len(low) >= 8 && strings.HasPrefix(m.ID, low) || uuid != "" && muster.SameUUID(m.UUID, uuid) || len(low) >= 8 && strings.HasPrefix(m.UUID, low) ||
			low != "" && strings.ToLower(m.Serial) == low || mac != "" && (m.BootMAC == mac || slices.Contains(m.MACs, mac)) {
			found = append(found, m)
		}
	}
	if waiting := slices.DeleteFunc(slices.Clone(found), func(m muster.Machine) bool { return m.State != muster.MachineConflict }); len(waiting) > 0 && len(found) > 1 {
		found = waiting
	}
	switch len(found) {
	case 1:
		return f.Machine(ctx, found[0].ID)
	case 0:
		return muster.Machine{}, &hinted{
			err:  muster.Problemf(muster.CodeNotFound, "no machine has id, UUID, serial number or MAC address %q", ref),
			hint: "muster machine ls shows who is known and who waits",
		}
	}
	var ids []string
	for _, m := range found {
		ids = append(ids, m.ID)
	}
	return muster.Machine{}, usagef("%q names %d machines: %s", ref, len(found), strings.Join(ids, ", "))
}

func (a *app) machineLs() *cobra.Command {
	var state string
	var unadopted bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "List machines; --state conflict shows who waits",
		Example: `  muster machine ls
  muster machine ls --state conflict
  muster machine ls --unadopted`,
		Args: names(),
		PreRunE: func(*cobra.Command, []string) error {
			if unadopted && state != "" {
				return usagef("--unadopted and --state exclude each other")
			}
			return nil
		},
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			if unadopted {
				ms, err := f.UnadoptedMachines(c.Context())
				if err != nil {
					return err
				}
				return a.show(list(ms), func(w io.Writer) { a.drawUnadoptedMachines(w, ms) })
			}
			ms, err := allMachines(c.Context(), f, muster.MachineState(state))
			if err != nil {
				return err
			}
			return a.show(list(ms), func(w io.Writer) {
				if len(ms) == 0 {
					fmt.Fprintln(a.stderr, "no machine is known, and none waits")
					return
				}
				rows := make([][]string, len(ms))
				for i, m := range ms {
					rows[i] = []string{m.ID, a.machineState(m.State), m.UUID, dash(m.Serial), dash(first(m.BootMAC, strings.Join(m.MACs, " "))),
						dash(m.Case), dash(strings.Join(m.Verbs, ", ")), a.ago(&m.LastSeen)}
				}
				grid(w, []string{"MACHINE", "STATE", "UUID", "SERIAL", "MAC", "CASE", "WHAT TO DO", "SEEN"}, rows)
			})
		}),
	}
	c.Flags().StringVar(&state, "state", "", "only machines in this state")
	c.Flags().BoolVar(&unadopted, "unadopted", false, "those that are known and not of the fleet, by vendor, part and serial number")
	a.complete(c, "state", states(muster.MachineStates)...)
	return c
}

func (a *app) machineState(s muster.MachineState) string {
	if s == muster.MachineConflict {
		return a.paint(yellow, string(s))
	}
	return said(string(s))
}

func (a *app) machineShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show MACHINE",
		Short: "Show a machine's evidence, what is odd about it and what to do",
		Example: `  muster machine show 52:54:00:77:00:66
  muster machine show 019add0c`,
		Args:              names("MACHINE"),
		ValidArgsFunction: a.completeWith(hardwareWords),
		RunE: on(a, hardware, func(c *cobra.Command, f fleet, m muster.Machine) error {
			return a.show(m, func(w io.Writer) { a.drawMachine(w, m) })
		}),
	}
}

func (a *app) drawMachine(w io.Writer, m muster.Machine) {
	a.fields(w,
		"machine", m.ID,
		"state", a.machineState(m.State),
		"registration", m.ServerUUID,
		"conflict with", m.Incumbent,
		"uuid", m.UUID,
		"serial", said(m.Serial),
		"product", said(m.Product),
		"mac", strings.Join(m.MACs, ", "),
		"came by", said(strings.TrimSpace(m.BootMAC+" "+m.Source)),
		"disks", said(strings.Join(m.Disks, ", ")),
		"key", said(m.KeyID),
		"case", m.Case,
		"reason", said(m.Reason),
		"seen", a.ago(&m.LastSeen),
		"newcomers", strings.Join(m.Newcomers, ", "),
		"note", said(m.Note),
	)
	for _, v := range m.Verbs {
		fmt.Fprintf(w, "muster machine %s %s\n", v, m.ID)
	}
}

func (a *app) machineRaise(verb, shortHelp, example string) *cobra.Command {
	e := raises(lifecycle.Machines, verb)
	return &cobra.Command{
		Use:               verb + " MACHINE",
		Short:             shortHelp,
		Example:           example,
		Args:              names("MACHINE"),
		ValidArgsFunction: a.completeWith(hardwareWords),
		RunE: on(a, hardware, func(c *cobra.Command, f fleet, m muster.Machine) error {
			m, err := f.RaiseMachine(c.Context(), m.ID, e)
			if err != nil {
				return err
			}
			return a.show(m, func(w io.Writer) { fmt.Fprintf(w, "%s: %s\n", m.ID, said(first(m.Reason, "done"))) })
		}),
	}
}

func hardwareWords(ctx context.Context, f fleet) ([]string, error) {
	ms, err := allMachines(ctx, f, "")
	var words []string
	for _, m := range ms {
		words = append(words, m.ID+"\t"+said(strings.TrimSpace(m.Serial+" "+string(m.State)+" "+m.Case)))
	}
	return words, err
}

func (a *app) sharedCmd() *cobra.Command {
	return group("shared", "Values that many machines have, and that are no evidence",
		`UUIDs that a vendor puts on every board, placeholders for serial numbers, and MAC
addresses of docks and dongles that are passed around: they never tell which
machine this is. Some come with muster; add those of your own. A MAC address may
be a beginning: 00:50:b6 stands for every one that begins so.`,
		a.sharedLs(), a.sharedAdd(), a.sharedRm())
}

func (a *app) sharedLs() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List shared UUIDs, serial numbers and MAC addresses",
		Example: `  muster machine shared ls`,
		Args:    names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			ss, err := f.SharedIdentities(c.Context())
			if err != nil {
				return err
			}
			return a.show(list(ss), func(w io.Writer) {
				rows := make([][]string, len(ss))
				for i, s := range ss {
					rows[i] = []string{string(s.Kind), said(s.Value), dash(s.Vendor), dash(s.Comment), first(said(s.AddedBy), "muster")}
				}
				grid(w, []string{"KIND", "VALUE", "VENDOR", "COMMENT", "BY"}, rows)
			})
		}),
	}
}

func (a *app) sharedAdd() *cobra.Command {
	var s muster.SharedIdentity
	c := &cobra.Command{
		Use:   "add uuid|serial|mac VALUE",
		Short: "Say that a value is on many machines",
		Example: `  muster machine shared add mac 00:e0:4c:36:12:ab --comment "the dongle of rack 3"
  muster machine shared add uuid 03000200-0400-0500-0006-000700080009 --vendor Acme`,
		Args: names("KIND", "VALUE"),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			s.Kind, s.Value = muster.SharedKind(args[0]), args[1]
			got, err := f.AddSharedIdentity(c.Context(), s)
			if err != nil {
				return err
			}
			return a.show(got, func(w io.Writer) { fmt.Fprintf(w, "%s %s is no evidence any more\n", got.Kind, said(got.Value)) })
		}),
	}
	c.Flags().StringVar(&s.Vendor, "vendor", "", "whose boards or adapters have it")
	c.Flags().StringVar(&s.Comment, "comment", "", "where that is known from")
	return c
}

func (a *app) sharedRm() *cobra.Command {
	return &cobra.Command{
		Use:     "rm uuid|serial|mac VALUE",
		Short:   "Make a value that an operator added evidence again",
		Example: `  muster machine shared rm mac 00:e0:4c:36:12:ab`,
		Args:    names("KIND", "VALUE"),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			if err := f.RemoveSharedIdentity(c.Context(), muster.SharedKind(args[0]), args[1]); err != nil {
				return err
			}
			return a.show(struct{}{}, func(w io.Writer) { fmt.Fprintf(w, "%s %s is evidence\n", said(args[0]), said(args[1])) })
		}),
	}
}
