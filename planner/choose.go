package planner

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"slices"
	"strings"

	"muster.internal"
	"muster.internal/module"
)

// A chooser says where the next replica of a module goes: over the values of the
// label that it is spread over, where the fewest of it stay; there, on the node
// with the fewest of it, then with the fewest placements in all, then with the
// lowest id. It looks at each node once, so that many replicas cost little more
// than one.
type chooser struct {
	p      *plan
	k      *kind
	twice  bool
	groups groups
	of     map[string]*group
}

// A group is the nodes with one value of the label.
type group struct {
	label   string
	staying int
	nodes   candidates
}

// A candidate is a node that can take one more.
type candidate struct{ node, count, total int }

func (c candidate) compare(o candidate) int {
	return cmp.Or(cmp.Compare(c.count, o.count), cmp.Compare(c.total, o.total), cmp.Compare(c.node, o.node))
}

func (p *plan) newChooser(k *kind, staying []ref) *chooser {
	p.room()
	c := &chooser{p: p, k: k, of: map[string]*group{}, twice: k.want.Twice()}
	for _, r := range staying {
		c.group(&p.nodes[r.node]).staying++
	}
	count := c.counts()
	for i := range p.nodes {
		n := &p.nodes[i]
		if c.why(n, count[i]) == "" {
			g := c.group(n)
			g.nodes = append(g.nodes, candidate{i, count[i], n.total})
		}
	}
	for _, g := range c.of {
		if len(g.nodes) > 0 {
			heap.Init(&g.nodes)
			c.groups = append(c.groups, g)
		}
	}
	heap.Init(&c.groups)
	return c
}

// counts is how many of the module each node has, those included that may still
// be there.
func (c *chooser) counts() []int {
	count := make([]int, len(c.p.nodes))
	for _, r := range c.k.all {
		if _, pl := c.p.at(r); !pl.Gone() {
			count[r.node]++
		}
	}
	return count
}

func (c *chooser) group(n *node) *group {
	label := ""
	if s := c.k.want.Place.Spread; s != "" && n.in != nil {
		label = n.in.Labels[s]
	}
	g := c.of[label]
	if g == nil {
		g = &group{label: label}
		c.of[label] = g
	}
	return g
}

// why says why a node cannot take one more, with so many there; empty: it can.
func (c *chooser) why(n *node, count int) string {
	if why := n.mayHold(muster.PlacementService); why != "" {
		return why
	}
	if why := c.p.lacks(n, c.k.want); why != "" {
		return why
	}
	if count > 0 && !c.twice {
		return "with one of it already"
	}
	return c.p.full(n, c.k.want)
}

// next is the best node, or false when there is none.
func (c *chooser) next() (int, bool) {
	if len(c.groups) == 0 {
		return 0, false
	}
	return c.groups[0].nodes[0].node, true
}

// took says that the best node has been given one.
func (c *chooser) took() {
	g := c.groups[0]
	best := &g.nodes[0]
	g.staying, best.count, best.total = g.staying+1, best.count+1, best.total+1
	if c.why(&c.p.nodes[best.node], best.count) == "" {
		heap.Fix(&g.nodes, 0)
	} else if heap.Pop(&g.nodes); len(g.nodes) == 0 {
		heap.Pop(&c.groups)
		return
	}
	heap.Fix(&c.groups, 0)
}

// shortage counts why no node can take one more.
func (c *chooser) shortage() string {
	reasons, count := map[string]int{}, c.counts()
	for i := range c.p.nodes {
		reasons[c.why(&c.p.nodes[i], count[i])]++
	}
	delete(reasons, "")
	if len(c.p.nodes) == 0 {
		return "there is no node"
	}
	words := slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(reasons[b], reasons[a]), strings.Compare(a, b))
	})
	for i, w := range words {
		words[i] = fmt.Sprintf("%d %s", reasons[w], w)
	}
	return fmt.Sprintf("of %d nodes %s", len(c.p.nodes), strings.Join(words, ", "))
}

type candidates []candidate

func (h candidates) Len() int           { return len(h) }
func (h candidates) Less(i, k int) bool { return h[i].compare(h[k]) < 0 }
func (h candidates) Swap(i, k int)      { h[i], h[k] = h[k], h[i] }
func (h *candidates) Push(x any)        { *h = append(*h, x.(candidate)) }
func (h *candidates) Pop() any {
	x := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return x
}

type groups []*group

func (h groups) Len() int { return len(h) }
func (h groups) Less(i, k int) bool {
	return cmp.Or(cmp.Compare(h[i].staying, h[k].staying), h[i].nodes[0].compare(h[k].nodes[0])) < 0
}
func (h groups) Swap(i, k int) { h[i], h[k] = h[k], h[i] }
func (h *groups) Push(x any)   { *h = append(*h, x.(*group)) }
func (h *groups) Pop() any {
	x := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return x
}

// comesAfter tells whether something that a module comes after was never up,
// and says so in the report: it waits, or, for what nobody wants, is refused.
func (p *plan) comesAfter(m *module.Module, at line, what string) bool {
	for _, name := range m.After {
		k := p.kinds[name]
		if k == nil || k.want == nil && len(k.all) == 0 {
			p.refuse(at, "%s cannot be: it comes after %s, which nobody wants", what, name)
			return true
		}
		if !slices.ContainsFunc(k.all, func(r ref) bool {
			_, pl := p.at(r)
			return pl.State == muster.PlacementPlaced || pl.State == muster.PlacementMoving
		}) {
			p.wait(at, "%s waits: it comes after %s, of which none was up yet", what, name)
			return true
		}
	}
	return false
}
