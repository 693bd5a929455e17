package store

import (
	"context"
	"time"

	"muster.internal"
)

var (
	rotateKey = define("keys/rotate", `
UPDATE api_keys SET old_hash = secret_hash, secret_hash = $2, rotated_at = $3, old_until = $4
WHERE id = $1`)
	oldSecret = define("keys/old", `SELECT old_hash, old_until FROM api_keys WHERE id = $1`)
)

// overlapAtMost is how long two secrets of one key may be good.
const overlapAtMost = 7 * 24 * time.Hour

// RotateKey gives a key another secret. The old one is dead at once, or good
// for the overlap that the operator chose; one from before that is dead.
func (s *Store) RotateKey(ctx context.Context, now time.Time, by muster.Caller, id string, q muster.KeyRotation) (muster.CreatedKey, error) {
	var k muster.CreatedKey
	overlap := time.Duration(q.Overlap) * time.Second
	if q.Overlap < 0 || q.Overlap > int(overlapAtMost/time.Second) { // the seconds, whose product may overflow
		return k, muster.Invalid("overlap_seconds", "an overlap lasts from 0 to %d seconds", int(overlapAtMost/time.Second))
	}
	err := s.write(ctx, "rotating a key", now, by, func(t *tx) error {
		old, found, err := findKey(t, id)
		if err != nil {
			return err
		}
		switch {
		case !found:
			return muster.Problemf(muster.CodeNotFound, "there is no key %.64q: it was revoked before, or never was", id)
		case old.Scope == muster.ScopeAgent:
			return muster.Problemf(muster.CodeConflict, "key %s is bound to machine %s, and only the machine may ever hold its secret: disable its registration and let it register again, which makes another key", id, old.ServerUUID)
		case old.ExpiresAt != nil && !t.now.Before(*old.ExpiresAt):
			return muster.Problemf(muster.CodeConflict, "key %s has expired: make another one", id)
		}
		secret, hash, err := s.newSecret(keyPrefix, id)
		if err != nil {
			return err
		}
		old.RotatedAt, old.OldUntil = &t.now, nil
		if overlap > 0 {
			at := t.now.Add(overlap)
			old.OldUntil = &at
		}
		if err := t.change(rotateKey, id, hash, micro(t.now), microPtr(old.OldUntil)); err != nil {
			return err
		}
		k = muster.CreatedKey{APIKey: old, Secret: secret}
		_, err = t.record("rotate_key", "key/"+id, detail{"scope": old.Scope, "old_secret_until": old.OldUntil})
		return err
	})
	return k, err
}

// secretEnds says when a secret of a key that is there ends: the one of now
// with the key, the one before with the overlap. Another one is nobody's.
func secretEnds(from source, k muster.APIKey, now, given []byte) (*time.Time, error) {
	if equal(now, given) {
		return k.ExpiresAt, nil
	}
	var old []byte
	var until *int64
	if _, err := from.get(oldSecret, []any{k.ID}, &old, &until); err != nil {
		return nil, err
	}
	at := fromMicroPtr(until)
	if at == nil || !equal(old, given) {
		return nil, unauthenticated()
	}
	if k.ExpiresAt != nil && k.ExpiresAt.Before(*at) {
		return k.ExpiresAt, nil
	}
	return at, nil
}
