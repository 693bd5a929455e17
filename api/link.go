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
	add(a, op{method: post, path: "/v1/nodes/{id}/resolve", id: "resolve-conflict", summary: "Say whether an adopted resource becomes as declared, or stays the machine's own", acts: may(muster.ActDeclare)},
		func(ctx context.Context, s Session, in *idBody[muster.ConflictResolution]) (muster.NodeDeclaration, error) {
			return s.ResolveConflict(ctx, in.ID, in.Body)
		})
	add(a, op{method: get, path: "/v1/nodes/{id}/briefing", id: "get-briefing", summary: "Show the last apply of a node in four words: ok, kept, unknown, failed", acts: read},
		func(ctx context.Context, s Session, in *id) (resource.Briefing, error) {
			return s.NodeBriefing(ctx, in.ID)
		})
	add(a, op{method: post, path: "/v1/nodes/{id}/orders", id: "order-node", summary: "Ask the host of a node for something (report_now, rekey, retire, reboot, reboot_drained)", acts: may(muster.ActNodeChange)},
		func(ctx context.Context, s Session, in *idBody[orderBody]) (muster.NodeOrder, error) {
			return s.OrderNode(ctx, in.ID, in.Body.Kind)
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
	add(a, op{method: get, path: "/v1/nodes/{id}/health", id: "get-health", summary: "Show what the host of a node sees of the placements that it checks", acts: read},
		func(ctx context.Context, s Session, in *id) (muster.NodeHealth, error) {
			return s.NodeHealth(ctx, in.ID)
		})
}

type orderBody struct {
	Kind muster.OrderKind `json:"verb" enum:"report_now,retire,rekey,reboot,reboot_drained"`
}

// grants serves what nodes may use outside of the control plane.
func (a *API) grants() {
	read, manage := may(muster.ActNodeRead), may(muster.ActProviderManage)
	type provider struct {
		Name string `path:"name" maxLength:"64"`
	}
	type grant struct {
		ID       string `path:"id" maxLength:"64"`
		Provider string `path:"provider" maxLength:"64"`
	}
	add(a, op{method: post, path: "/v1/providers", id: "add-provider", summary: "Keep where grants are made, with the credential to make them", acts: manage, status: 201},
		func(ctx context.Context, s Session, in *body[muster.NewProvider]) (muster.Provider, error) {
			return s.AddProvider(ctx, in.Body)
		})
	add(a, op{method: get, path: "/v1/providers", id: "list-providers", summary: "List where grants are made", acts: read},
		func(ctx context.Context, s Session, _ *nothing) ([]muster.Provider, error) { return s.Providers(ctx) })
	do(a, op{method: remove, path: "/v1/providers/{name}", id: "remove-provider", summary: "Forget a provider at which no grant stands", acts: manage, status: 204},
		func(ctx context.Context, s Session, in *provider) error { return s.RemoveProvider(ctx, in.Name) })
	add(a, op{method: post, path: "/v1/nodes/{id}/grants", id: "grant-node", summary: "Make a node a credential of its own at a provider", acts: may(muster.ActNodeChange), status: 201},
		func(ctx context.Context, s Session, in *idBody[muster.NewGrant]) (muster.Grant, error) {
			return s.GrantNode(ctx, in.ID, in.Body)
		})
	add(a, op{method: get, path: "/v1/nodes/{id}/grants", id: "list-grants", summary: "List what a node may use, and what it might", acts: read},
		func(ctx context.Context, s Session, in *id) ([]muster.Grant, error) { return s.NodeGrants(ctx, in.ID) })
	add(a, op{method: remove, path: "/v1/nodes/{id}/grants/{provider}", id: "revoke-grant", summary: "End what a node may use at a provider", acts: may(muster.ActNodeChange)},
		func(ctx context.Context, s Session, in *grant) (muster.Grant, error) {
			return s.RevokeGrant(ctx, in.ID, in.Provider)
		})
}

// Limits of what a host says, in bytes: of each resource that a declaration can
// have, some hundreds.
const (
	mirrorLimit  = 32 << 20
	profileLimit = 1 << 20
)

type healthList struct {
	Health []muster.PlacementHealth `json:"health" nullable:"false"`
}

type ownedList struct {
	Owned []resource.Owned `json:"owned" nullable:"false"`
}

// link serves the hosts of nodes, which their certificates speak for.
func (a *API) link() {
	mine := may(muster.ActLink)
	add(a, op{method: post, path: "/v1/link/certificate", id: "link-certificate", summary: "Have a host's key signed, or its certificate renewed", acts: may(muster.ActLinkCertificate), limit: loginLimit},
		func(ctx context.Context, s Session, in *body[muster.CertificateRequest]) (muster.Certificate, error) {
			return s.LinkCertificate(ctx, in.Body)
		})
	add(a, op{method: post, path: "/v1/link/next", id: "link-next", summary: "Wait for what is new for this node", acts: mine, long: true, lenient: true, limit: loginLimit},
		func(ctx context.Context, s Session, in *body[muster.LinkPoll]) (muster.LinkAnswer, error) {
			return s.LinkNext(ctx, in.Body)
		})
	add(a, op{method: post, path: "/v1/link/key", id: "link-key", summary: "Have the next agent key, when asked to rekey", acts: mine},
		func(ctx context.Context, s Session, _ *nothing) (muster.LinkKey, error) { return s.LinkKey(ctx) })
	do(a, op{method: post, path: "/v1/link/report", id: "link-report", summary: "Report how an apply went", acts: mine, lenient: true, limit: mirrorLimit},
		func(ctx context.Context, s Session, in *body[resource.Report]) error {
			return s.LinkReport(ctx, in.Body)
		})
	do(a, op{method: put, path: "/v1/link/profile", id: "link-profile", summary: "Say what the machine is", acts: mine, lenient: true, limit: profileLimit},
		func(ctx context.Context, s Session, in *body[muster.Profile]) error {
			return s.LinkProfile(ctx, in.Body)
		})
	do(a, op{method: put, path: "/v1/link/hardware", id: "link-hardware", summary: "Say what the machine is made of", acts: mine, lenient: true, limit: profileLimit},
		func(ctx context.Context, s Session, in *body[muster.Hardware]) error {
			return s.LinkHardware(ctx, in.Body)
		})
	do(a, op{method: put, path: "/v1/link/owned", id: "link-set-owned", summary: "Mirror what the host answers for, whole", acts: mine, lenient: true, limit: mirrorLimit},
		func(ctx context.Context, s Session, in *body[ownedList]) error {
			return s.SetLinkOwned(ctx, in.Body.Owned)
		})
	do(a, op{method: put, path: "/v1/link/health", id: "link-set-health", summary: "Say what the host sees of the placements that it checks, whole", acts: mine, lenient: true, limit: profileLimit},
		func(ctx context.Context, s Session, in *body[healthList]) error {
			return s.SetLinkHealth(ctx, in.Body.Health)
		})
	add(a, op{method: get, path: "/v1/link/owned", id: "link-owned", summary: "Give the mirror back to a host that lost its store", acts: mine},
		func(ctx context.Context, s Session, _ *nothing) (ownedList, error) {
			owned, err := s.LinkOwned(ctx)
			return ownedList{owned}, err
		})
}
