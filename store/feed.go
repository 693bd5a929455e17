package store

import (
	"context"
	"sync"
	"time"
)

// otherWriters is how often a waiter looks for changes of other processes.
const otherWriters = 250 * time.Millisecond

// A ring wakes everybody who waits for a change.
type ring struct {
	mu sync.Mutex
	ch chan struct{}
}

func newRing() *ring { return &ring{ch: make(chan struct{})} }

func (r *ring) wake() {
	r.mu.Lock()
	close(r.ch)
	r.ch = make(chan struct{})
	r.mu.Unlock()
}

func (r *ring) next() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ch
}

// Changed returns a channel that is closed by the next commit of this process.
// Take it before reading what is to be waited on.
func (s *Store) Changed() <-chan struct{} { return s.feed.next() }

// Wait returns once the feed has moved past after, or when ctx ends, which is
// not an error. It hears other processes on the same database too.
func (s *Store) Wait(ctx context.Context, after int64) error {
	for {
		changed := s.Changed()
		seq, err := s.Head(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil || seq > after {
			return err
		}
		var tick <-chan time.Time
		if s.engine.shared() {
			tick = time.After(otherWriters)
		}
		select {
		case <-changed:
		case <-tick:
		case <-ctx.Done():
			return nil
		}
	}
}

// Elsewhere returns a channel that tells when it is time to look for what other
// processes on the same database did; nil if there can be none.
func (s *Store) Elsewhere() <-chan time.Time {
	if s.engine.shared() {
		return time.After(otherWriters)
	}
	return nil
}
