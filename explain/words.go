package explain

import (
	"fmt"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/boot"
)

func sent(s *muster.ExplainedStep) string {
	if s.Size == 0 || s.Sent == 0 {
		return ""
	}
	return fmt.Sprintf(", after %d of %d bytes", s.Sent, s.Size)
}

func what(s *muster.ExplainedStep) string {
	if s.Via == boot.DHCP.String() {
		return s.Stage
	}
	return s.Asked
}

func imageOf(s *muster.ExplainedStep) string {
	if s.Image == nil {
		return "unknown"
	}
	return s.Image.Name
}

// nameOf is what an operator may call a machine by in a command.
func nameOf(r *muster.Registration) string {
	if muster.ValidStamp(r.Serial) {
		return r.Serial
	}
	return r.ServerUUID
}

func upper(s string) string {
	if s == "" || s[0] < 'a' || s[0] > 'z' || strings.Contains(s[:min(len(s), 17)], ":") {
		return s // a MAC stays as it is
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// span is a duration as people talk of it.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(max(0, d).Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}
