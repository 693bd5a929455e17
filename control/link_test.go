package control_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/client"
	"muster.internal/resource"
)

// A hosted is a node's host with a key pair and certificate of its own.
type hosted struct {
	node, uuid, key string
	private         *ecdsa.PrivateKey
	pair            tls.Certificate
	c               *client.Client
}

// host takes a machine to a node, and has its key signed.
func (p *place) host(n int) *hosted {
	p.Helper()
	m := p.bare(n)
	b := m.opened(m.approved().Epoch)
	p.ok(m.complete(b))
	h := &hosted{uuid: m.uuid, key: b.APIKey}
	var err error
	h.private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p.ok(err)
	cert := must(p, func(ctx context.Context) (muster.Certificate, error) {
		return p.anyone.WithToken(h.key).LinkCertificate(ctx, muster.CertificateRequest{CSR: h.csr(p)})
	})
	h.node = cert.NodeID
	h.take(p, cert)
	return h
}

func (h *hosted) csr(p *place) string {
	p.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, h.private)
	p.ok(err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// take uses a certificate from now on.
func (h *hosted) take(p *place, cert muster.Certificate) {
	p.Helper()
	block, _ := pem.Decode([]byte(cert.Certificate))
	h.pair = tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: h.private}
	var err error
	h.c, err = client.New(p.c.URL(), "", client.Trust{CA: p.c.CA(), Pair: &h.pair})
	p.ok(err)
	p.Cleanup(h.c.Close)
}

const planted = "a planted secret of a file"

func told(p *place, motd string) resource.Declaration {
	p.Helper()
	d, err := resource.Parse("test", []byte(`{"resources":[{"file":{"path":"/etc/motd","content":"`+motd+`"}},{"file":{"path":"/etc/key","content":"`+planted+`","secret":true}}]}`))
	p.ok(err)
	return d
}

func (p *place) declare(node, motd string) muster.NodeDeclaration {
	p.Helper()
	return must(p, func(ctx context.Context) (muster.NodeDeclaration, error) {
		return p.full.Declare(ctx, node, told(p, motd))
	})
}

func (h *hosted) next(p *place, holds int64) (muster.LinkAnswer, error) {
	return h.c.LinkNext(p.Context(), muster.LinkPoll{Holds: holds, Version: "1", Capability: muster.Capability, BootID: "b"})
}

// TestLink: over TLS, with certificates, from the first key to the revocation.
func TestLink(t *testing.T) {
	engines(t, func(p *place) {
		p.content()
		p.keep(planted)
		a, b, c := p.host(1), p.host(2), p.host(3)
		for i := range 3 { // away all the while
			p.declare(a.node, string(rune('a'+i)))
		}
		n, err := a.next(p, 0)
		p.ok(err)
		if n.Generation != 3 || n.Declaration == nil || n.Declaration.Resources[0].File.Content != "c" || n.Declaration.Resources[1].File.Content != planted {
			p.Fatalf("the newest: %+v", n)
		}
		// What is declared while it waits comes at once; the other one's does not.
		got := make(chan muster.LinkAnswer, 1)
		go func() {
			n, err := a.next(p, 3)
			if err != nil {
				p.Error(err)
			}
			got <- n
		}()
		p.head()
		p.declare(b.node, "not for a")
		p.declare(a.node, "d")
		if n := <-got; n.Generation != 4 || n.Declaration == nil || n.Declaration.Resources[0].File.Content != "d" {
			p.Fatalf("while it waited: %+v", n)
		}
		nodes := must(p, func(ctx context.Context) ([]muster.Node, error) { return p.admin.Nodes(ctx) })
		for _, n := range nodes {
			if is := n.Link != nil && n.Link.Linked; is != (n.ID == a.node) {
				p.Errorf("node %s is linked: %v", n.ID, is)
			}
			if n.Link != nil && (n.LastSeen == nil || n.LastSeen.Before(n.Link.LastLinked)) {
				p.Errorf("node %s was linked at %v and seen at %v", n.ID, n.Link.LastLinked, n.LastSeen)
			}
		}
		p.ok(b.c.SetLinkOwned(p.Context(), []resource.Owned{{Ref: "file:/etc/b", Origin: resource.OriginCreated, Since: p.clock()}}))
		if o, err := a.c.LinkOwned(p.Context()); err != nil || len(o) != 0 {
			p.Errorf("a reads %+v, %v", o, err)
		}
		p.ok(b.c.SetLinkHealth(p.Context(), []muster.PlacementHealth{{ID: "p1", Healthy: true, Since: p.clock()}}))
		p.refused(b.c.SetLinkHealth(p.Context(), []muster.PlacementHealth{{ID: "p1", Reason: "\x1b[2J"}}), muster.CodeInvalid)
		for node, want := range map[string]string{a.node: "", b.node: "its host was never linked"} {
			h := must(p, func(ctx context.Context) (muster.NodeHealth, error) { return p.admin.NodeHealth(ctx, node) })
			if h.Unable != want || len(h.Placements) != map[bool]int{true: 1}[node == b.node] {
				p.Errorf("health of %s: %+v", node, h)
			}
		}
		// The agent key alone is not enough, and a certificate is good for the link alone.
		p.refused(p.anyone.WithToken(a.key).LinkReport(p.Context(), resource.Report{}), muster.CodeForbidden)
		_, err = a.c.Nodes(p.Context())
		p.refused(err, muster.CodeForbidden)
		p.forged(a)
		// A revocation cuts what waits.
		ended := make(chan error, 1)
		go func() { _, err := a.next(p, 4); ended <- err }()
		p.head()
		began := time.Now()
		must(p, func(ctx context.Context) (muster.Registration, error) {
			return p.admin.RaiseRegistration(ctx, a.uuid, "disable")
		})
		p.refused(<-ended, muster.CodeUnauthenticated)
		p.Logf("cut after %v", time.Since(began).Round(time.Millisecond))
		must(p, func(ctx context.Context) (muster.NodeDetail, error) {
			return p.admin.ExpungeNode(ctx, b.node, muster.Expunge{Confirm: "SN-0002", Reason: "stolen"})
		})
		_, err = b.next(p, 0)
		p.refused(err, muster.CodeGone)
		es := must(p, func(ctx context.Context) ([]muster.AuditEntry, error) {
			return p.admin.Audit(ctx, muster.AuditFilter{})
		})
		for _, e := range es {
			p.searched("the audit", string(e.Detail))
		}
		p.searched("the log", p.log.String())
		p.lapses(c)
	})
}

// forged: a certificate of another authority, with the same names.
func (p *place) forged(a *hosted) {
	p.Helper()
	ours, _ := pem.Decode(p.c.CA())
	like, err := x509.ParseCertificate(ours.Bytes)
	p.ok(err)
	like.PublicKey = nil // of the same name, with another key
	real, err := x509.ParseCertificate(a.pair.Certificate[0])
	p.ok(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p.ok(err)
	der, err := x509.CreateCertificate(rand.Reader, real, like, &a.private.PublicKey, key)
	p.ok(err)
	c, err := client.New(p.c.URL(), "", client.Trust{CA: p.c.CA(), Pair: &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.private}})
	p.ok(err)
	defer c.Close()
	_, err = c.LinkOwned(p.Context())
	p.refused(err, muster.CodeUnauthenticated)
}

// An order comes at once to a host that waits; told, it comes again only when
// the poll's time is over or there is something else to say.
func TestLinkOrders(t *testing.T) {
	engines(t, func(p *place) {
		h := p.host(1)
		p.ok(h.c.SetLinkOwned(p.Context(), []resource.Owned{}))
		p.declare(h.node, "one")
		got := make(chan muster.LinkAnswer, 1)
		ask := func() {
			go func() {
				n, err := h.next(p, 1)
				if err != nil {
					p.Error(err)
				}
				got <- n
			}()
		}
		ask()
		p.head()
		must(p, func(ctx context.Context) (muster.NodeOrder, error) {
			return p.full.OrderNode(ctx, h.node, muster.OrderRekey)
		})
		if n := <-got; len(n.Orders) != 1 || n.Orders[0] != muster.OrderRekey {
			p.Fatalf("while it waited: %+v", n)
		}
		ask()
		select {
		case n := <-got:
			p.Fatalf("told already, it comes again at once: %+v", n)
		case <-time.After(100 * time.Millisecond):
		}
		p.declare(h.node, "two")
		if n := <-got; n.Declaration == nil || len(n.Orders) != 1 {
			p.Fatalf("with a declaration: %+v", n)
		}
		_, err := p.anyone.OrderNode(p.Context(), h.node, muster.OrderRetire)
		p.refused(err, muster.CodeUnauthenticated)
		_, err = h.c.OrderNode(p.Context(), h.node, muster.OrderRetire)
		p.refused(err, muster.CodeForbidden)
		// A key that has not taken the other's place yet can do that and no more.
		k, err := h.c.LinkKey(p.Context())
		p.ok(err)
		p.keep(k.APIKey)
		next := p.anyone.WithToken(k.APIKey)
		_, err = next.Heartbeat(p.Context(), muster.Heartbeat{})
		p.refused(err, muster.CodeForbidden)
		_, err = h.c.LinkOwned(p.Context())
		p.ok(err)
		cert, err := next.LinkCertificate(p.Context(), muster.CertificateRequest{CSR: h.csr(p)})
		p.ok(err)
		_, err = h.c.LinkOwned(p.Context())
		p.refused(err, muster.CodeUnauthenticated)
		_, err = p.anyone.WithToken(h.key).LinkCertificate(p.Context(), muster.CertificateRequest{CSR: h.csr(p)})
		p.refused(err, muster.CodeUnauthenticated)
		h.take(p, cert)
		_, err = h.c.LinkOwned(p.Context())
		p.ok(err)
		_, err = next.Heartbeat(p.Context(), muster.Heartbeat{}) // it is the machine's now
		p.ok(err)
		p.searched("the log", p.log.String())
	})
}

// events are what the audit says of a node's link.
func (p *place) events(node string) string {
	p.Helper()
	var all []string
	for _, e := range must(p, func(ctx context.Context) ([]muster.AuditEntry, error) {
		return p.admin.Audit(ctx, muster.AuditFilter{Subject: "node/" + node})
	}) {
		if e.Action == "away" || e.Action == "back" {
			all = append(all, e.Action)
		}
	}
	return strings.Join(all, " ")
}

// Who is silent is told of; who is busy is not silent; and after a restart of the
// control plane hosts have the time to come before any is told of.
func TestLinkAway(t *testing.T) {
	engines(t, func(p *place) {
		h := p.host(1)
		poll := func() {
			t.Helper()
			a, err := h.c.LinkNext(p.Context(), muster.LinkPoll{Version: "1", Capability: muster.Capability, BootID: "b", Busy: true})
			if err != nil || a.Generation != 0 || a.Declaration != nil {
				p.Fatalf("%+v, %v", a, err)
			}
			p.ok(p.c.KeepLinks(p.Context()))
		}
		at := func(when string, linked bool, events string) {
			t.Helper()
			p.ok(p.c.KeepLinks(p.Context()))
			d := must(p, func(ctx context.Context) (muster.NodeDetail, error) { return p.admin.Node(ctx, h.node) })
			if got := p.events(h.node); d.Link == nil || d.Link.Linked != linked || got != events {
				p.Errorf("%s: %+v, events %q, want linked %v and %q", when, d.Link, got, linked, events)
			}
		}
		p.declare(h.node, "not for who is busy")
		poll()
		for range 20 { // an apply of twenty minutes
			p.advance(time.Minute)
			poll()
		}
		at("busy", true, "")
		p.advance(time.Minute)
		at("between two polls", true, "")
		p.advance(2 * time.Minute)
		at("silent", false, "")
		p.advance(3 * time.Minute)
		at("silent for six minutes", false, "away")
		p.advance(20 * time.Second)
		poll()
		at("there again", true, "away back")
		// The control plane is off for an hour, and nobody could come.
		p.ok(p.c.Close())
		p.advance(time.Hour)
		p.start()
		p.login()
		at("after a restart", false, "away back")
		p.advance(time.Minute)
		at("within the grace", false, "away back")
		h.again(p)
		poll()
		p.advance(90 * time.Second)
		at("it came in time", true, "away back")
	})
}

// again is a host that dials a control plane which was restarted.
func (h *hosted) again(p *place) {
	p.Helper()
	var err error
	h.c, err = client.New(p.c.URL(), "", client.Trust{CA: p.c.CA(), Pair: &h.pair})
	p.ok(err)
	p.Cleanup(h.c.Close)
}

// What comes twice or out of order, in another's name, or with a certificate of
// last season.
func TestLinkOddities(t *testing.T) {
	engines(t, func(p *place) {
		a, b := p.host(1), p.host(2)
		report := func(generation int64, after time.Duration, o resource.Outcome) resource.Report {
			at := p.clock().Add(after)
			return resource.Report{Generation: generation, Trigger: "timer", Started: at, Finished: at, Version: "1", Outcome: o}
		}
		newest := func() resource.Report {
			return must(p, func(ctx context.Context) (muster.NodeReport, error) { return p.admin.NodeReport(ctx, a.node) }).Report
		}
		one, two := report(1, 0, resource.OutcomeFailed), report(2, time.Minute, resource.OutcomeOK)
		for _, r := range []resource.Report{one, one, two, one, two} { // doubled, and overtaken
			p.ok(a.c.LinkReport(p.Context(), r))
		}
		if r := newest(); r.Generation != 2 || r.Outcome != resource.OutcomeOK {
			p.Errorf("kept %+v", r)
		}
		// An action never comes to be told.
		action, err := resource.Parse("test", []byte(`{"resources":[{"action":{"name":"x","command":["/bin/true"]}}]}`))
		p.ok(err)
		_, err = p.full.Declare(p.Context(), a.node, action)
		p.refused(err, muster.CodeInvalid)
		// A request for a key that its sender does not have.
		block, _ := pem.Decode([]byte(a.csr(p)))
		other, _ := pem.Decode([]byte(b.csr(p)))
		mixed := append([]byte(nil), block.Bytes...)
		copy(mixed[len(mixed)-20:], other.Bytes[len(other.Bytes)-20:])
		_, err = a.c.LinkCertificate(p.Context(), muster.CertificateRequest{CSR: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: mixed}))})
		p.refused(err, muster.CodeInvalid)
		// A's certificate with b's key does not so much as shake hands.
		stolen, err := client.New(p.c.URL(), "", client.Trust{CA: p.c.CA(), Pair: &tls.Certificate{Certificate: a.pair.Certificate, PrivateKey: b.private}})
		p.ok(err)
		defer stolen.Close()
		if _, err := stolen.LinkOwned(p.Context()); err == nil {
			p.Error("a's certificate was taken with b's key")
		}
		// Nor does b's key with a's certificate say anything of a: who has a token means it.
		mixedUp := a.c.WithToken(b.key)
		_, err = mixedUp.LinkOwned(p.Context())
		p.ok(err) // the call is made by the certificate alone
		cert, err := mixedUp.LinkCertificate(p.Context(), muster.CertificateRequest{CSR: b.csr(p)})
		p.ok(err)
		if cert.NodeID != b.node {
			p.Errorf("b's key got a certificate of %s", cert.NodeID)
		}
		// A laptop that was shut for three months.
		p.advance(90 * 24 * time.Hour)
		_, err = a.c.LinkOwned(p.Context())
		p.refused(err, muster.CodeForbidden)
		cert, err = a.c.LinkCertificate(p.Context(), muster.CertificateRequest{CSR: a.csr(p)})
		p.ok(err)
		a.take(p, cert)
		_, err = a.c.LinkOwned(p.Context())
		p.ok(err)
	})
}

// lapses: a certificate whose time is over is good for the next one alone.
func (p *place) lapses(h *hosted) {
	p.Helper()
	p.advance(muster.CertificateLife + time.Hour)
	_, err := h.c.LinkOwned(p.Context())
	p.refused(err, muster.CodeForbidden)
	cert := must(p, func(ctx context.Context) (muster.Certificate, error) {
		return h.c.LinkCertificate(ctx, muster.CertificateRequest{CSR: h.csr(p)})
	})
	h.take(p, cert)
	_, err = h.c.LinkOwned(p.Context())
	p.ok(err)
}

// TestTooOld: what the host of a node would not know is refused before it is
// told, and what it would is not.
func TestTooOld(t *testing.T) {
	engines(t, func(p *place) {
		h := p.host(1)
		p.declare(h.node, "before it ever was linked")
		_, err := h.c.LinkNext(p.Context(), muster.LinkPoll{Version: "0.9", BootID: "b"})
		p.ok(err)
		_, err = p.full.Declare(p.Context(), h.node, told(p, "two"))
		p.refused(err, muster.CodeConflict)
		if !strings.Contains(err.Error(), "muster-host 0.9 (capability 0)") || !strings.Contains(err.Error(), "file:/etc/motd") {
			p.Error(err)
		}
		seen := must(p, func(ctx context.Context) (muster.NodeHealth, error) { return p.admin.NodeHealth(ctx, h.node) })
		if !strings.Contains(seen.Unable, "muster-host 0.9 (capability 0), is too old to check placements") {
			p.Errorf("%+v", seen)
		}
		_, err = h.next(p, 0)
		p.ok(err)
		if n := p.declare(h.node, "two"); n.Generation != 2 {
			p.Errorf("%+v", n)
		}
	})
}

// Whoever asks as no host does, as many machines with one certificate, is told to
// wait, and so is whoever asks without a pause; the one that waits stays linked.
func TestLinkTooOften(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "")
	h := p.host(1)
	refused := make(chan error, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := h.c.LinkNext(ctx, muster.LinkPoll{}); ctx.Err() == nil {
				refused <- err
			}
		})
	}
	for range 12 {
		q := p.refused(<-refused, muster.CodeTooMany)
		if q.RetryAfter != 10 || !strings.Contains(q.Detail, h.node) {
			t.Errorf("%+v", q)
		}
	}
	if d := must(p, func(ctx context.Context) (muster.NodeDetail, error) { return p.admin.Node(ctx, h.node) }); d.Link == nil || !d.Link.Linked {
		t.Errorf("%+v", d.Link)
	}
	cancel()
	all.Wait()
	other, n := p.host(2), 0
	for ; n < 100; n++ {
		if _, err := other.c.LinkNext(t.Context(), muster.LinkPoll{Busy: true}); err != nil {
			p.refused(err, muster.CodeTooMany)
			break
		}
	}
	if n != 60 {
		t.Errorf("%d at once are borne", n)
	}
	p.advance(time.Second)
	if _, err := other.c.LinkNext(t.Context(), muster.LinkPoll{Busy: true}); err != nil {
		t.Error(err)
	}
}

// What is no UTF-8, or JSON that no database takes, is the sender's fault.
func TestLinkOddText(t *testing.T) {
	engines(t, func(p *place) {
		h := p.host(1)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(p.c.CA())
		web := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{h.pair}}}}
		for body, want := range map[string]int{
			"{\"profile\":{\"os\":\"\xff\xfe\"}}":   400,
			`{"profile":{"os":"\u0000"}}`:           204, // as it came, which is text
			`{"profile":{"os":"\ud800"}}`:           204,
			"{\"facts\":{\"os\":\"\xc3\x28\"}}":     400,
			`{"profile":{"os":"b\u00f6se \u2028"}}`: 204,
		} {
			q, err := http.NewRequestWithContext(p.Context(), "PUT", p.c.URL()+"/v1/link/profile", strings.NewReader(body))
			p.ok(err)
			q.Header.Set("Content-Type", "application/json")
			a, err := web.Do(q)
			p.ok(err)
			text, _ := io.ReadAll(a.Body)
			a.Body.Close()
			if a.StatusCode != want {
				p.Errorf("%q: %d %s", body, a.StatusCode, text)
			}
		}
	})
}
