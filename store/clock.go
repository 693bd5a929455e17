package store

import (
	"context"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

// Expired says what the clock ended.
type Expired struct {
	Setups, Codes, Keys, Rescues, Probes, Windows, Nodes int
	Conflicts, Lapsed, Cards, Tokens, Claims             int
}

var (
	setupsDue  = define("clock/setups", `SELECT server_uuid FROM registrations WHERE state = 'setting_up' AND (setup_deadline IS NULL OR setup_deadline <= $1) ORDER BY server_uuid`)
	codesDue   = define("clock/codes", `SELECT server_uuid FROM registrations WHERE claim_expires IS NOT NULL AND claim_expires <= $1 ORDER BY server_uuid`)
	keysDue    = define("clock/keys", `SELECT server_uuid FROM registrations WHERE state = 'approved' AND credential = 'undelivered' AND (approved_at IS NULL OR approved_at <= $1) ORDER BY server_uuid`)
	rescuesDue = define("clock/rescues", `SELECT mac FROM boot_records WHERE rescue_until IS NOT NULL AND rescue_until <= $1 ORDER BY mac`)
	probesDue  = define("clock/probes", `SELECT mac FROM boot_records WHERE probe_since IS NOT NULL AND probe_since <= $1 ORDER BY mac`)
)

// overdueReason is shown until the next approval.
const overdueReason = "the setup did not finish in time: the machine did not report, or was switched off; check its console, then approve again"

// Expire is the clock: it ends whatever has lasted too long. Each machine is a
// transaction of its own, so that one failure does not hold up the others.
func (s *Store) Expire(ctx context.Context, now time.Time) (Expired, error) {
	var done Expired
	var first error
	for _, w := range []struct {
		q     *query
		until time.Time
		count *int
		one   func(t *tx, key string) (bool, error)
	}{
		{setupsDue, now, &done.Setups, (*tx).expireSetup},
		{codesDue, now, &done.Codes, (*tx).expireCode},
		{keysDue, now.Add(-lifecycle.ClaimDeadline), &done.Keys, (*tx).expireKey},
		{rescuesDue, now, &done.Rescues, (*tx).expireRescue},
		{windowsDue, now, &done.Windows, (*tx).expireWindow},
		{probesDue, now.Add(-lifecycle.ProbeDeadline), &done.Probes, (*tx).expireProbe},
		{tokensDue, now.Add(-doorKeep), &done.Tokens, (*tx).forgetToken},
		{windowsOld, now.Add(-doorKeep), &done.Tokens, (*tx).forgetWindow},
		{claimsOld, now.Add(-doorKeep), &done.Tokens, (*tx).forgetClaim},
		{conflictsDue, now.Add(-lifecycle.ConflictDeadline), &done.Conflicts, (*tx).expireConflict},
		{lapsesDue, now.Add(-lifecycle.LapseDeadline), &done.Lapsed, (*tx).lapse},
	} {
		var keys []string
		err := s.read(ctx, "looking for what is overdue", func(r *reading) error {
			keys = keys[:0]
			return r.each(w.q, []any{micro(w.until)}, func(scan func(...any) error) error {
				keys = append(keys, "")
				return scan(&keys[len(keys)-1])
			})
		})
		for _, key := range keys {
			ended := false
			e := s.write(ctx, "ending what is overdue", now, muster.Clock, func(t *tx) (err error) {
				ended, err = w.one(t, key)
				return err
			})
			if e != nil && !muster.IsCode(e, muster.CodeConflict) {
				err = e
			} else if ended {
				*w.count++
			}
		}
		if err != nil && first == nil {
			first = err
		}
	}
	nodes, err := s.settleNodes(ctx, now)
	if done.Nodes = nodes; err != nil && first == nil {
		first = err
	}
	cards, err := s.expireCards(ctx, now)
	if done.Cards = cards; err != nil && first == nil {
		first = err
	}
	claims, err := s.expireClaims(ctx, now)
	if done.Claims = claims; err != nil && first == nil {
		first = err
	}
	return done, first
}

func (t *tx) expireSetup(uuid string) (bool, error) {
	m, err := t.load(uuid)
	if err != nil {
		return false, err
	}
	d := m.reg.SetupDeadline
	f := lifecycle.Facts{Overdue: d == nil || !t.now.Before(*d)}
	due := m.had == muster.SettingUp
	return due, t.end(m, lifecycle.Expire, f, overdueReason)
}

func (t *tx) expireCode(uuid string) (bool, error) {
	m, err := t.load(uuid)
	if err != nil {
		return false, err
	}
	at := m.reg.ClaimCodeExpires
	return at != nil, t.end(m, lifecycle.ExpireCode, lifecycle.Facts{Overdue: at != nil && !t.now.Before(*at)}, "nobody approved the claim code in time")
}

func (t *tx) expireKey(uuid string) (bool, error) {
	m, err := t.load(uuid)
	if err != nil {
		return false, err
	}
	due := m.reg.credential == lifecycle.Undelivered
	f := lifecycle.Facts{Overdue: over(t.now, m.reg.ApprovedAt, lifecycle.ClaimDeadline)}
	return due, t.end(m, lifecycle.ExpireKey, f, "the machine did not fetch its key in time")
}
