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
	if len(keys)+len(machines) == 0 {
		return nil
	}
	err := s.write(ctx, "keeping when machines were last seen", now, muster.Clock, func(t *tx) error {
		for id, at := range keys {
			if _, err := t.exec(keyUsed, id, micro(at)); err != nil {
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
	}
	return err
}
