//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"muster.internal"
	"muster.internal/bench/measure"
	"muster.internal/bench/plane"
	"muster.internal/resource"
)

// What a host may cost that is linked and has nothing to do.
const (
	mostIdle    = 15e6 // bytes of proportional set size
	mostWakeUps = 1.0  // a second
)

const settled = 15 * time.Second // after the first report: what it was told last is done and its memory given back

// An idle is what a linked host cost while nothing happened.
type idle struct {
	pss     int64 // bytes
	wakeUps float64
	cpu     time.Duration
	watched time.Duration
}

// watchIdle enrols a host at a musterd by token, tells it what to be, and
// watches it for a while once it has reported.
func watchIdle(s settings, dir, program string) (i idle, err error) {
	ctx, stop := context.WithTimeout(context.Background(), s.idle+2*time.Minute)
	defer stop()
	m, err := plane.Start(ctx, s.musterd)
	if err != nil {
		return i, err
	}
	defer m.Close()
	issued, err := m.Admin.IssueEnrolmentToken(ctx, muster.NewEnrolmentToken{})
	if err != nil {
		return i, err
	}
	state := filepath.Join(dir, "idle-state")
	enrol := exec.CommandContext(ctx, program, "enrol", "--token", "-", "--state", state, "--uuid", "6d757374-6572-4265-8e63-680000000001")
	enrol.Stdin = strings.NewReader(issued.Token)
	if out, err := enrol.CombinedOutput(); err != nil {
		return i, fmt.Errorf("enrolling: %w: %s", err, out)
	}
	run := exec.CommandContext(ctx, program, "run", "--state", state)
	run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	run.Stdout, run.Stderr = &said, &said
	if err := run.Start(); err != nil {
		return i, err
	}
	defer func() {
		run.Process.Signal(syscall.SIGTERM)
		if run.Wait(); err != nil {
			err = fmt.Errorf("%w: it said %.2000s", err, &said)
		}
	}()
	file := filepath.Join(dir, "idle")
	if err := declareOne(ctx, m, file, "before"); err != nil {
		return i, err
	}
	time.Sleep(settled)
	before, err := switches(run.Process.Pid)
	if err != nil {
		return i, err
	}
	used := measure.CPU(run.Process.Pid)
	began := time.Now()
	time.Sleep(s.idle)
	i.watched = time.Since(began)
	after, err := switches(run.Process.Pid)
	if err != nil {
		return i, fmt.Errorf("the host has ended: %w", err)
	}
	i.cpu = measure.CPU(run.Process.Pid) - used
	i.wakeUps = float64(after-before) / i.watched.Seconds()
	i.pss, err = number(fmt.Sprintf("/proc/%d/smaps_rollup", run.Process.Pid), "Pss:")
	i.pss <<= 10
	if err == nil { // nobody is awake who is not there: the link must have lasted
		err = declareOne(ctx, m, file, "after")
	}
	return i, err
}

// declareOne declares one file at the only node there is, and waits until the
// node has reported it.
func declareOne(ctx context.Context, m *plane.Musterd, path, content string) error {
	nodes, err := m.Admin.Nodes(ctx)
	if err != nil {
		return err
	}
	if len(nodes) != 1 {
		return fmt.Errorf("%d nodes are enrolled", len(nodes))
	}
	d := resource.Declaration{Resources: []resource.Resource{{File: &resource.File{Path: path, Content: content}}}}
	told, err := m.Admin.Declare(ctx, nodes[0].ID, d)
	if err != nil {
		return err
	}
	for {
		r, err := m.Admin.NodeReport(ctx, nodes[0].ID)
		if err == nil && r.Report.Generation == told.Generation {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the host has not reported what it was told: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// switches is how often a process's threads were given a processor: each wake-up
// is one.
func switches(pid int) (n int64, err error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, t := range tasks {
		for _, kind := range []string{"voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"} {
			k, err := number(t, kind)
			if err != nil {
				return 0, err
			}
			n += k
		}
	}
	return n, err
}

// number is the one behind a name at a line's start.
func number(file, name string) (int64, error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == name {
			return strconv.ParseInt(fields[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, name)
}

// judgeIdle prints what was seen and says whether it is within bounds.
func judgeIdle(out io.Writer, i idle, v *verdict) {
	fmt.Fprintf(out, "linked and idle for %.0f s: %.1f MB of memory (proportional), %.2f wake-ups and %.2f ms of CPU a second\n",
		i.watched.Seconds(), float64(i.pss)/1e6, i.wakeUps, i.cpu.Seconds()*1e3/i.watched.Seconds())
	v.say(i.pss <= mostIdle, "linked and idle: %.1f MB, at most %.0f", float64(i.pss)/1e6, mostIdle/1e6)
	v.say(i.wakeUps <= mostWakeUps, "linked and idle: %.2f wake-ups a second, at most %g", i.wakeUps, mostWakeUps)
}
