// Package udp reads and writes datagrams with system calls that the Go runtime's
// scheduler is not told of. They never wait, so it need not know; being told of
// each, it would wake its monitor for every packet of a server that sleeps
// between packets, which costs as much as a third of serving them.
//
// It must never look into a datagram.
package udp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Conn is a connected UDP socket. It is for one user at a time.
type Conn struct {
	raw         syscall.RawConn
	read, write func(fd uintptr) bool

	b   []byte // of the call under way, and what came of it
	n   int
	err error
}

// NewConn makes c quick.
func NewConn(c *net.UDPConn) (*Conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	q := &Conn{raw: raw}
	q.read = func(fd uintptr) bool { return q.call(syscall.SYS_READ, fd) }
	q.write = func(fd uintptr) bool { return q.call(syscall.SYS_WRITE, fd) }
	return q, nil
}

// Read waits for a datagram until the socket's read deadline; b must not be
// empty.
func (q *Conn) Read(b []byte) (int, error) {
	q.b = b
	if err := q.raw.Read(q.read); err != nil {
		return 0, err
	}
	return q.n, q.err
}

// Write sends a datagram, or several if the socket is segmented; b must not be
// empty.
func (q *Conn) Write(b []byte) error {
	q.b = b
	if err := q.raw.Write(q.write); err != nil {
		return err
	}
	return q.err
}

// call tells whether the call was made; if not it must wait for the socket,
// which the network poller does.
func (q *Conn) call(number, fd uintptr) bool {
	for {
		n, _, errno := syscall.RawSyscall(number, fd, uintptr(unsafe.Pointer(&q.b[0])), uintptr(len(q.b)))
		switch errno {
		case 0:
			q.n, q.err = int(n), nil
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return false
		default:
			q.n, q.err = 0, errno
		}
		return true
	}
}

// Messages are a UDP socket over IPv4, with control messages, that takes several
// datagrams to a system call: who is behind enters the kernel less often. It is
// for one user at a time.
type Messages struct {
	raw           syscall.RawConn
	receive, send func(fd uintptr) bool

	heads [BatchSize]messageHead // of the call under way, and what came of it
	parts [BatchSize]unix.Iovec
	fars  [BatchSize]unix.RawSockaddrInet4
	asked int
	n     int
	err   error
}

// BatchSize is how many datagrams go with one call at most. More save next to
// nothing, and the first waits for the last.
const BatchSize = 16

// messageHead is struct mmsghdr (recvmmsg(2)).
type messageHead struct {
	unix.Msghdr
	size uint32
}

// A Datagram is one that is to go, or has the room for one that comes.
type Datagram struct {
	Payload, Control []byte
	Far              netip.AddrPort // not valid: that of a connected socket
}

// NewMessages makes c quick.
func NewMessages(c *net.UDPConn) (*Messages, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	q := &Messages{raw: raw}
	q.receive = func(fd uintptr) bool { return q.call(unix.SYS_RECVMMSG, fd) }
	q.send = func(fd uintptr) bool { return q.call(unix.SYS_SENDMMSG, fd) }
	return q, nil
}

// Read waits for datagrams and returns how many have come. What they are read
// into may have been read into before: its capacity counts.
func (q *Messages) Read(in []Datagram) (int, error) {
	for i := range in {
		in[i].Payload, in[i].Control = in[i].Payload[:cap(in[i].Payload)], in[i].Control[:cap(in[i].Control)]
	}
	q.prepare(in, true)
	if err := q.raw.Read(q.receive); err != nil {
		return 0, err
	}
	for i := range q.n {
		d, h, far := &in[i], &q.heads[i], &q.fars[i]
		d.Payload, d.Control = d.Payload[:h.size], d.Control[:h.Controllen]
		d.Far = netip.AddrPortFrom(netip.AddrFrom4(far.Addr), NetworkOrder(far.Port))
	}
	return q.n, q.err
}

// Write sends datagrams and returns how many have gone; the error is that of the
// next one. No payload may be empty.
func (q *Messages) Write(out []Datagram) (sent int, err error) {
	for sent < len(out) {
		q.prepare(out[sent:], false)
		if err := q.raw.Write(q.send); err != nil {
			return sent, err
		}
		if q.err != nil {
			return sent, q.err
		}
		sent += q.n
	}
	return sent, nil
}

// prepare makes ready as many datagrams as fit.
func (q *Messages) prepare(ds []Datagram, reading bool) {
	q.asked = min(len(ds), BatchSize)
	for i := range q.asked {
		d, h := &ds[i], &q.heads[i]
		q.parts[i].Base = &d.Payload[0]
		q.parts[i].SetLen(len(d.Payload))
		h.Msghdr = unix.Msghdr{Iov: &q.parts[i]}
		if reading || d.Far.Addr().Is4() {
			h.Name, h.Namelen = (*byte)(unsafe.Pointer(&q.fars[i])), unix.SizeofSockaddrInet4
		}
		if !reading && d.Far.Addr().Is4() {
			q.fars[i] = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: NetworkOrder(d.Far.Port()), Addr: d.Far.Addr().As4()}
		}
		h.SetIovlen(1)
		if len(d.Control) > 0 {
			h.Control = &d.Control[0]
			h.SetControllen(len(d.Control))
		}
	}
}

// NetworkOrder is a number with its bytes as the wire has them.
func NetworkOrder(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}

// call is as that of a Conn.
func (q *Messages) call(number, fd uintptr) bool {
	for {
		n, _, errno := syscall.RawSyscall6(number, fd, uintptr(unsafe.Pointer(&q.heads[0])), uintptr(q.asked), 0, 0, 0)
		switch errno {
		case 0:
			q.n, q.err = int(n), nil
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return false
		default:
			q.n, q.err = 0, errno
		}
		return true
	}
}
