package main

import (
	"bytes"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"muster.internal/bus"
	"muster.internal/setup"
)

// What a setup may say to those who watch it: lines beyond these are left out,
// and counted. Nobody loses them: the answer carries the end of them all.
const (
	tellBurst  = 200
	tellRate   = 50  // lines a second
	tellQueue  = 256 // lines that wait for the network
	tellAtEnd  = 2 * time.Second
	maxOneLine = 4 << 10
)

// A teller reports a running setup, line by line, and never holds it up.
type teller struct {
	epoch   int64
	report  func(setup.Progress) error
	lines   chan string
	lost    atomic.Int64
	percent int
	done    chan struct{}
}

// tell starts to report the script of a message; nil when that is no setup.
func tell(m bus.Message, report func(setup.Progress) error) *teller {
	epoch, err := strconv.ParseInt(m.Env[setup.EnvEpoch], 10, 64)
	if m.Script != setup.Script || err != nil || report == nil {
		return nil
	}
	t := &teller{epoch: epoch, report: report, lines: make(chan string, tellQueue), done: make(chan struct{})}
	go t.run()
	return t
}

func (t *teller) run() {
	defer close(t.done)
	budget, last := float64(tellBurst), time.Now()
	for line := range t.lines {
		now := time.Now()
		budget, last = min(tellBurst, budget+now.Sub(last).Seconds()*tellRate), now
		p, ok := setup.ParseLine(t.epoch, t.percent, line)
		if !ok {
			continue
		}
		if budget < 1 && p.Step == "" {
			t.lost.Add(1)
			continue
		}
		budget--
		if n := t.lost.Swap(0); n > 0 {
			t.report(setup.Progress{Epoch: t.epoch, Percent: t.percent, Text: fmt.Sprintf("(%d lines left out)", n)})
		}
		t.percent = max(t.percent, p.Percent)
		t.report(p)
	}
}

// end lets what waits be reported, for a moment: before the answer, after which
// nobody listens.
func (t *teller) end() {
	close(t.lines)
	select {
	case <-t.done:
	case <-time.After(tellAtEnd):
	}
}

// writer takes one of the script's streams.
func (t *teller) writer() *told { return &told{t: t} }

type told struct {
	t    *teller
	part []byte
}

func (w *told) Write(b []byte) (int, error) {
	w.part = append(w.part, b...)
	for {
		line, rest, whole := bytes.Cut(w.part, []byte("\n"))
		if !whole {
			if len(w.part) > maxOneLine {
				w.part = nil
				w.t.lost.Add(1)
			}
			return len(b), nil
		}
		select {
		case w.t.lines <- string(line):
		default:
			w.t.lost.Add(1)
		}
		w.part = append([]byte(nil), rest...)
	}
}
