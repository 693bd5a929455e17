package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	muster "muster.internal"
	"muster.internal/lifecycle"
)

func (a *app) registrationCmd() *cobra.Command {
	many := func(c *cobra.Command) *cobra.Command { return a.inBulk(c, "MACHINE", ofRegistrations) }
	c := group("registration", "What the control plane knows of each machine",
		`A registration is what the control plane knows of one machine, by the UUID that
its hardware reports. States: pending (waits for its claim code), awaiting_setup
(announced itself from the enrollment image), setting_up (an approved install
runs), approved (a member of the fleet), disabled.`,
		a.registrationLs(), a.registrationShow(), a.registrationApprove(), a.registrationPlanSetup(),
		a.registrationApproveSetup(), a.registrationWatch(), a.registrationLog(),
		many(a.registrationRaise("cancel-setup", "Give up on the running setup: its key stops working at once",
			`Give up on the setup that runs on a machine: its key stops working at once, and
the machine awaits another approval. A script that has reached the machine is
not stopped, and may still write to the disks that were approved: restart the
machine before you approve again.`,
			"awaits its setup again")),
		many(a.registrationRaise("disable", "Take a machine out: its key stops working at once",
			`Take a machine out of service: its key stops working at once. What runs there is
left running. It comes back by registering again, with a new code or setup.`,
			"is disabled")),
		many(a.registrationFactoryReset()), a.registrationReadmit(), a.registrationRootPassword(), a.registrationRm())
	c.Aliases = []string{"reg"}
	return c
}

func (a *app) registrationLs() *cobra.Command {
	var state string
	c := &cobra.Command{
		Use:   "ls",
		Short: "List machines",
		Example: `  muster registration ls
  muster registration ls --state awaiting_setup
  muster registration ls --output json | jq -r '.[].server_uuid'`,
		Args: names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			rs, err := allRegistrations(c.Context(), f, muster.RegistrationState(state))
			if err != nil {
				return err
			}
			return a.show(list(rs), func(w io.Writer) {
				if len(rs) == 0 {
					if state != "" {
						fmt.Fprintf(a.stderr, "no machine is %s\n", state)
						return
					}
					fmt.Fprintln(a.stderr, "no machine is registered; who has asked to boot, and got nothing: muster boot ls")
					return
				}
				uuids := make([]string, len(rs))
				for i, r := range rs {
					uuids[i] = r.ServerUUID
				}
				short := brief(uuids)
				rows := make([][]string, len(rs))
				for i, r := range rs {
					rows[i] = []string{short(r.ServerUUID), dash(r.Hostname), dash(r.Serial), dash(r.Product),
						a.registrationState(r.State), a.ago(&r.LastSeen), a.concern(r)}
				}
				grid(w, []string{"UUID", "HOST", "SERIAL", "PRODUCT", "STATE", "SEEN", "NOTE"}, rows)
			})
		}),
	}
	c.Flags().StringVar(&state, "state", "", "only machines in this state")
	a.complete(c, "state", states(muster.RegistrationStates)...)
	return c
}

// concern is the one thing about a machine that an operator should know first.
func (a *app) concern(r muster.Registration) string {
	switch {
	case r.Tombstone != nil:
		return a.paint(red, "expunged "+a.ago(&r.Tombstone.At))
	case len(r.Conflicts) > 0:
		return a.paint(red, fmt.Sprintf("%d other machine(s) claim this UUID", len(r.Conflicts)))
	case r.LastSetupError != "":
		return a.paint(red, "setup failed: "+said(r.LastSetupError))
	case r.Away != "":
		return "away: " + said(r.Away)
	case r.State == muster.AwaitingSetup && r.SurveyedAt == nil:
		return "disks not surveyed yet"
	case r.State == muster.SettingUp && r.SetupDeadline != nil:
		return "deadline " + a.ago(r.SetupDeadline)
	case r.ComesAs != nil && r.ComesAs.Outcome == "same_node":
		return "comes back as node " + said(r.ComesAs.NodeID)
	}
	return ""
}

func (a *app) registrationShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show MACHINE",
		Short: "Show one machine: state, setup, disks, conflicts",
		Example: `  muster registration show 8CX2P53
  muster registration show 4c4c4544 --output json`,
		Args:              names("MACHINE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, machine, func(c *cobra.Command, f fleet, r muster.Registration) error {
			return a.show(r, func(w io.Writer) { a.drawRegistration(w, r) })
		}),
	}
}

func (a *app) drawRegistration(w io.Writer, r muster.Registration) {
	when := ""
	if r.SetupDeadline != nil {
		when = a.ago(r.SetupDeadline)
	}
	epoch := ""
	if r.SetupEpoch > 0 {
		epoch = fmt.Sprint(r.SetupEpoch)
	}
	password := ""
	if p := r.RootPassword; p != nil {
		password = fmt.Sprintf("set %s by %s", a.ago(&p.SetAt), said(p.SetBy))
		if p.FetchedAt != nil {
			password += ", booted with " + a.ago(p.FetchedAt)
		}
	}
	a.fields(w,
		"uuid", r.ServerUUID,
		"state", a.registrationState(r.State),
		"host", said(r.Hostname),
		"hardware", said(strings.TrimSpace(r.Manufacturer+" "+r.Product)),
		"serial", said(r.Serial),
		"mac", said(strings.Join(r.MACs, ", ")),
		"away", said(r.Away),
		"came by", string(r.Door),
		"node", r.NodeID,
		"seen", a.ago(&r.LastSeen),
		"key", r.BoundKeyID,
		"setup epoch", epoch,
		"deadline", when,
		"operation", r.OperationID,
		"image", strings.TrimPrefix(imageName(r.AssignedPI), "-"),
		"root password", password,
	)
	a.drawTombstone(w, r.Tombstone)
	if r.ComesAs != nil {
		fmt.Fprintf(w, "%s  %s\n", a.paint(dim, "let in"), said(r.ComesAs.Why))
	}
	if r.LastSetupError != "" {
		fmt.Fprintln(w, a.paint(red, "last setup failed: "+said(r.LastSetupError)))
	}
	for _, x := range r.Conflicts {
		a.warn(w, "%s from %s also claims this UUID: %s", said(x.MAC), dash(x.Source), said(x.Reason))
	}
	if len(r.Disks) > 0 {
		fmt.Fprintln(w)
		a.drawDisks(w, r.Disks, r.ServerUUID)
	} else if r.State == muster.AwaitingSetup {
		fmt.Fprintln(w, "its disks have not been surveyed yet: no approval can be offered")
	}
	if r.State == muster.AwaitingSetup && r.Away != "" {
		fmt.Fprintln(a.stderr, "\nno approval can be given until it is back: it comes by itself, within a minute of its booter, or restart it")
	} else if r.State == muster.AwaitingSetup && r.SurveyedAt != nil {
		fmt.Fprintf(a.stderr, "\nit awaits an approval: muster registration approve-setup %s\n", callable(r))
	}
}

func (a *app) registrationApprove() *cobra.Command {
	return &cobra.Command{
		Use:   "approve CODE",
		Short: "Approve the pending machine that shows this claim code",
		Long: `Approve the pending machine that shows this claim code (XXX-XXX, on its console
and in /var/lib/muster-host/claim-code). The machine fetches its own key; it is
never shown here.`,
		Example: `  muster registration approve K7P-2QX`,
		Args:    names("CODE"),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			code, err := muster.ParseClaimCode(args[0])
			if err != nil {
				return usagef("%v", err)
			}
			r, err := f.ApproveCode(c.Context(), code)
			if err != nil {
				return err
			}
			return a.show(r, func(w io.Writer) { a.said1(w, r, "is approved"+cameAs(r)) })
		}),
	}
}

// cameAs says as what node a machine came in.
func cameAs(r muster.Registration) string {
	if r.ComesAs == nil || r.ComesAs.NodeID == "" {
		return ""
	}
	if r.ComesAs.Outcome == "same_node" {
		return ", as node " + r.ComesAs.NodeID + " again"
	}
	return ", as a new node " + r.ComesAs.NodeID
}

// said1 is the one line that a change answers with.
func (a *app) said1(w io.Writer, r muster.Registration, what string) {
	fmt.Fprintf(w, "%s (%s) %s\n", r.ServerUUID, strings.TrimSpace(said(first(r.Hostname, r.Product)+" "+r.Serial)), what)
}

func (a *app) registrationRaise(verb, shortHelp, long, done string) *cobra.Command {
	e := raises(lifecycle.Registrations, verb)
	return &cobra.Command{
		Use:               verb + " MACHINE",
		Short:             shortHelp,
		Long:              long,
		Example:           "  muster registration " + verb + " 8CX2P53",
		Args:              names("MACHINE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, machine, func(c *cobra.Command, f fleet, r muster.Registration) error {
			r, err := f.RaiseRegistration(c.Context(), r.ServerUUID, e)
			if err != nil {
				return err
			}
			return a.show(r, func(w io.Writer) { a.said1(w, r, done) })
		}),
	}
}

// raises is the event behind a verb. A verb that the rows do not know is a
// mistake in this program.
func raises(on lifecycle.Subject, verb string) muster.Event {
	i, ok := lifecycle.ByVerb(on, verb)
	if !ok {
		must(fmt.Errorf("%s have no event %q", on, verb))
	}
	return i.Event
}

func (a *app) registrationRm() *cobra.Command {
	return &cobra.Command{
		Use:   "rm MACHINE",
		Short: "Forget a machine that is disabled, pending or awaiting setup",
		Long: `Forget a machine that is disabled, pending or awaiting setup: its registration
and keys go, its boot records are decommissioned, the audit stays. A UUID that
is not there is no error.`,
		Example:           `  muster registration rm 4c4c4544-0043-5810-8032-b8c04f503533`,
		Args:              names("MACHINE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, uuidOf, func(c *cobra.Command, f fleet, uuid string) error {
			if err := f.DeleteRegistration(c.Context(), uuid); err != nil {
				return err
			}
			return a.show(map[string]string{"server_uuid": uuid, "deleted": "true"}, func(w io.Writer) {
				fmt.Fprintf(w, "%s is forgotten\n", uuid)
			})
		}),
	}
}
