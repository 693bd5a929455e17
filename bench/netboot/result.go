//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"muster.internal/bench/measure"
)

// A comparison is one kind of work, done by muster-booter and by its peers.
type comparison struct {
	Work    string             `json:"work"`
	Unit    string             `json:"unit"` // of Value
	Results map[string]*result `json:"results"`
	Goals   []goal             `json:"goals"`
	order   []string
}

// A result is one server's rounds.
type result struct {
	Values []float64 `json:"values"` // CPU per unit of work
	Rates  []float64 `json:"rates"`  // units of work per second
	Peak   int64     `json:"peak_rss_bytes"`
	Failed int       `json:"failed"` // units of work that were not done
	Lost   int       `json:"lost_rounds,omitempty"`
	Slow   []float64 `json:"slowest_to_median,omitempty"`
	P50    []float64 `json:"p50_us,omitempty"` // answer time, one at a time
}

// A goal bounds a ratio of two servers' medians.
type goal struct {
	What  string  `json:"what"`
	Ratio float64 `json:"ratio"`
	Bound float64 `json:"bound"`
	Least bool    `json:"at_least"` // the bound is a lower one
}

func (g goal) met() bool {
	if g.Least {
		return g.Ratio >= g.Bound
	}
	return g.Ratio <= g.Bound
}

func newComparison(work, unit string) *comparison {
	return &comparison{Work: work, Unit: unit, Results: map[string]*result{}}
}

// of is the result of a server, made when it is first asked for.
func (c *comparison) of(server string) *result {
	r := c.Results[server]
	if r == nil {
		r = &result{}
		c.Results[server] = r
		c.order = append(c.order, server)
	}
	return r
}

// atMost compares CPU with a peer's, if the peer was there.
func (c *comparison) atMost(bound float64, server, peer string) {
	a, b := c.Results[server], c.Results[peer]
	if a != nil && b != nil && len(a.Values) > 0 && len(b.Values) > 0 {
		c.Goals = append(c.Goals, goal{"CPU of " + server + " / " + peer, measure.Median(a.Values) / measure.Median(b.Values), bound, false})
	}
}

// faster compares rates with a peer's.
func (c *comparison) faster(bound float64, server, peer string) {
	a, b := c.Results[server], c.Results[peer]
	if a != nil && b != nil && len(a.Rates) > 0 && len(b.Rates) > 0 {
		c.Goals = append(c.Goals, goal{"rate of " + server + " / " + peer, measure.Median(a.Rates) / measure.Median(b.Rates), bound, true})
	}
}

func (c *comparison) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s\n", c.Work)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "  server\t%s\tper second\tpeak MB\tfailed\n", c.Unit)
	for _, name := range c.order {
		r := c.Results[name]
		fmt.Fprintf(t, "  %s\t%s\t%s\t%.0f\t%d", name, spread(r.Values), spread(r.Rates), float64(r.Peak)/1e6, r.Failed)
		if r.Lost > 0 {
			fmt.Fprintf(t, "\t%d rounds lost", r.Lost)
		}
		if len(r.P50) > 0 {
			fmt.Fprintf(t, "\tone at a time: half within %s us", spread(r.P50))
		}
		if len(r.Slow) > 0 {
			fmt.Fprintf(t, "\tslowest connection / median %s", spread(r.Slow))
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	for _, g := range c.Goals {
		relation, verdict := "at most", "met"
		if g.Least {
			relation = "at least"
		}
		if !g.met() {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "  %s: %.2f (goal: %s %.2f) %s\n", g.What, g.Ratio, relation, g.Bound, verdict)
	}
}

func spread(v []float64) string {
	if len(v) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3g [%.3g-%.3g]", measure.Median(v), slices.Min(v), slices.Max(v))
}
