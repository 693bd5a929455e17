package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"muster.internal"
	"muster.internal/resource"
)

// Held is what a host keeps of what its control plane told it. It is saved
// before anything is applied, and is all that a restart goes by.
type Held struct {
	// Node is whose it is: what one node was told is nothing to another.
	Node string `json:"node,omitempty"`
	// Newest is the generation of the newest declaration that was accepted, and
	// Digest what it says.
	Newest int64  `json:"newest"`
	Digest string `json:"digest,omitempty"`
	// Capability is that of the version that accepted it, which may have passed over
	// what a later one knows.
	Capability int `json:"capability,omitempty"`
	// Declaration is what is applied: the newest, or what stood before it when
	// that was taken back.
	Declaration *resource.Declaration `json:"declaration,omitempty"`
	// Trial is there until the control plane was reached after the newest was
	// applied, if that asks for it.
	Trial *Trial `json:"trial,omitempty"`
	// Retiring: nothing is to be owned any more, and the identity goes then.
	Retiring bool `json:"retiring,omitempty"`
	// CutOff is why nothing is applied any more: this machine was cut off for good.
	CutOff string `json:"cut_off,omitempty"`
}

// A Trial is a declaration that is taken back unless the control plane is
// reached after it was applied.
type Trial struct {
	Before *resource.Declaration `json:"before,omitempty"` // nil: there was none
	Within time.Duration         `json:"within"`
	// Since is when it began to be applied and, once Applied, when that ended.
	Since   Moment `json:"since"`
	Applied bool   `json:"applied,omitempty"`
}

// A Moment is a point in time that is known again after a restart of the
// machine, although its clock may be wrong then.
type Moment struct {
	Wall time.Time     `json:"wall"`
	Boot string        `json:"boot"` // names the run of the kernel
	Up   time.Duration `json:"up"`   // since that began, asleep or awake
}

// Left is how much of the trial is left. Within one run of the kernel the wall
// clock does not count, since anybody may set it; from one to the next there is
// nothing else, so it can end the trial early but never prolong it.
func (t *Trial) Left(now Moment) time.Duration {
	if t.Since.Boot == now.Boot {
		return t.Within - (now.Up - t.Since.Up)
	}
	return t.Within - max(0, now.Wall.Sub(t.Since.Wall))
}

// holds is the generation to name when asking for a newer one. What an older
// version of this program accepted is asked for again.
func (h Held) holds() int64 {
	if h.Capability < muster.Capability && !h.Retiring {
		return max(0, h.Newest-1)
	}
	return h.Newest
}

// Accept is what is held once d has come over the link. It refuses what no
// control plane that is in its right mind sends: what is older than what was
// accepted, what has the same number and says something else, what cannot be
// applied, and what comes with a bundle or a file alone. A resource that this
// version cannot read is accepted with the rest.
func (h Held) Accept(d resource.Declaration, now Moment) (Held, error) {
	refuse := func(format string, args ...any) (Held, error) {
		return h, fmt.Errorf("declaration %d is refused: %s", d.Generation, fmt.Sprintf(format, args...))
	}
	text, err := json.Marshal(d)
	if err != nil {
		return refuse("%v", err)
	}
	digest := resource.Hash(string(text))
	switch {
	case d.Generation < 1:
		return refuse("it has no generation")
	case d.Generation < h.Newest:
		return refuse("this machine holds %d, which is newer; was the control plane put back to an older state? Declare anew until it counts further than that", h.Newest)
	case d.Generation == h.Newest && digest == h.Digest:
		h.Capability = muster.Capability
		return h, nil
	case d.Generation == h.Newest && h.Capability >= muster.Capability:
		return refuse("this machine holds another one of that number; was the control plane put back to an older state? Declare anew")
	case len(d.LocalOnly()) > 0:
		return refuse("it has %s, which never comes over the link", d.LocalOnly()[0])
	}
	if err := d.Check(); err != nil {
		return refuse("%v", err)
	}
	next := Held{Node: h.Node, Newest: d.Generation, Digest: digest, Capability: muster.Capability, Declaration: &d}
	if within := d.ConfirmWithin(); within > 0 {
		next.Trial = &Trial{Before: h.Declaration, Within: within, Since: now}
	}
	return next, nil
}

// Confirmed is what is held once the control plane was reached.
func (h Held) Confirmed() Held {
	if h.Trial != nil && h.Trial.Applied {
		h.Trial = nil
	}
	h.CutOff = ""
	return h
}

// TakenBack is what is held once a trial is over: what stood before, and that
// the newest was seen, so that it is not sent again.
func (h Held) TakenBack() Held {
	h.Declaration = h.Trial.Before
	if h.Declaration == nil {
		h.Declaration = &resource.Declaration{Resources: []resource.Resource{}}
	}
	h.Trial = nil
	return h
}

// Retired is what is held by a machine that is to own nothing any more.
func (h Held) Retired() Held {
	h.Declaration = &resource.Declaration{Generation: h.Newest, Resources: []resource.Resource{}}
	h.Trial, h.Retiring = nil, true
	return h
}

// Same tells whether both are the same, for what need not be saved again.
func (h Held) Same(o Held) bool {
	a, errA := json.Marshal(h)
	b, errB := json.Marshal(o)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}
