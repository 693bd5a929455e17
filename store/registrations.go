package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/lifecycle"
)

// Registrations lists machines by server UUID. Lists leave sysinfo out.
func (s *Store) Registrations(ctx context.Context, f muster.RegistrationFilter) ([]muster.Registration, error) {
	if f.State != "" && !slices.Contains(muster.RegistrationStates, f.State) {
		return nil, muster.Invalid("state", "%q is none of %s", f.State, join(muster.RegistrationStates))
	}
	rs := []muster.Registration{}
	err := s.read(ctx, "listing registrations", func(r *reading) error {
		rs = rs[:0]
		expunged, err := tombstones(r)
		if err != nil {
			return err
		}
		live, err := liveNodes(r)
		if err != nil {
			return err
		}
		q, args := listRegistrations, []any{f.After, limit(f.Limit)}
		if f.State != "" {
			q, args = listRegistrationsIn, []any{string(f.State), f.After, limit(f.Limit)}
		}
		return r.each(q, args, func(scan func(...any) error) error {
			reg, err := scanRegistration(scan)
			if err == nil {
				p := s.public(reg)
				p.Tombstone = expunged[p.ServerUUID]
				p.ComesAs = listedAs(reg, live[p.ServerUUID], p.Tombstone)
				rs = append(rs, p)
			}
			return err
		})
	})
	return rs, err
}

func join[S ~string](words []S) string {
	var ss []string
	for _, w := range words {
		ss = append(ss, string(w))
	}
	return strings.Join(ss, ", ")
}

// Registration finds one machine, sysinfo included.
func (s *Store) Registration(ctx context.Context, serverUUID string) (muster.Registration, error) {
	var found muster.Registration
	err := s.snapshot(ctx, "reading a registration", func(r *reading) error {
		m, err := findMachine(r, serverUUID)
		if err != nil {
			return err
		}
		if m.had == lifecycle.NoRegistration {
			return unknownMachine(serverUUID)
		}
		found = s.public(m.reg)
		if m.out() {
			as := m.comesAs(false)
			found.ComesAs = &as
		}
		if x := m.tomb; x != nil {
			found.Tombstone = &x.Expunged
			if x.Booters, err = s.confirmations(r, x.Seq); err != nil {
				return err
			}
		}
		if found.RootPassword, err = findRootPassword(r, m.uuid); err != nil {
			return err
		}
		var document string
		if ok, err := r.get(getSysinfo, []any{m.uuid}, &document); err != nil || !ok {
			return err
		}
		found.Sysinfo = json.RawMessage(document)
		return nil
	})
	return found, err
}

func unknownMachine(uuid string) error {
	return muster.Problemf(muster.CodeNotFound, "no machine with UUID %s is registered", uuid)
}

// operatorEvents are those that need no input, with the reason that people are
// shown afterwards.
var operatorEvents = map[muster.Event]string{
	lifecycle.Disable:      "",
	lifecycle.FactoryReset: "",
	lifecycle.Readmit:      "",
	lifecycle.CancelSetup:  "the setup was cancelled by an operator",
}

// RaiseRegistration raises an operator's event that needs no input.
func (s *Store) RaiseRegistration(ctx context.Context, now time.Time, by muster.Caller, serverUUID string, e muster.Event) (muster.Registration, error) {
	reason, known := operatorEvents[e]
	if !known {
		return muster.Registration{}, muster.Problemf(muster.CodeNotFound, "a registration has no event %s that needs no input", e)
	}
	var found muster.Registration
	err := s.write(ctx, string(e), now, by, func(t *tx) error {
		m, err := t.load(serverUUID)
		if err != nil {
			return err
		}
		if e == lifecycle.Readmit && m.tomb != nil { // it outlives the registration
			err = t.readmit(m)
			found = m.reg.Registration
			return err
		}
		if m.had == lifecycle.NoRegistration {
			return unknownMachine(serverUUID)
		}
		switch e {
		case lifecycle.FactoryReset:
			err = t.reset(m)
		case lifecycle.Readmit:
			err = muster.Problemf(muster.CodeConflict, "machine %s is not expunged: there is no tombstone to lift", m.uuid)
			err.(*muster.Problem).State = string(m.had)
		default:
			err = t.end(m, e, lifecycle.Facts{}, reason)
		}
		if err != nil {
			return err
		}
		found = m.reg.Registration
		return nil
	})
	return found, err
}

// end raises an event that takes something from a machine: its setup, its key.
// The reason is kept until the next approval. Repeating it changes nothing.
func (t *tx) end(m *machine, e muster.Event, f lifecycle.Facts, reason string) error {
	next, changed, err := m.raise(e, f)
	if err != nil || !changed {
		return err
	}
	d := detail{"from": m.had, "to": next.Registration}
	if reason != "" {
		d["reason"] = reason
	}
	if m.had == muster.SettingUp {
		d["setup_epoch"], d["operation_id"] = m.reg.SetupEpoch, m.reg.OperationID
		m.reg.LastSetupError = reason
		m.reg.setupSession, m.reg.setupKey, m.reg.proofHash = "", "", ""
		m.reg.DiskLayout, m.reg.OperationID = nil, ""
	}
	if m.reg.BoundKeyID != "" && next.Credential == lifecycle.NoCredential {
		d["revoked_key"] = m.reg.BoundKeyID
	}
	seq, err := t.record(string(e), subject(m.uuid), d)
	if err != nil {
		return err
	}
	return t.save(m, next, seq)
}

// DeleteRegistration forgets a machine. Deleting what is absent succeeds.
func (s *Store) DeleteRegistration(ctx context.Context, now time.Time, by muster.Caller, serverUUID string) error {
	return s.write(ctx, "deleting a registration", now, by, func(t *tx) error {
		m, err := t.load(serverUUID)
		if err != nil {
			return err
		}
		h, err := findHoldings(t, m)
		if err != nil {
			return err
		}
		var f lifecycle.Facts
		h.facts(lifecycle.Delete, &f)
		next, changed, err := m.raise(lifecycle.Delete, f)
		if err != nil || !changed {
			return h.name(err)
		}
		if err := t.leave(m, muster.PlacementRemoved); err != nil {
			return err
		}
		d := detail{"from": m.had, "hostname": m.reg.Hostname, "serial": m.reg.Serial}
		if m.node.ID != "" {
			d["node_id"] = m.node.ID
		}
		seq, err := t.record(string(lifecycle.Delete), subject(m.uuid), d)
		if err != nil {
			return err
		}
		if err := t.dropCredential(m.uuid); err != nil {
			return err
		}
		return t.save(m, next, seq)
	})
}

// reset sends a machine back to its first boot. It destroys no data itself.
func (t *tx) reset(m *machine) error {
	policy, err := findPolicy(t)
	if err != nil {
		return err
	}
	h, err := findHoldings(t, m)
	if err != nil {
		return err
	}
	f := lifecycle.Facts{}
	h.facts(lifecycle.FactoryReset, &f)
	// Valid is one that is set and known: a reset machine with nothing to boot
	// is a dead end.
	if policy.EnrollmentPI != nil {
		if f.EnrollmentPI, err = imageKnown(t, policy.EnrollmentPI.Digest); err != nil {
			return err
		}
	}
	next, changed, err := m.raise(lifecycle.FactoryReset, f)
	if err != nil || !changed {
		return h.name(err)
	}
	if err := t.leave(m, muster.PlacementRemoved); err != nil {
		return err
	}
	r := m.reg
	d := detail{"from": m.had, "to": next.Registration, "assigned_pi": r.AssignedPI}
	if m.node.ID != "" {
		d["node_id"] = m.node.ID
	}
	if r.BoundKeyID != "" {
		d["revoked_key"] = r.BoundKeyID
	}
	// The epoch stays: one that was used is never used again.
	r.DiskLayout, r.OperationID, r.LastSetupError, r.NodeID = nil, "", "", ""
	r.setupSession, r.setupKey, r.proofHash = "", "", ""
	r.session, r.publicKey, r.surveySession, r.SurveyedAt, r.RefreshedAt = "", "", "", nil, nil
	r.ConsolePort, r.ConsolePin, r.link = 0, "", link{}
	seq, err := t.record(string(lifecycle.FactoryReset), subject(m.uuid), d)
	if err != nil {
		return err
	}
	return t.save(m, next, seq)
}

// keepSysinfo keeps what a machine says of itself, with secrets struck out.
func (t *tx) keepSysinfo(m *machine, what said) error {
	if len(what.redacted) == 0 {
		return nil
	}
	if _, err := t.exec(setSysinfo, m.uuid, string(what.redacted)); err != nil {
		return err
	}
	return t.collect(m, muster.SourceSysinfo, inventory.HardwareOf(what.facts))
}

// An OwnKey is a ticket key with the UUID that its machine knows itself by.
type OwnKey struct {
	ServerUUID string
	Key        []byte
}

// TicketKey opens one of a machine's ticket keys (console, metadata or move) to
// make a ticket with, and puts on record who asked.
func (s *Store) TicketKey(ctx context.Context, now time.Time, by muster.Caller, serverUUID string, kind muster.TicketKind) (OwnKey, error) {
	k := OwnKey{ServerUUID: serverUUID}
	err := s.write(ctx, "issuing a ticket", now, by, func(t *tx) error {
		reg, err := registered(t, serverUUID)
		if err != nil {
			return err
		}
		if reg != nil {
			k.ServerUUID = reg.ServerUUID
		}
		var sealed []byte
		found, err := t.get(getTicket, []any{k.ServerUUID, string(kind)}, &sealed)
		if err != nil {
			return err
		}
		if !found {
			return muster.Problemf(muster.CodeConflict, "machine %s has no %s key: it was not set up by muster, or was taken out of service", serverUUID, kind)
		}
		if k.Key, err = s.vault.open(sealed, ticketOwner(k.ServerUUID, string(kind))); err != nil {
			return fmt.Errorf("ticket key of %s: %w (was the master key changed?)", k.ServerUUID, err)
		}
		_, err = t.record("issue_ticket", subject(k.ServerUUID), detail{"kind": kind})
		return err
	})
	return k, err
}

func ticketOwner(uuid, purpose string) string { return uuid + "/" + purpose }
