package api

import (
	"context"

	"muster.internal"
)

type feedQuery struct {
	Booter string `query:"booter" required:"true" maxLength:"64" doc:"the booter's name"`
	After  int64  `query:"after" minimum:"0" doc:"position in the change feed; 0: everything"`
	Wait   int    `query:"wait" minimum:"0" maximum:"60" doc:"seconds to wait for a change"`
}

type booterName struct {
	Name string `path:"name" maxLength:"64"`
}

type sightings struct {
	Booter    string            `json:"booter"`
	Sightings []muster.Sighting `json:"sightings" maxItems:"1000"`
}

type traces struct {
	Booter string             `json:"booter"`
	Traces []muster.BootTrace `json:"traces" maxItems:"128"`
}

// traceLimit is above the longest batch of full traces: each is up to 16 steps
// with two packets of 640 bytes in base64, and what was decided on them.
const traceLimit = 8 << 20

// booters serves the booter's two keys: ur_enroll announces and surveys, booter
// does the rest.
func (a *API) booters() {
	feed, install, announce := may(muster.ActBooterFeed), may(muster.ActBooterInstall), may(muster.ActAnnounce)
	add(a, op{method: get, path: "/v1/booters", id: "list-booters", summary: "List booters and how far they are", acts: may(muster.ActBootRead)},
		func(ctx context.Context, s Session, _ *nothing) (list[muster.BooterStatus], error) {
			return listed(s.Booters(ctx))
		})
	do(a, op{method: remove, path: "/v1/booters/{name}", id: "remove-booter", summary: "Forget a booter that is gone for good", acts: may(muster.ActBooterRemove)},
		func(ctx context.Context, s Session, in *booterName) error { return s.RemoveBooter(ctx, in.Name) })
	add(a, op{method: get, path: "/v1/booter/feed", id: "booter-feed", summary: "Follow what a booter must know", acts: feed, long: true},
		func(ctx context.Context, s Session, in *feedQuery) (muster.BooterFeed, error) {
			return s.Feed(ctx, in.Booter, in.After, seconds(in.Wait))
		})
	add(a, op{method: post, path: "/v1/booter/sightings", id: "booter-sight", summary: "Report machines that asked for something to boot", acts: feed},
		func(ctx context.Context, s Session, in *body[sightings]) (list[muster.BootRecord], error) {
			return listed(s.Sight(ctx, in.Body.Booter, in.Body.Sightings))
		})
	do(a, op{method: post, path: "/v1/booter/traces", id: "booter-traces", summary: "Report what passed between the booter and machines", acts: feed, limit: traceLimit},
		func(ctx context.Context, s Session, in *body[traces]) error {
			return s.ReportTraces(ctx, in.Body.Booter, in.Body.Traces)
		})
	do(a, op{method: post, path: "/v1/booter/status", id: "booter-status", summary: "Report what is staged and how the booter fares", acts: feed},
		func(ctx context.Context, s Session, in *body[muster.BooterStatus]) error {
			return s.ReportBooter(ctx, in.Body)
		})
	add(a, op{method: post, path: "/v1/booter/announce", id: "announce", summary: "Announce a machine heard on the boot bus", acts: announce, limit: sysinfoLimit},
		func(ctx context.Context, s Session, in *body[muster.Announcement]) (muster.Announced, error) {
			return s.Announce(ctx, in.Body)
		})
	do(a, op{method: post, path: "/v1/booter/registrations/{uuid}/survey", id: "survey", summary: "Report a machine's disks", acts: announce},
		func(ctx context.Context, s Session, in *uuidBody[muster.Survey]) error {
			return s.Survey(ctx, in.UUID, in.Body)
		})
	do(a, op{method: post, path: "/v1/booter/registrations/{uuid}/session-changed", id: "session-changed", summary: "Tell that another connection took, or tried, a machine's queue", acts: announce},
		func(ctx context.Context, s Session, in *uuidBody[muster.SessionChange]) error {
			return s.SessionChanged(ctx, in.UUID, in.Body)
		})
	add(a, op{method: post, path: "/v1/booter/registrations/{uuid}/take", id: "take-bundle", summary: "Take an approved setup's bundle, once", acts: install},
		func(ctx context.Context, s Session, in *uuidBody[muster.TakeRequest]) (muster.TakenBundle, error) {
			return s.TakeBundle(ctx, in.UUID, in.Body)
		})
	do(a, op{method: post, path: "/v1/booter/registrations/{uuid}/setup-complete", id: "setup-complete", summary: "Report that a setup succeeded", acts: install},
		func(ctx context.Context, s Session, in *uuidBody[muster.SetupOutcome]) error {
			return s.SetupComplete(ctx, in.UUID, in.Body)
		})
	do(a, op{method: post, path: "/v1/booter/registrations/{uuid}/setup-failed", id: "setup-failed", summary: "Report that a setup failed", acts: install},
		func(ctx context.Context, s Session, in *uuidBody[muster.SetupOutcome]) error {
			return s.SetupFailed(ctx, in.UUID, in.Body)
		})
}

type pollQuery struct {
	PollToken string `query:"poll_token" required:"true" maxLength:"64"`
	Wait      int    `query:"wait" minimum:"0" maximum:"60" doc:"seconds to wait for an approval"`
}

// hosts serves the host on a machine: anonymous until it has its key.
func (a *API) hosts() {
	register := may(muster.ActRegister)
	add(a, op{method: post, path: "/v1/agent/register", id: "register", summary: "Ask for a claim code", acts: register},
		func(ctx context.Context, s Session, in *body[muster.RegisterRequest]) (muster.RegisterReply, error) {
			return s.Register(ctx, in.Body)
		})
	add(a, op{method: get, path: "/v1/agent/register/status", id: "register-status", summary: "Wait for the approval; delivers the key once", acts: register, long: true},
		func(ctx context.Context, s Session, in *pollQuery) (muster.RegisterStatus, error) {
			return s.RegisterStatus(ctx, in.PollToken, seconds(in.Wait))
		})
	add(a, op{method: post, path: "/v1/agent/refresh", id: "refresh", summary: "Say what a live machine is", acts: may(muster.ActRefresh), limit: sysinfoLimit},
		func(ctx context.Context, s Session, in *body[muster.RefreshRequest]) (muster.Registration, error) {
			return s.Refresh(ctx, in.Body)
		})
	add(a, op{method: post, path: "/v1/agent/heartbeat", id: "heartbeat", summary: "Say that the machine lives", acts: may(muster.ActHeartbeat)},
		func(ctx context.Context, s Session, in *body[muster.Heartbeat]) (muster.HeartbeatReply, error) {
			return s.Heartbeat(ctx, in.Body)
		})
}
