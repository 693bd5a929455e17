package control

import (
	"context"

	"muster.internal"
)

func (s session) Machines(ctx context.Context, f muster.MachineFilter) ([]muster.Machine, error) {
	return s.store.Machines(ctx, f)
}

func (s session) Machine(ctx context.Context, id string) (muster.Machine, error) {
	return s.store.Machine(ctx, id)
}

func (s session) RaiseMachine(ctx context.Context, id string, e muster.Event) (muster.Machine, error) {
	return s.store.RaiseMachine(ctx, s.now(), s.by, id, e)
}

func (s session) SharedIdentities(ctx context.Context) ([]muster.SharedIdentity, error) {
	return s.store.SharedIdentities(ctx)
}

func (s session) AddSharedIdentity(ctx context.Context, a muster.SharedIdentity) (muster.SharedIdentity, error) {
	return s.store.AddSharedIdentity(ctx, s.now(), s.by, a)
}

func (s session) RemoveSharedIdentity(ctx context.Context, kind muster.SharedKind, value string) error {
	return s.store.RemoveSharedIdentity(ctx, s.now(), s.by, kind, value)
}

func (s session) NetworkUsage(ctx context.Context) ([]muster.NetworkUsage, error) {
	return s.store.NetworkUsage(ctx)
}

func (s session) NoiseLimits(ctx context.Context) ([]muster.NoiseLimit, error) {
	return s.store.NoiseLimits(ctx)
}
