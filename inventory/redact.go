package inventory

import (
	"encoding/json"
	"regexp"
	"strings"

	"muster.internal"
)

// Redacted stands where a secret stood.
const Redacted = "REDACTED"

// secretKeys, without case and with every sign other than letters and digits
// read as an underscore, hold a secret wherever they stand.
var secretKeys = map[string]bool{
	"root_shadow":    true,
	"rabbitmq":       true,
	"rabbitmq_dns":   true,
	"muster_bus":     true,
	"user_password":  true,
	"root_password":  true,
	"admin_password": true,
	"password":       true,
	"passwd":         true,
	"api_key":        true,
	"token":          true,
}

// secretArgs are the same secrets inside a command line.
var secretArgs = regexp.MustCompile(`(?i)\b(root_shadow|rabbitmq(?:_dns)?|muster[._](?:bus|once)|[a-z_]*password|passwd|api_key|token)=("[^"]*"|'[^']*'|[^\s,]*)`)

// Redact strikes secrets out of a sysinfo object and spells it canonically.
// Errors are *muster.Problem, invalid.
func Redact(sysinfo []byte) (json.RawMessage, error) {
	root, err := decode(sysinfo)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(redact(root))
	if err != nil {
		return nil, muster.Invalid("sysinfo", "it cannot be written again: %v", err)
	}
	return b, nil
}

// ownKeys are keys and tokens that muster itself gave out, wherever they stand.
var ownKeys = regexp.MustCompile(`\b(mus(?:op)?_[A-Za-z0-9_-]{12}_)[A-Za-z0-9_-]+`)

// RedactLine strikes secrets out of a line: a kernel's command line, or what a
// script said.
func RedactLine(s string) string {
	return ownKeys.ReplaceAllString(secretArgs.ReplaceAllString(s, "$1="+Redacted), "${1}"+Redacted)
}

func redact(v any) any {
	switch v := v.(type) {
	case string:
		return RedactLine(v)
	case []any:
		for i := range v {
			v[i] = redact(v[i])
		}
	case map[string]any:
		for k, e := range v {
			if secretKeys[plainKey(k)] {
				v[k] = Redacted
				continue
			}
			v[k] = redact(e)
		}
	}
	return v
}

func plainKey(k string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(k))
}
