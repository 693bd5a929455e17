package muster

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// ParseUUID returns the canonical spelling (lower case, hyphens) of a machine's
// UUID. Nil and all-ones mean that the firmware was never programmed: they are
// refused.
func ParseUUID(s string) (string, error) {
	t := strings.ToLower(strings.TrimSpace(s))
	if len(t) != 36 || t[8] != '-' || t[13] != '-' || t[18] != '-' || t[23] != '-' {
		return "", fmt.Errorf("%q is not a UUID", clip(s))
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(t, "-", ""))
	if err != nil || len(raw) != 16 {
		return "", fmt.Errorf("%q is not a UUID", clip(s))
	}
	same := true
	for _, b := range raw {
		same = same && b == raw[0]
	}
	if same && (raw[0] == 0 || raw[0] == 0xff) {
		return "", fmt.Errorf("UUID %s means that the firmware was never given one", t)
	}
	return t, nil
}

// ErrNoCard is why ParseMAC refuses what is spelled like an address and can be
// no network card's.
var ErrNoCard = errors.New("no network card has such an address")

// ParseMAC returns the canonical spelling of a network card's Ethernet address
// (lower case, colons, two digits an octet) from any usual one: colons, hyphens,
// Cisco's dots, none, or octets without a leading zero. The address that is all
// zeros, broadcast, and multicast addresses (IEEE 802, the first octet is odd)
// are no card's: ErrNoCard.
func ParseMAC(s string) (string, error) {
	t := strings.ToLower(strings.TrimSpace(s))
	var octets []string
	switch {
	case strings.Contains(t, ":"):
		octets = strings.Split(t, ":")
	case strings.Contains(t, "-"):
		octets = strings.Split(t, "-")
	case len(t) == 14 && t[4] == '.' && t[9] == '.':
		t = t[:4] + t[5:9] + t[10:]
		fallthrough
	case len(t) == 12:
		for i := 0; i < 12; i += 2 {
			octets = append(octets, t[i:i+2])
		}
	}
	if len(octets) != 6 {
		return "", fmt.Errorf("%q is not a MAC address", clip(s))
	}
	for i, o := range octets {
		if len(o) == 1 {
			o = "0" + o
		}
		if _, err := hex.DecodeString(o); err != nil || len(o) != 2 {
			return "", fmt.Errorf("%q is not a MAC address", clip(s))
		}
		octets[i] = o
	}
	mac := strings.Join(octets, ":")
	switch {
	case mac == "00:00:00:00:00:00":
		return "", fmt.Errorf("MAC address %s is all zeros: %w", mac, ErrNoCard)
	case mac == "ff:ff:ff:ff:ff:ff":
		return "", fmt.Errorf("MAC address %s is the broadcast address: %w", mac, ErrNoCard)
	case strings.IndexByte("13579bdf", mac[1]) >= 0:
		return "", fmt.Errorf("MAC address %s is a multicast address, its first octet is odd: %w", mac, ErrNoCard)
	}
	return mac, nil
}

// ValidStamp is the charset gate for names that end up in a boot script: a
// letter or digit, then up to 63 letters, digits, dots, hyphens, underscores.
func ValidStamp(s string) bool {
	if len(s) == 0 || len(s) > 64 {
		return false
	}
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !letter && (i == 0 || r != '.' && r != '-' && r != '_') {
			return false
		}
	}
	return true
}

// ValidArg is the charset gate for one kernel argument, and for whatever else
// ends up as a word of a boot script: 1 to 256 letters, digits and
// . _ , : = / @ + - %, nothing that a boot loader expands or splits at. It
// allocates nothing.
func ValidArg(s string) bool {
	if len(s) == 0 || len(s) > 256 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		word := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !word && strings.IndexByte("._,:=/@+-%", c) < 0 {
			return false
		}
	}
	return true
}

// ValidHostname tells whether s is one RFC 1123 label (section 2.1): it ends up
// in files that are evaluated at boot.
func ValidHostname(s string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-') {
			return false
		}
	}
	return true
}

// claimAlphabet is Crockford's base 32 without I, L, O and U.
const claimAlphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// ClaimCode spells 30 random bits as six characters, without a hyphen.
func ClaimCode(random uint32) string {
	b := make([]byte, 6)
	for i := range b {
		b[i] = claimAlphabet[random&31]
		random >>= 5
	}
	return string(b)
}

// ShowClaimCode writes a code as people read it: XXX-XXX.
func ShowClaimCode(code string) string { return code[:3] + "-" + code[3:] }

// ParseClaimCode accepts a code in any case, with or without hyphen or space.
// The letters that the alphabet leaves out are refused, not guessed.
func ParseClaimCode(s string) (string, error) {
	t := strings.ToUpper(strings.NewReplacer("-", "", " ", "").Replace(s))
	if len(t) != 6 {
		return "", fmt.Errorf("a claim code has six characters, XXX-XXX")
	}
	for _, r := range t {
		if !strings.ContainsRune(claimAlphabet, r) {
			return "", fmt.Errorf("a claim code never contains %q", r)
		}
	}
	return t, nil
}

func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}

// SwapUUID is the same UUID in the other byte order: SMBIOS stores the first
// three fields little-endian, and not everybody turns them round. What is no
// UUID comes back as it is.
func SwapUUID(uuid string) string {
	if len(uuid) != 36 {
		return uuid
	}
	b := []byte(uuid)
	for _, f := range [][2]int{{0, 8}, {9, 13}, {14, 18}} {
		for i, j := f[0], f[1]-2; i < j; i, j = i+2, j-2 {
			b[i], b[i+1], b[j], b[j+1] = b[j], b[j+1], b[i], b[i+1]
		}
	}
	return string(b)
}

// SameUUID tells whether two canonical UUIDs are one, in either byte order.
func SameUUID(a, b string) bool { return a == b || a == SwapUUID(b) }
