package control

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"muster.internal/client"
)

func openAuthority(t *testing.T, dir string, now time.Time, names ...string) *Authority {
	t.Helper()
	a, err := OpenAuthority(dir, names, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAuthorityStaysAndRenews(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	first := openAuthority(t, dir, now, "Muster.example", "192.0.2.7", "[2001:db8::1]")
	leaf := first.server.Leaf
	for _, host := range []string{"muster.example", "192.0.2.7", "2001:db8::1", "127.0.0.1", "localhost", "::1"} {
		if err := leaf.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	again := openAuthority(t, dir, now.Add(200*24*time.Hour), "muster.example", "192.0.2.7", "2001:db8::1")
	if again.Fingerprint() != first.Fingerprint() || again.server.Leaf.SerialNumber.Cmp(leaf.SerialNumber) != 0 {
		t.Error("a restart made new certificates")
	}
	old := openAuthority(t, dir, now.Add(300*24*time.Hour), "muster.example", "192.0.2.7", "2001:db8::1")
	if old.Fingerprint() != first.Fingerprint() || old.server.Leaf.SerialNumber.Cmp(leaf.SerialNumber) == 0 {
		t.Error("near its end the server's certificate is renewed, and the CA is not")
	}
	renamed := openAuthority(t, dir, now, "other.example")
	if renamed.server.Leaf.VerifyHostname("other.example") != nil || renamed.server.Leaf.VerifyHostname("muster.example") == nil {
		t.Error("other names need another certificate")
	}
	for name, want := range map[string]os.FileMode{"ca.key": 0o600, "server.key": 0o600, "ca.pem": 0o644, "server.pem": 0o644} {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v %v", name, st.Mode(), err)
		}
	}
}

// TestRenewsWhileRunning: the certificate of a server that nobody restarts.
func TestRenewsWhileRunning(t *testing.T) {
	now := time.Now()
	a, err := OpenAuthority(t.TempDir(), nil, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	before, _ := a.Config().GetCertificate(nil)
	now = now.Add(300 * 24 * time.Hour)
	after, err := a.Config().GetCertificate(nil)
	if err != nil || before.Leaf.SerialNumber.Cmp(after.Leaf.SerialNumber) == 0 {
		t.Errorf("not renewed: %v", err)
	}
	now = now.Add(-300 * 24 * time.Hour) // it was ahead, and is set right: nobody would believe that certificate for months
	if again, err := a.Config().GetCertificate(nil); err != nil || now.Before(again.Leaf.NotBefore) {
		t.Errorf("good from %v on, and it is %v (%v)", again.Leaf.NotBefore, now, err)
	}
}

func TestLostKeyIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	openAuthority(t, dir, time.Now())
	if err := os.Remove(filepath.Join(dir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenAuthority(dir, nil, time.Now); err == nil {
		t.Error("a new CA took the place of one that machines trust")
	}
}

// TestClientPinsAuthority: by PEM and by fingerprint alone.
func TestClientPinsAuthority(t *testing.T) {
	a := openAuthority(t, t.TempDir(), time.Now())
	other := openAuthority(t, t.TempDir(), time.Now())
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	srv.TLS = a.Config()
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	// httptest adds a certificate of its own; ours must be the one that is shown.
	srv.TLS.Certificates = []tls.Certificate{}
	for name, c := range map[string]struct {
		trust client.Trust
		ok    bool
	}{
		"PEM":               {client.Trust{CA: a.PEM()}, true},
		"fingerprint":       {client.Trust{Fingerprint: a.Fingerprint()}, true},
		"other PEM":         {client.Trust{CA: other.PEM()}, false},
		"other fingerprint": {client.Trust{Fingerprint: other.Fingerprint()}, false},
	} {
		cl, err := client.New(srv.URL, "", c.trust)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cl.Version(t.Context()); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		cl.Close()
	}
}

func TestMasterKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "master.key")
	a, err := masterKey(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := masterKey(path)
	if err != nil || string(a) != string(b) || len(a) != 32 {
		t.Errorf("%x %x %v", a, b, err)
	}
	if err := os.WriteFile(path, []byte("cut sh"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := masterKey(path); err == nil {
		t.Error("a broken master key was taken")
	}
}
