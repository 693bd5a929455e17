package credential

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func signed(t *testing.T, id Identity, from time.Time) []byte {
	t.Helper()
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "n1"}, NotBefore: from, NotAfter: from.Add(30 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &id.Key.PublicKey, id.Key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "identity")
	if _, err := LoadIdentity(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is none: %v", err)
	}
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Store(path); err != nil {
		t.Fatal(err)
	}
	if st, _ := os.Stat(path); st.Mode().Perm() != 0o600 {
		t.Errorf("others can read it: %v", st.Mode())
	}
	back, err := LoadIdentity(path)
	if err != nil || !back.Key.Equal(id.Key) || back.NodeID() != "" || back.Good(time.Now()) || back.Fresh(time.Now()) {
		t.Errorf("before it is signed: %+v, %v", back, err)
	}
	text, err := id.Request()
	block, _ := pem.Decode([]byte(text))
	if err != nil || block == nil {
		t.Fatal(err, text)
	}
	if r, err := x509.ParseCertificateRequest(block.Bytes); err != nil || r.CheckSignature() != nil || !id.Key.PublicKey.Equal(r.PublicKey) {
		t.Errorf("the request: %v", err)
	}

	from := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	if id, err = id.With(signed(t, id, from)); err != nil {
		t.Fatal(err)
	}
	if err := id.Store(path); err != nil {
		t.Fatal(err)
	}
	if back, err = LoadIdentity(path); err != nil || back.NodeID() != "n1" || !back.Key.Equal(id.Key) || len(back.TLS().Certificate) != 1 {
		t.Errorf("signed: %+v, %v", back, err)
	}
	for day, want := range map[int][2]bool{14: {true, true}, 16: {false, true}, 31: {false, false}} {
		now := from.Add(time.Duration(day) * 24 * time.Hour)
		if back.Fresh(now) != want[0] || back.Good(now) != want[1] {
			t.Errorf("day %d: fresh %v, good %v", day, back.Fresh(now), back.Good(now))
		}
	}
	other, _ := NewIdentity()
	if _, err := other.With(signed(t, id, from)); err == nil || !strings.Contains(err.Error(), "not of this machine") {
		t.Errorf("the certificate of another: %v", err)
	}
	whole, _ := os.ReadFile(path)
	os.WriteFile(path, whole[:100], 0o600)
	if _, err := LoadIdentity(path); err == nil || strings.Contains(err.Error(), string(whole[40:80])) {
		t.Errorf("a torn one: %v", err)
	}
	for range 2 {
		if err := Drop(path); err != nil {
			t.Error(err)
		}
	}
}
