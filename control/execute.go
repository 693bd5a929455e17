package control

import (
	"context"
	"errors"
	"sync"

	"muster.internal"
	"muster.internal/resource"
	"muster.internal/store"
)

// executeAtOnce is how many nodes are told at the same time: those share
// commits, and one that hangs keeps no other waiting.
const executeAtOnce = 32

// A telling is a node that is to be told something.
type telling struct {
	node *store.FleetNode
	d    resource.Declaration
	err  error // it cannot even be said
}

// execute carries the target out, as far as the store knows that it is not: each
// pass looks at everything, so that whoever comes next goes on where this one
// was killed.
func (p *planning) execute(ctx context.Context, state store.FleetState) error {
	b := state.Blueprint
	if b == nil {
		return nil
	}
	todo := make(chan telling)
	var work sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for range executeAtOnce {
		work.Go(func() {
			for t := range todo {
				if err := p.tell(ctx, b.ID, t); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			}
		})
	}
	nodes := map[string]*store.FleetNode{}
	for i := range state.Nodes {
		nodes[state.Nodes[i].ID] = &state.Nodes[i]
	}
	for i := range b.Nodes {
		n := nodes[b.Nodes[i].ID]
		if n == nil || !p.untold(n, &b.Nodes[i]) {
			continue
		}
		t := telling{node: n}
		t.d, t.err = p.rendererOf(b).Declaration(n.ID) // here: a renderer is for one at a time
		select {
		case todo <- t:
		case <-ctx.Done():
		}
	}
	close(todo)
	work.Wait()
	return errors.Join(failed, p.releaseDisks(ctx, b, nodes))
}

// untold tells whether a node is to be told now what the target says of it.
// Nobody speaks to one that was cut off.
func (p *planning) untold(n *store.FleetNode, share *muster.BlueprintNode) bool {
	switch {
	case share.Generation <= n.Declared, share.State == muster.NodeDecommissioned:
		return false
	case n.State == muster.NodeDecommissioned, n.Policy == muster.PolicyExpunged, n.ByHand:
		return false
	}
	e := n.Execution
	return e == nil || e.Generation != share.Generation || !e.AgainAt.After(p.c.now())
}

// tell tells one node. That somebody else did, or that the target is another by
// now, is as well.
func (p *planning) tell(ctx context.Context, blueprintID string, t telling) error {
	d, err := t.d, t.err
	if err == nil {
		generation := d.Generation
		if d, err = checkDeclaration(d); err == nil {
			d.Generation = generation
			err = tooOld(t.node.Node, d)
		}
		if err == nil {
			if err = p.c.store.Realise(ctx, p.c.now(), muster.Clock, t.node.ID, blueprintID, d); err == nil || muster.IsCode(err, muster.CodeConflict) {
				return nil // the next pass sees why
			}
		}
	}
	if ctx.Err() != nil || muster.IsCode(err, muster.CodeUnavailable) {
		return err // nobody could be told anything
	}
	_, kept := p.c.store.RealiseFailed(ctx, p.c.now(), muster.Clock, t.node.ID, t.d.Generation, err)
	return kept
}

// releaseDisks decommissions what hosts do not use any more.
func (p *planning) releaseDisks(ctx context.Context, b *muster.Blueprint, nodes map[string]*store.FleetNode) (failed error) {
	for i := range b.Nodes {
		for _, d := range b.Nodes[i].Disks {
			n := nodes[b.Nodes[i].ID]
			if !d.Ready || n == nil || n.State == muster.NodeDecommissioned || !inService(n, d.ID) {
				continue
			}
			if err := p.c.store.DecommissionDisk(ctx, p.c.now(), muster.Clock, d.ID, b.ID); err != nil && !muster.IsCode(err, muster.CodeConflict) {
				failed = err
			}
		}
	}
	return failed
}

func inService(n *store.FleetNode, disk string) bool {
	for _, d := range n.Disks {
		if d.ID == disk {
			return d.State == muster.DiskInService
		}
	}
	return false
}
