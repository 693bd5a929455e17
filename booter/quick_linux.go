package booter

import (
	"net"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A quickConn is a connected UDP socket whose system calls the runtime's
// scheduler is not told of. They never wait, so it need not know; being told of
// each, it would wake its monitor for every packet of a server that sleeps
// between packets, which costs as much as a third of serving them. It is for one
// user at a time.
type quickConn struct {
	raw         syscall.RawConn
	read, write func(fd uintptr) bool

	b   []byte // of the call under way, and what came of it
	n   int
	err error
}

func newQuickConn(c *net.UDPConn) (*quickConn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	q := &quickConn{raw: raw}
	q.read = func(fd uintptr) bool { return q.call(syscall.SYS_READ, fd) }
	q.write = func(fd uintptr) bool { return q.call(syscall.SYS_WRITE, fd) }
	return q, nil
}

// Read waits for a datagram until the socket's read deadline; b must not be
// empty.
func (q *quickConn) Read(b []byte) (int, error) {
	q.b = b
	if err := q.raw.Read(q.read); err != nil {
		return 0, err
	}
	return q.n, q.err
}

// Write sends a datagram, or several if the socket is segmented; b must not be
// empty.
func (q *quickConn) Write(b []byte) error {
	q.b = b
	if err := q.raw.Write(q.write); err != nil {
		return err
	}
	return q.err
}

// call tells whether the call was made; if not it must wait for the socket,
// which the network poller does.
func (q *quickConn) call(number, fd uintptr) bool {
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

// A quickMessages is the same for a UDP socket over IPv4 that is not connected,
// with control messages. It is for one user at a time, too.
type quickMessages struct {
	raw           syscall.RawConn
	receive, send func(fd uintptr) bool

	head unix.Msghdr // of the call under way, and what came of it
	part unix.Iovec
	far  unix.RawSockaddrInet4
	n    int
	err  error
}

func newQuickMessages(c *net.UDPConn) (*quickMessages, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	q := &quickMessages{raw: raw}
	q.receive = func(fd uintptr) bool { return q.call(unix.SYS_RECVMSG, fd) }
	q.send = func(fd uintptr) bool { return q.call(unix.SYS_SENDMSG, fd) }
	return q, nil
}

// Read waits for a datagram; on is the length of its control messages. Neither b
// nor oob may be empty.
func (q *quickMessages) Read(b, oob []byte) (n, on int, from netip.AddrPort, err error) {
	q.prepare(b, oob)
	if err := q.raw.Read(q.receive); err != nil {
		return 0, 0, netip.AddrPort{}, err
	}
	from = netip.AddrPortFrom(netip.AddrFrom4(q.far.Addr), network16(q.far.Port))
	return q.n, int(q.head.Controllen), from, q.err
}

// Write sends a datagram; b must not be empty.
func (q *quickMessages) Write(b, oob []byte, to netip.AddrPort) error {
	if !to.Addr().Is4() {
		return syscall.EDESTADDRREQ
	}
	q.prepare(b, oob)
	q.far = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: network16(to.Port()), Addr: to.Addr().As4()}
	if err := q.raw.Write(q.send); err != nil {
		return err
	}
	return q.err
}

func (q *quickMessages) prepare(b, oob []byte) {
	q.part.Base = &b[0]
	q.part.SetLen(len(b))
	q.head = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&q.far)), Namelen: unix.SizeofSockaddrInet4, Iov: &q.part}
	q.head.SetIovlen(1)
	if len(oob) > 0 {
		q.head.Control = &oob[0]
		q.head.SetControllen(len(oob))
	}
}

// call is as that of a quickConn.
func (q *quickMessages) call(number, fd uintptr) bool {
	for {
		n, _, errno := syscall.RawSyscall(number, fd, uintptr(unsafe.Pointer(&q.head)), 0)
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
