// Package kubernetes lets a Kubernetes cluster hold claims on the machines that
// its nodes are: while a node is in the cluster, its machine is claimed; when the
// claim is to drain, the node is cordoned, its pods are evicted within their
// disruption budgets, and the claim is released once none is left.
//
// It speaks plain HTTPS to the API server: a list and a watch of nodes, pods of
// one node, a patch, an eviction. It must never uncordon what it did not cordon,
// never delete a pod around its budget, and never log what a kubeconfig holds.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"muster.internal"
)

// drainsAtOnce is how many nodes are worked on at one time: one that is slow
// delays only itself.
const drainsAtOnce = 8

// nodesEvery is how often the control plane is asked for its nodes.
const nodesEvery = 30 * time.Second

// Fleet is what is asked of the control plane; a client is one.
type Fleet interface {
	Nodes(ctx context.Context) ([]muster.Node, error)
	muster.Claims
}

// An Agent holds the claims of one cluster. Two with one holder's name and one
// key do the same work twice, and no harm.
type Agent struct {
	Cluster *Cluster
	Fleet   Fleet
	Holder  string        // of the claims: kubernetes/NAME
	Label   string        // of a cluster's node, which names the machine
	Lease   time.Duration // of the claims
	Every   time.Duration // how often claims and pods are looked at
	Log     *slog.Logger

	mu      sync.Mutex
	known   map[string]node // of the cluster; nil: not listed yet
	fleet   []muster.Node
	asked   time.Time            // for the fleet's nodes
	said    map[string]string    // of a machine, so that it is not said again
	renewed map[string]time.Time // claims
	missed  error                // the last failure to list
}

// Run works until ctx ends. Its claims stay until their leases are over: another
// one that is started in time goes on with them.
func (a *Agent) Run(ctx context.Context) error {
	a.said, a.renewed = map[string]string{}, map[string]time.Time{}
	var all sync.WaitGroup
	all.Go(func() { a.follow(ctx) })
	tick := time.NewTicker(a.Every)
	defer tick.Stop()
	for {
		if err := a.pass(ctx); err != nil && ctx.Err() == nil {
			a.Log.Warn("claims could not be looked after; trying again", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			all.Wait()
			return nil
		}
	}
}

// follow keeps what the cluster's nodes are: a list, then a watch from there.
func (a *Agent) follow(ctx context.Context) {
	for ctx.Err() == nil {
		nodes, version, err := a.Cluster.nodes(ctx)
		if err == nil {
			a.mu.Lock()
			a.known = map[string]node{}
			for _, n := range nodes {
				a.known[n.Meta.Name] = n
			}
			a.mu.Unlock()
			err = a.Cluster.watch(ctx, version, a.learn)
		}
		a.mu.Lock()
		a.missed = err
		a.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			a.say("all", "the cluster's nodes cannot be listed; what is known of them is from before", "reason", err)
		}
		select {
		case <-time.After(a.Every):
		case <-ctx.Done():
		}
	}
}

func (a *Agent) learn(n node, gone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if gone {
		delete(a.known, n.Meta.Name)
		return
	}
	a.known[n.Meta.Name] = n
}

// A held is a machine with the cluster's nodes on it, of which there may be
// several, and the claim on it. Without nodes, they have left the cluster.
type held struct {
	name  string // for people
	nodes []node
	claim muster.Claim
	keep  bool // perhaps they have not: a node of the cluster could be several machines
}

// pass looks once after everything.
func (a *Agent) pass(ctx context.Context) error {
	known, err := a.listed()
	if err != nil || known == nil {
		return err
	}
	if time.Since(a.asked) >= nodesEvery {
		fleet, err := a.Fleet.Nodes(ctx)
		if err != nil {
			return fmt.Errorf("the fleet's nodes: %w", err)
		}
		a.fleet, a.asked = fleet, time.Now()
	}
	live, err := a.Fleet.Claims(ctx, muster.ClaimFilter{Holder: a.Holder})
	if err != nil {
		return fmt.Errorf("the claims of %s: %w", a.Holder, err)
	}
	queue := make(chan held)
	var all sync.WaitGroup
	for range drainsAtOnce {
		all.Go(func() {
			for h := range queue {
				a.look(ctx, h)
			}
		})
	}
	for _, h := range a.pair(known, live) {
		queue <- h
	}
	close(queue)
	all.Wait()
	return nil
}

// listed are the cluster's nodes as they are known now; nil: not yet.
func (a *Agent) listed() ([]node, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil {
		return nil, a.missed
	}
	return slices.Collect(maps.Values(a.known)), nil
}

// pair finds the claim on each machine of the fleet that has nodes of the
// cluster.
func (a *Agent) pair(known []node, live []muster.Claim) (work []held) {
	machines := map[string]*held{}
	keep := false
	for _, n := range known {
		m, unsure, why := match(n, a.Label, a.fleet)
		keep = keep || unsure
		if m.ID == "" {
			a.say(n.Meta.Name, "a node of the cluster is no machine of the fleet", "reason", why)
			continue
		}
		h := machines[m.ID]
		if h == nil {
			h = &held{claim: muster.Claim{NodeID: m.ID}}
			machines[m.ID] = h
		}
		h.nodes = append(h.nodes, n)
	}
	for _, c := range live {
		if c.DiskID != "" {
			continue
		}
		if machines[c.NodeID] == nil {
			machines[c.NodeID] = &held{name: c.NodeID, keep: keep}
		}
		machines[c.NodeID].claim = c
	}
	for _, h := range machines {
		slices.SortFunc(h.nodes, func(a, b node) int { return strings.Compare(a.Meta.Name, b.Meta.Name) })
		for _, n := range h.nodes {
			h.name = strings.TrimPrefix(h.name+", "+n.Meta.Name, ", ")
		}
		work = append(work, *h)
	}
	return work
}

// say logs what is so of something, once.
func (a *Agent) say(about, what string, args ...any) {
	text := what + fmt.Sprint(args...)
	a.mu.Lock()
	again := a.said[about] == text
	a.said[about] = text
	a.mu.Unlock()
	if !again {
		a.Log.Info(what, append([]any{"node", about}, args...)...)
	}
}

// look does for one machine what the claim on it asks for.
func (a *Agent) look(ctx context.Context, h held) {
	err := a.work(ctx, h)
	if err != nil && ctx.Err() == nil {
		a.say(h.name, "not done yet, and tried again", "reason", err)
	}
}

func (a *Agent) work(ctx context.Context, h held) (err error) {
	switch {
	case len(h.nodes) == 0 && h.keep:
		return a.renew(ctx, h.claim, h.claim.Reason)
	case len(h.nodes) == 0:
		if _, err = a.Fleet.ReleaseClaim(ctx, h.claim.ID); err == nil {
			a.say(h.name, "it has left the cluster: its claim is released")
		}
		return err
	case h.claim.ID == "":
		if h.claim, err = a.Fleet.AddClaim(ctx, muster.NewClaim{NodeID: h.claim.NodeID, Holder: a.Holder, Reason: "in the cluster as " + h.name, Lease: int(a.Lease / time.Second)}); err != nil {
			return err
		}
	}
	if h.claim.State == muster.ClaimDraining {
		return a.drain(ctx, h)
	}
	return a.hold(ctx, h)
}

// hold keeps a claim, and takes back a cordon that was for a drain.
func (a *Agent) hold(ctx context.Context, h held) error {
	for _, n := range h.nodes {
		if _, ours := n.Meta.Annotations[cordoned]; !ours {
			continue
		}
		if err := a.Cluster.cordon(ctx, n, ""); err != nil {
			return err // a conflict, too: somebody changed it just now
		}
		a.say(h.name, "it is not to be drained any more: uncordoned", "cordoned", n.Meta.Name)
	}
	return a.renew(ctx, h.claim, "in the cluster as "+h.name)
}

// renew gives a claim another lease when a third of it is used, or when there is
// another thing to say. How old a lease is, this side's clock tells alone.
func (a *Agent) renew(ctx context.Context, c muster.Claim, reason string) error {
	a.mu.Lock()
	at, known := a.renewed[c.ID]
	a.mu.Unlock()
	if known && reason == c.Reason && time.Since(at) < a.Lease/3 {
		return nil
	}
	now := time.Now()
	if _, err := a.Fleet.RenewClaim(ctx, c.ID, muster.ClaimRenewal{Lease: int(a.Lease / time.Second), Reason: reason}); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.renewed[c.ID] = now
	return nil
}

// drain goes one step: nothing new comes, what is there is asked to go, and the
// claim is released when nothing is left.
func (a *Agent) drain(ctx context.Context, h held) error {
	there, stays := 0, ""
	for _, n := range h.nodes {
		if !n.Spec.Unschedulable {
			if err := a.Cluster.cordon(ctx, n, h.claim.ID); err != nil {
				return err // a conflict, too
			}
			a.say(h.name, "it is to be drained: cordoned", "reason", h.claim.Why)
		}
		pods, held, err := a.empty(ctx, n.Meta.Name)
		if err != nil {
			return err
		}
		there += pods
		if held != "" {
			stays = held
		}
	}
	if there > 0 {
		text := left(there, stays)
		a.say(h.name, "draining", "left", text)
		return a.renew(ctx, h.claim, text)
	}
	if _, err := a.Fleet.ReleaseClaim(ctx, h.claim.ID); err != nil {
		return err
	}
	a.say(h.name, "it is drained: its claim is released", "claim", h.claim.ID)
	return nil
}

// empty asks the pods of a node to go. It tells how many are there, and which
// one may not go yet, and why.
func (a *Agent) empty(ctx context.Context, name string) (there int, stays string, err error) {
	pods, err := a.Cluster.pods(ctx, name)
	if err != nil {
		return 0, "", err
	}
	for _, p := range pods {
		if !leaves(p) {
			continue
		}
		there++
		if p.Meta.Deleted != nil {
			continue // it is on its way out
		}
		var no *status
		err := a.Cluster.evict(ctx, p)
		switch {
		case errors.As(err, &no) && no.Code != http.StatusNotFound:
			stays = p.Meta.Namespace + "/" + p.Meta.Name + " stays: " + no.Message
			for _, c := range no.Details.Causes {
				stays += " " + c.Message
			}
		case err != nil && no == nil:
			return there, stays, err
		}
	}
	return there, stays, nil
}
