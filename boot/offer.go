package boot

import (
	"net/netip"

	"muster.internal/dhcp"
)

// AppendOffer appends the DHCP answer for a decision to serve: an OFFER to a
// DISCOVER, an ACK to a REQUEST. Buf is scratch space for names; it and dst
// are grown, never kept.
func AppendOffer(dst, buf []byte, d *Decision, req *dhcp.Packet, s Site, server netip.Addr) []byte {
	r := dhcp.Reply{Type: dhcp.Offer, Your: d.Address, Server: server, Router: d.Gateway, DNS: d.DNS, Lease: d.Lease}
	if req.Type() == dhcp.Request {
		r.Type = dhcp.Ack
	}
	switch d.Stage {
	case Loader:
		buf = append(d.MAC.AppendHyphens(buf[:0]), '/')
		r.File, r.Shape = append(buf, d.Loader...), dhcp.PXE
	case Start:
		buf = s.AppendURL(buf[:0], d.MAC)
		r.File, r.Shape = append(buf, "/start.ipxe"...), dhcp.IPXE
	}
	return dhcp.AppendReply(dst, req, &r)
}
