package control

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/blueprint"
	"muster.internal/planner"
	"muster.internal/store"
)

// Times of planning. A large fleet is planned less often: a pass may take a
// tenth of the time.
const (
	planPause = 400 * time.Millisecond // so that what changes together is planned together
	planEvery = 10 * time.Second       // though nothing was heard to change
	planShare = 10
)

// A planning is this control plane's part of planning. Others do the same from
// the same store; who sets the target first wins.
type planning struct {
	c *Control

	pass     sync.Mutex // one at a time
	reader   *store.FleetReader
	renderer *blueprint.Renderer // of the blueprint that was looked at last
	of       *muster.Blueprint

	mu     sync.Mutex
	report muster.PlanReport
	at     time.Time
}

func newPlanning(c *Control) *planning { return &planning{c: c, reader: c.store.NewFleetReader()} }

// rendererOf is kept for as long as the target stays.
func (p *planning) rendererOf(b *muster.Blueprint) *blueprint.Renderer {
	if b != nil && p.of != b {
		p.of, p.renderer = b, blueprint.NewRenderer(b)
	}
	if b == nil {
		return nil
	}
	return p.renderer
}

// Plan looks at the fleet, makes a plan the target if it changes anything, and
// carries the target out. That somebody else was faster is no error: whoever is
// next plans from theirs.
func (c *Control) Plan(ctx context.Context) error {
	p := c.planning
	p.pass.Lock()
	defer p.pass.Unlock()
	state, err := p.reader.Read(ctx, c.now())
	if err != nil || !state.Planned {
		return err
	}
	if err := p.next(ctx, &state); err != nil {
		return err
	}
	return p.execute(ctx, state)
}

// next makes the next blueprint the target, if there is one.
func (p *planning) next(ctx context.Context, state *store.FleetState) error {
	in := p.input(*state)
	b, report := planner.Plan(in)
	if !state.Target.Planning {
		report = muster.PlanReport{Parent: report.Parent, Refused: []muster.PlanLine{{Text: "nothing is planned: " + state.Target.SetBy + " has stopped it: " + state.Target.Reason}}}
		p.say(report)
		return nil
	}
	if report.Blueprint == "" {
		p.say(report)
		return nil
	}
	if wrong := blueprint.Lint(&b); len(wrong) > 0 {
		for _, text := range wrong {
			report.Refused = append(report.Refused, muster.PlanLine{Text: "this plan must not be, and was discarded: " + text})
		}
		p.c.log.Error("a plan breaks a rule and was discarded", "rule", wrong[0], "rules", len(wrong))
		report.Blueprint, report.Done = "", nil
		p.say(report)
		return nil
	}
	_, err := p.c.store.SetTarget(ctx, p.c.now(), muster.Clock, &b, report)
	if muster.IsCode(err, muster.CodeConflict) {
		p.c.log.Debug("a plan was discarded", "why", err)
		state.Blueprint = nil // nor is there a target that is known to stand
		return nil
	}
	if err == nil {
		state.Blueprint = &b
		p.say(report)
	}
	return err
}

func (p *planning) input(state store.FleetState) planner.Input {
	now := p.c.now()
	return planInput(state, p.rendererOf(state.Blueprint), now, func(n *muster.Node) { p.c.presence.show(now, n) })
}

func (p *planning) say(r muster.PlanReport) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report, p.at = r, p.c.now()
}

// LastPlan is what the newest plan that was made here says: what was done, and,
// though nothing was, what it waits for. The time is zero before the first.
func (c *Control) LastPlan() (muster.PlanReport, time.Time) {
	c.planning.mu.Lock()
	defer c.planning.mu.Unlock()
	return c.planning.report, c.planning.at
}

// WhatIf plans from the fleet as it stands, with a change that is made nowhere
// else, and returns the target and what would take its place.
func (c *Control) WhatIf(ctx context.Context, w muster.WhatIf) (was, would muster.Blueprint, report muster.PlanReport, err error) {
	p := c.planning
	p.pass.Lock()
	defer p.pass.Unlock()
	read := p.reader.ReadWhole
	if w == (muster.WhatIf{}) {
		read = p.reader.Read // while nothing was ever to be planned, nothing is
	}
	state, err := read(ctx, c.now())
	if err != nil {
		return was, would, report, err
	}
	in := p.input(state)
	if err := planner.Assume(&in, w); err != nil {
		return was, would, report, err
	}
	if state.Blueprint != nil {
		was = *state.Blueprint
	}
	would, report = planner.Plan(in)
	return was, would, report, nil
}

// planClock plans when something has changed, and now and then: of what hosts say
// to other control planes those hear.
func (c *Control) planClock(ctx context.Context) {
	for ctx.Err() == nil {
		changed, began := c.store.Changed(), time.Now()
		head, err := c.store.Head(ctx)
		if err == nil {
			err = c.Plan(ctx)
		}
		if err != nil && ctx.Err() == nil {
			c.log.Warn("the fleet could not be planned; it is tried again", "error", err)
		}
		pause := max(planPause, planShare*time.Since(began))
		pauseFor(ctx, pause+rand.N(pause/2)) // so that control planes do not all plan at once
		c.untilNews(ctx, changed, head)
	}
}

// untilNews waits until something has changed here, or the feed has moved
// elsewhere, or for long enough.
func (c *Control) untilNews(ctx context.Context, changed <-chan struct{}, head int64) {
	late := time.NewTimer(planEvery)
	defer late.Stop()
	for {
		select {
		case <-c.store.Elsewhere():
			if now, err := c.store.Head(ctx); err != nil || now == head {
				continue
			}
		case <-changed:
		case <-late.C:
		case <-ctx.Done():
		}
		return
	}
}
