package store

import "time"

// Elsewhere returns a channel that tells when it is time to look for what other
// processes on the same database did; nil if there can be none.
func (s *Store) Elsewhere() <-chan time.Time {
	if s.engine.shared() {
		return time.After(otherWriters)
	}
	return nil
}
