package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/credential"
	"muster.internal/resource"
	"muster.internal/setup"
)

// A linkPlane speaks the control plane's half of the link, over TLS with a CA of
// its own, and does as the test says.
type linkPlane struct {
	*httptest.Server
	t      *testing.T
	key    *ecdsa.PrivateKey
	ca     *x509.Certificate
	caPEM  string
	mu     sync.Mutex
	issued int64
	life   time.Duration // of the certificates it signs

	declaration *resource.Declaration
	orders      []muster.OrderKind
	refusal     *muster.Problem
	last        int64 // the generation with whose delivery it is cut off
	reports     []resource.Report
	owned       []resource.Owned
	profile     muster.Profile
	hardware    muster.Hardware
	health      [][]muster.PlacementHealth // each time that it was said
	asked       []string                   // path and how the caller proved who it is
	polls       []muster.LinkPoll
	from        []string // path and connection
	onOwned     func()   // when it is asked for the mirror
}

func newLinkPlane(t *testing.T) *linkPlane {
	t.Helper()
	p := &linkPlane{t: t, life: 30 * 24 * time.Hour}
	var err error
	if p.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{"127.0.0.1"}}
	p.ca = p.sign(of, of, &p.key.PublicKey)
	p.caPEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.ca.Raw}))
	p.start("127.0.0.1:0")
	t.Cleanup(func() { p.Close() })
	return p
}

func (p *linkPlane) sign(of, by *x509.Certificate, key any) *x509.Certificate {
	der, err := x509.CreateCertificate(rand.Reader, of, by, key, p.key)
	if err != nil {
		panic(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return c
}

func (p *linkPlane) start(addr string) {
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	own := p.sign(&x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: loopback}, p.ca, &key.PublicKey)
	p.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{{Certificate: [][]byte{own.Raw}, PrivateKey: key}}}
	if addr != "127.0.0.1:0" {
		p.Listener.Close()
		p.Listener = listen(p.t, addr)
	}
	p.StartTLS()
}

// caller is "key", "certificate" or "lapsed certificate".
func (p *linkPlane) caller(r *http.Request) string {
	if len(r.TLS.PeerCertificates) > 0 {
		c := r.TLS.PeerCertificates[0]
		switch {
		case c.CheckSignatureFrom(p.ca) != nil:
			return "stranger"
		case time.Now().After(c.NotAfter):
			return "lapsed certificate"
		}
		return "certificate"
	}
	return map[bool]string{true: "key", false: "nobody"}[strings.HasPrefix(r.Header.Get("Authorization"), "Bearer mus_planted")]
}

func (p *linkPlane) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	who := p.caller(r)
	p.from = append(p.from, strings.TrimPrefix(r.URL.Path, "/v1/")+" from "+r.RemoteAddr)
	p.asked = append(p.asked, strings.TrimPrefix(r.URL.Path, "/v1/")+" by "+who)
	refuse := p.refusal
	if refuse == nil && (who == "nobody" || who == "stranger" || who != "certificate" && strings.HasPrefix(r.URL.Path, "/v1/link/") && r.URL.Path != "/v1/link/certificate") {
		refuse = muster.Problemf(muster.CodeUnauthenticated, "a certificate is needed, not a %s", who)
	}
	if refuse != nil {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(refuse.Status)
		json.NewEncoder(w).Encode(refuse)
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "POST /v1/link/certificate":
		json.NewEncoder(w).Encode(p.certificate(take[muster.CertificateRequest](r)))
	case "POST /v1/link/next":
		json.NewEncoder(w).Encode(p.next(take[muster.LinkPoll](r)))
	case "POST /v1/link/report":
		p.reports = append(p.reports, take[resource.Report](r))
	case "POST /v1/link/key":
		json.NewEncoder(w).Encode(muster.LinkKey{APIKey: "mus_planted_next"})
	case "PUT /v1/link/owned":
		p.owned = take[ownedList](r).Owned
	case "GET /v1/link/owned":
		if p.onOwned != nil {
			p.onOwned()
		}
		json.NewEncoder(w).Encode(ownedList{p.owned})
	case "PUT /v1/link/health":
		p.health = append(p.health, take[struct{ Health []muster.PlacementHealth }](r).Health)
	case "PUT /v1/link/profile":
		p.profile = take[muster.Profile](r)
	case "PUT /v1/link/hardware":
		p.hardware = take[muster.Hardware](r)
	case "POST /v1/agent/refresh":
		json.NewEncoder(w).Encode(muster.Registration{})
	default:
		p.t.Errorf("asked for %s %s", r.Method, r.URL.Path)
	}
}

type ownedList struct {
	Owned []resource.Owned `json:"owned"`
}

var loopback = []net.IP{net.IPv4(127, 0, 0, 1)}

// listen takes an address again that was just left.
func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		l, err := net.Listen("tcp", addr)
		if err == nil {
			return l
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func take[T any](r *http.Request) (v T) {
	if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
		panic(err)
	}
	return v
}

func (p *linkPlane) certificate(q muster.CertificateRequest) muster.Certificate {
	block, _ := pem.Decode([]byte(q.CSR))
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || csr.CheckSignature() != nil {
		p.t.Errorf("the request: %v", err)
	}
	p.issued++
	from := time.Now().Add(-time.Minute)
	c := p.sign(&x509.Certificate{SerialNumber: big.NewInt(100 + p.issued), Subject: pkix.Name{CommonName: "n1"}, NotBefore: from, NotAfter: from.Add(p.life)}, p.ca, csr.PublicKey)
	return muster.Certificate{Certificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})), NodeID: "n1"}
}

func (p *linkPlane) next(q muster.LinkPoll) muster.LinkAnswer {
	p.polls = append(p.polls, q)
	a := muster.LinkAnswer{NextSeconds: 1, Orders: p.orders}
	p.orders = nil
	if d := p.declaration; d != nil && d.Generation > q.Holds {
		a.Generation, a.Declaration = d.Generation, d
		if d.Generation == p.last {
			p.refusal = muster.Problemf(muster.CodeUnavailable, "cut off")
		}
	}
	return a
}

// declare tells the node what to be.
func (p *linkPlane) declare(b *bench, generation int64, text string) {
	p.t.Helper()
	d, err := resource.Parse("test", []byte(b.fill(text)))
	if err != nil {
		p.t.Fatal(err)
	}
	d.Generation = generation
	p.mu.Lock()
	defer p.mu.Unlock()
	p.declaration = &d
}

// until waits for something to be so.
func (p *linkPlane) until(what string, so func() bool) {
	p.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		ok := so()
		p.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(end) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.t.Fatalf("waited in vain until %s; asked %q, reports %+v", what, p.asked, p.reports)
		}
	}
}

// reported waits for a report of that generation, trigger and outcome.
func (p *linkPlane) reported(generation int64, trigger string, outcome resource.Outcome) resource.Report {
	p.t.Helper()
	var got resource.Report
	p.until(fmt.Sprintf("report %d %s %s", generation, trigger, outcome), func() bool {
		for _, r := range p.reports {
			if r.Generation == generation && r.Trigger == trigger && r.Outcome == outcome {
				got = r
				return true
			}
		}
		return false
	})
	return got
}

// A process is a running muster-host.
type process struct {
	end  context.CancelFunc
	done chan int
	out  bytes.Buffer
}

func (b *bench) start(p *linkPlane) *process {
	b.t.Helper()
	if _, err := os.Lstat(credentialFile(b.state)); err != nil {
		if err := credential.Store(credentialFile(b.state), setup.Credential{URL: p.URL, CA: p.caPEM, APIKey: "mus_planted", ServerUUID: machine}); err != nil {
			b.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	r := &process{end: cancel, done: make(chan int, 1)}
	go func() { r.done <- command(ctx, []string{"run", "--state", b.state}, nil, &r.out, &r.out) }()
	b.t.Cleanup(func() { r.stop() })
	return r
}

// stop ends it and tells what it said.
func (r *process) stop() (int, string) {
	r.end()
	code := <-r.done
	r.done <- code
	return code, r.out.String()
}

const oneFile = `resources: [{file: {path: DIR/motd, content: "GENERATION\n", OWNED}}]`

func (b *bench) motd() string {
	text, _ := os.ReadFile(filepath.Join(b.dir, "motd"))
	return string(text)
}

func TestLinkDeclareDriftAndBriefing(t *testing.T) {
	t.Parallel()
	p, b := newLinkPlane(t), newBench(t)
	r := b.start(p)
	p.until("it polls", func() bool { return len(p.polls) > 0 })
	p.declare(b, 1, strings.ReplaceAll(oneFile, "GENERATION", "one"))
	p.reported(1, "declaration", resource.OutcomeChanged)
	p.until("it is mirrored", func() bool { return len(p.owned) == 1 && !p.owned[0].Begun })
	if b.motd() != "one\n" {
		t.Errorf("it holds %q", b.motd())
	}
	p.until("it is described", func() bool { return p.profile.Facts["node_id"] == "n1" && len(p.profile.Profile) > 0 })
	// What others change is undone, and said.
	os.WriteFile(filepath.Join(b.dir, "motd"), []byte("by hand\n"), 0o644)
	p.mu.Lock()
	p.orders = []muster.OrderKind{muster.OrderReportNow}
	p.mu.Unlock()
	drift := p.reported(1, "asked", resource.OutcomeChanged)
	if b.motd() != "one\n" || len(drift.Lines) != 1 || !drift.Lines[0].Drift {
		t.Errorf("it holds %q; %+v", b.motd(), drift)
	}
	if code, text := b.run("", "briefing"); code != 0 || !strings.Contains(text, "file:DIR/motd  updated: it was as declared") || !strings.Contains(text, "outcome: ok (1 ok, 0 kept, 0 unknown, 0 failed), generation 1") {
		t.Errorf("%d %s", code, text)
	}
	if code, text := r.stop(); code != 0 || strings.Contains(text, "planted") {
		t.Errorf("it ended with %d: %s", code, text)
	}
	// By hand, and with nobody to reach.
	p.Close()
	os.WriteFile(filepath.Join(b.dir, "motd"), []byte("by hand\n"), 0o644)
	if code, text := b.run("", "reconcile"); code != 0 || b.motd() != "one\n" {
		t.Errorf("%d %s", code, text)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.asked {
		if strings.Contains(a, "nobody") || strings.Contains(a, "stranger") || strings.HasPrefix(a, "link/") && strings.HasSuffix(a, "key") && !strings.HasPrefix(a, "link/certificate") {
			t.Errorf("asked for %s", a)
		}
	}
	if q := p.polls[len(p.polls)-1]; q.Holds != 1 || q.BootID == "" || q.Capability != muster.Capability {
		t.Errorf("it polls with %+v", q)
	}
}

// A host that was away gets the newest; one that is started while its control
// plane is away goes by its own store.
func TestLinkAway(t *testing.T) {
	t.Parallel()
	p, b := newLinkPlane(t), newBench(t)
	p.declare(b, 1, strings.ReplaceAll(oneFile, "GENERATION", "one"))
	r := b.start(p)
	p.reported(1, "declaration", resource.OutcomeChanged)
	r.stop()
	addr := p.Listener.Addr().String()
	p.Close()
	os.Remove(filepath.Join(b.dir, "motd"))
	r = b.start(p)
	p.until("it is there again", func() bool { return b.motd() == "one\n" })
	p.declare(b, 7, strings.ReplaceAll(oneFile, "GENERATION", "seven"))
	p.start(addr)
	p.reported(7, "declaration", resource.OutcomeChanged)
	if _, text := r.stop(); b.motd() != "seven\n" {
		t.Errorf("it holds %q and said %s", b.motd(), text)
	}
}

// Revoked, it keeps what it has; expunged, it stops for good.
func TestLinkRevokedAndExpunged(t *testing.T) {
	t.Parallel()
	p, b := newLinkPlane(t), newBench(t)
	p.declare(b, 1, strings.ReplaceAll(oneFile, "GENERATION", "one"))
	r := b.start(p)
	p.reported(1, "declaration", resource.OutcomeChanged)
	p.mu.Lock()
	p.refusal = muster.Problemf(muster.CodeUnauthenticated, "the registration was disabled")
	n := len(p.asked)
	p.mu.Unlock()
	p.until("it is refused", func() bool { return len(p.asked) > n+1 }) // and has taken it in
	if code, text := r.stop(); code != 0 || !strings.Contains(text, "nothing here is changed") || b.motd() != "one\n" {
		t.Errorf("%d %s", code, text)
	}
	p.mu.Lock()
	p.refusal = muster.Problemf(muster.CodeGone, "this machine was expunged: stolen")
	p.refusal.Type = muster.TypeExpunged
	n = len(p.asked)
	p.mu.Unlock()
	r = b.start(p)
	p.until("it is refused", func() bool { return len(p.asked) > n })
	time.Sleep(50 * time.Millisecond)
	if code, text := r.stop(); code != 0 || !strings.Contains(text, "cut off for good") {
		t.Errorf("%d %s", code, text)
	}
	os.WriteFile(filepath.Join(b.dir, "motd"), []byte("by hand\n"), 0o644)
	if code, text := b.run("", "reconcile"); code != exitFailed || !strings.Contains(text, "stolen") || b.motd() != "by hand\n" {
		t.Errorf("%d %s", code, text)
	}
}

// The store is lost, and what the control plane knows of it comes back, but for
// what has changed since; removal still works.
func TestLinkLostStore(t *testing.T) {
	t.Parallel()
	p, b := newLinkPlane(t), newBench(t)
	p.declare(b, 1, `resources: [{file: {path: DIR/motd, content: "one\n", OWNED}}, {file: {path: DIR/b, content: "b\n", OWNED}}]`)
	r := b.start(p)
	p.reported(1, "declaration", resource.OutcomeChanged)
	p.until("it is mirrored", func() bool { return len(p.owned) == 2 && !p.owned[0].Begun && !p.owned[1].Begun })
	r.stop()
	for _, name := range []string{"owned.a", "owned.b", "held.a", "held.b", "report.a", "report.b"} {
		if err := os.Remove(filepath.Join(b.state, name)); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(filepath.Join(b.dir, "b"), []byte("theirs\n"), 0o644)
	p.declare(b, 2, `resources: []`)
	r = b.start(p)
	p.reported(2, "declaration", resource.OutcomeChanged)
	_, text := r.stop()
	if !strings.Contains(text, "knew of 2 resources, and 1 are as they were left") {
		t.Errorf("it said %s", text)
	}
	if _, err := os.Lstat(filepath.Join(b.dir, "motd")); err == nil {
		t.Error("what it made was not removed")
	}
	if text, _ := os.ReadFile(filepath.Join(b.dir, "b")); string(text) != "theirs\n" {
		t.Error("what somebody else made by now was touched")
	}
}

// A declaration that is to be confirmed is not by a connection from before: that
// may be all that a new firewall lets through.
func TestLinkConfirmedAnew(t *testing.T) {
	t.Parallel()
	p, b := newLinkPlane(t), newBench(t)
	b.start(p)
	p.until("it polls", func() bool { return len(p.polls) > 0 })
	p.declare(b, 1, "confirm: 1m\n"+strings.ReplaceAll(oneFile, "GENERATION", "one"))
	p.reported(1, "declaration", resource.OutcomeChanged)
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.IndexFunc(p.from, func(s string) bool { return strings.HasPrefix(s, "link/report ") })
	_, connection, _ := strings.Cut(p.from[at], " from ")
	if slices.Contains(p.from[:at], "link/next from "+connection) {
		t.Errorf("it is confirmed over the connection that brought it: %q", p.from)
	}
}

// A declaration that cuts the machine off is taken back, also when it was killed
// in between.
func TestLinkConfirm(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]bool{"alive": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, b := newLinkPlane(t), newBench(t)
			p.declare(b, 1, strings.ReplaceAll(oneFile, "GENERATION", "one"))
			r := b.start(p)
			p.reported(1, "declaration", resource.OutcomeChanged)
			p.declare(b, 2, "confirm: 1s\n"+strings.ReplaceAll(oneFile, "GENERATION", "two"))
			p.reported(2, "declaration", resource.OutcomeChanged) // it is reached: this one stays
			addr := p.Listener.Addr().String()
			p.mu.Lock()
			p.last = 3 // so that it cannot report it
			p.mu.Unlock()
			p.declare(b, 3, "confirm: 3s\n"+strings.ReplaceAll(oneFile, "GENERATION", "three"))
			p.until("it is applied", func() bool { return b.motd() == "three\n" })
			p.Close()
			if kill {
				r.stop()
				r = b.start(p)
			}
			p.until("it is taken back", func() bool { return b.motd() == "two\n" })
			p.mu.Lock()
			p.refusal = nil
			p.mu.Unlock()
			p.start(addr)
			p.reported(3, resource.TriggerRevert, resource.OutcomeChanged)
			p.until("it is not sent again", func() bool { return p.polls[len(p.polls)-1].Holds == 3 })
			if _, text := r.stop(); !strings.Contains(text, "declaration 3 was applied: it is taken back") {
				t.Errorf("it said %s", text)
			}
		})
	}
}

// The key pair stays, the certificate is renewed by it at half of its time and
// after it; asked to, it makes another pair.
func TestLinkCertificate(t *testing.T) {
	t.Parallel()
	p, b := newLinkPlane(t), newBench(t)
	p.life = time.Minute + 2*time.Second // signed a minute ago: more than half of it is over
	r := b.start(p)
	p.until("it is renewed", func() bool { return p.issued >= 2 })
	r.stop()
	first, err := credential.LoadIdentity(identityFile(b.state))
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	p.life, p.asked, p.polls = 30*24*time.Hour, nil, nil
	p.mu.Unlock()
	time.Sleep(time.Until(first.Certificate.NotAfter.Add(time.Second)))
	r = b.start(p)
	p.until("it polls", func() bool { return len(p.polls) > 0 })
	p.until("it was renewed by the key pair", func() bool {
		return strings.Contains(strings.Join(p.asked, ","), "link/certificate by lapsed certificate")
	})
	p.mu.Lock()
	n := p.issued
	p.orders = []muster.OrderKind{muster.OrderRekey}
	p.mu.Unlock()
	p.until("another is signed", func() bool { return p.issued > n })
	polls := -1
	p.until("it polls", func() bool {
		if polls < 0 {
			polls = len(p.polls)
		}
		return len(p.polls) > polls
	})
	r.stop()
	second, err := credential.LoadIdentity(identityFile(b.state))
	if err != nil || second.Key.Equal(first.Key) {
		t.Errorf("the key pair is the same: %v", err)
	}
}

// Whoever is at a long apply says so now and then, and no more once it is done.
func TestLinkBusy(t *testing.T) {
	t.Parallel()
	p, b := newLinkPlane(t), newBench(t)
	r := b.start(p)
	p.until("it polls", func() bool { return len(p.polls) > 0 })
	r.stop()
	id, err := credential.LoadIdentity(identityFile(b.state))
	if err != nil {
		t.Fatal(err)
	}
	l := &link{ctx: t.Context(), identity: id, credential: setup.Credential{URL: p.URL, CA: p.caPEM}}
	l.busy(time.Millisecond, 7)() // no line yet
	if err := l.connect(); err != nil {
		t.Fatal(err)
	}
	defer l.hangUp()
	done := l.busy(time.Millisecond, 7)
	p.until("it says that it is busy", func() bool { q := p.polls[len(p.polls)-1]; return q.Busy && q.Holds == 7 })
	done()
	p.mu.Lock()
	said := len(p.polls) // and one may be on its way still
	p.mu.Unlock()
	time.Sleep(20 * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.polls) > said+1 {
		t.Error("it is done, and says that it is busy")
	}
}

// Retired, it removes what it made, says so, and is no node any more.
func TestOrderRetire(t *testing.T) {
	t.Parallel()
	p, b := newLinkPlane(t), newBench(t)
	p.declare(b, 1, strings.ReplaceAll(oneFile, "GENERATION", "one"))
	r := b.start(p)
	p.reported(1, "declaration", resource.OutcomeChanged)
	p.mu.Lock()
	p.orders = []muster.OrderKind{muster.OrderRetire}
	p.mu.Unlock()
	p.reported(1, "retire", resource.OutcomeChanged)
	p.until("its credential is gone", func() bool { _, err := os.Lstat(credentialFile(b.state)); return err != nil })
	if code, text := r.stop(); code != 0 || !strings.Contains(text, "hosted") && !strings.Contains(text, "was retired") {
		t.Errorf("%d %s", code, text)
	}
	for _, name := range []string{"credential", "identity.pem", "held.a", "held.b"} {
		if _, err := os.Lstat(filepath.Join(b.state, name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
	if b.motd() != "" || len(p.owned) != 0 {
		t.Errorf("%q is left, and %v", b.motd(), p.owned)
	}
}

// Without a credential it waits, and it lives as a node as soon as one comes.
func TestRunHosted(t *testing.T) {
	t.Parallel()
	p, b := newLinkPlane(t), newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	out := &until{word: "linked as node n1", end: cancel}
	stored := make(chan error, 1)
	waits := &until{word: "hosted:", end: sync.OnceFunc(func() {
		go func() {
			stored <- credential.Store(credentialFile(b.state), setup.Credential{URL: p.URL, CA: p.caPEM, APIKey: "mus_planted", ServerUUID: machine})
		}()
	})}
	if code := command(ctx, []string{"run", "--state", b.state}, nil, io.MultiWriter(waits, out), io.Discard); code != 0 || !strings.HasPrefix(out.String(), "muster-host: hosted: ") {
		t.Errorf("status %d: %s", code, out.String())
	}
	if err := <-stored; err != nil {
		t.Error(err)
	}
	if n := strings.Count(out.String(), "hosted:"); n != 1 {
		t.Errorf("it said %d times that it waits", n)
	}
	ctx, cancel = context.WithCancel(t.Context())
	out = &until{word: "hosted:", end: cancel}
	if code := command(ctx, []string{"run", "--state", t.TempDir()}, nil, out, io.Discard); code != 0 {
		t.Errorf("told to end while it waits: status %d", code)
	}
}

// Killed after it had said that it owns nothing more, and before it had dropped its
// credential, which is refused by then: it drops it.
func TestLinkRetiredAndRefused(t *testing.T) {
	t.Parallel()
	p, b := newLinkPlane(t), newBench(t)
	r := b.start(p)
	p.until("it polls", func() bool { return len(p.polls) > 0 })
	r.stop()
	s, err := openStore(b.state)
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.held()
	if err == nil {
		err = errors.Join(s.dir.Save(heldRecord, h.Retired()), s.close())
	}
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	p.refusal = muster.Problemf(muster.CodeUnauthenticated, "it was decommissioned")
	p.mu.Unlock()
	r = b.start(p)
	p.until("its credential is gone", func() bool { _, err := os.Lstat(credentialFile(b.state)); return err != nil })
	if code, text := r.stop(); code != 0 || !strings.Contains(text, "was retired") {
		t.Errorf("%d %s", code, text)
	}
}
