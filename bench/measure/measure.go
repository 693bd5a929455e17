//go:build linux

// Package measure is what the benchmarks have in common: what a process has
// used, and the middle of several rounds.
//
// It must never judge: each benchmark knows its own bounds.
package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Median is the middle one, or between the middle two; 0 of none.
func Median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	if len(v) == 0 {
		return 0
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// CPU is what the threads that a process has now have used (proc(5), schedstat,
// in nanoseconds). A thread that ended takes its share with it: Go keeps its own.
func CPU(pid int) (used time.Duration) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, t := range tasks {
		text, _ := os.ReadFile(t)
		if fields := strings.Fields(string(text)); len(fields) > 0 {
			ns, _ := strconv.ParseInt(fields[0], 10, 64)
			used += time.Duration(ns)
		}
	}
	return used
}
