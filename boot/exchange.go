package boot

import (
	"errors"
	"net/netip"

	"muster.internal"
	"muster.internal/dhcp"
)

// Errors of Exchange.Answer, besides those of dhcp.Packet.Parse.
var (
	ErrNotRequest  = errors.New("dhcp: this is an answer, not a request")
	ErrNotEthernet = errors.New("dhcp: no Ethernet address to answer for")
)

// An Exchange turns one datagram after another into a decision and an answer.
// It needs no socket, so that a stored packet gets what a live one would. All
// its memory is reused: an exchange creates no garbage, and what it holds and
// returns is good until the next one.
type Exchange struct {
	Packet   dhcp.Packet
	Request  Request // as the packet has it, before quirks
	Record   *muster.BootRecord
	Decision Decision

	out, buf []byte
}

// A Judge decides on a request and tells by which record; see Decide.
type Judge func(Request) (Decision, *muster.BootRecord)

// Answer judges a datagram and returns the answer to it; nil without an error
// is silence, for the Decision's reason. AtPXE: it came to port 4011.
func (x *Exchange) Answer(msg []byte, atPXE bool, judge Judge, s Site, server netip.Addr) ([]byte, error) {
	if err := x.Packet.Parse(msg); err != nil {
		return nil, err
	}
	if x.Packet.Op != dhcp.BootRequest {
		return nil, ErrNotRequest
	}
	var ok bool
	if x.Request, ok = FromDHCP(&x.Packet); !ok {
		return nil, ErrNotEthernet
	}
	x.Request.AtPXE = atPXE
	if x.Decision, x.Record = judge(x.Request); !x.Decision.Serve {
		return nil, nil
	}
	if x.buf == nil {
		x.buf = make([]byte, 0, 512)
	}
	x.out = AppendOffer(x.out[:0], x.buf[:0], &x.Decision, &x.Packet, s, server)
	return x.out, nil
}
