package booter

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"
)

// TestQuickConn: it waits as long as it may and no longer, and tells what the
// kernel says.
func TestQuickConn(t *testing.T) {
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
	q, err := newQuickConn(c)
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

// TestQuickMessages: what comes in tells who sent it and by which interface,
// what goes out comes from the address that is named, and errors are told.
func TestQuickMessages(t *testing.T) {
	near, err := listenUDP(netip.MustParseAddrPort("0.0.0.0:0"), "")
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	q, err := newQuickMessages(near)
	if err != nil {
		t.Fatal(err)
	}
	far, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: near.LocalAddr().(*net.UDPAddr).Port})
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	go func() { // a message that is not there yet when it is waited for
		time.Sleep(50 * time.Millisecond)
		far.Write([]byte("hello"))
	}()
	in, oob := make([]byte, 100), make([]byte, 128)
	n, on, from, err := q.Read(in, oob)
	lo, _ := net.InterfaceByName("lo")
	if err != nil || string(in[:n]) != "hello" || from.String() != far.LocalAddr().String() || arrival(oob[:on]) != lo.Index {
		t.Fatalf("%q from %v by interface %d, %v", in[:n], from, arrival(oob[:on]), err)
	}
	// The far end is connected: only what comes from 127.0.0.1 arrives there.
	for _, source := range []string{"127.0.0.2", "127.0.0.1"} {
		if err := q.Write([]byte("from "+source), departure(nil, netip.MustParseAddr(source), 0), from); err != nil {
			t.Fatal(err)
		}
	}
	far.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := far.Read(in); err != nil || string(in[:n]) != "from 127.0.0.1" {
		t.Errorf("%q, %v", in[:n], err)
	}
	if err := q.Write(make([]byte, 1<<16), nil, from); !errors.Is(err, syscall.EMSGSIZE) {
		t.Errorf("too long: %v", err)
	}
	if err := q.Write([]byte("x"), nil, netip.AddrPort{}); !errors.Is(err, syscall.EDESTADDRREQ) {
		t.Errorf("to nobody: %v", err)
	}
	note := []byte("again")
	if n := testing.AllocsPerRun(10, func() { q.Write(note, nil, from) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	near.Close()
	if _, _, _, err := q.Read(in, oob); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
