package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"muster.internal"
)

// Limits of request bodies in bytes; blobs have none, their digest guards them.
const (
	bodyLimit    = 1 << 20
	sysinfoLimit = 6 << 20
	loginLimit   = 4 << 10
)

// What strangers may make this process hold: bodies above largeBody come only
// so many at once. A machine that says less of itself never waits for them.
const (
	largeBody   = 64 << 10
	largeAtOnce = 16
)

// pollsAtOnce is how many requests may wait for something to happen. Strangers,
// who wait for their approval, have as many of their own: they must not keep
// booters and people from waiting.
const pollsAtOnce = 4096

// nodesAtOnce is how many nodes may wait for what is new, each with one request.
const nodesAtOnce = 16384

// bodyTimeout bounds how long a JSON body may take to arrive.
const bodyTimeout = 30 * time.Second

// An op is one row of the API.
type op struct {
	method, path string
	id, summary  string
	acts         []muster.Action
	limit        int64 // of the body; 0: bodyLimit
	long         bool  // a long poll
	lenient      bool  // what a newer host says beside what is known here is not looked at
	status       int   // of success; 0: 200, or 204 without a body
	body         string
}

func may(acts ...muster.Action) []muster.Action { return acts }

const (
	actionsKey = "x-muster-actions"
	longKey    = "long"
)

func (o op) operation() huma.Operation {
	limit := o.limit
	if limit == 0 {
		limit = bodyLimit
	}
	h := huma.Operation{
		Method: o.method, Path: o.path, OperationID: o.id, Summary: o.summary,
		Tags:            []string{strings.SplitN(strings.TrimPrefix(o.path, "/v1/"), "/", 2)[0]},
		DefaultStatus:   o.status,
		MaxBodyBytes:    limit + 1, // huma refuses a body of exactly this size
		BodyReadTimeout: bodyTimeout,
		Metadata:        map[string]any{actionsKey: o.acts, longKey: o.long},
		Extensions:      map[string]any{actionsKey: o.acts},

		SkipValidateBody: o.lenient,
	}
	if !mayAny(muster.Caller{}, o.acts) {
		h.Security = []map[string][]string{{"bearer": {}}}
	}
	if o.body != "" {
		h.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			o.body: {Schema: &huma.Schema{Type: "string", Format: "binary"}},
		}}
	}
	return h
}

type reply[O any] struct{ Body O }

// add serves a route that answers with a body.
func add[I, O any](a *API, o op, f func(ctx context.Context, s Session, in *I) (O, error)) {
	a.routes = append(a.routes, Route{o.method, o.path, o.acts})
	huma.Register(a.huma, o.operation(), func(ctx context.Context, in *I) (*reply[O], error) {
		if o.long {
			var end context.CancelFunc
			ctx, end = a.untilDrained(ctx)
			defer end()
			ctx, end = a.whileTrusted(ctx)
			defer end()
		}
		out, err := f(ctx, sessionOf(ctx), in)
		if lost := distrusted(ctx); lost != nil {
			return nil, a.problemOf(ctx, lost)
		}
		if err != nil {
			return nil, a.problemOf(ctx, err)
		}
		return &reply[O]{out}, nil
	})
}

// do serves a route that answers with nothing.
func do[I any](a *API, o op, f func(ctx context.Context, s Session, in *I) error) {
	a.routes = append(a.routes, Route{o.method, o.path, o.acts})
	huma.Register(a.huma, o.operation(), func(ctx context.Context, in *I) (*struct{}, error) {
		if err := f(ctx, sessionOf(ctx), in); err != nil {
			return nil, a.problemOf(ctx, err)
		}
		return nil, nil
	})
}

// stream serves a route that writes its answer itself.
func stream[I any](a *API, o op, f func(ctx context.Context, s Session, in *I) (func(huma.Context), error)) {
	a.routes = append(a.routes, Route{o.method, o.path, o.acts})
	huma.Register(a.huma, o.operation(), func(ctx context.Context, in *I) (*huma.StreamResponse, error) {
		write, err := f(ctx, sessionOf(ctx), in)
		if err != nil {
			return nil, a.problemOf(ctx, err)
		}
		return &huma.StreamResponse{Body: write}, nil
	})
}

// untilDrained ends ctx when the server shuts down.
func (a *API) untilDrained(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(a.drain, cancel)
	return ctx, func() { stop(); cancel() }
}

// A held bearer is what a request came with, for those who wait.
type held struct {
	proof  Proof
	source string
}

type heldKey struct{}

// whileTrusted ends ctx when the caller's key or token does: nobody waits, or
// is answered, with a secret that was revoked meanwhile. Call it for everything
// that goes on for long.
func (a *API) whileTrusted(ctx context.Context) (context.Context, context.CancelFunc) {
	h, ok := ctx.Value(heldKey{}).(held)
	if !ok { // anonymous
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := a.svc.Trusted(ctx, h.proof, h.source); err != nil {
			cancel(lostTrust{err})
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

// lostTrust is the cause of an end by whileTrusted.
type lostTrust struct{ error }

func (l lostTrust) Unwrap() error { return l.error }

// distrusted is why the caller may not be answered any more, or nil.
func distrusted(ctx context.Context) error {
	var l lostTrust
	if errors.As(context.Cause(ctx), &l) {
		return l.error
	}
	return nil
}

type sessionKey struct{}

func sessionOf(ctx context.Context) Session { return ctx.Value(sessionKey{}).(Session) }

// admit is the one place where access is decided, before a body is read. A
// route that is open to anybody never looks at the bearer.
func (a *API) admit(ctx huma.Context, next func(huma.Context)) {
	acts, _ := ctx.Operation().Metadata[actionsKey].([]muster.Action)
	caller := muster.Caller{Source: source(ctx.RemoteAddr())}
	if !mayAny(caller, acts) {
		proof, ok := proofOf(ctx)
		if !ok {
			a.refuse(ctx, muster.Problemf(muster.CodeUnauthenticated,
				"this takes an operator's token or an API key (Authorization: Bearer …), or the certificate of a node"))
			return
		}
		c, err := a.svc.Authenticate(ctx.Context(), proof, caller.Source)
		if err != nil {
			a.refuse(ctx, (*muster.Problem)(a.problemOf(ctx.Context(), err)))
			return
		}
		c.Source = caller.Source
		caller = c
		ctx = huma.WithValue(ctx, heldKey{}, held{proof, caller.Source})
	}
	if q, ok := ctx.Context().Value(askedKey{}).(*asked); ok {
		q.caller = caller
	}
	if !mayAny(caller, acts) {
		a.refuse(ctx, muster.Problemf(muster.CodeForbidden, "%s may not do this (%s)", reach(caller), acts[0]))
		return
	}
	leave, p := a.place(ctx, caller)
	if p != nil {
		a.refuse(ctx, p)
		return
	}
	defer leave()
	next(huma.WithValue(ctx, sessionKey{}, a.svc.As(caller)))
}

// place finds room for a request that is large or waits: of each there are only
// so many at once.
func (a *API) place(ctx huma.Context, caller muster.Caller) (leave func(), p *muster.Problem) {
	stranger := caller.Operator == "" && caller.KeyID == ""
	size, limit := sizeOf(ctx), ctx.Operation().MaxBodyBytes-1
	long, _ := ctx.Operation().Metadata[longKey].(bool)
	var room chan struct{}
	why := "too many requests wait at once; come again, or ask without wait"
	switch {
	case takesJSON(ctx.Operation()) && size > limit: // said in advance: refused unread
		return nil, muster.Problemf(muster.CodeTooLarge, "%s", sentence(http.StatusRequestEntityTooLarge, ""))
	case takesJSON(ctx.Operation()) && stranger && limit > largeBody && (size < 0 || size > largeBody):
		room, why = a.large, "too many large requests at once; come again"
	case long && caller.NodeID != "":
		room = a.nodes
	case !long || !waits(ctx.Query("wait")):
		return func() {}, nil
	case stranger:
		room = a.strange
	default:
		room = a.polls
	}
	select {
	case room <- struct{}{}:
		return func() { <-room }, nil
	default:
		return nil, (*muster.Problem)(unavailable(why))
	}
}

// waits tells whether a long poll is asked to wait at all.
func waits(seconds string) bool { return seconds != "" && seconds != "0" }

// takesJSON is false for what has no body and for blobs, which have no limit.
func takesJSON(o *huma.Operation) bool {
	return o.RequestBody != nil && o.RequestBody.Content["application/json"] != nil
}

// sizeOf is the length that a request gives of its body; below 0 it gives none.
func sizeOf(ctx huma.Context) int64 {
	r, _ := humago.Unwrap(ctx)
	return r.ContentLength
}

func mayAny(c muster.Caller, acts []muster.Action) bool {
	for _, act := range acts {
		if c.May(act) {
			return true
		}
	}
	return false
}

func reach(c muster.Caller) string {
	if c.Operator != "" {
		return "an operator with role " + string(c.Role)
	}
	if c.Lapsed && c.NodeID == "" {
		return "a key that takes another's place once a certificate was signed for it"
	}
	if c.Lapsed {
		return "a node whose certificate has expired, which has it renewed first,"
	}
	if c.NodeID != "" {
		return "a node"
	}
	return "an API key of scope " + string(c.Scope)
}

func (a *API) refuse(ctx huma.Context, p *muster.Problem) {
	for k, vs := range (*Problem)(p).GetHeaders() {
		for _, v := range vs {
			ctx.SetHeader(k, v)
		}
	}
	ctx.SetHeader("Content-Type", "application/problem+json")
	ctx.SetStatus(p.Status)
	_ = a.huma.Marshal(ctx.BodyWriter(), "application/json", p) // the peer may be gone
}

// proofOf is what a request comes with. A token counts before a certificate:
// whoever sends one means it.
func proofOf(ctx huma.Context) (Proof, bool) {
	if bearer, ok := bearerOf(ctx.Header("Authorization")); ok {
		return Proof{Bearer: bearer}, true
	}
	if t := ctx.TLS(); t != nil && len(t.PeerCertificates) > 0 {
		return Proof{Certificate: t.PeerCertificates[0]}, true
	}
	return Proof{}, false
}

func bearerOf(header string) (string, bool) {
	scheme, token, ok := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}

func source(remote string) string {
	if host, _, err := net.SplitHostPort(remote); err == nil {
		return host
	}
	return remote
}

// Inputs that many routes share.
type (
	nothing     struct{}
	body[T any] struct{ Body T }
	uuid        struct {
		UUID string `path:"uuid" maxLength:"64"`
	}
	uuidBody[T any] struct {
		UUID string `path:"uuid" maxLength:"64"`
		Body T
	}
)

// A list is how many things are answered: an object, so that it can grow.
// Next is the cursor of the page after this one, given as after.
type list[T any] struct {
	Items []T    `json:"items" nullable:"false"`
	Next  string `json:"next,omitempty"`
}

func listed[T any](items []T, err error) (list[T], error) {
	if items == nil {
		items = []T{}
	}
	return list[T]{Items: items}, err
}

// paged adds the cursor when the page is full.
func paged[T any](items []T, limit int, key func(T) string, err error) (list[T], error) {
	l, err := listed(items, err)
	if limit == 0 {
		limit = 1000
	}
	if n := len(items); n > 0 && n >= limit {
		l.Next = key(items[n-1])
	}
	return l, err
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

const (
	get    = http.MethodGet
	head   = http.MethodHead
	post   = http.MethodPost
	put    = http.MethodPut
	patch  = http.MethodPatch
	remove = http.MethodDelete
)
