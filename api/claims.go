package api

import (
	"context"

	"muster.internal"
)

type claimsQuery struct {
	Node   string `query:"node" maxLength:"64" doc:"only those on this node and its disks"`
	Holder string `query:"holder" maxLength:"64" doc:"only those of this holder"`
	Ended  bool   `query:"ended" doc:"those that are over, too, for 30 days"`
}

type claimQuery struct {
	ID     string `path:"id" maxLength:"64"`
	Unless string `query:"unless" enum:"held,draining,released" doc:"with wait: answer when the state is another one"`
	Wait   int    `query:"wait" minimum:"0" maximum:"60" doc:"seconds to wait for another state than unless"`
}

// claims serves what other schedulers say they still need.
func (a *API) claims() {
	read, claim := may(muster.ActNodeRead), may(muster.ActClaim)
	add(a, op{method: get, path: "/v1/claims", id: "list-claims", summary: "List what other schedulers still need", acts: read},
		func(ctx context.Context, s Session, in *claimsQuery) (list[muster.Claim], error) {
			return listed(s.Claims(ctx, muster.ClaimFilter{NodeID: in.Node, Holder: in.Holder, Ended: in.Ended}))
		})
	add(a, op{method: get, path: "/v1/claims/{id}", id: "get-claim", summary: "Show a claim, or wait until its state is another one", acts: read, long: true},
		func(ctx context.Context, s Session, in *claimQuery) (muster.Claim, error) {
			return s.Claim(ctx, in.ID, muster.ClaimWait{Unless: muster.ClaimState(in.Unless), Wait: seconds(in.Wait)})
		})
	add(a, op{method: post, path: "/v1/claims", id: "add-claim", summary: "Claim a node or a disk; one's own is renewed", acts: claim, status: 201},
		func(ctx context.Context, s Session, in *body[muster.NewClaim]) (muster.Claim, error) {
			return s.AddClaim(ctx, in.Body)
		})
	add(a, op{method: post, path: "/v1/claims/{id}/renew", id: "renew-claim", summary: "Give one's claim another lease", acts: claim},
		func(ctx context.Context, s Session, in *idBody[muster.ClaimRenewal]) (muster.Claim, error) {
			return s.RenewClaim(ctx, in.ID, in.Body)
		})
	add(a, op{method: post, path: "/v1/claims/{id}/release", id: "release-claim", summary: "Give one's claim up", acts: claim},
		func(ctx context.Context, s Session, in *id) (muster.Claim, error) {
			return s.ReleaseClaim(ctx, in.ID)
		})
	add(a, op{method: post, path: "/v1/claims/{id}/break", id: "break-claim", summary: "End somebody else's claim", acts: may(muster.ActClaimBreak)},
		func(ctx context.Context, s Session, in *idBody[muster.ClaimBreak]) (muster.Claim, error) {
			return s.BreakClaim(ctx, in.ID, in.Body)
		})
}
