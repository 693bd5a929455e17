package host

import (
	"errors"
	"fmt"
	"time"

	"muster.internal"
	"muster.internal/resource"
)

// The triggers of an apply, as its report names them.
const (
	triggerStart       = "start"
	triggerDeclaration = "declaration"
	triggerTimer       = "timer"
	triggerReconnect   = "reconnect"
	// TriggerDisk: a declared disk has gone, or is there again.
	TriggerDisk = "disk"
)

const (
	reconcileEvery = 10 * time.Minute // a tenth more or less
	orderPause     = time.Second      // before asking again after an order: no order is a reason to storm
)

// A Link is what a linked node lives by: its store, its hands and its line to
// the control plane. Errors are for people and hold no secret.
type Link interface {
	Moment() Moment
	Dice() float64 // in [0, 1)
	Say(text string)
	// Pause waits, and fails when the program is told to end. It ends early when
	// the machine itself has news, as Next does; Woken takes what that is a reason to
	// reconcile for, if it is one.
	Pause(d time.Duration) error
	Woken() (trigger string)

	// Held is what was held last, and Hold holds it from now on: durably, before
	// it returns.
	Held() (Held, error)
	Hold(h Held) error
	// Lost tells whether the record of what is owned is not there, or not whole.
	Lost() (bool, error)
	// Apply makes the machine as declared.
	Apply(d *resource.Declaration, trigger string) (resource.Report, error)
	// Updated tells whether this program was replaced by another version, and
	// somebody starts that when this one ends.
	Updated() bool
	// Proven notes that this version is one that can link.
	Proven() error
	// Reboot restarts the machine in good order; it returns before that happens.
	Reboot() error
	// Forget drops the identity: key pair, certificate and credential.
	Forget() error

	// Certify sees to it that there is a certificate that is good; anew: that it
	// is another one, with another key pair where rekey says so.
	Certify(anew, rekey bool) error
	// Recover takes back from the control plane's mirror what is still so.
	Recover() error
	// Node is the node that this host speaks for, once Certify went well.
	Node() string
	// Describe says what the machine is, and Mirror what it owns; both say nothing
	// when that was said.
	Describe() error
	Mirror() error
	// Health says what has changed of the placements that are checked.
	Health() error
	Report(r resource.Report) error
	// Next waits for what is new.
	Next(holds int64) (muster.LinkAnswer, error)
}

// ErrRetired means that the node owns nothing more and has no identity.
var ErrRetired = errors.New("this machine was retired: it owns nothing any more, and is no node")

// ErrReplaced means that the machine was enrolled anew while this ran: it has
// another credential by now, and is to live by that.
var ErrReplaced = errors.New("this machine was enrolled anew")

// ErrUpdated means that another version of this program is installed, which is
// to be started in place of this one.
var ErrUpdated = errors.New("another version of muster-host was installed: this one ends, to be started as that")

// Linked is the life of a node that is told what to be. It reconciles when it
// starts, with every declaration, every ten minutes and when the control plane
// is there again; whether that is there or not makes no difference to what it
// holds. A refused credential changes nothing on it, for ever. It ends only when
// it is told to, or with ErrRetired, ErrReplaced or
// ErrUpdated.
func Linked(l Link) error {
	n := &node{l: l}
	n.begin()
	for {
		if err := n.turn(); err != nil {
			return err
		}
	}
}

// A node is a linked node, between two turns of its life.
type node struct {
	l           Link
	held        Held
	lost        bool
	trigger     string        // why to reconcile now; empty: the timer decides
	reconcileAt time.Duration // by the time since the kernel began
	askAt       time.Duration
	report      *resource.Report // that was not delivered yet
	clean       bool             // what was applied last left nothing undone
	failures    int              // to reach the control plane, in a row
	tried       bool             // to reach it, since what is on trial was applied
	recertify   bool
	rebooting   bool // this machine restarts
	rekey       bool
	refused     string // the last refusal that was reported
	unread      string // why the state cannot be read
	applied     bool   // since it was looked whether this program was replaced
	proven      bool
}

// begin reads what this machine was told and owns. While that cannot be read, nothing
// is applied and nothing accepted: what is on trial would be forgotten.
func (n *node) begin() {
	held, err := n.l.Held()
	lost := false
	if err == nil {
		lost, err = n.l.Lost()
	}
	if err != nil {
		why := fmt.Sprintf("what this machine was told and owns cannot be read, so nothing is applied: %v", err)
		if n.unread != why {
			n.l.Say(why)
			r := n.undone(resource.Report{Trigger: triggerStart}, why)
			n.report = &r
		}
		n.unread = why
		return
	}
	n.held, n.lost, n.unread = held, lost, ""
	if n.trigger = triggerStart; n.held.CutOff != "" {
		n.l.Say("nothing is applied here: " + n.held.CutOff)
	}
	if n.lost && n.held.Declaration != nil {
		n.l.Say("the record of what this machine owns is lost; nothing is applied before the control plane has given back what it knows of it")
	}
}

// turn does what is due, then waits for what is next.
func (n *node) turn() error {
	if n.unread != "" {
		n.begin()
	}
	if t := n.held.Trial; t != nil && t.Left(n.l.Moment()) <= 0 {
		if t.Applied && !n.tried {
			n.askAt = 0 // a machine that was off for long may well reach it
		} else {
			n.takeBack()
		}
	}
	if t := n.l.Woken(); t != "" && n.trigger == "" {
		n.trigger = t
	}
	if n.trigger != "" || n.l.Moment().Up >= n.reconcileAt {
		n.reconcile()
	}
	if n.l.Moment().Up >= n.askAt {
		if err := n.ask(); err != nil {
			return err
		}
		if n.applied && n.held.Trial == nil { // and reported, if anybody is there
			if n.applied = false; n.l.Updated() {
				return ErrUpdated
			}
		}
	}
	if wait := n.wait(); wait > 0 {
		return n.l.Pause(wait)
	}
	return nil
}

// wait is how long nothing is due.
func (n *node) wait() time.Duration {
	now := n.l.Moment()
	wait := n.askAt - now.Up
	if n.trigger != "" {
		return 0
	}
	wait = min(wait, n.reconcileAt-now.Up)
	if t := n.held.Trial; t != nil {
		wait = min(wait, max(t.Left(now), 0))
	}
	return wait
}

// hold saves what is held, and goes on with it only when that is durable.
func (n *node) hold(h Held) error {
	if h.Same(n.held) {
		return nil
	}
	if err := n.l.Hold(h); err != nil {
		return fmt.Errorf("what the control plane declared cannot be kept here: %w", err)
	}
	n.held = h
	return nil
}

// reconcile applies what is held, unless nothing may be.
func (n *node) reconcile() {
	trigger := n.trigger
	switch {
	case n.held.Retiring: // whatever caused it: its report says that it is done
		trigger = resource.TriggerRetire
	case trigger == "":
		trigger = triggerTimer
	}
	n.rest()
	if n.lost || n.unread != "" || n.held.CutOff != "" || n.held.Declaration == nil {
		return
	}
	n.apply(trigger, n.held.Declaration.Generation)
}

// rest puts the next reconcile off by its usual time.
func (n *node) rest() {
	n.trigger = ""
	n.reconcileAt = n.l.Moment().Up + reconcileEvery - reconcileEvery/10 + time.Duration(n.l.Dice()*float64(reconcileEvery/5))
}

// apply does so, and keeps the report until it is delivered.
func (n *node) apply(trigger string, generation int64) {
	r, err := n.l.Apply(n.held.Declaration, trigger)
	if err != nil {
		n.l.Say(err.Error())
		r.Trigger = trigger
		r = n.undone(r, err.Error())
	}
	r.Generation, n.applied = generation, true
	n.report, n.clean = &r, err == nil && r.Outcome != resource.OutcomeFailed && r.Outcome != resource.OutcomeUnknown
	t := n.held.Trial
	if t == nil || t.Applied {
		return
	}
	h, applied := n.held, *t
	applied.Since, applied.Applied = n.l.Moment(), true
	h.Trial, n.tried = &applied, false
	if err := n.hold(h); err != nil {
		n.l.Say(err.Error()) // it is on trial since before it was applied, then
		n.held = h
	}
}

// takeBack applies what stood before a declaration that cut this machine off.
func (n *node) takeBack() {
	within := n.held.Trial.Within
	if err := n.hold(n.held.TakenBack()); err != nil {
		n.l.Say(err.Error())
		n.held = n.held.TakenBack() // the machine must come back all the same
	}
	n.l.Say(fmt.Sprintf("the control plane was not reached within %v after declaration %d was applied: it is taken back", within, n.held.Newest))
	n.apply(resource.TriggerRevert, n.held.Newest)
	n.rest()
	n.askAt = 0
}

// ask delivers what is to be said, and hears what is new. Its error is the
// program's end.
func (n *node) ask() error {
	a, err := n.talk()
	if err != nil {
		return n.unheard(err)
	}
	if n.failures > 0 {
		n.l.Say("the control plane answers again")
		n.failures, n.trigger = 0, triggerReconnect
	}
	n.askAt = n.l.Moment().Up + NextBeat(a.NextSeconds, nil, 0, n.l.Dice()).After
	if n.unread != "" {
		n.askAt = n.l.Moment().Up + awayMax
		return nil
	}
	if d := a.Declaration; d != nil {
		n.declared(*d)
	}
	for _, o := range a.Orders {
		n.order(o)
	}
	return nil
}

func (n *node) talk() (a muster.LinkAnswer, err error) {
	if err := n.l.Certify(n.recertify, n.rekey); err != nil {
		return a, err
	}
	n.recertify, n.rekey = false, false
	n.own()
	if n.lost {
		if err := n.l.Recover(); err != nil {
			return a, err
		}
		n.lost, n.trigger = false, triggerStart
		n.reconcile() // now, and not after the next answer, which may take its time
	}
	if n.report != nil {
		if err := n.told(n.l.Report(*n.report)); err != nil {
			return a, err
		}
		n.report = nil
		n.reached()
	}
	if n.unread == "" {
		if err := n.told(n.l.Mirror()); err != nil {
			return a, err
		}
	}
	if n.held.Retiring && n.clean {
		return a, n.forget()
	}
	if err := n.told(n.l.Describe()); err != nil {
		return a, err
	}
	if err := n.told(n.l.Health()); err != nil {
		return a, err
	}
	if a, err = n.l.Next(n.held.holds()); err != nil {
		return a, err
	}
	n.reached()
	return a, nil
}

// own drops what another node was told: this machine was it before somebody gave
// it the credential of the one that it is.
func (n *node) own() {
	h, is := n.held, n.l.Node()
	if h.Node == is || is == "" || n.unread != "" {
		return
	}
	if h.Node != "" {
		n.l.Say(fmt.Sprintf("what is held here was told to node %s, and this machine is node %s by now: it is dropped, and asked for anew", h.Node, is))
		h, n.report = Held{}, nil
	}
	h.Node = is
	if err := n.hold(h); err != nil {
		n.l.Say(err.Error())
		n.held = h
	}
}

// told passes on what keeps the host from being heard. That the control plane
// takes offence at what was said is no reason not to listen to it.
func (n *node) told(err error) error {
	var p *muster.Problem
	if !errors.As(err, &p) || refuses(p) || cutOffForGood(p) {
		return err
	}
	switch p.Code {
	case muster.CodeInvalid, muster.CodeNotFound, muster.CodeNotAllowed, muster.CodeConflict, muster.CodeTooLarge:
		n.l.Say("the control plane does not take what this machine says of itself: " + p.Error())
		return nil
	}
	return err
}

// reached ends a trial well, and a cut-off that is none any more.
func (n *node) reached() {
	if !n.proven {
		n.proven = true
		if err := n.l.Proven(); err != nil {
			n.l.Say("this version cannot be kept, for a later one to be rolled back to: " + err.Error())
		}
	}
	if err := n.hold(n.held.Confirmed()); err != nil {
		n.l.Say(err.Error())
		n.held = n.held.Confirmed()
	}
}

// forget is the end of a retirement.
func (n *node) forget() error {
	if err := n.l.Forget(); err != nil {
		return fmt.Errorf("this machine owns nothing any more, and its identity cannot be dropped: %w", err)
	}
	return ErrRetired
}

// unheard decides after a failure. What ends the program is passed on.
func (n *node) unheard(err error) error {
	if errors.Is(err, ErrRetired) || errors.Is(err, ErrReplaced) {
		return err
	}
	var problem *muster.Problem
	refused := errors.As(err, &problem) && refuses(problem)
	cutOff := cutOffForGood(err)
	if (refused || cutOff) && n.held.Retiring && n.clean { // there is nobody to tell any more
		return n.forget()
	}
	p := NextBeat(0, err, n.failures, n.l.Dice())
	n.failures++
	if refused && !n.recertify {
		p.After = orderPause // the certificate alone may be what is refused
	}
	n.tried, n.recertify = true, refused
	n.askAt = n.l.Moment().Up + p.After
	if cutOff && n.held.CutOff == "" {
		h := n.held
		h.CutOff, h.Trial = err.Error(), nil
		if err := n.hold(h); err != nil {
			n.l.Say(err.Error())
			n.held = h
		}
		p.Say = "this machine was cut off for good: nothing is applied any more, and what is there stays as it is: " + err.Error()
	}
	if p.Say != "" {
		n.l.Say(p.Say)
	}
	return nil
}
