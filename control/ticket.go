package control

import (
	"context"
	"slices"
	"time"

	"muster.internal"
	"muster.internal/ticket"
)

// IssueTicket makes a ticket under one of the machine's own keys; the machine
// checks it without asking anybody.
func (s session) IssueTicket(ctx context.Context, serverUUID string, r muster.TicketRequest) (muster.Ticket, error) {
	uuid, err := machineUUID(serverUUID)
	if err != nil {
		return muster.Ticket{}, err
	}
	if !slices.Contains(muster.TicketKinds, r.Kind) {
		return muster.Ticket{}, muster.Invalid("kind", "%q is none of %v", r.Kind, muster.TicketKinds)
	}
	most := ticket.AtMost[r.Kind]
	life := time.Duration(r.Seconds) * time.Second
	if r.Seconds < 0 || r.Seconds > int(most/time.Second) {
		return muster.Ticket{}, muster.Invalid("seconds", "a %s ticket lives for 1 to %d seconds", r.Kind, int(most/time.Second))
	}
	if life == 0 {
		life = most
	}
	now := s.now()
	k, err := s.store.TicketKey(ctx, now, s.by, uuid, r.Kind)
	if err != nil {
		return muster.Ticket{}, err
	}
	t, err := ticket.Mint(k.Key, r.Kind, k.ServerUUID, s.by.String(), now, life)
	return muster.Ticket{ServerUUID: k.ServerUUID, Kind: r.Kind, Ticket: t, ExpiresAt: now.Add(life).UTC().Truncate(time.Second)}, err
}
