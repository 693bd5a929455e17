package setup

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	completeWord = "MUSTER-SETUP-COMPLETE"
	failedWord   = "MUSTER-SETUP-FAILED"
)

// MaxReason is how long a failure's reason may be, in bytes.
const MaxReason = 512

// Proof shows that whoever finished a setup held the sealed bundle.
func Proof(key []byte, serverUUID string, epoch int64) string {
	m := hmac.New(sha256.New, key)
	fmt.Fprintf(m, "muster setup complete\n%s\n%d", serverUUID, epoch)
	return hex.EncodeToString(m.Sum(nil))
}

// HashProof is what the control plane keeps of the proof it expects.
func HashProof(proof string) string {
	sum := sha256.Sum256([]byte(proof))
	return hex.EncodeToString(sum[:])
}

// ProofMatches compares a proof with what HashProof kept, in constant time.
func ProofMatches(proof, hash string) bool {
	return hmac.Equal([]byte(HashProof(proof)), []byte(hash))
}

// Sentinel is the one line that means success. Nothing else does, whatever the
// exit status.
func Sentinel(epoch int64, proof string) string {
	return fmt.Sprintf("%s epoch=%d proof=%s", completeWord, epoch, proof)
}

// ParseSentinel finds the sentinel among a script's output. Two different ones
// are none.
func ParseSentinel(output string) (epoch int64, proof string, ok bool) {
	for line := range strings.Lines(output) {
		e, p, is := sentinel(strings.TrimRight(line, "\r\n"))
		if !is {
			continue
		}
		if ok && (e != epoch || p != proof) {
			return 0, "", false
		}
		epoch, proof, ok = e, p, true
	}
	return epoch, proof, ok
}

func sentinel(line string) (epoch int64, proof string, ok bool) {
	f := strings.Split(line, " ")
	if len(f) != 3 || f[0] != completeWord {
		return 0, "", false
	}
	es, is1 := strings.CutPrefix(f[1], "epoch=")
	ps, is2 := strings.CutPrefix(f[2], "proof=")
	raw, err := hex.DecodeString(ps)
	if !is1 || !is2 || err != nil || len(raw) != sha256.Size || ps != strings.ToLower(ps) {
		return 0, "", false
	}
	n, err := number(es)
	if err != nil || n < 0 {
		return 0, "", false
	}
	return n, ps, true
}

// FailureLine says why a setup failed, for people.
func FailureLine(reason string) string { return failedWord + " " + CutReason(reason) }

// ParseFailure finds the reason of a failure among a script's output; the last
// one counts.
func ParseFailure(output string) (reason string, ok bool) {
	for line := range strings.Lines(output) {
		if r, is := strings.CutPrefix(strings.TrimRight(line, "\r\n"), failedWord+" "); is {
			reason, ok = CutReason(r), true
		}
	}
	return reason, ok
}

// CutReason makes a reason one printable line of at most MaxReason bytes.
func CutReason(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case !unicode.IsPrint(r) || r == utf8.RuneError:
			return -1
		}
		return r
	}, s)
	s = strings.TrimSpace(s)
	if len(s) <= MaxReason {
		return s
	}
	s = s[:MaxReason-len("…")]
	for len(s) > 0 && !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}
