package api_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster.internal"
	"muster.internal/api"
)

// callers are the columns of the access table: nobody, what does not
// authenticate (a key that has expired or was revoked is not told apart from
// garbage), operators by role, keys by scope.
func callers() (columns [][2]string) {
	columns = [][2]string{{"no key", ""}, {"expired", "expired"}, {"garbage", "🗑 garbage"},
		{"admin", "admin"}, {"viewer", "viewer"}}
	for _, s := range muster.Scopes {
		columns = append(columns, [2]string{string(s), "key-" + string(s)})
	}
	columns = append(columns, [2]string{"node", "node"}, [2]string{"lapsed", "lapsed node"})
	return columns
}

// unread is a body that tells when somebody reads it.
type unread struct{ read bool }

func (u *unread) Read([]byte) (int, error) { u.read = true; return 0, io.EOF }

const accessGolden = "../docs/access.md"

// TestAccess asks for every route as every caller, and compares the answers
// with the committed table. Who is refused is refused before a byte of the
// body is read, and the service hears nothing of it.
func TestAccess(t *testing.T) {
	f := new(fake)
	a := api.New(f, api.Options{})
	b := new(strings.Builder)
	b.WriteString("# Who may do what\n\nWritten by `go test ./api -run TestAccess -update` from what the server answers; the rules are in\n" +
		"`access.go`. `yes`: the request is heard. `401`, `403`: it is refused before its body is read.\n\n| route |")
	rule := "\n|---|"
	for _, c := range callers() {
		fmt.Fprintf(b, " %s |", c[0])
		rule += "---|"
	}
	b.WriteString(rule + "\n")
	for _, r := range a.Routes() {
		fmt.Fprintf(b, "| `%s %s` |", r.Method, r.Path)
		for _, c := range callers() {
			fmt.Fprintf(b, " %s |", askAs(t, f, a, r, c[1]))
		}
		b.WriteString("\n")
	}
	if *update {
		if err := os.WriteFile(accessGolden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(accessGolden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")); diff != "" {
		t.Errorf("docs/access.md differs (-committed +answered):\n%s", diff)
	}
	t.Logf("%d routes × %d callers = %d requests", len(a.Routes()), len(callers()), len(a.Routes())*len(callers()))
}

func askAs(t *testing.T, f *fake, a *api.API, r api.Route, token string) string {
	t.Helper()
	body := new(unread)
	req := httptest.NewRequest(r.Method, strings.NewReplacer("{uuid}", "u", "{mac}", "m", "{event}", "e",
		"{ref}", "r", "{digest}", "d", "{id}", "i").Replace(r.Path), body)
	req.RemoteAddr = "192.0.2.1:999"
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, req)
	calls := f.asked()
	switch w.Code {
	case http.StatusUnauthorized, http.StatusForbidden:
		if body.read || len(calls) > 0 {
			t.Errorf("%s %s as %q: refused, but read=%v and the service was asked %q", r.Method, r.Path, token, body.read, calls)
		}
		if w.Code == http.StatusUnauthorized && w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("%s %s: 401 without WWW-Authenticate", r.Method, r.Path)
		}
		return fmt.Sprint(w.Code)
	}
	if w.Code >= 500 {
		t.Errorf("%s %s as %q: %d %s", r.Method, r.Path, token, w.Code, w.Body)
	}
	return "yes"
}

// TestAccessAgreesWithRules checks the same against the rules themselves, and
// that no rule is without a route and no operation without a rule.
func TestAccessAgreesWithRules(t *testing.T) {
	f := new(fake)
	a := api.New(f, api.Options{})
	used := map[muster.Action]bool{}
	var routes []string
	for _, r := range a.Routes() {
		routes = append(routes, r.Method+" "+r.Path)
		if len(r.Actions) == 0 {
			t.Errorf("%s %s names no action", r.Method, r.Path)
		}
		for _, act := range r.Actions {
			used[act] = true
		}
		for _, c := range callers() {
			caller := bearers[c[1]]
			want := http.StatusForbidden
			if caller == (muster.Caller{}) {
				want = http.StatusUnauthorized
			}
			if slices.ContainsFunc(r.Actions, caller.May) {
				want = 0
			}
			got := askAs(t, f, a, r, c[1])
			if want == 0 && got != "yes" || want != 0 && got != fmt.Sprint(want) {
				t.Errorf("%s %s as %s: %s, want %d", r.Method, r.Path, c[0], got, want)
			}
		}
	}
	for _, act := range muster.Actions() {
		if !used[act] {
			t.Errorf("no route names action %s", act)
		}
	}
	ops := documented(t)
	slices.Sort(ops)
	slices.Sort(routes)
	if diff := cmp.Diff(ops, routes); diff != "" {
		t.Errorf("operations of the document and routes under the table differ:\n%s", diff)
	}
}

// TestPersonOnly spells out what no key may do, whatever the table says.
func TestPersonOnly(t *testing.T) {
	for _, act := range []muster.Action{muster.ActSetupApprove, muster.ActDoorChange, muster.ActKeyManage, muster.ActOperatorManage} {
		for name, c := range maps.All(bearers) {
			if may := c.May(act); may != (c.Role == muster.Admin) {
				t.Errorf("%s may %s: %v", name, act, may)
			}
		}
	}
}
