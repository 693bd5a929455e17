//go:build linux

// Netboot measures muster-booter beside the servers that people run today: Kea
// and coredhcp for DHCP, atftpd and dnsmasq for TFTP, nginx for HTTP.
// Each server takes its turn in a network namespace and a control group of its
// own, under the same load, round after round; what is compared are the
// medians of one run, because absolute figures depend on the machine.
//
// It must run as root. Peers that are not installed are left out, and said so.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// settings are the flags.
type settings struct {
	rounds   int
	records  int
	many     int
	only     string
	booter   string
	coredhcp string
	profile  string
	json     bool
}

func main() {
	var s settings
	flag.IntVar(&s.rounds, "rounds", 5, "rounds of each comparison")
	flag.IntVar(&s.records, "records", 10_000, "boot records, and reservations of the peers")
	flag.IntVar(&s.many, "many", 100_000, "boot records for the question whether the cost stays flat")
	flag.StringVar(&s.only, "only", "dhcp,tftp,http", "what to measure")
	flag.StringVar(&s.booter, "booter", "bin/muster-booter", "the booter's `program`")
	flag.StringVar(&s.coredhcp, "coredhcp", "coredhcp", "coredhcp's `program`; it has no Debian package")
	flag.StringVar(&s.profile, "profile", "", "have perf record each turn into this `directory`, which must exist; read it with perf report -i FILE")
	flag.BoolVar(&s.json, "json", false, "print the results as JSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "netboot:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) (err error) {
	if os.Getuid() != 0 {
		return errors.New("it makes network namespaces and control groups: run it as root")
	}
	b, err := newBench(s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	var all []comparison
	for _, area := range []struct {
		name    string
		measure func(context.Context) ([]comparison, error)
	}{{"dhcp", b.dhcp}, {"tftp", b.tftp}, {"http", b.http}} {
		if !strings.Contains(s.only, area.name) {
			continue
		}
		cs, err := area.measure(ctx)
		all = append(all, cs...)
		for _, c := range cs {
			if !s.json {
				c.print(os.Stdout)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", area.name, err)
		}
	}
	if s.json {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(all)
	}
	return nil
}
