package sim

import (
	"bytes"
	"encoding/json"
	"time"

	"muster.internal"
	"muster.internal/host"
	"muster.internal/inventory"
	"muster.internal/resource"
)

// The calls that a node makes of its control plane.
const (
	CallRefresh = "refresh" // muster.RefreshRequest
	CallProfile = "profile" // muster.Profile
	CallOwned   = "owned"   // []resource.Owned
	CallMirror  = "mirror"  // answered with []resource.Owned
	CallHealth  = "health"  // []muster.PlacementHealth
	CallReport  = "report"  // resource.Report
	CallNext    = "next"    // muster.LinkPoll, answered with muster.LinkAnswer
)

// A Line is everything between a node and its control plane: the network, who
// it is there, and time.
type Line interface {
	// Call says something and waits for the answer, for as long as the line has
	// patience.
	Call(what string, in, out any) error
	// Certify sees to it that the node can show who it is.
	Certify(anew, rekey bool) error
	// Node is who it is: the node that its certificate speaks for.
	Node() string
	// Forget drops who it is.
	Forget() error
	// Reboot restarts the machine, after it has returned.
	Reboot() error
	// Sleep waits; it fails when the machine is to end.
	Sleep(d time.Duration) error
	// Moment is the machine's own clock, and what it has run since it has power.
	Moment() host.Moment
	Dice() float64 // in [0, 1)
	Say(text string)
}

// A Node is an imaginary machine that lives by host.Linked. It outlives a power
// cut; a Life does not.
type Node struct {
	Facts   inventory.Facts   // what the machine is
	Profile inventory.Profile // and its system
	Address string
	Ground  *Ground
	// Kept is what it holds of what it was told, in JSON.
	Kept []byte
	// Holds, if there is one, hears of what is held before it is.
	Holds func(was, is host.Held)
}

// A Life is what a node is between power and power cut. Host.Linked takes it.
type Life struct {
	it *Node
	// Last is the report of what was applied last.
	Last resource.Report

	// Watch judges what is found of the placements that are checked.
	Watch host.Watch

	line Line
	said map[string][]byte // by call: what the control plane has taken in
}

var _ host.Link = (*Life)(nil)

// Live gives a node power.
func (n *Node) Live(l Line) *Life {
	n.Ground.Clock = func() time.Time { return l.Moment().Wall }
	return &Life{it: n, line: l, said: map[string][]byte{}}
}

// Moment implements host.Link.
func (l *Life) Moment() host.Moment { return l.line.Moment() }

// Dice implements host.Link.
func (l *Life) Dice() float64 { return l.line.Dice() }

// Say implements host.Link.
func (l *Life) Say(text string) { l.line.Say(text) }

// Pause implements host.Link.
func (l *Life) Pause(d time.Duration) error { return l.line.Sleep(d) }

// Woken implements host.Link.
func (l *Life) Woken() string { return "" }

// Health implements host.Link.
func (l *Life) Health() error {
	all, looked := l.Watch.Health()
	if !looked {
		return nil
	}
	return l.once(CallHealth, all)
}

// Held implements host.Link.
func (l *Life) Held() (h host.Held, err error) {
	if l.it.Kept != nil {
		err = json.Unmarshal(l.it.Kept, &h)
	}
	return h, err
}

// Hold implements host.Link.
func (l *Life) Hold(h host.Held) error {
	was, err := l.Held()
	if err != nil {
		return err
	}
	if l.it.Holds != nil {
		l.it.Holds(was, h)
	}
	l.it.Kept, err = json.Marshal(h)
	return err
}

// Lost implements host.Link, as package linux's does.
func (l *Life) Lost() (bool, error) { return len(l.it.Ground.All()) == 0, nil }

// Apply implements host.Link.
func (l *Life) Apply(d *resource.Declaration, trigger string) (r resource.Report, err error) {
	r, err = host.Apply(host.Work{Declaration: d, Trigger: trigger, Version: muster.Build}, l.it.Ground, l.it.Ground)
	l.Last = r
	l.Watch.Applied(d.Checks, l.Moment())
	return r, err
}

// Updated implements host.Link: nobody has installed another version.
func (l *Life) Updated() bool { return false }

// Proven implements host.Link.
func (l *Life) Proven() error { return nil }

// Reboot implements host.Link.
func (l *Life) Reboot() error { return l.line.Reboot() }

// Forget implements host.Link.
func (l *Life) Forget() error { return l.line.Forget() }

// Certify implements host.Link.
func (l *Life) Certify(anew, rekey bool) error { return l.line.Certify(anew, rekey) }

// Node implements host.Link.
func (l *Life) Node() string { return l.line.Node() }

// Recover implements host.Link.
func (l *Life) Recover() error {
	var mirror []resource.Owned
	if err := l.line.Call(CallMirror, nil, &mirror); err != nil && !muster.IsCode(err, muster.CodeNotFound) {
		return err
	}
	_, _, err := host.Recover(mirror, l.it.Ground, l.it.Ground, func(string) bool { return true })
	return err
}

// once makes a call unless the very same was taken in.
func (l *Life) once(what string, in any) error {
	text, err := json.Marshal(in)
	if err != nil || bytes.Equal(text, l.said[what]) {
		return err
	}
	if err := l.line.Call(what, in, nil); err != nil {
		return err
	}
	l.said[what] = text
	return nil
}

// Describe implements host.Link: first what the machine is, then its system.
func (l *Life) Describe() error {
	if err := l.once(CallRefresh, muster.RefreshRequest{Hostname: l.it.Facts.Hostname, Sysinfo: l.it.Facts.Sysinfo(), Disks: l.it.Facts.Disks, Version: muster.Build}); err != nil {
		return err
	}
	system, err := json.Marshal(l.it.Profile)
	if err != nil {
		return err
	}
	return l.once(CallProfile, muster.Profile{Profile: system, Facts: map[string]string{"address": l.it.Address}})
}

// Mirror implements host.Link.
func (l *Life) Mirror() error { return l.once(CallOwned, l.it.Ground.All()) }

// Report implements host.Link.
func (l *Life) Report(r resource.Report) error { return l.line.Call(CallReport, r, nil) }

// Next implements host.Link.
func (l *Life) Next(holds int64) (a muster.LinkAnswer, err error) {
	poll := muster.LinkPoll{Holds: holds, Version: muster.Build, Capability: muster.Capability, BootID: l.Moment().Boot}
	return a, l.line.Call(CallNext, poll, &a)
}
