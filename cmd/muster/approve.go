package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	muster "muster.internal"
)

// approval is the only command that lets disks be destroyed. It never does
// anything before the plan was shown and the machine's serial number was given.
type approval struct {
	setup             setupFlags
	yes, dryRun, wait bool
	serial            string
}

func (a *app) registrationApproveSetup() *cobra.Command {
	var o approval
	c := &cobra.Command{
		Use:   "approve-setup MACHINE",
		Short: "Build the pool and install: destroys what is on the planned disks",
		Long: `Approve the setup of a machine that awaits it. The plan is shown first, disk by
disk, with what is on each and would be lost; then the machine's serial number
is asked for (its UUID when it has none), and nothing happens without it.

The approval is bound to the disks shown: if one differs by then, the machine
refuses. It takes a person: no API key may do this. Scripts pass --yes and
--serial, with an operator's token.`,
		Example: `  # look, confirm, install
  muster registration approve-setup 8CX2P53

  # only look
  muster registration approve-setup 8CX2P53 --dry-run

  # from a script: wait for the end, exit 1 when it failed
  muster registration approve-setup 8CX2P53 --hostname web1 --yes --serial 8CX2P53 --wait`,
		Args:              names("MACHINE"),
		ValidArgsFunction: a.completeWith(machineWords),
		PreRunE:           func(*cobra.Command, []string) error { return o.check() },
		RunE: on(a, machine, func(c *cobra.Command, f fleet, r muster.Registration) error {
			return a.approveSetup(c, f, r, &o)
		}),
	}
	o.setup.bind(a, c)
	f := c.Flags()
	f.BoolVar(&o.dryRun, "dry-run", false, "show the plan and stop")
	f.BoolVar(&o.yes, "yes", false, "do not ask; needs --serial")
	f.StringVar(&o.serial, "serial", "", "the machine's serial number, with --yes")
	f.BoolVar(&o.wait, "wait", false, "wait until the machine is approved or the setup has failed")
	return c
}

func (o *approval) check() error {
	switch {
	case o.yes && o.serial == "":
		return usagef("--yes needs --serial: the machine is named twice, so that a slip destroys nothing")
	case o.serial != "" && !o.yes:
		return usagef("--serial goes with --yes; without them the serial number is asked for")
	case o.dryRun && o.yes:
		return usagef("--dry-run changes nothing and goes without --yes")
	}
	return nil
}

func (a *app) approveSetup(c *cobra.Command, f fleet, r muster.Registration, o *approval) error {
	ctx := c.Context()
	req := o.setup.request(c)
	p, err := f.PlanSetup(ctx, r.ServerUUID, req)
	if err != nil {
		return err
	}
	if o.dryRun {
		return a.show(p, func(w io.Writer) {
			a.drawPlan(w, r, p)
			fmt.Fprintln(w, "\ndry run: nothing was changed")
		})
	}
	// With --output json the plan is for eyes all the same: standard error.
	w := a.stdout
	if a.output == "json" {
		w = a.stderr
	}
	a.drawPlan(w, r, p)
	if r.Away != "" {
		a.warn(a.stderr, "the machine is away, and no approval can be given until it is back: %s", said(r.Away))
	}
	typed, err := a.confirm(ctx, p, o)
	if err != nil {
		return err
	}
	g, err := f.ApproveSetup(ctx, r.ServerUUID, muster.SetupApproval{SetupRequest: req, Plan: p.Digest, Confirm: typed})
	if err != nil {
		return err
	}
	if !o.wait {
		return a.show(g, func(w io.Writer) {
			a.drawGrant(w, g)
			fmt.Fprintf(a.stderr, "how it fares: muster registration watch %s\n", callable(g.Registration))
		})
	}
	a.drawGrant(a.stderr, g)
	fmt.Fprintln(a.stderr, "waiting for its end; ^C ends the waiting, not the setup")
	return a.awaitSetup(ctx, f, g)
}

// confirm returns what names the machine a second time, or refuses.
func (a *app) confirm(ctx context.Context, p muster.SetupPlan, o *approval) (string, error) {
	want, what := p.Serial, "serial number"
	if want == "" {
		want, what = p.ServerUUID, "UUID"
	}
	typed := o.serial
	if !o.yes {
		fmt.Fprintf(a.stderr, "\n%s\ntype the machine's %s to approve, anything else to stop: ",
			a.paint(red, fmt.Sprintf("everything on these %d disks will be destroyed", len(p.Members()))), what)
		var err error
		typed, err = asked(ctx, func() (string, error) { return readLine(a.stdin) })
		if err == errInterrupted {
			fmt.Fprintln(a.stderr)
		}
		if err != nil {
			return "", fmt.Errorf("nothing was changed: the %s was not confirmed (%w)", what, err)
		}
	}
	if typed = strings.TrimSpace(typed); typed != want {
		return "", fmt.Errorf("nothing was changed: %q is not the %s of machine %s", said(typed), what, p.ServerUUID)
	}
	return typed, nil
}

func (a *app) drawGrant(w io.Writer, g muster.SetupGrant) {
	a.said1(w, g.Registration, "is setting up")
	a.fields(w,
		"operation", g.OperationID,
		"epoch", fmt.Sprint(g.Epoch),
		"deadline", fmt.Sprintf("%s (%s)", g.Deadline.UTC().Format(time.RFC3339), a.ago(&g.Deadline)),
	)
}

// pollEvery is how often --wait looks.
const pollEvery = time.Second

// awaitSetup follows one epoch to its end.
func (a *app) awaitSetup(ctx context.Context, f muster.Fleet, g muster.SetupGrant) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	steps := &watching{app: a, w: a.stderr}
	for {
		// What the setup says is for eyes; how it ends is the registration's to say.
		if a.terminal {
			if l, err := f.InstallLog(ctx, muster.InstallQuery{OperationID: g.OperationID, After: steps.last}); err == nil {
				steps.lines(l)
			}
		}
		r, err := f.Registration(ctx, g.Registration.ServerUUID)
		switch {
		case err != nil && !unreachable(err) && !muster.IsCode(err, muster.CodeUnavailable):
			return err
		case err == nil && r.State == muster.Approved && r.SetupEpoch <= g.Epoch:
			return a.show(r, func(w io.Writer) {
				a.said1(w, r, "is approved")
				fmt.Fprintln(a.stderr, "it restarts now, and is online when it has come back: muster node ls")
			})
		case err == nil && (r.State != muster.SettingUp || r.SetupEpoch != g.Epoch):
			why := first(r.LastSetupError, "its state is now "+string(r.State))
			return &hinted{
				err:  fmt.Errorf("the setup of %s failed: %s", r.ServerUUID, said(why)),
				hint: "muster registration log " + short(r.ServerUUID),
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
