package api_test

import "muster.internal"

func (s session) Machines(_ ctx, f muster.MachineFilter) ([]muster.Machine, error) {
	return answer[[]muster.Machine](s.f, "Machines", f)
}

func (s session) Machine(_ ctx, id string) (muster.Machine, error) {
	return answer[muster.Machine](s.f, "Machine", id)
}

func (s session) RaiseMachine(_ ctx, id string, e muster.Event) (muster.Machine, error) {
	return answer[muster.Machine](s.f, "RaiseMachine", id, e)
}

func (s session) SharedIdentities(ctx) ([]muster.SharedIdentity, error) {
	return answer[[]muster.SharedIdentity](s.f, "SharedIdentities")
}

func (s session) AddSharedIdentity(_ ctx, a muster.SharedIdentity) (muster.SharedIdentity, error) {
	return answer[muster.SharedIdentity](s.f, "AddSharedIdentity", a)
}

func (s session) RemoveSharedIdentity(_ ctx, kind muster.SharedKind, value string) error {
	return s.f.note("RemoveSharedIdentity", kind, value)
}

func (s session) NetworkUsage(ctx) ([]muster.NetworkUsage, error) {
	return answer[[]muster.NetworkUsage](s.f, "NetworkUsage")
}

func (s session) NoiseLimits(ctx) ([]muster.NoiseLimit, error) {
	return answer[[]muster.NoiseLimit](s.f, "NoiseLimits")
}
