package control_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"muster.internal"
	"muster.internal/resource"
)

// TestResolveConflict: a person's word on an adopted resource goes to the host
// with the next generation, which is otherwise the same, secrets included.
func TestResolveConflict(t *testing.T) {
	engines(t, func(p *place) {
		h := p.host(1)
		d := told(p, "ours")
		d.Resources[0].Adopt = true
		must(p, func(ctx context.Context) (muster.NodeDeclaration, error) { return p.full.Declare(ctx, h.node, d) })
		take := muster.ConflictResolution{Ref: "file:/etc/motd", Resolve: resource.ResolveTake}
		_, err := p.full.ResolveConflict(p.Context(), h.node, take)
		p.refused(err, muster.CodeConflict) // nothing is known of the machine yet
		p.ok(h.c.SetLinkOwned(p.Context(), []resource.Owned{
			{Ref: "file:/etc/motd", Origin: resource.OriginAdopted, Since: p.clock(), Conflict: true},
			{Ref: "file:/etc/key", Origin: resource.OriginCreated, Since: p.clock()},
			{Ref: "file:/etc/gone", Origin: resource.OriginAdopted, Since: p.clock(), Conflict: true},
		}))
		for _, c := range []struct {
			r    muster.ConflictResolution
			code muster.Code
		}{
			{muster.ConflictResolution{Ref: "file:/etc/motd", Resolve: "both"}, muster.CodeInvalid},
			{muster.ConflictResolution{Ref: "file:/etc/key", Resolve: resource.ResolveTake}, muster.CodeConflict},
			{muster.ConflictResolution{Ref: "file:/etc/gone", Resolve: resource.ResolveTake}, muster.CodeConflict}, // not declared
		} {
			_, err := p.full.ResolveConflict(p.Context(), h.node, c.r)
			p.refused(err, c.code)
			var problem *muster.Problem
			if errors.As(err, &problem); c.code == muster.CodeConflict && !slices.Contains(problem.Allowed, "resolve file:/etc/motd") {
				p.Errorf("%+v does not say what is allowed: %v", c.r, problem.Allowed)
			}
		}
		n := must(p, func(ctx context.Context) (muster.NodeDeclaration, error) {
			return p.full.ResolveConflict(ctx, h.node, take)
		})
		a, err := h.next(p, 1)
		p.ok(err)
		if n.Generation != 2 || a.Generation != 2 || a.Declaration == nil || a.Declaration.Resources[0].Resolve != resource.ResolveTake || a.Declaration.Resources[1].File.Content != planted {
			p.Errorf("%d; the host hears %+v", n.Generation, a)
		}
		_, err = p.full.NodeBriefing(p.Context(), h.node)
		p.refused(err, muster.CodeNotFound)
		p.ok(h.c.LinkReport(p.Context(), resource.Report{Generation: 2, Trigger: "declaration", Version: "1", Outcome: resource.OutcomeChanged, Lines: []resource.Line{
			{Ref: "file:/etc/motd", Outcome: resource.OutcomeChanged, Did: "updated"}, {Ref: "file:/etc/key", Outcome: resource.OutcomeOK}}}))
		b := must(p, func(ctx context.Context) (resource.Briefing, error) { return p.full.NodeBriefing(ctx, h.node) })
		if b.Generation != 2 || b.Outcome != resource.OutcomeOK || b.Sum[resource.OutcomeOK] != 2 || b.Lines[0].Did != "updated" {
			p.Errorf("%+v", b)
		}
	})
}
