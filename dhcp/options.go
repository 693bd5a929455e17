package dhcp

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"

	"muster.internal"
)

// Option codes (RFC 2132 unless said otherwise).
const (
	OptPad         = 0
	OptSubnetMask  = 1
	OptRouter      = 3
	OptDNS         = 6
	OptHostname    = 12
	OptBroadcast   = 28
	OptVendorInfo  = 43
	OptRequestedIP = 50
	OptLeaseTime   = 51
	OptOverload    = 52
	OptMessageType = 53
	OptServerID    = 54
	OptParameters  = 55
	OptMaxSize     = 57
	OptClassID     = 60
	OptClientID    = 61
	OptTFTPServer  = 66
	OptBootFile    = 67
	OptUserClass   = 77  // RFC 3004
	OptRelayInfo   = 82  // RFC 3046
	OptArch        = 93  // RFC 4578 §2.1
	OptUNDI        = 94  // RFC 4578 §2.2
	OptMachineID   = 97  // RFC 4578 §2.3
	OptIPXE        = 175 // iPXE's encapsulated options
	OptEnd         = 255
)

// Sub-options of OptRelayInfo.
const (
	RelayCircuitID  = 1  // RFC 3046 §3.1
	RelaySourcePort = 19 // RFC 8357 §5.1
)

// pxeBootItem is the sub-option of OptVendorInfo that names what a PXE client
// wants of a boot server (PXE 2.1, table 2-1).
const pxeBootItem = 71

// A MessageType is the value of option 53.
type MessageType byte

// Message types (RFC 2132 §9.6). There is no NAK here: nothing of ours sends one.
const (
	Discover MessageType = 1
	Offer    MessageType = 2
	Request  MessageType = 3
	Decline  MessageType = 4
	Ack      MessageType = 5
	Release  MessageType = 7
	Inform   MessageType = 8
)

var typeNames = map[MessageType]string{Discover: "DISCOVER", Offer: "OFFER", Request: "REQUEST",
	Decline: "DECLINE", Ack: "ACK", Release: "RELEASE", Inform: "INFORM"}

func (t MessageType) String() string {
	if n := typeNames[t]; n != "" {
		return n
	}
	return fmt.Sprintf("message type %d", byte(t))
}

// A MAC is an Ethernet address.
type MAC [6]byte

// ParseMAC reads any usual spelling of an Ethernet address.
func ParseMAC(s string) (MAC, error) {
	var m MAC
	t, err := muster.ParseMAC(s)
	if err != nil {
		return m, err
	}
	for i := range m {
		hex.Decode(m[i:i+1], []byte(t[3*i:3*i+2]))
	}
	return m, nil
}

// String is the canonical spelling: lower case, colons.
func (m MAC) String() string { return string(m.appendTo(nil, ':')) }

// AppendHyphens appends the spelling in file names and URLs to dst: lower case,
// hyphens.
func (m MAC) AppendHyphens(dst []byte) []byte { return m.appendTo(dst, '-') }

func (m MAC) appendTo(dst []byte, sep byte) []byte {
	for i, b := range m {
		if i > 0 {
			dst = append(dst, sep)
		}
		dst = append(dst, "0123456789abcdef"[b>>4], "0123456789abcdef"[b&15])
	}
	return dst
}

// Type is option 53; 0 for plain BOOTP.
func (p *Packet) Type() MessageType {
	if v := p.Get(OptMessageType); len(v) == 1 {
		return MessageType(v[0])
	}
	return 0
}

// MAC is the client's hardware address; not ok unless it is one of Ethernet.
func (p *Packet) MAC() (m MAC, ok bool) {
	copy(m[:], p.CHAddr[:])
	return m, p.HType == 1 && p.HLen == 6 && m != MAC{} && m[0]&1 == 0
}

// SetMAC makes m the client's hardware address.
func (p *Packet) SetMAC(m MAC) {
	p.HType, p.HLen = 1, 6
	copy(p.CHAddr[:], m[:])
}

// Addr is an option that holds one IPv4 address; not valid when it is absent
// or of another length.
func (p *Packet) Addr(code byte) netip.Addr {
	if v := p.Get(code); len(v) == 4 {
		return addr(v)
	}
	return netip.Addr{}
}

// Arch is the first architecture of option 93; not ok when there is none.
func (p *Packet) Arch() (arch uint16, ok bool) { return p.ArchAt(0) }

// ArchAt is the n-th architecture of option 93, which is a list, counted from
// 0; not ok when there are not so many.
func (p *Packet) ArchAt(n int) (arch uint16, ok bool) {
	v := p.Get(OptArch)
	if len(v) < 2*n+2 {
		return 0, false
	}
	return binary.BigEndian.Uint16(v[2*n:]), true
}

// A BootItem is what a client asks a PXE boot server for: a type and a layer of
// it. The zero value is none.
type BootItem [4]byte

// BootItem reads sub-option 71 of the vendor options; none for clients that are
// not of the PXE class, whose options mean something else (PXE 2.1, table 2-1).
func (p *Packet) BootItem() BootItem {
	if p.Class() != PXEClass {
		return BootItem{}
	}
	for v := p.Get(OptVendorInfo); len(v) > 0 && v[0] != OptEnd; {
		if v[0] == OptPad {
			v = v[1:]
			continue
		}
		if len(v) < 2 || len(v) < 2+int(v[1]) {
			break
		}
		if v[0] == pxeBootItem && v[1] == 4 {
			return BootItem(v[2:6])
		}
		v = v[2+int(v[1]):]
	}
	return BootItem{}
}

// RelaySub returns a sub-option of the relay agent's information, nil when it
// is absent; a malformed option reads as far as it makes sense.
func (p *Packet) RelaySub(sub byte) []byte {
	v := p.Get(OptRelayInfo)
	for len(v) >= 2 && len(v) >= 2+int(v[1]) {
		n := 2 + int(v[1])
		if v[0] == sub {
			return v[2:n:n]
		}
		v = v[n:]
	}
	return nil
}

// MachineUUID is option 97 in the spelling that operating systems show: the
// wire has the first three fields in little-endian order (SMBIOS). Empty when
// the option is absent or says nothing about the machine.
func (p *Packet) MachineUUID() string {
	v := p.Get(OptMachineID)
	if len(v) != 17 || v[0] != 0 {
		return ""
	}
	b := [16]byte(v[1:])
	b[0], b[1], b[2], b[3] = b[3], b[2], b[1], b[0]
	b[4], b[5] = b[5], b[4]
	b[6], b[7] = b[7], b[6]
	s, err := muster.ParseUUID(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
	if err != nil {
		return ""
	}
	return s
}
