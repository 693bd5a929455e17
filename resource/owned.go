package resource

import "time"

// An Origin is how the host came to own a resource.
type Origin string

const (
	// OriginCreated: nothing was there, and the host made it.
	OriginCreated Origin = "created"
	// OriginAdopted: it was there, and a declaration said to take it over.
	OriginAdopted Origin = "adopted"
	// OriginFound: it was there as wanted, and the host has only looked at it.
	OriginFound Origin = "found"
)

// An Owned is what the host knows of one resource that it answers for. It is
// what the journal keeps and the control plane mirrors, so it holds hashes of
// contents and never a content.
type Owned struct {
	Ref    Ref    `json:"ref"`
	Origin Origin `json:"origin"`
	// Local resources came from a file on the machine; a declaration that does
	// not name them leaves them.
	Local      bool      `json:"local,omitempty"`
	Since      time.Time `json:"since"`
	Generation int64     `json:"generation"` // that last changed or confirmed it
	// Begun is an intent: the host was about to make this, and has not said
	// that it did.
	Begun bool `json:"begun,omitempty"`
	// Applied is what was last made to stand; Found what was there before.
	Applied State `json:"applied,omitempty"`
	Found   State `json:"found,omitempty"`
	// Original is where an adopted file's first content is kept, under the
	// host's state directory.
	Original string `json:"original,omitempty"`
	// Conflict: it was adopted and differs from the declaration, and nobody has
	// resolved which of the two it shall be.
	Conflict bool `json:"conflict,omitempty"`
	// Resolved is "keep" where a person decided, at Generation, that the
	// machine's own stays.
	Resolved Resolution `json:"resolved,omitempty"`
	// Halted: the host stopped it, for a disk that it comes after is not there.
	Halted bool `json:"halted,omitempty"`
	// Undone counts how often the host undid the same change by somebody else,
	// Drift, the hash of what it found; UndoneAt is when it last did.
	Undone   int        `json:"undone,omitempty"`
	Drift    string     `json:"drift,omitempty"`
	UndoneAt *time.Time `json:"undone_at,omitempty"`
	// Triggers is what a service's or container's restart_on stood at when it
	// was last started; empty: it must be restarted.
	Triggers string `json:"triggers,omitempty"`
}

// A Removal is what becomes of a resource that is declared no longer.
type Removal string

const (
	RemovalRemove  Removal = "remove"  // it goes: the host made it
	RemovalRestore Removal = "restore" // it is again what it was before
	RemovalStop    Removal = "stop"    // a service ends; its unit stays
	RemovalForget  Removal = "forget"  // it stays, and is nobody's
	RemovalUnmount Removal = "unmount" // a disk is let go; what is on it stays
)

// removals is the whole table; what is not in it is forgotten.
var removals = map[Kind]map[Origin]Removal{
	KindFile:      {OriginCreated: RemovalRemove, OriginAdopted: RemovalRestore},
	KindDirectory: {OriginCreated: RemovalRemove, OriginAdopted: RemovalRestore},
	KindService:   {OriginCreated: RemovalStop, OriginAdopted: RemovalRestore},
	KindContainer: {OriginCreated: RemovalRemove, OriginAdopted: RemovalForget},
	KindDisk:      {OriginCreated: RemovalUnmount, OriginAdopted: RemovalUnmount, OriginFound: RemovalUnmount}, // its id makes it the host's
}

// OriginText says how the host came to it, and what is unfinished about that.
func (o Owned) OriginText() string {
	switch {
	case o.Begun:
		return string(o.Origin) + ", not finished"
	case o.Conflict:
		return string(o.Origin) + ", in conflict"
	case o.Resolved == ResolveKeep:
		return string(o.Origin) + ", kept"
	}
	return string(o.Origin)
}

// Removal is what becomes of it when it is declared no longer. A package is
// forgotten, never removed: what runs may need it. What was found as wanted is
// left as it was found.
func (o Owned) Removal() Removal {
	if r := removals[o.Ref.Kind()][o.Origin]; r != "" {
		return r
	}
	return RemovalForget
}
