package lab

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A namespace is one thread of this process inside a network namespace.
type namespace struct {
	Name string
	work chan func()
	gone chan struct{}
}

func newNamespace(name string) *namespace {
	return &namespace{Name: name, work: make(chan func()), gone: make(chan struct{})}
}

// enter starts the thread; the namespace must exist.
func (s *namespace) enter() error {
	ready := make(chan error)
	go s.live(ready)
	return <-ready
}

// leave ends the thread, and with it the processes that it has started.
func (s *namespace) leave() { close(s.gone) }

// live is one thread inside the namespace. It stays for as long as the segment
// does: the kernel ends a child when the thread that started it ends.
func (s *namespace) live(ready chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread is not fit for anything else
	ns, err := os.Open("/run/netns/" + s.Name)
	if err == nil {
		err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		ns.Close()
	}
	ready <- err
	if err != nil {
		return
	}
	for {
		select {
		case f := <-s.work:
			f()
		case <-s.gone:
			return
		}
	}
}

// inside runs f on the thread in the namespace: sockets that it makes and
// processes that it starts belong there.
func (s *namespace) inside(f func() error) error {
	done := make(chan error, 1)
	select {
	case s.work <- func() { done <- f() }:
		return <-done
	case <-s.gone:
		return errors.New("the lab's segment is closed")
	}
}

// Start starts a process in the namespace; it is killed when the segment goes,
// however that happens.
func (s *namespace) Start(c *exec.Cmd) error {
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return s.inside(c.Start)
}

// dialTimeout bounds how long a connection that is not answered keeps the
// thread from other work.
const dialTimeout = 5 * time.Second

// Dial connects from inside the namespace.
func (s *namespace) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var c net.Conn
	err := s.inside(func() (err error) {
		c, err = (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
		return err
	})
	return c, err
}
