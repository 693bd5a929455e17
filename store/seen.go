package store

import (
	"context"
	"sync"
	"time"

	"muster.internal"
)

var (
	machineSeen = define("registrations/seen", `
UPDATE registrations SET last_seen = $2 WHERE server_uuid = $1 AND last_seen < $2`)
	nodeSeen = define("nodes/seen", `
UPDATE nodes SET last_seen = $2 WHERE server_uuid = $1 AND state <> 'decommissioned'`)
)

// seen gathers what is true but not worth a transaction of its own: when a key
// was last used and when a machine was last heard. A crash loses at most what
// came since the last flush.
type seen struct {
	mu       sync.Mutex
	keys     map[string]time.Time
	machines map[string]time.Time
	booters  map[string]position
}

// A position is how far a booter has followed the feed, and when it said so.
type position struct {
	seq   int64
	at    time.Time
	moved bool // since the last flush
}

func (s *seen) booter(name string, seq int64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.booters == nil {
		s.booters = map[string]position{}
	}
	was := s.booters[name]
	s.booters[name] = position{seq, now, was.moved || was.seq != seq}
}

func (s *seen) position(name string) (position, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.booters[name]
	return p, ok
}

func (s *seen) forget(booter string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.booters, booter)
}

// movedBooters takes those that have moved since it was asked last.
func (s *seen) movedBooters() map[string]position {
	s.mu.Lock()
	defer s.mu.Unlock()
	moved := map[string]position{}
	for name, p := range s.booters {
		if p.moved {
			moved[name] = p
			p.moved = false
			s.booters[name] = p
		}
	}
	return moved
}

func (s *seen) key(id string, now time.Time) { s.note(&s.keys, id, now) }

func (s *seen) note(m *map[string]time.Time, id string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *m == nil {
		*m = map[string]time.Time{}
	}
	if now.After((*m)[id]) {
		(*m)[id] = now
	}
}

func (s *seen) take() (keys, machines map[string]time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, machines = s.keys, s.machines
	s.keys, s.machines = nil, nil
	return keys, machines
}

// Heartbeat notes that a machine lives. It writes nothing; FlushSeen does.
func (s *Store) Heartbeat(now time.Time, serverUUID string) {
	s.seen.note(&s.seen.machines, serverUUID, now)
}

// LastHeard is what is known of a machine since the last flush.
func (s *Store) LastHeard(serverUUID string) (time.Time, bool) {
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	at, ok := s.seen.machines[serverUUID]
	return at, ok
}

// FlushSeen writes what was gathered, outside the audit chain.
func (s *Store) FlushSeen(ctx context.Context, now time.Time) error {
	keys, machines := s.seen.take()
	booters := s.seen.movedBooters()
	if len(keys)+len(machines)+len(booters) == 0 {
		return nil
	}
	err := s.write(ctx, "keeping when machines were last seen", now, muster.Clock, func(t *tx) error {
		for id, at := range keys {
			if _, err := t.exec(keyUsed, id, micro(at)); err != nil {
				return err
			}
		}
		for name, p := range booters {
			if _, err := t.exec(booterMoved, name, p.seq, micro(p.at)); err != nil {
				return err
			}
		}
		for id, at := range machines {
			if _, err := t.exec(machineSeen, id, micro(at)); err != nil {
				return err
			}
			if _, err := t.exec(nodeSeen, id, micro(at)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		for id, at := range keys {
			s.seen.key(id, at)
		}
		for id, at := range machines {
			s.Heartbeat(at, id)
		}
		for name, p := range booters {
			s.seen.booter(name, p.seq, p.at)
		}
	}
	return err
}
