//go:build linux

// Register measures what it costs a musterd with the embedded store to take in
// machines, each registration durable and with its audit entry before it is
// answered, beside etcd, which is given the same documents to keep; and what a
// heartbeat costs that changes nothing.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"muster.internal/bench/measure"
)

// settings are the flags.
type settings struct {
	rounds, machines, beats int
	musterd, etcd           string
}

// Bounds, of medians in one run.
const (
	mostCPU  = 0.6                    // of etcd's, for a registration
	leastOf  = 2.0                    // times etcd's rate
	mostBeat = 110 * time.Microsecond // of CPU
)

func main() {
	var s settings
	flag.IntVar(&s.rounds, "rounds", 3, "rounds, each with a fresh store")
	flag.IntVar(&s.machines, "machines", 1500, "registrations in a round; musterd takes 2,000 at once from strangers")
	flag.IntVar(&s.beats, "beats", 20000, "heartbeats in a round")
	flag.StringVar(&s.musterd, "musterd", "bin/musterd", "the control plane's `program`")
	flag.StringVar(&s.etcd, "etcd", "/usr/bin/etcd", "etcd's `program`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	met, err := run(ctx, s)
	if err != nil {
		fmt.Fprintln(os.Stderr, "register:", err)
		os.Exit(1)
	}
	if !met {
		os.Exit(3)
	}
}

// A series is one kind of work of one server, round by round.
type series struct{ cpu, rate []float64 }

func (s *series) add(w work) {
	s.cpu = append(s.cpu, w.cpu.Seconds()*1e6/float64(w.done))
	s.rate = append(s.rate, float64(w.done)/w.took.Seconds())
}

func (s *series) print(what string) {
	fmt.Printf("%-24s %7.0f µs of CPU each %s  %7.0f a second %s\n", what, measure.Median(s.cpu), spread(s.cpu), measure.Median(s.rate), spread(s.rate))
}

func spread(v []float64) string {
	text := "["
	for i, x := range v {
		if i > 0 {
			text += " "
		}
		text += fmt.Sprintf("%.0f", x)
	}
	return text + "]"
}

// run measures turn by turn, and tells whether all bounds were met.
func run(ctx context.Context, s settings) (met bool, err error) {
	var ours, etcd, beats series
	for range s.rounds {
		w, b, err := roundOfMusterd(ctx, s)
		if err != nil {
			return false, fmt.Errorf("musterd: %w", err)
		}
		ours.add(w)
		beats.add(b)
		if w, err = roundOfEtcd(ctx, s); err != nil {
			return false, fmt.Errorf("etcd: %w", err)
		}
		etcd.add(w)
	}
	ours.print("registration, musterd")
	etcd.print("put, etcd")
	beats.print("heartbeat, musterd")
	met = true
	judge := func(ok bool, format string, args ...any) {
		fmt.Printf(map[bool]string{true: "met:    ", false: "MISSED: "}[ok]+format+"\n", args...)
		met = met && ok
	}
	cpu, rate := measure.Median(ours.cpu)/measure.Median(etcd.cpu), measure.Median(ours.rate)/measure.Median(etcd.rate)
	judge(cpu <= mostCPU, "a registration takes %.2f of etcd's CPU, at most %g", cpu, mostCPU)
	judge(rate >= leastOf, "%.2f times etcd's rate, at least %g", rate, leastOf)
	beat := measure.Median(beats.cpu)
	judge(beat <= float64(mostBeat.Microseconds()), "a heartbeat takes %.0f µs, at most %d, and writes nothing of its own", beat, mostBeat.Microseconds())
	return met, nil
}
