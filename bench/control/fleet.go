//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"muster.internal/bench/plane"
	"muster.internal/client"
	"muster.internal/host"
	"muster.internal/resource"
)

// atOnce is how many calls an operator has under way.
const atOnce = 16

// A fleet is all simulated hosts, and the clock of the bench.
type fleet struct {
	ctx    context.Context
	stop   context.CancelFunc
	m      *plane.Musterd
	anyone *client.Client
	began  time.Time
	hosts  []*simulated
	lives  sync.WaitGroup

	unanswered atomic.Int64 // polls that failed
	slowest    atomic.Int64 // answer to a host in this phase, but for polls
	worst      atomic.Int64 // answer to an operator in this phase
}

func newFleet(ctx context.Context, m *plane.Musterd, n int) *fleet {
	f := &fleet{m: m, began: time.Now()}
	f.ctx, f.stop = context.WithCancel(ctx)
	for i := range n {
		f.hosts = append(f.hosts, &simulated{f: f, n: i})
	}
	return f
}

func (f *fleet) close() {
	f.stop()
	f.lives.Wait()
}

// timed makes a call for a host and remembers the slowest.
func timed[T any](f *fleet, call func() (T, error)) (T, error) {
	start := time.Now()
	v, err := call()
	raise(&f.slowest, time.Since(start))
	return v, err
}

func raise(to *atomic.Int64, d time.Duration) {
	for old := to.Load(); int64(d) > old && !to.CompareAndSwap(old, int64(d)); old = to.Load() {
	}
}

// phase does something and shows what it took. All the while an operator looks
// at a node.
func (f *fleet) phase(name string, do func() error) error {
	f.slowest.Store(0)
	f.worst.Store(0)
	before, err := costOf(f.m)
	if err != nil {
		return err
	}
	pid := f.m.Pid()
	ctx, done := context.WithCancel(f.ctx)
	var looks sync.WaitGroup
	looks.Go(func() { f.look(ctx) })
	start := time.Now()
	err = do()
	took := time.Since(start)
	done()
	looks.Wait()
	if err != nil {
		return err
	}
	after, err := costOf(f.m)
	if err != nil {
		return err
	}
	cpu := after.cpu
	if f.m.Pid() == pid {
		cpu -= before.cpu
	}
	fmt.Printf("%-22s %7.1f s  CPU %6.2f s (%5.1f %%)  memory %4.0f MB, at most %4.0f  store %5.1f MB  worst answer: operator %v, host %v\n",
		name, took.Seconds(), cpu.Seconds(), 100*cpu.Seconds()/took.Seconds(), float64(after.resident)/1e6, float64(after.peak)/1e6,
		float64(after.databases)/1e6, round(f.worst.Load()), round(f.slowest.Load()))
	return nil
}

func round(d int64) time.Duration { return time.Duration(d).Round(time.Millisecond) }

// look asks for a node, again and again, as a person's screen would.
func (f *fleet) look(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		if id := f.hosts[n*7919%len(f.hosts)].nodeID; id != "" {
			start := time.Now()
			if _, err := f.m.Admin.Node(ctx, id); err == nil || ctx.Err() == nil {
				raise(&f.worst, time.Since(start))
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// each does something for every host, some at once.
func (f *fleet) each(do func(h *simulated) error) error {
	work := make(chan *simulated)
	errs := make(chan error, atOnce)
	for range atOnce {
		go func() {
			var err error
			for h := range work {
				if err == nil {
					err = do(h)
				}
			}
			errs <- err
		}()
	}
	for _, h := range f.hosts {
		work <- h
	}
	close(work)
	var err error
	for range atOnce {
		if e := <-errs; e != nil {
			err = e
		}
	}
	return err
}

func (f *fleet) enrol() (err error) {
	if f.anyone, err = f.m.Client("", client.Trust{CA: f.m.CA}); err != nil {
		return err
	}
	return f.each(func(h *simulated) error { return h.enrol(f.ctx) })
}

// live starts all hosts, as after a power cut.
func (f *fleet) live() {
	for _, h := range f.hosts {
		f.lives.Go(func() {
			if err := host.Linked(h); f.ctx.Err() == nil {
				fmt.Fprintf(os.Stderr, "host %d ended: %v\n", h.n, err)
			}
		})
	}
}

func (f *fleet) wait(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-f.ctx.Done():
		return f.ctx.Err()
	}
}

// until waits for all hosts, for ten minutes at most.
func (f *fleet) until(so func() int) error {
	missing := 0
	for range 6000 {
		if missing = so(); missing == 0 {
			return nil
		}
		if err := f.wait(100 * time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("%d of %d hosts are missing after ten minutes", missing, len(f.hosts))
}

func (f *fleet) count(lacks func(h *simulated) bool) (n int) {
	for _, h := range f.hosts {
		if lacks(h) {
			n++
		}
	}
	return n
}

func (f *fleet) allLinked() int { return f.count(func(h *simulated) bool { return !h.waits.Load() }) }

// declare tells every node what to be, and waits until all have reported it.
func (f *fleet) declare(word string) error {
	var newest atomic.Int64
	if err := f.each(func(h *simulated) error {
		d, err := f.m.Admin.Declare(f.ctx, h.nodeID, declaration(h.n, word))
		newest.Store(d.Declaration.Generation)
		return err
	}); err != nil {
		return err
	}
	return f.until(func() int { return f.count(func(h *simulated) bool { return h.reported.Load() < newest.Load() }) })
}

// declaration is ten files of some size, as a small machine has.
func declaration(n int, word string) resource.Declaration {
	var d resource.Declaration
	for i := range 10 {
		d.Resources = append(d.Resources, resource.Resource{File: &resource.File{
			Path: fmt.Sprintf("/etc/service/%d.conf", i), Content: fmt.Sprintf("# of host %d\nword = %s\n%0200d\n", n, word, i)}})
	}
	return d
}

// crash kills musterd, starts it again, and waits until every host has been
// answered since.
func (f *fleet) crash() error {
	if err := f.m.Kill(); err != nil {
		return err
	}
	if err := f.wait(2 * time.Second); err != nil { // every host notices
		return err
	}
	failed := f.unanswered.Load()
	if err := f.m.Serve(f.ctx); err != nil {
		return err
	}
	up := time.Now()
	if err := f.until(f.allLinked); err != nil {
		return err
	}
	fmt.Printf("%d polls had failed when musterd listened again; all %d hosts wait again %.1f s later\n", failed, len(f.hosts), time.Since(up).Seconds())
	return nil
}

// verify asks musterd itself, which hears of a host a moment after that has
// asked.
func (f *fleet) verify() error {
	var said string
	err := f.until(func() int {
		nodes, err := f.m.Admin.Nodes(f.ctx)
		linked, holding := 0, 0
		for _, n := range nodes {
			if n.Link != nil && n.Link.Linked {
				linked++
				if n.Link.Holds == 2 {
					holding++
				}
			}
		}
		said = fmt.Sprintf("musterd says: %d nodes, %d linked, %d hold the newest declaration; %d polls failed in all", len(nodes), linked, holding, f.unanswered.Load())
		if err != nil {
			said = err.Error()
		}
		return len(f.hosts) - holding
	})
	fmt.Println(said)
	return err
}
