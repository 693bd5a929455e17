//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"muster.internal/bench/plane"
)

// A cost is what the process has used and holds.
type cost struct {
	cpu       time.Duration
	resident  int64 // bytes now
	peak      int64 // bytes at most
	databases int64 // bytes of the store's files
}

func costOf(m *plane.Musterd) (c cost, err error) {
	proc := fmt.Sprintf("/proc/%d/", m.Pid())
	stat, err := os.ReadFile(proc + "stat")
	if err != nil {
		return c, err
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // proc(5): from field 3 on
	for _, f := range fields[11:13] {                               // user and system time, in ticks of 10 ms
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return c, err
		}
		c.cpu += time.Duration(n) * 10 * time.Millisecond
	}
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		return c, err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "VmRSS":
			c.resident = n << 10
		case "VmHWM":
			c.peak = n << 10
		}
	}
	if c.resident == 0 {
		return c, errors.New("musterd is not there any more")
	}
	files, err := filepath.Glob(filepath.Join(m.Dir, "*.db*"))
	for _, f := range files {
		if i, err := os.Stat(f); err == nil {
			c.databases += i.Size()
		}
	}
	return c, err
}
