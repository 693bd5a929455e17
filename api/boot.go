package api

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"muster.internal"
	"muster.internal/lifecycle"
)

type bootQuery struct {
	State string `query:"state" enum:"discovered,enrolling,enrolled,decommissioned" doc:"only those in this state"`
	After string `query:"after" maxLength:"64" doc:"cursor: the last MAC of the page before"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" doc:"default 1000"`
}

type mac struct {
	MAC string `path:"mac" maxLength:"64"`
}

type macChange struct {
	MAC  string `path:"mac" maxLength:"64"`
	Body muster.BootChange
}

type macEvent struct {
	MAC   string `path:"mac" maxLength:"64"`
	Event string `path:"event" maxLength:"64" doc:"enroll, decommission or reactivate"`
}

func (a *API) bootRecords() {
	read, change := may(muster.ActBootRead), may(muster.ActBootChange)
	add(a, op{method: get, path: "/v1/boot-records", id: "list-boot-records", summary: "List boot records", acts: read},
		func(ctx context.Context, s Session, in *bootQuery) (list[muster.BootRecord], error) {
			rs, err := s.BootRecords(ctx, muster.BootFilter{State: muster.BootState(in.State), After: in.After, Limit: in.Limit})
			return paged(rs, in.Limit, func(r muster.BootRecord) string { return r.MAC }, err)
		})
	add(a, op{method: get, path: "/v1/boot-records/{mac}", id: "get-boot-record", summary: "Show a boot record; one never seen is made up as discovered", acts: read},
		func(ctx context.Context, s Session, in *mac) (muster.BootRecord, error) {
			return s.BootRecord(ctx, in.MAC)
		})
	add(a, op{method: get, path: "/v1/boot-records/{mac}/explain", id: "explain-boot", summary: "Say why this card boots, or does not, and what can be done", acts: read},
		func(ctx context.Context, s Session, in *mac) (muster.BootExplanation, error) {
			return s.ExplainBoot(ctx, in.MAC)
		})
	add(a, op{method: patch, path: "/v1/boot-records/{mac}", id: "set-boot-record", summary: "Change mode, image, kernel arguments or networking", acts: change},
		func(ctx context.Context, s Session, in *macChange) (muster.BootRecord, error) {
			return s.SetBootRecord(ctx, in.MAC, in.Body)
		})
	stream(a, op{method: remove, path: "/v1/boot-records/{mac}", id: "delete-boot-record", summary: "Not possible: decommission, or reactivate", acts: read},
		func(_ context.Context, _ Session, in *mac) (func(huma.Context), error) {
			p := muster.Problemf(muster.CodeNotAllowed,
				"boot record %s cannot be deleted, it would lose its address: decommission it to stop serving it, reactivate it to start over", in.MAC)
			p.Allowed = []string{"decommission", "reactivate"}
			return func(ctx huma.Context) {
				ctx.SetHeader("Allow", "GET, HEAD, PATCH")
				a.refuse(ctx, p)
			}, nil
		})
	add(a, op{method: post, path: "/v1/boot-records/{mac}/{event}", id: "raise-boot-record", summary: "Raise enroll, decommission or reactivate", acts: change},
		func(ctx context.Context, s Session, in *macEvent) (muster.BootRecord, error) {
			e, err := event(lifecycle.BootRecords, "a boot record", in.Event)
			if err != nil {
				return muster.BootRecord{}, err
			}
			return s.RaiseBootRecord(ctx, in.MAC, e)
		})
	add(a, op{method: get, path: "/v1/boot-policy", id: "get-boot-policy", summary: "Show the boot policy", acts: may(muster.ActPolicyRead)},
		func(ctx context.Context, s Session, _ *nothing) (muster.BootPolicy, error) { return s.BootPolicy(ctx) })
	add(a, op{method: put, path: "/v1/boot-policy", id: "set-boot-policy", summary: "Replace the boot policy", acts: may(muster.ActPolicyChange)},
		func(ctx context.Context, s Session, in *body[muster.BootPolicy]) (muster.BootPolicy, error) {
			return s.SetBootPolicy(ctx, in.Body)
		})
}
