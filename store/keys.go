package store

import (
	"context"
	"regexp"
	"slices"
	"time"

	"muster.internal"
)

var (
	addKey = define("keys/add", `
INSERT INTO api_keys (id, scope, secret_hash, comment, server_uuid, created_at, created_by, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`)

	keyByID = define("keys/get", `
SELECT id, scope, comment, server_uuid, created_at, created_by, expires_at, last_used, rotated_at, old_until, secret_hash
FROM api_keys WHERE id = $1`)

	keysAll = define("keys/list", `
SELECT id, scope, comment, server_uuid, created_at, created_by, expires_at, last_used, rotated_at, old_until, secret_hash
FROM api_keys ORDER BY created_at, id`)

	dropKey      = define("keys/drop", `DELETE FROM api_keys WHERE id = $1`)
	dropAgentKey = define("keys/drop-agent", `DELETE FROM api_keys WHERE server_uuid = $1 AND server_uuid <> ''`)
	nodeOfKey    = define("keys/node", `SELECT node_id FROM registrations WHERE server_uuid = $1 AND key_id = $2`)
	keyUsed      = define("keys/used", `UPDATE api_keys SET last_used = $2 WHERE id = $1`)
)

// keyAtMost bounds a key's lifetime: with more, the sum of seconds overflows, and
// the key expires at some other time than the one that was asked for.
const keyAtMost = 100 * 365 * 24 * time.Hour

// CreateKey makes a key for a program. Agent keys are made by approvals alone.
func (s *Store) CreateKey(ctx context.Context, now time.Time, by muster.Caller, n muster.NewKey) (muster.CreatedKey, error) {
	if n.Scope == muster.ScopeAgent {
		return muster.CreatedKey{}, muster.Invalid("scope", "an agent key is made by approving a machine, never by hand")
	}
	if !slices.Contains(muster.Scopes, n.Scope) {
		return muster.CreatedKey{}, muster.Invalid("scope", "%q is none of full, read_only, audit_only, booter, ur_enroll", n.Scope)
	}
	if n.ExpiresIn < 0 {
		return muster.CreatedKey{}, muster.Invalid("expires_in_seconds", "a key cannot have expired before it is made")
	}
	if n.ExpiresIn > int(keyAtMost/time.Second) {
		return muster.CreatedKey{}, muster.Invalid("expires_in_seconds", "a key that expires does so within a hundred years (%d s): leave it out for one that never does", int(keyAtMost/time.Second))
	}
	if len(n.Comment) > 200 || !printable(n.Comment) {
		return muster.CreatedKey{}, muster.Invalid("comment", "a comment is one line of at most 200 bytes")
	}
	var k muster.CreatedKey
	err := s.write(ctx, "creating a key", now, by, func(t *tx) error {
		id, err := s.newID()
		if err != nil {
			return err
		}
		k = muster.CreatedKey{APIKey: muster.APIKey{ID: id, Scope: n.Scope, Comment: n.Comment, CreatedAt: t.now, CreatedBy: by.String()}}
		if n.ExpiresIn > 0 {
			at := t.now.Add(time.Duration(n.ExpiresIn) * time.Second)
			k.ExpiresAt = &at
		}
		if k.Secret, err = t.mintKey(k.APIKey); err != nil {
			return err
		}
		_, err = t.record("create_key", "key/"+id, detail{"scope": n.Scope, "comment": n.Comment, "expires_at": k.ExpiresAt})
		return err
	})
	return k, err
}

var keyID = regexp.MustCompile(`^[a-z2-7]{12}$`)

// mintKey makes the secret of a key and stores its hash: the secret exists in
// what the caller returns and nowhere else.
func (t *tx) mintKey(k muster.APIKey) (secret string, err error) {
	secret, hash, err := t.s.newSecret(keyPrefix, k.ID)
	if err != nil {
		return "", err
	}
	_, err = t.exec(addKey, k.ID, string(k.Scope), hash, k.Comment, k.ServerUUID, micro(k.CreatedAt), k.CreatedBy, microPtr(k.ExpiresAt))
	return secret, err
}

// Keys lists every key, oldest first, without secrets.
func (s *Store) Keys(ctx context.Context) ([]muster.APIKey, error) {
	ks := []muster.APIKey{}
	err := s.read(ctx, "listing keys", func(r *reading) error {
		ks = ks[:0]
		return r.each(keysAll, nil, func(scan func(...any) error) error {
			k, _, err := scanKey(scan)
			ks = append(ks, k)
			return err
		})
	})
	return ks, err
}

func scanKey(scan func(...any) error) (k muster.APIKey, hash []byte, err error) {
	var created int64
	var expires, used, rotated, until *int64
	err = scan(&k.ID, &k.Scope, &k.Comment, &k.ServerUUID, &created, &k.CreatedBy, &expires, &used, &rotated, &until, &hash)
	k.CreatedAt, k.ExpiresAt, k.LastUsed = fromMicro(created), fromMicroPtr(expires), fromMicroPtr(used)
	k.RotatedAt, k.OldUntil = fromMicroPtr(rotated), fromMicroPtr(until)
	return k, hash, err
}

// RevokeKey ends a key at once. The key of a machine ends with the machine's
// registration: it is disabled, not revoked. A key that is gone stays gone.
func (s *Store) RevokeKey(ctx context.Context, now time.Time, by muster.Caller, id string) error {
	if !keyID.MatchString(id) { // a whole key, say: calling that gone would leave it alive
		return muster.Invalid("id", "a key's id has 12 letters and digits, as muster key ls shows them: the part between mus_ and the next underscore")
	}
	return s.write(ctx, "revoking a key", now, by, func(t *tx) error {
		k, found, err := findKey(t, id)
		if err != nil || !found {
			return err
		}
		if k.Scope == muster.ScopeAgent {
			return muster.Problemf(muster.CodeConflict, "key %s is bound to machine %s: disable its registration instead, which revokes the key", id, k.ServerUUID)
		}
		if _, err := t.exec(dropKey, id); err != nil {
			return err
		}
		_, err = t.record("revoke_key", "key/"+id, detail{"scope": k.Scope})
		return err
	})
}

func findKey(r source, id string) (muster.APIKey, bool, error) {
	k, _, found, err := findKeyHash(r, id)
	return k, found, err
}

func findKeyHash(r source, id string) (k muster.APIKey, hash []byte, found bool, err error) {
	err = r.each(keyByID, []any{id}, func(scan func(...any) error) error {
		found = true
		k, hash, err = scanKey(scan)
		return err
	})
	return k, hash, found, err
}

// Authenticate finds who speaks with a secret: an API key or an operator's
// token. Whatever is wrong with it, the answer is the same, but for a key that
// died with an expunged machine.
func (s *Store) Authenticate(ctx context.Context, now time.Time, secret, source string) (muster.Caller, error) {
	c, _, err := s.AuthenticateUntil(ctx, now, secret, source)
	return c, err
}

// AuthenticateUntil is Authenticate that also says when the secret ends by
// itself; nil: never.
func (s *Store) AuthenticateUntil(ctx context.Context, now time.Time, secret, source string) (c muster.Caller, until *time.Time, err error) {
	if id, ok := splitSecret(keyPrefix, secret); ok {
		return s.authenticateKey(ctx, now, id, hashed(secret), source)
	}
	if id, ok := splitSecret(tokenPrefix, secret); ok {
		return s.authenticateToken(ctx, now, id, secret, source)
	}
	return muster.Caller{}, nil, unauthenticated()
}

func unauthenticated() error {
	return muster.Problemf(muster.CodeUnauthenticated, "this key or token is not known, has expired, or was revoked")
}

// AuthenticateNode finds who speaks with a certificate of ours, which names its
// node and the agent key that it was signed for. The two die together.
func (s *Store) AuthenticateNode(ctx context.Context, now time.Time, nodeID, keyID, source string) (muster.Caller, error) {
	c, _, err := s.authenticateKey(ctx, now, keyID, nil, source)
	if err != nil {
		return c, err
	}
	is, err := s.NodeOf(ctx, c)
	if err == nil && (is == "" || is != nodeID) {
		err = unauthenticated()
	}
	if err != nil {
		return muster.Caller{}, err
	}
	c.NodeID = nodeID
	return c, nil
}

// NodeOf is the node of an agent key's machine; empty: it has none.
func (s *Store) NodeOf(ctx context.Context, c muster.Caller) (nodeID string, err error) {
	if c.Scope != muster.ScopeAgent || c.ServerUUID == "" {
		return "", nil
	}
	err = s.read(ctx, "looking for a key's node", func(r *reading) error {
		_, err := r.get(nodeOfKey, []any{c.ServerUUID, c.KeyID}, &nodeID)
		return err
	})
	return nodeID, err
}

// authenticateKey finds whose a key is. Without the hash of its secret, who
// speaks has been proved in another way.
func (s *Store) authenticateKey(ctx context.Context, now time.Time, id string, given []byte, source string) (c muster.Caller, until *time.Time, err error) {
	err = s.read(ctx, "authenticating", func(r *reading) error {
		k, hash, found, err := findKeyHash(r, id)
		if err != nil {
			return err
		}
		if !found {
			n, found, err := findNext(r, id)
			if err == nil && found && given != nil && equal(n.hash, given) {
				c = muster.Caller{KeyID: id, Scope: muster.ScopeAgent, ServerUUID: n.uuid, Source: source, Lapsed: true}
				return nil
			}
			if err != nil {
				return err
			}
			return expunged(r, id, given)
		}
		if until = k.ExpiresAt; given != nil {
			until, err = secretEnds(r, k, hash, given)
		}
		if err != nil {
			return err
		}
		if until != nil && !now.Before(*until) {
			return unauthenticated()
		}
		c = muster.Caller{KeyID: k.ID, Scope: k.Scope, ServerUUID: k.ServerUUID, Source: source}
		return nil
	})
	if err != nil {
		return muster.Caller{}, nil, err
	}
	s.seen.key(c.KeyID, now)
	return c, until, nil
}

func printable(s string) bool {
	for _, r := range s {
		if r < ' ' || r == 0x7f || r == '\ufffd' {
			return false
		}
	}
	return true
}
