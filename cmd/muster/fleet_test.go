package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	muster "muster.internal"
	"muster.internal/audit"
	"muster.internal/lifecycle"
)

// noon is when every story happens.
var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

const (
	uuidWeb1 = "4c4c4544-0043-5810-8032-b8c04f503533" // approved
	uuidBare = "4c4c4544-0044-5a10-8036-c7c04f4a5933" // awaits setup
	uuidClaf = "9f1f7a30-62a1-4f4e-9a55-8d2f6a0c1b77" // shows a claim code
	goodPass = "correct horse"
	goodKey  = "musop_AAAAAAAAAAAA_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)

// memory is a small true fleet: what is asked of it happens, and what is not
// allowed is refused in the control plane's words. The zero value is empty;
// usual fills it.
type memory struct {
	regs      map[string]*muster.Registration
	codes     map[string]string // claim code to UUID
	recs      map[string]*muster.BootRecord
	policy    muster.BootPolicy
	images    []muster.Image
	blobs     map[string][]byte
	keys      []muster.APIKey
	people    []muster.Operator
	audit     []muster.AuditEntry
	booters   []muster.BooterStatus
	nodes     []muster.Node
	told      map[string]muster.NodeDeclaration
	providers []muster.Provider
	grants    []muster.Grant
	claims    []muster.Claim
	traces    map[string]muster.BootTrace // what booters saw of a card

	followed int // how often somebody asked for an explanation
	windows  map[muster.WindowKind]muster.Window
	tokens   []muster.EnrolmentToken
	// newcomer is the case of a machine that waits, if one does.
	newcomer string
	shared   []muster.SharedIdentity

	plan fleetPlan

	diskLabels  map[string]string // of the node's disk
	minimums    []muster.FirmwareMinimum
	machineNote string // on the known machine
	foreign     bool   // something runs on the node that is not muster's
	// down stands for a control plane whose database is away.
	down bool
	// brokenAt stands for an entry that somebody rewrote.
	brokenAt int64
	// idle is called when somebody waits for news of which there are none.
	idle func()
	// outcome is what an approved setup comes to; empty: success.
	slow    bool // installs go on and on
	watched bool // installs end under the eyes of who watches them
	outcome string
	// leaving is why the machine that waits is away, as of each look.
	leaving []string
}

func usual() *memory {
	seen := noon.Add(-42 * time.Second)
	m := &memory{
		plan: fleetPlan{target: muster.BlueprintTarget{Planning: true}},
		told: map[string]muster.NodeDeclaration{},
		regs: map[string]*muster.Registration{}, codes: map[string]string{"K7P2QX": uuidClaf},
		recs: map[string]*muster.BootRecord{}, blobs: map[string][]byte{}, policy: muster.DefaultBootPolicy(),
		people:  []muster.Operator{{Name: "admin", Role: muster.Admin, CreatedAt: noon.Add(-240 * time.Hour), LastLogin: &seen}},
		booters: []muster.BooterStatus{{Booter: "rack1", Seq: 7, Staged: []string{"sha256:1"}, LastSeen: &seen, Errors: []string{"disk 91 % full"}}},
		nodes: []muster.Node{{ID: "019add0c-7b00-7000-8000-000000000001", ServerUUID: uuidWeb1, Hostname: "web1", Policy: muster.PolicyInService, State: muster.NodeInService, LastSeen: &seen,
			Link: &muster.NodeLink{LastLinked: noon.Add(-2 * time.Hour), Holds: 1, Version: "1.0"}}},
	}
	m.regs[uuidWeb1] = &muster.Registration{ServerUUID: uuidWeb1, State: muster.Approved, Hostname: "web1", Manufacturer: "Dell Inc.", Product: "PowerEdge R640",
		Serial: "8CX2P53", MACs: []string{"52:54:00:77:00:01"}, Door: muster.DoorNetboot, LastSeen: seen, NodeID: m.nodes[0].ID, BoundKeyID: "Zk3vQ0aX91_b"}
	m.regs[uuidBare] = &muster.Registration{ServerUUID: uuidBare, State: muster.AwaitingSetup, Manufacturer: "Dell Inc.", Product: "PowerEdge R640",
		Serial: "8DZ6J93", MACs: []string{"52:54:00:77:00:02", "52:54:00:77:00:03"}, Door: muster.DoorNetboot, LastSeen: seen, SurveyedAt: &seen, Disks: bareDisks()}
	m.regs[uuidClaf] = &muster.Registration{ServerUUID: uuidClaf, State: muster.Pending, Hostname: "laptop", Product: "ThinkPad", Door: muster.DoorClaim, LastSeen: seen}
	for i, uuid := range []string{uuidWeb1, "", ""} {
		mac := fmt.Sprintf("52:54:00:77:00:%02x", i+1)
		m.recs[mac] = &muster.BootRecord{MAC: mac, State: muster.Enrolling, Mode: muster.NormalMode, ServerUUID: uuid, Network: "rack1",
			Address: fmt.Sprintf("10.77.0.%d", 101+i), Networking: &muster.Networking{Address: fmt.Sprintf("10.77.0.%d/24", 101+i), Gateway: "10.77.0.1"}, LastSeen: &seen}
	}
	m.recs["52:54:00:77:00:01"].State = muster.Enrolled
	return m
}

func bareDisks() []muster.Disk {
	return []muster.Disk{
		{Path: "/dev/sda", Vendor: "ATA", Model: "SSDSC2KG480G8R", Serial: "PHYG0123", WWN: "0x55cd2e41501d1d8b", Size: 480103981056, Transport: "ATA", SSD: true},
		{Path: "/dev/sdb", Vendor: "ATA", Model: "SSDSC2KG480G8R", Serial: "PHYG0124", WWN: "0x55cd2e41501d1d8c", Size: 480103981056, Transport: "ATA", SSD: true,
			Contents: []muster.Content{{Kind: "ext4", Name: "old-root"}}},
	}
}

func (m *memory) note(action, subject string) {
	e := muster.AuditEntry{Seq: int64(len(m.audit) + 1), At: noon, Actor: "operator:admin", Action: action, Subject: subject, Detail: json.RawMessage(`{"source":"192.0.2.1"}`)}
	if n := len(m.audit); n > 0 {
		e.PrevHash = m.audit[n-1].Hash
	}
	e.Hash = audit.Hash(e)
	m.audit = append(m.audit, e)
}

func (m *memory) up() error {
	if m.down {
		return muster.Problemf(muster.CodeUnavailable, "the control plane's database is away")
	}
	return nil
}

func (m *memory) reg(uuid string) (*muster.Registration, error) {
	if r := m.regs[uuid]; r != nil {
		return r, m.up()
	}
	return nil, muster.Problemf(muster.CodeNotFound, "machine %s is not registered", uuid)
}

func conflict(state, allowed, format string, args ...any) error {
	p := muster.Problemf(muster.CodeConflict, format, args...)
	p.State, p.Allowed = state, strings.Fields(allowed)
	return p
}

func (m *memory) Login(_ context.Context, l muster.Login) (muster.Token, error) {
	if l.Name != "admin" || l.Password != goodPass {
		return muster.Token{}, muster.Problemf(muster.CodeUnauthenticated, "name or password is wrong")
	}
	return muster.Token{Token: goodKey, Operator: l.Name, Role: muster.Admin, ExpiresAt: noon.Add(12 * time.Hour)}, nil
}

func (m *memory) Operators(context.Context) ([]muster.Operator, error) { return m.people, m.up() }

func (m *memory) CreateOperator(_ context.Context, n muster.NewOperator) (muster.Operator, error) {
	if len(n.Password) < 12 {
		return muster.Operator{}, muster.Invalid("password", "at least 12 characters")
	}
	o := muster.Operator{Name: n.Name, Role: n.Role, CreatedAt: noon}
	m.people = append(m.people, o)
	m.note("create_operator", "operator/"+n.Name)
	return o, nil
}

func (m *memory) Registrations(_ context.Context, f muster.RegistrationFilter) ([]muster.Registration, error) {
	if f.State != "" && !slices.Contains(muster.RegistrationStates, f.State) {
		return nil, muster.Invalid("state", "%q is not one of %s", f.State, strings.Join(states(muster.RegistrationStates), ", "))
	}
	var out []muster.Registration
	for _, uuid := range sortedKeys(m.regs) {
		r := m.regs[uuid]
		if uuid > f.After && (f.State == "" || r.State == f.State) && (f.Limit == 0 || len(out) < f.Limit) {
			out = append(out, *r)
		}
	}
	return out, m.up()
}

func (m *memory) Registration(_ context.Context, uuid string) (muster.Registration, error) {
	r, err := m.reg(uuid)
	if err != nil {
		return muster.Registration{}, err
	}
	if len(m.leaving) > 0 {
		r.Away, m.leaving = m.leaving[0], m.leaving[1:]
		if len(m.leaving) == 0 { // it was back, and somebody approved it
			r.State, r.SetupEpoch, m.watched = muster.SettingUp, 1, true
		}
	}
	if r.State == muster.SettingUp && !m.slow && !m.watched { // the install ends as the knob says
		if r.State = muster.Approved; m.outcome != "" {
			r.State, r.LastSetupError = muster.AwaitingSetup, m.outcome
		}
	}
	return *r, nil
}

func (m *memory) ApproveCode(_ context.Context, code string) (muster.Registration, error) {
	uuid, ok := m.codes[code]
	if !ok {
		return muster.Registration{}, muster.Problemf(muster.CodeNotFound, "no machine shows this code, or it has expired")
	}
	delete(m.codes, code)
	m.regs[uuid].State = muster.Approved
	m.note("approve", "registration/"+uuid)
	return *m.regs[uuid], nil
}

func (m *memory) IssueTicket(_ context.Context, uuid string, q muster.TicketRequest) (muster.Ticket, error) {
	if _, err := m.reg(uuid); err != nil {
		return muster.Ticket{}, err
	}
	m.note("issue_ticket", "registration/"+uuid)
	return muster.Ticket{ServerUUID: uuid, Kind: q.Kind, Ticket: "header.claims.signature", ExpiresAt: noon.Add(time.Duration(q.Seconds) * time.Second)}, nil
}

func (m *memory) PlanSetup(_ context.Context, uuid string, q muster.SetupRequest) (muster.SetupPlan, error) {
	r, err := m.reg(uuid)
	if err != nil {
		return muster.SetupPlan{}, err
	}
	if r.State != muster.AwaitingSetup {
		return muster.SetupPlan{}, conflict(string(r.State), "disable", "machine %s does not await a setup", uuid)
	}
	p := muster.SetupPlan{ServerUUID: uuid, Serial: r.Serial, Pool: muster.ZFS, Layout: "mirror", Capacity: r.Disks[0].Size, Compression: "on", Hostname: q.Hostname,
		Image: &muster.ImageRef{Name: "debian-12-3"}, Digest: "sha256:plan"}
	var use []muster.Disk
	for _, d := range r.Disks {
		if slices.Contains(q.Exclude, d.Path) {
			p.Unused = append(p.Unused, muster.UnusedDisk{Disk: d, Why: "excluded by the request"})
			continue
		}
		use = append(use, d)
		if len(d.Contents) > 0 {
			p.Warnings = append(p.Warnings, d.Path+" holds "+d.Contents[0].Kind+" "+d.Contents[0].Name+", which is lost")
		}
	}
	p.VDevs = []muster.VDev{{Type: "mirror", Disks: use}}
	if len(use) == 1 {
		p.Layout, p.VDevs[0].Type = "single", ""
	}
	return p, nil
}

func (m *memory) ApproveSetup(ctx context.Context, uuid string, a muster.SetupApproval) (muster.SetupGrant, error) {
	p, err := m.PlanSetup(ctx, uuid, a.SetupRequest)
	if err != nil {
		return muster.SetupGrant{}, err
	}
	if a.Plan != p.Digest {
		return muster.SetupGrant{}, conflict("awaiting_setup", "approve_setup", "the disks are not what you saw")
	}
	if a.Confirm != p.Serial {
		return muster.SetupGrant{}, muster.Invalid("confirm", "this is not the machine's serial number")
	}
	r := m.regs[uuid]
	r.State, r.SetupEpoch, r.Hostname, r.OperationID = muster.SettingUp, r.SetupEpoch+1, a.Hostname, "op-1"
	m.note("approve_setup", "registration/"+uuid)
	return muster.SetupGrant{Registration: *r, OperationID: "op-1", Epoch: r.SetupEpoch, Deadline: noon.Add(muster.SetupDeadline)}, nil
}

func (m *memory) RaiseRegistration(_ context.Context, uuid string, e muster.Event) (muster.Registration, error) {
	r, err := m.reg(uuid)
	if err != nil {
		return muster.Registration{}, err
	}
	switch {
	case e == lifecycle.Disable && r.State != muster.SettingUp:
		r.State = muster.Disabled
	case e == lifecycle.FactoryReset && m.foreign:
		return muster.Registration{}, conflict(string(r.State), "disable", "cannot factory-reset machine %s: workloads that are not muster's run there", uuid)
	case e == lifecycle.FactoryReset && (r.State == muster.Approved || r.State == muster.Disabled):
		r.State = muster.AwaitingSetup
	case e == lifecycle.Readmit && r.Tombstone != nil:
		r.Tombstone = nil
	case e == lifecycle.CancelSetup && r.State == muster.SettingUp:
		r.State, r.LastSetupError = muster.AwaitingSetup, "the setup was cancelled by an operator"
	default:
		return muster.Registration{}, conflict(string(r.State), "", "machine %s is not in a state for %s", uuid, e)
	}
	m.note(string(e), "registration/"+uuid)
	return *r, nil
}

func (m *memory) DeleteRegistration(_ context.Context, uuid string) error {
	if r := m.regs[uuid]; r != nil && (r.State == muster.Approved || r.State == muster.SettingUp) {
		return conflict(string(r.State), "disable", "machine %s is a live member of the fleet and cannot be forgotten", uuid)
	}
	delete(m.regs, uuid)
	m.note("delete", "registration/"+uuid)
	return m.up()
}

func (m *memory) Nodes(context.Context) ([]muster.Node, error) { return m.nodes, m.up() }

func (m *memory) Images(context.Context) ([]muster.Image, error) { return m.images, m.up() }

func (m *memory) Image(_ context.Context, ref string) (muster.Image, error) {
	for _, i := range m.images {
		if i.Name == ref || i.Digest == ref {
			return i, nil
		}
	}
	return muster.Image{}, muster.Problemf(muster.CodeNotFound, "there is no image %s", ref)
}

func (m *memory) HasBlob(_ context.Context, d string) (bool, error) { return m.blobs[d] != nil, nil }

func (m *memory) PutBlob(_ context.Context, digest string, size int64, r io.Reader) error {
	b, err := io.ReadAll(r)
	if sum := sha256.Sum256(b); digest != "sha256:"+hex.EncodeToString(sum[:]) || int64(len(b)) != size {
		return muster.Invalid("digest", "the content has another digest")
	}
	m.blobs[digest] = b
	return err
}

func (m *memory) AddImage(_ context.Context, i muster.Image) (muster.Image, error) {
	i.AddedAt = &noon
	m.images = append(m.images, i)
	m.note("add", "image/"+i.Name)
	return i, nil
}

func (m *memory) RemoveImage(ctx context.Context, name string) error {
	if _, err := m.Image(ctx, name); err != nil {
		return err
	}
	m.images = slices.DeleteFunc(m.images, func(i muster.Image) bool { return i.Name == name })
	return nil
}

func (m *memory) Keys(context.Context) ([]muster.APIKey, error) { return m.keys, m.up() }

func (m *memory) CreateKey(_ context.Context, n muster.NewKey) (muster.CreatedKey, error) {
	if n.Scope == muster.ScopeAgent {
		return muster.CreatedKey{}, muster.Invalid("scope", "agent keys are made by approvals alone")
	}
	k := muster.APIKey{ID: fmt.Sprintf("key%09d", len(m.keys)+1), Scope: n.Scope, Comment: n.Comment, CreatedAt: noon, CreatedBy: "operator:admin"}
	if n.ExpiresIn > 0 {
		t := noon.Add(time.Duration(n.ExpiresIn) * time.Second)
		k.ExpiresAt = &t
	}
	m.keys = append(m.keys, k)
	m.note("create_key", "key/"+k.ID)
	return muster.CreatedKey{APIKey: k, Secret: "mus_" + k.ID + "_" + strings.Repeat("s", 43)}, nil
}

func (m *memory) RevokeKey(_ context.Context, id string) error {
	n := len(m.keys)
	if m.keys = slices.DeleteFunc(m.keys, func(k muster.APIKey) bool { return k.ID == id }); len(m.keys) == n {
		return muster.Problemf(muster.CodeNotFound, "there is no key %s", id)
	}
	m.note("revoke_key", "key/"+id)
	return nil
}

func (m *memory) Audit(ctx context.Context, f muster.AuditFilter) ([]muster.AuditEntry, error) {
	var out []muster.AuditEntry
	for _, e := range m.audit {
		if e.Seq > f.After && (f.Subject == "" || e.Subject == f.Subject) && (f.Limit == 0 || len(out) < f.Limit) {
			out = append(out, e)
		}
	}
	if len(out) == 0 && f.Wait > 0 {
		m.idle()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return out, m.up()
}

func (m *memory) VerifyAudit(context.Context) (muster.AuditVerdict, error) {
	n := int64(len(m.audit))
	if m.brokenAt > 0 {
		return muster.AuditVerdict{VerifiedTo: m.brokenAt - 1, BrokenAt: m.brokenAt, Reason: "its hash does not match its content"}, nil
	}
	v := muster.AuditVerdict{OK: true, VerifiedTo: n}
	if n > 0 {
		v.Head = m.audit[n-1].Hash
	}
	return v, nil
}

func (m *memory) Booters(context.Context) ([]muster.BooterStatus, error) { return m.booters, m.up() }

func (m *memory) RemoveBooter(_ context.Context, name string) error {
	i := slices.IndexFunc(m.booters, func(b muster.BooterStatus) bool { return b.Booter == name })
	switch {
	case i < 0:
		return muster.Problemf(muster.CodeNotFound, "there is no booter %s", name)
	case !m.booters[i].Stopped:
		return conflict("reporting", "", "booter %s is not gone: it was last heard 2s ago", name)
	}
	m.booters = slices.Delete(m.booters, i, i+1)
	m.note("remove_booter", "booter/"+name)
	return nil
}

func (m *memory) Version(context.Context) (muster.Version, error) {
	return muster.Version{Version: "1.2.3", Capability: muster.Capability, URL: "https://muster.test:8443"}, m.up()
}
