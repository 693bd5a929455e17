package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	muster "muster.internal"
)

func (a *app) eventsCmd() *cobra.Command {
	q := muster.EventQuery{After: muster.FromNow}
	var follow bool
	c := &cobra.Command{
		Use:   "events",
		Short: "What happens in the fleet, as it happens",
		Long: `Tell every change in the fleet, and every step of an install on its way. Without
--follow it stops at what has happened up to now.

Each change has a number, which is that of its audit entry; --after goes on
after one. When the control plane restarts, or a line is cut, following goes on
where it stopped: no change is left out, and none is told twice. Steps of
installs have no number; those missed meanwhile are in "muster registration log".

Kinds are the subject and what happened to it: registration.approve_setup,
boot-record.admit, node.confirm, registration.progress. --kind takes the
beginning of one.`,
		Example: `  muster events
  muster events --follow
  muster events --follow --kind registration --output json | jq -r .kind
  muster events --after 1200 --subject boot-record/52:54:00:77:00:01`,
		Args: names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			return a.follow(c.Context(), f, q, follow)
		}),
	}
	f := c.Flags()
	numberVar(f, &q.After, "after", muster.FromNow, 0, maxSeq, "changes after this number")
	numberVar(f, &q.Last, "last", 20, 0, 1000, "without --after: look back over that many changes first, at most 1000")
	f.StringVar(&q.Subject, "subject", "", "only about this: registration/UUID, node/ID, boot-record/MAC, …")
	f.StringVar(&q.Kind, "kind", "", "only of this kind, or beginning so")
	f.BoolVarP(&follow, "follow", "f", false, "go on as they come, until interrupted")
	f.Lookup("after").DefValue = "" // it is no number that a person could give
	return c
}

var errUpToNow = errors.New("everything up to now is told")

// follow tells events; with on it comes back by itself, for ever.
func (a *app) follow(ctx context.Context, f muster.Fleet, q muster.EventQuery, on bool) error {
	heard := false // anything at all: before that, an error is the answer
	for n := 0; ; n++ {
		err := f.Events(ctx, q, func(e muster.FeedEvent) error {
			n, heard = 0, true
			if e.ID != 0 {
				if q.After != muster.FromNow && e.ID <= q.After && e.Kind != "" {
					return nil // told before
				}
				q.After, q.Last = e.ID, 0
			}
			switch {
			case e.Kind != "":
				return a.eventLine(e)
			case !on:
				return errUpToNow
			}
			return nil
		})
		switch {
		case errors.Is(err, errUpToNow):
			return nil
		case ctx.Err() != nil && heard:
			return nil // interrupted: that is how following ends
		case ctx.Err() != nil:
			return ctx.Err()
		case !heard && !on || !passing(err):
			return err
		case !heard && q.After == muster.FromNow:
			return err // nothing is known to go on from
		}
		if n == 0 {
			fmt.Fprintf(a.stderr, "the stream of events ended; going on after %d (%v)\n", q.After, err)
		}
		if a.wait(ctx, pauseBefore(n)) != nil {
			return nil
		}
	}
}

// pauseBefore is how long to wait before attempt n, never as long as the others.
func pauseBefore(n int) time.Duration {
	bound := min(5*time.Second, 200*time.Millisecond<<min(n, 6))
	return bound/2 + rand.N(bound/2)
}

func (a *app) eventLine(e muster.FeedEvent) error {
	if a.output == "json" {
		return json.NewEncoder(a.stdout).Encode(e)
	}
	number, text := fmt.Sprint(e.ID), detail(muster.AuditEntry{Detail: e.Detail})
	if e.ID == 0 {
		number = "-"
		var p muster.ProgressDetail
		if json.Unmarshal(e.Detail, &p) == nil {
			text = fmt.Sprintf("%d%%  %s  %s", p.Percent, said(dash(p.Step)), said(p.Text))
		}
	}
	_, err := fmt.Fprintf(a.stdout, "%s  %s  %s  %s  %s  %s\n", number, e.At.UTC().Format(time.DateTime),
		dash(e.Actor), a.paint(bold, said(e.Kind)), said(e.Subject), text)
	return err
}
