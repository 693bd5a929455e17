package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"muster.internal"
	"muster.internal/host"
	"muster.internal/linux"
	"muster.internal/resource"
)

const (
	probeWithin = 2 * time.Second
	probesMost  = 8 // at once
	disksEvery  = 10 * time.Second
)

// A watch looks at placements and at declared disks while the node waits for its
// control plane. Where neither is declared it never wakes.
type watch struct {
	boot    string
	there   func([]resource.DataDisk) string // says of disks whether they are there
	news    chan struct{}                    // there is something to say, or to do
	changed chan struct{}                    // what is to be looked at

	mu      sync.Mutex
	judge   host.Watch
	disks   []resource.DataDisk
	seen    string // of the disks, when they were applied last
	trigger string
}

func newWatch(boot string, there func([]resource.DataDisk) string) *watch {
	return &watch{boot: boot, there: there, news: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
}

// run looks until what it returns is called.
func (w *watch) run(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for w.wait(ctx) {
			w.look(ctx)
		}
	}()
	return func() { cancel(); <-ended }
}

// wait returns when it is time to look, or false at the end.
func (w *watch) wait(ctx context.Context) bool {
	for {
		var due <-chan time.Time
		if after, any := w.next(); any {
			t := time.NewTimer(after)
			defer t.Stop()
			due = t.C
		}
		select {
		case <-due:
			return true
		case <-w.changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (w *watch) next() (time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	after, any := w.judge.Next(momentOf(w.boot), rand.Float64())
	if len(w.disks) > 0 && (!any || after > disksEvery) {
		return disksEvery, true
	}
	return after, any
}

// applied tells what is to be looked at from now on.
func (w *watch) applied(d *resource.Declaration) {
	var disks []resource.DataDisk
	for _, r := range d.Resources {
		if r.Disk != nil {
			disks = append(disks, *r.Disk)
		}
	}
	seen := ""
	if len(disks) > 0 {
		seen = w.there(disks)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge.Applied(d.Checks, momentOf(w.boot))
	w.disks, w.seen = disks, seen
	poke(w.changed)
}

// poke leaves one word, unless one is there.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (w *watch) look(ctx context.Context) {
	w.mu.Lock()
	checks, disks := w.judge.Checks(), w.disks
	w.mu.Unlock()
	found := probe(ctx, checks)
	seen := ""
	if len(disks) > 0 {
		seen = w.there(disks)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil || !same(checks, w.judge.Checks()) || !same(disks, w.disks) {
		return // something else was declared meanwhile
	}
	if w.judge.Saw(found, time.Now()) {
		poke(w.news)
	}
	if seen != w.seen {
		w.seen, w.trigger = seen, host.TriggerDisk
		poke(w.news)
	}
}

func same[T any](a, b []T) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

func (w *watch) woken() (trigger string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	trigger, w.trigger = w.trigger, ""
	return trigger
}

func (w *watch) health() ([]muster.PlacementHealth, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.judge.Health()
}

// probe looks at each once.
func probe(ctx context.Context, checks []resource.Check) []host.Probe {
	found := make([]host.Probe, len(checks))
	turns := make(chan struct{}, probesMost)
	var all sync.WaitGroup
	for i, c := range checks {
		turns <- struct{}{}
		all.Go(func() {
			found[i] = probeOne(ctx, c)
			<-turns
		})
	}
	all.Wait()
	return found
}

func probeOne(ctx context.Context, c resource.Check) (p host.Probe) {
	if p.Reason = answers(ctx, c.Port, c.Path); p.Reason != "" {
		return p
	}
	p.Healthy, p.CaughtUp = true, true
	if c.CaughtUp != "" {
		p.Reason = answers(ctx, c.Port, c.CaughtUp)
		p.CaughtUp = p.Reason == ""
	}
	return p
}

// answers tells why a port takes no connection or, with a path, does not answer
// that with success; empty: it does.
func answers(ctx context.Context, port int, path string) string {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	if path == "" {
		c, err := reach(ctx, port)
		if err == nil {
			c.Close()
			return ""
		}
		return silence(port, err)
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost:"+strconv.Itoa(port)+path, nil)
	if err != nil {
		return "the path cannot be asked for: " + err.Error()
	}
	q.Header.Set("User-Agent", "muster-host")
	way := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return reach(ctx, port) }}
	a, err := way.RoundTrip(q) // which follows nothing
	if err != nil {
		return silence(port, err)
	}
	defer a.Body.Close()
	io.CopyN(io.Discard, a.Body, 4<<10) // so that it is not taken for gone at once
	if a.StatusCode/100 != 2 {
		return fmt.Sprintf("GET %s at port %d is answered with %d", path, port, a.StatusCode)
	}
	return ""
}

// reach connects to a port of this machine, by whichever of its addresses takes
// it: loopback, or what others reach it by.
func reach(ctx context.Context, port int) (c net.Conn, err error) {
	var d net.Dialer
	for _, a := range []string{"127.0.0.1", "::1", linux.Address()} {
		c, e := d.DialContext(ctx, "tcp", net.JoinHostPort(a, strconv.Itoa(port)))
		if e == nil {
			return c, nil
		}
		err = cmp.Or(err, e) // the first says the most
	}
	return nil, err
}

// silence says why nothing was heard, in the same words each time.
func silence(port int, err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("nothing listens at port %d", port)
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("port %d does not answer within %v", port, probeWithin)
	}
	return fmt.Sprintf("port %d does not answer as it should", port)
}
