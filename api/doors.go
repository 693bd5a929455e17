package api

import (
	"context"
	"net/http"

	"muster.internal"
)

// doors serves windows and enrolment tokens: ways in that an admin opens in
// person.
func (a *API) doors() {
	read, change := may(muster.ActDoorRead), may(muster.ActDoorChange)
	for _, k := range muster.WindowKinds {
		path, name := "/v1/"+string(k)+"-window", string(k)+"-window"
		add(a, op{method: get, path: path, id: "get-" + name, summary: "Tell how the window stands", acts: read},
			func(ctx context.Context, s Session, _ *nothing) (muster.Window, error) { return s.Window(ctx, k) })
		add(a, op{method: post, path: path, id: "open-" + name, summary: "Open the window for at most a day, in place of one that is open", acts: change},
			func(ctx context.Context, s Session, in *body[muster.NewWindow]) (muster.Window, error) {
				return s.OpenWindow(ctx, k, in.Body)
			})
		do(a, op{method: remove, path: path, id: "close-" + name, summary: "Close the window; closed is success", acts: change},
			func(ctx context.Context, s Session, _ *nothing) error { return s.CloseWindow(ctx, k) })
	}
	add(a, op{method: get, path: "/v1/enrolment-tokens", id: "list-enrolment-tokens", summary: "List enrolment tokens, without their secrets", acts: read},
		func(ctx context.Context, s Session, _ *nothing) (list[muster.EnrolmentToken], error) {
			return listed(s.EnrolmentTokens(ctx))
		})
	add(a, op{method: post, path: "/v1/enrolment-tokens", id: "issue-enrolment-token", summary: "Issue an enrolment token; it is shown once", acts: change, status: http.StatusCreated},
		func(ctx context.Context, s Session, in *body[muster.NewEnrolmentToken]) (muster.IssuedEnrolmentToken, error) {
			return s.IssueEnrolmentToken(ctx, in.Body)
		})
	do(a, op{method: remove, path: "/v1/enrolment-tokens/{id}", id: "revoke-enrolment-token", summary: "Revoke an enrolment token that was not used", acts: change},
		func(ctx context.Context, s Session, in *keyID) error { return s.RevokeEnrolmentToken(ctx, in.ID) })
	add(a, op{method: post, path: "/v1/agent/enrol", id: "enrol", summary: "Redeem an enrolment token; the answer holds the machine's key", acts: may(muster.ActRegister)},
		func(ctx context.Context, s Session, in *body[muster.EnrolRequest]) (muster.EnrolReply, error) {
			return s.Enrol(ctx, in.Body)
		})
}
