package store

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/lifecycle"
)

// said is what a machine says of itself, checked and redacted.
type said struct {
	facts    inventory.Facts
	redacted []byte
}

// read checks a machine's sysinfo against the UUID under which it came.
func read(serverUUID string, sysinfo []byte) (string, said, error) {
	uuid, err := muster.ParseUUID(serverUUID)
	if err != nil {
		return "", said{}, muster.Invalid("server_uuid", "%v", err)
	}
	f, err := inventory.Parse(sysinfo)
	if err != nil {
		return "", said{}, err
	}
	if !muster.SameUUID(f.UUID, uuid) {
		return "", said{}, muster.Invalid("sysinfo.UUID", "it says %s, but the machine came as %s", f.UUID, uuid)
	}
	redacted, err := inventory.Redact(sysinfo)
	if err != nil {
		return "", said{}, muster.Invalid("sysinfo", "%v", err)
	}
	return uuid, said{f, redacted}, nil
}

// take copies what was said into the registration.
func (r *registration) take(s said) {
	r.Manufacturer, r.Product, r.Serial = s.facts.Manufacturer, s.facts.Product, s.facts.Serial
	if s.facts.Hostname != "" { // a bare machine says none, and keeps the one that it was approved with
		r.Hostname = s.facts.Hostname
	}
	r.MACs = append([]string{}, s.facts.MACs...)
	r.addMAC(s.facts.AdminMAC)
}

// Register is the claim-code door: anonymous, and it makes no boot record. While
// an auto-approve window is open, it takes a slot instead of showing a code.
func (s *Store) Register(ctx context.Context, now time.Time, by muster.Caller, q muster.RegisterRequest) (muster.RegisterReply, error) {
	var reply muster.RegisterReply
	uuid, what, err := read(q.ServerUUID, q.Sysinfo)
	if err != nil {
		return reply, err
	}
	if err := checkRegister(q); err != nil {
		return reply, err
	}
	var refused error
	err = s.write(ctx, "registering", now, by, func(t *tx) error {
		reply, refused, err = t.register(uuid, q, what)
		return err
	})
	if err == nil {
		err = refused
	}
	return reply, err
}

func checkRegister(q muster.RegisterRequest) error {
	if (q.ConsolePort == 0) != (q.ConsolePin == "") {
		return muster.Invalid("console_listen_port", "console_listen_port and console_tls_spki_sha256_hex come together or not at all")
	}
	if q.ConsolePort < 0 || q.ConsolePort > 65535 {
		return muster.Invalid("console_listen_port", "%d is not a TCP port", q.ConsolePort)
	}
	if pin, err := hex.DecodeString(q.ConsolePin); err != nil || q.ConsolePin != "" && len(pin) != 32 {
		return muster.Invalid("console_tls_spki_sha256_hex", "a SHA-256 in hexadecimal has 64 digits")
	}
	if q.AdminIP != "" {
		if _, err := ipv4("admin_ip", q.AdminIP); err != nil {
			return err
		}
	}
	if q.Hostname != "" && !muster.ValidHostname(q.Hostname) {
		return muster.Invalid("hostname", "%.64q is not an RFC 1123 label", q.Hostname)
	}
	return nil
}

func (t *tx) register(uuid string, q muster.RegisterRequest, what said) (reply muster.RegisterReply, refused, err error) {
	m, err := t.load(uuid)
	if err != nil {
		return reply, nil, err
	}
	w, err := findWindow(t, muster.AutoApproveWindow, t.now)
	if err != nil {
		return reply, nil, err
	}
	sh, err := t.shared()
	if err != nil {
		return reply, nil, err
	}
	if row, is := sh.UUID(uuid); is && m.had == lifecycle.NoRegistration {
		return reply, sharedUUID(uuid, row), nil
	}
	incumbent, verdict, err := t.judge(m, sh, what)
	if err != nil {
		return reply, nil, err
	}
	next, _, err := m.raise(lifecycle.Register, lifecycle.Facts{SameMachine: incumbent == nil, WindowOpen: w.Open})
	if muster.IsCode(err, muster.CodeConflict) && incumbent != nil && m.contested(lifecycle.Register, lifecycle.Facts{WindowOpen: w.Open}) {
		return reply, waiting(err, verdict), t.contest(incumbent, uuid, what, verdict, bootMACOf(what), t.by.Source)
	}
	if err != nil {
		return reply, nil, m.waysIn(err)
	}
	if m.had == lifecycle.NoRegistration {
		if err := t.roomForMachine(""); err != nil {
			return reply, nil, err
		}
	}
	if err := t.settledIn(m, bootMACOf(what)); err != nil {
		return reply, nil, err
	}
	uuid = m.uuid
	token, err := t.s.randomHex(16)
	if err != nil {
		return reply, nil, err
	}
	r := m.reg
	r.take(what)
	if q.Hostname != "" {
		r.Hostname = q.Hostname
	}
	r.Door, r.LastSeen, r.source = muster.DoorClaim, t.now, t.by.Source
	r.ConsolePort, r.ConsolePin = q.ConsolePort, q.ConsolePin
	r.claimUsed, r.pollHash = nil, hashed(token)
	d := detail{"from": m.had, "to": next.Registration, "hostname": r.Hostname, "serial": r.Serial, "macs": r.MACs}
	if byWindow := next.Registration == muster.Approved; byWindow {
		r.Door = muster.DoorWindow
		if r.BoundKeyID, err = t.s.newID(); err != nil {
			return reply, nil, err
		}
		d["window_opened_by"], d["api_key"] = w.OpenedBy, r.BoundKeyID
		if err := t.takeSlot(w, uuid); err != nil {
			return reply, nil, err
		}
	} else if reply, err = t.showCode(r); err != nil {
		return reply, nil, err
	}
	seq, err := t.record(string(lifecycle.Register), subject(uuid), d)
	if err != nil {
		return reply, nil, err
	}
	if err := t.save(m, next, seq); err != nil {
		return reply, nil, err
	}
	if err := t.keepSysinfo(m, what); err != nil {
		return reply, nil, err
	}
	reply.ServerUUID, reply.State, reply.PollToken = uuid, r.State, token
	return reply, nil, nil
}

// sharedUUID refuses, at a door without a boot record, a machine that calls
// itself what many boards do.
func sharedUUID(uuid string, row muster.SharedIdentity) error {
	return muster.Problemf(muster.CodeConflict, "UUID %s is a default that many boards share (%s): run muster-host register --uuid with one of its own", uuid, row.Vendor)
}

// showCode gives the machine a claim code to show.
func (t *tx) showCode(r *registration) (reply muster.RegisterReply, err error) {
	code, err := t.freeCode()
	if err != nil {
		return reply, err
	}
	expires := t.now.Add(lifecycle.ClaimDeadline)
	r.claimHash, r.ClaimCodeExpires = t.s.vault.claim(code), &expires
	return muster.RegisterReply{ClaimCode: muster.ShowClaimCode(code), ClaimCodeExpires: &expires}, nil
}

// contested tells whether whoever came waits as a newcomer: nothing but the
// evidence keeps it out, or it calls itself what a live machine is.
func (m *machine) contested(e muster.Event, f lifecycle.Facts) bool {
	live := m.had == muster.Approved || m.had == muster.SettingUp || m.had == muster.AwaitingSetup
	return live || m.onlyEvidence(e, f)
}

// onlyEvidence tells whether nothing but the evidence keeps a machine out.
func (m *machine) onlyEvidence(e muster.Event, f lifecycle.Facts) bool {
	f.SameMachine = true
	_, _, err := m.raise(e, f)
	return err == nil
}

func bootMACOf(what said) string {
	if what.facts.AdminMAC == "" && len(what.facts.MACs) > 0 {
		return what.facts.MACs[0]
	}
	return what.facts.AdminMAC
}

// freeCode draws a code that no other machine shows.
func (t *tx) freeCode() (string, error) {
	for range 100 {
		n, err := t.s.randomCode()
		if err != nil {
			return "", err
		}
		code := muster.ClaimCode(n)
		hash := t.s.vault.claim(code)
		_, open, err := t.bySecret(registrationByClaim, hash)
		if err != nil {
			return "", err
		}
		_, used, err := t.bySecret(registrationByUsed, hash)
		if err != nil || !open && !used {
			return code, err
		}
	}
	return "", errors.New("no claim code is free after 100 draws")
}

// bySecret finds the machine that a hash belongs to. The index narrows it down;
// the last word has a comparison in constant time.
func (t *tx) bySecret(q *query, hash []byte) (uuid string, found bool, err error) {
	var kept []byte
	found, err = t.get(q, []any{hash}, &uuid, &kept)
	return uuid, found && equal(kept, hash), err
}

// ApproveCode lets in the machine that shows the code. Wrong and expired codes
// get one answer; a code that was used is a conflict.
func (s *Store) ApproveCode(ctx context.Context, now time.Time, by muster.Caller, code string) (muster.Registration, error) {
	var approved muster.Registration
	plain, err := muster.ParseClaimCode(code)
	if err != nil {
		return approved, muster.Invalid("code", "%v", err)
	}
	err = s.write(ctx, "approving a claim code", now, by, func(t *tx) error {
		uuid, found, err := t.bySecret(registrationByClaim, s.vault.claim(plain))
		if err != nil {
			return err
		}
		if !found {
			return t.wrongCode(plain)
		}
		m, err := t.load(uuid)
		if err != nil {
			return err
		}
		if m.reg.ClaimCodeExpires == nil || !t.now.Before(*m.reg.ClaimCodeExpires) {
			return wrongCode()
		}
		as := m.comesAs(false)
		if err := t.approve(m); err != nil {
			return err
		}
		as.NodeID = m.node.ID
		approved = m.reg.Registration
		approved.ComesAs = &as
		return nil
	})
	return approved, err
}

// wrongCode tells whoever came second that the code was good, and is used.
func (t *tx) wrongCode(code string) error {
	uuid, found, err := t.bySecret(registrationByUsed, t.s.vault.claim(code))
	if err != nil {
		return err
	}
	if !found {
		return wrongCode()
	}
	reg, err := findRegistration(t, uuid)
	if err != nil || reg == nil {
		return err
	}
	p := muster.Problemf(muster.CodeConflict, "this claim code was used already, for machine %s: codes are used once", uuid)
	p.State = string(reg.State)
	return p
}

func wrongCode() error {
	return muster.Problemf(muster.CodeNotFound, "no machine shows this claim code now: codes are used once and last an hour; read it again at the machine")
}

func (t *tx) approve(m *machine) error {
	next, _, err := m.raise(lifecycle.Approve, lifecycle.Facts{Code: true})
	if err != nil {
		return err
	}
	id, err := t.s.newID()
	if err != nil {
		return err
	}
	m.reg.BoundKeyID, m.reg.claimUsed = id, m.reg.claimHash
	seq, err := t.record(string(lifecycle.Approve), subject(m.uuid), detail{"from": m.had, "to": next.Registration, "api_key": id})
	if err != nil {
		return err
	}
	return t.save(m, next, seq)
}

// RegisterStatus answers a machine that polls. When its approval has come, the
// agent key is made here, in the transaction that delivers it, once.
func (s *Store) RegisterStatus(ctx context.Context, now time.Time, by muster.Caller, pollToken string) (muster.RegisterStatus, error) {
	hash := hashed(pollToken)
	var status muster.RegisterStatus
	due := false
	if err := s.read(ctx, "polling a registration", func(r *reading) error {
		reg, err := byPoll(r, hash)
		if err == nil {
			status, due = statusOf(reg), reg.credential == lifecycle.Undelivered
		}
		return err
	}); err != nil || !due {
		return status, err
	}
	err := s.write(ctx, "delivering a key", now, by, func(t *tx) error {
		reg, err := byPoll(t, hash)
		if err != nil {
			return err
		}
		if reg.credential != lifecycle.Undelivered { // another poll was faster
			status = statusOf(reg)
			return nil
		}
		m, err := t.load(reg.ServerUUID)
		if err != nil {
			return err
		}
		status, err = t.deliver(m)
		return err
	})
	return status, err
}

func statusOf(r *registration) muster.RegisterStatus {
	return muster.RegisterStatus{State: r.State, Delivered: r.credential == lifecycle.Live}
}

func byPoll(from source, hash []byte) (*registration, error) {
	var uuid string
	var kept []byte
	found, err := from.get(registrationByPoll, []any{hash}, &uuid, &kept)
	if err != nil {
		return nil, err
	}
	unknown := muster.Problemf(muster.CodeNotFound, "this poll token is not known (any more): register again")
	if !found || !equal(kept, hash) {
		return nil, unknown
	}
	reg, err := findRegistration(from, uuid)
	if err == nil && reg == nil {
		return nil, unknown
	}
	return reg, err
}

func (t *tx) deliver(m *machine) (status muster.RegisterStatus, err error) {
	next, _, err := m.raise(lifecycle.Deliver, lifecycle.Facts{})
	if err != nil {
		return status, err
	}
	secret, err := t.mintAgentKey(m)
	if err != nil {
		return status, err
	}
	seq, err := t.record(string(lifecycle.Deliver), subject(m.uuid), detail{"api_key": m.reg.BoundKeyID})
	if err != nil {
		return status, err
	}
	if err := t.save(m, next, seq); err != nil {
		return status, err
	}
	return muster.RegisterStatus{State: m.reg.State, APIKey: secret}, nil
}

// mintAgentKey makes the secret for the id that the approval reserved.
func (t *tx) mintAgentKey(m *machine) (secret string, err error) {
	return t.mintKey(muster.APIKey{ID: m.reg.BoundKeyID, Scope: muster.ScopeAgent, ServerUUID: m.uuid, CreatedAt: t.now, CreatedBy: t.by.String()})
}
