package kubernetes

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCordon: of a node that changed since it was looked at, nothing is known;
// so the patch names the version, and takes the mark away with a null.
func TestCordon(t *testing.T) {
	var got, want any
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		json.Unmarshal(b, &got)
		if r.Method != http.MethodPatch || r.URL.Path != "/api/v1/nodes/a" || r.Header.Get("Content-Type") != "application/merge-patch+json" {
			t.Errorf("%s %s, %s", r.Method, r.URL, r.Header)
		}
		w.WriteHeader(http.StatusConflict)
		io.WriteString(w, `{"message":"the object has been modified"}`)
	}))
	defer s.Close()
	c := &Cluster{base: s.URL, token: "t", http: s.Client()}
	n := node{Meta: meta{Name: "a", ResourceVersion: "7"}}
	for claim, body := range map[string]string{
		"c1": `{"metadata":{"resourceVersion":"7","annotations":{"muster.internal/cordoned":"c1"}},"spec":{"unschedulable":true}}`,
		"":   `{"metadata":{"resourceVersion":"7","annotations":{"muster.internal/cordoned":null}},"spec":{"unschedulable":false}}`,
	} {
		if err := c.cordon(t.Context(), n, claim); err == nil || err.Error() != "the API server says 409: the object has been modified" {
			t.Errorf("%v", err)
		}
		if json.Unmarshal([]byte(body), &want); !cmp.Equal(got, want) {
			t.Errorf("%s", cmp.Diff(want, got))
		}
		got, want = nil, nil
	}
}
