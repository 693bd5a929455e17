package host

import (
	"errors"
	"fmt"
	"time"

	"muster.internal"
)

const (
	beatDefault = 30 * time.Second
	beatMin     = time.Second
	beatMax     = 10 * time.Minute
	awayMin     = 2 * time.Second // first retry while nobody answers
	awayMax     = time.Minute     // and the longest pause between them
	refusedRest = 5 * time.Minute // after a 401: slowly, for ever
)

// A Pulse is when to speak to the control plane again, and what to tell a
// person about it, if anything new.
type Pulse struct {
	After time.Duration
	Say   string
}

// NextBeat decides after a heartbeat or refresh. failures counts those in a row
// before this one; dice is in [0, 1) and spreads a fleet that was cut off at
// once. A machine waits for a missing control plane for ever, and a refused
// credential changes nothing on it.
func NextBeat(next int, err error, failures int, dice float64) Pulse {
	if err == nil {
		after := time.Duration(min(next, 3600)) * time.Second
		if next <= 0 {
			after = beatDefault
		}
		after = min(max(after, beatMin), beatMax)
		return Pulse{After: after - after/10 + time.Duration(dice*float64(after/5))}
	}
	var p *muster.Problem
	say := ""
	if errors.As(err, &p) {
		switch {
		case refuses(p), p.Code == muster.CodeGone:
			if failures == 0 {
				say = fmt.Sprintf("the control plane refuses this machine's credential (%s); nothing here is changed, and it is asked again every few minutes", p.Error())
			}
			return Pulse{refusedRest + time.Duration(dice*float64(refusedRest)), say}
		case p.Code == muster.CodeTooMany, p.Code == muster.CodeUnavailable:
			if p.RetryAfter > 0 {
				after := min(time.Duration(min(p.RetryAfter, 3600))*time.Second, beatMax)
				return Pulse{after + time.Duration(dice*float64(after)), say}
			}
		}
	}
	if failures == 0 {
		say = fmt.Sprintf("the control plane does not answer as it should, waiting for it: %v", err)
	}
	limit := awayMax
	if failures < 5 {
		limit = awayMin << failures
	}
	return Pulse{beatMin + time.Duration(dice*float64(limit)), say}
}

// refuses tells whether the credential is what is refused.
func refuses(p *muster.Problem) bool {
	return p.Code == muster.CodeUnauthenticated || p.Code == muster.CodeForbidden
}

// cutOffForGood tells a tombstone from whatever else answers with "gone".
func cutOffForGood(err error) bool {
	var p *muster.Problem
	return errors.As(err, &p) && p.Code == muster.CodeGone && p.Type == muster.TypeExpunged
}
