package booter

import (
	"errors"
	"net"
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
