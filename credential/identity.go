package credential

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"muster.internal/durable"
)

// An Identity is a machine's key pair with the certificate that the control
// plane signed for it. The private half never leaves the machine. Both are in
// one file, so that no power cut leaves one without the other.
type Identity struct {
	Key *ecdsa.PrivateKey
	// Certificate is nil before the first one was signed.
	Certificate *x509.Certificate
}

// NewIdentity makes a key pair, on P-256 as the control plane wants it.
func NewIdentity() (Identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return Identity{Key: key}, err
}

// LoadIdentity reads one; fs.ErrNotExist when there is none.
func LoadIdentity(path string) (Identity, error) {
	var id Identity
	text, err := os.ReadFile(path)
	if err != nil {
		return id, err
	}
	torn := fmt.Errorf("%s is not a whole identity", path)
	block, rest := pem.Decode(text)
	if block == nil {
		return id, torn
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return id, torn // the cause may quote the key
	}
	var is bool
	if id.Key, is = key.(*ecdsa.PrivateKey); !is {
		return id, torn
	}
	if block, _ = pem.Decode(rest); block == nil {
		return id, nil
	}
	return id.With(block.Bytes)
}

// With is the identity with another certificate, in DER, which must be its key's.
func (id Identity) With(certificate []byte) (Identity, error) {
	c, err := x509.ParseCertificate(certificate)
	if err != nil {
		return id, fmt.Errorf("the certificate cannot be read: %w", err)
	}
	if !id.Key.PublicKey.Equal(c.PublicKey) {
		return id, errors.New("the certificate is not of this machine's key pair")
	}
	id.Certificate = c
	return id, nil
}

// WithPEM is With a certificate as the control plane answers it.
func (id Identity) WithPEM(certificate string) (Identity, error) {
	block, _ := pem.Decode([]byte(certificate))
	if block == nil {
		return id, errors.New("the control plane's answer holds no certificate")
	}
	return id.With(block.Bytes)
}

// Store writes it to a file that only its owner can read.
func (id Identity) Store(path string) error {
	key, err := x509.MarshalPKCS8PrivateKey(id.Key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	if id.Certificate != nil {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: id.Certificate.Raw})...)
	}
	return durable.Replace(path, text, 0o600)
}

// Request is a certificate request for its key, in PEM (RFC 2986, RFC 7468).
func (id Identity) Request() (string, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, id.Key)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), err
}

// TLS is it for a handshake.
func (id Identity) TLS() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{id.Certificate.Raw}, PrivateKey: id.Key, Leaf: id.Certificate}
}

// NodeID is the node that the certificate speaks for.
func (id Identity) NodeID() string {
	if id.Certificate == nil {
		return ""
	}
	return id.Certificate.Subject.CommonName
}

// Fresh tells whether the certificate is not to be renewed yet: half of its time
// is left.
func (id Identity) Fresh(now time.Time) bool {
	c := id.Certificate
	return c != nil && now.Before(c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore)/2))
}

// Good tells whether it can be used still.
func (id Identity) Good(now time.Time) bool {
	return id.Certificate != nil && now.Before(id.Certificate.NotAfter)
}

// Drop removes a credential or an identity, for good.
func Drop(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
