package control_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"muster.internal"
	"muster.internal/setup"
)

// TestTwoMachinesOneUUID: never merged, never installed by each other's
// approval.
func TestTwoMachinesOneUUID(t *testing.T) {
	engines(t, func(p *place) {
		p.content()
		m, twin := p.bare(1), p.bare(2)
		twin.uuid = m.uuid
		twin.sighted()
		m.ready()
		_, err := twin.announce()
		p.refused(err, muster.CodeConflict)
		r := p.registration(m.uuid)
		if len(r.Conflicts) != 1 || r.Conflicts[0].MAC != twin.mac || r.Serial != m.serial {
			p.Errorf("conflicts: %+v", r.Conflicts)
		}
		err = p.enroll.Survey(p.Context(), m.uuid, muster.Survey{Session: twin.session, Disks: twin.disks})
		p.refused(err, muster.CodeConflict)
		if r := p.registration(m.uuid); r.Disks[0].Serial != "D1-0" {
			p.Errorf("the twin's disks were written down: %+v", r.Disks)
		}
		// The twin announces itself every minute: that must not end the
		// incumbent's setup, before the take or after it.
		m.boot()
		grant := m.approved()
		_, err = twin.announce()
		p.refused(err, muster.CodeConflict)
		b := m.opened(grant.Epoch)
		_, err = twin.announce()
		p.refused(err, muster.CodeConflict)
		// The booter saw both cards claim this UUID.
		p.ok(m.complete(b, twin.mac))
		if r := p.registration(m.uuid); r.State != muster.Approved || slices.Contains(r.MACs, twin.mac) || p.record(twin.mac).State != muster.Enrolling {
			p.Errorf("the incumbent is %+v, the twin's card %+v", r, p.record(twin.mac))
		}
	})
}

// Somebody asks for something to boot with one machine's MAC and another's
// UUID and serial number: the end of the one's setup does not take the other's record away.
func TestAMachineKeepsItsOwnRecord(t *testing.T) {
	engines(t, func(p *place) {
		p.content()
		a, b := p.bare(1), p.bare(2)
		b.ready()
		must(p, func(ctx context.Context) ([]muster.BootRecord, error) {
			return p.booter.Sight(ctx, "b1", []muster.Sighting{{MAC: b.mac, Arch: 7, Interface: "br0", UUID: a.uuid, ServiceTag: a.serial}})
		})
		grant := a.approved()
		key := a.opened(grant.Epoch)
		p.ok(p.booter.SetupComplete(p.Context(), a.uuid, muster.SetupOutcome{Epoch: grant.Epoch, Session: a.session,
			Proof: setup.Proof(key.ProofKey, a.uuid, grant.Epoch), MACs: []string{a.mac, b.mac, "52:54:00:00:00:77"}}))
		if r := p.record(a.mac); r.State != muster.Enrolled || r.ServerUUID != a.uuid {
			p.Errorf("its own record: %+v", r)
		}
		if r := p.record(b.mac); r.State != muster.Enrolling || r.ServerUUID != "" {
			p.Errorf("the other's record: %+v", r)
		}
		if r := p.registration(a.uuid); len(r.MACs) != 1 {
			p.Errorf("it has the NICs %v", r.MACs)
		}
	})
}

// An operator looks at a plan; before the approval, somebody on the segment
// announces itself in the machine's own words, with a key of its own. What was
// seen was another machine, and whoever that is gets nothing for it.
func TestApprovalIsForTheMachineThatWasSeen(t *testing.T) {
	engines(t, func(p *place) {
		ctx := p.Context()
		p.content()
		m := p.bare(1)
		plan := m.ready()
		right := muster.SetupApproval{Plan: plan.Digest, Confirm: m.serial}

		twin := *m
		twin.boot()
		_, err := twin.announce()
		p.ok(err)
		_, err = p.admin.ApproveSetup(ctx, m.uuid, right)
		p.refused(err, muster.CodeConflict)
		p.ok(twin.survey())
		_, err = p.admin.ApproveSetup(ctx, m.uuid, right)
		p.refused(err, muster.CodeConflict)
		if r := p.registration(m.uuid); r.State != muster.AwaitingSetup || r.SetupEpoch != 0 || r.BoundKeyID != "" {
			p.Fatalf("approved: %+v", r)
		}

		// The machine itself comes back on a new connection of the same boot:
		// once it was surveyed, what was seen is true again.
		m.session = fmt.Sprintf("%032x", sessions.Add(1))
		_, err = m.announce()
		p.ok(err)
		_, err = p.admin.ApproveSetup(ctx, m.uuid, right)
		p.refused(err, muster.CodeConflict)
		p.ok(m.survey())
		grant := must(p, func(ctx context.Context) (muster.SetupGrant, error) { return p.admin.ApproveSetup(ctx, m.uuid, right) })
		_, err = twin.take(grant.Epoch)
		p.refused(err, muster.CodeConflict)
		m.opened(grant.Epoch)
	})
}
