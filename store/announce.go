package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/lifecycle"
)

const (
	// conflictsKept is how many newcomers are remembered with an incumbent.
	conflictsKept = 8
	// conflictAgain is how long one newcomer, who announces itself every
	// minute, is not written down again.
	conflictAgain = time.Hour
)

// Announce hears a machine that says over the boot bus what it is. A machine
// that the evidence says is another one is refused, and noted on the incumbent.
func (s *Store) Announce(ctx context.Context, now time.Time, by muster.Caller, a muster.Announcement) (muster.Announced, error) {
	var reply muster.Announced
	uuid, what, err := read(a.ServerUUID, a.Sysinfo)
	if err != nil {
		return reply, err
	}
	if what.facts.UUID != uuid {
		return reply, muster.Invalid("sysinfo.UUID", "it says %s, but the machine came as %s", what.facts.UUID, uuid)
	}
	if a.MAC, err = muster.ParseMAC(a.MAC); err != nil {
		return reply, muster.Invalid("mac", "%v", err)
	}
	if a.Session == "" {
		return reply, muster.Invalid("session", "an announcement comes over a bus session")
	}
	if err := checkLines("session", a.Session, "source", a.Source, "public_key", a.PublicKey, "booter", a.Booter, "run", a.Run); err != nil {
		return reply, err
	}
	if a.PublicKey == "" {
		a.PublicKey = what.facts.PublicKey
	}
	what.facts.AdminMAC = a.MAC
	if !slices.Contains(what.facts.MACs, a.MAC) {
		what.facts.MACs = append(what.facts.MACs, a.MAC)
	}
	var refused error
	err = s.write(ctx, "announcing", now, by, func(t *tx) error {
		reply, refused, err = t.announce(uuid, a, what)
		return err
	})
	if err == nil {
		err = refused
	}
	return reply, err
}

// checkLines refuses, by its field's name, what is not one short printable
// line. It takes fields and texts in turn.
func checkLines(pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if s := pairs[i+1]; len(s) > 512 || !utf8.ValidString(s) || !printable(s) {
			return muster.Invalid(pairs[i], "it is not one printable line of at most 512 bytes")
		}
	}
	return nil
}

// announce returns a refusal apart from the error, because what it leads to is
// kept: the conflict on the incumbent, and the void of an approval.
func (t *tx) announce(uuid string, a muster.Announcement, what said) (reply muster.Announced, refused, err error) {
	m, err := t.load(uuid, a.MAC)
	if err != nil {
		return reply, nil, err
	}
	sh, err := t.shared()
	if err != nil {
		return reply, nil, err
	}
	if row, is := sh.UUID(uuid); is && m.had == lifecycle.NoRegistration {
		refused, err = t.defaultUUID(m, uuid, row, sh, a.MAC, what)
		return reply, refused, err
	}
	incumbent, verdict, err := t.judge(m, sh, what)
	if err != nil {
		return reply, nil, err
	}
	f := lifecycle.Facts{SameMachine: incumbent == nil, Admitted: true}
	var slot *muster.Window
	if m.had == lifecycle.NoRegistration {
		if slot, f.Admitted, err = t.admitted(); err != nil {
			return reply, nil, err
		}
	}
	// Another machine that speaks for itself, by its own NIC, is a newcomer who
	// waits: nothing of the incumbent's setup is ever sent to it, and if it
	// could end that setup, two machines with one UUID could never be set up.
	if f.SameMachine || a.MAC == m.reg.bootMAC {
		if err := t.newcomer(m, muster.SessionChange{Session: a.Session, MAC: a.MAC, Source: a.Source, PublicKey: a.PublicKey}, m.reg.goneBefore(a)); err != nil {
			return reply, nil, err
		}
	}
	next, _, err := m.raise(lifecycle.Announce, f)
	if err != nil {
		if !muster.IsCode(err, muster.CodeConflict) || f.SameMachine {
			return reply, nil, err
		}
		return reply, waiting(err, verdict), t.contest(incumbent, uuid, what, verdict, a.MAC, a.Source)
	}
	if err := t.settledIn(m, a.MAC); err != nil {
		return reply, nil, err
	}
	if m.had == lifecycle.NoRegistration {
		if err := t.roomForMachine(a.MAC); err != nil {
			return reply, nil, err
		}
	}
	reply.State = next.Registration
	if slot != nil {
		if err := t.takeSlot(*slot, uuid); err != nil {
			return reply, nil, err
		}
	}
	if next.Registration == muster.AwaitingSetup {
		reply.Survey, err = t.hear(m, next, a, what)
		return reply, nil, err
	}
	if _, err := t.exec(machineSeen, m.uuid, micro(t.now)); err != nil {
		return reply, nil, err
	}
	if m.had == muster.SettingUp && m.reg.session != a.Session {
		// The machine came back while its install runs.
		return reply, nil, t.rebind(m, a)
	}
	return reply, nil, nil
}

// admitted tells whether a new machine may announce itself: by the policy, or
// by a slot of an enrollment window, which it then takes. Neither approves
// anything.
func (t *tx) admitted() (slot *muster.Window, ok bool, err error) {
	p, err := findPolicy(t)
	if err != nil || p.AutoEnroll {
		return nil, err == nil, err
	}
	w, err := findWindow(t, muster.EnrollmentWindow, t.now)
	if err != nil || !w.Open {
		return nil, false, err
	}
	return &w, true, nil
}

// judge finds the machine that the one of m is in conflict with: the holder of
// its UUID, or whose cards or disks it has, or, when it is registered itself,
// whose cards it shows for the first time. Nil: nothing speaks against it.
// The machines of but are passed over.
func (t *tx) judge(m *machine, sh *inventory.Shared, what said, but ...string) (*machine, inventory.Verdict, error) {
	if m.had == lifecycle.NoRegistration {
		return t.rival(m.uuid, sh, sh.Evidence(what.facts), but...)
	}
	v := inventory.Judge(sh.EvidenceOf(m.reg.Registration), sh.Evidence(what.facts))
	if v.Outcome == inventory.Conflict {
		return m, v, nil
	}
	h, _, v, err := t.holder(m, sh, what, but...)
	return h, v, err
}

// waiting tells a newcomer, and whoever reads it, why it waits and what can be
// done about it.
func waiting(err error, v inventory.Verdict) error {
	var p *muster.Problem
	if !errors.As(err, &p) {
		return err
	}
	q := *p
	q.Detail = fmt.Sprintf("%s: %s. It waits for an operator's word: see muster machine ls, then say one of %s", p.Detail, v.Reason, strings.Join(v.Case.Verbs(), ", "))
	q.Allowed = v.Case.Verbs()
	return &q
}

// defaultUUID refuses a machine that calls itself what many boards do, and sees
// to it that its next boot tells it another UUID.
func (t *tx) defaultUUID(m *machine, uuid string, row muster.SharedIdentity, sh *inventory.Shared, mac string, what said) (refused, err error) {
	own, ok := sh.Own(what.facts.Serial, mac)
	if i := m.boot(mac); i >= 0 && m.boots[i].stored != lifecycle.Unseen && m.boots[i].OwnUUID != "" {
		own, ok = m.boots[i].OwnUUID, true
	} else if i >= 0 && ok && m.boots[i].stored != lifecycle.Unseen {
		if err := t.give(m.boots[i], own, "its UUID "+uuid+" is on many boards"); err != nil {
			return nil, err
		}
	}
	vendor := row.Vendor
	if vendor == "" {
		vendor = "an operator marked it so"
	}
	if !ok {
		return muster.Problemf(muster.CodeConflict, "UUID %s is a default that many boards share (%s), and neither the machine's serial number nor its MAC address is its own: give it one with muster boot set %s --uuid UUID, and restart it", uuid, vendor, mac), nil
	}
	return muster.Problemf(muster.CodeConflict, "UUID %s is a default that many boards share (%s): restart the machine, it is told to call itself %s", uuid, vendor, own), nil
}

// give writes down which UUID the machine behind a card must call itself.
func (t *tx) give(r *record, own, why string) error {
	r.OwnUUID, r.AwaitsUUID = own, false
	seq, err := t.record("own_uuid", recordSubject(r.MAC), detail{"own_uuid": own, "why": why})
	if err != nil {
		return err
	}
	return t.putRecord(r, seq)
}

// spell sees to it that a machine that came in the other byte order comes as it
// is registered from its next boot on.
func (t *tx) spell(m *machine, a muster.Announcement) error {
	i := m.boot(a.MAC)
	if said, err := muster.ParseUUID(a.ServerUUID); err != nil || said == m.uuid || i < 0 || m.boots[i].stored == lifecycle.Unseen || m.boots[i].OwnUUID != "" {
		return nil
	}
	return t.give(m.boots[i], m.uuid, "it came in the other byte order")
}

// hear writes down what a bare machine said. Its disks must be surveyed over
// the session that it speaks on now.
func (t *tx) hear(m *machine, next lifecycle.State, a muster.Announcement, what said) (survey bool, err error) {
	r := m.reg
	isNew := m.had == lifecycle.NoRegistration
	moved := isNew || r.session != a.Session || r.publicKey != a.PublicKey
	r.take(what)
	if isNew {
		r.Door = muster.DoorNetboot
	}
	r.LastSeen, r.bootMAC, r.publicKey = t.now, a.MAC, a.PublicKey
	r.attach(a)
	if moved {
		r.SurveyedAt, r.surveySession = nil, ""
	}
	seq := r.seq
	if moved {
		if seq, err = t.record(string(lifecycle.Announce), subject(m.uuid), detail{
			"from": m.had, "mac": a.MAC, "address": a.Source, "booter": a.Booter, "serial": r.Serial, "product": r.Product}); err != nil {
			return false, err
		}
		r.link.seq = seq
	}
	if err := t.save(m, next, seq); err != nil {
		return false, err
	}
	if err := t.spell(m, a); err != nil {
		return false, err
	}
	return r.SurveyedAt == nil, t.keepSysinfo(m, what)
}

// rebind notes the session of a machine that came back in the middle of its
// own install.
func (t *tx) rebind(m *machine, a muster.Announcement) error {
	m.reg.LastSeen = t.now
	m.reg.attach(a)
	seq, err := t.record("reconnected", subject(m.uuid), detail{"mac": a.MAC, "address": a.Source, "booter": a.Booter})
	if err != nil {
		return err
	}
	m.reg.seq, m.reg.link.seq = seq, seq
	if err := t.putRegistration(m.reg, m.had); err != nil {
		return err
	}
	return t.tellSetup(m, "the machine is back on the boot bus, at booter "+a.Booter)
}

func (t *tx) noteConflict(m *machine, c muster.Conflict) error {
	if m.had == lifecycle.NoRegistration {
		return nil
	}
	r := m.reg
	same := func(o muster.Conflict) bool { return o.MAC == c.MAC && o.Source == c.Source && o.Serial == c.Serial }
	if i := slices.IndexFunc(r.Conflicts, same); i >= 0 && c.At.Sub(r.Conflicts[i].At) < conflictAgain {
		return nil
	}
	r.Conflicts = slices.DeleteFunc(r.Conflicts, same)
	r.Conflicts = append(r.Conflicts, c)
	if n := len(r.Conflicts) - conflictsKept; n > 0 {
		r.Conflicts = r.Conflicts[n:]
	}
	seq, err := t.record("conflict", subject(m.uuid), detail{"mac": c.MAC, "serial": c.Serial, "address": c.Source, "reason": c.Reason})
	if err != nil {
		return err
	}
	r.seq = seq
	return t.putRegistration(r, m.had)
}

// Survey writes down what a read-only look at a machine's disks found.
func (s *Store) Survey(ctx context.Context, now time.Time, by muster.Caller, serverUUID string, v muster.Survey) error {
	return s.write(ctx, "keeping a disk survey", now, by, func(t *tx) error {
		m, err := t.load(serverUUID)
		if err != nil {
			return err
		}
		if m.had == lifecycle.NoRegistration {
			return unknownMachine(serverUUID)
		}
		next, _, err := m.raise(lifecycle.Survey, lifecycle.Facts{Session: v.Session != "" && v.Session == m.reg.session})
		if err != nil {
			return err
		}
		m.reg.Disks, m.reg.SurveyedAt, m.reg.surveySession, m.reg.LastSeen = v.Disks, &t.now, v.Session, t.now
		var names []string
		for _, d := range v.Disks {
			names = append(names, d.Path+" "+d.Describe())
		}
		seq, err := t.record(string(lifecycle.Survey), subject(m.uuid), detail{"disks": names})
		if err != nil {
			return err
		}
		if err := t.save(m, next, seq); err != nil {
			return err
		}
		return t.surveyed(m, v.Disks)
	})
}

// SessionChanged hears that a machine's bus session ended, or that another
// connection holds or tried to hold the machine's name.
func (s *Store) SessionChanged(ctx context.Context, now time.Time, by muster.Caller, serverUUID string, c muster.SessionChange) error {
	if err := checkLines("session", c.Session, "lost", c.Lost, "mac", c.MAC, "source", c.Source, "public_key", c.PublicKey, "reason", c.Reason); err != nil {
		return err
	}
	return s.write(ctx, "hearing of a bus session", now, by, func(t *tx) error {
		m, err := t.load(serverUUID)
		if err != nil || m.had == lifecycle.NoRegistration {
			return err
		}
		if c.Session != "" || c.Lost == "" {
			gone := ""
			if m.reg.session == "" {
				gone = m.reg.link.over
			}
			if err := t.newcomer(m, c, gone); err != nil {
				return err
			}
		}
		if c.Lost == "" || c.Lost != m.reg.session {
			return nil
		}
		// An approval needs a machine that is there.
		return t.lost(m, c.Reason, detail{"mac": c.MAC, "address": c.Source, "booter": m.reg.link.booter})
	})
}
