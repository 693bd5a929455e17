//go:build linux

// Host measures `muster-host apply` beside CFEngine, Puppet and the least that a
// program can do: the same files, directories and packages are made, looked at
// when nothing has changed, and repaired, round after round, tool by tool. What
// is compared are the medians of one run, because absolute figures depend on
// the machine. Then a host is enrolled at a control plane, linked, told what to
// be, and watched while it has nothing to do.
//
// It must run as root. Tools that are not installed are left out, and said so.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// settings are the flags.
type settings struct {
	rounds, puppetRounds int
	files, directories   int
	host, musterd        string
	idle                 time.Duration
	floor                string
}

func main() {
	var s settings
	flag.IntVar(&s.rounds, "rounds", 5, "rounds of each tool")
	flag.IntVar(&s.puppetRounds, "puppet", 2, "rounds of Puppet, which takes long")
	flag.IntVar(&s.files, "files", 1000, "files")
	flag.IntVar(&s.directories, "directories", 100, "directories that they are in")
	flag.StringVar(&s.host, "host", "bin/muster-host", "the host's `program`")
	flag.DurationVar(&s.idle, "idle", time.Minute, "how long a host is watched that is linked to a control plane and has nothing to do; 0 leaves that out")
	flag.StringVar(&s.musterd, "musterd", "bin/musterd", "the control plane's `program`")
	flag.StringVar(&s.floor, "floor", "", "be the least that a program can do, with this `list`")
	flag.Parse()
	do := run
	if s.floor != "" {
		do = func(settings) error { return floor(s.floor) }
	}
	if err := do(s); err != nil {
		fmt.Fprintln(os.Stderr, "host:", err)
		os.Exit(1)
	}
}

func run(s settings) error {
	if os.Getuid() != 0 {
		return errors.New("it makes root's files: run it as root")
	}
	dir, err := os.MkdirTemp("", "muster-bench-host")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	host, err := filepath.Abs(s.host)
	if err != nil {
		return err
	}
	w := wanted{dir: dir, files: s.files, directories: s.directories}
	tools, missing, err := w.tools(host)
	if err != nil {
		return err
	}
	for _, name := range missing {
		fmt.Printf("left out, not installed: %s\n", name)
	}
	if s.puppetRounds == 0 {
		tools = slices.DeleteFunc(tools, func(t *tool) bool { return t.name == "Puppet" })
	}
	for round := range s.rounds {
		for _, t := range tools {
			if t.name == "Puppet" && round >= s.puppetRounds {
				continue
			}
			if err := t.round(w); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
		}
	}
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Printf("%d files of about 1 KiB, %d directories, %d installed packages; %d rounds, %d of Puppet; load at the end %s", s.files, s.directories, len(packages), s.rounds, s.puppetRounds, load)
	print(os.Stdout, tools)
	v := &verdict{out: os.Stdout}
	program, err := os.Stat(host)
	if err != nil {
		return err
	}
	judge(v, tools, program.Size())
	if s.idle > 0 {
		i, err := watchIdle(s, dir, host)
		if err != nil {
			return fmt.Errorf("a linked host: %w", err)
		}
		judgeIdle(os.Stdout, i, v)
	}
	return v.err()
}

// A goal bounds the host's median by a tool's.
type goal struct {
	phase phase
	tool  string
	most  float64
}

// Peak memory and the program's size have their bounds by themselves, in bytes.
const (
	mostPeak    = 18e6
	mostProgram = 15 << 20
)

var goals = []goal{{noChange, "CFEngine", 0.15}, {noChange, "Puppet", 0.01}, {repair, "CFEngine", 0.2}, {first, "CFEngine", 0.6}}
