// Package enrol spells enrolment tokens: the one word that a new machine is
// given, with where its control plane is, by which certificate it is known, and
// a secret that is good for one machine.
//
// It is pure, and must never put a token or a part of it into an error.
package enrol

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/url"
	"strings"
	"unicode"
)

// Prefix tells what the word is, for people and for scanners of leaks, and in
// which version it is spelled.
const Prefix = "musen1_"

const (
	idLen     = 12
	secretLen = 32
	printLen  = 32
	sumLen    = 4
	maxURL    = 255 // its length takes one byte
)

// A Token is what the word says.
//
// After Prefix comes, in base64url without padding (RFC 4648 section 5): the
// secret, the fingerprint, the id, one byte with the length of the address,
// the address without its "https://", and the CRC-32 (IEEE, big endian) of
// Prefix and all of that. Letters, digits, hyphens and underscores: no shell
// takes them for anything else.
type Token struct {
	URL         string // of the control plane: https://HOST:PORT
	Fingerprint []byte // SHA-256 of its CA certificate (DER)
	ID          string // 12 letters and digits
	Secret      []byte // 32 bytes
}

// Encode writes the word.
func (t Token) Encode() (string, error) {
	host, err := t.host()
	if err != nil {
		return "", err
	}
	b := append(append([]byte(nil), t.Secret...), t.Fingerprint...)
	b = append(b, t.ID...)
	b = append(append(b, byte(len(host))), host...)
	b = binary.BigEndian.AppendUint32(b, sum(b))
	return Prefix + base64.RawURLEncoding.EncodeToString(b), nil
}

func sum(body []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE([]byte(Prefix)), crc32.IEEETable, body)
}

// host checks the fields; it is the address without its scheme.
func (t Token) host() (string, error) {
	host, https := strings.CutPrefix(t.URL, "https://")
	u, err := url.Parse(t.URL)
	switch {
	case err != nil || !https || len(host) > maxURL || u.Host != host || u.Hostname() == "":
		return "", errors.New("the address of a control plane is https://HOST:PORT, with at most 255 characters")
	case len(t.Fingerprint) != printLen:
		return "", errors.New("a fingerprint is a SHA-256, of 32 bytes")
	case len(t.ID) != idLen || strings.Trim(t.ID, "abcdefghijklmnopqrstuvwxyz234567") != "":
		return "", errors.New("the id of an enrolment token has 12 letters and digits")
	case len(t.Secret) != secretLen:
		return "", errors.New("the secret of an enrolment token has 32 bytes")
	}
	return host, nil
}

var (
	errForeign = errors.New("this is not an enrolment token: one begins with " + Prefix)
	errNothing = errors.New("no enrolment token came: nothing was given (did `muster token issue` fail?)")
	errDamaged = errors.New("this enrolment token is cut short or mistyped: copy the whole word again; nothing was sent")
)

// Decode reads the word. White space, which terminals put into long words, is
// passed over. A word that was cut or changed is refused.
func Decode(s string) (Token, error) {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
	body, ok := strings.CutPrefix(s, Prefix)
	if s == "" {
		return Token{}, errNothing
	}
	if !ok {
		if v, later := strings.CutPrefix(s, Prefix[:5]); later {
			if n, _, ok := strings.Cut(v, "_"); ok && n != "" && len(n) < 4 && strings.Trim(n, "0123456789") == "" {
				return Token{}, fmt.Errorf("this enrolment token is of version %s, which this program does not know: install a newer one", n)
			}
		}
		return Token{}, errForeign
	}
	const fixed = secretLen + printLen + idLen + 1
	b, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err != nil || len(b) < fixed+sumLen {
		return Token{}, errDamaged
	}
	b, check := b[:len(b)-sumLen], b[len(b)-sumLen:]
	if binary.BigEndian.Uint32(check) != sum(b) || len(b) != fixed+int(b[fixed-1]) {
		return Token{}, errDamaged
	}
	t := Token{Secret: b[:secretLen:secretLen], Fingerprint: b[secretLen : secretLen+printLen : secretLen+printLen],
		ID: string(b[secretLen+printLen : fixed-1]), URL: "https://" + string(b[fixed:])}
	if _, err := t.host(); err != nil {
		return Token{}, errDamaged
	}
	return t, nil
}
