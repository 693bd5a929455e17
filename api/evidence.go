package api

import (
	"context"

	"muster.internal"
	"muster.internal/lifecycle"
)

type machineQuery struct {
	State string `query:"state" enum:"known,conflict" doc:"only those in this state"`
	After string `query:"after" maxLength:"64" doc:"cursor: the last machine id of the page before"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" doc:"default 1000"`
}

type machineID struct {
	ID string `path:"id" maxLength:"64"`
}

type machineEvent struct {
	ID    string `path:"id" maxLength:"64"`
	Event string `path:"event" maxLength:"64" doc:"accept, separate, move-nic or forget"`
}

type sharedValue struct {
	Kind  string `path:"kind" enum:"uuid,serial,mac"`
	Value string `path:"value" maxLength:"128"`
}

func (a *API) evidence() {
	read, change := may(muster.ActMachineRead), may(muster.ActMachineChange)
	add(a, op{method: get, path: "/v1/machines", id: "list-machines", summary: "List machines: what is registered, and what waits in conflict", acts: read},
		func(ctx context.Context, s Session, in *machineQuery) (list[muster.Machine], error) {
			ms, err := s.Machines(ctx, muster.MachineFilter{State: muster.MachineState(in.State), After: in.After, Limit: in.Limit})
			return paged(ms, in.Limit, func(m muster.Machine) string { return m.ID }, err)
		})
	add(a, op{method: get, path: "/v1/machines/{id}", id: "get-machine", summary: "Show a machine, with its evidence and who waits because of it", acts: read},
		func(ctx context.Context, s Session, in *machineID) (muster.Machine, error) {
			return s.Machine(ctx, in.ID)
		})
	add(a, op{method: post, path: "/v1/machines/{id}/{event}", id: "raise-machine", summary: "Resolve a conflict: accept, separate, move-nic or forget", acts: change},
		func(ctx context.Context, s Session, in *machineEvent) (muster.Machine, error) {
			e, err := event(lifecycle.Machines, "a machine", in.Event)
			if err != nil {
				return muster.Machine{}, err
			}
			return s.RaiseMachine(ctx, in.ID, e)
		})
	add(a, op{method: get, path: "/v1/shared-identities", id: "list-shared-identities", summary: "List UUIDs, serial numbers and MAC addresses that many machines have", acts: read},
		func(ctx context.Context, s Session, _ *nothing) (list[muster.SharedIdentity], error) {
			return listed(s.SharedIdentities(ctx))
		})
	add(a, op{method: post, path: "/v1/shared-identities", id: "add-shared-identity", summary: "Say that a UUID, serial number or MAC address is no evidence", acts: change},
		func(ctx context.Context, s Session, in *body[muster.SharedIdentity]) (muster.SharedIdentity, error) {
			return s.AddSharedIdentity(ctx, in.Body)
		})
	do(a, op{method: remove, path: "/v1/shared-identities/{kind}/{value}", id: "remove-shared-identity", summary: "Make a value evidence again", acts: change},
		func(ctx context.Context, s Session, in *sharedValue) error {
			return s.RemoveSharedIdentity(ctx, muster.SharedKind(in.Kind), in.Value)
		})
	add(a, op{method: get, path: "/v1/boot-networks", id: "list-boot-networks", summary: "Count the addresses of every admin network", acts: may(muster.ActPolicyRead)},
		func(ctx context.Context, s Session, _ *nothing) (list[muster.NetworkUsage], error) {
			return listed(s.NetworkUsage(ctx))
		})
	add(a, op{method: get, path: "/v1/limits", id: "list-limits", summary: "Show the caps on what nobody approved, and how near they are", acts: may(muster.ActPolicyRead)},
		func(ctx context.Context, s Session, _ *nothing) (list[muster.NoiseLimit], error) {
			return listed(s.NoiseLimits(ctx))
		})
}
