package control

import (
	"context"
	"strings"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/store"
)

// A watch reads the change feed once for all who wait in this process, and wakes
// those that a change is about. It runs while any waits.
type watch struct {
	c *Control

	mu      sync.Mutex
	here    int
	waiting map[string]map[chan struct{}]struct{} // by node, or by the subject of a claim
	stop    context.CancelFunc
	work    sync.WaitGroup
}

func newWatch(c *Control) *watch {
	return &watch{c: c, waiting: map[string]map[chan struct{}]struct{}{}}
}

// attend keeps the watch running, and with it what is known of secrets, until
// leave.
func (w *watch) attend(ctx context.Context) (leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.here == 0 {
		pos, err := w.c.store.Head(ctx)
		if err != nil {
			return nil, err
		}
		var running context.Context
		running, w.stop = context.WithCancel(context.Background())
		w.work.Go(func() { w.run(running, pos) })
	}
	w.here++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.here--; w.here == 0 {
			w.stop()
		}
	}, nil
}

// join waits for changes of a node, or of a claim. Look at the store after joining: what came
// before is not told.
func (w *watch) join(ctx context.Context, about string) (news <-chan struct{}, leave func(), err error) {
	end, err := w.attend(ctx)
	if err != nil {
		return nil, nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	ch := make(chan struct{}, 1)
	if w.waiting[about] == nil {
		w.waiting[about] = map[chan struct{}]struct{}{}
	}
	w.waiting[about][ch] = struct{}{}
	return ch, func() {
		defer end()
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiting[about], ch)
		if len(w.waiting[about]) == 0 {
			delete(w.waiting, about)
		}
	}, nil
}

// close waits until it runs no more; nobody may wait any longer.
func (w *watch) close() {
	w.mu.Lock()
	if w.stop != nil {
		w.stop()
	}
	w.mu.Unlock()
	w.work.Wait()
}

func (w *watch) run(ctx context.Context, pos int64) {
	for ctx.Err() == nil {
		changed := w.c.store.Changed()
		entries, err := w.c.store.Audit(ctx, muster.AuditFilter{After: pos, Limit: eventPage})
		if err != nil {
			if ctx.Err() == nil {
				w.c.log.Warn("waiting nodes cannot be told what is new; trying again", "error", err)
				pauseFor(ctx, time.Second)
			}
			continue
		}
		w.c.keys.look(ctx, w.c.now())
		for _, e := range entries {
			pos = e.Seq
			if id, wakes := Woken(e); wakes {
				w.wake(id)
			} else if strings.HasPrefix(e.Subject, "claim/") {
				w.wake(e.Subject)
			}
		}
		if len(entries) == eventPage {
			continue
		}
		select {
		case <-changed:
		case <-w.c.store.Elsewhere():
		case <-ctx.Done():
		}
	}
}

// Woken tells which node an entry of the feed has news for, if any.
func Woken(e muster.AuditEntry) (node string, wakes bool) {
	id, of := strings.CutPrefix(e.Subject, "node/")
	return id, of && (e.Action == store.ActionDeclare || e.Action == store.ActionOrder)
}

func (w *watch) wake(about string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.waiting[about] {
		select {
		case ch <- struct{}{}:
		default: // it is told already
		}
	}
}
