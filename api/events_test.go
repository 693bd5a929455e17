package api_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
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

// fickle knows a key once, and then no more.
type fickle struct {
	*fake
	asked atomic.Int32
}

func (f *fickle) Authenticate(c ctx, bearer, source string) (muster.Caller, error) {
	if f.asked.Add(1) > 1 {
		bearer = "revoked"
	}
	return f.fake.Authenticate(c, bearer, source)
}

// TestStreamEndsWithItsKey: a stream does not outlive the credential that
// opened it by more than a mark.
func TestStreamEndsWithItsKey(t *testing.T) {
	f := &fickle{fake: new(fake)}
	r := httptest.NewRequest("GET", "/v1/events?subject=never", nil) // would go on for ever
	r.Header.Set("Authorization", "Bearer viewer")
	w := httptest.NewRecorder()
	api.New(f, api.Options{}).ServeHTTP(w, r)
	if b := w.Body.String(); strings.Count(b, "data: ") != 3 || !strings.Contains(b, "event: end\ndata: {\"title\":\"unauthenticated\"") {
		t.Errorf("%s", b)
	}
}
