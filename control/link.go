package control

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/resource"
	"muster.internal/store"
)

// Times of the link.
const (
	linkWait  = 45 * time.Second // and up to ten more, so that a fleet does not come all at once
	linkGrace = 2 * time.Minute  // a poll and some more: who is silent for longer is not linked
	linkKept  = time.Minute      // how exactly it is written when a node was linked
)

// LinkNext answers when there is a newer declaration or an order, or when its
// time is over.
func (s session) LinkNext(ctx context.Context, p muster.LinkPoll) (muster.LinkAnswer, error) {
	for field, text := range map[string]string{"version": p.Version, "boot_id": p.BootID} {
		if err := checkText(field, text); err != nil {
			return muster.LinkAnswer{}, err
		}
	}
	if p.Holds < 0 {
		return muster.LinkAnswer{}, muster.Invalid("holds", "a generation is not negative")
	}
	busy := p.Busy
	p.Busy = false // which is nothing to remember
	defer s.presence.arrive(s.now, s.by.NodeID, p)()
	if busy {
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
		n, err := s.store.News(ctx, s.by.NodeID, p.Holds)
		if err != nil && ctx.Err() == nil {
			return muster.LinkAnswer{}, err
		}
		a := muster.LinkAnswer{Generation: n.Generation, Declaration: n.Newer, NextSeconds: 1 + rand.IntN(3)}
		untold := false
		for _, o := range n.Orders {
			a.Orders, untold = append(a.Orders, o.Kind), untold || o.ToldAt == nil
		}
		switch {
		case untold:
			if err := s.store.TellOrders(ctx, s.now(), s.by); err != nil {
				return muster.LinkAnswer{}, err
			}
			return a, nil
		case ended || ctx.Err() != nil, n.Newer != nil:
			return a, nil // and what it was told before: it may not have heard it
		}
		select {
		case <-news:
		case <-over.C:
			ended = true
		case <-ctx.Done():
		}
	}
}

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
	last, kept time.Time
	said       muster.LinkPoll
	changed    bool
}

// arrive notes a poll that comes; what it returns, that it goes.
func (p *presence) arrive(now func() time.Time, node string, said muster.LinkPoll) (leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nodes[node]
	if n == nil {
		n = new(present)
		p.nodes[node] = n
	}
	n.polls++
	n.changed = n.changed || n.said != said
	n.last, n.said = now(), said
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		n.polls--
		n.last = now()
	}
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
