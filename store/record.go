package store

import (
	"encoding/json"
	"fmt"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

const recordColumns = `mac, seq, state, mode, rescue_until, server_uuid, network, address, networking, pi_name, pi_digest,
 kernel_args, probe_since, service_tag, seen_uuid, arch, provenance, first_seen, last_seen, note, own_uuid, awaits_uuid, origin, touched`

var (
	getRecord        = define("boot-records/get", `SELECT `+recordColumns+` FROM boot_records WHERE mac = $1`)
	recordsOfMachine = define("boot-records/machine", `SELECT `+recordColumns+` FROM boot_records WHERE server_uuid = $1 AND server_uuid <> '' ORDER BY mac`)
	recordsAfter     = define("boot-records/feed", `SELECT `+recordColumns+` FROM boot_records WHERE seq > $1 ORDER BY seq`)

	listRecords = define("boot-records/list", `
SELECT `+recordColumns+` FROM boot_records WHERE mac > $1 ORDER BY mac LIMIT $2`)
	listRecordsIn = define("boot-records/list-state", `
SELECT `+recordColumns+` FROM boot_records WHERE state = $1 AND mac > $2 ORDER BY mac LIMIT $3`)

	addRecord = define("boot-records/add", `
INSERT INTO boot_records (`+recordColumns+`) VALUES (`+placeholders(1, 24)+`)`)
	setRecord = define("boot-records/set", `
UPDATE boot_records SET (seq, state, mode, rescue_until, server_uuid, network, address, networking, pi_name, pi_digest,
 kernel_args, probe_since, service_tag, seen_uuid, arch, provenance, first_seen, last_seen, note, own_uuid, awaits_uuid, origin, touched) = (`+placeholders(2, 24)+`)
WHERE mac = $1 AND state = $25 AND seq = $26`)
	recordSeen = define("boot-records/seen", `
UPDATE boot_records SET last_seen = $2, arch = $3, seen_uuid = $4 WHERE mac = $1`)

	addressesTaken = define("boot-records/addresses", `SELECT address FROM boot_records WHERE address <> ''`)
)

// A record is one boot record, or the place of one that was never reported:
// then its State is lifecycle.Unseen.
type record struct {
	muster.BootRecord
	stored     muster.BootState // as in its row; lifecycle.Unseen: there is none
	storedSeq  int64
	probeSince *time.Time
	origin     string // the booter that saw it first
	touched    bool   // an operator set something, or made it
}

func newRecord(mac string) *record {
	return &record{BootRecord: muster.BootRecord{MAC: mac, State: lifecycle.Unseen, Mode: muster.NormalMode}}
}

// look is what the rows may see of it, from the machine of uuid.
func (r *record) look(uuid string) lifecycle.Boot {
	b := lifecycle.Boot{State: r.State, Mode: r.Mode}
	switch {
	case r.ServerUUID == "":
	case r.ServerUUID == uuid:
		b.Bound = lifecycle.BoundHere
	default:
		b.Bound = lifecycle.BoundOther
	}
	if r.Address != "" {
		b.Address = lifecycle.AddressReserved
	}
	if r.AssignedPI != nil {
		b.Assigned = lifecycle.Assigned
	}
	if r.probeSince != nil {
		b.Probe = lifecycle.ProbeOn
	}
	return b
}

// public is the record as people see it: what was never reported reads as
// discovered.
func (r *record) public() muster.BootRecord {
	b := r.BootRecord
	if r.stored == lifecycle.Unseen {
		b.State, b.Synthesized = muster.Discovered, true
	}
	return b
}

func (r *record) values() ([]any, error) {
	args := r.KernelArgs
	if args == nil {
		args = []string{}
	}
	list, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	var networking any
	if r.Networking != nil {
		b, err := json.Marshal(r.Networking)
		if err != nil {
			return nil, err
		}
		networking = string(b)
	}
	pi := ref(r.AssignedPI)
	return []any{
		r.MAC, r.Seq, string(r.State), string(r.Mode), microPtr(r.RescueUntil), r.ServerUUID, r.Network, r.Address, networking, pi.Name, pi.Digest,
		string(list), microPtr(r.probeSince), r.ServiceTag, r.SeenUUID, r.Arch, r.Provenance, microPtr(r.FirstSeen), microPtr(r.LastSeen), r.Note,
		r.OwnUUID, bit(r.AwaitsUUID), r.origin, bit(r.touched),
	}, nil
}

func scanRecord(scan func(...any) error) (*record, error) {
	r := new(record)
	var rescue, probe, first, last *int64
	var networking *string
	var piName, piDigest, args string
	var awaits, touched int64
	err := scan(
		&r.MAC, &r.Seq, &r.State, &r.Mode, &rescue, &r.ServerUUID, &r.Network, &r.Address, &networking, &piName, &piDigest,
		&args, &probe, &r.ServiceTag, &r.SeenUUID, &r.Arch, &r.Provenance, &first, &last, &r.Note,
		&r.OwnUUID, &awaits, &r.origin, &touched,
	)
	if err != nil {
		return nil, err
	}
	r.stored, r.storedSeq = r.State, r.Seq
	r.AwaitsUUID, r.touched = awaits != 0, touched != 0
	r.RescueUntil, r.probeSince = fromMicroPtr(rescue), fromMicroPtr(probe)
	r.FirstSeen, r.LastSeen = fromMicroPtr(first), fromMicroPtr(last)
	r.AssignedPI, r.Probe = unref(piName, piDigest), r.probeSince != nil
	if err := json.Unmarshal([]byte(args), &r.KernelArgs); err != nil {
		return nil, fmt.Errorf("boot record %s: kernel arguments: %w", r.MAC, err)
	}
	if len(r.KernelArgs) == 0 {
		r.KernelArgs = nil
	}
	if networking != nil {
		if err := json.Unmarshal([]byte(*networking), &r.Networking); err != nil {
			return nil, fmt.Errorf("boot record %s: networking: %w", r.MAC, err)
		}
	}
	return r, nil
}

// findRecord returns the place of a record when there is none.
func findRecord(from source, mac string) (*record, error) {
	r := newRecord(mac)
	err := from.each(getRecord, []any{mac}, func(scan func(...any) error) (err error) {
		r, err = scanRecord(scan)
		return err
	})
	return r, err
}

func records(from source, q *query, args ...any) ([]*record, error) {
	var rs []*record
	err := from.each(q, args, func(scan func(...any) error) error {
		r, err := scanRecord(scan)
		rs = append(rs, r)
		return err
	})
	return rs, err
}

// putRecord writes the record at its new position in the feed.
func (t *tx) putRecord(r *record, seq int64) error {
	was, wasSeq := r.stored, r.storedSeq
	if was == lifecycle.Unseen && r.FirstSeen == nil {
		r.FirstSeen, r.Provenance = &t.now, "made by "+t.by.String()
		r.touched = true
	}
	r.Seq, r.Probe = seq, r.probeSince != nil
	vs, err := r.values()
	if err != nil {
		return err
	}
	if was == lifecycle.Unseen {
		_, err = t.exec(addRecord, vs...)
	} else {
		err = t.change(setRecord, append(vs, string(was), wasSeq)...)
	}
	r.stored, r.storedSeq = r.State, seq
	return err
}

// bit is a truth as both engines keep it.
func bit(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// settle moves the record to what the rows say, as far as that needs nothing
// from outside: image and address come with the event that brings them.
func (r *record) settle(next lifecycle.Boot, uuid string, pinned *muster.ImageRef) {
	r.State, r.Mode = next.State, next.Mode
	if next.Mode == muster.NormalMode {
		r.RescueUntil = nil
	}
	switch next.Bound {
	case lifecycle.BoundHere:
		r.ServerUUID = uuid
	case lifecycle.Unbound:
		r.ServerUUID = ""
	}
	switch {
	case next.Assigned == lifecycle.NoImage:
		r.AssignedPI = nil
	case pinned != nil:
		r.AssignedPI = pinned
	}
	if next.Address == lifecycle.NoAddress {
		r.Address, r.Networking = "", nil
	}
	if next.Probe == lifecycle.ProbeOff {
		r.probeSince = nil
	}
}
