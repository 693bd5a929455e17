package api_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/api"
)

func (s session) InstallLog(_ ctx, q muster.InstallQuery) (muster.InstallLog, error) {
	return answer[muster.InstallLog](s.f, "InstallLog", q)
}

func (s session) SetupProgress(_ ctx, u string, p muster.SetupProgress) error {
	return s.f.note("SetupProgress", u, p)
}

// Events tells three things and a mark, then that the reader is too slow; with
// the subject never it goes on until its context ends.
func (s session) Events(c ctx, q muster.EventQuery, f func(muster.FeedEvent) error) error {
	if err := s.f.note("Events", q); err != nil {
		return err
	}
	change, progress := fullOf[muster.FeedEvent](), fullOf[muster.FeedEvent]()
	change.Detail = []byte(`{"text":"one\ntwo: three"}`)
	progress.ID = 0
	for _, e := range []muster.FeedEvent{change, progress, {ID: 99}} {
		if err := f(e); err != nil {
			return err
		}
	}
	if q.Subject == "never" {
		<-c.Done()
		return c.Err()
	}
	return muster.Problemf(muster.CodeUnavailable, "too slow")
}

func init() {
	enough := errors.New("enough")
	events := func(q muster.EventQuery) func(everything, context.Context) ([]muster.FeedEvent, error) {
		return func(e everything, c context.Context) ([]muster.FeedEvent, error) {
			var got []muster.FeedEvent
			err := e.Events(c, q, func(v muster.FeedEvent) error {
				got = append(got, v)
				if v.Kind == "" {
					return enough
				}
				return nil
			})
			if errors.Is(err, enough) {
				err = nil
			}
			return got, err
		}
	}
	questions = append(questions,
		q0("InstallLog of a machine", "viewer", func(e everything, c context.Context) (muster.InstallLog, error) {
			return e.InstallLog(c, muster.InstallQuery{ServerUUID: "u", Epoch: 2, After: 7, Wait: 2 * time.Second})
		}),
		q0("InstallLog of an operation", "key-read_only", func(e everything, c context.Context) (muster.InstallLog, error) {
			return e.InstallLog(c, muster.InstallQuery{OperationID: "o", After: 7})
		}),
		q0("SetupProgress", "key-booter", func(e everything, c context.Context) (bool, error) {
			return true, e.SetupProgress(c, "u", fullOf[muster.SetupProgress]())
		}),
		q0("Events", "viewer", events(muster.EventQuery{After: 7, Subject: "registration/u", Kind: "registration"})),
		q0("Events from the beginning", "key-audit_only", events(muster.EventQuery{})),
		q0("Events from now", "key-read_only", events(muster.EventQuery{After: muster.FromNow, Last: 3})),
	)
}

// TestEventsOnTheWire: what a browser reads.
func TestEventsOnTheWire(t *testing.T) {
	f := new(fake)
	srv, _, a := serve(t, f)
	open := func(header, value, query string) *http.Response {
		t.Helper()
		r, _ := http.NewRequestWithContext(t.Context(), "GET", srv.URL+"/v1/events"+query, nil)
		r.Header.Set("Authorization", "Bearer viewer")
		if header != "" {
			r.Header.Set(header, value)
		}
		resp, err := srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	resp := open("Last-Event-ID", "41", "?after=3")
	b, _ := io.ReadAll(resp.Body)
	want := "id: 2\nevent: text-3\ndata: {\"id\":2,\"kind\":\"text-3\",\"subject\":\"text-4\",\"at\":\"2023-11-14T22:13:25Z\",\"actor\":\"text-6\",\"detail\":{\"text\":\"one\\ntwo: three\"}}\n\n" +
		"event: text-3\ndata: {\"kind\":\"text-3\",\"subject\":\"text-4\",\"at\":\"2023-11-14T22:13:25Z\",\"actor\":\"text-6\",\"detail\":{\"n\":7}}\n\n" +
		": so far\nid: 99\n\n" +
		"event: end\ndata: {\"title\":\"unavailable\",\"status\":503,\"detail\":\"too slow\",\"code\":\"unavailable\"}\n\n"
	if string(b) != want || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%s\n%s\nwant\n%s", resp.Header.Get("Content-Type"), b, want)
	}
	if calls := f.asked(); len(calls) != 1 || !strings.Contains(calls[0], `"After":41`) {
		t.Errorf("asked %q", calls)
	}
	for _, bad := range []string{"x", "-1", ""} {
		if resp := open("Last-Event-ID", bad, "?after=3"); bad != "" && resp.StatusCode != 400 {
			t.Errorf("Last-Event-ID %q: %s", bad, resp.Status)
		}
	}
	// a shutdown ends streams with a word
	resp = open("", "", "?subject=never")
	in := bufio.NewReader(resp.Body)
	for line := ""; line != ": so far\n"; {
		var err error
		if line, err = in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	a.Drain()
	rest, err := io.ReadAll(in)
	if err != nil || !strings.Contains(string(rest), "event: end\ndata: {") || !strings.Contains(string(rest), "stops") {
		t.Errorf("%v, %q", err, rest)
	}
}

// TestStreamEndsWithItsKey: a stream does not outlive the credential that
// opened it, also when nothing happens.
func TestStreamEndsWithItsKey(t *testing.T) {
	f := &fickle{fake: new(fake), revoked: make(chan struct{})}
	r := httptest.NewRequest("GET", "/v1/events?subject=never", nil) // would go on for ever
	r.Header.Set("Authorization", "Bearer viewer")
	w := httptest.NewRecorder()
	api.New(f, api.Options{}).ServeHTTP(w, r)
	if b := w.Body.String(); strings.Count(b, "data: ") != 3 || !strings.Contains(b, "event: end\ndata: {\"title\":\"unauthenticated\"") {
		t.Errorf("%s", b)
	}
}

// fickle trusts a bearer until it was told what there was.
type fickle struct {
	*fake
	revoked chan struct{}
}

func (f *fickle) As(muster.Caller) api.Session { return told{session{f.fake}, f.revoked} }

type told struct {
	session
	all chan struct{}
}

func (s told) Events(c ctx, q muster.EventQuery, f func(muster.FeedEvent) error) error {
	return s.session.Events(c, q, func(e muster.FeedEvent) error {
		if err := f(e); err != nil || e.Kind != "" {
			return err
		}
		close(s.all)
		return nil
	})
}

func (f *fickle) Trusted(c ctx, _ api.Proof, _ string) error {
	select {
	case <-f.revoked:
		return muster.Problemf(muster.CodeUnauthenticated, "this key is not known, has expired or was revoked")
	case <-c.Done():
		return nil
	}
}

// TestPlacesAreBounded: past the bound of what may be held open the answer is
// 503 and when to come again, nobody waits at the door; and a place that is left
// is another's.
func TestPlacesAreBounded(t *testing.T) {
	for _, c := range []struct {
		name, path, bearer string
		bound              int
		other, otherBearer string // still answered
	}{
		{"event streams", "/v1/events?subject=never", "viewer", 256, "/v1/audit?subject=never&wait=0", "viewer"},
		{"long polls", "/v1/audit?subject=never&wait=60", "viewer", 4096, "/v1/agent/register/status?poll_token=t&wait=1", ""},
		{"long polls of strangers", "/v1/agent/register/status?poll_token=never&wait=60", "", 4096, "/v1/audit?wait=1", "viewer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &patient{fake: new(fake)}
			a := api.New(f, api.Options{})
			ask := func(ctx context.Context, path, bearer string) *httptest.ResponseRecorder {
				r := httptest.NewRequestWithContext(ctx, "GET", path, nil)
				if bearer != "" {
					r.Header.Set("Authorization", "Bearer "+bearer)
				}
				w := httptest.NewRecorder()
				a.ServeHTTP(w, r)
				return w
			}
			ctx, end := context.WithCancel(t.Context())
			var held sync.WaitGroup
			defer held.Wait()
			defer end()
			for range c.bound {
				held.Go(func() { ask(ctx, c.path, c.bearer) })
			}
			for f.waiting.Load() < int64(c.bound) {
				runtime.Gosched()
			}
			w := ask(t.Context(), c.path, c.bearer)
			if w.Code != 503 || w.Header().Get("Retry-After") != "1" || w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("past the bound: %d %v %s", w.Code, w.Header(), w.Body)
			}
			if w := ask(t.Context(), c.other, c.otherBearer); w.Code != 200 {
				t.Errorf("%s: %d %s", c.other, w.Code, w.Body)
			}
			end()
			held.Wait()
			ctx, end = context.WithCancel(t.Context())
			defer end()
			held.Go(func() { ask(ctx, c.path, c.bearer) })
			for f.waiting.Load() < int64(c.bound)+1 {
				runtime.Gosched()
			}
		})
	}
}

// patient counts those that wait for ever.
type patient struct {
	*fake
	waiting atomic.Int64
}

func (p *patient) As(muster.Caller) api.Session { return waitingRoom{session{p.fake}, p} }

type waitingRoom struct {
	session
	p *patient
}

func (r waitingRoom) wait(c ctx) error {
	r.p.waiting.Add(1)
	<-c.Done()
	return c.Err()
}

func (r waitingRoom) Events(c ctx, _ muster.EventQuery, _ func(muster.FeedEvent) error) error {
	return r.wait(c)
}

func (r waitingRoom) Audit(c ctx, q muster.AuditFilter) ([]muster.AuditEntry, error) {
	if q.Subject == "never" && q.Wait > 0 {
		return nil, r.wait(c)
	}
	return nil, nil
}

func (r waitingRoom) RegisterStatus(c ctx, token string, _ time.Duration) (muster.RegisterStatus, error) {
	if token == "never" {
		return muster.RegisterStatus{}, r.wait(c)
	}
	return muster.RegisterStatus{}, nil
}
