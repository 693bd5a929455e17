package booter

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/boot"
	"muster.internal/dhcp"
)

// TestEverySilenceIsCountedAndTold: whatever the reason and the protocol, there
// is a counter of its own, and one line in the log that names the machine, the
// reason, the rule and what to do.
func TestEverySilenceIsCountedAndTold(t *testing.T) {
	if n := len(boot.Reasons()); n >= maxReasons || n < 20 {
		t.Fatalf("%d reasons, and place for %d counters", n, maxReasons)
	}
	prefix := map[boot.Via]string{boot.DHCP: "dhcp_silent_", boot.TFTP: "tftp_refused_", boot.HTTP: "http_refused_"}
	now := time.Unix(1e9, 0)
	for via, pre := range prefix {
		for i, r := range boot.Reasons() {
			log, counts := &lines{t: t}, &tally{}
			q := newSilences(slog.New(slog.NewTextHandler(log, nil)), counts)
			d := boot.Decision{Serve: true, Rule: boot.RuleEnrolled, MAC: dhcp.MAC{2, 0, 0, 0, 0, byte(i)}, State: muster.Enrolled, Mode: boot.Node,
				Loader: "snponly.efi", Named: &muster.ImageRef{Name: "node-1", Digest: "sha256:1"}, Address: netip.MustParsePrefix("10.77.0.101/24"),
				Loop: boot.Loop{Stage: boot.Loader, Count: 5, Until: now}}.Deny(r)
			q.note(via, &d, now)
			q.note(via, &d, now.Add(time.Second)) // counted, and no news
			if got := counts.snapshot(); len(got) != 1 || got[pre+r.String()] != 2 {
				t.Errorf("%s by %v is counted as %v", r, via, got)
			}
			said := log.String()
			if strings.Count(said, "\n") != 1 {
				t.Errorf("%s by %v is told as %q", r, via, said)
			}
			for _, want := range []string{"not served", "mac=" + d.MAC.String(), "via=" + via.String(), "reason=" + r.String(), "rule=" + string(d.Rule), fmt.Sprintf("why=%q", d.Why())} {
				if !strings.Contains(said, want) || d.Rule == "" {
					t.Errorf("%s by %v: no %s in %q", r, via, want, said)
				}
			}
		}
	}
}
