package store

import (
	"testing"

	"muster.internal"
)

// A change is told before it is answered: what follows the feed, such as a cache
// of keys, must not be behind whoever was told that it is done.
func TestToldBeforeAnswered(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		for range 300 {
			changed := s.Changed()
			must[muster.CreatedKey](t)(s.CreateKey(t.Context(), start, ada, muster.NewKey{Scope: muster.ScopeReadOnly}))
			select {
			case <-changed:
			default:
				t.Fatal("it was answered, and the feed does not tell of it")
			}
		}
	})
}
