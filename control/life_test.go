package control_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/setup"
	"muster.internal/ticket"
)

// TestFirstLife is a bare machine's way from power-on to node, as everybody
// sees it who takes part.
func TestFirstLife(t *testing.T) {
	engines(t, func(p *place) {
		ctx := p.Context()
		p.withViewer()
		img := p.content()
		m := p.bare(1)

		// Seen by DHCP: it gets the lowest free address.
		rec := m.sighted()
		if rec.State != muster.Enrolling || rec.Address != "10.77.0.100" || rec.Networking == nil || rec.Networking.Address != "10.77.0.100/24" {
			p.Fatalf("sighted: %+v", rec)
		}
		feed, err := p.booter.Feed(ctx, "b1", 0, 0)
		p.ok(err)
		if len(feed.Records) != 1 || feed.Policy == nil || feed.Policy.EnrollmentPI.Digest != img.Digest || len(feed.Installs) != 0 {
			p.Fatalf("feed: %+v", feed)
		}

		// Announced: nothing can be approved before the survey.
		a, err := m.announce()
		p.ok(err)
		if a.State != muster.AwaitingSetup || !a.Survey {
			p.Fatalf("announced: %+v", a)
		}
		_, err = p.admin.PlanSetup(ctx, m.uuid, muster.SetupRequest{})
		p.refused(err, muster.CodeConflict)
		p.ok(m.survey())
		r := p.registration(m.uuid)
		if r.Serial != m.serial || len(r.Disks) != 2 || r.SurveyedAt == nil || r.Door != muster.DoorNetboot || r.BoundKeyID != "" {
			p.Fatalf("surveyed: %+v", r)
		}
		if strings.Contains(string(r.Sysinfo), bootPassword) {
			p.Errorf("sysinfo holds the bus password: %s", r.Sysinfo)
		}

		// Planned: exactly these disks, and nothing changes.
		before := p.head()
		plan := must(p, func(ctx context.Context) (muster.SetupPlan, error) {
			return p.viewer.PlanSetup(ctx, m.uuid, muster.SetupRequest{})
		})
		if len(plan.Members()) != 2 || plan.Members()[0].Serial != "D1-0" || plan.Layout != "mirror" || plan.Digest != setup.PlanDigest(plan) || plan.Image == nil || plan.Image.Digest != img.Digest {
			p.Fatalf("plan: %+v", plan)
		}
		if p.head() != before {
			p.Error("planning changed something")
		}

		// Approved: by a person, of what was seen, naming the machine.
		right := muster.SetupApproval{Plan: plan.Digest, Confirm: m.serial}
		for _, c := range []struct {
			name string
			call func() error
			code muster.Code
		}{
			{"a full key", func() error { _, err := p.full.ApproveSetup(ctx, m.uuid, right); return err }, muster.CodeForbidden},
			{"a viewer", func() error { _, err := p.viewer.ApproveSetup(ctx, m.uuid, right); return err }, muster.CodeForbidden},
			{"nobody", func() error { _, err := p.anyone.ApproveSetup(ctx, m.uuid, right); return err }, muster.CodeUnauthenticated},
			{"another plan", func() error {
				w := right
				w.Plan = "sha256:" + strings.Repeat("0", 64)
				_, err := p.admin.ApproveSetup(ctx, m.uuid, w)
				return err
			}, muster.CodeConflict},
			{"another request under the seen plan", func() error {
				w := right
				w.Layout = "single"
				_, err := p.admin.ApproveSetup(ctx, m.uuid, w)
				return err
			}, muster.CodeConflict},
			{"another serial", func() error {
				w := right
				w.Confirm = "SN-9999"
				_, err := p.admin.ApproveSetup(ctx, m.uuid, w)
				return err
			}, muster.CodeInvalid},
			{"take before", func() error { _, err := m.take(1); return err }, muster.CodeConflict},
		} {
			if err := c.call(); !muster.IsCode(err, c.code) {
				p.Errorf("%s: %v, want %s", c.name, err, c.code)
			}
		}
		if p.head() != before {
			p.Error("a refused approval changed something")
		}
		grant := must(p, func(ctx context.Context) (muster.SetupGrant, error) { return p.admin.ApproveSetup(ctx, m.uuid, right) })
		if grant.Epoch != 1 || !grant.Deadline.Equal(p.clock().Add(muster.SetupDeadline)) || grant.OperationID == "" || grant.Registration.State != muster.SettingUp {
			p.Fatalf("granted: %+v", grant)
		}
		_, err = p.admin.ApproveSetup(ctx, m.uuid, right)
		p.refused(err, muster.CodeConflict)

		// Taken: once, by epoch and session, sealed to the machine.
		feed, err = p.booter.Feed(ctx, "b1", feed.Seq, 0)
		p.ok(err)
		if len(feed.Installs) != 1 || feed.Installs[0].Session != m.session || feed.Installs[0].Epoch != 1 || feed.Installs[0].Taken || feed.Installs[0].OperationID != grant.OperationID {
			p.Fatalf("installs: %+v", feed.Installs)
		}
		_, err = m.take(2)
		p.refused(err, muster.CodeConflict)
		_, err = p.booter.TakeBundle(ctx, m.uuid, muster.TakeRequest{Epoch: 1, Session: strings.Repeat("f", 32)})
		p.refused(err, muster.CodeConflict)
		b := m.opened(grant.Epoch)
		if b.URL != p.c.URL() || b.CA != string(p.c.CA()) || b.ServerUUID != m.uuid || b.Plan != plan.Digest {
			p.Fatalf("bundle of another setup: %s %s %s", b.URL, b.ServerUUID, b.Plan)
		}
		_, err = m.take(grant.Epoch)
		p.refused(err, muster.CodeConflict)

		// Complete: only by proof, and again is success.
		forged := muster.SetupOutcome{Epoch: 1, Session: m.session, Proof: setup.Proof(make([]byte, 32), m.uuid, 1), MACs: []string{m.mac}}
		if err := p.booter.SetupComplete(ctx, m.uuid, forged); err == nil {
			p.Error("a forged proof was taken")
		}
		p.ok(m.complete(b))
		p.ok(m.complete(b))
		r, rec = p.registration(m.uuid), p.record(m.mac)
		if r.State != muster.Approved || r.NodeID == "" || r.BoundKeyID == "" {
			p.Errorf("complete: %+v", r)
		}
		if rec.State != muster.Enrolled || rec.ServerUUID != m.uuid || rec.AssignedPI == nil || rec.AssignedPI.Digest != img.Digest {
			p.Errorf("record: %+v", rec)
		}
		nodes := must(p, p.viewer.Nodes)
		if len(nodes) != 1 || nodes[0].ServerUUID != m.uuid || nodes[0].ID != r.NodeID {
			p.Errorf("nodes: %+v", nodes)
		}

		// Back from its own pool: it refreshes and lives.
		host := p.anyone.WithToken(b.APIKey)
		r, err = host.Refresh(ctx, muster.RefreshRequest{Epoch: b.Epoch, Sysinfo: m.sysinfo(), Version: "1"})
		p.ok(err)
		if r.State != muster.Approved || r.RefreshedAt == nil {
			p.Errorf("refreshed: %+v", r)
		}
		beat, err := host.Heartbeat(ctx, muster.Heartbeat{Version: "1"})
		p.ok(err)
		if beat.NextSeconds < 20 || beat.NextSeconds > 60 {
			p.Errorf("next heartbeat in %d s", beat.NextSeconds)
		}
		found := false
		for _, e := range must(p, func(ctx context.Context) ([]muster.AuditEntry, error) {
			return p.admin.Audit(ctx, muster.AuditFilter{Subject: "registration/" + m.uuid})
		}) {
			found = found || strings.Contains(string(e.Detail), grant.OperationID)
		}
		if !found {
			p.Error("the operation is not in the audit")
		}

		// Disabled: the next request fails.
		must(p, func(ctx context.Context) (muster.Registration, error) {
			return p.admin.RaiseRegistration(ctx, m.uuid, "disable")
		})
		_, err = host.Heartbeat(ctx, muster.Heartbeat{})
		p.refused(err, muster.CodeUnauthenticated)
		p.nothingShows()
	})
}

// nothingShows looks for planted and made secrets wherever something is
// written down.
func (p *place) nothingShows() {
	p.Helper()
	p.keep(bootPassword)
	audit, err := json.Marshal(must(p, func(ctx context.Context) ([]muster.AuditEntry, error) {
		return p.admin.Audit(ctx, muster.AuditFilter{})
	}))
	p.ok(err)
	p.searched("the audit", string(audit))
	p.searched("the log", p.log.String())
	regs, err := json.Marshal(must(p, func(ctx context.Context) ([]muster.Registration, error) {
		return p.admin.Registrations(ctx, muster.RegistrationFilter{})
	}))
	p.ok(err)
	p.searched("the list of registrations", string(regs))
	p.c.Close()
	p.files(p.searched)
}

// TestInstallsThatEndBadly: every way leads back to awaiting_setup, leaves no
// key, and a second try works.
func TestInstallsThatEndBadly(t *testing.T) {
	engines(t, func(p *place) {
		ctx := p.Context()
		p.content()
		n := 0
		for _, c := range []struct {
			name   string
			taken  bool
			end    func(m *bare, epoch int64) error
			reason string
		}{
			{"the script failed", true, func(m *bare, epoch int64) error {
				return p.booter.SetupFailed(ctx, m.uuid, muster.SetupOutcome{Epoch: epoch, Session: m.session, Reason: "zpool create: no such device " + strings.Repeat("x", 600)})
			}, "zpool create"},
			{"an impostor came before the take", false, func(m *bare, _ int64) error {
				return p.enroll.SessionChanged(ctx, m.uuid, muster.SessionChange{Session: strings.Repeat("e", 32), MAC: m.mac, Source: "10.77.0.66", Reason: "took the queue name over"})
			}, "10.77.0.66"},
			{"an impostor was refused before the take", false, func(m *bare, _ int64) error {
				return p.enroll.SessionChanged(ctx, m.uuid, muster.SessionChange{MAC: m.mac, Source: "10.77.0.67", Reason: "wrong source address"})
			}, "10.77.0.67"},
			{"another key announced itself after the take", true, func(m *bare, _ int64) error {
				m.boot()
				_, err := m.announce()
				return err
			}, "10.77.0."},
			{"the deadline passed", true, func(*bare, int64) error {
				p.advance(muster.SetupDeadline + time.Second)
				return p.c.Tick(ctx)
			}, ""},
			{"the deadline passed before the take", false, func(*bare, int64) error {
				p.advance(muster.SetupDeadline + time.Second)
				return p.c.Tick(ctx)
			}, ""},
		} {
			n++
			m := p.bare(n)
			grant := m.approved()
			var b setup.Bundle
			if c.taken {
				b = m.opened(grant.Epoch)
			}
			p.ok(c.end(m, grant.Epoch))
			r := p.registration(m.uuid)
			if r.State != muster.AwaitingSetup || r.LastSetupError == "" || !strings.Contains(r.LastSetupError, c.reason) || len(r.LastSetupError) > 512 ||
				r.BoundKeyID != "" || r.SetupDeadline != nil || r.BundleTaken {
				p.Errorf("%s: %+v", c.name, r)
			}
			if c.taken {
				_, err := p.anyone.WithToken(b.APIKey).Refresh(ctx, muster.RefreshRequest{Epoch: grant.Epoch})
				if !muster.IsCode(err, muster.CodeUnauthenticated) {
					p.Errorf("%s: its key still works: %v", c.name, err)
				}
				if err := m.complete(b); !muster.IsCode(err, muster.CodeConflict) {
					p.Errorf("%s: a late success was taken: %v", c.name, err)
				}
			}
			if _, err := m.take(grant.Epoch); !muster.IsCode(err, muster.CodeConflict) {
				p.Errorf("%s: the old epoch can be taken: %v", c.name, err)
			}
			// Again, after another boot.
			m.boot()
			second := m.approved()
			if second.Epoch != grant.Epoch+1 {
				p.Errorf("%s: second epoch %d", c.name, second.Epoch)
			}
			p.ok(m.complete(m.opened(second.Epoch)))
			if r := p.registration(m.uuid); r.State != muster.Approved || r.LastSetupError != "" {
				p.Errorf("%s: after the second try: %+v", c.name, r)
			}
			must(p, func(ctx context.Context) (muster.BootRecord, error) {
				return p.admin.RaiseBootRecord(ctx, m.mac, "decommission")
			})
			if n == 3 { // the network has four addresses
				pol := must(p, p.admin.BootPolicy)
				pol.Networks[0].End = "10.77.0.200"
				must(p, func(ctx context.Context) (muster.BootPolicy, error) { return p.admin.SetBootPolicy(ctx, pol) })
			}
		}
		p.nothingShows()
	})
}

// TestReconnect: the same machine on a new connection keeps its install.
func TestReconnect(t *testing.T) {
	engines(t, func(p *place) {
		p.content()
		m := p.bare(1)
		grant := m.approved()
		b := m.opened(grant.Epoch)
		m.session = strings.Repeat("d", 32)
		a, err := m.announce()
		p.ok(err)
		if a.State != muster.SettingUp {
			p.Errorf("announced: %+v", a)
		}
		p.ok(m.complete(b))
	})
}

// TestRefreshIsProof: the report was lost, the machine is not.
func TestRefreshIsProof(t *testing.T) {
	engines(t, func(p *place) {
		p.content()
		m := p.bare(1)
		grant := m.approved()
		b := m.opened(grant.Epoch)
		host := p.anyone.WithToken(b.APIKey)
		_, err := host.Refresh(p.Context(), muster.RefreshRequest{Epoch: grant.Epoch + 1, Sysinfo: m.sysinfo()})
		p.refused(err, muster.CodeConflict)
		r, err := host.Refresh(p.Context(), muster.RefreshRequest{Epoch: grant.Epoch, Sysinfo: m.sysinfo()})
		p.ok(err)
		if r.State != muster.Approved || p.record(m.mac).State != muster.Enrolled {
			p.Errorf("refreshed: %+v %+v", r, p.record(m.mac))
		}
		p.ok(m.complete(b)) // the report, late

		// From here on a ticket opens the machine to whoever holds it.
		ticketed, err := p.admin.IssueTicket(p.Context(), m.uuid, muster.TicketRequest{Kind: muster.TicketMetadata, Seconds: 600})
		p.ok(err)
		holder, _, err := ticket.Verify(b.Tickets.Metadata, muster.TicketMetadata, m.uuid, ticketed.Ticket, time.Now())
		if err != nil || !strings.HasPrefix(holder, "operator:") {
			p.Errorf("the machine reads %q, %v", holder, err)
		}
		_, err = p.admin.IssueTicket(p.Context(), m.uuid, muster.TicketRequest{Kind: "root"})
		p.refused(err, muster.CodeInvalid)
		_, err = p.admin.IssueTicket(p.Context(), m.uuid, muster.TicketRequest{Kind: muster.TicketConsole, Seconds: 61})
		p.refused(err, muster.CodeInvalid)
		_, err = p.admin.RaiseRegistration(p.Context(), m.uuid, "disable")
		p.ok(err)
		_, err = p.admin.IssueTicket(p.Context(), m.uuid, muster.TicketRequest{Kind: muster.TicketMetadata})
		p.refused(err, muster.CodeConflict)
	})
}

// TestForeignPool: a pool by our name that is not the machine's.
func TestForeignPool(t *testing.T) {
	engines(t, func(p *place) {
		p.content()
		m := p.bare(1)
		m.disks[1].Contents = []muster.Content{{Kind: "zpool", Name: "zones", GUID: "1234567890"}}
		m.sighted()
		_, err := m.announce()
		p.ok(err)
		p.ok(m.survey())
		_, err = p.admin.PlanSetup(p.Context(), m.uuid, muster.SetupRequest{})
		if problem := p.refused(err, muster.CodeConflict); !strings.Contains(problem.Detail, "zones") || !strings.Contains(problem.Detail, "1234567890") {
			p.Errorf("%v", problem)
		}
	})
}
