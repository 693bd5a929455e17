// Package explain says in words why a machine boots, or does not: from what
// booters saw of it, or from a capture.
//
// It is told everything and asks nobody: no I/O, no clock. It must never decide
// what a machine is served: that is boot.Decide's alone, which it asks again
// with the record and the policy of the moment.
package explain

import (
	"cmp"
	"slices"
	"time"

	"muster.internal"
	"muster.internal/boot"
	"muster.internal/dhcp"
)

// Evidence is everything that is known of one NIC.
type Evidence struct {
	Now     time.Time
	Record  muster.BootRecord // Synthesized: there is none
	Policy  muster.BootPolicy
	Machine *muster.Registration // nil: none announced itself
	Orders  []muster.NodeOrder   // what its host is asked for and has not done
	Waiting []muster.Machine     // newcomers behind the NIC that wait, the latest last
	Window  muster.Window        // of enrollment
	Traces  []muster.BootTrace
	Booters []muster.BooterStatus
	Head    int64                             // of the change feed
	Image   func(digest string) *muster.Image // of the control plane; nil: not there
	// Tombstone is what keeps the machine of a UUID out; nil: nothing does.
	Tombstone func(serverUUID string) *muster.Expunged
}

const (
	// aliveFor is how long a booter may say nothing: it reports every 45 s at
	// the latest.
	aliveFor = 2 * time.Minute
	// patience is how long each stage of a boot may take before it is called
	// stuck; firmware asks again much sooner.
	patience = 45 * time.Second
	// bootTime is how long an image may take from its last file to its announcement.
	bootTime = 4 * time.Minute
)

// Boot explains.
func Boot(e Evidence) muster.BootExplanation {
	c := &inquiry{Evidence: e, mac: e.Record.MAC}
	c.x = muster.BootExplanation{MAC: e.Record.MAC, At: e.Now, Record: e.Record, Steps: merge(e.Traces), Advice: []muster.BootAdvice{}}
	c.x.Machine = machineOf(e.Machine)
	c.look()
	c.x.Booters = c.booters()
	c.judge()
	c.notes()
	return c.x
}

// An inquiry is one explanation in the making.
type inquiry struct {
	Evidence
	mac  string
	x    muster.BootExplanation
	last *muster.ExplainedStep // of all
	ask  *muster.ExplainedStep // the last DHCP message
	age  time.Duration         // since last
}

// merge puts the steps of all booters in the order of time.
func merge(ts []muster.BootTrace) []muster.ExplainedStep {
	all := []muster.ExplainedStep{}
	for _, t := range ts {
		for _, s := range t.Steps {
			all = append(all, muster.ExplainedStep{Booter: t.Booter, BootStep: s})
		}
	}
	slices.SortStableFunc(all, func(a, b muster.ExplainedStep) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
	return all
}

func machineOf(r *muster.Registration) *muster.ExplainedMachine {
	if r == nil {
		return nil
	}
	return &muster.ExplainedMachine{ServerUUID: r.ServerUUID, State: r.State, Hostname: r.Hostname, Serial: r.Serial, LastSeen: r.LastSeen,
		Surveyed: r.SurveyedAt != nil, LastError: r.LastSetupError, Conflicts: len(r.Conflicts)}
}

// look finds the last step, what firmware sent it, and what it would be
// answered now.
func (c *inquiry) look() {
	n := len(c.x.Steps)
	if n == 0 {
		return
	}
	at := c.x.Steps[n-1].At
	c.x.LastAsk = &at
	for i := n - 1; i >= 0; i-- {
		s := &c.x.Steps[i]
		if c.sibling(s) {
			continue
		}
		if c.last == nil {
			c.last, c.age = s, c.Now.Sub(s.At)
		}
		if s.Via != boot.DHCP.String() {
			continue
		}
		var p dhcp.Packet
		if p.Parse(s.Packet) != nil {
			continue
		}
		c.ask = s
		f := Firmware(&p)
		c.x.Firmware = &f
		if d, ok := c.site(s).Decide(&p); ok {
			v := d.Verdict()
			c.x.Now = &v
		}
		return
	}
}

// sibling tells whether a booter kept silent because the machine has chosen
// another booter of ours: that says nothing.
func (c *inquiry) sibling(s *muster.ExplainedStep) bool {
	if s.Reason != boot.OtherServer.String() {
		return false
	}
	var p dhcp.Packet
	if p.Parse(s.Packet) != nil {
		return false
	}
	chosen := p.Addr(dhcp.OptServerID)
	return chosen.IsValid() && slices.ContainsFunc(c.Booters, func(b muster.BooterStatus) bool { return parse4(b.Address) == chosen })
}

// site is what the booter that heard s would decide with now.
func (c *inquiry) site(s *muster.ExplainedStep) Site {
	site := Site{Now: c.Now, Policy: c.Policy, Image: c.staged(s.Booter)}
	if !c.Record.Synthesized {
		site.Record = &c.Record
	}
	if s.Loader != "" && s.Reason == boot.LoaderMissing.String() {
		site.NoLoader = map[string]bool{s.Loader: true}
	}
	for i := range c.Booters {
		if b := &c.Booters[i]; b.Booter == s.Booter {
			site.Servers = append(site.Servers, parse4(b.Address))
		}
	}
	return site
}

// staged finds the images that a booter has.
func (c *inquiry) staged(booter string) func(string) *muster.Image {
	return func(digest string) *muster.Image {
		for _, b := range c.Booters {
			if b.Booter == booter && slices.Contains(b.Staged, digest) {
				return c.Image(digest)
			}
		}
		return nil
	}
}

func (c *inquiry) booters() []muster.ExplainedBooter {
	out := []muster.ExplainedBooter{}
	var wants *muster.ImageRef
	if c.x.Now != nil {
		wants = c.x.Now.Image
	}
	for _, b := range c.Booters {
		e := muster.ExplainedBooter{Booter: b.Booter, LastSeen: b.LastSeen, Errors: b.Errors, Behind: max(0, c.Head-b.Seq),
			Alive:  !b.Stopped && b.LastSeen != nil && c.Now.Sub(*b.LastSeen) < aliveFor,
			Staged: wants == nil || slices.Contains(b.Staged, wants.Digest),
			Heard:  slices.ContainsFunc(c.Traces, func(t muster.BootTrace) bool { return t.Booter == b.Booter })}
		out = append(out, e)
	}
	return out
}

// alive counts the booters that report.
func (c *inquiry) alive() (n int) {
	for _, b := range c.x.Booters {
		if b.Alive {
			n++
		}
	}
	return n
}

func (c *inquiry) set(v muster.ExplainVerdict, cause, summary string) {
	c.x.Verdict, c.x.Cause, c.x.Summary = v, cause, summary
	if c.x.Since == nil && c.last != nil {
		at := c.last.First
		c.x.Since = &at
	}
}

// since sets how long the same has gone on: back from the last step as long as
// is holds.
func (c *inquiry) since(is func(s *muster.ExplainedStep) bool) {
	for i := len(c.x.Steps) - 1; i >= 0 && is(&c.x.Steps[i]); i-- {
		at := c.x.Steps[i].First
		c.x.Since = &at
	}
}

// advise adds something to do; command may be empty.
func (c *inquiry) advise(text, command string) {
	c.x.Advice = append(c.x.Advice, muster.BootAdvice{Text: text, Command: command})
}
