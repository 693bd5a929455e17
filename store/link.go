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
SELECT server_uuid FROM registrations r LEFT JOIN booters b ON b.name = r.session_booter
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

// lose notes that a machine's bus session is over. An approval that is bound to
// it stays bound to it: what becomes of that is for the rows to say when the
// machine comes back, or the deadline does.
func (t *tx) lose(m *machine, why string, d detail) error {
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
	return t.tellSetup(m, "the machine is away from the boot bus: "+m.reg.link.over)
}

// tellSetup writes a line to the log of a running setup, for those who watch.
func (t *tx) tellSetup(m *machine, text string) error {
	if m.had != muster.SettingUp {
		return nil
	}
	return t.appendLines(m.uuid, []muster.SetupStep{{At: t.now, Text: text}}, 0)
}

// settleLinks loses the sessions that a booter should hold and does not.
func (t *tx) settleLinks(b muster.BooterStatus) error {
	if b.Run == "" {
		return nil // it does not say what it holds
	}
	lost := map[string]string{}
	if err := t.each(linksOf, []any{b.Booter, b.Seq}, func(scan func(...any) error) error {
		var uuid, session, run string
		if err := scan(&uuid, &session, &run); err != nil {
			return err
		}
		switch {
		case slices.Contains(b.Sessions, session):
		case run != b.Run:
			lost[uuid] = restarted(b.Booter)
		default:
			lost[uuid] = fmt.Sprintf("booter %s does not hold its connection any more", b.Booter)
		}
		return nil
	}); err != nil {
		return err
	}
	for uuid, why := range lost {
		m, err := t.load(uuid)
		if err != nil {
			return err
		}
		if err := t.lose(m, why, detail{"booter": b.Booter}); err != nil {
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
	silent := func(from source) (uuids []string, err error) {
		err = from.each(linksSilent, []any{since}, func(scan func(...any) error) error {
			uuids = append(uuids, "")
			return scan(&uuids[len(uuids)-1])
		})
		return uuids, err
	}
	var any bool
	if err := s.read(ctx, "looking for silent booters", func(r *reading) error {
		found, err := silent(r)
		any = len(found) > 0
		return err
	}); err != nil || !any {
		return 0, err
	}
	err = s.write(ctx, "losing the sessions of a silent booter", now, muster.Clock, func(t *tx) error {
		uuids, err := silent(t)
		if err != nil {
			return err
		}
		lost = len(uuids)
		for _, uuid := range uuids {
			m, err := t.load(uuid)
			if err != nil {
				return err
			}
			booter := m.reg.link.booter
			why := fmt.Sprintf("booter %s, which held its connection, has not been heard for %s", booter, BooterSilence)
			if err := t.lose(m, why, detail{"booter": booter}); err != nil {
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
