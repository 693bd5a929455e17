package store

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/google/uuid"
)

// A vault holds the two keys that come from the master key.
type vault struct {
	codes []byte // keys the hash of claim codes, which are short enough to guess
	seals cipher.AEAD
}

func newVault(master []byte) (vault, error) {
	if len(master) != 32 {
		return vault{}, fmt.Errorf("the master key has %d bytes, not 32", len(master))
	}
	block, err := aes.NewCipher(derive(master, "muster ticket keys"))
	if err != nil {
		return vault{}, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return vault{}, err
	}
	return vault{codes: derive(master, "muster claim codes"), seals: gcm}, nil
}

// derive makes one key per purpose, so that none is used in two ways.
func derive(master []byte, purpose string) []byte {
	m := hmac.New(sha256.New, master)
	io.WriteString(m, purpose)
	return m.Sum(nil)
}

func (v vault) claim(code string) []byte {
	m := hmac.New(sha256.New, v.codes)
	io.WriteString(m, code)
	return m.Sum(nil)
}

// seal encrypts a secret for one owner: moved to another row, it does not open.
func (v vault) seal(nonce, secret []byte, owner string) []byte {
	return v.seals.Seal(nonce, nonce, secret, []byte(owner))
}

func (v vault) open(sealed []byte, owner string) ([]byte, error) {
	n := v.seals.NonceSize()
	if len(sealed) < n {
		return nil, fmt.Errorf("sealed secret of %s is cut short", owner)
	}
	return v.seals.Open(nil, sealed[:n], sealed[n:], []byte(owner))
}

func hashed(secret string) []byte {
	h := sha256.Sum256([]byte(secret))
	return h[:]
}

func equal(a, b []byte) bool { return subtle.ConstantTimeCompare(a, b) == 1 }

// random reads n bytes from the dice. Dice that fail stop the transaction.
func (s *Store) random(n int) ([]byte, error) {
	b := make([]byte, n)
	s.diceMu.Lock()
	defer s.diceMu.Unlock()
	if _, err := io.ReadFull(s.dice, b); err != nil {
		return nil, fmt.Errorf("no random numbers: %w", err)
	}
	return b, nil
}

func (s *Store) randomCode() (uint32, error) {
	b, err := s.random(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (s *Store) randomHex(n int) (string, error) {
	b, err := s.random(n)
	return hex.EncodeToString(b), err
}

// Prefixes tell what a secret is, for people and for scanners of leaks.
const (
	keyPrefix   = "mus_"
	tokenPrefix = "musop_"
)

// newID makes the public half of a key: 12 characters, none of which looks
// like an option on a command line.
func (s *Store) newID() (string, error) {
	b, err := s.random(8)
	return strings.ToLower(base32.StdEncoding.EncodeToString(b))[:12], err
}

// newSecret makes the whole secret for an id, and the hash that is kept.
func (s *Store) newSecret(prefix, id string) (secret string, hash []byte, err error) {
	b, err := s.random(32)
	if err != nil {
		return "", nil, err
	}
	secret = prefix + id + "_" + base64.RawURLEncoding.EncodeToString(b)
	return secret, hashed(secret), nil
}

// splitSecret finds the id in PREFIX_ID_SECRET. Ids and secrets may contain
// underscores, so it goes by length.
func splitSecret(prefix, s string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok || len(rest) != 12+1+43 || rest[12] != '_' {
		return "", false
	}
	return rest[:12], true
}

// newUUID makes a version 7 UUID (RFC 9562, section 5.7) out of the
// transaction's time and the store's dice.
func (s *Store) newUUID(milli int64) (string, error) {
	b, err := s.random(16)
	if err != nil {
		return "", err
	}
	var u uuid.UUID
	copy(u[:], b)
	for i := range 6 {
		u[i] = byte(milli >> (40 - 8*i))
	}
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80
	return u.String(), nil
}
