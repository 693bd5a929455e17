package inventory

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// derived begins what is hashed, so that no other use of SHA-256 over the same
// words leads to the same UUID.
const derived = "muster machine uuid 1\n"

// Derive makes a machine's own UUID from its serial number and a permanent MAC
// address, where the firmware has none: a version 8 UUID (RFC 9562, section
// 5.8) of the first 16 bytes of SHA-256 over a fixed prefix, the serial number
// in lower case and the canonical MAC, each ended by a newline. Either may be
// empty when it is none of the machine's own (a placeholder, a shared dongle);
// with neither there is no UUID. The same words give the same UUID for ever.
func Derive(serial, mac string) (uuid string, ok bool) {
	serial = strings.ToLower(strings.Join(strings.Fields(serial), " "))
	if serial == "" && mac == "" {
		return "", false
	}
	sum := sha256.Sum256([]byte(derived + serial + "\n" + mac + "\n"))
	b := sum[:16]
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:], true
}

// Own derives a machine's own UUID from what of its evidence is its own.
func (s *Shared) Own(serial, mac string) (uuid string, ok bool) {
	if _, is := s.MAC(mac); is {
		mac = ""
	}
	return Derive(s.Serial(serial), mac)
}
