package control_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/control"
)

// replica is a second control plane on the same database.
func (p *place) replica() *place {
	p.Helper()
	q := &place{TB: p.TB, dir: p.TempDir(), store: p.store, log: new(lockedBuffer), now: p.clock()}
	key, err := os.ReadFile(filepath.Join(p.dir, "master.key"))
	p.ok(err)
	p.ok(os.WriteFile(filepath.Join(q.dir, "master.key"), key, 0o600))
	q.start()
	if _, err := control.ReadFirstLogin(q.dir); !errors.Is(err, fs.ErrNotExist) {
		p.Errorf("the second control plane made another first operator: %v", err)
	}
	q.secrets = p.secrets
	q.login()
	q.booter, q.enroll = q.key(muster.ScopeBooter), q.key(muster.ScopeURenroll)
	return q
}

// TestTwoControlPlanes on one database: what one does the other knows.
func TestTwoControlPlanes(t *testing.T) {
	t.Parallel()
	p := newPlace(t, postgresURL(t))
	p.content()
	q := p.replica()
	ctx := t.Context()

	// A change made at one wakes a booter that waits at the other.
	feed, err := q.booter.Feed(ctx, "b1", 0, 0)
	p.ok(err)
	var woken muster.BooterFeed
	var wg sync.WaitGroup
	wg.Go(func() { woken, err = q.booter.Feed(ctx, "b1", feed.Seq, time.Minute) })
	m := p.bare(1)
	m.sighted()
	wg.Wait()
	p.ok(err)
	if woken.Seq <= feed.Seq {
		t.Errorf("woken at %d, which is not past %d", woken.Seq, feed.Seq)
	}

	// Approved here, taken there, completed here.
	grant := m.approved()
	m.p = q
	b := m.opened(grant.Epoch)
	m.p = p
	p.ok(m.complete(b))

	// Disabled here: refused there, within the stated bound.
	host := q.anyone.WithToken(b.APIKey)
	for range 2 {
		if _, err := host.Heartbeat(ctx, muster.Heartbeat{}); err != nil {
			t.Fatal(err)
		}
	}
	must(p, func(ctx context.Context) (muster.Registration, error) {
		return p.admin.RaiseRegistration(ctx, m.uuid, "disable")
	})
	q.advance(250 * time.Millisecond)
	_, err = host.Heartbeat(ctx, muster.Heartbeat{})
	p.refused(err, muster.CodeUnauthenticated)

	// Both approve at once: one wins.
	n := p.bare(2)
	plan := n.ready()
	errs := make([]error, 2)
	for i, c := range []*place{p, q} {
		wg.Go(func() {
			_, errs[i] = c.admin.ApproveSetup(ctx, n.uuid, muster.SetupApproval{Plan: plan.Digest, Confirm: n.serial})
		})
	}
	wg.Wait()
	if (errs[0] == nil) == (errs[1] == nil) || !muster.IsCode(errs[0], muster.CodeConflict) && !muster.IsCode(errs[1], muster.CodeConflict) {
		t.Errorf("approved at both: %v, %v", errs[0], errs[1])
	}
}
