package store

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
	"muster.internal/setup"
)

var (
	booterCaller = muster.Caller{KeyID: "booterkey001", Scope: muster.ScopeBooter, Source: "192.0.2.2"}
	nobody       = muster.Caller{Source: "10.77.0.101"}
	publicKey    = base64.StdEncoding.EncodeToString(make([]byte, 31)) // opaque to the store
)

// A box is an imaginary machine.
type box struct{ uuid, mac, serial string }

func boxNo(n int) box {
	return box{fmt.Sprintf("4c4c4544-0000-4000-8000-%012x", n+1), fmt.Sprintf("52:54:00:00:%02x:%02x", n>>8, n&255), fmt.Sprintf("SER%04d", n)}
}

func (b box) sysinfo() json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"UUID":%q,"Hostname":"","Manufacturer":"QEMU","Product":"Standard PC","Serial Number":%q,"MiB of Memory":"2048",
"Boot Parameters":{"root_shadow":"$5$planted-shadow-hash"},"Network Interfaces":{"net0":{"MAC Address":%q,"ip4addr":"","Link Status":"up","NIC Names":["admin"]}}}`, b.uuid, b.serial, b.mac))
}

func (b box) announcement(session string) muster.Announcement {
	return muster.Announcement{ServerUUID: b.uuid, MAC: b.mac, Session: session, Source: "10.77.0.101", PublicKey: publicKey, Booter: "b1", Sysinfo: b.sysinfo()}
}

func (b box) disks() []muster.Disk {
	return []muster.Disk{{Path: "/dev/vdb", Serial: b.serial + "-B", Size: 10 << 30}, {Path: "/dev/vdc", Serial: b.serial + "-C", Size: 10 << 30}}
}

func (b box) plan(pi *muster.ImageRef) muster.SetupPlan {
	p := muster.SetupPlan{ServerUUID: b.uuid, Serial: b.serial, Pool: muster.ZFS, Layout: "mirror", Compression: "on", Hostname: "node-" + strings.ToLower(b.serial),
		VDevs: []muster.VDev{{Type: "mirror", Disks: b.disks()}}, Image: pi}
	p.Digest = setup.PlanDigest(p)
	return p
}

func testPolicy() muster.BootPolicy {
	p := muster.DefaultBootPolicy()
	p.EnrollmentPI = &muster.ImageRef{Name: "enroll"}
	p.Networks = []muster.AdminNetwork{{Name: "admin", Prefix: "10.77.0.0/24", Start: "10.77.0.100", End: "10.77.0.199", Gateway: "10.77.0.1"}}
	return p
}

func digestNo(n int) string { return fmt.Sprintf("sha256:%064x", n) }

// site makes a store whose policy takes in machines.
func site(t testing.TB, s *Store) {
	t.Helper()
	must[muster.Image](t)(s.AddImage(t.Context(), start, ada, muster.Image{Name: "enroll", Kind: muster.LinuxImage, Digest: digestNo(1)}))
	must[muster.BootPolicy](t)(s.SetBootPolicy(t.Context(), start, ada, testPolicy()))
}

// awaiting brings a machine to awaiting_setup with its disks surveyed.
func awaiting(t testing.TB, s *Store, b box, now time.Time) {
	t.Helper()
	ctx := t.Context()
	rs := must[[]muster.BootRecord](t)(s.Sight(ctx, now, booterCaller, "b1", []muster.Sighting{{MAC: b.mac, Arch: 7, At: now}}))
	if len(rs) != 1 || rs[0].State != muster.Enrolling || rs[0].Address == "" {
		t.Fatalf("sighted: %+v", rs)
	}
	a := must[muster.Announced](t)(s.Announce(ctx, now, booterCaller, b.announcement("s1")))
	if a.State != muster.AwaitingSetup || !a.Survey {
		t.Fatalf("announced: %+v", a)
	}
	if err := s.Survey(ctx, now, booterCaller, b.uuid, muster.Survey{Session: "s1", Disks: b.disks()}); err != nil {
		t.Fatal(err)
	}
}

func approval(t testing.TB, s *Store, b box, now time.Time) Approval {
	t.Helper()
	return approvalOf(t.Context(), s, b, now)
}

// approvalOf approves what the store holds now, for better or worse.
func approvalOf(ctx context.Context, s *Store, b box, now time.Time) Approval {
	r, _ := s.Registration(ctx, b.uuid)
	p, _ := s.BootPolicy(ctx)
	g, _ := s.SetupGround(ctx, b.uuid)
	a := Approval{Plan: b.plan(p.EnrollmentPI), Session: g.Session, Layout: true, Confirm: true, Deadline: now.Add(muster.SetupDeadline)}
	a.Seen = a.Plan.Digest
	if r.SurveyedAt != nil {
		a.Survey = *r.SurveyedAt
	}
	return a
}

// kept lets a test see the secrets that a bundle carried.
type kept struct{ Secrets }

func (k *kept) seal(r muster.Registration, key string, v Secrets) (muster.TakenBundle, error) {
	k.Secrets = v
	return muster.TakenBundle{Epoch: r.SetupEpoch, Script: setup.Script, Env: map[string]string{"MUSTER_SERVER_UUID": r.ServerUUID}}, nil
}

func (k *kept) proof(b box, epoch int64) string { return setup.Proof(k.ProofKey, b.uuid, epoch) }

// install brings an awaiting machine to approved.
func install(t testing.TB, s *Store, b box, now time.Time) kept {
	t.Helper()
	ctx := t.Context()
	g := must[muster.SetupGrant](t)(s.ApproveSetup(ctx, now, ada, b.uuid, approval(t, s, b, now)))
	var k kept
	must[muster.TakenBundle](t)(s.TakeBundle(ctx, now, booterCaller, b.uuid, muster.TakeRequest{Epoch: g.Epoch, Session: "s1"}, k.seal))
	if err := s.SetupComplete(ctx, now, booterCaller, b.uuid, muster.SetupOutcome{Epoch: g.Epoch, Proof: k.proof(b, g.Epoch), MACs: []string{b.mac}}); err != nil {
		t.Fatal(err)
	}
	return k
}

func stateOf(t testing.TB, s *Store, uuid string) muster.RegistrationState {
	t.Helper()
	return must[muster.Registration](t)(s.Registration(t.Context(), uuid)).State
}

func TestAWholeFirstLife(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b := boxNo(0)
		awaiting(t, s, b, start)
		k := install(t, s, b, start.Add(time.Minute))

		r := must[muster.Registration](t)(s.Registration(ctx, b.uuid))
		if r.State != muster.Approved || r.BoundKeyID == "" || r.NodeID == "" || r.ApprovedAt == nil || r.SetupDeadline != nil || r.BundleTaken || r.Hostname != "node-ser0000" {
			t.Fatalf("registration: %+v", r)
		}
		if strings.Contains(string(r.Sysinfo), "planted") {
			t.Fatal("a boot secret was stored")
		}
		rec := must[muster.BootRecord](t)(s.BootRecord(ctx, b.mac))
		if rec.State != muster.Enrolled || rec.ServerUUID != b.uuid || rec.AssignedPI == nil || rec.AssignedPI.Digest != digestNo(1) || rec.Address != "10.77.0.100" {
			t.Fatalf("boot record: %+v", rec)
		}
		ns := must[[]muster.Node](t)(s.Nodes(ctx))
		if len(ns) != 1 || ns[0].ID != r.NodeID || ns[0].State != muster.NodeInitializing || ns[0].Policy != muster.PolicyInService {
			t.Fatalf("nodes: %+v", ns)
		}
		for _, purpose := range []string{"console", "metadata", "move"} {
			if key := must[OwnKey](t)(s.TicketKey(ctx, start, ada, b.uuid, muster.TicketKind(purpose))).Key; len(key) != 32 {
				t.Fatalf("%s key has %d bytes", purpose, len(key))
			}
		}
		c := must[muster.Caller](t)(s.Authenticate(ctx, start, k.APIKey, ""))
		if c.ServerUUID != b.uuid || c.Scope != muster.ScopeAgent || c.KeyID != r.BoundKeyID {
			t.Fatalf("the agent key speaks for %+v", c)
		}
		// The second boot: the host itself reports, and the node serves.
		must[muster.Registration](t)(s.Refresh(ctx, start.Add(2*time.Minute), c, muster.RefreshRequest{Epoch: 1, Sysinfo: b.sysinfo(), Version: "1"}))
		if ns := must[[]muster.Node](t)(s.Nodes(ctx)); ns[0].State != muster.NodeInService {
			t.Fatalf("nodes: %+v", ns)
		}
		// Disabling revokes, deleting forgets; the node is over.
		must[muster.Registration](t)(s.RaiseRegistration(ctx, start.Add(time.Hour), ada, b.uuid, lifecycle.Disable))
		_, err := s.Authenticate(ctx, start, k.APIKey, "")
		wantCode(t, err, muster.CodeUnauthenticated)
		for range 2 {
			if err := s.DeleteRegistration(ctx, start.Add(time.Hour), ada, b.uuid); err != nil {
				t.Fatal(err)
			}
		}
		_, err = s.Registration(ctx, b.uuid)
		wantCode(t, err, muster.CodeNotFound)
		if rec := must[muster.BootRecord](t)(s.BootRecord(ctx, b.mac)); rec.State != muster.BootDecommissioned || rec.Address == "" {
			t.Fatalf("boot record: %+v", rec)
		}
		if ns := must[[]muster.Node](t)(s.Nodes(ctx)); ns[0].State != muster.NodeDecommissioned {
			t.Fatalf("nodes: %+v", ns)
		}
		healthy(t, s)
	})
}

func TestReadsOfWhatWasNeverReported(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		rec := must[muster.BootRecord](t)(s.BootRecord(t.Context(), "52-54-0-0-0-9"))
		if rec.MAC != "52:54:00:00:00:09" || rec.State != muster.Discovered || !rec.Synthesized {
			t.Fatalf("%+v", rec)
		}
		if rs := must[[]muster.BootRecord](t)(s.BootRecords(t.Context(), muster.BootFilter{})); len(rs) != 0 {
			t.Fatalf("reading wrote %+v", rs)
		}
		_, err := s.Registrations(t.Context(), muster.RegistrationFilter{State: "wild"})
		wantCode(t, err, muster.CodeInvalid)
		for _, st := range muster.RegistrationStates {
			if !strings.Contains(err.Error(), string(st)) {
				t.Errorf("%v does not name %s", err, st)
			}
			must[[]muster.Registration](t)(s.Registrations(t.Context(), muster.RegistrationFilter{State: st}))
		}
	})
}

// TestANameOutlivesAnAnnouncement: a bare machine knows no name of its own. The
// one that it was approved with stays when the approval is taken back and the
// machine says again what it is.
func TestANameOutlivesAnAnnouncement(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		site(t, s)
		b := boxNo(1)
		awaiting(t, s, b, start)
		a := approval(t, s, b, start)
		a.Plan.Hostname = "web2"
		must[muster.SetupGrant](t)(s.ApproveSetup(t.Context(), start, ada, b.uuid, a))
		must[muster.Registration](t)(s.RaiseRegistration(t.Context(), start, ada, b.uuid, lifecycle.CancelSetup))
		must[muster.Announced](t)(s.Announce(t.Context(), start, booterCaller, b.announcement("s2")))
		if r := must[muster.Registration](t)(s.Registration(t.Context(), b.uuid)); r.Hostname != "web2" || r.State != muster.AwaitingSetup {
			t.Errorf("%s is called %q", r.State, r.Hostname)
		}
	})
}
