package store

import (
	"context"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

// A Session is one bus session of a machine.
type Session struct {
	Session   string // empty: not connected
	PublicKey string
}

// A Ground is all that a setup of one machine is planned from, as of one moment.
type Ground struct {
	Registration muster.Registration
	Session      Session          // that an approval would be bound to
	Image        *muster.ImageRef // that it would pin
}

// SetupGround reads what a setup would be planned from. A machine whose state
// allows no approval has none: the error is the rows' refusal.
func (s *Store) SetupGround(ctx context.Context, serverUUID string) (Ground, error) {
	var g Ground
	err := s.snapshot(ctx, "reading what a setup is planned from", func(r *reading) error {
		m, err := findMachine(r, serverUUID)
		if err != nil {
			return err
		}
		if m.had == lifecycle.NoRegistration {
			return unknownMachine(serverUUID)
		}
		// Only the state is asked about: all else is to be found out yet.
		if _, _, err := m.raise(lifecycle.ApproveSetup, lifecycle.Facts{
			SessionAlive: true, Surveyed: true, Layout: true, PlanSeen: true, Confirmed: true}); err != nil {
			return err
		}
		policy, err := findPolicy(r)
		g = Ground{m.reg.Registration, Session{m.reg.session, m.reg.publicKey}, policy.EnrollmentPI}
		g.Registration.Away = m.reg.away()
		return err
	})
	return g, err
}

// An Approval is what an operator approved, computed and checked by the
// caller. The store binds it to the session that it was computed for.
type Approval struct {
	Plan     muster.SetupPlan
	Seen     string  // the plan's digest as the operator saw it
	Session  Session // of the survey that the plan was made from
	Survey   time.Time
	Layout   bool // the layout can be built from the surveyed disks
	Confirm  bool // the operator repeated the serial number
	Deadline time.Time
}

// ApproveSetup is the only way into setting_up. It mints nothing but ids: the
// secrets are made when the bundle is taken.
func (s *Store) ApproveSetup(ctx context.Context, now time.Time, by muster.Caller, serverUUID string, a Approval) (muster.SetupGrant, error) {
	var grant muster.SetupGrant
	err := s.write(ctx, "approving a setup", now, by, func(t *tx) error {
		m, err := t.load(serverUUID)
		if err != nil {
			return err
		}
		if m.had == lifecycle.NoRegistration {
			return unknownMachine(serverUUID)
		}
		grant, err = t.approveSetup(m, a)
		return err
	})
	return grant, err
}

func (t *tx) approveSetup(m *machine, a Approval) (grant muster.SetupGrant, err error) {
	policy, err := findPolicy(t)
	if err != nil {
		return grant, err
	}
	r := m.reg
	next, _, err := m.raise(lifecycle.ApproveSetup, lifecycle.Facts{
		SessionAlive: r.session != "" && r.session == a.Session.Session && r.publicKey == a.Session.PublicKey,
		Surveyed:     r.SurveyedAt != nil && r.surveySession == r.session,
		Layout:       a.Layout,
		PlanSeen:     a.Seen == a.Plan.Digest && r.SurveyedAt != nil && r.SurveyedAt.Equal(a.Survey) && ref(a.Plan.Image) == ref(policy.EnrollmentPI),
		Confirmed:    a.Confirm,
		EnrollmentPI: policy.EnrollmentPI != nil,
	})
	if err != nil {
		return grant, m.stillAway(err)
	}
	if r.BoundKeyID, err = t.s.newID(); err != nil {
		return grant, err
	}
	if r.OperationID, err = t.s.newUUID(t.now.UnixMilli()); err != nil {
		return grant, err
	}
	r.SetupEpoch++
	r.SetupDeadline, r.setupSession, r.setupKey = &a.Deadline, r.session, r.publicKey
	r.AssignedPI, r.DiskLayout, r.LastSetupError = policy.EnrollmentPI, &a.Plan, ""
	if a.Plan.Hostname != "" {
		r.Hostname = a.Plan.Hostname
	}
	if m.disks, err = findDisks(t, m.node.ID, r.DiskLayout); err != nil {
		return grant, err
	}
	next.Disks = m.look().Disks
	var disks []string
	for _, d := range a.Plan.Members() {
		disks = append(disks, d.Path+" "+d.Describe())
	}
	seq, err := t.record(string(lifecycle.ApproveSetup), subject(m.uuid), detail{
		"operation_id": r.OperationID, "setup_epoch": r.SetupEpoch, "setup_deadline": a.Deadline, "plan": a.Plan.Digest,
		"pool": a.Plan.Pool, "layout": a.Plan.Layout, "disks": disks, "assigned_pi": r.AssignedPI, "api_key": r.BoundKeyID,
		"address": r.source, "rebuild": a.Plan.Rebuild})
	if err != nil {
		return grant, err
	}
	if err := t.save(m, next, seq); err != nil {
		return grant, err
	}
	return muster.SetupGrant{Registration: r.Registration, OperationID: r.OperationID, Epoch: r.SetupEpoch, Deadline: a.Deadline}, nil
}
