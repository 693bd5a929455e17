package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

// registrationColumns is the row in the order in which it is read and written;
// $1 is the key and $2 the revision.
const registrationColumns = `server_uuid, rev, state, door, hostname, manufacturer, product, serial, macs, node_id,
 registered_at, last_seen, approved_at, refreshed_at,
 claim_hash, claim_expires, claim_used, poll_hash, key_id, credential,
 boot_mac, session, source, public_key,
 setup_epoch, setup_deadline, bundle, operation_id, last_setup_error, setup_session, setup_key, proof_hash,
 pi_name, pi_digest, disk_layout, surveyed_at, survey_session, disks,
 console_port, console_pin, conflicts, host_version, seq, was_disabled,
 session_booter, session_run, session_seq, session_over`

var (
	getRegistration = define("registrations/get", `SELECT `+registrationColumns+` FROM registrations WHERE server_uuid = $1`)

	registrationByClaim = define("registrations/by-claim", `SELECT server_uuid, claim_hash FROM registrations WHERE claim_hash = $1`)
	registrationByUsed  = define("registrations/by-used-claim", `SELECT server_uuid, claim_used FROM registrations WHERE claim_used = $1 LIMIT 1`)
	registrationByPoll  = define("registrations/by-poll", `SELECT server_uuid, poll_hash FROM registrations WHERE poll_hash = $1`)

	listRegistrations = define("registrations/list", `
SELECT `+registrationColumns+` FROM registrations WHERE server_uuid > $1 ORDER BY server_uuid LIMIT $2`)
	listRegistrationsIn = define("registrations/list-state", `
SELECT `+registrationColumns+` FROM registrations WHERE state = $1 AND server_uuid > $2 ORDER BY server_uuid LIMIT $3`)

	addRegistration = define("registrations/add", `
INSERT INTO registrations (`+registrationColumns+`)
VALUES (`+placeholders(1, 48)+`)`)

	setRegistration = define("registrations/set", `
UPDATE registrations SET (`+strings.TrimPrefix(registrationColumns, "server_uuid, ")+`)
 = (`+placeholders(2, 48)+`)
WHERE server_uuid = $1 AND rev = $49 AND state = $50`)

	dropRegistration = define("registrations/drop", `DELETE FROM registrations WHERE server_uuid = $1 AND rev = $2 AND state = $3`)

	getSysinfo = define("sysinfos/get", `SELECT document FROM sysinfos WHERE server_uuid = $1`)
	setSysinfo = define("sysinfos/set", `
INSERT INTO sysinfos (server_uuid, document) VALUES ($1, $2)
ON CONFLICT (server_uuid) DO UPDATE SET document = excluded.document`)
	dropSysinfo = define("sysinfos/drop", `DELETE FROM sysinfos WHERE server_uuid = $1`)

	setTicket   = define("tickets/add", `INSERT INTO ticket_keys (server_uuid, purpose, sealed) VALUES ($1, $2, $3)`)
	getTicket   = define("tickets/get", `SELECT sealed FROM ticket_keys WHERE server_uuid = $1 AND purpose = $2`)
	dropTickets = define("tickets/drop", `DELETE FROM ticket_keys WHERE server_uuid = $1`)
)

// placeholders spells $from, …, $to.
func placeholders(from, to int) string {
	ps := make([]string, 0, to-from+1)
	for i := from; i <= to; i++ {
		ps = append(ps, fmt.Sprintf("$%d", i))
	}
	return strings.Join(ps, ", ")
}

// A registration is the row: what everybody may read, and what nobody may.
type registration struct {
	muster.Registration
	rev        int64
	claimHash  []byte
	claimUsed  []byte // of the last approval: whoever comes second is told so
	pollHash   []byte
	credential lifecycle.Credential
	bundle     lifecycle.Bundle

	bootMAC   string
	session   string // the bus session that announced it last and is alive
	source    string // its address
	publicKey string // that it announced
	link      link   // whose session that is or was

	setupSession  string // that the approval is bound to
	setupKey      string // that the bundle is sealed to
	proofHash     string
	surveySession string
	hostVersion   string
	wasDisabled   bool // since a person let it in last
	seq           int64
	evidence      string // as it was written down last, in one text
}

func (r *registration) values() ([]any, error) {
	var bad error
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			bad = err
		}
		return string(b)
	}
	var layout any
	if r.DiskLayout != nil {
		layout = text(r.DiskLayout)
	}
	pi := ref(r.AssignedPI)
	return []any{
		r.ServerUUID, r.rev, string(r.State), string(r.Door), r.Hostname, r.Manufacturer, r.Product, r.Serial, text(r.MACs), r.NodeID,
		micro(r.RegisteredAt), micro(r.LastSeen), microPtr(r.ApprovedAt), microPtr(r.RefreshedAt),
		nilIfEmpty(r.claimHash), microPtr(r.ClaimCodeExpires), nilIfEmpty(r.claimUsed), nilIfEmpty(r.pollHash), r.BoundKeyID, string(r.credential),
		r.bootMAC, r.session, r.source, r.publicKey,
		r.SetupEpoch, microPtr(r.SetupDeadline), string(r.bundle), r.OperationID, r.LastSetupError, r.setupSession, r.setupKey, r.proofHash,
		pi.Name, pi.Digest, layout, microPtr(r.SurveyedAt), r.surveySession, text(r.Disks),
		r.ConsolePort, r.ConsolePin, text(r.Conflicts), r.hostVersion, r.seq, r.wasDisabled,
		r.link.booter, r.link.run, r.link.seq, r.link.over,
	}, bad
}

func nilIfEmpty(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}

func scanRegistration(scan func(...any) error) (*registration, error) {
	r := new(registration)
	var macs, disks, conflicts, piName, piDigest string
	var registered, seen int64
	var approved, refreshed, claim, deadline, surveyed *int64
	var layout *string
	err := scan(
		&r.ServerUUID, &r.rev, &r.State, &r.Door, &r.Hostname, &r.Manufacturer, &r.Product, &r.Serial, &macs, &r.NodeID,
		&registered, &seen, &approved, &refreshed,
		&r.claimHash, &claim, &r.claimUsed, &r.pollHash, &r.BoundKeyID, &r.credential,
		&r.bootMAC, &r.session, &r.source, &r.publicKey,
		&r.SetupEpoch, &deadline, &r.bundle, &r.OperationID, &r.LastSetupError, &r.setupSession, &r.setupKey, &r.proofHash,
		&piName, &piDigest, &layout, &surveyed, &r.surveySession, &disks,
		&r.ConsolePort, &r.ConsolePin, &conflicts, &r.hostVersion, &r.seq, &r.wasDisabled,
		&r.link.booter, &r.link.run, &r.link.seq, &r.link.over,
	)
	if err != nil {
		return nil, err
	}
	r.RegisteredAt, r.LastSeen = fromMicro(registered), fromMicro(seen)
	r.ApprovedAt, r.RefreshedAt, r.ClaimCodeExpires = fromMicroPtr(approved), fromMicroPtr(refreshed), fromMicroPtr(claim)
	r.SetupDeadline, r.SurveyedAt = fromMicroPtr(deadline), fromMicroPtr(surveyed)
	r.AssignedPI = unref(piName, piDigest)
	r.BundleTaken = r.bundle == lifecycle.BundleTaken
	r.Away = r.away()
	for _, d := range []struct {
		text string
		into any
	}{{macs, &r.MACs}, {disks, &r.Disks}, {conflicts, &r.Conflicts}} {
		if err := json.Unmarshal([]byte(d.text), d.into); err != nil {
			return nil, fmt.Errorf("registration %s: %w", r.ServerUUID, err)
		}
	}
	if layout != nil {
		if err := json.Unmarshal([]byte(*layout), &r.DiskLayout); err != nil {
			return nil, fmt.Errorf("registration %s: disk layout: %w", r.ServerUUID, err)
		}
	}
	r.evidence = r.evidenceText()
	return r, nil
}

// registered finds a registration by its UUID in either byte order; nil: there
// is none.
func registered(from source, uuid string) (*registration, error) {
	r, err := findRegistration(from, uuid)
	if other := muster.SwapUUID(uuid); err == nil && r == nil && other != uuid {
		return findRegistration(from, other)
	}
	return r, err
}

// findRegistration returns nil when there is none.
func findRegistration(from source, uuid string) (r *registration, err error) {
	err = from.each(getRegistration, []any{uuid}, func(scan func(...any) error) error {
		r, err = scanRegistration(scan)
		return err
	})
	return r, err
}

// put writes the row: a new one if it was never read, else over the one that
// was.
func (t *tx) putRegistration(r *registration, was muster.RegistrationState) error {
	if err := t.keepMachine(r); err != nil {
		return err
	}
	old := r.rev
	r.rev++
	vs, err := r.values()
	if err != nil {
		return err
	}
	if old == 0 {
		_, err := t.exec(addRegistration, vs...)
		return err
	}
	return t.change(setRegistration, append(vs, old, string(was))...)
}

func (r *registration) addMAC(mac string) {
	if mac != "" && !slices.Contains(r.MACs, mac) {
		r.MACs = append(r.MACs, mac)
		slices.Sort(r.MACs)
	}
}

func ref(i *muster.ImageRef) muster.ImageRef {
	if i == nil {
		return muster.ImageRef{}
	}
	return *i
}

func unref(name, digest string) *muster.ImageRef {
	if name == "" && digest == "" {
		return nil
	}
	return &muster.ImageRef{Name: name, Digest: digest}
}

// public is the registration as people see it at now.
func (s *Store) public(r *registration) muster.Registration {
	p := r.Registration
	if at, ok := s.LastHeard(p.ServerUUID); ok && at.After(p.LastSeen) {
		p.LastSeen = at
	}
	return p
}

// over tells whether what began at has lasted for its time; without a beginning it has.
func over(now time.Time, at *time.Time, within time.Duration) bool {
	return at == nil || !now.Before(at.Add(within))
}
