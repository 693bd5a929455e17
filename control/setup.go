package control

import (
	"context"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/layout"
	"muster.internal/setup"
	"muster.internal/store"
)

// A prepared setup is everything that an approval is about to be bound to.
type prepared struct {
	store.Ground
	plan muster.SetupPlan
}

// prepare realizes a request against the disks that were surveyed.
func (s session) prepare(ctx context.Context, uuid string, q muster.SetupRequest) (p prepared, err error) {
	if p.Ground, err = s.store.SetupGround(ctx, uuid); err != nil {
		return p, err
	}
	r := p.Registration
	switch {
	case r.SurveyedAt == nil && r.Away != "":
		return p, muster.Problemf(muster.CodeConflict,
			"machine %s is away (%s), and its disks were not surveyed: power it on, or restart it, and look again when it has announced itself", uuid, r.Away)
	case r.SurveyedAt == nil:
		return p, muster.Problemf(muster.CodeConflict,
			"machine %s has announced itself, but its disks were not surveyed yet: wait until its booter has asked it, and look at the booter's log if that does not come", uuid)
	}
	if p.plan, err = layout.Realize(uuid, r.Serial, r.Disks, q); err != nil {
		return p, err
	}
	p.plan.Image, p.plan.PublicKey = p.Image, p.Session.PublicKey
	p.plan.Digest = setup.PlanDigest(p.plan)
	return p, nil
}

func (s session) PlanSetup(ctx context.Context, serverUUID string, q muster.SetupRequest) (muster.SetupPlan, error) {
	uuid, err := machineUUID(serverUUID)
	if err != nil {
		return muster.SetupPlan{}, err
	}
	p, err := s.prepare(ctx, uuid, q)
	return p.plan, err
}

// ApproveSetup hands the rows what the operator saw and what is true now; only
// they, inside the store's transaction, say yes.
func (s session) ApproveSetup(ctx context.Context, serverUUID string, a muster.SetupApproval) (muster.SetupGrant, error) {
	uuid, err := machineUUID(serverUUID)
	if err != nil {
		return muster.SetupGrant{}, err
	}
	p, err := s.prepare(ctx, uuid, a.SetupRequest)
	if err != nil {
		return muster.SetupGrant{}, err
	}
	if p.Session.Session != "" && p.Session.PublicKey == "" {
		return muster.SetupGrant{}, muster.Problemf(muster.CodeConflict,
			"machine %s announced no public key, so its credential could not be kept from others on the boot segment: boot it with an image made by muster", uuid)
	}
	now := s.now()
	if err := sendable(p.plan, now); err != nil {
		return muster.SetupGrant{}, err
	}
	return s.store.ApproveSetup(ctx, now, s.by, uuid, store.Approval{
		Plan:     p.plan,
		Seen:     a.Plan,
		Session:  p.Session,
		Survey:   *p.Registration.SurveyedAt,
		Layout:   true,
		Confirm:  confirmed(p.Registration, a.Confirm),
		Deadline: now.Add(muster.SetupDeadline),
	})
}

// sendable refuses a plan that could not be sent to the machine, before
// anything is made for it.
func sendable(plan muster.SetupPlan, now time.Time) error {
	_, err := setup.Order{ServerUUID: plan.ServerUUID, Epoch: 1, Time: now, Hostname: plan.Hostname, Plan: plan, Bundle: make([]byte, 8<<10)}.Env()
	if err != nil {
		return muster.Invalid("exclude", "%v", err)
	}
	return nil
}

// confirmed tells whether the operator repeated what is written on the machine.
func confirmed(r muster.Registration, said string) bool {
	said = strings.TrimSpace(said)
	if r.Serial != "" {
		return said == r.Serial
	}
	return strings.EqualFold(said, r.ServerUUID)
}

// TakeBundle seals the secrets, which the store has just made, to the machine,
// and spells the order that goes with them.
func (s session) TakeBundle(ctx context.Context, serverUUID string, r muster.TakeRequest) (muster.TakenBundle, error) {
	uuid, err := machineUUID(serverUUID)
	if err != nil {
		return muster.TakenBundle{}, err
	}
	now := s.now()
	return s.store.TakeBundle(ctx, now, s.by, uuid, r, func(reg muster.Registration, publicKey string, secrets store.Secrets) (muster.TakenBundle, error) {
		key, err := setup.ParsePublicKey(publicKey)
		if err != nil {
			return muster.TakenBundle{}, err
		}
		sealed, err := setup.Seal(key, setup.Bundle{
			ServerUUID: uuid, Epoch: reg.SetupEpoch, Plan: reg.DiskLayout.Digest, ProofKey: secrets.ProofKey,
			URL: s.url, CA: string(s.authority.PEM()), APIKey: secrets.APIKey, Tickets: secrets.Tickets,
		})
		if err != nil {
			return muster.TakenBundle{}, err
		}
		env, err := setup.Order{
			ServerUUID: uuid, Epoch: reg.SetupEpoch, Time: now, Hostname: reg.DiskLayout.Hostname, Plan: *reg.DiskLayout, Bundle: sealed,
		}.Env()
		return muster.TakenBundle{Epoch: reg.SetupEpoch, Script: setup.Script, Env: env}, err
	})
}

func (s session) SetupComplete(ctx context.Context, serverUUID string, o muster.SetupOutcome) error {
	uuid, err := machineUUID(serverUUID)
	if err != nil {
		return err
	}
	return s.store.SetupComplete(ctx, s.now(), s.by, uuid, o)
}

func (s session) SetupFailed(ctx context.Context, serverUUID string, o muster.SetupOutcome) error {
	uuid, err := machineUUID(serverUUID)
	if err != nil {
		return err
	}
	return s.store.SetupFailed(ctx, s.now(), s.by, uuid, o)
}

// Tick ends what is overdue: setups, codes, keys, rescues, probes, windows, and
// the bus sessions of booters that are gone.
func (c *Control) Tick(ctx context.Context) error {
	done, err := c.store.Expire(ctx, c.now())
	if done != (store.Expired{}) {
		c.log.Info("ended what was overdue", "setups", done.Setups, "claim_codes", done.Codes, "keys", done.Keys, "rescues", done.Rescues, "probes", done.Probes, "windows", done.Windows, "doors_forgotten", done.Tokens, "claims", done.Claims)
	}
	if now := c.now(); err == nil && now.Sub(c.opened) >= store.BooterSilence { // booters had the time to speak
		lost := 0
		if lost, err = c.store.LoseSilent(ctx, now); lost > 0 {
			c.log.Warn("machines count as away from the boot bus: their booters are silent", "machines", lost)
		}
	}
	return err
}
