package muster

import (
	"context"
	"time"
)

// MachineState says whether a machine is one by itself, or claims to be one
// that is there already.
type MachineState string

const (
	// MachineKnown is a machine with a registration.
	MachineKnown MachineState = "known"
	// MachineConflict is a newcomer that the evidence takes for another
	// machine, or for one whose identity another machine holds. It has no
	// registration, and waits for an operator.
	MachineConflict MachineState = "conflict"
)

// MachineStates lists every state.
var MachineStates = []MachineState{MachineKnown, MachineConflict}

// A Machine is a piece of hardware with the evidence of which one it is.
type Machine struct {
	ID    string       `json:"machine_id"` // a UUIDv7 of ours
	State MachineState `json:"state"`
	// ServerUUID is its registration; empty while it waits.
	ServerUUID string `json:"server_uuid,omitempty"`

	// The evidence, as the machine reported it last.
	UUID    string   `json:"uuid"` // of its hardware, or the one that it was given
	Serial  string   `json:"serial,omitempty"`
	MACs    []string `json:"macs,omitempty"`
	Disks   []string `json:"disks,omitempty"` // identities: WWN, EUI, NGUID, or vendor, model and serial
	KeyID   string   `json:"key_id,omitempty"`
	Product string   `json:"product,omitempty"`

	// Case names what is odd, Reason says it for people, and Verbs are what an
	// operator can do about it.
	Case   string   `json:"case,omitempty"`
	Reason string   `json:"reason,omitempty"`
	Verbs  []string `json:"verbs,omitempty"`
	// Incumbent is the registration that a newcomer is in conflict with.
	Incumbent string `json:"incumbent,omitempty"`
	// Newcomers are the machines that wait because of this one.
	Newcomers []string `json:"newcomers,omitempty"`

	BootMAC   string    `json:"boot_mac,omitempty"`
	Source    string    `json:"source,omitempty"` // address that it spoke from
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
	Note      string    `json:"note,omitempty"` // of people
}

// A MachineFilter with a zero field does not filter by it. Lists come ordered
// by machine id; After is the last one of the page before.
type MachineFilter struct {
	State MachineState
	After string
	Limit int // 0: 1000
}

// SharedKind is a kind of evidence that may be on many machines.
type SharedKind string

const (
	SharedUUID   SharedKind = "uuid"   // a vendor's default
	SharedSerial SharedKind = "serial" // a placeholder
	SharedMAC    SharedKind = "mac"    // of a dock or dongle; a prefix is given by its octets
)

// SharedKinds lists every kind.
var SharedKinds = []SharedKind{SharedUUID, SharedSerial, SharedMAC}

// A SharedIdentity is a value that says nothing of which machine this is.
type SharedIdentity struct {
	Kind    SharedKind `json:"kind"`
	Value   string     `json:"value"`
	Vendor  string     `json:"vendor,omitempty"`
	Comment string     `json:"comment,omitempty"` // for those that come with muster: where it is known from
	Builtin bool       `json:"builtin,omitempty"`
	AddedBy string     `json:"added_by,omitempty"`
	AddedAt *time.Time `json:"added_at,omitempty"`
}

// A NetworkUsage counts the addresses of one admin network.
type NetworkUsage struct {
	Name  string `json:"name"`
	Total int    `json:"total"` // that may be given out
	Used  int    `json:"used"`
	Free  int    `json:"free"`
	// Unannounced are reservations made by policy for cards behind which no
	// machine has said who it is. They are at most UnannouncedCap, so that
	// operators can still enroll a card by hand, and expire.
	Unannounced    int `json:"unannounced"`
	UnannouncedCap int `json:"unannounced_cap"`
	// Outside are records of this network whose address is not in its range any
	// more.
	Outside int    `json:"outside,omitempty"`
	Note    string `json:"note,omitempty"` // what is wrong, for people
}

// A NoiseLimit is a bound on what machines that nobody approved may leave
// behind.
type NoiseLimit struct {
	Name    string `json:"name"`
	Booter  string `json:"booter,omitempty"`
	Used    int    `json:"used"`
	Cap     int    `json:"cap"`
	Expires int    `json:"expires_after_seconds"` // without a sign of life
	Note    string `json:"note,omitempty"`        // set while the cap bites
}

// Machines is who is who: the evidence, its conflicts, and how much of it may
// be noise.
type Machines interface {
	Machines(ctx context.Context, f MachineFilter) ([]Machine, error)
	Machine(ctx context.Context, id string) (Machine, error)
	// RaiseMachine raises accept, separate, move-nic or forget.
	RaiseMachine(ctx context.Context, id string, e Event) (Machine, error)

	// SharedIdentities lists values that are no evidence, those that come with
	// muster first.
	SharedIdentities(ctx context.Context) ([]SharedIdentity, error)
	AddSharedIdentity(ctx context.Context, s SharedIdentity) (SharedIdentity, error)
	RemoveSharedIdentity(ctx context.Context, kind SharedKind, value string) error

	NetworkUsage(ctx context.Context) ([]NetworkUsage, error)
	NoiseLimits(ctx context.Context) ([]NoiseLimit, error)
}
