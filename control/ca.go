package control

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"muster.internal/durable"
)

// Lives of certificates. The server's is renewed by itself; the CA's outlives
// the machines that pinned it.
const (
	caLife     = 20 * 365 * 24 * time.Hour
	serverLife = 365 * 24 * time.Hour
	renewAt    = serverLife / 3 // left to live
	backdated  = time.Hour      // for machines whose clocks are behind
)

// An Authority is the self-made CA of one installation, and the server
// certificate that it keeps valid. Machines trust it and nothing else.
type Authority struct {
	dir   string
	now   func() time.Time
	names []string // DNS names and addresses of the server
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	pem   []byte

	mu     sync.Mutex
	server *tls.Certificate
}

// OpenAuthority loads the CA in dir, or makes it there at the first start.
// Loopback is always among the server's names.
func OpenAuthority(dir string, names []string, now func() time.Time) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	a := &Authority{dir: dir, now: now, names: serverNames(names)}
	err := a.load()
	if errors.Is(err, fs.ErrNotExist) {
		err = a.create()
	}
	if err != nil {
		return nil, fmt.Errorf("certificate authority in %s: %w", dir, err)
	}
	if _, err := a.certificate(); err != nil {
		return nil, fmt.Errorf("server certificate in %s: %w", dir, err)
	}
	return a, nil
}

func serverNames(names []string) []string {
	all := append([]string{"localhost", "127.0.0.1", "::1"}, names...)
	for i, n := range all {
		all[i] = strings.ToLower(strings.Trim(n, "[]"))
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(n string) bool { return n == "" })
}

// PEM is the CA's certificate.
func (a *Authority) PEM() []byte { return a.pem }

// Fingerprint is the SHA-256 of the CA's certificate in DER, in hex: what
// people compare and tokens carry.
func (a *Authority) Fingerprint() string {
	sum := sha256.Sum256(a.cert.Raw)
	return hex.EncodeToString(sum[:])
}

// Config is the server's side of TLS. The chain that it shows includes the CA,
// so that a client can pin the CA by its fingerprint alone.
func (a *Authority) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// Nodes show a certificate of ours, which is looked at with each request:
		// one that has expired is still good for another. The names of the CA keep
		// browsers from asking people for theirs.
		ClientAuth:     tls.RequestClientCert,
		ClientCAs:      a.pool(),
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.certificate() },
	}
}

// pool holds the CA alone.
func (a *Authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func (a *Authority) load() error {
	certPEM, err := os.ReadFile(filepath.Join(a.dir, "ca.pem"))
	if errors.Is(err, fs.ErrNotExist) && a.had("ca.key") && a.had("server.pem") { // no first start that was cut short
		return fmt.Errorf("ca.key is there but ca.pem is not: restore ca.pem, or remove both to start a new CA that every machine must learn anew")
	}
	if err != nil {
		return err
	}
	keyPEM, err := os.ReadFile(filepath.Join(a.dir, "ca.key"))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) { // do not make another CA under the old one's feet
			return fmt.Errorf("ca.pem is there but its key is not: restore ca.key, or remove both to start a new CA that every machine must learn anew")
		}
		return err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return errors.New("ca.key is no ECDSA key")
	}
	a.cert, a.key, a.pem = pair.Leaf, key, certPEM
	return nil
}

func (a *Authority) had(file string) bool {
	_, err := os.Lstat(filepath.Join(a.dir, file))
	return err == nil
}

func (a *Authority) create() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := a.now()
	serial, err := serialNumber()
	if err != nil {
		return err
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "muster CA"},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(caLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return err
	}
	if err := writeKey(filepath.Join(a.dir, "ca.key"), key); err != nil {
		return err
	}
	// The certificate last: it is what says that there is a CA.
	if err := durable.Replace(filepath.Join(a.dir, "ca.pem"), certPEM(der), 0o644); err != nil {
		return err
	}
	return a.load()
}

// certificate is the server's: the one at hand, the one on disk, or a new one.
func (a *Authority) certificate() (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.good(a.server) {
		return a.server, nil
	}
	certFile, keyFile := filepath.Join(a.dir, "server.pem"), filepath.Join(a.dir, "server.key")
	if pair, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil && a.good(&pair) {
		a.server = &pair
		return a.server, nil
	}
	pair, err := a.issue(certFile, keyFile)
	if err != nil {
		if a.server != nil && a.now().Before(a.server.Leaf.NotAfter) {
			return a.server, nil // a full disk must not end what still works
		}
		return nil, err
	}
	a.server = pair
	return pair, nil
}

func (a *Authority) good(c *tls.Certificate) bool {
	now := a.now()
	return c != nil && c.Leaf != nil && now.Before(c.Leaf.NotAfter.Add(-renewAt)) &&
		!now.Before(c.Leaf.NotBefore) && // made while the clock was ahead
		c.Leaf.CheckSignatureFrom(a.cert) == nil && slices.Equal(namesOf(c.Leaf), a.names)
}

func namesOf(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	slices.Sort(names)
	return names
}

func (a *Authority) issue(certFile, keyFile string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	now := a.now()
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "musterd"},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(serverLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, n := range a.names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	if err := writeKey(keyFile, key); err != nil {
		return nil, err
	}
	if err := durable.Replace(certFile, append(certPEM(der), a.pem...), 0o644); err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	return &pair, err
}

func serialNumber() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return durable.Replace(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}
