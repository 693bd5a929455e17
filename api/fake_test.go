package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/api"
	"muster.internal/module"
	"muster.internal/resource"
)

// bearers are the tokens that the fake service knows.
var bearers = map[string]muster.Caller{
	"admin":  {Operator: "ada", Role: muster.Admin},
	"viewer": {Operator: "vic", Role: muster.Viewer},
}

func init() {
	// These stand for certificates: a fake knows no others.
	bearers["node"] = muster.Caller{NodeID: "n", KeyID: "kn", Scope: muster.ScopeAgent}
	bearers["lapsed node"] = muster.Caller{NodeID: "n", KeyID: "kn", Scope: muster.ScopeAgent, Lapsed: true}
	for _, s := range muster.Scopes {
		bearers["key-"+string(s)] = muster.Caller{KeyID: "k" + string(s), Scope: s}
	}
}

// fake is a small true service: it remembers what it was asked and answers
// every question with a value that is full in every field.
type fake struct {
	mu    sync.Mutex
	calls []string
	fail  error
	ready error
}

func (f *fake) Authenticate(_ context.Context, p api.Proof, _ string) (muster.Caller, error) {
	if c, ok := bearers[p.Bearer]; ok && p.Certificate == nil {
		return c, nil
	}
	if p.Bearer == "guesses" {
		p := muster.Problemf(muster.CodeTooMany, "too many failures from this address")
		p.RetryAfter = 7
		return muster.Caller{}, p
	}
	return muster.Caller{}, muster.Problemf(muster.CodeUnauthenticated, "this key is not known, has expired or was revoked")
}

func (f *fake) As(muster.Caller) api.Session { return session{f} }
func (f *fake) Ready(context.Context) error  { return f.ready }
func (f *fake) asked() (calls []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls, f.calls = f.calls, nil
	return calls
}

func (f *fake) note(method string, args ...any) error {
	b, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, method+string(b))
	if f.fail != nil {
		return f.fail
	}
	if strings.Contains(string(b), "absent") {
		return muster.Problemf(muster.CodeNotFound, "%s: there is no such thing", method)
	}
	return nil
}

func answer[T any](f *fake, method string, args ...any) (T, error) {
	var v T
	if err := f.note(method, args...); err != nil {
		return v, err
	}
	n := len(method)
	full(reflect.ValueOf(&v).Elem(), &n, 0)
	return v, nil
}

var blobText = strings.Repeat("a platform image's kernel. ", 1000)

// full fills every field, with values that differ from each other.
func full(v reflect.Value, n *int, depth int) {
	*n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(1_700_000_000+int64(*n), 0).UTC()))
		return
	case json.RawMessage:
		v.Set(reflect.ValueOf(json.RawMessage(fmt.Sprintf(`{"n":%d}`, *n))))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("text-%d", *n))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint8:
		v.SetUint(uint64(*n % 256))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		if depth < 8 {
			v.Set(reflect.New(v.Type().Elem()))
			full(v.Elem(), n, depth+1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		full(v.Index(0), n, depth+1)
		full(v.Index(1), n, depth+1)
	case reflect.Map:
		k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		full(k, n, depth+1)
		full(e, n, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(k, e)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("json") == "-" {
				continue
			}
			full(v.Field(i), n, depth+1)
		}
	}
}

// fullOf is a value of any type that is full.
func fullOf[T any]() T {
	var v T
	n := 0
	full(reflect.ValueOf(&v).Elem(), &n, 0)
	return v
}

type session struct{ f *fake }

type (
	ctx = context.Context
	reg = muster.Registration
	rec = muster.BootRecord
	img = muster.Image
)

func (s session) Registrations(_ ctx, f muster.RegistrationFilter) ([]reg, error) {
	return answer[[]reg](s.f, "Registrations", f)
}
func (s session) Registration(_ ctx, u string) (reg, error) {
	return answer[reg](s.f, "Registration", u)
}
func (s session) ApproveCode(_ ctx, c string) (reg, error) { return answer[reg](s.f, "ApproveCode", c) }
func (s session) IssueTicket(_ ctx, u string, r muster.TicketRequest) (muster.Ticket, error) {
	return answer[muster.Ticket](s.f, "IssueTicket", u, r)
}
func (s session) PlanSetup(_ ctx, u string, r muster.SetupRequest) (muster.SetupPlan, error) {
	return answer[muster.SetupPlan](s.f, "PlanSetup", u, r)
}
func (s session) ApproveSetup(_ ctx, u string, a muster.SetupApproval) (muster.SetupGrant, error) {
	return answer[muster.SetupGrant](s.f, "ApproveSetup", u, a)
}
func (s session) RaiseRegistration(_ ctx, u string, e muster.Event) (reg, error) {
	return answer[reg](s.f, "RaiseRegistration", u, e)
}
func (s session) DeleteRegistration(_ ctx, u string) error { return s.f.note("DeleteRegistration", u) }
func (s session) BootRecords(_ ctx, f muster.BootFilter) ([]rec, error) {
	return answer[[]rec](s.f, "BootRecords", f)
}
func (s session) BootRecord(_ ctx, m string) (rec, error) { return answer[rec](s.f, "BootRecord", m) }
func (s session) ExplainBoot(_ ctx, m string) (muster.BootExplanation, error) {
	return answer[muster.BootExplanation](s.f, "ExplainBoot", m)
}
func (s session) ReportTraces(_ ctx, b string, x []muster.BootTrace) error {
	return s.f.note("ReportTraces", b, x)
}
func (s session) SetBootRecord(_ ctx, m string, c muster.BootChange) (rec, error) {
	return answer[rec](s.f, "SetBootRecord", m, c)
}
func (s session) RaiseBootRecord(_ ctx, m string, e muster.Event) (rec, error) {
	return answer[rec](s.f, "RaiseBootRecord", m, e)
}
func (s session) BootPolicy(ctx) (muster.BootPolicy, error) {
	return answer[muster.BootPolicy](s.f, "BootPolicy")
}
func (s session) SetBootPolicy(_ ctx, p muster.BootPolicy) (muster.BootPolicy, error) {
	return answer[muster.BootPolicy](s.f, "SetBootPolicy", p)
}
func (s session) Nodes(ctx) ([]muster.Node, error)   { return answer[[]muster.Node](s.f, "Nodes") }
func (s session) Images(ctx) ([]img, error)          { return answer[[]img](s.f, "Images") }
func (s session) Image(_ ctx, r string) (img, error) { return answer[img](s.f, "Image", r) }
func (s session) HasBlob(_ ctx, d string) (bool, error) {
	if err := s.f.note("HasBlob", d); err != nil {
		if muster.IsCode(err, muster.CodeNotFound) {
			return false, nil
		}
		return false, err
	}
	return true, nil
}
func (s session) PutBlob(_ ctx, d string, size int64, r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return s.f.note("PutBlob", d, size, string(b))
}
func (s session) AddImage(_ ctx, i img) (img, error) { return answer[img](s.f, "AddImage", i) }
func (s session) RemoveImage(_ ctx, n string) error  { return s.f.note("RemoveImage", n) }
func (s session) Keys(ctx) ([]muster.APIKey, error)  { return answer[[]muster.APIKey](s.f, "Keys") }
func (s session) CreateKey(_ ctx, n muster.NewKey) (muster.CreatedKey, error) {
	return answer[muster.CreatedKey](s.f, "CreateKey", n)
}
func (s session) RevokeKey(_ ctx, id string) error { return s.f.note("RevokeKey", id) }
func (s session) Audit(c ctx, f muster.AuditFilter) ([]muster.AuditEntry, error) {
	if f.Subject == "never" { // a poll that only its context ends
		<-c.Done()
		return nil, c.Err()
	}
	return answer[[]muster.AuditEntry](s.f, "Audit", f)
}
func (s session) VerifyAudit(ctx) (muster.AuditVerdict, error) {
	return answer[muster.AuditVerdict](s.f, "VerifyAudit")
}
func (s session) Booters(ctx) ([]muster.BooterStatus, error) {
	return answer[[]muster.BooterStatus](s.f, "Booters")
}
func (s session) RemoveBooter(_ ctx, n string) error  { return s.f.note("RemoveBooter", n) }
func (s session) Version(ctx) (muster.Version, error) { return answer[muster.Version](s.f, "Version") }
func (s session) Feed(_ ctx, b string, after int64, wait time.Duration) (muster.BooterFeed, error) {
	return answer[muster.BooterFeed](s.f, "Feed", b, after, wait)
}
func (s session) Sight(_ ctx, b string, x []muster.Sighting) ([]rec, error) {
	return answer[[]rec](s.f, "Sight", b, x)
}
func (s session) ReportBooter(_ ctx, x muster.BooterStatus) error { return s.f.note("ReportBooter", x) }
func (s session) ImageByDigest(_ ctx, d string) (img, error) {
	return answer[img](s.f, "ImageByDigest", d)
}
func (s session) Blob(_ ctx, d string) (io.ReadCloser, error) {
	if err := s.f.note("Blob", d); err != nil {
		return nil, err
	}
	return seekable{bytes.NewReader([]byte(blobText))}, nil
}
func (s session) Announce(_ ctx, a muster.Announcement) (muster.Announced, error) {
	return answer[muster.Announced](s.f, "Announce", a)
}
func (s session) Survey(_ ctx, u string, x muster.Survey) error { return s.f.note("Survey", u, x) }
func (s session) SessionChanged(_ ctx, u string, x muster.SessionChange) error {
	return s.f.note("SessionChanged", u, x)
}
func (s session) TakeBundle(_ ctx, u string, r muster.TakeRequest) (muster.TakenBundle, error) {
	return answer[muster.TakenBundle](s.f, "TakeBundle", u, r)
}
func (s session) SetupComplete(_ ctx, u string, o muster.SetupOutcome) error {
	return s.f.note("SetupComplete", u, o)
}
func (s session) SetupFailed(_ ctx, u string, o muster.SetupOutcome) error {
	return s.f.note("SetupFailed", u, o)
}
func (s session) Register(_ ctx, r muster.RegisterRequest) (muster.RegisterReply, error) {
	return answer[muster.RegisterReply](s.f, "Register", r)
}
func (s session) RegisterStatus(_ ctx, t string, wait time.Duration) (muster.RegisterStatus, error) {
	return answer[muster.RegisterStatus](s.f, "RegisterStatus", t, wait)
}
func (s session) Refresh(_ ctx, r muster.RefreshRequest) (reg, error) {
	return answer[reg](s.f, "Refresh", r)
}
func (s session) Heartbeat(_ ctx, h muster.Heartbeat) (muster.HeartbeatReply, error) {
	return answer[muster.HeartbeatReply](s.f, "Heartbeat", h)
}
func (s session) Login(_ ctx, l muster.Login) (muster.Token, error) {
	return answer[muster.Token](s.f, "Login", l)
}
func (s session) Operators(ctx) ([]muster.Operator, error) {
	return answer[[]muster.Operator](s.f, "Operators")
}
func (s session) CreateOperator(_ ctx, n muster.NewOperator) (muster.Operator, error) {
	return answer[muster.Operator](s.f, "CreateOperator", n)
}

func (s session) Window(_ ctx, k muster.WindowKind) (muster.Window, error) {
	return answer[muster.Window](s.f, "Window", k)
}
func (s session) OpenWindow(_ ctx, k muster.WindowKind, n muster.NewWindow) (muster.Window, error) {
	return answer[muster.Window](s.f, "OpenWindow", k, n)
}
func (s session) CloseWindow(_ ctx, k muster.WindowKind) error { return s.f.note("CloseWindow", k) }
func (s session) EnrolmentTokens(ctx) ([]muster.EnrolmentToken, error) {
	return answer[[]muster.EnrolmentToken](s.f, "EnrolmentTokens")
}
func (s session) IssueEnrolmentToken(_ ctx, n muster.NewEnrolmentToken) (muster.IssuedEnrolmentToken, error) {
	return answer[muster.IssuedEnrolmentToken](s.f, "IssueEnrolmentToken", n)
}
func (s session) RevokeEnrolmentToken(_ ctx, id string) error {
	return s.f.note("RevokeEnrolmentToken", id)
}
func (s session) Enrol(_ ctx, r muster.EnrolRequest) (muster.EnrolReply, error) {
	return answer[muster.EnrolReply](s.f, "Enrol", r)
}

type seekable struct{ *bytes.Reader }

func (seekable) Close() error { return nil }

func (f *fake) Trusted(c ctx, _ api.Proof, _ string) error {
	<-c.Done()
	return nil
}
func (s session) Node(_ ctx, id string) (muster.NodeDetail, error) {
	return answer[muster.NodeDetail](s.f, "Node", id)
}
func (s session) RaiseNode(_ ctx, id string, e muster.Event) (muster.Node, error) {
	return answer[muster.Node](s.f, "RaiseNode", id, e)
}
func (s session) ExpungeNode(_ ctx, id string, x muster.Expunge) (muster.NodeDetail, error) {
	return answer[muster.NodeDetail](s.f, "ExpungeNode", id, x)
}
func (s session) AcknowledgeForeign(_ ctx, id string) (muster.NodeDetail, error) {
	return answer[muster.NodeDetail](s.f, "AcknowledgeForeign", id)
}
func (s session) RaiseDisk(_ ctx, id string, e muster.Event) (muster.NodeDisk, error) {
	return answer[muster.NodeDisk](s.f, "RaiseDisk", id, e)
}
func (s session) ExpungeDisk(_ ctx, id string, x muster.Expunge) (muster.NodeDisk, error) {
	return answer[muster.NodeDisk](s.f, "ExpungeDisk", id, x)
}
func (s session) SetRootPassword(_ ctx, u string, p muster.RootPassword) (muster.RootPasswordSet, error) {
	return answer[muster.RootPasswordSet](s.f, "SetRootPassword", u, p)
}
func (s session) ClearRootPassword(_ ctx, u string) error { return s.f.note("ClearRootPassword", u) }
func (s session) TakeRootPassword(_ ctx, m string, q muster.BootSecretRequest) (muster.BootSecret, error) {
	return answer[muster.BootSecret](s.f, "TakeRootPassword", m, q)
}
func (s session) RotateKey(_ ctx, id string, r muster.KeyRotation) (muster.CreatedKey, error) {
	return answer[muster.CreatedKey](s.f, "RotateKey", id, r)
}
func (s session) ChangeOperator(_ ctx, n string, c muster.OperatorChange) (muster.Operator, error) {
	return answer[muster.Operator](s.f, "ChangeOperator", n, c)
}
func (s session) RemoveOperator(_ ctx, n string) error { return s.f.note("RemoveOperator", n) }
func (s session) ChangePassword(_ ctx, c muster.PasswordChange) error {
	return s.f.note("ChangePassword", c)
}
func (s session) Declare(_ ctx, id string, d resource.Declaration) (muster.NodeDeclaration, error) {
	return answer[muster.NodeDeclaration](s.f, "Declare", id, d)
}
func (s session) Declaration(_ ctx, id string) (muster.NodeDeclaration, error) {
	return answer[muster.NodeDeclaration](s.f, "Declaration", id)
}
func (s session) ResolveConflict(_ ctx, id string, r muster.ConflictResolution) (muster.NodeDeclaration, error) {
	return answer[muster.NodeDeclaration](s.f, "ResolveConflict", id, r)
}
func (s session) NodeBriefing(_ ctx, id string) (resource.Briefing, error) {
	return answer[resource.Briefing](s.f, "NodeBriefing", id)
}
func (s session) OrderNode(_ ctx, id string, v muster.OrderKind) (muster.NodeOrder, error) {
	return answer[muster.NodeOrder](s.f, "OrderNode", id, v)
}
func (s session) LinkKey(ctx) (muster.LinkKey, error) {
	return answer[muster.LinkKey](s.f, "LinkKey")
}
func (s session) AddProvider(_ ctx, n muster.NewProvider) (muster.Provider, error) {
	return answer[muster.Provider](s.f, "AddProvider", n)
}
func (s session) Providers(ctx) ([]muster.Provider, error) {
	return answer[[]muster.Provider](s.f, "Providers")
}
func (s session) RemoveProvider(_ ctx, name string) error { return s.f.note("RemoveProvider", name) }
func (s session) GrantNode(_ ctx, id string, n muster.NewGrant) (muster.Grant, error) {
	return answer[muster.Grant](s.f, "GrantNode", id, n)
}
func (s session) Claims(_ ctx, f muster.ClaimFilter) ([]muster.Claim, error) {
	return answer[[]muster.Claim](s.f, "Claims", f)
}
func (s session) Claim(_ ctx, id string, w muster.ClaimWait) (muster.Claim, error) {
	return answer[muster.Claim](s.f, "Claim", id, w)
}
func (s session) AddClaim(_ ctx, n muster.NewClaim) (muster.Claim, error) {
	return answer[muster.Claim](s.f, "AddClaim", n)
}
func (s session) RenewClaim(_ ctx, id string, r muster.ClaimRenewal) (muster.Claim, error) {
	return answer[muster.Claim](s.f, "RenewClaim", id, r)
}
func (s session) ReleaseClaim(_ ctx, id string) (muster.Claim, error) {
	return answer[muster.Claim](s.f, "ReleaseClaim", id)
}
func (s session) BreakClaim(_ ctx, id string, b muster.ClaimBreak) (muster.Claim, error) {
	return answer[muster.Claim](s.f, "BreakClaim", id, b)
}
func (s session) NodeGrants(_ ctx, id string) ([]muster.Grant, error) {
	return answer[[]muster.Grant](s.f, "NodeGrants", id)
}
func (s session) RevokeGrant(_ ctx, id, provider string) (muster.Grant, error) {
	return answer[muster.Grant](s.f, "RevokeGrant", id, provider)
}
func (s session) NodeReport(_ ctx, id string) (muster.NodeReport, error) {
	return answer[muster.NodeReport](s.f, "NodeReport", id)
}
func (s session) NodeOwned(_ ctx, id string) (muster.NodeOwned, error) {
	return answer[muster.NodeOwned](s.f, "NodeOwned", id)
}
func (s session) NodeProfile(_ ctx, id string) (muster.NodeProfile, error) {
	return answer[muster.NodeProfile](s.f, "NodeProfile", id)
}
func (s session) NodeHealth(_ ctx, id string) (muster.NodeHealth, error) {
	return answer[muster.NodeHealth](s.f, "NodeHealth", id)
}
func (s session) LinkCertificate(_ ctx, r muster.CertificateRequest) (muster.Certificate, error) {
	return answer[muster.Certificate](s.f, "LinkCertificate", r)
}
func (s session) LinkNext(_ ctx, p muster.LinkPoll) (muster.LinkAnswer, error) {
	return answer[muster.LinkAnswer](s.f, "LinkNext", p)
}
func (s session) LinkReport(_ ctx, r resource.Report) error { return s.f.note("LinkReport", r) }
func (s session) LinkProfile(_ ctx, p muster.Profile) error { return s.f.note("LinkProfile", p) }
func (s session) SetLinkOwned(_ ctx, o []resource.Owned) error {
	return s.f.note("SetLinkOwned", o)
}
func (s session) SetLinkHealth(_ ctx, all []muster.PlacementHealth) error {
	return s.f.note("SetLinkHealth", all)
}
func (s session) LinkOwned(ctx) ([]resource.Owned, error) {
	return answer[[]resource.Owned](s.f, "LinkOwned")
}
func (s session) LabelNode(_ ctx, id string, c muster.LabelChange) (muster.Node, error) {
	return answer[muster.Node](s.f, "LabelNode", id, c)
}
func (s session) LabelDisk(_ ctx, id string, c muster.LabelChange) (muster.NodeDisk, error) {
	return answer[muster.NodeDisk](s.f, "LabelDisk", id, c)
}
func (s session) SetReservoir(_ ctx, id string, r module.Capacity) (muster.Node, error) {
	return answer[muster.Node](s.f, "SetReservoir", id, r)
}
func (s session) NoteNode(_ ctx, id string, n muster.Note) (muster.Node, error) {
	return answer[muster.Node](s.f, "NoteNode", id, n)
}
func (s session) NoteMachine(_ ctx, id string, n muster.Note) (muster.Machine, error) {
	return answer[muster.Machine](s.f, "NoteMachine", id, n)
}
func (s session) Disks(ctx) ([]muster.NodeDisk, error) {
	return answer[[]muster.NodeDisk](s.f, "Disks")
}
func (s session) LinkHardware(_ ctx, h muster.Hardware) error { return s.f.note("LinkHardware", h) }
func (s session) NodeInventory(_ ctx, id string, n int64) (muster.Collection, error) {
	return answer[muster.Collection](s.f, "NodeInventory", id, n)
}
func (s session) NodeInventories(_ ctx, id string) ([]muster.Collection, error) {
	return answer[[]muster.Collection](s.f, "NodeInventories", id)
}
func (s session) DiffInventory(_ ctx, id string, from, to int64) (muster.HardwareDiff, error) {
	return answer[muster.HardwareDiff](s.f, "DiffInventory", id, from, to)
}
func (s session) UnadoptedMachines(ctx) ([]muster.UnadoptedMachine, error) {
	return answer[[]muster.UnadoptedMachine](s.f, "UnadoptedMachines")
}
func (s session) UnadoptedDisks(ctx) ([]muster.UnadoptedDisk, error) {
	return answer[[]muster.UnadoptedDisk](s.f, "UnadoptedDisks")
}
func (s session) AdoptDisk(_ ctx, id string, a muster.AdoptDisk) (muster.AdoptedDisk, error) {
	return answer[muster.AdoptedDisk](s.f, "AdoptDisk", id, a)
}
func (s session) FirmwareMinimums(ctx) ([]muster.FirmwareMinimum, error) {
	return answer[[]muster.FirmwareMinimum](s.f, "FirmwareMinimums")
}
func (s session) SetFirmwareMinimum(_ ctx, m muster.FirmwareMinimum) (muster.FirmwareMinimum, error) {
	return answer[muster.FirmwareMinimum](s.f, "SetFirmwareMinimum", m)
}
func (s session) RemoveFirmwareMinimum(_ ctx, vendor, part string) error {
	return s.f.note("RemoveFirmwareMinimum", vendor, part)
}
