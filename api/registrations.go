package api

import (
	"context"

	"muster.internal"
	"muster.internal/lifecycle"
)

type registrationQuery struct {
	State string `query:"state" enum:"pending,approved,disabled,awaiting_setup,setting_up" doc:"only those in this state"`
	After string `query:"after" maxLength:"64" doc:"cursor: the last server UUID of the page before"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" doc:"default 1000"`
}

type uuidEvent struct {
	UUID  string `path:"uuid" maxLength:"64"`
	Event string `path:"event" maxLength:"64" doc:"an operator's event that needs no input: cancel-setup, disable or factory-reset"`
}

// event is the operator's event that the last segment of a path stands for.
func event(on lifecycle.Subject, what, verb string) (muster.Event, error) {
	i, ok := lifecycle.ByVerb(on, verb)
	if !ok {
		return "", muster.Problemf(muster.CodeNotFound, "%s has no event %q that an operator may raise", what, verb)
	}
	return i.Event, nil
}

type claimCode struct {
	Code string `json:"code" doc:"as the machine shows it: XXX-XXX"`
}

func (a *API) registrations() {
	read, change := may(muster.ActRegistrationRead), may(muster.ActRegistrationChange)
	add(a, op{method: get, path: "/v1/registrations", id: "list-registrations", summary: "List registrations", acts: read},
		func(ctx context.Context, s Session, in *registrationQuery) (list[muster.Registration], error) {
			rs, err := s.Registrations(ctx, muster.RegistrationFilter{State: muster.RegistrationState(in.State), After: in.After, Limit: in.Limit})
			return paged(rs, in.Limit, func(r muster.Registration) string { return r.ServerUUID }, err)
		})
	add(a, op{method: get, path: "/v1/registrations/{uuid}", id: "get-registration", summary: "Show a registration", acts: read},
		func(ctx context.Context, s Session, in *uuid) (muster.Registration, error) {
			return s.Registration(ctx, in.UUID)
		})
	do(a, op{method: remove, path: "/v1/registrations/{uuid}", id: "delete-registration", summary: "Delete a registration; absent is success", acts: change},
		func(ctx context.Context, s Session, in *uuid) error { return s.DeleteRegistration(ctx, in.UUID) })
	add(a, op{method: post, path: "/v1/registrations/{uuid}/plan-setup", id: "plan-setup", summary: "Show the pool that an approval would build", acts: may(muster.ActSetupPlan)},
		func(ctx context.Context, s Session, in *uuidBody[muster.SetupRequest]) (muster.SetupPlan, error) {
			return s.PlanSetup(ctx, in.UUID, in.Body)
		})
	add(a, op{method: post, path: "/v1/registrations/{uuid}/approve-setup", id: "approve-setup", summary: "Approve destroying what is on the planned disks", acts: may(muster.ActSetupApprove)},
		func(ctx context.Context, s Session, in *uuidBody[muster.SetupApproval]) (muster.SetupGrant, error) {
			return s.ApproveSetup(ctx, in.UUID, in.Body)
		})
	add(a, op{method: post, path: "/v1/registrations/{uuid}/ticket", id: "issue-ticket", summary: "Make a short-lived ticket to a machine", acts: may(muster.ActTicketIssue)},
		func(ctx context.Context, s Session, in *uuidBody[muster.TicketRequest]) (muster.Ticket, error) {
			return s.IssueTicket(ctx, in.UUID, in.Body)
		})
	add(a, op{method: post, path: "/v1/registrations/{uuid}/{event}", id: "raise-registration", summary: "Raise an operator's event (cancel-setup, disable, factory-reset)", acts: change},
		func(ctx context.Context, s Session, in *uuidEvent) (muster.Registration, error) {
			e, err := event(lifecycle.Registrations, "a registration", in.Event)
			if err != nil {
				return muster.Registration{}, err
			}
			if e == lifecycle.Readmit { // it has a route of its own, for fewer callers
				return muster.Registration{}, muster.Problemf(muster.CodeForbidden, "to readmit takes an admin in person")
			}
			return s.RaiseRegistration(ctx, in.UUID, e)
		})
	add(a, op{method: post, path: "/v1/claim-codes/approve", id: "approve-claim-code", summary: "Approve the pending registration that shows a claim code", acts: may(muster.ActRegistrationApprove)},
		func(ctx context.Context, s Session, in *body[claimCode]) (muster.Registration, error) {
			return s.ApproveCode(ctx, in.Body.Code)
		})
	add(a, op{method: get, path: "/v1/nodes", id: "list-nodes", summary: "List nodes", acts: may(muster.ActNodeRead)},
		func(ctx context.Context, s Session, _ *nothing) (list[muster.Node], error) {
			return listed(s.Nodes(ctx))
		})
}
