package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	muster "muster.internal"
)

// How often a watcher asks: on a terminal the running time moves.
const (
	watchWait     = 20 * time.Second
	watchTerminal = time.Second
	barWidth      = 24
)

func (a *app) registrationWatch() *cobra.Command {
	return &cobra.Command{
		Use:   "watch MACHINE",
		Short: "Watch a setup: steps, percent and log, until it ends",
		Long: `Watch the setup of a machine live, to its end: each step as it begins, what the
script says, and on a terminal a bar with how much is done. A machine that still
awaits its approval is waited for. ^C ends the watching, not the setup.

Exit code 0: the machine is approved. 1: the setup failed; the reason is the
last line, and "muster registration log" shows all that was said.

A machine whose agent reports nothing of its own (a stock one) shows what the
booter knows: that the script was taken, sent, and since when it runs.`,
		Example: `  muster registration watch 8CX2P53
  muster registration watch 8CX2P53 --output json | jq -r .text`,
		Args:              names("MACHINE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, machine, func(c *cobra.Command, f fleet, r muster.Registration) error {
			epoch, err := a.epochToWatch(c.Context(), f, r)
			if err != nil {
				return err
			}
			return a.watchSetup(c.Context(), f, r.ServerUUID, epoch)
		}),
	}
}

// epochToWatch is the setup that runs, or the next one, once it was approved.
func (a *app) epochToWatch(ctx context.Context, f muster.Fleet, r muster.Registration) (int64, error) {
	switch r.State {
	case muster.SettingUp:
		return r.SetupEpoch, nil
	case muster.Approved:
		if r.SetupEpoch > 0 {
			return r.SetupEpoch, nil // its log has ended well
		}
	case muster.AwaitingSetup:
		fmt.Fprintf(a.stderr, "it awaits its approval (muster registration approve-setup %s); watching begins then\n", callable(r))
		before, away := r.SetupEpoch, ""
		for r.State == muster.AwaitingSetup && r.SetupEpoch == before {
			away = a.tellAway(r.Away, away)
			if err := a.wait(ctx, pollEvery); err != nil {
				return 0, err
			}
			now, err := f.Registration(ctx, r.ServerUUID)
			switch {
			case err == nil:
				r = now
			case !passing(err):
				return 0, err
			}
		}
		if r.SetupEpoch > before {
			return r.SetupEpoch, nil
		}
	}
	p := muster.Problemf(muster.CodeConflict, "machine %s is %s: there is no setup to watch", r.ServerUUID, r.State)
	p.State = string(r.State)
	return 0, p
}

// tellAway says that a machine has left the boot bus, or is back, once.
func (a *app) tellAway(now, before string) string {
	switch {
	case now == before:
	case now == "":
		fmt.Fprintln(a.stderr, "it is back on the boot bus")
	default:
		fmt.Fprintf(a.stderr, "it is away, no approval can be given: %s\n", said(now))
	}
	return now
}

func passing(err error) bool { return unreachable(err) || muster.IsCode(err, muster.CodeUnavailable) }

func (a *app) wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A watching is one install on the screen.
type watching struct {
	*app
	w     io.Writer
	drawn bool // a bar stands on the last line
	last  int64
}

// watchSetup follows one setup to its end, across restarts of the control plane.
func (a *app) watchSetup(ctx context.Context, f muster.Fleet, uuid string, epoch int64) error {
	v := &watching{app: a, w: a.stdout}
	defer v.clear()
	away := false
	for {
		l, err := f.InstallLog(ctx, muster.InstallQuery{ServerUUID: uuid, Epoch: epoch, After: v.last, Wait: v.patience()})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && passing(err):
			if !away {
				v.clear()
				fmt.Fprintf(a.stderr, "the control plane cannot be reached; the setup goes on, watching goes on when it is back (%v)\n", err)
			}
			away = true
			if err := a.wait(ctx, pollEvery); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		away = false
		if err := v.show(l); err != nil {
			return err
		}
		if l.Outcome != muster.InstallRunning {
			return v.ended(ctx, f, l)
		}
	}
}

func (v *watching) patience() time.Duration {
	if v.terminal && v.output != "json" {
		return watchTerminal
	}
	return watchWait
}

func (v *watching) show(l muster.InstallLog) error {
	if v.output == "json" {
		for _, line := range l.Lines {
			if err := json.NewEncoder(v.w).Encode(line); err != nil {
				return err
			}
			v.last = line.N
		}
		return nil
	}
	v.clear()
	v.lines(l)
	if v.terminal && l.Outcome == muster.InstallRunning {
		fmt.Fprint(v.w, v.bar(l))
		v.drawn = true
	}
	return nil
}

func (v *watching) lines(l muster.InstallLog) {
	for _, line := range l.Lines {
		if line.N > v.last+1 {
			fmt.Fprintln(v.w, v.paint(dim, fmt.Sprintf("          (%d lines left out)", line.N-v.last-1)))
		}
		v.last = line.N
		fmt.Fprintln(v.w, v.logLine(line))
	}
	v.last = max(v.last, l.Last)
}

// logLine is one line of a log: a step with how much is done, or indented what
// was said.
func (a *app) logLine(l muster.InstallLine) string {
	at := l.At.UTC().Format(time.TimeOnly)
	if l.Step == "" {
		return fmt.Sprintf("%s        %s", a.paint(dim, at), said(l.Text))
	}
	paint := bold
	switch l.Step {
	case "failed":
		paint = red
	case "complete":
		paint = green
	}
	return strings.TrimRight(fmt.Sprintf("%s  %3d%%  %s  %s", a.paint(dim, at), l.Percent, a.paint(paint, fmt.Sprintf("%-10s", said(l.Step))), said(l.Text)), " ")
}

func (v *watching) bar(l muster.InstallLog) string {
	full := l.Percent * barWidth / 100
	return fmt.Sprintf("[%s%s] %3d%%  %s  %s", v.paint(green, strings.Repeat("#", full)), strings.Repeat("-", barWidth-full), l.Percent,
		said(l.Step), v.paint(dim, span(v.now().Sub(l.StartedAt))))
}

// clear takes the bar back.
func (v *watching) clear() {
	if v.drawn {
		fmt.Fprint(v.w, "\r\x1b[K")
		v.drawn = false
	}
}

func (v *watching) ended(ctx context.Context, f muster.Fleet, l muster.InstallLog) error {
	if v.output == "json" {
		l.Lines = []muster.InstallLine{}
		if err := json.NewEncoder(v.w).Encode(l); err != nil {
			return err
		}
	}
	if l.Outcome == muster.InstallComplete {
		if v.output != "json" {
			if r, err := f.Registration(ctx, l.ServerUUID); err == nil {
				v.said1(v.w, r, "is approved")
			}
			fmt.Fprintln(v.stderr, "it restarts now, and is online when it has come back: muster node ls")
		}
		return nil
	}
	return &hinted{
		err:  fmt.Errorf("the setup of %s failed: %s", l.ServerUUID, said(first(l.Reason, "no reason was given"))),
		hint: "muster registration log " + l.ServerUUID,
	}
}

func (a *app) registrationLog() *cobra.Command {
	var q muster.InstallQuery
	c := &cobra.Command{
		Use:   "log [MACHINE]",
		Short: "Show how a setup went: steps, what the script said, how it ended",
		Long: `Show the log of a machine's newest setup, or of another with --epoch. An
operation id, as approve-setup prints it and the audit holds it, finds its log
too, also when the machine was forgotten since.

Of each machine the last 16 logs are kept; of a long one the first and the last
lines, and the ends of what the script said. Secrets are struck out.`,
		Example: `  muster registration log 8CX2P53
  muster registration log 8CX2P53 --epoch 1
  muster registration log --operation 0190f3a5-7e1c-7c3e-9d5a-0242ac120002 --output json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			if (len(args) == 1) == (q.OperationID != "") {
				return usagef("name the machine, or an operation with --operation")
			}
			if len(args) == 1 {
				var err error
				if q.ServerUUID, err = uuidOf(c.Context(), f, args[0]); err != nil {
					return err
				}
			}
			l, err := f.InstallLog(c.Context(), q)
			if err != nil {
				return err
			}
			return a.show(l, func(w io.Writer) { a.drawLog(w, l) })
		}),
	}
	numberVar(c.Flags(), &q.Epoch, "epoch", 0, 1, maxSeq, "the machine's setup with this number (default: the newest)")
	c.Flags().StringVar(&q.OperationID, "operation", "", "the setup with this operation id")
	return c
}

func (a *app) drawLog(w io.Writer, l muster.InstallLog) {
	outcome := map[muster.InstallOutcome]style{muster.InstallComplete: green, muster.InstallFailed: red, muster.InstallRunning: cyan}
	took := a.now().Sub(l.StartedAt)
	if l.EndedAt != nil {
		took = l.EndedAt.Sub(l.StartedAt)
	}
	a.fields(w,
		"machine", l.ServerUUID,
		"operation", l.OperationID,
		"epoch", fmt.Sprint(l.Epoch),
		"began", l.StartedAt.UTC().Format(time.DateTime)+" UTC",
		"took", span(took),
		"outcome", a.paint(outcome[l.Outcome], string(l.Outcome)),
		"reason", said(l.Reason),
	)
	fmt.Fprintln(w)
	(&watching{app: a, w: w}).lines(l)
	for _, s := range []struct{ name, text string }{{"standard output", l.Stdout}, {"standard error", l.Stderr}} {
		if strings.TrimSpace(s.text) == "" {
			continue
		}
		fmt.Fprintf(w, "\n%s\n", a.paint(dim, "the end of its "+s.name+":"))
		for line := range strings.Lines(s.text) {
			fmt.Fprintln(w, "  "+said(strings.TrimRight(line, "\r\n")))
		}
	}
}
