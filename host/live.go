package host

import (
	"errors"
	"time"

	"muster.internal"
)

// A Line is a node's line to its control plane.
type Line interface {
	// Refresh says what this machine is now; Beat says that it lives, and
	// returns the seconds until it should again.
	Refresh() error
	Beat() (int, error)
	Say(text string)
	Dice() float64 // in [0, 1)
	// Pause waits, and fails when the program is told to end.
	Pause(d time.Duration) error
}

// ErrRefused means that the control plane does not accept the credential.
var ErrRefused = errors.New("the control plane refuses this machine's credential")

// Live is the life of a node: refresh until it was accepted, then beat. It ends
// only when it is told to; a control plane that is away is waited for, and one
// that refuses is asked again, slowly, for ever. With once it returns
// ErrRefused instead when the very first answer is a refusal, or that the machine
// was expunged: a key that died so is not accepted after a readmission either.
func Live(l Line, once bool) error {
	failures, refreshed := 0, false
	for {
		next, err := 0, error(nil)
		if !refreshed {
			err = l.Refresh()
		} else {
			next, err = l.Beat()
		}
		if once && !refreshed && (muster.IsCode(err, muster.CodeUnauthenticated) || muster.IsCode(err, muster.CodeGone)) {
			return ErrRefused
		}
		p := NextBeat(next, err, failures, l.Dice())
		if p.Say != "" {
			l.Say(p.Say)
		}
		switch {
		case err != nil:
			failures++
		case !refreshed:
			refreshed, failures = true, 0
			l.Say("refreshed: a node of the fleet")
			p.After = 0 // the first beat tells the pace
		case failures > 0:
			failures = 0
			l.Say("the control plane answers again")
		}
		if p.After > 0 {
			if err := l.Pause(p.After); err != nil {
				return err
			}
		}
	}
}
