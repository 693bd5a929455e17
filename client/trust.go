package client

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Trust says which control plane is believed: the CA itself, or the SHA-256
// fingerprint of its certificate. The zero value trusts the system's roots.
type Trust struct {
	CA          []byte // PEM
	Fingerprint string // of the CA's DER, 64 hex digits; "sha256:", colons and case do not matter
	// AnyTime believes what the fingerprint names whatever this machine's clock
	// says, for whoever asks what the time is. It is not for secrets.
	AnyTime bool
	// Pair is what this client shows of itself: a node's certificate and its key.
	// Another certificate takes another client.
	Pair *tls.Certificate
}

// ErrUntrusted is in the error of a call to a server that is not the one whose
// fingerprint was named; no byte of the request has reached it.
var ErrUntrusted = errors.New("the server is not the one that was named")

func (t Trust) config() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS13}
	if t.Pair != nil {
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return t.Pair, nil }
	}
	switch {
	case len(t.CA) > 0:
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(t.CA) {
			return nil, errors.New("the CA is not a PEM certificate")
		}
	case t.Fingerprint != "":
		digits := strings.TrimPrefix(strings.ToLower(strings.TrimSpace(t.Fingerprint)), "sha256:")
		want, err := hex.DecodeString(strings.ReplaceAll(digits, ":", ""))
		if err != nil || len(want) != sha256.Size {
			return nil, fmt.Errorf("%q is not a SHA-256 fingerprint of 64 hex digits", t.Fingerprint)
		}
		conf.InsecureSkipVerify = true // in favour of pinned, which checks more
		conf.VerifyConnection = func(cs tls.ConnectionState) error { return pinned(cs, want, t.AnyTime) }
	}
	return conf, nil
}

// pinned demands that the server's chain ends in the named CA, before a byte of
// the request is sent. VerifyConnection runs on resumed connections too.
func pinned(cs tls.ConnectionState, want []byte, anyTime bool) error {
	if len(cs.PeerCertificates) == 0 {
		return ErrUntrusted
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	found := false
	for _, cert := range cs.PeerCertificates {
		sum := sha256.Sum256(cert.Raw)
		if subtle.ConstantTimeCompare(sum[:], want) == 1 {
			roots.AddCert(cert)
			found = true
			continue
		}
		between.AddCert(cert)
	}
	if !found {
		return fmt.Errorf("%w: no certificate in its chain has the expected fingerprint", ErrUntrusted)
	}
	o := x509.VerifyOptions{DNSName: cs.ServerName, Roots: roots, Intermediates: between}
	if anyTime {
		o.CurrentTime = cs.PeerCertificates[0].NotBefore
	}
	_, err := cs.PeerCertificates[0].Verify(o)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	return nil
}
