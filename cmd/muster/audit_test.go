package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	muster "muster.internal"
)

// restarting is a control plane that is away every second time, and to which
// something happens meanwhile.
type restarting struct {
	*memory
	asked int
}

func (r *restarting) Audit(ctx context.Context, f muster.AuditFilter) ([]muster.AuditEntry, error) {
	if r.asked++; f.Wait > 0 && r.asked%2 == 0 {
		r.note("disable", fmt.Sprintf("registration/%d", r.asked))
		return nil, muster.Problemf(muster.CodeUnavailable, "the control plane starts")
	}
	if r.asked > 8 {
		r.idle()
	}
	return r.memory.Audit(ctx, f)
}

// TestAuditFollowSurvivesRestarts: every entry is told once, whatever happened
// to the control plane in between.
func TestAuditFollowSurvivesRestarts(t *testing.T) {
	m := usual()
	for n := range 5 {
		m.note("set", fmt.Sprintf("boot-record/%d", n))
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	m.idle = stop
	var out, errs bytes.Buffer
	code := run(ctx, env{stdout: &out, stderr: &errs, now: time.Now, dial: func(connection) (fleet, error) { return &restarting{memory: m}, nil },
		getenv: func(k string) string {
			return map[string]string{"MUSTER_URL": storyURL, "MUSTER_KEY": goodKey}[k]
		}}, []string{"audit", "ls", "--follow", "--limit", "3"})
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, errs.String())
	}
	var seqs []string
	for line := range strings.Lines(out.String()) {
		seqs = append(seqs, strings.Fields(line)[0])
	}
	if got := strings.Join(seqs, " "); !strings.HasPrefix("3 4 5 6 7 8 9", got) || len(seqs) < 6 {
		t.Errorf("it told %s", got)
	}
	if !strings.Contains(errs.String(), "no answer; going on after entry 5") {
		t.Errorf("it did not say so:\n%s", errs.String())
	}
}

// exportProved follows a running control plane's audit while something
// happens, exports it, and proves the export without the control plane.
func exportProved(t *testing.T, dir string, muster func(want int, stdin string, args ...string) string, follow func(ctx context.Context, out *lines)) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	out, ended := &lines{bell: make(chan struct{}, 1)}, make(chan struct{})
	go func() { follow(ctx, out); close(ended) }()
	out.until(t, `approve_setup`)
	muster(0, "", "node", "quiesce", "web1")
	out.until(t, `operator:admin +quiesce +node/`)
	stop()
	<-ended
	file := filepath.Join(dir, "audit.jsonl")
	said := muster(0, "", "audit", "export", "--file", file)
	_, head, _ := strings.Cut(said, "head ")
	head, _, _ = strings.Cut(head, ":")
	if s := muster(0, "", "audit", "verify", "--file", file, "--head", head); !strings.Contains(s, "the chain is whole: entries 1 to") {
		t.Errorf("the export: %s", s)
	}
}
