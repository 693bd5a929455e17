package control_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.internal"
)

// TestClaimAcrossControlPlanes: who waits for a claim at one control plane hears
// of what is wanted at another; a restart gives its holder a lease's time; and a
// person breaks what a key made.
func TestClaimAcrossControlPlanes(t *testing.T) {
	t.Parallel()
	p := newPlace(t, postgresURL(t))
	p.content()
	m := p.bare(1)
	m.sighted()
	p.ok(m.complete(m.opened(m.approved().Epoch)))
	q := p.replica()
	ctx := p.Context()
	node := must(p, p.admin.Nodes)[0].ID
	c := must(p, func(ctx context.Context) (muster.Claim, error) {
		return p.full.AddClaim(ctx, muster.NewClaim{NodeID: node, Holder: "kubernetes/prod", Lease: 60})
	})
	_, err := p.key(muster.ScopeReadOnly).AddClaim(ctx, muster.NewClaim{NodeID: node, Holder: "nomad"})
	p.refused(err, muster.CodeForbidden)

	var heard muster.Claim
	var wg sync.WaitGroup
	wg.Go(func() {
		heard, err = q.admin.Claim(ctx, c.ID, muster.ClaimWait{Unless: muster.ClaimHeld, Wait: time.Minute})
	})
	must(p, func(ctx context.Context) (muster.Node, error) {
		return p.admin.RaiseNode(ctx, node, "graceful_remove")
	})
	wg.Wait()
	p.ok(err)
	if heard.State != muster.ClaimDraining || heard.Why == "" {
		t.Errorf("%+v", heard)
	}

	_, err = p.full.BreakClaim(ctx, c.ID, muster.ClaimBreak{Reason: "it is gone"})
	p.refused(err, muster.CodeForbidden) // it takes a person
	broken := must(p, func(ctx context.Context) (muster.Claim, error) {
		return q.admin.BreakClaim(ctx, c.ID, muster.ClaimBreak{Reason: "that cluster is gone"})
	})
	if broken.Ended != muster.ClaimBroken {
		t.Errorf("%+v", broken)
	}
	_, err = p.full.RenewClaim(ctx, c.ID, muster.ClaimRenewal{})
	p.refused(err, muster.CodeConflict)
}

// TestClaimsPage: what the page tells schedulers to ask is answered.
func TestClaimsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/claims.md")
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t, "")
	p.content()
	m := p.bare(1)
	m.sighted()
	p.ok(m.complete(m.opened(m.approved().Epoch)))
	k := must(p, func(ctx context.Context) (muster.CreatedKey, error) {
		return p.admin.CreateKey(ctx, muster.NewKey{Scope: muster.ScopeFull})
	})
	node, claim := must(p, p.admin.Nodes)[0].ID, "none yet"
	examples := regexp.MustCompile("(?s)```http\n(\\S+) (\\S+)\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(examples) != 5 {
		t.Errorf("%d examples", len(examples))
	}
	for _, e := range examples {
		in := strings.NewReplacer("NODE", node, "CLAIM", claim)
		if code, problem := p.raw(e[1], in.Replace(e[2]), k.Secret, in.Replace(e[3])); code >= 300 {
			t.Errorf("%s %s: %d %+v", e[1], e[2], code, problem)
		}
		for _, c := range must(p, func(ctx context.Context) ([]muster.Claim, error) { return p.admin.Claims(ctx, muster.ClaimFilter{}) }) {
			claim = c.ID
		}
	}
	if c := must(p, func(ctx context.Context) (muster.Claim, error) { return p.admin.Claim(ctx, claim, muster.ClaimWait{}) }); c.Ended != muster.ClaimGivenUp {
		t.Errorf("%+v", c)
	}
}
