//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"muster.internal/bench/measure"
)

func timed(do func() error) (time.Duration, error) {
	start := time.Now()
	err := do()
	return time.Since(start), err
}

// print shows CPU and wall time of each phase: the median, the least and the
// most.
func print(out io.Writer, tools []*tool) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "tool")
	for _, p := range phaseNames {
		fmt.Fprintf(t, "\t%s: CPU s\twall s", p)
	}
	fmt.Fprintln(t, "\tpeak MB")
	for _, tool := range tools {
		fmt.Fprint(t, tool.name)
		for p := range phaseNames {
			fmt.Fprintf(t, "\t%s\t%s", spread(tool.cpu[p]), spread(tool.wall[p]))
		}
		fmt.Fprintf(t, "\t%.1f\n", float64(tool.peak)/1e6)
	}
	t.Flush()
}

func spread(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f [%.3f–%.3f]", measure.Median(values), slices.Min(values), slices.Max(values))
}

// A verdict says of each goal whether it was met, and counts those that were not.
type verdict struct {
	out    io.Writer
	missed int
}

func (v *verdict) say(met bool, format string, args ...any) {
	word := "met   "
	if !met {
		word, v.missed = "missed", v.missed+1
	}
	fmt.Fprintf(v.out, "%s  %s\n", word, fmt.Sprintf(format, args...))
}

func (v *verdict) err() error {
	if v.missed > 0 {
		return errors.New("a goal was missed")
	}
	return nil
}

// judge compares the host with the tools that were there.
func judge(v *verdict, tools []*tool, program int64) {
	of := func(name string) *tool {
		i := slices.IndexFunc(tools, func(t *tool) bool { return t.name == name })
		if i < 0 {
			return nil
		}
		return tools[i]
	}
	host := of("muster-host")
	for _, g := range goals {
		peer := of(g.tool)
		if peer == nil || len(peer.cpu[g.phase]) == 0 {
			continue
		}
		ratio := measure.Median(host.cpu[g.phase]) / measure.Median(peer.cpu[g.phase])
		v.say(ratio <= g.most, "%s: CPU %.3f of %s's, at most %g", phaseNames[g.phase], ratio, g.tool, g.most)
	}
	v.say(host.peak <= mostPeak, "peak memory %.1f MB, at most %.0f", float64(host.peak)/1e6, mostPeak/1e6)
	v.say(program <= mostProgram, "program %.1f MiB, at most %d", float64(program)/(1<<20), mostProgram>>20)
}
