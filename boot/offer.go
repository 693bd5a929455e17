package boot

import (
	"bytes"
	"net/netip"

	"muster.internal/dhcp"
)

// AppendOffer appends the DHCP answer for a decision to serve: an OFFER to a
// DISCOVER, an ACK to a REQUEST or an INFORM, and no type at all to plain BOOTP.
// Buf is scratch space for names; it and dst are grown, never kept.
func AppendOffer(dst, buf []byte, d *Decision, req *dhcp.Packet, s Site, server netip.Addr) []byte {
	r := dhcp.Reply{Your: d.Address, Server: server, Router: d.Gateway, DNS: d.DNS, Lease: d.Lease, Shape: d.Shape}
	switch req.Type() {
	case dhcp.Discover:
		r.Type = dhcp.Offer
	case dhcp.Request:
		r.Type = dhcp.Ack
	case dhcp.Inform:
		r.Type, r.NoAddress = dhcp.Ack, true
	}
	if d.Proxied {
		r = dhcp.Reply{Type: r.Type, Server: server, Shape: d.Shape, Item: req.BootItem()}
	}
	switch {
	case d.Stage == Loader && d.Shape == dhcp.HTTP:
		buf = append(s.AppendURL(buf[:0], d.MAC), '/')
		r.File = append(buf, d.Loader...)
	case d.Stage == Loader:
		buf = append(d.MAC.AppendHyphens(buf[:0]), '/')
		r.File = append(buf, d.Loader...)
	case d.Stage == Start:
		buf = s.AppendURL(buf[:0], d.MAC)
		r.File = append(buf, "/start.ipxe"...)
	}
	return dhcp.AppendReply(dst, req, &r)
}

// Ours tells whether an answer to machine m names a boot file as a booter does:
// below the machine's own directory.
func Ours(p *dhcp.Packet, m dhcp.MAC) bool {
	var buf [24]byte
	dir := append(m.AppendHyphens(buf[:0]), '/')
	for _, file := range [...][]byte{p.File, p.Get(dhcp.OptBootFile)} {
		if bytes.HasPrefix(file, dir) {
			return true
		}
		if i := bytes.Index(file, bootPath); i >= 0 && bytes.HasPrefix(file[i+len(bootPath):], dir) {
			return true
		}
	}
	return false
}

var bootPath = []byte("/boot/")
