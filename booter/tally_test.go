package booter

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestBusRefusalsAreRateLimited: a client that takes another name for each
// refusal fills neither a disk nor memory, and its refusals are still counted.
func TestBusRefusalsAreRateLimited(t *testing.T) {
	log := &lines{t: t}
	b := newBus(busOptions{Log: slog.New(slog.NewTextHandler(log, nil))})
	source := netip.MustParseAddr("10.77.0.66")
	began := time.Now()
	const tries = 5000
	for n := range tries {
		b.refused(source, fmt.Sprintf("00112233-4455-6677-8899-%012x", n), "", "its address is not the reserved one")
	}
	most := silenceBurst + int(silenceRate*time.Since(began).Seconds()) + 1
	lines := strings.Count(log.String(), "\n")
	if lines < silenceBurst || lines > most {
		t.Errorf("%d lines, expected %d to %d", lines, silenceBurst, most)
	}
	if n := b.Counters()["bus_logs_suppressed"]; n != int64(tries-lines) {
		t.Errorf("%d lines and %d suppressed of %d", lines, n, tries)
	}
}

// TestTheSameRefusalIsNewsAgain after ten seconds, and others are by then.
func TestTheSameRefusalIsNewsAgain(t *testing.T) {
	c, now := newCounters(), time.Unix(1795000000, 0)
	if c.often("a", now) || !c.often("a", now.Add(9*time.Second)) || c.often("a", now.Add(10*time.Second)) {
		t.Error("a line is to come once in ten seconds")
	}
	for n := range 2 * silenceBurst {
		c.often(fmt.Sprint(n), now.Add(10*time.Second))
	}
	if !c.often("b", now.Add(10*time.Second)) || c.often("b", now.Add(11*time.Second)) {
		t.Error("the rate does not hold, or does not recover")
	}
}
