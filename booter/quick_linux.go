package booter

import (
	"net"
	"syscall"
	"unsafe"
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
