package udp

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestConn: it waits as long as it may and no longer, and tells what the
// kernel says.
func TestConn(t *testing.T) {
	far, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	c, err := net.DialUDP("udp4", nil, far.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	q, err := NewConn(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	in := make([]byte, 100)
	n, from, err := far.ReadFromUDPAddrPort(in)
	if err != nil || string(in[:n]) != "hello" {
		t.Fatalf("%q, %v", in[:n], err)
	}
	go func() { // an answer that is not there yet when it is waited for
		time.Sleep(50 * time.Millisecond)
		far.WriteToUDPAddrPort([]byte("world"), from)
	}()
	if n, err = q.Read(in); err != nil || string(in[:n]) != "world" {
		t.Fatalf("%q, %v", in[:n], err)
	}
	c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err = q.Read(in); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
	c.SetReadDeadline(time.Time{})
	if err = q.Write(make([]byte, 1<<16)); !errors.Is(err, syscall.EMSGSIZE) {
		t.Errorf("too long: %v", err)
	}
	note := []byte("again")
	if n := testing.AllocsPerRun(10, func() { q.Write(note) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	far.Close()
	q.Write(note)
	if _, err = q.Read(in); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody there: %v", err)
	}
	c.Close()
	if _, err = q.Read(in); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestMessages: as many as have come are read, each with its sender and the
// interface that it came by; what goes out comes from the address that is named;
// and an error is that of one datagram, whose neighbours go all the same.
func TestMessages(t *testing.T) {
	near, err := net.ListenUDP("udp4", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	raw, _ := near.SyscallConn()
	raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1) })
	if err != nil {
		t.Fatal(err)
	}
	q, err := NewMessages(near)
	if err != nil {
		t.Fatal(err)
	}
	far, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: near.LocalAddr().(*net.UDPAddr).Port})
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	from := far.LocalAddr().(*net.UDPAddr).AddrPort()
	lo, _ := net.InterfaceByName("lo")
	in := make([]Datagram, 3)
	for i := range in {
		in[i] = Datagram{Payload: make([]byte, 100), Control: make([]byte, 128)}
	}
	read := func(want ...string) {
		t.Helper()
		n, err := q.Read(in)
		if err != nil || n != len(want) {
			t.Fatalf("%d datagrams, %v", n, err)
		}
		for i, d := range in[:n] {
			m, err := unix.ParseSocketControlMessage(d.Control)
			if err != nil || len(m) != 1 || binary.NativeEndian.Uint32(m[0].Data) != uint32(lo.Index) || string(d.Payload) != want[i] || d.Far != from {
				t.Errorf("%q from %v with %v, %v", d.Payload, d.Far, m, err)
			}
		}
	}
	go func() { // a message that is not there yet when it is waited for
		time.Sleep(50 * time.Millisecond)
		far.Write([]byte("hello"))
	}()
	read("hello")
	for _, s := range []string{"a", "longer than a", "b", "c"} {
		far.Write([]byte(s))
	}
	read("a", "longer than a", "b")
	read("c")

	source := func(a byte) []byte { // IP_PKTINFO
		c := make([]byte, unix.CmsgSpace(unix.SizeofInet4Pktinfo))
		h := (*unix.Cmsghdr)(unsafe.Pointer(&c[0]))
		h.Level, h.Type = unix.IPPROTO_IP, unix.IP_PKTINFO
		h.SetLen(unix.CmsgLen(unix.SizeofInet4Pktinfo))
		copy(c[unix.CmsgLen(4):], []byte{127, 0, 0, a})
		return c
	}
	var many []Datagram // the far end is connected: only what comes from 127.0.0.1 arrives there
	for i := range 2*BatchSize + 1 {
		many = append(many, Datagram{[]byte{byte(i)}, source(byte(1 + i%2)), from})
	}
	if n, err := q.Write(many); n != len(many) || err != nil {
		t.Fatalf("%d sent, %v", n, err)
	}
	far.SetReadDeadline(time.Now().Add(10 * time.Second))
	b := make([]byte, 100)
	for i := 0; i < len(many); i += 2 {
		if n, err := far.Read(b); err != nil || n != 1 || b[0] != byte(i) {
			t.Fatalf("%v instead of %d, %v", b[:n], i, err)
		}
	}
	out := []Datagram{{Payload: []byte("first"), Far: from}, {Payload: make([]byte, 1<<16), Far: from}, {Payload: []byte("x")}, {Payload: []byte("last"), Far: from}}
	for _, step := range []struct {
		left, sent int
		err        error
	}{{4, 1, syscall.EMSGSIZE}, {2, 0, syscall.EDESTADDRREQ}, {1, 1, nil}} {
		if n, err := q.Write(out[len(out)-step.left:]); n != step.sent || !errors.Is(err, step.err) {
			t.Errorf("the last %d: %d sent, %v", step.left, n, err)
		}
	}
	for _, want := range []string{"first", "last"} {
		if n, err := far.Read(b); string(b[:n]) != want {
			t.Errorf("%q, %v", b[:n], err)
		}
	}
	if n := testing.AllocsPerRun(10, func() { q.Write(many) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	near.Close()
	if _, err := q.Read(in); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
