//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The servers live in one namespace and the load in another, joined by a pair
// of virtual interfaces. The whole of 10/8 is on the wire, so that a hundred
// thousand reservations fit.
const (
	serverIP = "10.0.0.1"
	loadIP   = "10.0.0.2"
	machines = 200 // more addresses of the load, 10.0.1.0 and on
)

// A bench is the stage on which servers take turns.
type bench struct {
	settings
	dir           string
	server, load  string // names of the namespaces
	group         string // control group of the server on stage
	loadNS, ownNS *os.File
}

func newBench(s settings) (*bench, error) {
	dir, err := os.MkdirTemp("", "muster-bench")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // servers drop their privileges
		return nil, err
	}
	id := strconv.Itoa(os.Getpid())
	b := &bench{settings: s, dir: dir, server: "mb-s" + id, load: "mb-l" + id}
	if err := b.setUp(id); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bench) setUp(id string) error {
	root, err := exec.Command("findmnt", "-n", "-o", "TARGET", "-t", "cgroup2").Output()
	if err != nil || len(bytes.TrimSpace(root)) == 0 {
		return errors.New("there is no control group (version 2) hierarchy mounted")
	}
	b.group = filepath.Join(strings.Fields(string(root))[0], "muster-bench-"+id)
	if err := os.Mkdir(b.group, 0o755); err != nil {
		return err
	}
	for _, c := range []string{
		"ip netns add " + b.server,
		"ip netns add " + b.load,
		"ip link add s0 netns " + b.server + " type veth peer name c0 netns " + b.load,
		"ip -n " + b.server + " addr add " + serverIP + "/8 dev s0",
		"ip -n " + b.load + " addr add " + loadIP + "/8 dev c0",
		"ip -n " + b.server + " link set s0 up",
		"ip -n " + b.load + " link set c0 up",
		"ip -n " + b.server + " link set lo up",
		"ip -n " + b.load + " link set lo up",
	} {
		if out, err := exec.Command("sh", "-c", c).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", c, err, out)
		}
	}
	var more strings.Builder
	for n := range machines {
		fmt.Fprintf(&more, "addr add 10.0.1.%d/8 dev c0\n", n)
	}
	add := exec.Command("ip", "-n", b.load, "-batch", "-")
	add.Stdin = strings.NewReader(more.String())
	if out, err := add.CombinedOutput(); err != nil {
		return fmt.Errorf("giving the load its addresses: %w: %s", err, out)
	}
	if b.ownNS, err = os.Open("/proc/self/ns/net"); err != nil {
		return err
	}
	b.loadNS, err = os.Open("/run/netns/" + b.load)
	return err
}

func (b *bench) close() error {
	for _, ns := range []string{b.server, b.load} {
		exec.Command("ip", "netns", "del", ns).Run()
	}
	os.Remove(b.group)
	return os.RemoveAll(b.dir)
}

// atLoad runs f where the load is: sockets that it opens stay there.
func (b *bench) atLoad(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setns(int(b.loadNS.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	err := f()
	if back := unix.Setns(int(b.ownNS.Fd()), unix.CLONE_NEWNET); back != nil {
		panic(back) // this thread would open sockets in the wrong place
	}
	return err
}

// A server is a program that takes the stage.
type server struct {
	name string
	args []string
	env  []string
	peer bool // not ours: what it cannot do is a result
}

// A turn is one server's time on stage.
type turn struct {
	b       *bench
	s       server
	cmd     *exec.Cmd
	log     *os.File
	stopped chan struct{}
}

// start puts a server on stage and waits until ready says that it answers.
func (b *bench) start(ctx context.Context, s server, ready func() bool) (*turn, error) {
	log, err := os.Create(filepath.Join(b.dir, s.name+".log"))
	if err != nil {
		return nil, err
	}
	group, err := os.Open(b.group)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	t := &turn{b: b, s: s, log: log, stopped: make(chan struct{})}
	t.cmd = exec.Command("nsenter", append([]string{"--net=/run/netns/" + b.server, "--"}, s.args...)...)
	t.cmd.Env = append(os.Environ(), s.env...)
	t.cmd.Stdout, t.cmd.Stderr = log, log
	t.cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd()), Setsid: true}
	if err := t.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	go func() { t.cmd.Wait(); close(t.stopped) }()
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline) && ctx.Err() == nil; {
		if ready() {
			return t, nil
		}
		select {
		case <-t.stopped:
			if t.processes() == "" {
				return nil, fmt.Errorf("%s ended: %s", s.name, t.words())
			}
		default:
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.stop()
	return nil, fmt.Errorf("%s does not answer: %s", s.name, t.words())
}

func (t *turn) processes() string {
	p, _ := os.ReadFile(filepath.Join(t.b.group, "cgroup.procs"))
	return strings.TrimSpace(string(p))
}

// words are the last ones of the server's log.
func (t *turn) words() string {
	text, _ := os.ReadFile(t.log.Name())
	return string(text[max(0, len(text)-800):])
}

// stop ends the server and what it started, and nothing else.
func (t *turn) stop() {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		for wait := 0; wait < 30 && t.processes() != ""; wait++ {
			if wait == 0 || sig == syscall.SIGKILL {
				for _, p := range strings.Fields(t.processes()) {
					if pid, err := strconv.Atoi(p); err == nil {
						syscall.Kill(pid, sig)
					}
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	t.log.Close()
}

// cpu is what the server and all its children have used so far.
func (t *turn) cpu() time.Duration {
	text, _ := os.ReadFile(filepath.Join(t.b.group, "cpu.stat"))
	for _, l := range strings.Split(string(text), "\n") {
		if us, ok := strings.CutPrefix(l, "usage_usec "); ok {
			n, _ := strconv.ParseInt(us, 10, 64)
			return time.Duration(n) * time.Microsecond
		}
	}
	return 0
}

// record has perf note where a server spends its time, if that is asked for,
// until the function that it returns is called.
func (t *turn) record(what string) (func(), error) {
	if t.b.profile == "" {
		return func() {}, nil
	}
	file := filepath.Join(t.b.profile, strings.ReplaceAll(t.s.name+", "+what, "/", " of ")+".perf")
	perf := exec.Command("perf", "record", "-q", "-g", "-e", "cpu-clock", "-F", "1999", "-o", file, "-p", strings.Join(strings.Fields(t.processes()), ","))
	perf.Stdout, perf.Stderr = t.log, t.log
	if err := perf.Start(); err != nil {
		return nil, fmt.Errorf("a profile is made by perf, of Debian's package linux-perf: %w", err)
	}
	time.Sleep(500 * time.Millisecond) // until it has attached
	return func() {
		perf.Process.Signal(os.Interrupt)
		perf.Wait()
	}, nil
}

// resident is the peak of the memory of all that runs on stage now.
func (t *turn) resident() (sum int64) {
	for _, pid := range strings.Fields(t.processes()) {
		text, _ := os.ReadFile("/proc/" + pid + "/status")
		for _, l := range strings.Split(string(text), "\n") {
			if kb, ok := strings.CutPrefix(l, "VmHWM:"); ok {
				n, _ := strconv.ParseInt(strings.Fields(kb)[0], 10, 64)
				sum += n * 1024
			}
		}
	}
	return sum
}

// work is what a server does in its turn: how many units were done and failed,
// and how long it took.
type work func(*turn, *result) (done, failed int, took time.Duration, err error)

// compare lets each server do the work in turn, for all rounds. A peer that
// fails loses that round.
func (b *bench) compare(ctx context.Context, c *comparison, servers []server, ready func(server) bool, w work, scale float64) error {
	for round := range b.rounds {
		for _, s := range servers {
			turn := fmt.Sprintf("%s, round %d of %d", c.Work, round+1, b.rounds)
			fmt.Fprintf(os.Stderr, "%s: %s\n", turn, s.name)
			r := c.of(s.name)
			err := b.take(ctx, s, turn, r, ready, w, scale)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil && !s.peer {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if err != nil {
				r.Lost++
				fmt.Fprintf(os.Stderr, "%s has lost this round: %v\n", s.name, err)
			}
		}
	}
	return nil
}

// take is one server's turn.
func (b *bench) take(ctx context.Context, s server, what string, r *result, ready func(server) bool, w work, scale float64) error {
	t, err := b.start(ctx, s, func() bool { return ready(s) })
	if err != nil {
		return err
	}
	defer t.stop()
	profiled, err := t.record(what)
	if err != nil {
		return err
	}
	before := t.cpu()
	done, failed, took, err := w(t, r)
	used := t.cpu() - before
	profiled()
	r.Peak = max(r.Peak, t.resident())
	if err != nil {
		return err
	}
	r.Failed += failed
	if done > 0 {
		r.Values = append(r.Values, used.Seconds()/float64(done)*scale)
		r.Rates = append(r.Rates, float64(done)/took.Seconds())
	}
	return nil
}

// installed leaves out the servers whose program is not here, and says so.
func installed(ss []server) (here []server) {
	for _, s := range ss {
		if _, err := exec.LookPath(s.args[0]); err != nil {
			fmt.Fprintf(os.Stderr, "%s is left out: %v\n", s.name, err)
			continue
		}
		s.peer = true
		here = append(here, s)
	}
	return here
}
