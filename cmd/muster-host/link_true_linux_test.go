package main

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/client"
	"muster.internal/control"
	"muster.internal/resource"
)

// With a real control plane: a token, a declaration, a drift, a revocation.
func TestLinkForTrue(t *testing.T) {
	var notice bytes.Buffer
	c, err := control.Open(t.Context(), control.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Notice: &notice, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	anyone, err := client.New(c.URL(), "", client.Trust{CA: c.CA()})
	if err != nil {
		t.Fatal(err)
	}
	password := regexp.MustCompile(`the password (\S+)`).FindStringSubmatch(notice.String())[1]
	tok, err := anyone.Login(t.Context(), muster.Login{Name: control.FirstOperator, Password: password})
	if err != nil {
		t.Fatal(err)
	}
	admin := anyone.WithToken(tok.Token)
	issued, err := admin.IssueEnrolmentToken(t.Context(), muster.NewEnrolmentToken{})
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	var out bytes.Buffer
	if code := command(t.Context(), []string{"enrol", "--token", "-", "--state", b.state, "--uuid", machine}, strings.NewReader(issued.Token), &out, &out); code != 0 {
		t.Fatal(out.String())
	}
	nodes, err := admin.Nodes(t.Context())
	if err != nil || len(nodes) != 1 {
		t.Fatal(nodes, err)
	}
	id := nodes[0].ID
	d, err := resource.Parse("t", []byte(b.fill(strings.ReplaceAll(oneFile, "GENERATION", "one"))))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Declare(t.Context(), id, d); err != nil {
		t.Fatal(err)
	}
	r := b.start(nil)
	wait := func(what string, so func() bool) {
		t.Helper()
		for end := time.Now().Add(25 * time.Second); !so(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				_, text := r.stop()
				t.Fatalf("%s: %s", what, text)
			}
		}
	}
	wait("reported", func() bool {
		n, err := admin.NodeReport(t.Context(), id)
		return err == nil && n.Report.Generation == 1 && n.Report.Outcome == "changed"
	})
	wait("mirrored", func() bool {
		n, err := admin.NodeOwned(t.Context(), id)
		return err == nil && len(n.Owned) == 1 && !n.Owned[0].Begun
	})
	d.Resources = d.Resources[:0]
	start := time.Now()
	if _, err := admin.Declare(t.Context(), id, d); err != nil {
		t.Fatal(err)
	}
	wait("removed", func() bool { _, err := os.Lstat(filepath.Join(b.dir, "motd")); return err != nil })
	t.Logf("removed after %v", time.Since(start))
	_, text := r.stop()
	t.Log(text)
}
