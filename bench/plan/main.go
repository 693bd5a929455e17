//go:build linux

// Plan measures the planner alone: replicas spread over fifty racks are placed
// on an empty fleet, planned again when nothing has changed, and planned again
// when one node was expunged. Beside it runs the least that a program can do, a
// bare scan of all nodes for each replica. What counts is the processor time of
// the whole process, garbage collection included.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"syscall"
	"text/tabwriter"
	"time"

	"muster.internal"
	"muster.internal/bench/measure"
	"muster.internal/planner"
)

func main() {
	rounds := flag.Int("rounds", 5, "rounds of each problem")
	flag.Parse()
	if err := run(*rounds); err != nil {
		fmt.Fprintln(os.Stderr, "plan:", err)
		os.Exit(1)
	}
}

// A result is one problem's medians.
type result struct {
	nodes, count                int
	first, none, expunged, bare float64 // seconds of processor time
	placed                      int
}

func run(rounds int) error {
	if rounds < 1 {
		return errors.New("there must be a round")
	}
	var all []result
	for _, size := range []int{1000, 5000, 10_000, 20_000, 50_000} {
		r, err := compare(size, size, rounds)
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Printf("replicas of one module, spread over 50 racks; medians of %d rounds, processor time; load at the end %s", rounds, load)
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "nodes\treplicas\tplaced ms\tnothing changed ms\tone node expunged ms\tbare scan ms\t")
	for _, r := range all {
		fmt.Fprintf(t, "%d\t%d\t%.1f\t%.2f\t%.1f\t%.1f\t\n", r.nodes, r.count, r.first*1e3, r.none*1e3, r.expunged*1e3, r.bare*1e3)
	}
	t.Flush()
	return judge(all)
}

func compare(nodes, count, rounds int) (result, error) {
	r := result{nodes: nodes, count: count}
	var first, none, expunged, bare []float64
	for range rounds {
		in := fleet(nodes, count)
		var b, same, without muster.Blueprint
		var report muster.PlanReport
		first = append(first, cpu(func() { b, report = planner.Plan(in) }))
		if got := placed(&b); got != count {
			return r, fmt.Errorf("%d of %d were placed", got, count)
		}
		if again, _ := planner.Plan(in); !alike(&b, &again) {
			return r, errors.New("the same input made other bytes")
		}
		in = carriedOut(in, &b)
		up, _ := planner.Plan(in)
		in.Parent = &up
		none = append(none, cpu(func() { same, report = planner.Plan(in) }))
		if report.Blueprint != "" || len(report.Waits) > 0 || same.ID != up.ID {
			return r, fmt.Errorf("nothing had changed, and it says %d changes and %d waits", len(report.Done), len(report.Waits))
		}
		in.Nodes[nodes/2].Policy = muster.PolicyExpunged
		expunged = append(expunged, cpu(func() { without, _ = planner.Plan(in) }))
		if got := placed(&without); got != count {
			return r, fmt.Errorf("%d of %d are placed without the expunged node", got, count)
		}
		bare = append(bare, cpu(func() { r.placed = scan(nodes, count) }))
	}
	r.first, r.none, r.expunged, r.bare = measure.Median(first), measure.Median(none), measure.Median(expunged), measure.Median(bare)
	return r, nil
}

// cpu is the processor time that something takes in this process. What is quick
// is done many times, so that its share of collecting garbage is in it; that of
// what came before is not.
func cpu(do func()) float64 {
	collect()
	before := used()
	for times := 1; ; times++ {
		do()
		if took := used() - before; took > 100*time.Millisecond {
			return took.Seconds() / float64(times)
		}
	}
}

func used() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func alike(a, b *muster.Blueprint) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

func placed(b *muster.Blueprint) (n int) {
	for i := range b.Nodes {
		for k := range b.Nodes[i].Placements {
			if b.Nodes[i].Placements[k].Declared() {
				n++
			}
		}
	}
	return n
}
