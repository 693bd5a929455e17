package host

import (
	"fmt"

	"muster.internal"
	"muster.internal/resource"
)

// declared takes a declaration in and applies it.
func (n *node) declared(d resource.Declaration) {
	h, err := n.held.Accept(d, n.l.Moment())
	if err == nil && h.Same(n.held) {
		return // doubled on its way
	}
	same := err == nil && h.Digest == n.held.Digest
	if err == nil {
		err = n.hold(h)
	}
	if err != nil {
		n.refuse(d.Generation, err)
		return
	}
	if same { // an older version had understood all of it
		return
	}
	n.trigger, n.askAt, n.refused = triggerDeclaration, 0, ""
}

// refuse reports a declaration that is not applied, once.
func (n *node) refuse(generation int64, why error) {
	if n.refused == why.Error() {
		return
	}
	n.refused = why.Error()
	n.l.Say(n.refused)
	r := n.undone(resource.Report{Generation: generation, Trigger: triggerDeclaration}, n.refused)
	n.report = &r
}

// undone is the report of what was not applied to its end, with a line that says
// why: a disk that is full is known elsewhere, too.
func (n *node) undone(r resource.Report, why string) resource.Report {
	r.Finished, r.Version, r.Outcome = n.l.Moment().Wall, muster.Build, resource.OutcomeFailed
	if r.Started.IsZero() {
		r.Started = r.Finished
	}
	r.Lines = append(r.Lines, resource.Line{Ref: resource.DeclarationRef, Outcome: resource.OutcomeFailed, Reason: why})
	return r
}

// order does what the host is asked for; what it does not know is a newer control
// plane's.
func (n *node) order(kind muster.OrderKind) {
	switch kind {
	case muster.OrderReportNow:
		n.trigger = resource.TriggerAsked
	case muster.OrderRekey:
		n.rekey = true
	case muster.OrderRetire:
		if err := n.hold(n.held.Retired()); err != nil {
			n.l.Say(err.Error())
			return
		}
		n.trigger = resource.TriggerRetire
	case muster.OrderReboot:
		if n.rebooting { // it is told again until the machine is back
			return
		}
		if err := n.l.Reboot(); err != nil {
			n.l.Say("this machine was asked to restart, and cannot: " + err.Error())
			return
		}
		n.l.Say("this machine restarts: its operator asks for it")
		n.rebooting = true
	default:
		n.l.Say(fmt.Sprintf("the control plane asks for %q, which this version does not know", kind))
		return
	}
	n.askAt = min(n.askAt, n.l.Moment().Up+orderPause)
}
