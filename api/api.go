// Package api speaks HTTP for a control plane: it decodes and checks requests,
// decides once and in one place who may make them, and writes answers and
// problems. Its OpenAPI document is made from the same Go types.
//
// It must never touch the store, decide anything about a machine, or write a
// secret (bearer, body, poll token) to the log.
package api

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"muster.internal"
)

// A Service is what the API speaks for.
type Service interface {
	// Authenticate tells whose proof this is. What does not
	// authenticate is a problem of code unauthenticated, whatever the reason;
	// a source that guesses too often gets too_many_requests.
	Authenticate(ctx context.Context, p Proof, source string) (muster.Caller, error)
	// Trusted waits for as long as the proof authenticates, and then says why
	// it does not any more; nil: ctx ended first.
	Trusted(ctx context.Context, p Proof, source string) error
	// As is the service as this caller sees it. Access has been decided before.
	As(c muster.Caller) Session
	// Ready is nil when requests can be answered (the store is reachable).
	Ready(ctx context.Context) error
}

// A Session is one caller's view of everything that the API offers.
type Session interface {
	muster.Fleet
	muster.ForBooter
	muster.ForHost
	muster.ForLink
	muster.Accounts
}

// A Proof is what a request comes with to say who it is from: a token or key,
// or the certificate of its connection, whose key the peer has, and of which
// nothing else is known yet.
type Proof struct {
	Bearer      string
	Certificate *x509.Certificate
}

// Options of an API.
type Options struct {
	Version string // of the program, shown in the document
	Log     *slog.Logger
}

// A Route is one row of the API: what is asked and which actions permit it.
// Any one of the actions suffices.
type Route struct {
	Method, Path string
	Actions      []muster.Action
}

// An API is the HTTP handler. Make it with New.
type API struct {
	svc     Service
	log     *slog.Logger
	mux     *http.ServeMux
	huma    huma.API
	routes  []Route
	spec    []byte        // the OpenAPI document
	large   chan struct{} // strangers' large bodies under way
	streams chan struct{} // event streams under way
	polls   chan struct{} // long polls that wait
	strange chan struct{} // those of strangers
	nodes   chan struct{} // those of nodes
	drain   context.Context
	stop    context.CancelFunc
}

// New makes an API on a service.
func New(svc Service, o Options) *API {
	a := &API{svc: svc, log: o.Log, mux: http.NewServeMux(), large: make(chan struct{}, largeAtOnce),
		streams: make(chan struct{}, streamsAtOnce), polls: make(chan struct{}, pollsAtOnce), strange: make(chan struct{}, pollsAtOnce), nodes: make(chan struct{}, nodesAtOnce)}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	a.drain, a.stop = context.WithCancel(context.Background())
	cfg := huma.DefaultConfig("muster", o.Version)
	cfg.Info.Description = "Carries computers through their life in a fleet. Errors are problems by RFC 9457."
	cfg.CreateHooks = nil // they would put $schema into every answer
	cfg.OpenAPIPath, cfg.DocsPath, cfg.SchemasPath = "", "", ""
	cfg.RejectUnknownQueryParameters = true
	strict := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: unmarshalStrict}
	cfg.Formats = map[string]huma.Format{"application/json": strict, "json": strict}
	cfg.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"bearer": {Type: "http", Scheme: "bearer", Description: "an operator's token or an API key"},
	}
	a.huma = humago.New(a.mux, cfg)
	a.huma.UseMiddleware(a.admit)
	a.aboutItself()
	a.registrations()
	a.bootRecords()
	a.evidence()
	a.images()
	a.accounts()
	a.audit()
	a.booters()
	a.hosts()
	a.doors()
	a.exits()
	a.declarations()
	a.grants()
	a.labels()
	a.claims()
	a.planning()
	a.inventories()
	a.link()
	a.progress()
	a.spec = a.document()
	return a
}

// Drain ends every long poll; the callers are told to come again. Call it
// before shutting the server down.
func (a *API) Drain() { a.stop() }

// Routes lists what the API serves.
func (a *API) Routes() []Route { return append([]Route(nil), a.routes...) }

// Document is the OpenAPI 3.1 document, indented.
func (a *API) Document() []byte { return append([]byte(nil), a.spec...) }

func (a *API) document() []byte {
	b, err := json.MarshalIndent(a.huma.OpenAPI(), "", "  ")
	if err != nil {
		panic(err) // the routes are constants
	}
	return append(b, '\n')
}

// asked is what the log line of one request collects on its way.
type asked struct {
	caller muster.Caller
	err    error
}

type askedKey struct{}

func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	q := new(asked)
	r = r.WithContext(context.WithValue(r.Context(), askedKey{}, q))
	out := &recorder{ResponseWriter: w}
	defer func() {
		if v := recover(); v != nil {
			if v == http.ErrAbortHandler {
				panic(v)
			}
			a.log.Error("a request handler panicked", "method", fmt.Sprintf("%.32s", r.Method), "path", shownPath(r), "panic", v, "stack", string(debug.Stack()))
			if out.status == 0 {
				writeProblem(out, muster.Problemf(muster.CodeInternal, "muster failed at this request; its log says where"))
			}
		}
		a.logRequest(r, q, out.status, time.Since(start))
	}()
	h := out.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	if p := badURL(r); p != nil {
		writeProblem(out, p)
		return
	}
	handler, pattern := a.mux.Handler(r)
	if pattern == "" {
		a.noRoute(out, r, handler)
		return
	}
	a.mux.ServeHTTP(out, r)
}

// badURL refuses what no key or name can contain, and what could be understood
// in two ways, before anything else looks.
func badURL(r *http.Request) *muster.Problem {
	bad := func(s string) bool { return strings.ContainsRune(s, 0) || !utf8.ValidString(s) }
	if bad(r.URL.Path) {
		return muster.Invalid("path", "may not contain NUL or bytes that are not UTF-8")
	}
	if p := r.URL.EscapedPath(); r.Method != http.MethodConnect && p != "*" && !clean(p) {
		return nothingAt(r) // the mux would answer with a redirect
	}
	if r.URL.RawQuery == "" {
		return nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil { // whose text may repeat a poll token
		return muster.Invalid("query", "is not well formed: a name or value is encoded wrongly")
	}
	for name, values := range query {
		if bad(name) {
			return muster.Invalid("query", "may not contain NUL or bytes that are not UTF-8")
		}
		if bad(values[0]) {
			return muster.Invalid(name, "may not contain NUL or bytes that are not UTF-8")
		}
		if len(values) > 1 {
			return muster.Invalid(name, "is there more than once")
		}
	}
	return nil
}

func clean(p string) bool {
	c := path.Clean(p)
	if c != "/" && strings.HasSuffix(p, "/") {
		c += "/"
	}
	return c == p
}

func nothingAt(r *http.Request) *muster.Problem {
	return muster.Problemf(muster.CodeNotFound, "there is nothing at %s; /openapi.json lists what there is", shownPath(r))
}

var secretInPath = regexp.MustCompile(`((?:mus(?:op)?_[a-z2-7]{12}|musen[0-9]+)_)[A-Za-z0-9_-]+`)

// shownPath is a request's path for logs and people: without a secret that
// somebody put where an id belongs, and short.
func shownPath(r *http.Request) string {
	p := secretInPath.ReplaceAllString(r.URL.Path, "${1}…")
	if len(p) > 256 {
		p = strings.ToValidUTF8(p[:256], "") + "…"
	}
	return p
}

// noRoute turns the mux's own plain-text answers into problems.
func (a *API) noRoute(w http.ResponseWriter, r *http.Request, h http.Handler) {
	probe := &recorder{ResponseWriter: discard{http.Header{}}}
	h.ServeHTTP(probe, r)
	if probe.status == http.StatusMethodNotAllowed {
		allow := probe.Header().Get("Allow")
		w.Header().Set("Allow", allow)
		p := muster.Problemf(muster.CodeNotAllowed, "%.32s is not possible on %s", r.Method, shownPath(r))
		p.Allowed = strings.Split(allow, ", ")
		writeProblem(w, p)
		return
	}
	writeProblem(w, nothingAt(r))
}

// logRequest writes one line: never the query (poll tokens), a header or a body.
// What machines and booters say again and again, and hear no refusal, is for
// whoever debugs: thousands of them would hide what people do.
func (a *API) logRequest(r *http.Request, q *asked, status int, took time.Duration) {
	level := slog.LevelDebug
	switch {
	case status >= 500 && status != http.StatusServiceUnavailable:
		level = slog.LevelError
	case status >= 400, !q.caller.Machine() && r.Method != http.MethodGet && r.Method != http.MethodHead:
		level = slog.LevelInfo
	}
	if !a.log.Enabled(r.Context(), level) {
		return
	}
	attrs := []slog.Attr{slog.String("method", fmt.Sprintf("%.32s", r.Method)), slog.String("path", shownPath(r)), slog.Int("status", status),
		slog.Duration("took", took), slog.String("source", source(r.RemoteAddr)), slog.String("caller", q.caller.String())}
	if q.err != nil {
		attrs = append(attrs, slog.String("error", q.err.Error()))
	}
	a.log.LogAttrs(r.Context(), level, "request", attrs...)
}

// recorder remembers the status. Unwrap keeps http.ResponseController working,
// ReadFrom keeps io.Copy from bouncing through a second buffer.
type recorder struct {
	http.ResponseWriter
	status int
	once   sync.Once
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(code int) {
	r.once.Do(func() { r.status = code; r.ResponseWriter.WriteHeader(code) })
}

func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.ResponseWriter.Write(b)
}

func (r *recorder) ReadFrom(src io.Reader) (int64, error) {
	r.WriteHeader(http.StatusOK)
	return io.Copy(r.ResponseWriter, src)
}

type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}
