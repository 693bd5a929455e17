package dhcp

import (
	"encoding/binary"
	"net/netip"
)

// A Reply is what a server answers. Zero fields send nothing.
type Reply struct {
	Type MessageType  // Offer or Ack; 0: plain BOOTP (RFC 1534 §2)
	Your netip.Prefix // the address and its network; not valid: another server gives it
	// NoAddress: only what goes with the address is wanted (RFC 2131 §4.3.5).
	NoAddress bool
	Server    netip.Addr // our address: option 54, siaddr, option 66
	Router    netip.Addr
	DNS       [3]netip.Addr // up to the first that is not valid
	Lease     uint32        // seconds
	// File is the boot file: a TFTP name or, for iPXE and HTTP boot, a URL. It
	// goes into the header field and into option 67, since clients read either.
	File []byte
	// Shape is the kind of client that is answered.
	Shape Shape
	// Item is echoed to a PXE client that asked a boot server for it: without
	// that it takes the answer for somebody else's.
	Item BootItem
}

// A Shape is a kind of answer.
type Shape byte

const (
	// Plain carries an address and, if any, a boot file.
	Plain Shape = iota
	// PXE carries the class and, always beside it, the PXE options: without
	// them EDK2 takes the answer for a boot server list and asks port 4011.
	PXE
	// HTTP carries the class HTTPClient, and never PXE options.
	HTTP
	// IPXE tells iPXE not to wait for a second server.
	IPXE
)

func (s Shape) String() string {
	return [...]string{"plain", "PXEClient", "HTTPClient", "iPXE"}[s]
}

// Constant option values.
var (
	pxeClass  = []byte("PXEClient")
	httpClass = []byte("HTTPClient")
	// pxeInfo is PXE_DISCOVERY_CONTROL = 8: use the boot file, ask nobody else.
	pxeInfo = []byte{6, 1, 8, 255}
	// noPXEDHCP is iPXE's "no-pxedhcp": saves its three seconds for a ProxyDHCP.
	noPXEDHCP = []byte{0xb0, 1, 1}
)

// MaxFile is the length of a boot file that fits the header's field with a NUL.
const MaxFile = 127

// AppendReply appends the answer to request req. It copies flags, giaddr and
// hardware address, and echoes options 97 and 82, the latter last (RFC 3046
// §2.2). It is at least MinSize long.
func AppendReply(dst []byte, req *Packet, r *Reply) []byte {
	start := len(dst)
	h := Packet{Op: BootReply, HType: req.HType, HLen: req.HLen, XID: req.XID, Flags: req.Flags,
		CIAddr: req.CIAddr, YIAddr: r.Your.Addr(), SIAddr: r.Server, GIAddr: req.GIAddr, CHAddr: req.CHAddr}
	if r.Type == Offer {
		h.CIAddr = netip.Addr{} // RFC 2131 §4.3.1, table 3
	}
	if r.NoAddress {
		h.YIAddr = netip.Addr{}
	}
	if len(r.File) <= MaxFile {
		h.File = r.File
	}
	dst = appendHeader(dst, &h)
	if r.Type != 0 {
		dst = append(dst, OptMessageType, 1, byte(r.Type))
		dst = appendAddrOption(dst, OptServerID, r.Server)
	}
	if r.Lease > 0 && !r.NoAddress && r.Type != 0 {
		dst = append(dst, OptLeaseTime, 4)
		dst = binary.BigEndian.AppendUint32(dst, r.Lease)
	}
	dst = appendNetwork(dst, r)
	dst = appendBoot(dst, r)
	if v := req.Get(OptMachineID); v != nil {
		dst = appendOption(dst, OptMachineID, v)
	}
	if v := req.Get(OptRelayInfo); v != nil {
		dst = appendOption(dst, OptRelayInfo, v)
	}
	return finish(dst, start)
}

func appendNetwork(dst []byte, r *Reply) []byte {
	if r.Your.IsValid() {
		mask := ^uint32(0) << (32 - r.Your.Bits())
		dst = append(dst, OptSubnetMask, 4)
		dst = binary.BigEndian.AppendUint32(dst, mask)
	}
	dst = appendAddrOption(dst, OptRouter, r.Router)
	n := 0
	for n < len(r.DNS) && r.DNS[n].Is4() {
		n++
	}
	if n > 0 {
		dst = append(dst, OptDNS, byte(4*n))
		for _, a := range r.DNS[:n] {
			dst = appendAddr(dst, a)
		}
	}
	return dst
}

func appendBoot(dst []byte, r *Reply) []byte {
	switch r.Shape {
	case PXE:
		dst = appendOption(dst, OptClassID, pxeClass)
		dst = appendVendorInfo(dst, r.Item)
	case HTTP:
		dst = appendOption(dst, OptClassID, httpClass)
	case IPXE:
		dst = appendOption(dst, OptIPXE, noPXEDHCP)
	}
	if len(r.File) == 0 {
		return dst
	}
	if r.Shape == PXE {
		dst = append(dst, OptTFTPServer, 0)
		at := len(dst)
		dst = r.Server.AppendTo(dst)
		dst[at-1] = byte(len(dst) - at)
	}
	return appendOption(dst, OptBootFile, r.File)
}

func appendVendorInfo(dst []byte, item BootItem) []byte {
	if item == (BootItem{}) {
		return appendOption(dst, OptVendorInfo, pxeInfo)
	}
	end := len(pxeInfo) - 1
	dst = append(dst, OptVendorInfo, byte(len(pxeInfo)+2+len(item)))
	dst = append(dst, pxeInfo[:end]...)
	dst = append(append(dst, pxeBootItem, byte(len(item))), item[:]...)
	return append(dst, pxeInfo[end:]...)
}

func appendAddrOption(dst []byte, code byte, a netip.Addr) []byte {
	if !a.Is4() || a.IsUnspecified() {
		return dst
	}
	return appendAddr(append(dst, code, 4), a)
}

// A Route is the way that an answer takes.
type Route struct {
	To netip.AddrPort
	// Frame: the client has no address yet and did not ask for a broadcast, so
	// the datagram to To goes in a frame to its hardware address, which no
	// routing table knows. Who cannot make frames sends it to everybody.
	Frame bool
}

// Everybody is where clients without an address hear a server.
var Everybody = netip.AddrPortFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), ClientPort)

// Destination says where the answer to req, received from src, goes, if it
// gives the address yours (RFC 2131 §4.1): to the relay that giaddr names,
// whatever the flags say, on the server port unless the relay asks for its own
// (RFC 8357); to the client's address if it has one; to everybody if it asks
// for that, or is given no address; else to its hardware address.
func Destination(req *Packet, yours netip.Addr, src netip.AddrPort) Route {
	switch {
	case !req.GIAddr.IsUnspecified():
		if req.RelaySub(RelaySourcePort) != nil {
			return Route{To: netip.AddrPortFrom(req.GIAddr, src.Port())}
		}
		return Route{To: netip.AddrPortFrom(req.GIAddr, ServerPort)}
	case !req.CIAddr.IsUnspecified():
		return Route{To: netip.AddrPortFrom(req.CIAddr, ClientPort)}
	case req.Flags&BroadcastFlag != 0 || !yours.IsValid() || yours.IsUnspecified():
		return Route{To: Everybody}
	}
	return Route{To: netip.AddrPortFrom(yours, ClientPort), Frame: true}
}

// PXEDestination says where the answer to a request at PXEPort goes: back to
// where it came from (PXE 2.1, §2.2.3), or to everybody if that has no address.
func PXEDestination(src netip.AddrPort) Route {
	if src.Addr().IsUnspecified() {
		return Route{To: Everybody}
	}
	return Route{To: src}
}

// AppendDatagram appends an IPv4 packet with a UDP datagram to dst, for a Route
// that takes a frame.
func AppendDatagram(dst []byte, from, to netip.AddrPort, payload []byte) []byte {
	start := len(dst)
	dst = append(dst, 0x45, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(28+len(payload)))
	dst = append(dst, 0, 0, 0, 0, 64, 17, 0, 0) // one fragment, time to live, UDP, checksum
	dst = appendAddr(dst, from.Addr())
	dst = appendAddr(dst, to.Addr())
	binary.BigEndian.PutUint16(dst[start+10:], ^sum(0, dst[start:start+20]))
	dst = binary.BigEndian.AppendUint16(dst, from.Port())
	dst = binary.BigEndian.AppendUint16(dst, to.Port())
	dst = binary.BigEndian.AppendUint16(dst, uint16(8+len(payload)))
	dst = append(append(dst, 0, 0), payload...)
	// The checksum covers the addresses, protocol and length too (RFC 768).
	c := ^sum(uint32(17+8+len(payload)), dst[start+12:])
	if c == 0 {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(dst[start+26:], c)
	return dst
}

// sum is the Internet checksum (RFC 1071), not yet inverted.
func sum(acc uint32, b []byte) uint16 {
	for ; len(b) >= 2; b = b[2:] {
		acc += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		acc += uint32(b[0]) << 8
	}
	for acc > 0xffff {
		acc = acc>>16 + acc&0xffff
	}
	return uint16(acc)
}
