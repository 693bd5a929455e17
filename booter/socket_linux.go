package booter

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// listenUDP opens a UDP socket, on one interface only if it is named, that may
// broadcast and tells by which interface a datagram came.
func listenUDP(at netip.AddrPort, device string) (*net.UDPConn, error) {
	lc := net.ListenConfig{Control: control(device, func(fd int) error {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err != nil {
			return err
		}
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
	})}
	c, err := lc.ListenPacket(context.Background(), "udp4", at.String())
	if err != nil {
		return nil, err
	}
	u := c.(*net.UDPConn)
	u.SetReadBuffer(4 << 20) // a fleet that powers on at once; less is granted without privileges
	return u, nil
}

func listenTCP(at netip.AddrPort, device string) (net.Listener, error) {
	lc := net.ListenConfig{Control: control(device, func(int) error { return nil })}
	return lc.Listen(context.Background(), "tcp4", at.String())
}

func control(device string, set func(fd int) error) func(string, string, syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) {
			if device != "" {
				if err = unix.BindToDevice(int(fd), device); err != nil {
					return
				}
			}
			err = set(int(fd))
		}); e != nil {
			return e
		}
		return err
	}
}

// arrival is the index of the interface that a datagram came by; 0: unknown.
func arrival(oob []byte) int {
	for len(oob) > 0 {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return 0
		}
		if h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= 4 {
			return int(binary.NativeEndian.Uint32(data))
		}
		oob = rest
	}
	return 0
}

// departure makes a control message that sends from an address, and by an
// interface unless its index is 0. It writes into buf.
func departure(buf []byte, from netip.Addr, index int) []byte {
	size := unix.CmsgLen(unix.SizeofInet4Pktinfo)
	buf = append(buf[:0], make([]byte, unix.CmsgSpace(unix.SizeofInet4Pktinfo))...)
	h := (*unix.Cmsghdr)(unsafe.Pointer(&buf[0]))
	h.Level, h.Type = unix.IPPROTO_IP, unix.IP_PKTINFO
	h.SetLen(size)
	data := buf[unix.CmsgLen(0):]
	binary.NativeEndian.PutUint32(data, uint32(index))
	a := from.As4()
	copy(data[4:], a[:])
	return buf
}

// segment makes the kernel cut what is sent on c into datagrams of n bytes
// (UDP GSO); 0 ends that. Not every kernel and interface can.
func segment(c *net.UDPConn, n int) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	if err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, n)
	}); err != nil {
		return err
	}
	return set
}

// interfaceNames remembers what interfaces are called, by index.
type interfaceNames map[int]string

func (n interfaceNames) name(index int) string {
	if index == 0 {
		return ""
	}
	name, ok := n[index]
	if !ok {
		if i, err := net.InterfaceByIndex(index); err == nil {
			name = i.Name
		}
		n[index] = name
	}
	return name
}
