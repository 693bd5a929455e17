package control

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"time"

	"muster.internal"
)

// Sign makes a node's certificate. Its subject names the node and the agent key
// that it lives and dies with; of the request, only the key is heard.
func (a *Authority) Sign(csr, nodeID, keyID string) (*x509.Certificate, error) {
	block, _ := pem.Decode([]byte(csr))
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, muster.Invalid("csr", "is no PKCS #10 request in PEM")
	}
	req, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || req.CheckSignature() != nil {
		return nil, muster.Invalid("csr", "is no PKCS #10 request that its own key has signed")
	}
	key, ok := req.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, muster.Invalid("csr", "its key must be ECDSA on P-256")
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	now := a.now()
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: nodeID, SerialNumber: keyID},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(muster.CertificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key, a.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// Verify tells whether a certificate was signed here for a node, and whether
// its time is over. That who shows it has its key, the handshake has proved.
func (a *Authority) Verify(c *x509.Certificate) (lapsed bool, err error) {
	if _, err := c.Verify(x509.VerifyOptions{Roots: a.pool(), CurrentTime: c.NotAfter, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil ||
		c.Subject.CommonName == "" || c.Subject.SerialNumber == "" {
		return false, muster.Problemf(muster.CodeUnauthenticated, "this certificate is not a node's of this control plane")
	}
	now := a.now()
	return now.Before(c.NotBefore) || !now.Before(c.NotAfter), nil
}

// whoseCertificate finds which node speaks with a certificate. It is believed as
// long as a key would be, by the same cache.
func (c *Control) whoseCertificate(ctx context.Context, now time.Time, cert *x509.Certificate, source string) (_ muster.Caller, until time.Time, _ error) {
	known := "certificate " + string(cert.Raw)
	if caller, until, ok := c.keys.get(ctx, now, known); ok {
		caller.Source = source
		return caller, until, nil
	}
	lapsed, err := c.authority.Verify(cert)
	if err != nil {
		return muster.Caller{}, now, err
	}
	mark := c.keys.mark()
	caller, err := c.store.AuthenticateNode(ctx, now, cert.Subject.CommonName, cert.Subject.SerialNumber, source)
	if err != nil {
		return caller, now, err
	}
	var ends *time.Time
	if caller.Lapsed = lapsed; !lapsed {
		ends = &cert.NotAfter
	}
	return caller, c.keys.put(now, mark, known, caller, ends), nil
}

// LinkCertificate signs the key of a node's host.
func (s session) LinkCertificate(ctx context.Context, r muster.CertificateRequest) (muster.Certificate, error) {
	if s.by.Lapsed && s.by.NodeID == "" { // it comes with its next key
		if err := s.store.TakeKey(ctx, s.now(), s.by); err != nil {
			return muster.Certificate{}, err
		}
	}
	nodeID, err := s.store.NodeOf(ctx, s.by)
	if err != nil {
		return muster.Certificate{}, err
	}
	if nodeID == "" {
		return muster.Certificate{}, muster.Problemf(muster.CodeConflict, "machine %s is no node yet: its setup has to end first", s.by.ServerUUID)
	}
	cert, err := s.authority.Sign(r.CSR, nodeID, s.by.KeyID)
	if err != nil {
		return muster.Certificate{}, err
	}
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	if err := s.store.RecordCertificate(ctx, s.now(), s.by, nodeID, cert.SerialNumber.Text(16), hex.EncodeToString(sum[:]), cert.NotAfter); err != nil {
		return muster.Certificate{}, err
	}
	return muster.Certificate{Certificate: string(certPEM(cert.Raw)), NotAfter: cert.NotAfter, RenewAfter: cert.NotAfter.Add(-muster.CertificateLife / 2), NodeID: nodeID}, nil
}
