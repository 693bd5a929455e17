package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/client"
	"muster.internal/control"
	"muster.internal/resource"
)

// A truePlane is a real control plane, with its first operator.
type truePlane struct {
	*control.Control
	*testing.T
	admin *client.Client
}

func newTruePlane(t *testing.T, now func() time.Time) *truePlane {
	t.Helper()
	dir := t.TempDir()
	c, err := control.Open(t.Context(), control.Config{Dir: dir, Listen: "127.0.0.1:0", Now: now, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	anyone, err := client.New(c.URL(), "", client.Trust{Fingerprint: c.Fingerprint(), AnyTime: true})
	if err != nil {
		t.Fatal(err)
	}
	first, err := control.ReadFirstLogin(dir)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := anyone.Login(t.Context(), muster.Login{Name: first.Operator, Password: first.Password})
	if err != nil {
		t.Fatal(err)
	}
	return &truePlane{c, t, anyone.WithToken(tok.Token)}
}

// token issues one, for a node when that is named.
func (p *truePlane) token(as string) string {
	p.Helper()
	issued, err := p.admin.IssueEnrolmentToken(p.Context(), muster.NewEnrolmentToken{AsNode: as})
	if err != nil {
		p.Fatal(err)
	}
	return issued.Token
}

// enrol runs the command with a token on its standard input.
func (b *bench) enrol(token string, more ...string) (int, string) {
	var out bytes.Buffer
	code := command(b.t.Context(), append([]string{"enrol", "--token", "-", "--state", b.state, "--uuid", machine}, more...), strings.NewReader(token), &out, &out)
	return code, out.String()
}

// node lets the machine in and tells which node it is.
func (p *truePlane) node(b *bench) string {
	p.Helper()
	if code, out := b.enrol(p.token("")); code != 0 {
		p.Fatal(out)
	}
	return p.live()
}

// live is the one node that is not decommissioned.
func (p *truePlane) live() (id string) {
	p.Helper()
	nodes, err := p.admin.Nodes(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	for _, n := range nodes {
		if n.State == muster.NodeDecommissioned {
			continue
		}
		if id != "" {
			p.Fatalf("%d nodes", len(nodes))
		}
		id = n.ID
	}
	return id
}

// declare tells a node what to be.
func (p *truePlane) declare(b *bench, id, text string) {
	p.Helper()
	d, err := resource.Parse("test", []byte(b.fill(text)))
	if err != nil {
		p.Fatal(err)
	}
	if _, err := p.admin.Declare(p.Context(), id, d); err != nil {
		p.Fatal(err)
	}
}

// until waits for something to be so, and else shows what the host said.
func (r *process) until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(40 * time.Second); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			_, text := r.stop()
			t.Fatalf("waited in vain until %s: %s", what, text)
		}
	}
}

// reported waits for the report of a generation.
func (p *truePlane) reported(r *process, id string, generation int64, trigger string) (got muster.NodeReport) {
	p.Helper()
	r.until(p.T, fmt.Sprintf("generation %d is reported, by %s", generation, trigger), func() bool {
		n, err := p.admin.NodeReport(p.Context(), id)
		got = n
		return err == nil && n.Report.Generation == generation && (trigger == "" || n.Report.Trigger == trigger)
	})
	return got
}

// With a real control plane: a token, a declaration, its removal.
func TestLinkForTrue(t *testing.T) {
	p, b := newTruePlane(t, nil), newBench(t)
	id := p.node(b)
	p.declare(b, id, strings.ReplaceAll(oneFile, "GENERATION", "one"))
	r := b.start(nil)
	if n := p.reported(r, id, 1, ""); n.Report.Outcome != resource.OutcomeChanged {
		t.Errorf("%+v", n.Report)
	}
	r.until(t, "it is mirrored", func() bool {
		n, err := p.admin.NodeOwned(t.Context(), id)
		return err == nil && len(n.Owned) == 1 && !n.Owned[0].Begun
	})
	p.declare(b, id, "resources: []")
	r.until(t, "it is removed", func() bool { return b.motd() == "" })
}

// The disk with the host's state is lost. Let in again as the same node, the
// machine learns from its control plane what it owned, and removes what was
// declared no longer while it was away; what has changed meanwhile stays.
func TestLostStoreForTrue(t *testing.T) {
	p, b := newTruePlane(t, nil), newBench(t)
	id := p.node(b)
	theirs := filepath.Join(b.dir, "theirs")
	p.declare(b, id, `resources: [{file: {path: DIR/motd, content: "one\n", OWNED}}, {file: {path: DIR/theirs, content: "ours\n", OWNED}}]`)
	r := b.start(nil)
	p.reported(r, id, 1, "")
	r.until(t, "it is mirrored", func() bool {
		n, err := p.admin.NodeOwned(t.Context(), id)
		return err == nil && len(n.Owned) == 2 && !n.Owned[0].Begun && !n.Owned[1].Begun
	})
	r.stop()
	if err := os.RemoveAll(b.state); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(theirs, []byte("theirs\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.declare(b, id, "resources: []")
	if code, out := b.enrol(p.token(id)); code != 0 || p.live() != id {
		t.Fatalf("status %d: %s", code, out)
	}
	r = b.start(nil)
	n := p.reported(r, id, 2, "")
	_, text := r.stop()
	t.Logf("the host said:\n%s", text)
	t.Logf("the control plane heard:\n%s", n.Report.Briefing().Text())
	if !strings.Contains(text, "knew of 2 resources, and 1 are as they were left") {
		t.Error("it does not say what it has back")
	}
	if b.motd() != "" {
		t.Error("what it had made was not removed")
	}
	if left, _ := os.ReadFile(theirs); string(left) != "theirs\n" {
		t.Errorf("what somebody else made by now is %q", left)
	}
}
