//go:build linux

// Control measures one musterd with the embedded store and a fleet of simulated
// hosts. The hosts live by package host's own loop, in this process, over
// mutual TLS, each with its own key pair and connection; only their hands are
// missing. It shows how long it takes until all are enrolled, linked, told what
// to be and changed, what musterd costs while nothing happens, and what it does
// when it is killed and all of them come back.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"muster.internal/bench/plane"
)

// settings are the flags.
type settings struct {
	hosts   int
	rest    time.Duration
	program string
}

func main() {
	var s settings
	flag.IntVar(&s.hosts, "hosts", 5000, "simulated hosts")
	flag.DurationVar(&s.rest, "rest", time.Minute, "how long nothing happens while musterd is watched")
	flag.StringVar(&s.program, "musterd", "bin/musterd", "the control plane's `program`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "control:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) error {
	if err := manyFiles(2 * uint64(s.hosts)); err != nil {
		return err
	}
	m, err := plane.Start(ctx, s.program)
	if err != nil {
		return err
	}
	defer m.Close()
	f := newFleet(ctx, m, s.hosts)
	defer f.close()
	fmt.Printf("%d hosts on one musterd, embedded store\n", s.hosts)
	for _, p := range []struct {
		name string
		do   func() error
	}{
		{"enrolled", f.enrol},
		{"linked, all at once", func() error { f.live(); return f.until(f.allLinked) }},
		{"declared and reported", func() error { return f.declare("one") }},
		{"at rest", func() error { return f.wait(s.rest) }},
		{"a change to each", func() error { return f.declare("two") }},
		{"back after kill -9", func() error { return f.crash() }},
		{"at rest again", func() error { return f.wait(s.rest) }},
	} {
		if err := f.phase(p.name, p.do); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return f.verify()
}

// manyFiles raises the limit of open files, for this process and musterd.
func manyFiles(n uint64) error {
	n += 1000
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	if l.Cur >= n {
		return nil
	}
	l.Cur, l.Max = n, max(l.Max, n)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("cannot open %d files at once: %w", n, err)
	}
	return nil
}
