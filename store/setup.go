package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/lifecycle"
	"muster.internal/setup"
)

// Secrets are made in the transaction that hands them out, and leave it only
// sealed to the machine.
type Secrets struct {
	APIKey   string
	ProofKey []byte
	Tickets  setup.TicketKeys
}

// A Sealer makes what is sent to the machine of r out of its fresh secrets,
// sealed to publicKey. It keeps none, and may be called more than once.
type Sealer func(r muster.Registration, publicKey string, secrets Secrets) (muster.TakenBundle, error)

// TakeBundle hands out the bundle of an approved setup, once.
func (s *Store) TakeBundle(ctx context.Context, now time.Time, by muster.Caller, serverUUID string, q muster.TakeRequest, seal Sealer) (muster.TakenBundle, error) {
	var taken muster.TakenBundle
	err := s.write(ctx, "taking a setup bundle", now, by, func(t *tx) error {
		m, err := t.load(serverUUID)
		if err != nil {
			return err
		}
		if m.had == lifecycle.NoRegistration {
			return unknownMachine(serverUUID)
		}
		next, _, err := m.raise(lifecycle.Take, lifecycle.Facts{
			Epoch:   q.Epoch == m.reg.SetupEpoch,
			Session: q.Session != "" && q.Session == m.reg.setupSession,
		})
		if err != nil {
			return err
		}
		secrets, err := t.mintSecrets(m)
		if err != nil {
			return err
		}
		if taken, err = seal(m.reg.Registration, m.reg.setupKey, secrets); err != nil {
			return err
		}
		seq, err := t.record(string(lifecycle.Take), subject(m.uuid), detail{
			"operation_id": m.reg.OperationID, "setup_epoch": m.reg.SetupEpoch, "api_key": m.reg.BoundKeyID})
		if err != nil {
			return err
		}
		if err := t.save(m, next, seq); err != nil {
			return err
		}
		return t.appendLines(m.uuid, []muster.SetupStep{{At: t.now, Step: "taken", Text: "the booter takes the sealed bundle"}}, 0)
	})
	return taken, err
}

func (t *tx) mintSecrets(m *machine) (v Secrets, err error) {
	if v.APIKey, err = t.mintAgentKey(m); err != nil {
		return v, err
	}
	if v.ProofKey, err = t.s.random(32); err != nil {
		return v, err
	}
	m.reg.proofHash = setup.HashProof(setup.Proof(v.ProofKey, m.uuid, m.reg.SetupEpoch))
	for _, k := range []struct {
		purpose string
		key     *[]byte
	}{{"console", &v.Tickets.Console}, {"metadata", &v.Tickets.Metadata}, {"move", &v.Tickets.Move}} {
		if *k.key, err = t.s.random(32); err != nil {
			return v, err
		}
		nonce, err := t.s.random(t.s.vault.seals.NonceSize())
		if err != nil {
			return v, err
		}
		if _, err := t.exec(setTicket, m.uuid, k.purpose, t.s.vault.seal(nonce, *k.key, ticketOwner(m.uuid, k.purpose))); err != nil {
			return v, err
		}
	}
	return v, nil
}

// SetupComplete ends a setup that worked: the registration is approved, its
// records enrolled, its node and disks adopted, all at once.
func (s *Store) SetupComplete(ctx context.Context, now time.Time, by muster.Caller, serverUUID string, o muster.SetupOutcome) error {
	macs, err := parseMACs(o.MACs)
	if err != nil {
		return err
	}
	return s.write(ctx, "completing a setup", now, by, func(t *tx) error {
		macs, err := t.unclaimed(serverUUID, macs)
		if err != nil {
			return err
		}
		m, err := t.load(serverUUID, macs...)
		if err != nil {
			return err
		}
		if m.had == lifecycle.NoRegistration {
			return unknownMachine(serverUUID)
		}
		macs = m.leaveOut(macs)
		m.stdout, m.stderr = o.Stdout, o.Stderr
		f := lifecycle.Facts{
			Epoch: o.Epoch == m.reg.SetupEpoch,
			Proof: m.reg.proofHash != "" && setup.ProofMatches(o.Proof, m.reg.proofHash),
		}
		next, changed, err := m.raise(lifecycle.SetupComplete, f)
		if err != nil || !changed {
			return err
		}
		return t.join(m, next, lifecycle.SetupComplete, macs, o.Log)
	})
}

// leaveOut drops the cards of another machine that claims the same UUID: a card
// that was seen to boot, and that the machine itself did not report, is its own
// only if its firmware told the machine's serial number too.
func (m *machine) leaveOut(macs []string) []string {
	foreign := func(b *record) bool {
		if b.ServerUUID == m.uuid || slices.Contains(m.reg.MACs, b.MAC) {
			return false
		}
		noted := slices.ContainsFunc(m.reg.Conflicts, func(c muster.Conflict) bool { return c.MAC == b.MAC })
		return noted || m.reg.Serial != "" && !strings.EqualFold(b.ServiceTag, m.reg.Serial)
	}
	var others []string
	for _, b := range m.boots {
		if foreign(b) {
			others = append(others, b.MAC)
		}
	}
	m.boots = slices.DeleteFunc(m.boots, foreign)
	return slices.DeleteFunc(slices.Clone(macs), func(mac string) bool { return slices.Contains(others, mac) })
}

var machineByMAC = define("registrations/other-by-mac", `
SELECT server_uuid FROM registrations WHERE server_uuid <> $1 AND macs LIKE $2 LIMIT 1`)

// unclaimed leaves out the NICs that another machine says are its own. Which
// NICs asked to boot under a UUID is hearsay: anybody on the segment can ask in
// the name of two machines, and would tie one's record to the other.
func (t *tx) unclaimed(uuid string, macs []string) ([]string, error) {
	var left []string
	for _, mac := range macs {
		var other string
		found, err := t.get(machineByMAC, []any{uuid, `%"` + mac + `"%`}, &other)
		if err != nil {
			return nil, err
		}
		if !found {
			left = append(left, mac)
		}
	}
	return left, nil
}

func parseMACs(macs []string) ([]string, error) {
	var canonical []string
	for _, m := range macs {
		c, err := muster.ParseMAC(m)
		if errors.Is(err, muster.ErrNoCard) {
			continue // of a card that was given none yet
		}
		if err != nil {
			return nil, muster.Invalid("macs", "%v", err)
		}
		canonical = append(canonical, c)
	}
	return canonical, nil
}

// join is the one place where a setup's end meets boot records, node and disks.
func (t *tx) join(m *machine, next lifecycle.State, e muster.Event, macs []string, log string) error {
	old := m.look()
	var enrolled []string
	for i, b := range m.boots {
		if old.Boots[i].State != next.Boots[i].State {
			enrolled = append(enrolled, b.MAC)
		}
	}
	for _, mac := range macs {
		if i := m.boot(mac); i >= 0 && next.Boots[i].Bound == lifecycle.BoundHere {
			m.reg.addMAC(mac)
		}
	}
	m.reg.LastSeen = t.now
	d := detail{"from": m.had, "to": next.Registration, "operation_id": m.reg.OperationID, "setup_epoch": m.reg.SetupEpoch,
		"api_key": m.reg.BoundKeyID, "enrolled": enrolled, "assigned_pi": m.reg.AssignedPI}
	if log != "" {
		d["log"] = tail(log, 4096)
	}
	seq, err := t.record(string(e), subject(m.uuid), d)
	if err != nil {
		return err
	}
	return t.save(m, next, seq)
}

// tail is the last part of what a script said, at most n bytes. Lines that
// carry the proof are left out.
func tail(log string, n int) string {
	var lines []string
	for _, l := range strings.Split(strings.ToValidUTF8(log, "\ufffd"), "\n") {
		if _, _, is := setup.ParseSentinel(l); !is {
			lines = append(lines, l)
		}
	}
	log = strings.Join(lines, "\n")
	if len(log) > n {
		log = strings.ToValidUTF8(log[len(log)-n:], "")
	}
	return strings.ReplaceAll(inventory.RedactLine(log), "\x00", "\ufffd")
}

// SetupFailed ends a setup that did not work: back to awaiting_setup, and no
// key is left.
func (s *Store) SetupFailed(ctx context.Context, now time.Time, by muster.Caller, serverUUID string, o muster.SetupOutcome) error {
	reason := setup.CutReason(inventory.RedactLine(o.Reason))
	if reason == "" {
		reason = "the setup failed and gave no reason"
	}
	return s.write(ctx, "failing a setup", now, by, func(t *tx) error {
		m, err := t.load(serverUUID)
		if err != nil {
			return err
		}
		if m.had == lifecycle.NoRegistration {
			return unknownMachine(serverUUID)
		}
		m.stdout, m.stderr = o.Stdout, o.Stderr
		return t.end(m, lifecycle.SetupFailed, lifecycle.Facts{Epoch: o.Epoch == m.reg.SetupEpoch}, reason)
	})
}

// Refresh hears the installed machine itself, with its bound key. It is the
// other way out of setting_up.
func (s *Store) Refresh(ctx context.Context, now time.Time, by muster.Caller, q muster.RefreshRequest) (muster.Registration, error) {
	var what said
	var err error
	if len(q.Sysinfo) > 0 {
		if _, what, err = read(by.ServerUUID, q.Sysinfo); err != nil {
			return muster.Registration{}, err
		}
	}
	if q.Hostname != "" && !muster.ValidHostname(q.Hostname) {
		return muster.Registration{}, muster.Invalid("hostname", "%.64q is not an RFC 1123 label", q.Hostname)
	}
	var found muster.Registration
	err = s.write(ctx, "refreshing", now, by, func(t *tx) error {
		m, err := t.load(by.ServerUUID, what.facts.MACs...)
		if err != nil {
			return err
		}
		if m.had == lifecycle.NoRegistration || m.reg.BoundKeyID != by.KeyID || m.reg.credential != lifecycle.Live {
			return unauthenticated() // revoked since it was checked
		}
		if err := t.refresh(m, q, what); err != nil {
			return err
		}
		found = m.reg.Registration
		return nil
	})
	return found, err
}

func (t *tx) refresh(m *machine, q muster.RefreshRequest, what said) error {
	if err := t.odd(m, &what); err != nil {
		return err
	}
	next, changed, err := m.raise(lifecycle.Refresh, lifecycle.Facts{Epoch: q.Epoch == m.reg.SetupEpoch})
	if err != nil {
		return err
	}
	r := m.reg
	if len(what.redacted) > 0 {
		r.take(what)
	}
	if q.Hostname != "" {
		r.Hostname = q.Hostname
	}
	if len(q.Disks) > 0 {
		r.Disks = q.Disks
	}
	r.RefreshedAt, r.LastSeen, r.hostVersion = &t.now, t.now, q.Version
	if changed {
		err = t.join(m, next, lifecycle.Refresh, nil, "")
	} else {
		var seq int64
		if seq, err = t.record(string(lifecycle.Refresh), subject(m.uuid), detail{"version": q.Version}); err == nil {
			err = t.save(m, next, seq)
		}
	}
	if err != nil {
		return err
	}
	if err := t.keepSysinfo(m, what); err != nil {
		return err
	}
	return t.confirm(m, len(what.redacted) > 0)
}

// confirm lets a node serve once its inventory is in, unless a target says when.
func (t *tx) confirm(m *machine, arrived bool) error {
	if m.node.State != muster.NodeInitializing {
		return nil
	}
	if of, err := t.s.shares(t); err != nil || !of(m.node.ID).ripe(m.node, lifecycle.Confirm) {
		return err
	}
	next, changed, err := m.raise(lifecycle.Confirm, lifecycle.Facts{Inventory: arrived})
	if muster.IsCode(err, muster.CodeConflict) || err == nil && !changed {
		return nil // not yet, or long since
	}
	if err != nil {
		return err
	}
	seq, err := t.record(string(lifecycle.Confirm), "node/"+m.node.ID, detail{"server_uuid": m.uuid, "from": m.node.State, "to": next.NodeState})
	if err != nil {
		return err
	}
	return t.save(m, next, seq)
}
