package booter

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"muster.internal/boot"
	"muster.internal/dhcp"
)

// A count is something that happens and is counted.
type count int

const (
	countOffers count = iota
	countAcks
	countRenewals
	countFrames
	countFrameErrors
	countLoops
	countForeignAnswers
	countServersUnlisted
	countMalformed
	countNotEthernet
	countSendErrors
	countTransfers
	countTransfersDone
	countTransfersAborted
	countTransfersLost
	countTransfersBusy
	countTransfersDoubled
	countBadRequests
	countLoaders
	countStarts
	countScripts
	countSecretsRefused
	countFiles
	countRenderErrors
	countSightings
	countSightingsDropped
	countSightingErrors
	countFeedErrors
	countTraces
	countTraceErrors
	countLogsSuppressed
	countEnd
)

var countNames = [countEnd]string{"dhcp_offers", "dhcp_acks", "dhcp_renewals", "dhcp_frames", "dhcp_frame_errors", "boot_loops",
	"dhcp_foreign_answers", "dhcp_servers_unlisted", "dhcp_malformed", "dhcp_not_ethernet", "dhcp_send_errors",
	"tftp_transfers", "tftp_done", "tftp_aborted", "tftp_lost", "tftp_busy", "tftp_doubled", "tftp_bad_requests",
	"http_loaders", "http_starts", "http_scripts", "http_secrets_refused", "http_files", "render_errors",
	"sightings", "sightings_dropped", "sighting_errors", "feed_errors", "traces", "trace_errors", "logs_suppressed"}

const maxReasons = 64

// A tally counts without a lock and without garbage.
type tally struct {
	counts [countEnd]atomic.Int64
	silent [3][maxReasons]atomic.Int64 // by protocol and reason
}

func (t *tally) add(c count) { t.counts[c].Add(1) }

func (t *tally) snapshot() map[string]int64 {
	out := map[string]int64{}
	for i, name := range countNames {
		if n := t.counts[i].Load(); n > 0 {
			out[name] = n
		}
	}
	for v, prefix := range []string{"dhcp_silent_", "tftp_refused_", "http_refused_"} {
		for _, r := range boot.Reasons() {
			if n := t.silent[v][r].Load(); n > 0 {
				out[prefix+r.String()] = n
			}
		}
	}
	return out
}

// How often the same silence is logged, and how many lines a second there may
// be at most: made-up MACs must not fill a disk.
const (
	silenceEvery  = time.Minute
	silenceBurst  = 50
	silenceRate   = 20 // lines a second
	silencesKnown = 8192
)

type silenceKey struct {
	mac    dhcp.MAC
	reason boot.Reason
	via    boot.Via
}

// silences logs why a machine is not served: one line for a machine and reason
// each minute.
type silences struct {
	log   *slog.Logger
	tally *tally

	mu   sync.Mutex
	said map[silenceKey]time.Time
	pace pace
}

// pace bounds how many lines are logged in all, whoever makes up the names in
// them: a bucket of silenceBurst that fills at silenceRate.
type pace struct {
	tokens float64
	filled time.Time
}

func newPace() pace { return pace{tokens: silenceBurst} }

// take tells whether one more line may be logged now.
func (p *pace) take(now time.Time) bool {
	p.tokens = min(silenceBurst, p.tokens+silenceRate*max(0, now.Sub(p.filled).Seconds()))
	p.filled = now
	if p.tokens < 1 {
		return false
	}
	p.tokens--
	return true
}

func newSilences(log *slog.Logger, t *tally) *silences {
	return &silences{log: log, tally: t, said: map[silenceKey]time.Time{}, pace: newPace()}
}

// note counts a silence, and logs it if it is news.
func (s *silences) note(via boot.Via, d *boot.Decision, now time.Time) {
	s.tally.silent[via][d.Reason].Add(1)
	if !s.news(silenceKey{d.MAC, d.Reason, via}, now) {
		return
	}
	level := slog.LevelInfo
	if d.Reason == boot.Declined { // somebody has a machine's address
		level = slog.LevelWarn
	}
	s.log.Log(context.Background(), level, "not served", "mac", d.MAC.String(), "via", via.String(), "reason", d.Reason.String(), "rule", string(d.Rule), "quirks", d.Quirks.String(), "why", d.Why())
}

func (s *silences) news(k silenceKey, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.said[k]; ok && now.Sub(t) < silenceEvery {
		return false
	}
	if !s.pace.take(now) {
		s.tally.add(countLogsSuppressed)
		return false
	}
	if len(s.said) >= silencesKnown {
		for k, t := range s.said {
			if now.Sub(t) >= silenceEvery {
				delete(s.said, k)
			}
		}
		if len(s.said) >= silencesKnown {
			clear(s.said)
		}
	}
	s.said[k] = now
	return true
}
