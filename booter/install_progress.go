package booter

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/setup"
)

// Of what is told of installs on their way.
const (
	progressEvery = 500 * time.Millisecond // a batch
	progressHeld  = muster.MaxProgressSteps
	progressGrace = 30 * time.Second // after which a machine counts as one that tells nothing
	flushAtEnd    = 2 * time.Second
)

// progresses gathers what machines say of their setups, until the control plane
// has heard it. It holds a bounded number of lines for each machine; what is too
// much is left out in the middle and counted: a log that ends is worth more
// than one that is whole.
type progresses struct {
	mu      sync.Mutex
	waiting map[string]*progressBatch // by machine
	spoke   map[string]int64          // machine → epoch of which it has told something itself
	more    chan struct{}
	sending sync.Mutex // one batch at a time, so that lines stay in order
}

type progressBatch struct{ muster.SetupProgress }

func newProgresses() *progresses {
	return &progresses{waiting: map[string]*progressBatch{}, spoke: map[string]int64{}, more: make(chan struct{}, 1)}
}

func (ps *progresses) add(uuid string, epoch int64, session string, steps ...muster.SetupStep) {
	ps.mu.Lock()
	b := ps.waiting[uuid]
	if b == nil || b.Epoch < epoch {
		b = &progressBatch{SetupProgress: muster.SetupProgress{Epoch: epoch, Session: session}}
		ps.waiting[uuid] = b
	}
	if b.Epoch == epoch {
		b.Steps = append(b.Steps, steps...)
		b.trim()
	}
	ps.mu.Unlock()
	poke(ps.more)
}

// trim leaves out the oldest lines that are no steps, then the oldest at all.
func (b *progressBatch) trim() {
	for i := 0; len(b.Steps) > progressHeld; {
		if i < len(b.Steps)/2 && b.Steps[i].Step != "" {
			i++
			continue
		}
		if i >= len(b.Steps)/2 {
			i = 0
		}
		b.Steps = append(b.Steps[:i], b.Steps[i+1:]...)
		b.Dropped++
	}
}

// take returns what waits for one machine.
func (ps *progresses) take(uuid string) *progressBatch {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	b := ps.waiting[uuid]
	delete(ps.waiting, uuid)
	return b
}

// giveBack puts what could not be told before what came since.
func (ps *progresses) giveBack(uuid string, b *progressBatch) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	switch since := ps.waiting[uuid]; {
	case since == nil:
		ps.waiting[uuid] = b
	case since.Epoch == b.Epoch:
		since.Steps = append(b.Steps, since.Steps...)
		since.Dropped += b.Dropped
		since.trim()
	}
	poke(ps.more)
}

func (ps *progresses) machines() []string {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var out []string
	for uuid := range ps.waiting {
		out = append(out, uuid)
	}
	return out
}

// heard remembers that a machine tells of its setup itself; asks when false.
func (ps *progresses) heard(uuid string, epoch int64, itself bool) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if itself {
		ps.spoke[uuid] = epoch
	}
	return ps.spoke[uuid] == epoch
}

func (ps *progresses) forget(uuid string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.spoke, uuid)
}

// progressed takes in what the machine of e says of its setup. The bus has
// checked the connection; the epoch is checked here.
func (i *installer) progressed(e entry, p setup.Progress) {
	if p.Epoch != e.Epoch {
		i.counts.add("bus_refused_progress")
		return
	}
	i.progress.heard(e.ServerUUID, e.Epoch, true)
	i.progress.add(e.ServerUUID, e.Epoch, e.Session, muster.SetupStep{At: i.o.Now().UTC(), Step: p.Step, Percent: p.Percent, Text: oneLine(p.Text)})
}

// oneLine is a machine's words as one line without control characters.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
	if len(s) > muster.MaxProgressText {
		s = strings.ToValidUTF8(s[:muster.MaxProgressText], "")
	}
	return s
}

// sentStep and silentStep are what we know ourselves: it is all that there is to
// see of a machine whose agent reports nothing, as a stock agent does.
func (i *installer) sentStep(e entry) {
	i.progress.add(e.ServerUUID, e.Epoch, e.Session, muster.SetupStep{At: i.o.Now().UTC(), Step: "sent", Text: "the script was sent to " + e.MAC})
}

func (i *installer) silentStep(e entry, since time.Time) {
	if !i.progress.heard(e.ServerUUID, e.Epoch, false) {
		i.progress.add(e.ServerUUID, e.Epoch, e.Session, muster.SetupStep{At: i.o.Now().UTC(), Step: "running",
			Text: fmt.Sprintf("the script runs since %s; this machine's agent tells nothing of it before its end", since.UTC().Format(time.TimeOnly+" MST"))})
	}
}

// forward tells the control plane, in batches, until ctx ends.
func (i *installer) forward(ctx context.Context) {
	for n := 0; ; {
		select {
		case <-i.progress.more:
		case <-ctx.Done():
			return
		}
		wait := progressEvery
		for _, uuid := range i.progress.machines() {
			if err := i.flush(ctx, uuid); err != nil {
				wait = backoff(n)
			}
		}
		if n++; wait == progressEvery {
			n = 0
		}
		if !pause(ctx, wait) {
			return
		}
	}
}

// flush tells what waits of one machine. What the control plane refuses is
// dropped: its log of that setup is closed.
func (i *installer) flush(ctx context.Context, uuid string) error {
	i.progress.sending.Lock()
	defer i.progress.sending.Unlock()
	b := i.progress.take(uuid)
	if b == nil {
		return nil
	}
	err := i.o.Control.SetupProgress(ctx, uuid, b.SetupProgress)
	switch {
	case err == nil:
		i.counts.add("install_progress_reports")
	case passing(err):
		i.progress.giveBack(uuid, b)
		return err
	default:
		i.counts.add("install_progress_refused")
	}
	return nil
}

// lastWords tells what waits before the end is told, after which the log takes
// nothing; it does not hold the end up for long.
func (i *installer) lastWords(ctx context.Context, uuid string) {
	ctx, cancel := context.WithTimeout(ctx, flushAtEnd)
	defer cancel()
	if i.flush(ctx, uuid) != nil {
		i.progress.take(uuid)
	}
}
