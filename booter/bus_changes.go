package booter

import (
	"context"
	"maps"
	"sync"
	"time"

	"muster.internal"
)

// change is what the control plane should hear about a machine's session. With
// a name, the connection that held it ended and nobody holds it now; without,
// somebody was refused.
type change struct {
	uuid string
	name string
	muster.SessionChange
}

// sessionChanges holds what has not been told yet: of each machine and name
// the newest. What is told of one machine is told in order: every call about
// it is made under that machine's lock.
type sessionChanges struct {
	mu      *sync.Mutex
	pending map[string]map[string]change // by machine, then by name
	last    map[string]string            // name → the session that was announced last
	locks   map[string]*machineLock
	more    chan struct{}
}

type machineLock struct {
	sync.Mutex
	users int
}

// maxPending bounds what an attacker can make us remember.
const maxPending = 1024

func newSessionChanges() sessionChanges {
	return sessionChanges{mu: new(sync.Mutex), pending: map[string]map[string]change{}, last: map[string]string{},
		locks: map[string]*machineLock{}, more: make(chan struct{}, 1)}
}

func (s *sessionChanges) add(cs ...change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range cs {
		if s.pending[c.uuid] == nil {
			// That a session ended is never lost: there are no more of them
			// than connections. Who was refused may name any machine at all.
			if c.name == "" && len(s.pending) >= maxPending {
				continue
			}
			s.pending[c.uuid] = map[string]change{}
		}
		s.pending[c.uuid][c.name] = c
	}
	poke(s.more)
}

// announced remembers which session the control plane may have heard of.
func (s *sessionChanges) announced(name, session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[name] = session
}

// take returns what is to be told of one machine. That nobody holds a name any
// more is news only if the control plane has heard of a session under it.
func (s *sessionChanges) take(uuid string) []change {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []change
	for _, c := range s.pending[uuid] {
		if c.name != "" {
			if c.Lost == "" {
				c.Lost = s.last[c.name]
			}
			delete(s.last, c.name)
			if c.Lost == "" {
				continue
			}
		}
		out = append(out, c)
	}
	delete(s.pending, uuid)
	return out
}

func (s *sessionChanges) machines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for uuid := range s.pending {
		out = append(out, uuid)
	}
	return out
}

// lock keeps what is told of one machine in order.
func (s *sessionChanges) lock(uuid string) (unlock func()) {
	s.mu.Lock()
	l := s.locks[uuid]
	if l == nil {
		l = new(machineLock)
		s.locks[uuid] = l
	}
	l.users++
	s.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(s.locks, uuid)
		}
	}
}

// flush tells what is pending about one machine; the caller holds its lock.
// What cannot be told now is kept.
func (b *Bus) flush(ctx context.Context, uuid string) error {
	all := b.told.take(uuid)
	for i, c := range all {
		err := b.o.Control.SessionChanged(ctx, uuid, c.SessionChange)
		if err != nil && passing(err) {
			b.told.add(all[i:]...)
			return err
		}
		b.counts.add("bus_session_changes") // 404, 409: no registration that it matters to
	}
	return nil
}

// reportChanges tells of sessions that ended and of those that were refused.
func (b *Bus) reportChanges(ctx context.Context) {
	for n := 0; ; {
		select {
		case <-b.told.more:
		case <-ctx.Done():
			return
		}
		failed := false
		for _, uuid := range b.told.machines() {
			unlock := b.told.lock(uuid)
			failed = b.flush(ctx, uuid) != nil || failed
			unlock()
		}
		if !failed {
			n = 0
			// A machine that is refused comes again every second: tell of it
			// in bundles.
			if !pause(ctx, time.Second) {
				return
			}
			continue
		}
		if !pause(ctx, backoff(n)) {
			return
		}
		n++
		poke(b.told.more)
	}
}

// counters count by name, and remember what was said lately.
type counters struct {
	mu    sync.Mutex
	names map[string]int64
	said  map[string]time.Time
	pace  pace
}

func newCounters() *counters {
	return &counters{names: map[string]int64{}, said: map[string]time.Time{}, pace: newPace()}
}

func (c *counters) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names[name]++
}

func (c *counters) snapshot() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]int64, len(c.names))
	maps.Copy(out, c.names)
	return out
}

// often tells whether a line should not be logged: the same was said within ten
// seconds, or too much is said in all. A client may call itself what it likes,
// so that what is new must not be what is unbounded.
func (c *counters) often(what string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, ok := c.said[what]; ok && now.Sub(t) < 10*time.Second {
		return true
	}
	if !c.pace.take(now) {
		c.names["bus_logs_suppressed"]++
		return true
	}
	if len(c.said) > 1024 {
		clear(c.said)
	}
	c.said[what] = now
	return false
}
