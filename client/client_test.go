package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster.internal"
)

// answering runs a server that answers the nth request (from 1) by h.
func answering(t *testing.T, h func(n int, w http.ResponseWriter, r *http.Request)) (*Client, *atomic.Int32) {
	t.Helper()
	n := new(atomic.Int32)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h(int(n.Add(1)), w, r) }))
	t.Cleanup(srv.Close)
	c, err := New(srv.URL+"/", "musop_abc_secret", Trust{CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})})
	if err != nil {
		t.Fatal(err)
	}
	c.Pause = func(context.Context, time.Duration) {}
	t.Cleanup(c.Close)
	return c, n
}

func problemWith(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

const away = `{"title":"unavailable","status":503,"code":"unavailable","detail":"the store is away","retry_after":3}`

// TestRetries: what is safe is tried again, what is not is not.
func TestRetries(t *testing.T) {
	c, n := answering(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n < 3 {
			problemWith(w, 503, away)
			return
		}
		_, _ = w.Write([]byte(`{"items":[{"node_id":"n"}]}`))
	})
	var pauses []time.Duration
	c.Pause = func(_ context.Context, d time.Duration) { pauses = append(pauses, d) }
	nodes, err := c.Nodes(t.Context())
	if err != nil || len(nodes) != 1 || n.Load() != 3 {
		t.Fatalf("%v %v after %d requests", nodes, err, n.Load())
	}
	if len(pauses) != 2 || pauses[0] != 3*time.Second {
		t.Errorf("paused %v, want what Retry-After says", pauses)
	}

	for name, ask := range map[string]func(c *Client) error{
		"POST":         func(c *Client) error { _, err := c.ApproveCode(t.Context(), "x"); return err },
		"DELETE":       func(c *Client) error { return c.RevokeKey(t.Context(), "x") },
		"key delivery": func(c *Client) error { _, err := c.RegisterStatus(t.Context(), "x", 0); return err },
		"PUT":          func(c *Client) error { return c.PutBlob(t.Context(), "x", 1, strings.NewReader("x")) },
	} {
		c, n := answering(t, func(_ int, w http.ResponseWriter, r *http.Request) { problemWith(w, 503, away) })
		if err := ask(c); !muster.IsCode(err, muster.CodeUnavailable) || n.Load() != 1 {
			t.Errorf("%s: %v after %d requests, want one", name, err, n.Load())
		}
	}

	c, n = answering(t, func(_ int, w http.ResponseWriter, r *http.Request) { problemWith(w, 503, away) })
	if _, err := c.Nodes(t.Context()); !muster.IsCode(err, muster.CodeUnavailable) || n.Load() != tries {
		t.Errorf("%v after %d requests, want %d", err, n.Load(), tries)
	}
	c, n = answering(t, func(_ int, w http.ResponseWriter, r *http.Request) { problemWith(w, 404, `{"code":"not_found"}`) })
	if _, err := c.Node404(t.Context()); !muster.IsCode(err, muster.CodeNotFound) || n.Load() != 1 {
		t.Errorf("%v after %d requests, want one", err, n.Load())
	}
}

func (c *Client) Node404(ctx context.Context) (muster.Registration, error) {
	return c.Registration(ctx, "nobody")
}

// TestForeignAnswers: what a proxy or another server says becomes a problem too.
func TestForeignAnswers(t *testing.T) {
	c, _ := answering(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		http.Error(w, "<html>go away", http.StatusForbidden)
	})
	_, err := c.Keys(t.Context())
	var p *muster.Problem
	if !errors.As(err, &p) || p.Status != 403 || p.Code != muster.CodeForbidden || strings.Contains(err.Error(), "html") {
		t.Errorf("%v", err)
	}
	c, _ = answering(t, func(_ int, w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("<html>")) })
	if _, err = c.Keys(t.Context()); err == nil || !strings.Contains(err.Error(), "is https://") {
		t.Errorf("%v", err)
	}
	c, n := answering(t, func(n int, w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://192.0.2.1/", http.StatusTemporaryRedirect)
	})
	if _, err = c.Keys(t.Context()); err == nil || n.Load() != 1 {
		t.Errorf("a redirect was followed: %v after %d requests", err, n.Load())
	}
}

// TestErrorsHoldNoSecrets: neither token nor poll token show in an error.
func TestErrorsHoldNoSecrets(t *testing.T) {
	c, err := New("https://127.0.0.1:1", "mus_aaaa_planted", Trust{})
	if err != nil {
		t.Fatal(err)
	}
	c.Pause = func(context.Context, time.Duration) {}
	_, err = c.RegisterStatus(t.Context(), "planted", time.Second)
	if err == nil || strings.Contains(err.Error(), "planted") || !strings.Contains(err.Error(), "https://127.0.0.1:1") {
		t.Errorf("%v", err)
	}
}

func TestTrust(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(`{}`)) }))
	defer srv.Close()
	sum := sha256.Sum256(srv.Certificate().Raw)
	right := hex.EncodeToString(sum[:])
	var colons strings.Builder
	for i, b := range sum {
		if i > 0 {
			colons.WriteByte(':')
		}
		colons.WriteString(strings.ToUpper(hex.EncodeToString([]byte{b})))
	}
	for name, c := range map[string]struct {
		trust Trust
		ok    bool
	}{
		"fingerprint":       {Trust{Fingerprint: right}, true},
		"with colons":       {Trust{Fingerprint: colons.String()}, true},
		"as musterd ca":     {Trust{Fingerprint: "sha256:" + right}, true},
		"wrong fingerprint": {Trust{Fingerprint: strings.Repeat("ab", 32)}, false},
		"CA":                {Trust{CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})}, true},
		"system":            {Trust{}, false},
	} {
		cl, err := New(srv.URL, "", c.trust)
		if err != nil {
			t.Fatal(err)
		}
		cl.Pause = func(context.Context, time.Duration) {}
		if _, err := cl.Version(t.Context()); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		cl.Close()
	}
	for _, bad := range []Trust{{Fingerprint: "abc"}, {CA: []byte("not PEM")}} {
		if _, err := New(srv.URL, "", bad); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
	for _, bad := range []string{"http://x", "x", "", "https://"} {
		if _, err := New(bad, "", Trust{}); err == nil {
			t.Errorf("address %q was taken", bad)
		}
	}
}

// TestCallEndsWithContext: a server that never answers.
func TestCallEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, _ := answering(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	if _, err := c.Nodes(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestJoin(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"52:54:00:00:00:01", "/v1/x/52:54:00:00:00:01"}, {"a/b", "/v1/x/a%2Fb"}, {"..", "/v1/x/-"}, {"", "/v1/x/-"}, {"a?b#c%", "/v1/x/a%3Fb%23c%25"},
	} {
		if got := join([]string{"/v1/x", c.in}); got != c.want {
			t.Errorf("%q: %s, want %s", c.in, got, c.want)
		}
	}
}

// TestStaysSmall: the root process of every machine carries this package.
func TestStaysSmall(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range strings.Fields(string(out)) {
		for _, no := range []string{"database/sql", "html/template", "text/template", "github.com/", "muster.internal/api", "muster.internal/store"} {
			if strings.HasPrefix(dep, no) {
				t.Errorf("client links %s", dep)
			}
		}
	}
}

func TestPutBlobSendsItsSize(t *testing.T) {
	var got bytes.Buffer
	c, _ := answering(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 5 {
			t.Errorf("Content-Length %d", r.ContentLength)
		}
		_, _ = got.ReadFrom(r.Body)
	})
	if err := c.PutBlob(t.Context(), "sha256:x", 5, strings.NewReader("hello and more")); err != nil || got.String() != "hello" {
		t.Errorf("%v %q", err, got.String())
	}
}
