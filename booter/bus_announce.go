package booter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"muster.internal"
	"muster.internal/amqp"
	"muster.internal/setup"
)

// speak is the goroutine that tells the control plane of this connection: who
// it is, again whenever it says so, and what disks it has when they are wanted.
func (c *busConn) speak(ctx context.Context) {
	if !c.introduced(ctx) {
		return
	}
	for {
		wanted, err := c.announce(ctx)
		heard := time.Now()
		if err == nil && wanted {
			err = c.survey(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil { // not ours to repeat: the machine says who it is again within a minute
			c.bus.counts.add("bus_refused_announcements")
			c.bus.refused(c.source, c.uuid, c.mac, err.Error())
		}
		for fresh := false; !fresh; {
			select {
			case <-c.news:
			case <-ctx.Done():
				return
			}
			// A starting agent says the same thing up to three times at once.
			c.mu.Lock()
			fresh = err != nil || !bytes.Equal(c.told, c.sysinfo) || time.Since(heard) > 30*time.Second
			c.mu.Unlock()
		}
	}
}

// introduced waits until the machine has said who it is, and asks if it does
// not do so by itself: an agent that reconnects says nothing.
func (c *busConn) introduced(ctx context.Context) bool {
	wait := time.NewTimer(c.bus.o.AskAfter)
	defer wait.Stop()
	end := time.Now().Add(identifyBy)
	for {
		select {
		case <-c.news:
			return true
		case <-ctx.Done():
			return false
		case <-wait.C:
		}
		if !time.Now().Before(end) {
			reason := "it holds a machine's queue name and does not say who it is"
			c.bus.counts.add("bus_refused_names")
			c.bus.refused(c.source, c.uuid, c.mac, reason)
			c.bus.told.add(change{uuid: c.uuid, SessionChange: muster.SessionChange{MAC: c.mac, Source: c.source.String(), Reason: reason}})
			c.close(amqp.ConnectionForced, reason)
			return false
		}
		c.ask()
		wait.Reset(max(c.bus.o.AskAfter, 10*time.Second))
	}
}

func (c *busConn) ask() {
	c.mu.Lock()
	if c.asked == "" {
		c.asked = nonce()
	}
	id := c.asked
	c.mu.Unlock()
	c.deliver(broadcastKey+id, []byte("{}")) // not yet bound: the next attempt will do
}

// announce says who is there until the control plane has heard it, always in
// the newest words.
func (c *busConn) announce(ctx context.Context) (surveyWanted bool, err error) {
	err = persist(ctx, func() error {
		unlock := c.bus.told.lock(c.uuid)
		defer unlock()
		if err := c.bus.flush(ctx, c.uuid); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err() // our own end may have been told just now
		}
		select {
		case <-c.news:
		default:
		}
		c.mu.Lock()
		a := muster.Announcement{ServerUUID: c.uuid, MAC: c.mac, Session: c.session, Source: c.source.String(),
			PublicKey: c.publicKey, Booter: c.bus.o.Booter, Run: c.bus.run, Sysinfo: bytes.Clone(c.sysinfo)}
		c.mu.Unlock()
		c.bus.told.announced(c.name, c.session)
		got, err := c.bus.o.Control.Announce(ctx, a)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.told = a.Sysinfo
		c.mu.Unlock()
		c.bus.counts.add("bus_announcements")
		surveyWanted = got.Survey
		return nil
	}, func(err error) {
		c.bus.refused(c.source, c.uuid, c.mac, "the control plane cannot be told of it yet: "+err.Error())
	})
	if err != nil {
		return false, fmt.Errorf("the control plane does not take its announcement: %w", err)
	}
	return surveyWanted, nil
}

// survey asks the machine for its disks, over this very connection.
func (c *busConn) survey(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	r, err := c.execute(limited, setup.SurveyScript)
	if err != nil {
		return fmt.Errorf("its disks cannot be surveyed: %w", err)
	}
	disks, err := parseSurvey(r)
	if err != nil {
		return fmt.Errorf("its disks cannot be surveyed: %w", err)
	}
	err = persist(ctx, func() error {
		return c.bus.o.Control.Survey(ctx, c.uuid, muster.Survey{Session: c.session, Disks: disks})
	}, func(err error) {
		c.bus.refused(c.source, c.uuid, c.mac, "the control plane cannot be told of its disks yet: "+err.Error())
	})
	if err != nil {
		return fmt.Errorf("the control plane does not take the survey of its disks: %w", err)
	}
	c.bus.counts.add("bus_surveys")
	return nil
}

func parseSurvey(r busReply) ([]muster.Disk, error) {
	if r.Status != "0" {
		return nil, fmt.Errorf("the survey ended with status %s: %s", r.Status, setup.CutReason(tail(r.Stderr, 200)))
	}
	disks := []muster.Disk{}
	if err := json.Unmarshal([]byte(r.Stdout), &disks); err != nil {
		return nil, fmt.Errorf("the survey is no list of disks: %v", err)
	}
	if disks == nil {
		disks = []muster.Disk{}
	}
	return disks, nil
}

// persist repeats a call until it succeeds or is refused. Between attempts it
// waits longer and longer, up to half a minute, and never as long as another
// caller that began at the same time.
func persist(ctx context.Context, call func() error, grieve func(error)) error {
	for n := 0; ; n++ {
		err := call()
		if err == nil || ctx.Err() != nil || !passing(err) {
			return err
		}
		grieve(err)
		if !pause(ctx, backoff(n)) {
			return ctx.Err()
		}
	}
}

// backoff is full jitter below a bound that doubles from one second to thirty.
func backoff(n int) time.Duration {
	bound := 30 * time.Second
	if n < 5 {
		bound = min(bound, time.Second<<n)
	}
	return bound/10 + rand.N(bound)
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// passing tells whether an error may go away by itself: anything but a clear
// answer of the control plane that it will not.
func passing(err error) bool {
	var p *muster.Problem
	if !errors.As(err, &p) {
		return true
	}
	return p.Status < 400 || p.Status >= 500 || p.Code == muster.CodeTooMany
}

// tail returns at most n bytes of the end of s, whole characters only.
func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	for i := range min(4, len(s)) {
		if s[i]&0xc0 != 0x80 {
			return s[i:]
		}
	}
	return s
}
