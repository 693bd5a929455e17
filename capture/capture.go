// Package capture reads packet captures, pcap and pcapng, as frames that carry
// UDP or TCP over IPv4: what a network boot consists of.
//
// It reads what it is handed and opens nothing. Whatever is in a file, it must
// not panic and must not hold more than a bounded amount of it, and a frame
// that cannot be read is said, never dropped without a word.
package capture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Protocols of a frame.
const (
	UDP = 17
	TCP = 6
)

// Bounds of what one file may hold, since it is kept in memory: compressed ones
// may be much longer than they look.
const (
	maxFrames = 1_000_000
	maxBytes  = 512 << 20 // of frames of interest
)

// A Frame is one datagram or segment.
type Frame struct {
	Number         int // in its file, from 1
	At             time.Time
	SrcMAC, DstMAC [6]byte
	VLANs          []uint16 // outer first
	Proto          byte     // UDP or TCP; 0: see Fault
	Src, Dst       netip.AddrPort
	Payload        []byte
	// Fault says why a frame that looked like one of interest cannot be read.
	Fault string
}

// A File is the frames of interest of a capture.
type File struct {
	Frames []Frame
	Total  int // frames in the file
	Other  int // that are of other protocols
	// Fault says what of the boots that the file shows could not be read: its
	// end is missing, or frames are damaged or were captured in part.
	Fault string
}

// fragment is the fault of a frame that was so on the wire.
const fragment = "it is a fragment; no firmware puts those together"

// ErrNotCapture: the file is neither pcap nor pcapng of a link that is known.
var ErrNotCapture = errors.New("this is not a packet capture (pcap or pcapng) of Ethernet")

type source interface {
	ReadPacketData() ([]byte, gopacket.CaptureInfo, error)
	LinkType() layers.LinkType
}

// Read reads a capture, as far as the bounds go. An error means that there is
// nothing to show; a file that breaks off reads as far as it goes.
func Read(r io.Reader) (f File, err error) {
	defer func() {
		if p := recover(); p != nil { // the library met what it did not expect
			f.Fault = fmt.Sprintf("frame %d cannot be read: %v", f.Total+1, p)
			if f.Total == 0 {
				err = ErrNotCapture
			}
		}
	}()
	src, err := open(r)
	if err != nil {
		return f, err
	}
	kept, short, broken := 0, 0, 0
	for {
		data, info, err := src.ReadPacketData()
		if errors.Is(err, io.EOF) && info.CaptureLength == 0 { // else it ends behind a frame's header
			f.Fault = damage(short, broken)
			return f, nil
		}
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = errors.New("its end is missing")
			}
			f.Fault = fmt.Sprintf("after frame %d the file breaks off: %v", f.Total, err)
			return f, nil
		}
		f.Total++
		if f.Total > maxFrames {
			f.Fault = fmt.Sprintf("only the first %d frames were read", maxFrames)
			return f, nil
		}
		frame, ok := parse(data, link(src, info))
		if !ok {
			f.Other++
			continue
		}
		if kept += len(data); kept > maxBytes {
			f.Fault = fmt.Sprintf("only the first %d frames were read: they are too much to keep", f.Total-1)
			return f, nil
		}
		switch {
		case info.CaptureLength < info.Length:
			short++
		case frame.Fault != "" && frame.Fault != fragment:
			broken++
		}
		frame.Number, frame.At = f.Total, info.Timestamp.UTC()
		f.Frames = append(f.Frames, frame)
	}
}

// damage says what is wrong with frames that are there.
func damage(short, broken int) string {
	var faults []string
	if short > 0 {
		faults = append(faults, fmt.Sprintf("of %d frames the file holds the beginning alone: capture whole frames (tcpdump -s 0)", short))
	}
	if broken > 0 {
		faults = append(faults, fmt.Sprintf("the headers of %d frames are damaged", broken))
	}
	return strings.Join(faults, "; ")
}

func open(r io.Reader) (source, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	magic, err := b.Peek(4)
	if err != nil {
		return nil, ErrNotCapture
	}
	var s source
	if binary.BigEndian.Uint32(magic) == 0x0a0d0d0a {
		s, err = pcapgo.NewNgReader(b, pcapgo.NgReaderOptions{WantMixedLinkType: true, SkipUnknownVersion: true})
	} else {
		s, err = pcapgo.NewReader(b)
	}
	if err != nil {
		return nil, ErrNotCapture
	}
	return s, nil
}

// link is the link type of one frame: in pcapng each interface has its own.
func link(s source, info gopacket.CaptureInfo) layers.LinkType {
	if ng, ok := s.(*pcapgo.NgReader); ok {
		if i, err := ng.Interface(info.InterfaceIndex); err == nil {
			return i.LinkType
		}
	}
	return s.LinkType()
}

// parse reads a frame; not ok: it is of no interest.
func parse(data []byte, l layers.LinkType) (f Frame, ok bool) {
	var kind uint16
	switch l {
	case layers.LinkTypeEthernet:
		if len(data) < 14 {
			return f, false
		}
		copy(f.DstMAC[:], data)
		copy(f.SrcMAC[:], data[6:])
		kind, data = binary.BigEndian.Uint16(data[12:]), data[14:]
	case layers.LinkTypeLinuxSLL: // tcpdump -i any, as it was
		if len(data) < 16 {
			return f, false
		}
		if binary.BigEndian.Uint16(data[4:]) == 6 {
			copy(f.SrcMAC[:], data[6:])
		}
		kind, data = binary.BigEndian.Uint16(data[14:]), data[16:]
	case layers.LinkTypeLinuxSLL2: // tcpdump -i any, as it is
		if len(data) < 20 {
			return f, false
		}
		if data[11] == 6 {
			copy(f.SrcMAC[:], data[12:])
		}
		kind, data = binary.BigEndian.Uint16(data), data[20:]
	default:
		return f, false
	}
	for kind == 0x8100 || kind == 0x88a8 {
		if len(data) < 4 || len(f.VLANs) == 4 {
			return f, false
		}
		f.VLANs = append(f.VLANs, binary.BigEndian.Uint16(data)&0xfff)
		kind, data = binary.BigEndian.Uint16(data[2:]), data[4:]
	}
	if kind != 0x0800 {
		return f, false
	}
	return ipv4(f, data)
}

// ipv4 reads what an IP packet carries.
func ipv4(f Frame, data []byte) (Frame, bool) {
	var ip layers.IPv4
	if err := ip.DecodeFromBytes(data, gopacket.NilDecodeFeedback); err != nil {
		f.Fault = "its IP header is broken: " + err.Error()
		return f, true
	}
	src, _ := netip.AddrFromSlice(ip.SrcIP.To4())
	dst, _ := netip.AddrFromSlice(ip.DstIP.To4())
	f.Src, f.Dst = netip.AddrPortFrom(src, 0), netip.AddrPortFrom(dst, 0)
	if ip.Protocol != layers.IPProtocolUDP && ip.Protocol != layers.IPProtocolTCP {
		return f, false
	}
	if ip.FragOffset != 0 || ip.Flags&layers.IPv4MoreFragments != 0 {
		f.Fault = fragment
		return f, true
	}
	switch ip.Protocol {
	case layers.IPProtocolUDP:
		var u layers.UDP
		if err := u.DecodeFromBytes(ip.Payload, gopacket.NilDecodeFeedback); err != nil {
			f.Fault = "its UDP header is broken: " + err.Error()
			return f, true
		}
		f.Proto, f.Payload = UDP, u.Payload
		f.Src, f.Dst = netip.AddrPortFrom(src, uint16(u.SrcPort)), netip.AddrPortFrom(dst, uint16(u.DstPort))
	case layers.IPProtocolTCP:
		var t layers.TCP
		if err := t.DecodeFromBytes(ip.Payload, gopacket.NilDecodeFeedback); err != nil {
			f.Fault = "its TCP header is broken: " + err.Error()
			return f, true
		}
		f.Proto, f.Payload = TCP, t.Payload
		f.Src, f.Dst = netip.AddrPortFrom(src, uint16(t.SrcPort)), netip.AddrPortFrom(dst, uint16(t.DstPort))
	}
	return f, true
}
