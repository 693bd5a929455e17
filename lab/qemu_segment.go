package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Segment is a network namespace with one bridge, on which machines boot.
// Nothing is routed out of it. What is started through it dies with it.
type Segment struct {
	Bridge string

	*namespace
	lock *os.File
	once sync.Once
	mu   sync.Mutex
	taps int
	open []io.Closer
}

const (
	segmentPrefix = "muster-lab-"
	segmentDir    = "/run/muster-lab" // a lock file for each living segment

	// ServerIP is the address of control plane and booter on the segment.
	ServerIP       = "10.77.0.1"
	segmentPrefix4 = "10.77.0.0/24"
)

// NewSegment makes a segment, and first removes those whose maker is dead.
func NewSegment(ctx context.Context) (*Segment, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("the lab needs root, for a network namespace of its own")
	}
	if err := os.MkdirAll(segmentDir, 0o755); err != nil {
		return nil, err
	}
	if err := sweepSegments(ctx); err != nil {
		return nil, err
	}
	s := &Segment{Bridge: "br0", namespace: newNamespace("")}
	for n := os.Getpid(); ; n++ {
		s.Name = segmentPrefix + strconv.Itoa(n)
		f, err := lockSegment(s.Name)
		if err == nil {
			s.lock = f
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, err
		}
	}
	if err := s.build(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Segment) build(ctx context.Context) error {
	if err := ip(ctx, "netns", "add", s.Name); err != nil {
		return err
	}
	for _, args := range []string{
		"link set lo up",
		"link add br0 type bridge stp_state 0 forward_delay 0",
		"addr add " + ServerIP + "/24 dev br0",
		"addr add fe80::1/64 dev br0 nodad",
		"link set br0 up",
	} {
		if err := ip(ctx, append([]string{"-n", s.Name}, strings.Fields(args)...)...); err != nil {
			return err
		}
	}
	if err := s.enter(); err != nil {
		return err
	}
	return s.advertise()
}

// Forward lets programs outside reach an address inside, by a port of this
// host's loopback interface that it returns.
func (s *Segment) Forward(to string) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s.closes(l)
	go func() {
		for {
			out, err := l.Accept()
			if err != nil {
				return
			}
			go s.splice(out, to)
		}
	}()
	return l.Addr().String(), nil
}

func (s *Segment) splice(out net.Conn, to string) {
	defer out.Close()
	in, err := s.Dial(context.Background(), "tcp", to)
	if err != nil {
		return
	}
	defer in.Close()
	go func() {
		io.Copy(in, out)
		in.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(out, in)
}

// Tap makes a network interface for a virtual machine, plugged into the bridge.
func (s *Segment) Tap(ctx context.Context) (string, error) {
	s.mu.Lock()
	name := fmt.Sprintf("tap%d", s.taps)
	s.taps++
	s.mu.Unlock()
	for _, args := range []string{"tuntap add dev " + name + " mode tap", "link set " + name + " master br0 up"} {
		if err := ip(ctx, append([]string{"-n", s.Name}, strings.Fields(args)...)...); err != nil {
			return "", err
		}
	}
	return name, nil
}

func (s *Segment) closes(c io.Closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, c)
}

// Close ends everything on the segment and removes it.
func (s *Segment) Close() error {
	var err error
	s.once.Do(func() {
		s.mu.Lock()
		for _, c := range s.open {
			c.Close()
		}
		s.mu.Unlock()
		s.leave()
		err = removeSegment(context.Background(), s.Name)
		os.Remove(s.lock.Name())
		s.lock.Close()
	})
	return err
}

func lockSegment(name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(segmentDir, name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sweepSegments removes what runs that were killed have left. A living run
// holds the lock on its segment's file.
func sweepSegments(ctx context.Context) error {
	es, err := os.ReadDir(segmentDir)
	if err != nil {
		return err
	}
	for _, e := range es {
		if !strings.HasPrefix(e.Name(), segmentPrefix) {
			continue
		}
		f, err := lockSegment(e.Name())
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return err
		}
		err = removeSegment(ctx, e.Name())
		os.Remove(f.Name())
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// removeSegment kills what runs in the namespaces of a segment, and removes them.
func removeSegment(ctx context.Context, name string) error {
	all, err := filepath.Glob("/run/netns/" + name + "*")
	if err != nil {
		return err
	}
	for _, file := range all {
		ns := filepath.Base(file)
		if ns != name && !strings.HasPrefix(ns, name+"-") {
			continue // another segment, whose number is longer
		}
		if err := removeNamespace(ctx, ns); err != nil {
			return err
		}
	}
	return nil
}

func removeNamespace(ctx context.Context, name string) error {
	out, err := exec.CommandContext(ctx, "ip", "netns", "pids", name).Output()
	if err != nil {
		return fmt.Errorf("ip netns pids %s: %w", name, err)
	}
	for p := range strings.FieldsSeq(string(out)) {
		if pid, err := strconv.Atoi(p); err == nil && pid != os.Getpid() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return ip(ctx, "netns", "del", name)
}

func ip(ctx context.Context, args ...string) error {
	if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
