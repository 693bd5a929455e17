package control

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/resource"
	"muster.internal/store"
)

// Times of the link.
const (
	linkWait  = 45 * time.Second // and up to ten more, so that a fleet does not come all at once
	linkGrace = 2 * time.Minute  // a poll and some more: who is silent for longer is not linked
	linkKept  = time.Minute      // how exactly it is written when a node was linked

	linkAtOnce = 8                // polls of one node that wait: a host has one, and some that broke off
	linkAgain  = 10 * time.Second // when to come back that have none
)

// linkPace is how often one node may ask; a host asks once a second at most, but
// for what is new.
var linkPace = pace{every: time.Second, burst: 60}

// LinkNext answers when there is a newer declaration or an order, or when its
// time is over.
func (s session) LinkNext(ctx context.Context, p muster.LinkPoll) (muster.LinkAnswer, error) {
	q, err := s.Arrive(s.by, p)
	if err != nil {
		return muster.LinkAnswer{}, err
	}
	defer q.Leave()
	if p.Busy {
		return muster.LinkAnswer{NextSeconds: int(muster.LinkBusyEvery / time.Second)}, nil
	}
	news, leave, err := s.watch.join(ctx, s.by.NodeID)
	if err != nil {
		return muster.LinkAnswer{}, err
	}
	defer leave()
	over := time.NewTimer(linkWait + rand.N(10*time.Second))
	defer over.Stop()
	for ended := false; ; {
		a, tells, err := q.Look(ctx)
		if err != nil && ctx.Err() == nil {
			return muster.LinkAnswer{}, err
		}
		if tells || ended || ctx.Err() != nil {
			return a, nil
		}
		select {
		case <-news:
		case <-over.C:
			ended = true
		case <-ctx.Done():
		}
	}
}

// A Poll is a host that asks what is new, and may wait for it. Its node counts
// as linked until it leaves.
type Poll struct {
	c     *Control
	by    muster.Caller
	said  muster.LinkPoll
	leave func()
}

// Arrive notes a poll. Whoever has a clock of its own, as a simulation does,
// looks again when Woken names the node; LinkNext does for all others.
func (c *Control) Arrive(by muster.Caller, p muster.LinkPoll) (*Poll, error) {
	for field, text := range map[string]string{"version": p.Version, "boot_id": p.BootID} {
		if err := checkText(field, text); err != nil {
			return nil, err
		}
	}
	if p.Holds < 0 {
		return nil, muster.Invalid("holds", "a generation is not negative")
	}
	p.Busy = false // which is nothing to remember
	leave, err := c.presence.arrive(c.now, by.NodeID, p)
	if err != nil {
		return nil, err
	}
	return &Poll{c, by, p, leave}, nil
}

// Look is what there is to answer now; unless it tells anything new, the poll
// may wait. What its host was told before is in the answer, too: it may not have
// heard it.
func (q *Poll) Look(ctx context.Context) (a muster.LinkAnswer, tells bool, err error) {
	n, err := q.c.store.News(ctx, q.by.NodeID, q.said.Holds)
	if err != nil {
		return a, false, err
	}
	a = muster.LinkAnswer{Generation: n.Generation, Declaration: n.Newer, NextSeconds: 1 + rand.IntN(3)}
	untold := false
	for _, o := range n.Orders {
		kind := o.Kind
		if kind == muster.OrderReboot || kind == muster.OrderRebootDrained {
			if o.ToldAt != nil {
				back, err := q.back(ctx)
				if err != nil {
					return a, false, err
				}
				if back {
					return q.Look(ctx) // without what is over
				}
			}
			kind = muster.OrderReboot
		}
		a.Orders, untold = append(a.Orders, kind), untold || o.ToldAt == nil
	}
	if untold {
		err = q.c.store.TellOrders(ctx, q.c.now(), q.by, q.said.BootID)
	}
	return a, untold || n.Newer != nil, err
}

// back ends the order to restart of a machine that was restarted.
func (q *Poll) back(ctx context.Context) (back bool, err error) {
	if back, err = q.c.store.Back(ctx, q.by.NodeID, q.said.BootID); err != nil || !back {
		return false, err
	}
	return true, q.c.store.Rebooted(ctx, q.c.now(), q.by, q.said.BootID)
}

// Leave ends the poll.
func (q *Poll) Leave() { q.leave() }

func (s session) LinkReport(ctx context.Context, r resource.Report) error {
	if r.Generation < 0 || len(r.Lines) > 2*resource.MaxResources {
		return muster.Invalid("lines", "a report is of a generation, and has at most %d lines", 2*resource.MaxResources)
	}
	if err := checkText("version", r.Version); err != nil {
		return err
	}
	return s.store.KeepReport(ctx, s.now(), s.by, r)
}

func (s session) LinkProfile(ctx context.Context, p muster.Profile) error {
	if len(p.Profile) > 0 && !json.Valid(p.Profile) {
		return muster.Invalid("profile", "is not JSON")
	}
	return s.store.KeepProfile(ctx, s.now(), s.by, p)
}

func (s session) LinkHardware(ctx context.Context, h muster.Hardware) error {
	if err := inventory.CheckHardware(h); err != nil {
		return muster.Invalid("hardware", "%v", err)
	}
	return s.store.KeepHardware(ctx, s.now(), s.by, h)
}

func (s session) SetLinkOwned(ctx context.Context, owned []resource.Owned) error {
	if len(owned) > 2*resource.MaxResources {
		return muster.Invalid("owned", "a host answers for at most %d resources", 2*resource.MaxResources)
	}
	return s.store.KeepOwned(ctx, s.now(), s.by, owned)
}

func (s session) LinkOwned(ctx context.Context) ([]resource.Owned, error) {
	o, err := s.store.NodeOwned(ctx, s.by.NodeID)
	return o.Owned, err
}

func (s session) SetLinkHealth(ctx context.Context, all []muster.PlacementHealth) error {
	if len(all) > resource.MaxChecks {
		return muster.Invalid("health", "a host checks at most %d placements", resource.MaxChecks)
	}
	for _, p := range all {
		for field, text := range map[string]string{"id": p.ID, "reason": p.Reason} {
			if err := checkText(field, text); err != nil {
				return err
			}
		}
	}
	return s.store.KeepHealth(ctx, s.now(), s.by, all)
}

func (s session) LinkKey(ctx context.Context) (k muster.LinkKey, err error) {
	k.APIKey, err = s.store.NextKey(ctx, s.now(), s.by)
	return k, err
}

// A presence knows which nodes are linked here. What it knows is written in
// batches: of what a crash loses, the next poll tells again.
type presence struct {
	mu    sync.Mutex
	nodes map[string]*present
}

type present struct {
	polls      int // that wait now
	asked      debt
	last, kept time.Time
	said       muster.LinkPoll
	changed    bool
}

// arrive notes a poll that comes; what it returns, that it goes. A node that asks
// as often as no host does is refused: its certificate was copied, as with a disk
// image, or its host is ill.
func (p *presence) arrive(now func() time.Time, node string, said muster.LinkPoll) (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nodes[node]
	if n == nil {
		n = new(present)
		p.nodes[node] = n
	}
	wait := linkPace.wait(n.asked, now())
	if n.polls >= linkAtOnce {
		wait = max(wait, linkAgain)
	}
	if wait > 0 {
		q := muster.Problemf(muster.CodeTooMany, "node %s asks more often than one host does: are there machines that share its certificate, as copies of one disk do? muster node retire or muster registration disable ends it, and each enrols for itself", node)
		q.RetryAfter = int((wait + time.Second - 1) / time.Second)
		return nil, q
	}
	n.asked = linkPace.add(n.asked, now())
	n.polls++
	n.changed = n.changed || n.said != said
	n.last, n.said = now(), said
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		n.polls--
		n.last = now()
	}, nil
}

// due are the nodes of which the store must hear.
func (p *presence) due(now time.Time) (seen []store.NodeSeen) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, n := range p.nodes {
		if n.polls > 0 {
			n.last = now
		}
		if n.changed || n.last.Sub(n.kept) >= linkKept {
			seen = append(seen, store.NodeSeen{NodeID: id, At: n.last, Said: n.said})
		}
	}
	return seen
}

// done notes what the store has heard, and forgets who is gone.
func (p *presence) done(now time.Time, seen []store.NodeSeen) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range seen {
		n := p.nodes[s.NodeID]
		if n == nil {
			continue // it went, and was forgotten with an earlier part
		}
		n.kept, n.changed = s.At, n.said != s.Said
	}
	for id, n := range p.nodes {
		if n.polls == 0 && !n.changed && now.Sub(n.last) > linkGrace {
			delete(p.nodes, id)
		}
	}
}

// show says of a node whether it is linked, by what is known here and what the
// store knows from others.
func (p *presence) show(now time.Time, node *muster.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.nodes[node.ID]; n != nil {
		at := n.last
		if n.polls > 0 {
			at = now
		}
		if node.Link == nil || node.Link.LastLinked.Before(at) {
			node.Link = &muster.NodeLink{LastLinked: at, Holds: n.said.Holds, Version: n.said.Version, Capability: n.said.Capability}
		}
	}
	if node.Link != nil {
		node.Link.Linked = now.Sub(node.Link.LastLinked) < linkGrace && node.State != muster.NodeDecommissioned && node.Policy != muster.PolicyExpunged
		if at := node.Link.LastLinked; node.LastSeen == nil || node.LastSeen.Before(at) {
			node.LastSeen = &at
		}
	}
}

// linksAtOnce is how many nodes are written down in one transaction.
const linksAtOnce = 500

// KeepLinks writes down who is linked, and tells who is away. After a start
// hosts have the time to come before any is called away.
func (c *Control) KeepLinks(ctx context.Context) error {
	now := c.now()
	seen := c.presence.due(now)
	for len(seen) > 0 {
		n := min(len(seen), linksAtOnce)
		if err := c.store.KeepLinks(ctx, now, seen[:n]); err != nil {
			return err
		}
		c.presence.done(now, seen[:n])
		seen = seen[n:]
	}
	if now.Sub(c.opened) < linkGrace {
		return nil
	}
	_, err := c.store.TellAway(ctx, now)
	return err
}
