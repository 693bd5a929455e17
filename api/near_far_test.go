package api_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster.internal"
	"muster.internal/api"
	"muster.internal/client"
	"muster.internal/module"
	"muster.internal/resource"
)

var update = flag.Bool("update", false, "rewrite golden files")

// serve runs an API on a fake service and gives a client to it.
func serve(t *testing.T, f *fake) (*httptest.Server, *client.Client, *api.API) {
	t.Helper()
	a := api.New(f, api.Options{Version: "test"})
	srv := httptest.NewUnstartedServer(a)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	t.Cleanup(a.Drain)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	c, err := client.New(srv.URL, "", client.Trust{CA: ca})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return srv, c, a
}

// everything is what all faces of muster offer together.
type everything interface {
	muster.Fleet
	muster.ForBooter
	muster.ForHost
	muster.ForLink
	muster.Accounts
}

// A question is one method asked with full arguments, and the token whose
// reach covers it.
type question struct {
	name, token string
	ask         func(ctx context.Context, e everything) (any, error)
}

func q0[T any](name, token string, f func(e everything, c context.Context) (T, error)) question {
	return question{name, token, func(c context.Context, e everything) (any, error) { return f(e, c) }}
}

func q1[A, T any](name, token string, f func(e everything, c context.Context, a A) (T, error)) question {
	return q0(name, token, func(e everything, c context.Context) (T, error) { return f(e, c, fullOf[A]()) })
}

func q2[A, B, T any](name, token string, f func(e everything, c context.Context, a A, b B) (T, error)) question {
	return q0(name, token, func(e everything, c context.Context) (T, error) { return f(e, c, fullOf[A](), fullOf[B]()) })
}

func none[A any](f func(e everything, c context.Context, a A) error) func(e everything, c context.Context, a A) (any, error) {
	return func(e everything, c context.Context, a A) (any, error) { return nil, f(e, c, a) }
}

func none2[A, B any](f func(e everything, c context.Context, a A, b B) error) func(e everything, c context.Context, a A, b B) (any, error) {
	return func(e everything, c context.Context, a A, b B) (any, error) { return nil, f(e, c, a, b) }
}

const someDigest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

var questions = []question{
	q0("Registrations", "viewer", func(e everything, c context.Context) ([]muster.Registration, error) {
		return e.Registrations(c, muster.RegistrationFilter{State: muster.SettingUp, After: "u", Limit: 5})
	}),
	q0("Registrations bare", "viewer", func(e everything, c context.Context) ([]muster.Registration, error) {
		return e.Registrations(c, muster.RegistrationFilter{})
	}),
	q1("Registration", "viewer", everything.Registration),
	q0("Registration absent", "viewer", func(e everything, c context.Context) (muster.Registration, error) {
		return e.Registration(c, "absent/../?x=%2f#ü")
	}),
	q1("ApproveCode", "admin", everything.ApproveCode),
	q2("PlanSetup", "viewer", everything.PlanSetup),
	q2("ApproveSetup", "admin", everything.ApproveSetup),
	q2("IssueTicket", "admin", everything.IssueTicket),
	q0("RaiseRegistration", "admin", func(e everything, c context.Context) (muster.Registration, error) {
		return e.RaiseRegistration(c, "u", "cancel_setup")
	}),
	q1("DeleteRegistration", "admin", none(everything.DeleteRegistration)),
	q0("BootRecords", "viewer", func(e everything, c context.Context) ([]muster.BootRecord, error) {
		return e.BootRecords(c, muster.BootFilter{State: muster.Enrolled, After: "m", Limit: 7})
	}),
	q0("BootRecord", "viewer", func(e everything, c context.Context) (muster.BootRecord, error) {
		return e.BootRecord(c, "52:54:00:00:00:01")
	}),
	q1("ExplainBoot", "viewer", everything.ExplainBoot),
	q2("ReportTraces", "key-booter", none2(everything.ReportTraces)),
	q2("SetBootRecord", "admin", everything.SetBootRecord),
	q2("RaiseBootRecord", "admin", func(e everything, c context.Context, m string, _ struct{}) (muster.BootRecord, error) {
		return e.RaiseBootRecord(c, m, "decommission")
	}),
	q0("BootPolicy", "viewer", everything.BootPolicy),
	q1("SetBootPolicy", "admin", everything.SetBootPolicy),
	q0("SetBootPolicy empty", "admin", func(e everything, c context.Context) (muster.BootPolicy, error) {
		return e.SetBootPolicy(c, muster.BootPolicy{})
	}),
	q0("Nodes", "viewer", everything.Nodes),
	q0("Images", "viewer", everything.Images),
	q1("Image", "viewer", everything.Image),
	q0("ImageByDigest", "key-booter", func(e everything, c context.Context) (muster.Image, error) {
		return e.ImageByDigest(c, someDigest)
	}),
	q1("HasBlob", "admin", everything.HasBlob),
	q0("HasBlob absent", "admin", func(e everything, c context.Context) (bool, error) { return e.HasBlob(c, "absent") }),
	q0("PutBlob", "admin", func(e everything, c context.Context) (any, error) {
		return nil, e.PutBlob(c, someDigest, int64(len(blobText)), strings.NewReader(blobText))
	}),
	q0("Blob", "key-booter", func(e everything, c context.Context) (string, error) {
		r, err := e.Blob(c, someDigest)
		if err != nil {
			return "", err
		}
		b, err := io.ReadAll(r)
		return string(b), errors.Join(err, r.Close())
	}),
	q1("AddImage", "admin", everything.AddImage),
	q1("RemoveImage", "admin", none(everything.RemoveImage)),
	q0("Keys", "viewer", everything.Keys),
	q1("CreateKey", "admin", everything.CreateKey),
	q1("RevokeKey", "admin", none(everything.RevokeKey)),
	q0("Audit", "key-audit_only", func(e everything, c context.Context) ([]muster.AuditEntry, error) {
		return e.Audit(c, muster.AuditFilter{After: 3, Subject: "registration/u", Limit: 9, Wait: 2 * time.Second})
	}),
	q0("VerifyAudit", "key-audit_only", everything.VerifyAudit),
	q0("Booters", "viewer", everything.Booters),
	q1("RemoveBooter", "admin", none(everything.RemoveBooter)),
	q0("Machines", "viewer", func(e everything, c context.Context) ([]muster.Machine, error) {
		return e.Machines(c, muster.MachineFilter{State: muster.MachineConflict, After: "a", Limit: 9})
	}),
	q1("Machine", "viewer", everything.Machine),
	q1("RaiseMachine", "admin", func(e everything, c context.Context, id string) (muster.Machine, error) {
		return e.RaiseMachine(c, id, "move_nic")
	}),
	q0("SharedIdentities", "viewer", everything.SharedIdentities),
	q1("AddSharedIdentity", "admin", everything.AddSharedIdentity),
	q0("RemoveSharedIdentity", "admin", func(e everything, c context.Context) (any, error) {
		return nil, e.RemoveSharedIdentity(c, muster.SharedMAC, "00:50:b6")
	}),
	q0("NetworkUsage", "viewer", everything.NetworkUsage),
	q0("NoiseLimits", "viewer", everything.NoiseLimits),
	q0("Version", "", everything.Version),
	q0("Feed", "key-booter", func(e everything, c context.Context) (muster.BooterFeed, error) {
		return e.Feed(c, "b1", 42, time.Second)
	}),
	q2("Sight", "key-booter", everything.Sight),
	q0("Sight none", "key-booter", func(e everything, c context.Context) ([]muster.BootRecord, error) { return e.Sight(c, "b1", nil) }),
	q1("ReportBooter", "key-booter", none(everything.ReportBooter)),
	q0("ReportBooter bare", "key-booter", func(e everything, c context.Context) (any, error) {
		return nil, e.ReportBooter(c, muster.BooterStatus{Booter: "b1"})
	}),
	q1("Announce", "key-ur_enroll", everything.Announce),
	q2("Survey", "key-ur_enroll", none2(everything.Survey)),
	q2("SessionChanged", "key-ur_enroll", none2(everything.SessionChanged)),
	q2("TakeBundle", "key-booter", everything.TakeBundle),
	q2("SetupComplete", "key-booter", none2(everything.SetupComplete)),
	q2("SetupFailed", "key-booter", none2(everything.SetupFailed)),
	q1("Register", "", everything.Register),
	q0("RegisterStatus", "", func(e everything, c context.Context) (muster.RegisterStatus, error) {
		return e.RegisterStatus(c, "0123456789abcdef0123456789abcdef", 3*time.Second)
	}),
	q0("Window", "viewer", func(e everything, c context.Context) (muster.Window, error) {
		return e.Window(c, muster.EnrollmentWindow)
	}),
	q0("Window auto-approve", "viewer", func(e everything, c context.Context) (muster.Window, error) {
		return e.Window(c, muster.AutoApproveWindow)
	}),
	q1("OpenWindow", "admin", func(e everything, c context.Context, n muster.NewWindow) (muster.Window, error) {
		return e.OpenWindow(c, muster.AutoApproveWindow, n)
	}),
	q0("OpenWindow enrollment", "admin", func(e everything, c context.Context) (muster.Window, error) {
		return e.OpenWindow(c, muster.EnrollmentWindow, muster.NewWindow{Duration: 5})
	}),
	q0("CloseWindow", "admin", func(e everything, c context.Context) (any, error) {
		return nil, e.CloseWindow(c, muster.AutoApproveWindow)
	}),
	q0("CloseWindow enrollment", "admin", func(e everything, c context.Context) (any, error) {
		return nil, e.CloseWindow(c, muster.EnrollmentWindow)
	}),
	q0("EnrolmentTokens", "viewer", everything.EnrolmentTokens),
	q1("IssueEnrolmentToken", "admin", everything.IssueEnrolmentToken),
	q1("RevokeEnrolmentToken", "admin", none(everything.RevokeEnrolmentToken)),
	q1("Enrol", "", everything.Enrol),
	q1("Refresh", "key-agent", everything.Refresh),
	q1("Heartbeat", "key-agent", everything.Heartbeat),
	q1("Login", "", everything.Login),
	q0("Operators", "admin", everything.Operators),
	q1("CreateOperator", "admin", everything.CreateOperator),
	q1("Node", "viewer", everything.Node),
	q2("Declare", "key-full", everything.Declare),
	q1("Declaration", "viewer", everything.Declaration),
	q2("ResolveConflict", "key-full", everything.ResolveConflict),
	q1("NodeBriefing", "viewer", everything.NodeBriefing),
	q1("AddProvider", "admin", everything.AddProvider),
	q0("Providers", "viewer", everything.Providers),
	q1("RemoveProvider", "admin", none(everything.RemoveProvider)),
	q2("GrantNode", "key-full", everything.GrantNode),
	q1("Claims", "viewer", everything.Claims),
	q0("Claim", "viewer", func(e everything, c context.Context) (muster.Claim, error) {
		return e.Claim(c, "c", muster.ClaimWait{Unless: muster.ClaimHeld, Wait: 7e9})
	}),
	q1("AddClaim", "key-full", everything.AddClaim),
	q2("RenewClaim", "key-full", everything.RenewClaim),
	q1("ReleaseClaim", "key-full", everything.ReleaseClaim),
	q2("BreakClaim", "admin", everything.BreakClaim),
	q1("NodeGrants", "viewer", everything.NodeGrants),
	q0("RevokeGrant", "key-full", func(e everything, c context.Context) (muster.Grant, error) { return e.RevokeGrant(c, "n", "db") }),
	q1("NodeReport", "viewer", everything.NodeReport),
	q0("OrderNode", "key-full", func(e everything, c context.Context) (muster.NodeOrder, error) {
		return e.OrderNode(c, "n", muster.OrderRekey)
	}),
	q1("NodeOwned", "viewer", everything.NodeOwned),
	q1("NodeProfile", "viewer", everything.NodeProfile),
	q1("NodeHealth", "viewer", everything.NodeHealth),
	q1("LinkCertificate", "key-agent", everything.LinkCertificate),
	q1("LinkNext", "node", everything.LinkNext),
	q1("LinkReport", "node", none(everything.LinkReport)),
	q1("LinkProfile", "node", none(everything.LinkProfile)),
	q1("SetLinkOwned", "node", none(everything.SetLinkOwned)),
	q1("SetLinkHealth", "node", none(everything.SetLinkHealth)),
	q0("LinkOwned", "node", everything.LinkOwned),
	q0("LinkKey", "node", everything.LinkKey),
	q0("RaiseNode", "key-full", func(e everything, c context.Context) (muster.Node, error) {
		return e.RaiseNode(c, "n", "graceful_remove")
	}),
	q2("ExpungeNode", "admin", everything.ExpungeNode),
	q1("AcknowledgeForeign", "admin", everything.AcknowledgeForeign),
	q0("RaiseDisk", "admin", func(e everything, c context.Context) (muster.NodeDisk, error) {
		return e.RaiseDisk(c, "d", "remove_disk")
	}),
	q0("RaiseDisk keep", "admin", func(e everything, c context.Context) (muster.NodeDisk, error) {
		return e.RaiseDisk(c, "d", "keep_disk")
	}),
	q2("ExpungeDisk", "admin", everything.ExpungeDisk),
	q0("Readmit", "admin", func(e everything, c context.Context) (muster.Registration, error) {
		return e.RaiseRegistration(c, "u", "readmit")
	}),
	q2("SetRootPassword", "admin", everything.SetRootPassword),
	q1("ClearRootPassword", "admin", none(everything.ClearRootPassword)),
	q2("TakeRootPassword", "key-booter", everything.TakeRootPassword),
	q2("RotateKey", "admin", everything.RotateKey),
	q2("ChangeOperator", "admin", everything.ChangeOperator),
	q1("RemoveOperator", "admin", none(everything.RemoveOperator)),
	q0("AddModule", "key-full", func(e everything, c context.Context) (muster.ModuleVersion, error) {
		m := fullOf[module.Module]()
		return e.AddModule(c, muster.NewModule{Module: m, Unwanted: true})
	}),
	q0("AddModule small", "admin", func(e everything, c context.Context) (muster.ModuleVersion, error) {
		return e.AddModule(c, muster.NewModule{Module: module.Module{Name: "m", Place: module.Rule{EachNode: true}, Resources: []resource.Resource{}}})
	}),
	q0("Modules", "viewer", everything.Modules),
	q1("Module", "viewer", everything.Module),
	q2("WantModule", "admin", everything.WantModule),
	q1("RemoveModule", "admin", none(everything.RemoveModule)),
	q0("Blueprints", "viewer", func(e everything, c context.Context) ([]muster.BlueprintEntry, error) { return e.Blueprints(c, 7, 5) }),
	q0("Blueprints bare", "viewer", func(e everything, c context.Context) ([]muster.BlueprintEntry, error) { return e.Blueprints(c, 0, 0) }),
	q1("Blueprint", "viewer", everything.Blueprint),
	q2("BlueprintDiff", "viewer", everything.BlueprintDiff),
	q0("BlueprintDiff bare", "viewer", func(e everything, c context.Context) (muster.BlueprintDiff, error) {
		return e.BlueprintDiff(c, "", "target")
	}),
	q0("Target", "viewer", everything.Target),
	q1("SetTarget", "admin", everything.SetTarget),
	q1("SetPlanning", "admin", everything.SetPlanning),
	q1("PruneBlueprints", "admin", everything.PruneBlueprints),
	q0("Placements", "viewer", func(e everything, c context.Context) ([]muster.PlacementRecord, error) {
		return e.Placements(c, muster.PlacementFilter{Node: "n", Module: "m", State: muster.PlacementAny, After: "a", Limit: 9})
	}),
	q1("Placement", "viewer", everything.Placement),
	q1("HandOver", "admin", everything.HandOver),
	q1("LinkHardware", "node", none(everything.LinkHardware)),
	q0("NodeInventory", "viewer", func(e everything, c context.Context) (muster.Collection, error) { return e.NodeInventory(c, "n", 4) }),
	q1("NodeInventories", "viewer", everything.NodeInventories),
	q0("DiffInventory", "viewer", func(e everything, c context.Context) (muster.HardwareDiff, error) {
		return e.DiffInventory(c, "n", 3, 4)
	}),
	q0("UnadoptedMachines", "viewer", everything.UnadoptedMachines),
	q0("UnadoptedDisks", "viewer", everything.UnadoptedDisks),
	q2("AdoptDisk", "key-full", everything.AdoptDisk),
	q0("FirmwareMinimums", "viewer", everything.FirmwareMinimums),
	q1("SetFirmwareMinimum", "key-full", everything.SetFirmwareMinimum),
	q0("RemoveFirmwareMinimum", "key-full", func(e everything, c context.Context) (any, error) {
		return nil, e.RemoveFirmwareMinimum(c, "a vendor", "a/part")
	}),
	q0("Plan", "viewer", func(e everything, c context.Context) (muster.DryPlan, error) { return e.Plan(c, muster.WhatIf{}) }),
	q1("Plan what if", "viewer", everything.Plan),
	q2("Explain", "viewer", everything.Explain),
	q2("LabelNode", "key-full", everything.LabelNode),
	q2("LabelDisk", "key-full", everything.LabelDisk),
	q2("SetReservoir", "key-full", everything.SetReservoir),
	q2("NoteNode", "key-full", everything.NoteNode),
	q2("NoteMachine", "key-full", everything.NoteMachine),
	q0("Disks", "viewer", everything.Disks),
	q1("ChangePassword", "viewer", none(everything.ChangePassword)),
}

// TestNearAndFar asks every question of the service itself and of a client far
// away: same answers, same errors, same calls.
func TestNearAndFar(t *testing.T) {
	f := new(fake)
	_, far, _ := serve(t, f)
	for _, q := range questions {
		t.Run(q.name, func(t *testing.T) {
			nearly, nearErr := q.ask(t.Context(), session{f})
			nearCalls := f.asked()
			farly, farErr := q.ask(t.Context(), far.WithToken(q.token))
			farCalls := f.asked()
			if diff := cmp.Diff(nearCalls, farCalls); diff != "" {
				t.Errorf("the service was asked something else from afar (-near +far):\n%s", diff)
			}
			if diff := cmp.Diff(nearly, farly); diff != "" {
				t.Errorf("answers differ (-near +far):\n%s", diff)
			}
			if diff := cmp.Diff(problemIn(nearErr), problemIn(farErr)); diff != "" || (nearErr == nil) != (farErr == nil) {
				t.Errorf("near error %v, far error %v\n%s", nearErr, farErr, diff)
			}
		})
	}
}

// TestProblemsTravelWhole sends every kind of problem through every method.
func TestProblemsTravelWhole(t *testing.T) {
	conflict := muster.Problemf(muster.CodeConflict, "registration u is setting_up")
	conflict.State, conflict.Allowed = "setting_up", []string{"disable"}
	later := muster.Problemf(muster.CodeTooMany, "too many guesses")
	later.RetryAfter = 9
	invalid := muster.Invalid("hostname", "is not a host name")
	f := new(fake)
	_, far, _ := serve(t, f)
	for _, p := range []*muster.Problem{conflict, later, invalid, muster.Problemf(muster.CodeForbidden, "no")} {
		f.fail = p
		for _, q := range questions {
			_, err := q.ask(t.Context(), far.WithToken(q.token))
			want := p
			if strings.HasPrefix(q.name, "HasBlob") { // HEAD has no body
				want = nil
				if err == nil || problemIn(err).Status != p.Status {
					t.Errorf("%s: %v, want status %d", q.name, err, p.Status)
				}
			}
			if want != nil && !reflect.DeepEqual(problemIn(err), want) {
				t.Errorf("%s: got %#v, want %#v", q.name, problemIn(err), want)
			}
		}
	}
}

func problemIn(err error) *muster.Problem {
	var p *muster.Problem
	errors.As(err, &p)
	return p
}

// TestClientCallsOperations demands that client and document agree: every call
// is an operation, and every operation that is meant for programs is called.
func TestClientCallsOperations(t *testing.T) {
	f := new(fake)
	srv, far, _ := serve(t, f)
	spec := documented(t)
	mux := http.NewServeMux()
	for _, o := range spec {
		mux.HandleFunc(o, func(http.ResponseWriter, *http.Request) {})
	}
	called := map[string]bool{}
	inner := srv.Config.Handler
	srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pattern := mux.Handler(r)
		if pattern == "" {
			t.Errorf("the client calls %s %s, which is no operation", r.Method, r.URL.Path)
		}
		called[pattern] = true
		inner.ServeHTTP(w, r)
	})
	for _, q := range questions {
		if _, err := q.ask(t.Context(), far.WithToken(q.token)); err != nil && !strings.Contains(q.name, "absent") {
			t.Errorf("%s: %v", q.name, err)
		}
	}
	for _, o := range []string{"GET /healthz", "GET /readyz", "GET /openapi.json", "DELETE /v1/boot-records/{mac}"} {
		called[o] = true // for monitors and people
	}
	for _, o := range spec {
		if !called[o] {
			t.Errorf("no method of the client calls %s", o)
		}
	}
}

const golden = "../docs/openapi.json"

// documented lists the operations of the committed document as mux patterns.
func documented(t *testing.T) (ops []string) {
	t.Helper()
	b, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	for path, methods := range doc.Paths {
		for m := range methods {
			ops = append(ops, strings.ToUpper(m)+" "+path)
		}
	}
	return ops
}

// TestDocument compares the document that is served with the committed one.
func TestDocument(t *testing.T) {
	got := api.New(new(fake), api.Options{Version: "1"}).Document()
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("docs/openapi.json is stale; rewrite it with: go test ./api -run TestDocument -update\n%s", diff)
	}
}
