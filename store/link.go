package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
	"muster.internal/setup"
)

// BooterSilence is how long a booter may say nothing before what it held counts
// as lost: three of its reports.
const BooterSilence = 45 * time.Second

// A link says whose bus session a machine announced itself over, and, when that
// session is over, why.
type link struct {
	booter, run string
	seq         int64 // of the announcement: a report from before it says nothing of it
	over        string
}

var (
	linksOf = define("links/of-booter", `
SELECT server_uuid, session, session_run FROM registrations
WHERE session_booter = $1 AND session <> '' AND session_seq <= $2 AND state IN ('awaiting_setup', 'setting_up') ORDER BY server_uuid`)
	linksSilent = define("links/silent", `
SELECT server_uuid, session_booter FROM registrations r LEFT JOIN booters b ON b.name = r.session_booter
WHERE r.session <> '' AND r.session_booter <> '' AND r.state IN ('awaiting_setup', 'setting_up')
 AND r.last_seen <= $1 AND COALESCE(b.last_seen, 0) <= $1 ORDER BY server_uuid`)
)

// away says why a machine that is to be set up cannot be reached; empty: it can,
// or need not be.
func (r *registration) away() string {
	switch {
	case r.session != "" || r.State != muster.AwaitingSetup && r.State != muster.SettingUp:
		return ""
	case r.link.over == "":
		return "it has not announced itself over the boot bus since it came to this state"
	}
	return r.link.over
}

// stillAway makes a refused approval of a machine that is away say so, and what
// to do.
func (m *machine) stillAway(err error) error {
	why := m.reg.away()
	var p *muster.Problem
	if why == "" || m.had != muster.AwaitingSetup || !errors.As(err, &p) || p.Code != muster.CodeConflict {
		return err
	}
	q := *p
	q.Detail = fmt.Sprintf("machine %s is away: %s. Nothing was approved. If it is still switched on it comes back by itself, within a minute of its booter; otherwise restart it. "+
		"\"muster registration show\" says when it is there: then plan again", m.uuid, why)
	return &q
}

// lose notes that a machine's bus session is over, and with it an approval whose
// bundle nobody took: nobody can any more. A setup that may be running goes on:
// what becomes of it is for the machine that comes back to say, or the deadline.
func (t *tx) lose(uuid, why string) error {
	m, err := t.load(uuid)
	if err != nil {
		return err
	}
	return t.lost(m, why, detail{"booter": m.reg.link.booter})
}

func (t *tx) lost(m *machine, why string, d detail) error {
	m.reg.session, m.reg.link.over = "", setup.CutReason(why)
	d["reason"] = m.reg.link.over
	seq, err := t.record("session_lost", subject(m.uuid), d)
	if err != nil {
		return err
	}
	m.reg.seq = seq
	if err := t.putRegistration(m.reg, m.had); err != nil {
		return err
	}
	if m.had == muster.SettingUp && !m.reg.BundleTaken {
		return t.end(m, lifecycle.Void, lifecycle.Facts{SessionOver: true}, setup.CutReason(fmt.Sprintf(
			"after the approval %s; an approval is good for one connection alone, and nothing was run on it: approve again when it is back", why)))
	}
	return t.tellSetup(m, "the machine is away from the boot bus: "+m.reg.link.over)
}

// tellSetup writes a line to the log of a running setup, for those who watch.
func (t *tx) tellSetup(m *machine, text string) error {
	if m.had != muster.SettingUp {
		return nil
	}
	return t.appendLines(m.uuid, []muster.SetupStep{{At: t.now, Text: text}}, 0)
}

// A held session is one that a machine announced itself over, as far as is known.
type held struct{ uuid, booter, session, run string }

// heldBy lists the sessions that were announced over a booter up to a place in
// the feed.
func (t *tx) heldBy(booter string, upTo int64) (all []held, err error) {
	err = t.each(linksOf, []any{booter, upTo}, func(scan func(...any) error) error {
		h := held{booter: booter}
		err := scan(&h.uuid, &h.session, &h.run)
		all = append(all, h)
		return err
	})
	return all, err
}

// settleLinks loses the sessions that a booter should hold and does not.
func (t *tx) settleLinks(b muster.BooterStatus) error {
	if b.Run == "" {
		return nil // it does not say what it holds
	}
	all, err := t.heldBy(b.Booter, b.Seq)
	if err != nil {
		return err
	}
	for _, h := range all {
		why := fmt.Sprintf("booter %s does not hold its connection any more", b.Booter)
		switch {
		case slices.Contains(b.Sessions, h.session):
			continue
		case h.run != b.Run:
			why = restarted(b.Booter)
		case b.Stopped:
			why = fmt.Sprintf("booter %s was stopped, which ended the machine's connection to it", b.Booter)
		}
		if err := t.lose(h.uuid, why); err != nil {
			return err
		}
	}
	return nil
}

func restarted(booter string) string {
	return fmt.Sprintf("booter %s was restarted, which ended the machine's connection to it", booter)
}

// LoseSilent loses the sessions of booters that have not been heard for
// BooterSilence. Call it only once they had the time to speak.
func (s *Store) LoseSilent(ctx context.Context, now time.Time) (lost int, err error) {
	since := micro(now.Add(-BooterSilence))
	silent := func(from source) (all []held, err error) {
		err = from.each(linksSilent, []any{since}, func(scan func(...any) error) error {
			var h held
			err := scan(&h.uuid, &h.booter)
			all = append(all, h)
			return err
		})
		return all, err
	}
	if err := s.read(ctx, "looking for silent booters", func(r *reading) error {
		found, err := silent(r)
		lost = len(found)
		return err
	}); err != nil || lost == 0 {
		return 0, err
	}
	err = s.write(ctx, "losing the sessions of a silent booter", now, muster.Clock, func(t *tx) error {
		all, err := silent(t)
		if err != nil {
			return err
		}
		lost = len(all)
		for _, h := range all {
			if err := t.lose(h.uuid, fmt.Sprintf("booter %s, which held its connection, has not been heard for %s", h.booter, BooterSilence)); err != nil {
				return err
			}
		}
		return nil
	})
	return lost, err
}

// newcomer voids an approval when another connection claims the machine's
// name, as far as the rows let it. Gone says why the approved connection is
// known to be over; empty: for all that is known it still stands.
func (t *tx) newcomer(m *machine, c muster.SessionChange, gone string) error {
	if m.had != muster.SettingUp || c.Session != "" && (c.Session == m.reg.setupSession || c.Session == m.reg.session) {
		return nil
	}
	f := lifecycle.Facts{OtherSession: true, OtherKey: c.PublicKey != "" && c.PublicKey != m.reg.setupKey}
	if _, _, err := m.raise(lifecycle.Void, f); muster.IsCode(err, muster.CodeConflict) {
		return nil // it is the machine itself that came back
	}
	reason := fmt.Sprintf("another connection from %s (NIC %s) claimed this machine's name on the boot bus after the approval", c.Source, c.MAC)
	if gone != "" {
		reason = fmt.Sprintf("after the approval %s; an approval is good for one connection alone, and the machine came back over another, from %s (NIC %s)", gone, c.Source, c.MAC)
		switch {
		case !m.reg.BundleTaken && f.OtherKey:
			reason += ", in another boot; nothing was run on it: look at its disks and approve again"
		case !m.reg.BundleTaken:
			reason += "; nothing was run on it: approve again"
		default:
			reason += ", in another boot, while its setup may have been running: look at its disks before you approve again"
		}
	}
	if c.Reason != "" {
		reason += ": " + c.Reason
	}
	return t.end(m, lifecycle.Void, f, setup.CutReason(reason))
}

// goneBefore says why the connection that a machine had is known to be over when
// it announces itself over another one.
func (r *registration) goneBefore(a muster.Announcement) string {
	switch {
	case r.session == "":
		return r.link.over
	case r.link.booter == a.Booter && r.link.run != "" && a.Run != "" && r.link.run != a.Run:
		return restarted(a.Booter)
	}
	return ""
}

// attach notes over whose session a machine speaks now.
func (r *registration) attach(a muster.Announcement) {
	r.session, r.source = a.Session, a.Source
	r.link = link{booter: a.Booter, run: a.Run, seq: r.link.seq}
	r.Away = ""
}
