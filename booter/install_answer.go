package booter

import (
	"context"
	"errors"
	"slices"
	"time"

	"muster.internal"
	"muster.internal/setup"
)

// expect tells the bus that an answer to e is wanted.
func (i *installer) expect(e entry) {
	answer, forget := i.o.Bus.Expect(e.Request, e.ServerUUID, e.MAC, e.Session, e.PublicKey)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.awaited[e.ServerUUID] = awaited{answer, forget, make(chan struct{})}
	i.o.Bus.Follow(e.Request, func(p setup.Progress) { i.progressed(e, p) })
}

// awaitAnswer waits for the machine's answer for as long as anybody wants it.
// An install that was given up is waited for too: until its script has ended,
// the machine must not be sent another.
func (i *installer) awaitAnswer(ctx context.Context, e entry) {
	i.mu.Lock()
	a := i.awaited[e.ServerUUID]
	i.mu.Unlock()
	i.work.Go(func() {
		late := time.NewTimer(e.GiveUp.Sub(i.o.Now()) + time.Hour)
		defer late.Stop()
		defer a.forget()
		defer i.progress.forget(e.ServerUUID)
		silent := time.AfterFunc(progressGrace, func() { i.silentStep(e, e.At) })
		defer silent.Stop()
		select {
		case <-ctx.Done():
		case <-a.over:
		case <-late.C:
		case r := <-a.answer:
			silent.Stop()
			for n := 0; ; n++ {
				err := i.answered(e, r)
				if err == nil || errors.Is(err, errStale) || ctx.Err() != nil {
					return
				}
				i.o.Log.Error("the outcome of an install cannot be written down yet", "machine", e.ServerUUID, "error", err)
				pause(ctx, backoff(n))
			}
		}
	})
}

func (i *installer) answered(e entry, r busReply) error {
	i.mu.Lock()
	if i.running[e.ServerUUID].boot == bootOf(e.Session, e.PublicKey) {
		delete(i.running, e.ServerUUID)
	}
	i.mu.Unlock()
	o, success := outcome(e.Epoch, r)
	return i.ended(e, o, success)
}

// ended writes an outcome down; errStale if the install has one already.
func (i *installer) ended(e entry, o muster.SetupOutcome, success bool) error {
	o.Session = e.Session
	macs := append(slices.Clone(i.o.Seen(e.ServerUUID)), e.MAC)
	slices.Sort(macs)
	o.MACs = slices.DeleteFunc(slices.Compact(macs), func(m string) bool { return m == "" })
	e.Outcome, e.Success = &o, success
	if err := i.write(&e, stepOutcome); err != nil {
		return err
	}
	i.drop(e.ServerUUID)
	i.o.Log.Info("an install ended", "machine", e.ServerUUID, "epoch", e.Epoch, "success", success, "reason", o.Reason)
	poke(i.wakeup)
	return nil
}

// drop forgets what this process holds about a machine's install.
func (i *installer) drop(uuid string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if a, ok := i.awaited[uuid]; ok {
		a.forget()
		close(a.over)
	}
	delete(i.awaited, uuid)
	delete(i.bundles, uuid)
	delete(i.tries, uuid)
}

// leave is drop for an install that was given up: the answer to its script is
// still listened for.
func (i *installer) leave(uuid string) {
	i.mu.Lock()
	if _, sent := i.running[uuid]; sent {
		delete(i.awaited, uuid)
	}
	i.mu.Unlock()
	i.drop(uuid)
}

// report tells the control plane until it has heard, or knows better.
func (i *installer) report(ctx context.Context, e entry) error {
	i.lastWords(ctx, e.ServerUUID)
	for n := 0; ; n++ {
		call := i.o.Control.SetupFailed
		if e.Success {
			call = i.o.Control.SetupComplete
		}
		err := call(ctx, e.ServerUUID, *e.Outcome)
		if ctx.Err() != nil && err != nil {
			return nil
		}
		if err == nil || final(err) {
			if err != nil {
				i.o.Log.Warn("the control plane does not want the outcome of an install", "machine", e.ServerUUID, "epoch", e.Epoch, "success", e.Success, "error", err)
				e.Success = false // its record is right, then
			}
			return i.write(&e, stepReported)
		}
		i.o.Log.Warn("the outcome of an install cannot be reported yet", "machine", e.ServerUUID, "epoch", e.Epoch, "error", err)
		if !pause(ctx, backoff(n)) {
			return nil
		}
	}
}

// final tells that the control plane has answered about this very install:
// asking again would not change it.
func final(err error) bool {
	var p *muster.Problem
	return errors.As(err, &p) && (p.Code == muster.CodeNotFound || p.Code == muster.CodeConflict || p.Code == muster.CodeInvalid)
}
