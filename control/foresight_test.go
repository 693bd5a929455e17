package control_test

import (
	"fmt"
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/lifecycle"
	"muster.internal/module"
)

// TestForesight: what a plan would do is said and not done, things are explained,
// and an older blueprint is made the target again by hand, while planning is
// stopped, so that hosts take it.
func TestForesight(t *testing.T) {
	t.Parallel()
	p := newPlace(t, postgresURL(t))
	f := p.newWorkers()
	ctx := t.Context()
	a := f.add(nil)
	one, err := module.Parse("test", []byte(oneModule))
	f.ok(err)
	f.until("what would be placed is said before anything ever was", func() bool {
		d, err := p.admin.Plan(ctx, muster.WhatIf{AddModule: &one})
		f.ok(err)
		return len(d.Diff.Nodes) == 1 && len(d.Diff.Nodes[0].Placements) == 1
	})
	if d, err := p.admin.Plan(ctx, muster.WhatIf{}); err != nil || len(d.Diff.Nodes) != 0 {
		t.Errorf("nothing is wanted, and a plan would do %+v, %v", d, err)
	}

	f.want(oneModule)
	f.until("it is there", func() bool { return f.on("one") == "w1" })
	b := f.add(nil)
	f.until("both serve", func() bool { _, s := b.state(); return s == muster.NodeInService && len(f.target().Nodes) == 2 })
	before, err := p.admin.Target(ctx)
	f.ok(err)

	d, err := p.admin.Plan(ctx, muster.WhatIf{Node: a.node, Event: lifecycle.Expunge})
	f.ok(err)
	if text := fmt.Sprint(d.Report.Done); !strings.Contains(text, "is lost with its node") || !strings.Contains(text, "begins on") {
		t.Errorf("of an expunge it says %s", text)
	}
	_, err = p.admin.Plan(ctx, muster.WhatIf{Node: "nobody", Event: lifecycle.Expunge})
	p.refused(err, muster.CodeNotFound)
	if now, err := p.admin.Target(ctx); err != nil || now.Number != before.Number || f.on("one") != "w1" {
		t.Errorf("it was only asked, and the target is %+v instead of %+v", now, before)
	}

	placed, err := p.admin.Placements(ctx, muster.PlacementFilter{Module: "one"})
	f.ok(err)
	x, err := p.admin.Explain(ctx, muster.SubjectPlacement, placed[0].ID)
	f.ok(err)
	if x.Why == nil || !strings.Contains(fmt.Sprint(x.Why.Lines), "is up") || !strings.Contains(x.Is[0], "is placed since") || len(x.Next) != 0 {
		t.Errorf("the placement: %+v", x)
	}
	for kind, id := range map[muster.Subject]string{muster.SubjectNode: "nobody", muster.SubjectDisk: "nothing", muster.SubjectPlacement: "nothing"} {
		_, err := p.admin.Explain(ctx, kind, id)
		p.refused(err, muster.CodeNotFound)
	}
	_, err = p.admin.Explain(ctx, "fleet", "x")
	p.refused(err, muster.CodeInvalid)

	// The next version comes, and the blueprint before it comes back by hand.
	f.want(strings.Replace(oneModule, `"content": "x"`, `"content": "y"`, 1))
	version := func(want int64) func() bool {
		return func() bool {
			ps, err := p.admin.Placements(ctx, muster.PlacementFilter{Module: "one", State: muster.PlacementPlaced})
			f.ok(err)
			return len(ps) == 1 && ps[0].Version == want
		}
	}
	f.until("the second version is up", version(2))
	old := muster.NewTarget{Blueprint: fmt.Sprint(before.Number), Reason: "the second is no good"}
	if c := p.refused(func() error { _, err := p.admin.SetTarget(ctx, old); return err }(), muster.CodeConflict); !strings.Contains(c.Detail, "muster blueprint disable") {
		t.Errorf("it does not say what to do: %v", c)
	}
	_, err = p.admin.SetPlanning(ctx, muster.PlanningChange{Reason: "the second is no good"})
	f.ok(err)
	set, err := p.admin.SetTarget(ctx, old)
	f.ok(err)
	f.until("its host has the first again", func() bool {
		n, err := p.admin.Node(ctx, a.node)
		f.ok(err)
		return a.share().Placements[0].Version == 1 && n.Link != nil && n.Link.Holds == a.share().Generation
	})
	_, err = p.admin.SetTarget(ctx, muster.NewTarget{Blueprint: set.ID, Reason: "again"})
	f.ok(err) // it is the target already
	diff, err := p.admin.BlueprintDiff(ctx, "", set.ID)
	f.ok(err)
	if len(diff.Nodes) != 1 || diff.Nodes[0].Placements[0].Fields[0] != (muster.FieldChange{Field: "version", From: "2", To: "1"}) {
		t.Errorf("it changed %+v", diff)
	}
	_, err = p.admin.SetPlanning(ctx, muster.PlanningChange{Planning: true})
	f.ok(err)
	f.until("planning goes on to what is wanted", version(2))
}
