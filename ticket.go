package muster

import "time"

// TicketKind says what a ticket opens; a machine keeps one key for each.
type TicketKind string

const (
	TicketConsole  TicketKind = "console"
	TicketMetadata TicketKind = "metadata"
	TicketMove     TicketKind = "move"
)

// TicketKinds lists every kind.
var TicketKinds = []TicketKind{TicketConsole, TicketMetadata, TicketMove}

// A TicketRequest asks for a ticket to one machine.
type TicketRequest struct {
	Kind    TicketKind `json:"kind"`
	Seconds int        `json:"seconds,omitempty"` // 0: as long as its kind may live
}

// A Ticket proves to a machine that the control plane sent its holder.
type Ticket struct {
	ServerUUID string     `json:"server_uuid"`
	Kind       TicketKind `json:"kind"`
	Ticket     string     `json:"ticket"`
	ExpiresAt  time.Time  `json:"expires_at"`
}
