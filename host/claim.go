package host

import (
	"errors"
	"fmt"
	"time"

	"muster.internal"
)

const (
	// ClaimFor is how long a machine waits for its code to be approved.
	ClaimFor  = time.Hour
	claimWait = 30 * time.Second // one long poll
	claimRest = time.Second      // between polls
	claimSore = 5 * time.Second  // after an error that may pass
)

// A Door is the claim-code door, as a machine sees it.
type Door interface {
	Register() (muster.RegisterReply, error)
	Status(pollToken string, wait time.Duration) (muster.RegisterStatus, error)
	// Ready fails when a key could not be stored: it is asked before one is
	// handed out, for it is handed out once.
	Ready() error
	Store(apiKey string) error
	ShowCode(code string)
	HideCode()
	Say(text string)
	Elapsed() time.Duration // since the start
	// Pause waits, and fails when the program is told to end.
	Pause(d time.Duration) error
}

// ErrNotApproved means that nobody approved the code in time.
var ErrNotApproved = errors.New("nobody approved the code within an hour; register again for a new code")

// Claim registers this machine and waits for an operator to approve its code.
// The code is taken down again however it ends.
func Claim(d Door) error {
	if err := d.Ready(); err != nil {
		return fmt.Errorf("the credential could not be stored here, so none is asked for: %w", err)
	}
	var reply muster.RegisterReply
	err := insist(d, func() (err error) { reply, err = d.Register(); return err })
	if err != nil {
		return fmt.Errorf("registering: %w", err)
	}
	defer d.HideCode()
	if reply.ClaimCode != "" {
		d.ShowCode(reply.ClaimCode)
	}
	for {
		left := ClaimFor - d.Elapsed()
		if left <= 0 {
			return ErrNotApproved
		}
		var s muster.RegisterStatus
		err := insist(d, func() (err error) { s, err = d.Status(reply.PollToken, min(claimWait, left)); return err })
		if err != nil {
			return fmt.Errorf("asking for the approval: %w", err)
		}
		switch {
		case s.APIKey != "":
			if err := d.Store(s.APIKey); err != nil {
				return fmt.Errorf("the key was delivered and could not be stored, and it is delivered once: have an operator disable this registration, then register again: %w", err)
			}
			return nil
		case s.Delivered:
			return errors.New("the key of this approval was delivered before, and is lost: have an operator disable this registration, then register again")
		case s.State == muster.Disabled:
			return errors.New("an operator disabled this registration; register again if that was a mistake")
		}
		if err := d.Pause(claimRest); err != nil {
			return err
		}
	}
}

// insist repeats what fails for a reason that may pass, as long as the hour
// lasts.
func insist(d Door, ask func() error) error {
	said := false
	for {
		err := ask()
		if err == nil {
			return nil
		}
		rest, passes := passing(err)
		if !passes {
			return err
		}
		if d.Elapsed()+rest >= ClaimFor {
			return fmt.Errorf("the control plane did not answer: %w", err)
		}
		if !said {
			d.Say(fmt.Sprintf("the control plane does not answer, trying again: %v", err))
			said = true
		}
		if err := d.Pause(rest); err != nil {
			return err
		}
	}
}

// passing tells whether an error may go away by itself, and when to ask again.
func passing(err error) (time.Duration, bool) {
	var p *muster.Problem
	if !errors.As(err, &p) {
		return claimSore, true // nobody answered
	}
	switch p.Code {
	case muster.CodeUnavailable, muster.CodeInternal, muster.CodeTooMany:
		return max(claimSore, time.Duration(min(p.RetryAfter, 600))*time.Second), true
	}
	return 0, false
}
