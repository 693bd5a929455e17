package store

import (
	"math"
	"testing"
	"time"

	"muster.internal"
)

// A key never expires at another time than the one asked for: seconds whose
// product overflows are refused, those that wrap to a small one too.
func TestKeyLifetimes(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		const most = 100 * 365 * 24 * 3600
		for _, n := range []int{-1, most + 1, math.MaxInt64/int(time.Second) + 1, 18446744075, math.MaxInt64} {
			_, err := s.CreateKey(ctx, start, ada, muster.NewKey{Scope: muster.ScopeReadOnly, ExpiresIn: n})
			wantCode(t, err, muster.CodeInvalid)
		}
		k := must[muster.CreatedKey](t)(s.CreateKey(ctx, start, ada, muster.NewKey{Scope: muster.ScopeReadOnly, ExpiresIn: most}))
		if want := start.Add(most * time.Second); k.ExpiresAt == nil || !k.ExpiresAt.Equal(want) {
			t.Errorf("expires %v, want %v", k.ExpiresAt, want)
		}
		for _, n := range []int{-1, int(overlapAtMost/time.Second) + 1, 18446744075, math.MaxInt64} {
			_, err := s.RotateKey(ctx, start, ada, k.ID, muster.KeyRotation{Overlap: n})
			wantCode(t, err, muster.CodeInvalid)
		}
		if _, _, err := s.AuthenticateUntil(ctx, start, k.Secret, ""); err != nil {
			t.Errorf("a rotation that was refused ended the key: %v", err)
		}
	})
}
