package lab

import (
	"context"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// needRoot skips what needs a network namespace.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a network namespace of its own")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs ip (Debian package iproute2)")
	}
}

func TestSegment(t *testing.T) {
	needRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := NewSegment(ctx)
	if err != nil {
		t.Skip("this system does not let us make a network namespace:", err)
	}
	defer s.Close()
	out := new(strings.Builder)
	c := exec.Command("ip", "-o", "-4", "addr", "show", "dev", s.Bridge)
	c.Stdout = out
	if err := s.Start(c); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil || !strings.Contains(out.String(), ServerIP+"/24") {
		t.Error("a process inside sees", out, err)
	}
	if names, err := net.Interfaces(); err != nil || strings.Contains(strings.Join(interfaceNames(names), " "), s.Bridge) {
		t.Error("the bridge is outside:", err)
	}
	var l net.Listener
	if err := s.inside(func() (err error) { l, err = net.Listen("tcp", ServerIP+":0"); return err }); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			c.Write([]byte("hello"))
			c.Close()
		}
	}()
	outside, err := s.Forward(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", outside)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	buf := make([]byte, 16)
	if n, err := conn.Read(buf); err != nil || string(buf[:n]) != "hello" {
		t.Error("through the forwarder:", string(buf[:n]), err)
	}
}

func interfaceNames(is []net.Interface) []string {
	var ns []string
	for _, i := range is {
		ns = append(ns, i.Name)
	}
	return ns
}

// What a killed run has left is removed, and a living run is left alone.
func TestSegmentsOfTheDeadAreSwept(t *testing.T) {
	needRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	alive, err := NewSegment(ctx)
	if err != nil {
		t.Skip("this system does not let us make a network namespace:", err)
	}
	defer alive.Close()
	dead, err := NewSegment(ctx)
	if err != nil {
		t.Fatal(err)
	}
	left := exec.Command("sleep", "600")
	if err := dead.Start(left); err != nil {
		t.Fatal(err)
	}
	dead.lock.Close() // as when its process is killed; only the lock goes at once
	next, err := NewSegment(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if err := left.Wait(); err == nil || left.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Error("a process of the dead run lives:", err)
	}
	if _, err := os.Stat("/run/netns/" + alive.Name); err != nil {
		t.Error("a living run's namespace is gone:", err)
	}
	if next.Name != dead.Name { // the name is free again
		if _, err := os.Stat("/run/netns/" + dead.Name); err == nil {
			t.Error("the dead run's namespace is still there")
		}
	}
	dead.leave()
}

func TestConsoleLines(t *testing.T) {
	m := newTranscript("m")
	m.begin(time.Now(), nil)
	m.Write([]byte("\x1b[2J\x1b[01;01HSeaBIOS (ver"))
	m.Write([]byte("sion 1)\r\n\r\n  \r\nnet0: "))
	if got := m.Lines(0); len(got) != 1 || got[0].Text != "SeaBIOS (version 1)" {
		t.Errorf("%q", got)
	}
	mark := m.Mark()
	m.Write([]byte("up\n"))

	l, err := m.WaitFor(t.Context(), mark, regexp.MustCompile(`^net0: up$`))
	if err != nil || l.Text != "net0: up" {
		t.Error(l, err)
	}
	m.end("is off")
	if _, err := m.WaitFor(t.Context(), mark, regexp.MustCompile(`never`)); err == nil || !strings.Contains(err.Error(), "m is off") {
		t.Error(err)
	}
}

func TestStageTable(t *testing.T) {
	one, two := new(Stages), new(Stages)
	one.Add("iPXE has started", 2*time.Second)
	one.Add("approved", 31500*time.Millisecond)
	two.Add("approved", 40*time.Second)
	two.Add("network up", 21240*time.Millisecond)
	const want = `       bios  uefi-http  seconds from power-on
        2.0          -  iPXE has started
          -       21.2  network up
       31.5       40.0  approved
`
	if got := StageTable([]string{"bios", "uefi-http"}, []*Stages{one, two}); got != want {
		t.Errorf("\n%s", got)
	}
}
