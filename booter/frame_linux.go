package booter

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"muster.internal/dhcp"
	"muster.internal/udp"
)

// frames is a packet socket. Opening one needs CAP_NET_RAW, using it does not.
type frames struct {
	fd   int      // for sending
	ears *os.File // hears what other DHCP servers say; nil when it is only for sending
	to   unix.SockaddrLinklayer
	buf  []byte
}

// openFrames opens a packet socket that hears DHCP servers on one interface, or
// on all when it is not named.
func openFrames(device string) (*frames, error) {
	index := 0
	if device != "" {
		i, err := net.InterfaceByName(device)
		if err != nil {
			return nil, err
		}
		index = i.Index
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) // hears nothing yet
	if err != nil {
		return nil, fmt.Errorf("a packet socket: %w", err)
	}
	if err := listenServers(fd, index); err != nil {
		unix.Close(fd)
		return nil, err
	}
	f := &frames{fd: fd, ears: os.NewFile(uintptr(fd), "packet socket"), buf: make([]byte, 0, 2048)}
	f.to = unix.SockaddrLinklayer{Protocol: udp.NetworkOrder(unix.ETH_P_IP), Halen: 6}
	return f, nil
}

// listenServers lets through unfragmented answers from the port of DHCP servers,
// and nothing that leaves this host. Relays pass on what machines ask from the
// same port: that is most of the traffic, and none of it is to wake anybody.
func listenServers(fd, index int) error {
	ld, jump := uint16(unix.BPF_LD|unix.BPF_ABS), uint16(unix.BPF_JMP|unix.BPF_K)
	code := []unix.SockFilter{ // offsets from the IPv4 header
		{Code: ld | unix.BPF_B, K: 9},
		{Code: jump | unix.BPF_JEQ, K: unix.IPPROTO_UDP, Jf: 8},
		{Code: ld | unix.BPF_H, K: 6},
		{Code: jump | unix.BPF_JSET, K: 0x1fff, Jt: 6},
		{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH, K: 0},
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_IND, K: 0},
		{Code: jump | unix.BPF_JEQ, K: dhcp.ServerPort, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_IND, K: 8}, // behind the UDP header
		{Code: jump | unix.BPF_JEQ, K: dhcp.BootReply, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffff},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}); err != nil {
		return fmt.Errorf("filtering a packet socket: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
		return fmt.Errorf("a packet socket without what we send: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: udp.NetworkOrder(unix.ETH_P_IP), Ifindex: index}); err != nil {
		return fmt.Errorf("binding a packet socket: %w", err)
	}
	return nil
}

// send sends a datagram to a hardware address. One goroutine at a time.
func (f *frames) send(index int, m dhcp.MAC, from, to netip.AddrPort, payload []byte) error {
	f.buf = dhcp.AppendDatagram(f.buf[:0], from, to, payload)
	f.to.Ifindex = index
	copy(f.to.Addr[:], m[:])
	return unix.Sendto(f.fd, f.buf, 0, &f.to)
}

// receive returns the next datagram of a DHCP server.
func (f *frames) receive(buf []byte) (payload []byte, from netip.Addr, err error) {
	for {
		n, err := f.ears.Read(buf)
		if err != nil {
			return nil, netip.Addr{}, err
		}
		b := buf[:n]
		if len(b) < 20 {
			continue
		}
		head := int(b[0]&15) * 4
		if head < 20 || len(b) < head+8 {
			continue
		}
		end := head + int(binary.BigEndian.Uint16(b[head+4:]))
		if end < head+8 || end > len(b) {
			continue
		}
		return b[head+8 : end], netip.AddrFrom4([4]byte(b[12:16])), nil
	}
}

func (f *frames) close() { f.ears.Close() }
