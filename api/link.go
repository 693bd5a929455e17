package api

import (
	"context"

	"muster.internal"
	"muster.internal/resource"
)

// declarations serves what operators see and say of what nodes are told to be.
func (a *API) declarations() {
	read := may(muster.ActNodeRead)
	add(a, op{method: put, path: "/v1/nodes/{id}/declaration", id: "declare", summary: "Tell a node what to be from now on", acts: may(muster.ActDeclare), limit: resource.MaxBytes},
		func(ctx context.Context, s Session, in *idBody[resource.Declaration]) (muster.NodeDeclaration, error) {
			return s.Declare(ctx, in.ID, in.Body)
		})
	add(a, op{method: get, path: "/v1/nodes/{id}/declaration", id: "get-declaration", summary: "Show what a node is told to be; of secrets, the hashes", acts: read},
		func(ctx context.Context, s Session, in *id) (muster.NodeDeclaration, error) {
			return s.Declaration(ctx, in.ID)
		})
	add(a, op{method: get, path: "/v1/nodes/{id}/report", id: "get-report", summary: "Show how the last apply of a node went", acts: read},
		func(ctx context.Context, s Session, in *id) (muster.NodeReport, error) {
			return s.NodeReport(ctx, in.ID)
		})
	add(a, op{method: get, path: "/v1/nodes/{id}/owned", id: "get-owned", summary: "Show what the host of a node answers for", acts: read},
		func(ctx context.Context, s Session, in *id) (muster.NodeOwned, error) { return s.NodeOwned(ctx, in.ID) })
	add(a, op{method: get, path: "/v1/nodes/{id}/profile", id: "get-profile", summary: "Show what the host of a node says of its machine", acts: read},
		func(ctx context.Context, s Session, in *id) (muster.NodeProfile, error) {
			return s.NodeProfile(ctx, in.ID)
		})
}
