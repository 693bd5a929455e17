package kubernetes_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestRealCluster tells the same story to a real kube-apiserver with a real etcd.
// scripts/kube-apiserver builds the one, Debian's etcd-server is the other.
func TestRealCluster(t *testing.T) {
	program := os.Getenv("MUSTER_KUBE_APISERVER")
	if program == "" {
		t.Skip("MUSTER_KUBE_APISERVER names no kube-apiserver (scripts/kube-apiserver DIR builds one)")
	}
	if _, err := exec.LookPath("etcd"); err != nil {
		t.Skip("there is no etcd (Debian: etcd-server)")
	}
	dir := t.TempDir()
	etcd, peer, port := freePort(t), freePort(t), freePort(t)
	start(t, dir, "etcd", "--data-dir", filepath.Join(dir, "etcd"), "--listen-client-urls", "http://127.0.0.1:"+etcd, "--advertise-client-urls", "http://127.0.0.1:"+etcd,
		"--listen-peer-urls", "http://127.0.0.1:"+peer, "--initial-advertise-peer-urls", "http://127.0.0.1:"+peer, "--initial-cluster", "default=http://127.0.0.1:"+peer)
	key := accountKey(t, dir)
	start(t, dir, program, "--etcd-servers", "http://127.0.0.1:"+etcd, "--secure-port", port, "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--cert-dir", filepath.Join(dir, "certs"),
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", key, "--service-account-signing-key-file", key, "--service-cluster-ip-range", "10.96.0.0/16",
		"--token-auth-file", write(t, filepath.Join(dir, "tokens"), bearer+",admin,1,\"system:masters\"\n"), "--authorization-mode", "RBAC",
		"--disable-admission-plugins", "ServiceAccount") // whose accounts a controller makes that does not run here
	certificate := filepath.Join(dir, "certs", "apiserver.crt")
	base := "https://127.0.0.1:" + port
	var ca []byte
	waitFor(t, 3*time.Minute, "the API server made its certificate", func() bool {
		var err error
		ca, err = os.ReadFile(certificate)
		return err == nil
	})
	config := kubeconfigOf(t, base, ca)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	waitFor(t, 3*time.Minute, "the API server is ready, with its default namespace", func() bool {
		for _, path := range []string{"/readyz", "/api/v1/namespaces/default"} {
			r, _ := http.NewRequest(http.MethodGet, base+path, nil)
			r.Header.Set("Authorization", "Bearer "+bearer)
			a, err := trusting(pool).Do(r)
			if err != nil {
				return false
			}
			a.Body.Close()
			if a.StatusCode != http.StatusOK {
				return false
			}
		}
		return true
	})
	w := begin(t, base, ca, config)
	w.drains()
	t.Log("what the agent said:\n" + w.log.String())
}

func waitFor(t *testing.T, most time.Duration, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(most); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is not so that %s", what)
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func accountKey(t *testing.T, dir string) string {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, filepath.Join(dir, "accounts.key"), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
}

// start runs a program until the test ends; its words are shown if that fails.
func start(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	said, err := os.Create(filepath.Join(dir, filepath.Base(program)+".log"))
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, args...)
	c.Stdout, c.Stderr = said, said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
		said.Close()
		if b, _ := os.ReadFile(said.Name()); t.Failed() {
			t.Logf("%s: %s", program, b[max(0, len(b)-4000):])
		}
	})
}
