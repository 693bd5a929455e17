package api

import (
	"context"

	"muster.internal"
	"muster.internal/lifecycle"
)

type (
	id struct {
		ID string `path:"id" maxLength:"64"`
	}
	idBody[T any] struct {
		ID   string `path:"id" maxLength:"64"`
		Body T
	}
	nodeEvent struct {
		ID    string `path:"id" maxLength:"64"`
		Event string `path:"event" maxLength:"64" doc:"no-provision, quiesce, resume or graceful-remove"`
	}
	diskEvent struct {
		ID    string `path:"id" maxLength:"64"`
		Event string `path:"event" maxLength:"64" doc:"graceful-remove or keep"`
	}
	operatorName struct {
		Name string `path:"name" maxLength:"64"`
	}
	operatorChange struct {
		Name string `path:"name" maxLength:"64"`
		Body muster.OperatorChange
	}
	macBody[T any] struct {
		MAC  string `path:"mac" maxLength:"64"`
		Body T
	}
)

// exits serves the ways out of a fleet.
func (a *API) exits() {
	change, expunge := may(muster.ActNodeChange), may(muster.ActExpunge)
	add(a, op{method: get, path: "/v1/nodes/{id}", id: "get-node", summary: "Show a node and what it holds", acts: may(muster.ActNodeRead)},
		func(ctx context.Context, s Session, in *id) (muster.NodeDetail, error) { return s.Node(ctx, in.ID) })
	add(a, op{method: post, path: "/v1/nodes/{id}/expunge", id: "expunge-node", summary: "Cut a node off for good", acts: expunge},
		func(ctx context.Context, s Session, in *idBody[muster.Expunge]) (muster.NodeDetail, error) {
			return s.ExpungeNode(ctx, in.ID, in.Body)
		})
	add(a, op{method: post, path: "/v1/nodes/{id}/acknowledge-foreign", id: "acknowledge-foreign", summary: "Say that workloads which are not muster's may be lost", acts: change},
		func(ctx context.Context, s Session, in *id) (muster.NodeDetail, error) {
			return s.AcknowledgeForeign(ctx, in.ID)
		})
	add(a, op{method: post, path: "/v1/nodes/{id}/{event}", id: "raise-node", summary: "Change what is wanted of a node (no-provision, quiesce, resume, graceful-remove)", acts: change},
		func(ctx context.Context, s Session, in *nodeEvent) (muster.Node, error) {
			e, err := event(lifecycle.Nodes, "a node", in.Event)
			if err != nil {
				return muster.Node{}, err
			}
			return s.RaiseNode(ctx, in.ID, e)
		})
	add(a, op{method: post, path: "/v1/disks/{id}/expunge", id: "expunge-disk", summary: "Say that a disk is gone or must go, for good", acts: expunge},
		func(ctx context.Context, s Session, in *idBody[muster.Expunge]) (muster.NodeDisk, error) {
			return s.ExpungeDisk(ctx, in.ID, in.Body)
		})
	add(a, op{method: post, path: "/v1/disks/{id}/{event}", id: "raise-disk", summary: "Change what is wanted of a disk (graceful-remove, keep)", acts: change},
		func(ctx context.Context, s Session, in *diskEvent) (muster.NodeDisk, error) {
			e, err := event(lifecycle.Disks, "a disk", in.Event)
			if err != nil {
				return muster.NodeDisk{}, err
			}
			return s.RaiseDisk(ctx, in.ID, e)
		})
	add(a, op{method: post, path: "/v1/registrations/{uuid}/readmit", id: "readmit", summary: "Lift the tombstone of an expunged machine", acts: expunge},
		func(ctx context.Context, s Session, in *uuid) (muster.Registration, error) {
			return s.RaiseRegistration(ctx, in.UUID, lifecycle.Readmit)
		})
	a.secrets()
}

// secrets serves root passwords, keys and operators that change.
func (a *API) secrets() {
	root := may(muster.ActRootPassword)
	add(a, op{method: put, path: "/v1/registrations/{uuid}/root-password", id: "set-root-password", summary: "Set a machine's root password; it is never shown again", acts: root, limit: loginLimit},
		func(ctx context.Context, s Session, in *uuidBody[muster.RootPassword]) (muster.RootPasswordSet, error) {
			return s.SetRootPassword(ctx, in.UUID, in.Body)
		})
	do(a, op{method: remove, path: "/v1/registrations/{uuid}/root-password", id: "clear-root-password", summary: "Forget a machine's root password", acts: root},
		func(ctx context.Context, s Session, in *uuid) error { return s.ClearRootPassword(ctx, in.UUID) })
	add(a, op{method: post, path: "/v1/booter/boot-records/{mac}/root-password", id: "take-root-password", summary: "Fetch the root password's hash for one boot, once", acts: may(muster.ActBooterInstall), limit: loginLimit},
		func(ctx context.Context, s Session, in *macBody[muster.BootSecretRequest]) (muster.BootSecret, error) {
			return s.TakeRootPassword(ctx, in.MAC, in.Body)
		})
	add(a, op{method: post, path: "/v1/keys/{id}/rotate", id: "rotate-key", summary: "Give an API key another secret, shown once", acts: may(muster.ActKeyManage)},
		func(ctx context.Context, s Session, in *idBody[muster.KeyRotation]) (muster.CreatedKey, error) {
			return s.RotateKey(ctx, in.ID, in.Body)
		})
	manage := may(muster.ActOperatorManage)
	add(a, op{method: patch, path: "/v1/operators/{name}", id: "change-operator", summary: "Change somebody's role or password", acts: manage, limit: loginLimit},
		func(ctx context.Context, s Session, in *operatorChange) (muster.Operator, error) {
			return s.ChangeOperator(ctx, in.Name, in.Body)
		})
	do(a, op{method: remove, path: "/v1/operators/{name}", id: "remove-operator", summary: "End somebody's access at once", acts: manage},
		func(ctx context.Context, s Session, in *operatorName) error { return s.RemoveOperator(ctx, in.Name) })
	do(a, op{method: post, path: "/v1/password", id: "change-password", summary: "Change one's own password; every token of it is dead", acts: may(muster.ActPasswordChange), limit: loginLimit},
		func(ctx context.Context, s Session, in *body[muster.PasswordChange]) error {
			return s.ChangePassword(ctx, in.Body)
		})
}
