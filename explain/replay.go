package explain

import (
	"time"

	"muster.internal"
	"muster.internal/boot"
	"muster.internal/dhcp"
)

// A Change compares what was decided on a request with what is decided now.
type Change struct {
	MAC     string              `json:"mac"`
	At      time.Time           `json:"at"`
	Via     string              `json:"via"`
	Asked   string              `json:"asked"`
	Was     string              `json:"was"`
	Now     string              `json:"now"`
	Changed bool                `json:"changed"`
	Then    *muster.BootVerdict `json:"then,omitempty"` // nil: of a capture, where muster decided nothing
	Verdict muster.BootVerdict  `json:"verdict"`
}

// Replay puts stored steps through the present decision.
func Replay(mac string, steps []muster.ExplainedStep, site func(s *muster.ExplainedStep) Site) []Change {
	m, err := dhcp.ParseMAC(mac)
	if err != nil {
		return nil
	}
	out := []Change{}
	for i := range steps {
		s := &steps[i]
		d, ok := again(m, s, site(s))
		if !ok {
			continue
		}
		c := Change{MAC: mac, At: s.At, Via: s.Via, Asked: s.Asked, Then: &s.BootVerdict, Verdict: d.Verdict()}
		c.Was, c.Now = InShort(s.BootVerdict), InShort(c.Verdict)
		c.Changed = c.Was != c.Now
		out = append(out, c)
	}
	return out
}

// again decides on a step once more.
func again(m dhcp.MAC, s *muster.ExplainedStep, site Site) (boot.Decision, bool) {
	if s.Via == boot.DHCP.String() {
		var p dhcp.Packet
		if p.Parse(s.Packet) != nil {
			return boot.Decision{}, false
		}
		return site.Decide(&p)
	}
	via := boot.TFTP
	if s.Via == boot.HTTP.String() {
		via = boot.HTTP
	}
	for stage := boot.Address; stage <= boot.File; stage++ {
		if stage.String() == s.Stage {
			return site.Ask(boot.Request{Via: via, MAC: m, Want: stage}), true
		}
	}
	return boot.Decision{}, false
}

// ReplayWire compares what servers answered in a capture with what muster
// answers now.
func ReplayWire(w Wire) []Change {
	out := []Change{}
	for _, a := range w.Attempts {
		for i := range a.Lines {
			l := &a.Lines[i]
			if l.Verdict == nil || l.Server != "" {
				continue
			}
			c := Change{MAC: a.MAC, At: l.At, Via: l.Via, Asked: l.Text, Was: answerTo(&a, i), Now: InShort(*l.Verdict), Verdict: *l.Verdict}
			c.Changed = (c.Was == noAnswer) == l.Verdict.Serve
			out = append(out, c)
		}
	}
	return out
}

const noAnswer = "no answer in the capture"

// answerTo finds what a server said to a request, before the next one.
func answerTo(a *Attempt, i int) string {
	for _, l := range a.Lines[i+1:] {
		if l.Server == "" {
			break
		}
		if l.Via == a.Lines[i].Via && l.xid == a.Lines[i].xid {
			return l.Server + " answers " + l.Text
		}
	}
	return noAnswer
}

// InShort is a verdict in a few words.
func InShort(v muster.BootVerdict) string {
	if !v.Serve {
		return "silence: " + v.Reason
	}
	s := "serves " + v.Stage
	if v.Stage == boot.Loader.String() && v.Loader != "" {
		s += " " + v.Loader
	}
	if v.Mode != "" && v.Mode != boot.Nothing.String() {
		s += ", mode " + v.Mode
	}
	if v.Image != nil && v.Stage != boot.Address.String() {
		s += ", image " + v.Image.Name
	}
	if v.Address != "" {
		s += ", address " + v.Address
	}
	return s
}
