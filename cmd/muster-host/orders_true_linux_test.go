package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/client"
	"muster.internal/credential"
	"muster.internal/lifecycle"
	"muster.internal/resource"
)

func (p *truePlane) order(id string, kind muster.OrderKind) {
	p.Helper()
	if _, err := p.admin.OrderNode(p.Context(), id, kind); err != nil {
		p.Fatal(err)
	}
}

// done tells whether its host has done what it was asked for.
func (p *truePlane) done(id string) bool {
	d, err := p.admin.Node(p.Context(), id)
	return err == nil && len(d.Orders) == 0
}

func (b *bench) credential() (string, credential.Identity) {
	b.t.Helper()
	c, err := credential.Load(credentialFile(b.state))
	if err != nil {
		b.t.Fatal(err)
	}
	id, err := credential.LoadIdentity(identityFile(b.state))
	if err != nil {
		b.t.Fatal(err)
	}
	return c.APIKey, id
}

// Asked for a report, a host looks again, and what it says is kept although it
// is what it said before.
func TestReportNowForTrue(t *testing.T) {
	p, b := newTruePlane(t, nil), newBench(t)
	id := p.node(b)
	p.declare(b, id, strings.ReplaceAll(oneFile, "GENERATION", "one"))
	r := b.start(nil)
	first := p.reported(r, id, 1, "")
	p.order(id, muster.OrderReportNow)
	second := p.reported(r, id, 1, resource.TriggerAsked)
	p.order(id, muster.OrderReportNow)
	r.until(t, "it has reported again", func() bool {
		n, err := p.admin.NodeReport(t.Context(), id)
		return err == nil && n.ReportedAt.After(second.ReportedAt) && p.done(id)
	})
	if !second.ReportedAt.After(first.ReportedAt) {
		t.Errorf("reported at %v, then at %v", first.ReportedAt, second.ReportedAt)
	}
}

// A host makes a new key pair; what was there before is dead once the new was
// used, and the host goes on.
func TestRekeyForTrue(t *testing.T) {
	p, b := newTruePlane(t, nil), newBench(t)
	id := p.node(b)
	r := b.start(nil)
	linked := func() bool { d, err := p.admin.Node(t.Context(), id); return err == nil && d.Link != nil }
	r.until(t, "it is linked", linked)
	key, was := b.credential()
	p.order(id, muster.OrderRekey)
	r.until(t, "it has another key pair", func() bool { return p.done(id) })
	p.declare(b, id, strings.ReplaceAll(oneFile, "GENERATION", "one"))
	p.reported(r, id, 1, "")
	_, text := r.stop()
	now, is := b.credential()
	if now == key || is.Key.Equal(was.Key) || is.NodeID() != id || strings.Contains(text, now) {
		t.Errorf("another key %v, another pair %v, node %s; it said %s", now != key, !is.Key.Equal(was.Key), is.NodeID(), text)
	}
	old, err := client.New(p.URL(), "", client.Trust{CA: p.CA(), Pair: was.TLS()})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if _, err := old.LinkOwned(t.Context()); !muster.IsCode(err, muster.CodeUnauthenticated) {
		t.Errorf("the old certificate: %v", err)
	}
	if _, err := old.WithToken(key).LinkCertificate(t.Context(), muster.CertificateRequest{}); !muster.IsCode(err, muster.CodeUnauthenticated) {
		t.Errorf("the old key: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(b.state, "*.next")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// However far a rekeying came when the machine lost power, it goes on from there
// or begins anew, and the host is linked in the end.
func TestRekeyCutShort(t *testing.T) {
	p, b := newTruePlane(t, nil), newBench(t)
	id := p.node(b)
	r := b.start(nil)
	r.until(t, "it is linked", func() bool { d, err := p.admin.Node(t.Context(), id); return err == nil && d.Link != nil })
	r.stop()
	for name, cut := range map[string]func(next, line *client.Client, key string){
		"the next key was made and its answer lost": func(_, _ *client.Client, _ string) {},
		"it was kept":                     func(_, _ *client.Client, key string) { b.keep(key) },
		"it was used, and nothing stored": func(next, _ *client.Client, key string) { b.keep(key); b.sign(next) },
		"the certificate was stored, and not the key": func(next, _ *client.Client, key string) {
			b.keep(key)
			if err := b.sign(next).Store(identityFile(b.state)); err != nil {
				t.Fatal(err)
			}
		},
		"one that was kept is overtaken": func(_, line *client.Client, key string) {
			b.keep(key)
			if _, err := line.LinkKey(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			before, was := b.credential()
			p.order(id, muster.OrderRekey)
			line, err := client.New(p.URL(), "", client.Trust{CA: p.CA(), Pair: was.TLS()})
			if err != nil {
				t.Fatal(err)
			}
			defer line.Close()
			k, err := line.LinkKey(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			cut(line.WithToken(k.APIKey), line, k.APIKey)
			r := b.start(nil)
			r.until(t, "it has another key pair", func() bool { return p.done(id) })
			p.declare(b, id, strings.ReplaceAll(oneFile, "GENERATION", name))
			r.until(t, "it is told something", func() bool { return b.motd() == name+"\n" })
			r.stop()
			if now, is := b.credential(); now == before || is.Key.Equal(was.Key) {
				t.Error("the key is the same")
			}
		})
	}
}

// keep is what a host does with its next key first.
func (b *bench) keep(key string) {
	b.t.Helper()
	c, err := credential.Load(credentialFile(b.state))
	if err != nil {
		b.t.Fatal(err)
	}
	c.APIKey = key
	if err := credential.Store(nextFile(b.state), c); err != nil {
		b.t.Fatal(err)
	}
}

// sign has a new key pair signed.
func (b *bench) sign(by *client.Client) credential.Identity {
	b.t.Helper()
	id, err := credential.NewIdentity()
	if err != nil {
		b.t.Fatal(err)
	}
	q, err := request(id)
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := by.LinkCertificate(b.t.Context(), q)
	if err != nil {
		b.t.Fatal(err)
	}
	if id, err = id.WithPEM(c.Certificate); err != nil {
		b.t.Fatal(err)
	}
	return id
}

// A retired host gives up what it was told to be, keeps what was made on the
// machine itself, says so, and is hosted again; the node is decommissioned. One
// that is away does it when it is back.
func TestRetireForTrue(t *testing.T) {
	p, b := newTruePlane(t, nil), newBench(t)
	id := p.node(b)
	own := filepath.Join(b.dir, "own")
	if code, out := b.run(b.fill(`resources: [{file: {path: DIR/own, content: "own\n", OWNED}}]`), "apply", "-"); code != 0 {
		t.Fatal(out)
	}
	p.declare(b, id, strings.ReplaceAll(oneFile, "GENERATION", "one"))
	r := b.start(nil)
	p.reported(r, id, 1, "")
	r.stop()
	p.order(id, muster.OrderRetire) // it is away
	if d, err := p.admin.Node(t.Context(), id); err != nil || len(d.Orders) != 1 || d.Orders[0].ToldAt != nil || d.Policy != muster.PolicyGracefulRemove {
		t.Fatalf("%+v, %v", d, err)
	}
	r = b.start(nil)
	r.until(t, "it is hosted again", func() bool { _, err := os.Lstat(credentialFile(b.state)); return err != nil })
	n, err := p.admin.NodeReport(t.Context(), id)
	if err != nil || n.Report.Trigger != resource.TriggerRetire || len(n.Report.Lines) != 2 || n.Report.Outcome != resource.OutcomeKept {
		t.Errorf("%+v, %v", n.Report, err)
	}
	if text, err := os.ReadFile(own); b.motd() != "" || string(text) != "own\n" {
		t.Errorf("left %q and %q, %v", b.motd(), text, err)
	}
	r.until(t, "it is decommissioned", func() bool { return p.live() == "" })
	if _, text := r.stop(); !strings.Contains(text, "was retired") || !strings.Contains(text, "hosted:") {
		t.Errorf("it said %s", text)
	}
	if code, out := b.run("", "owned"); code != 0 || !strings.Contains(out, "own") {
		t.Errorf("%d %s", code, out)
	}
	if _, err := p.admin.RaiseNode(t.Context(), id, lifecycle.Resume); !muster.IsCode(err, muster.CodeConflict) {
		t.Errorf("it can be taken back: %v", err)
	}
}

// What keeps a host from giving everything up is reported, and it is retired
// once that is over.
func TestRetireWithSomethingInTheWay(t *testing.T) {
	p, b := newTruePlane(t, nil), newBench(t)
	id := p.node(b)
	p.declare(b, id, strings.ReplaceAll(oneFile, "GENERATION", "one"))
	r := b.start(nil)
	p.reported(r, id, 1, "")
	immutable := func(sign string) {
		if out, err := exec.Command("chattr", sign+"i", filepath.Join(b.dir, "motd")).CombinedOutput(); err != nil {
			t.Fatalf("chattr: %s", out)
		}
	}
	immutable("+")
	t.Cleanup(func() { exec.Command("chattr", "-i", filepath.Join(b.dir, "motd")).Run() })
	p.order(id, muster.OrderRetire)
	if n := p.reported(r, id, 1, resource.TriggerRetire); n.Report.Outcome != resource.OutcomeFailed || p.done(id) {
		t.Errorf("%+v", n.Report)
	}
	r.stop() // and it is there again, as at a restart
	immutable("-")
	start := time.Now()
	r = b.start(nil)
	r.until(t, "it is decommissioned", func() bool { return p.live() == "" })
	t.Logf("retired %v after its start", time.Since(start))
}
