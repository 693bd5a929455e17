package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/api"
)

// send makes a request of the handler itself.
func send(a *api.API, method, target, token, body string) *httptest.ResponseRecorder {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req := httptest.NewRequest(method, target, r)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, req)
	return w
}

func problemOf(t *testing.T, w *httptest.ResponseRecorder) muster.Problem {
	t.Helper()
	var p muster.Problem
	if ct := w.Header().Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("content type %q", ct)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	if p.Status != w.Code || p.Code == "" || p.Title == "" || p.Detail == "" {
		t.Errorf("the problem is not whole: %d %s", w.Code, w.Body)
	}
	return p
}

func TestBadInput(t *testing.T) {
	const u = "/v1/registrations/u"
	mib := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name, method, target, token, body string
		status                            int
		fields                            []string
	}{
		{"unknown field", "POST", "/v1/keys", "admin", `{"scope":"full","admin":true}`, 400, []string{"admin"}},
		{"unknown nested field", "PUT", "/v1/boot-policy", "admin",
			`{"auto_enroll":true,"answer_only_pxe":true,"allow":[{"mac_prefix":"52:54","x":1}],"networks":[]}`, 400, []string{"allow[0].x"}},
		{"wrong case", "POST", "/v1/keys", "admin", `{"Scope":"full"}`, 400, []string{"scope", "Scope"}},
		{"wrong type", "POST", "/v1/keys", "admin", `{"scope":["full"]}`, 400, []string{"scope"}},
		{"several", "POST", "/v1/login", "", `{"name":1,"password":{}}`, 400, []string{"name", "password"}},
		{"missing", "POST", "/v1/login", "", `{"name":"ada"}`, 400, []string{"password"}},
		{"number as text", "POST", "/v1/keys", "admin", `{"scope":"full","expires_in_seconds":"60"}`, 400, []string{"expires_in_seconds"}},
		{"fraction", "POST", "/v1/keys", "admin", `{"scope":"full","expires_in_seconds":1.5}`, 400, []string{"expires_in_seconds"}},
		{"huge number", "POST", "/v1/keys", "admin", `{"scope":"full","expires_in_seconds":1e300}`, 400, []string{"expires_in_seconds"}},
		{"null body", "POST", "/v1/keys", "admin", `null`, 400, []string{"body"}},
		{"array body", "POST", "/v1/keys", "admin", `[]`, 400, []string{"body"}},
		{"no body", "POST", "/v1/keys", "admin", ``, 400, []string{"body"}},
		{"not JSON", "POST", "/v1/keys", "admin", `scope=full`, 400, []string{"body"}},
		{"cut short", "POST", "/v1/keys", "admin", `{"scope":"fu`, 400, []string{"body"}},
		{"trailing data", "POST", "/v1/keys", "admin", `{"scope":"full"}{"scope":"full"}`, 400, []string{"body"}},
		{"NUL", "POST", "/v1/keys", "admin", `{"scope":"full","comment":"a\u0000b"}`, 400, []string{"comment"}},
		{"NUL in sysinfo", "POST", "/v1/agent/register", "", `{"server_uuid":"u","hostname":"h","sysinfo":{"Disks":[{"serial":"\u0000"}]}}`, 400, []string{"sysinfo.Disks[0].serial"}},
		{"NUL in a name", "POST", "/v1/agent/register", "", `{"server_uuid":"u","hostname":"h","sysinfo":{"a\u0000":1}}`, 400, []string{`sysinfo.a\0`}},
		{"NUL in the path", "GET", "/v1/registrations/a%00b", "viewer", "", 400, []string{"path"}},
		{"NUL in the query", "GET", "/v1/audit?subject=a%00", "viewer", "", 400, []string{"subject"}},
		{"not UTF-8", "POST", "/v1/keys", "admin", "{\"scope\":\"\xff\"}", 400, []string{"body"}},
		{"not UTF-8 in the path", "GET", "/v1/registrations/%ff", "viewer", "", 400, []string{"path"}},
		{"long path value", "GET", "/v1/registrations/" + strings.Repeat("u", 65), "viewer", "", 400, []string{"uuid"}},
		{"wrong state", "GET", "/v1/registrations?state=aproved", "viewer", "", 400, []string{"state"}},
		{"unknown query", "GET", "/v1/registrations?stat=approved", "viewer", "", 400, []string{"stat"}},
		{"wait too long", "GET", "/v1/booter/feed?booter=b&wait=61", "key-booter", "", 400, []string{"wait"}},
		{"limit is no number", "GET", "/v1/audit?limit=many", "viewer", "", 400, []string{"limit"}},
		{"required query", "GET", "/v1/booter/feed", "key-booter", "", 400, []string{"booter"}},
		{"over the limit", "POST", u + "/plan-setup", "admin", `{"hostname":"` + mib + `"}`, 413, nil},
		{"20 MiB", "POST", "/v1/booter/announce", "key-ur_enroll", `{"mac":"` + strings.Repeat(mib, 20) + `"}`, 413, nil},
		{"blob without a length", "PUT", "/v1/blobs/d", "admin", "", 400, []string{"Content-Length"}},
		{"twice", "POST", "/v1/keys", "admin", `{"scope":"booter","scope":"full"}`, 400, []string{"scope"}},
		{"twice, nested", "PUT", "/v1/boot-policy", "admin", `{"allow":[{},{"mac_prefix":"52:54","mac_prefix":""}]}`, 400, []string{"allow[1].mac_prefix"}},
		{"sysinfo twice", "POST", "/v1/agent/register", "", `{"sysinfo":{},"sysinfo":{}}`, 400, []string{"sysinfo"}},
		{"deep", "POST", "/v1/agent/register", "", `{"sysinfo":` + strings.Repeat("[", 9999), 400, []string{"sysinfo"}},
		{"deep, and nothing else", "POST", "/v1/keys", "admin", strings.Repeat("[", 20_000), 400, []string{"[0]"}},
		{"deep, and more than a login takes", "POST", "/v1/login", "", strings.Repeat("[", 20_000), 413, nil},
		{"many values", "POST", "/v1/agent/register", "", `{"sysinfo":[` + strings.Repeat("0,", 60_000) + "0]}", 400, []string{"sysinfo"}},
		{"many values in an array", "POST", "/v1/agent/register", "", `[` + strings.Repeat("0,", 60_000) + "0]", 400, []string{"[49999]"}},
		{"query twice", "GET", "/v1/registrations?limit=1&limit=2", "viewer", "", 400, []string{"limit"}},
		{"query not well formed", "GET", "/v1/registrations?state=%zz", "viewer", "", 400, []string{"query"}},
		{"query with a semicolon", "GET", "/v1/registrations?state=pending;limit=1", "viewer", "", 400, []string{"query"}},
		{"NUL in a query's name", "GET", "/v1/registrations?%00=1", "viewer", "", 400, []string{"query"}},
		{"double slash", "GET", "/v1//nodes", "viewer", "", 404, nil},
		{"dots", "POST", "/v1/x/../keys", "admin", `{"scope":"full"}`, 404, nil},
		{"a password as large as a book", "POST", "/v1/login", "", `{"name":"a","password":"` + mib + `"}`, 413, nil},
		{"no such path", "GET", "/v1/hardware", "admin", "", 404, nil},
		{"no such method", "DELETE", "/v1/boot-policy", "admin", "", 405, nil},
		{"delete a boot record", "DELETE", "/v1/boot-records/m", "admin", "", 405, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := new(fake)
			w := send(api.New(f, api.Options{}), c.method, c.target, c.token, c.body)
			p := problemOf(t, w)
			var fields []string
			for _, e := range p.Errors {
				fields = append(fields, e.Field)
			}
			if w.Code != c.status || !reflect.DeepEqual(fields, c.fields) {
				t.Errorf("got %d with fields %q, want %d with %q\n%s", w.Code, fields, c.status, c.fields, w.Body)
			}
			if calls := f.asked(); len(calls) > 0 {
				t.Errorf("the service was asked: %.200q", calls)
			}
		})
	}
}

// TestStatesAreNamed: a wrong state is answered with all the right ones.
func TestStatesAreNamed(t *testing.T) {
	a := api.New(new(fake), api.Options{})
	check := func(target string, states []string) {
		p := problemOf(t, send(a, "GET", target+"?state=x", "viewer", ""))
		for _, s := range states {
			if !strings.Contains(p.Error(), s) {
				t.Errorf("%s: %q does not name %s", target, p.Error(), s)
			}
			if w := send(a, "GET", target+"?state="+s, "viewer", ""); w.Code != 200 {
				t.Errorf("%s?state=%s: %d", target, s, w.Code)
			}
		}
	}
	check("/v1/registrations", texts(muster.RegistrationStates))
	check("/v1/boot-records", texts(muster.BootStates))
}

func texts[S ~string](all []S) (out []string) {
	for _, s := range all {
		out = append(out, string(s))
	}
	return out
}

func TestNoDeleteOfBootRecords(t *testing.T) {
	w := send(api.New(new(fake), api.Options{}), "DELETE", "/v1/boot-records/52:54:00:00:00:01", "viewer", "")
	p := problemOf(t, w)
	if !reflect.DeepEqual(p.Allowed, []string{"decommission", "reactivate"}) || w.Header().Get("Allow") == "" {
		t.Errorf("%s, Allow %q", w.Body, w.Header().Get("Allow"))
	}
}

func TestContentType(t *testing.T) {
	a := api.New(new(fake), api.Options{})
	req := httptest.NewRequest("POST", "/v1/login", strings.NewReader(`{"name":"a","password":"b"}`))
	req.Header.Set("Content-Type", "text/plain")
	w := httptest.NewRecorder()
	a.ServeHTTP(w, req)
	if p := problemOf(t, w); w.Code != 400 || p.Errors[0].Field != "Content-Type" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestNothingSecretIsWritten plants secrets in every place of a request and
// looks for them in the log and in what is answered.
func TestNothingSecretIsWritten(t *testing.T) {
	const secret = "hunter2-hunter2"
	var log strings.Builder
	f := new(fake)
	a := api.New(f, api.Options{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	var answers strings.Builder
	note := func(w *httptest.ResponseRecorder) {
		if w.Code >= 400 {
			answers.WriteString(w.Body.String())
		}
	}
	f.fail = errors.New("the store is on fire")
	note(send(a, "POST", "/v1/login", "", `{"name":"ada","password":"`+secret+`"}`))
	f.fail = nil
	note(send(a, "POST", "/v1/login", "", `{"name":["x"],"password":"`+secret+`"}`))
	note(send(a, "POST", "/v1/login", "", `{"name":"ada","password":["`+secret+`"]}`))
	note(send(a, "POST", "/v1/login", "", `{"name":"ada","password":"`+secret+`"`))
	note(send(a, "GET", "/v1/agent/register/status?poll_token="+secret, "", ""))
	note(send(a, "GET", "/v1/agent/register/status?wait=x&poll_token="+secret, "", ""))
	note(send(a, "GET", "/v1/registrations", secret, ""))
	note(send(a, "GET", "/v1/agent/register/status?poll_token="+secret+"%zz", "", ""))
	note(send(a, "GET", "/v1/agent/register/status?poll_token=a&poll_token="+secret, "", ""))
	const key = "mus_abcdefgh2345_" + secret // a key where its id belongs
	note(send(a, "DELETE", "/v1/keys/"+key, "admin", ""))
	note(send(a, "GET", "/v1/keyz/"+key, "admin", ""))
	note(send(a, "FOO", "/v1/keys/"+key, "admin", ""))
	note(send(a, "GET", "/v1/registrations?state="+secret, "viewer", ""))
	if !strings.Contains(log.String(), "the store is on fire") || strings.Contains(answers.String(), "on fire") {
		t.Errorf("the cause of a failure belongs in the log and not in the answer")
	}
	if strings.Contains(log.String(), secret) || strings.Contains(answers.String(), secret) {
		t.Errorf("a secret was written:\n%s\n%s", log.String(), answers.String())
	}
	if n := strings.Count(log.String(), "msg=request"); n != 13 {
		t.Errorf("%d requests were logged, want 13", n)
	}
}

func TestMachinesDailyLifeIsNotLogged(t *testing.T) {
	for _, c := range []struct {
		path, token, body string
		status            int
		logged            bool
	}{
		{"/v1/agent/heartbeat", "key-agent", `{}`, 200, false},
		{"/v1/agent/heartbeat", "viewer", `{}`, 403, true},
		{"/v1/agent/heartbeat", "key-agent", `{`, 400, true},
		{"/v1/login", "", `{"name":"ada","password":"x"}`, 200, true},
	} {
		var log strings.Builder
		a := api.New(new(fake), api.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		if w := send(a, "POST", c.path, c.token, c.body); w.Code != c.status {
			t.Errorf("%v: %d %s", c, w.Code, w.Body)
		}
		if strings.Contains(log.String(), "msg=request") != c.logged {
			t.Errorf("%v: %s", c, log.String())
		}
	}
}

// TestWhatMusterSaysIsNotAskedFor: a request holds what the caller knows.
func TestWhatMusterSaysIsNotAskedFor(t *testing.T) {
	a := api.New(new(fake), api.Options{})
	if w := send(a, "PUT", "/v1/firmware-minimums", "admin", `{"vendor":"v","part":"p","version":"1.2"}`); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestPanicIsAProblem(t *testing.T) {
	var log strings.Builder
	a := api.New(panics{new(fake)}, api.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	p := problemOf(t, send(a, "GET", "/v1/nodes", "viewer", ""))
	if p.Status != 500 || strings.Contains(p.Detail, "inner") || !strings.Contains(log.String(), "inner") {
		t.Errorf("%+v\n%s", p, log.String())
	}
}

type panics struct{ *fake }

func (panics) As(muster.Caller) api.Session { panic("inner workings") }

func TestReady(t *testing.T) {
	f := new(fake)
	a := api.New(f, api.Options{})
	if w := send(a, "GET", "/readyz", "", ""); w.Code != 200 {
		t.Error(w.Code)
	}
	f.ready = errors.New("database is away")
	if w := send(a, "GET", "/readyz", "", ""); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Error(w.Code, w.Header())
	}
	if w := send(a, "GET", "/healthz", "", ""); w.Code != 200 {
		t.Error(w.Code)
	}
	f.ready = nil
	a.Drain()
	if w := send(a, "GET", "/readyz", "", ""); w.Code != 503 {
		t.Error(w.Code)
	}
}

// TestDrainEndsLongPolls: a poll that nothing else would end.
func TestDrainEndsLongPolls(t *testing.T) {
	a := api.New(new(fake), api.Options{})
	done := make(chan *httptest.ResponseRecorder)
	go func() { done <- send(a, "GET", "/v1/audit?subject=never&wait=60", "viewer", "") }()
	a.Drain()
	if w := <-done; w.Code != 503 || w.Header().Get("Retry-After") != "1" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

func TestHeaders(t *testing.T) {
	w := send(api.New(new(fake), api.Options{}), "GET", "/v1/version", "", "")
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestTooManyGuesses(t *testing.T) {
	w := send(api.New(new(fake), api.Options{}), "GET", "/v1/nodes", "guesses", "")
	if w.Code != 429 || w.Header().Get("Retry-After") != "7" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// TestBlobRange: a blob that can seek is served in parts.
func TestBlobRange(t *testing.T) {
	a := api.New(new(fake), api.Options{})
	req := httptest.NewRequestWithContext(context.Background(), "GET", "/v1/blobs/"+someDigest, nil)
	req.Header.Set("Authorization", "Bearer key-booter")
	req.Header.Set("Range", "bytes=10-19")
	w := httptest.NewRecorder()
	a.ServeHTTP(w, req)
	if w.Code != http.StatusPartialContent || w.Body.String() != blobText[10:20] {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	if got := w.Header().Get("Content-Range"); got != fmt.Sprintf("bytes 10-19/%d", len(blobText)) {
		t.Error(got)
	}
}

func FuzzBody(f *testing.F) {
	for _, s := range []string{`{"scope":"full"}`, `{"scope":"a\u0000"}`, `[`, `{"scope":1e999}`, "\xff", `{"comment":null}`} {
		f.Add(s)
	}
	a := api.New(new(fake), api.Options{})
	f.Fuzz(func(t *testing.T, body string) {
		w := send(a, "POST", "/v1/keys", "admin", body)
		if w.Code != 201 && w.Code != 400 && w.Code != 413 {
			t.Errorf("%d for %q: %s", w.Code, body, w.Body)
		}
	})
}

// TestAnswerIsBounded: an answer must not repeat a whole request.
func TestAnswerIsBounded(t *testing.T) {
	a := api.New(new(fake), api.Options{})
	var b strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&b, `"k%06d":0,`, i)
	}
	for name, w := range map[string]*httptest.ResponseRecorder{
		"unknown fields":  send(a, "POST", "/v1/agent/register", "", "{"+b.String()+`"z":0}`),
		"one long name":   send(a, "POST", "/v1/agent/register", "", `{"`+strings.Repeat("n", 900_000)+`":0}`),
		"a long path":     send(a, "GET", "/"+strings.Repeat("n", 60_000), "", ""),
		"a long query":    send(a, "GET", "/v1/version?"+strings.Repeat("n", 60_000)+"=1", "", ""),
		"a secret's path": send(a, "GET", "/"+strings.Repeat("é", 60_000), "", ""),
	} {
		if problemOf(t, w); w.Code < 400 || w.Code >= 500 || w.Body.Len() > 8_000 {
			t.Errorf("%s: %d with %d bytes", name, w.Code, w.Body.Len())
		}
	}
}

// TestStrangersLargeBodies come only so many at once; small ones and callers
// that are known do not wait for them.
func TestStrangersLargeBodies(t *testing.T) {
	a := api.New(new(fake), api.Options{})
	const at = "/v1/agent/register"
	small := `{"server_uuid":"u","hostname":"h","sysinfo":{}}`
	large := `{"server_uuid":"u","hostname":"h","sysinfo":{"a":"` + strings.Repeat("x", 70_000) + `"}}`
	var stalled []*io.PipeWriter
	done := make(chan int, 100)
	for range 16 {
		r, w := io.Pipe()
		req := httptest.NewRequest("POST", at, r) // no length: it may become large
		out := httptest.NewRecorder()
		go func() { a.ServeHTTP(out, req); done <- out.Code }()
		if _, err := w.Write([]byte("{")); err != nil { // returns when it is being read
			t.Fatal(err)
		}
		stalled = append(stalled, w)
	}
	if w := send(a, "POST", at, "", large); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("the 17th large body: %d %s", w.Code, w.Body)
	}
	if w := send(a, "POST", at, "", small); w.Code != 200 {
		t.Errorf("a small body: %d %s", w.Code, w.Body)
	}
	if w := send(a, "POST", "/v1/keys", "admin", `{"scope":"full","comment":"`+strings.Repeat("x", 70_000)+`"}`); w.Code == 503 {
		t.Errorf("an operator waits for strangers: %s", w.Body)
	}
	for _, w := range stalled {
		w.Close()
	}
	for range stalled {
		if code := <-done; code != 400 {
			t.Errorf("a body cut short: %d", code)
		}
	}
	if w := send(a, "POST", at, "", large); w.Code != 200 {
		t.Errorf("a large body, later: %d %s", w.Code, w.Body)
	}
}
