// Package dhcp reads and writes DHCPv4 messages (RFC 2131, 2132) and says what
// the shape and the destination of an answer must be.
//
// Reading keeps views into the datagram and writing appends to the caller's
// buffer, so that a server that reuses both creates no garbage. The package
// decides nothing about machines, opens no socket and reads no clock. It never
// writes a DHCPNAK.
package dhcp

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

// Opcodes (RFC 2131 §2).
const (
	BootRequest = 1
	BootReply   = 2
)

// Sizes in bytes (RFC 2131 §2). Relays discard answers below MinSize.
const (
	headerSize = 236
	MinSize    = 300
	MaxSize    = 4096 // of a message that Parse accepts
)

// UDP ports (RFC 2131 §4.1, PXE 2.1 §2.2.3).
const (
	ServerPort = 67
	ClientPort = 68
	PXEPort    = 4011
)

// BroadcastFlag in Packet.Flags asks for a broadcast answer (RFC 2131 §2).
const BroadcastFlag = 0x8000

const cookie = 0x63825363

// Errors of Parse.
var (
	ErrShort     = errors.New("dhcp: shorter than a BOOTP header with the magic cookie")
	ErrLong      = errors.New("dhcp: longer than any message a firmware sends")
	ErrCookie    = errors.New("dhcp: no magic cookie, this is not DHCP")
	ErrHardware  = errors.New("dhcp: hardware address longer than its field")
	ErrTruncated = errors.New("dhcp: an option reaches past the end of its field")
	ErrOverload  = errors.New("dhcp: option 52 has an impossible value")
)

// A Packet is one DHCP message. After Parse its slices are views into the
// datagram: they are good until the buffer is used again.
type Packet struct {
	Op, HType, HLen, Hops byte
	XID                   uint32
	Secs, Flags           uint16
	CIAddr, YIAddr        netip.Addr // always IPv4; 0.0.0.0 when absent
	SIAddr, GIAddr        netip.Addr
	CHAddr                [16]byte
	SName, File           []byte // up to the first NUL; empty when they hold options
	Options               []Option

	joined []byte // values of options that came in several parts (RFC 3396)
}

// An Option is a code with its whole value.
type Option struct {
	Code  byte
	Value []byte
}

// Parse reads a message into p and reuses what p holds. A missing END is
// tolerated, as are messages shorter than 300 bytes.
func (p *Packet) Parse(b []byte) error {
	p.reset()
	switch {
	case len(b) < headerSize+4:
		return ErrShort
	case len(b) > MaxSize:
		return ErrLong
	case binary.BigEndian.Uint32(b[headerSize:]) != cookie:
		return ErrCookie
	case b[2] > 16:
		return ErrHardware
	}
	p.Op, p.HType, p.HLen, p.Hops = b[0], b[1], b[2], b[3]
	p.XID = binary.BigEndian.Uint32(b[4:])
	p.Secs, p.Flags = binary.BigEndian.Uint16(b[8:]), binary.BigEndian.Uint16(b[10:])
	p.CIAddr, p.YIAddr = addr(b[12:]), addr(b[16:])
	p.SIAddr, p.GIAddr = addr(b[20:]), addr(b[24:])
	copy(p.CHAddr[:], b[28:44])
	return p.parseOptions(b[44:108], b[108:236], b[headerSize+4:])
}

// parseOptions reads the options field and, where option 52 says so, the file
// and sname fields, in this order (RFC 2131 §4.1).
func (p *Packet) parseOptions(sname, file, field []byte) error {
	if err := p.scan(field); err != nil {
		return err
	}
	overload := byte(0)
	if v := p.Get(OptOverload); v != nil {
		if len(v) != 1 || v[0] < 1 || v[0] > 3 {
			return ErrOverload
		}
		overload = v[0]
		p.Delete(OptOverload)
	}
	fields := [3][]byte{field, nil, nil}
	if overload&1 != 0 {
		fields[1] = file
	} else {
		p.File = text(file)
	}
	if overload&2 != 0 {
		fields[2] = sname
	} else {
		p.SName = text(sname)
	}
	for _, f := range fields[1:] {
		if err := p.scan(f); err != nil {
			return err
		}
	}
	p.Delete(OptOverload) // a second one, inside file or sname, means nothing
	p.join(fields)
	return nil
}

// scan notes each option of one field. The first part of an option is its
// value for now; a split one is marked by a nil value until join.
func (p *Packet) scan(field []byte) error {
	for code, value, rest := byte(0), []byte(nil), field; ; {
		var ok bool
		code, value, rest, ok = next(rest)
		if !ok {
			return ErrTruncated
		}
		if code == OptEnd {
			return nil
		}
		if i := p.index(code); i >= 0 {
			p.Options[i].Value = nil
		} else {
			p.Options = append(p.Options, Option{code, value})
		}
	}
}

// join concatenates the parts of split options (RFC 3396 §7). Each part is
// copied once, so the work is bounded by the message's size.
func (p *Packet) join(fields [3][]byte) {
	for i := range p.Options {
		o := &p.Options[i]
		if o.Value != nil {
			continue
		}
		start := len(p.joined)
		for _, rest := range fields {
			for {
				code, value, more, ok := next(rest)
				if !ok || code == OptEnd {
					break
				}
				if code == o.Code {
					p.joined = append(p.joined, value...)
				}
				rest = more
			}
		}
		if o.Value = p.joined[start:len(p.joined):len(p.joined)]; o.Value == nil {
			o.Value = []byte{}
		}
	}
}

// next cuts the first option off a field; the end of the field reads as END.
func next(b []byte) (code byte, value, rest []byte, ok bool) {
	for len(b) > 0 && b[0] == OptPad {
		b = b[1:]
	}
	if len(b) == 0 || b[0] == OptEnd {
		return OptEnd, nil, nil, true
	}
	if len(b) < 2 || len(b) < 2+int(b[1]) {
		return 0, nil, nil, false
	}
	n := 2 + int(b[1])
	return b[0], b[2:n:n], b[n:], true
}

// Get returns an option's value, nil when it is absent.
func (p *Packet) Get(code byte) []byte {
	if i := p.index(code); i >= 0 {
		return p.Options[i].Value
	}
	return nil
}

// Set adds an option or replaces its value, which is not copied.
func (p *Packet) Set(code byte, value []byte) {
	if value == nil {
		value = []byte{}
	}
	if i := p.index(code); i >= 0 {
		p.Options[i].Value = value
		return
	}
	p.Options = append(p.Options, Option{code, value})
}

// Delete removes an option.
func (p *Packet) Delete(code byte) {
	if i := p.index(code); i >= 0 {
		p.Options = append(p.Options[:i], p.Options[i+1:]...)
	}
}

func (p *Packet) index(code byte) int {
	for i := range p.Options {
		if p.Options[i].Code == code {
			return i
		}
	}
	return -1
}

func (p *Packet) reset() {
	*p = Packet{Options: p.Options[:0], joined: p.joined[:0]}
}

// Append writes the message to dst: options in their order, long ones split
// (RFC 3396), END, and zeros up to MinSize. SName and File longer than their
// fields are cut.
func (p *Packet) Append(dst []byte) []byte {
	start := len(dst)
	dst = appendHeader(dst, p)
	for _, o := range p.Options {
		dst = appendOption(dst, o.Code, o.Value)
	}
	return finish(dst, start)
}

func appendHeader(dst []byte, p *Packet) []byte {
	dst = append(dst, p.Op, p.HType, p.HLen, p.Hops)
	dst = binary.BigEndian.AppendUint32(dst, p.XID)
	dst = binary.BigEndian.AppendUint16(dst, p.Secs)
	dst = binary.BigEndian.AppendUint16(dst, p.Flags)
	for _, a := range [4]netip.Addr{p.CIAddr, p.YIAddr, p.SIAddr, p.GIAddr} {
		dst = appendAddr(dst, a)
	}
	dst = append(dst, p.CHAddr[:]...)
	dst = appendText(dst, p.SName, 64)
	dst = appendText(dst, p.File, 128)
	return binary.BigEndian.AppendUint32(dst, cookie)
}

func appendOption(dst []byte, code byte, value []byte) []byte {
	for len(value) > 255 {
		dst = append(append(dst, code, 255), value[:255]...)
		value = value[255:]
	}
	return append(append(dst, code, byte(len(value))), value...)
}

var zeros [MinSize]byte

// finish writes END and pads after it: some clients choke on padding before
// END, and relays drop what is shorter than a BOOTP message.
func finish(dst []byte, start int) []byte {
	dst = append(dst, OptEnd)
	if n := len(dst) - start; n < MinSize {
		dst = append(dst, zeros[:MinSize-n]...)
	}
	return dst
}

func appendText(dst, s []byte, field int) []byte {
	if len(s) > field {
		s = s[:field]
	}
	dst = append(dst, s...)
	return append(dst, zeros[:field-len(s)]...)
}

func appendAddr(dst []byte, a netip.Addr) []byte {
	if !a.Is4() {
		return append(dst, 0, 0, 0, 0)
	}
	v := a.As4()
	return append(dst, v[:]...)
}

func addr(b []byte) netip.Addr { return netip.AddrFrom4([4]byte(b[:4])) }

func text(b []byte) []byte {
	for i, c := range b {
		if c == 0 {
			return b[:i:i]
		}
	}
	return b[:len(b):len(b)]
}
