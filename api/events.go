package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"muster.internal"
)

// Of event streams.
const (
	streamsAtOnce = 256              // in this process
	streamWrite   = 20 * time.Second // after which a reader that takes nothing is gone
)

type progressQuery struct {
	UUID  string `path:"uuid" maxLength:"64"`
	Epoch int64  `query:"epoch" minimum:"0" doc:"of which setup; 0: the newest"`
	After int64  `query:"after" minimum:"0" doc:"only lines with a higher number"`
	Wait  int    `query:"wait" minimum:"0" maximum:"60" doc:"seconds to wait for a line, or for the end"`
}

type operationQuery struct {
	ID    string `path:"id" maxLength:"64" doc:"the operation id that the approval answered with"`
	After int64  `query:"after" minimum:"0" doc:"only lines with a higher number"`
}

type eventsQuery struct {
	After       int64  `query:"after" minimum:"-1" default:"-1" doc:"events above this one; absent: what is yet to come"`
	Last        int    `query:"last" minimum:"0" maximum:"1000" doc:"without after: look back over that many changes first"`
	Subject     string `query:"subject" maxLength:"256" doc:"e.g. registration/UUID"`
	Kind        string `query:"kind" maxLength:"128" doc:"a kind, or what it begins with: registration, registration.progress"`
	LastEventID string `header:"Last-Event-ID" maxLength:"32" doc:"as after, and before it: what a browser sends when it comes back"`
}

// progress serves what can be watched.
func (a *API) progress() {
	read := may(muster.ActRegistrationRead)
	add(a, op{method: get, path: "/v1/registrations/{uuid}/progress", id: "get-progress", summary: "Show how a machine's setup goes or went", acts: read, long: true},
		func(ctx context.Context, s Session, in *progressQuery) (muster.InstallLog, error) {
			return s.InstallLog(ctx, muster.InstallQuery{ServerUUID: in.UUID, Epoch: in.Epoch, After: in.After, Wait: seconds(in.Wait)})
		})
	add(a, op{method: get, path: "/v1/install-logs/{id}", id: "get-install-log", summary: "Show an install log by its operation", acts: read},
		func(ctx context.Context, s Session, in *operationQuery) (muster.InstallLog, error) {
			return s.InstallLog(ctx, muster.InstallQuery{OperationID: in.ID, After: in.After})
		})
	do(a, op{method: post, path: "/v1/booter/registrations/{uuid}/progress", id: "report-progress", summary: "Report lines of a setup on its way", acts: may(muster.ActBooterInstall)},
		func(ctx context.Context, s Session, in *uuidBody[muster.SetupProgress]) error {
			return s.SetupProgress(ctx, in.UUID, in.Body)
		})
	stream(a, op{method: get, path: "/v1/events", id: "events", summary: "Follow changes (audit readers) and installs on their way (registration readers) as server-sent events",
		acts: may(muster.ActAuditRead, muster.ActRegistrationRead)}, a.events)
}

// events checks the question, and answers for as long as the reader stays.
func (a *API) events(_ context.Context, s Session, in *eventsQuery) (func(huma.Context), error) {
	q := muster.EventQuery{After: in.After, Last: in.Last, Subject: in.Subject, Kind: in.Kind}
	if in.LastEventID != "" {
		if n, err := fmt.Sscan(in.LastEventID, &q.After); err != nil || n != 1 || q.After < 0 {
			return nil, muster.Invalid("Last-Event-ID", "is not the number of an event")
		}
	}
	select {
	case a.streams <- struct{}{}:
	default:
		return nil, (*muster.Problem)(unavailable(fmt.Sprintf("too many event streams at once (%d); come again", streamsAtOnce)))
	}
	return func(ctx huma.Context) {
		defer func() { <-a.streams }()
		a.follow(ctx, s, q)
	}, nil
}

// A wire writes server-sent events. Nothing is sent before there is something
// to say, so that a refusal can still be a plain problem.
type wire struct {
	w       http.ResponseWriter
	ctl     *http.ResponseController
	started bool
}

func (o *wire) write(format string, args ...any) error {
	if !o.started {
		o.started = true
		h := o.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("X-Accel-Buffering", "no")
		o.w.WriteHeader(http.StatusOK)
	}
	o.ctl.SetWriteDeadline(time.Now().Add(streamWrite))
	if _, err := fmt.Fprintf(o.w, format, args...); err != nil {
		return err
	}
	return o.ctl.Flush()
}

func (o *wire) event(e muster.FeedEvent) error {
	data, err := json.Marshal(e)
	switch {
	case err != nil:
		return err
	case e.ID == 0:
		return o.write("event: %s\ndata: %s\n\n", e.Kind, data)
	}
	return o.write("id: %d\nevent: %s\ndata: %s\n\n", e.ID, e.Kind, data)
}

func (a *API) follow(hc huma.Context, s Session, q muster.EventQuery) {
	r, w := humago.Unwrap(hc)
	ctx, end := a.untilDrained(hc.Context())
	defer end()
	ctx, end = a.whileTrusted(ctx)
	defer end()
	o := &wire{w: w, ctl: http.NewResponseController(w)}
	err := s.Events(ctx, q, func(e muster.FeedEvent) error {
		if e.Kind != "" {
			return o.event(e)
		}
		// An id without data moves the reader's place, and is no event.
		return o.write(": so far\nid: %d\n\n", e.ID)
	})
	if lost := distrusted(ctx); lost != nil {
		err = lost
	}
	var p *muster.Problem
	switch {
	case r.Context().Err() != nil:
		return // the reader went away
	case a.drain.Err() != nil:
		p = muster.Problemf(muster.CodeUnavailable, "the control plane stops; come again after the last event")
	case !errors.As(err, &p):
		p = (*muster.Problem)(a.problemOf(r.Context(), err))
	}
	if !o.started {
		a.refuse(hc, p)
		return
	}
	if data, err := json.Marshal(p); err == nil {
		o.write("event: end\ndata: %s\n\n", data)
	}
}
