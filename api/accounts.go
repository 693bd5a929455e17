package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"muster.internal"
)

type keyID struct {
	ID string `path:"id" maxLength:"64"`
}

type healthAnswer struct {
	Status string `json:"status"`
}

func (a *API) aboutItself() {
	open := may(muster.ActHealth)
	add(a, op{method: get, path: "/healthz", id: "healthz", summary: "Tell that the process lives", acts: open},
		func(context.Context, Session, *nothing) (healthAnswer, error) { return healthAnswer{"ok"}, nil })
	add(a, op{method: get, path: "/readyz", id: "readyz", summary: "Tell whether requests can be answered", acts: open},
		func(ctx context.Context, _ Session, _ *nothing) (healthAnswer, error) {
			if a.drain.Err() != nil {
				return healthAnswer{}, (*muster.Problem)(unavailable("muster is shutting down"))
			}
			if err := a.svc.Ready(ctx); err != nil {
				a.log.Warn("not ready", "error", err)
				if p := new(muster.Problem); errors.As(err, &p) && p.Code == muster.CodeUnavailable {
					return healthAnswer{}, p // whose words are for everybody
				}
				return healthAnswer{}, (*muster.Problem)(unavailable("the store cannot be reached"))
			}
			return healthAnswer{"ok"}, nil
		})
	stream(a, op{method: get, path: "/openapi.json", id: "openapi", summary: "This document", acts: open},
		func(context.Context, Session, *nothing) (func(huma.Context), error) {
			return func(ctx huma.Context) {
				ctx.SetHeader("Content-Type", "application/openapi+json")
				ctx.SetStatus(http.StatusOK)
				_, _ = ctx.BodyWriter().Write(a.spec)
			}, nil
		})
	add(a, op{method: get, path: "/v1/version", id: "version", summary: "Tell version, address and CA", acts: open},
		func(ctx context.Context, s Session, _ *nothing) (muster.Version, error) { return s.Version(ctx) })
}

func (a *API) accounts() {
	add(a, op{method: post, path: "/v1/login", id: "login", summary: "Exchange a password for a token", acts: may(muster.ActLogin), limit: loginLimit},
		func(ctx context.Context, s Session, in *body[muster.Login]) (muster.Token, error) {
			return s.Login(ctx, in.Body)
		})
	add(a, op{method: get, path: "/v1/operators", id: "list-operators", summary: "List operators", acts: may(muster.ActOperatorManage)},
		func(ctx context.Context, s Session, _ *nothing) (list[muster.Operator], error) {
			return listed(s.Operators(ctx))
		})
	add(a, op{method: post, path: "/v1/operators", id: "create-operator", summary: "Name another operator", acts: may(muster.ActOperatorManage), status: http.StatusCreated},
		func(ctx context.Context, s Session, in *body[muster.NewOperator]) (muster.Operator, error) {
			return s.CreateOperator(ctx, in.Body)
		})
	add(a, op{method: get, path: "/v1/keys", id: "list-keys", summary: "List API keys, without their secrets", acts: may(muster.ActKeyRead)},
		func(ctx context.Context, s Session, _ *nothing) (list[muster.APIKey], error) {
			return listed(s.Keys(ctx))
		})
	add(a, op{method: post, path: "/v1/keys", id: "create-key", summary: "Make an API key; its secret is shown once", acts: may(muster.ActKeyManage), status: http.StatusCreated},
		func(ctx context.Context, s Session, in *body[muster.NewKey]) (muster.CreatedKey, error) {
			return s.CreateKey(ctx, in.Body)
		})
	do(a, op{method: remove, path: "/v1/keys/{id}", id: "revoke-key", summary: "Revoke an API key", acts: may(muster.ActKeyManage)},
		func(ctx context.Context, s Session, in *keyID) error { return s.RevokeKey(ctx, in.ID) })
}

type auditQuery struct {
	After   int64  `query:"after" minimum:"0" doc:"only entries with a higher sequence number"`
	Subject string `query:"subject" maxLength:"256" doc:"e.g. registration/UUID"`
	Limit   int    `query:"limit" minimum:"1" maximum:"1000" doc:"default 1000"`
	Wait    int    `query:"wait" minimum:"0" maximum:"60" doc:"seconds to wait when there is none yet"`
}

func (a *API) audit() {
	read := may(muster.ActAuditRead)
	add(a, op{method: get, path: "/v1/audit", id: "list-audit", summary: "List audit entries, oldest first", acts: read, long: true},
		func(ctx context.Context, s Session, in *auditQuery) (list[muster.AuditEntry], error) {
			return listed(s.Audit(ctx, muster.AuditFilter{After: in.After, Subject: in.Subject, Limit: in.Limit, Wait: seconds(in.Wait)}))
		})
	add(a, op{method: get, path: "/v1/audit/verify", id: "verify-audit", summary: "Walk along the audit chain", acts: read},
		func(ctx context.Context, s Session, _ *nothing) (muster.AuditVerdict, error) {
			return s.VerifyAudit(ctx)
		})
}
