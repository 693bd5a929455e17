package booter

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"muster.internal"
)

// installerOptions say what an installer works with.
type installerOptions struct {
	Journal  string // file
	Machines *Directory
	Bus      *Bus
	Control  muster.ForBooter // with the booter key
	Log      *slog.Logger
	// Seen lists the MACs from which a machine asked to boot, in this boot.
	Seen func(serverUUID string) []string
	// Now is the clock of deadlines; nil: time.Now.
	Now func() time.Time

	disk disk // nil: the real one
}

// An installer carries approved setups out: it takes the bundle, sends the
// script once, and reports how it ended. What to do next is decided by decide;
// the installer does it, and writes each step down first.
type installer struct {
	o       installerOptions
	journal *journal
	counts  *counters // the bus's
	wakeup  chan struct{}
	work    sync.WaitGroup

	mu      sync.Mutex
	busy    map[string]bool               // machines that something is being done about
	bundles map[string]muster.TakenBundle // taken and not yet sent
	running map[string]sentRun            // scripts that were sent and not answered, by machine
	tries   map[string]int                // of asking for a bundle
	awaited map[string]awaited            // answers, by machine

	progress *progresses
}

// awaited is an answer that may come.
type awaited struct {
	answer <-chan busReply
	forget func()
	over   chan struct{} // closed when nobody wants it any more
}

// newInstaller opens the journal of the run before. It must be called before
// the bus is served: a machine that was sent a script by that run may answer
// with its first words.
func newInstaller(o installerOptions) (*installer, error) {
	if o.disk == nil {
		o.disk = osDisk{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Seen == nil {
		o.Seen = func(string) []string { return nil }
	}
	j, err := openJournal(o.Journal, o.disk)
	if err != nil {
		return nil, err
	}
	i := &installer{o: o, journal: j, counts: o.Bus.counts, wakeup: make(chan struct{}, 1), busy: map[string]bool{},
		bundles: map[string]muster.TakenBundle{}, running: map[string]sentRun{}, tries: map[string]int{}, awaited: map[string]awaited{}, progress: newProgresses()}
	for _, e := range j.all() {
		o.Log.Info("an install of the run before", "machine", e.ServerUUID, "epoch", e.Epoch, "step", string(e.Step))
		if e.Step == stepSent {
			i.expect(e)
		}
	}
	return i, nil
}

// A sentRun is a script on its way on a machine. After a restart of ours there is
// none to know of; the machine itself refuses a second one beside the first.
type sentRun struct {
	boot string
	end  time.Time // it counts for nothing after this
}

// bootOf tells one boot of a machine from another: by the key that was made in
// it, which outlives a connection, or else by the connection.
func bootOf(session, publicKey string) string { return cmp.Or(publicKey, session) }

// finishedMAC tells that an install of the machine that boots from a MAC ended
// well and the control plane may not have said so yet: then its boot record
// still says enrolling, and is wrong.
func (i *installer) finishedMAC(mac string) bool {
	return i.journal.any(func(e *entry) bool { return e.finished() && slices.Contains(e.Outcome.MACs, mac) })
}

// Run works until ctx ends.
func (i *installer) Run(ctx context.Context) error {
	defer i.journal.close()
	defer i.work.Wait()
	i.work.Go(func() { i.forward(ctx) })
	for _, e := range i.journal.all() {
		if e.Step == stepSent {
			i.awaitAnswer(ctx, e)
		}
	}
	for {
		machines, sessions := i.o.Machines.Changed(), i.o.Bus.Changed()
		next := i.look(ctx)
		t := time.NewTimer(next)
		select {
		case <-machines:
		case <-sessions:
		case <-i.wakeup:
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
		t.Stop()
	}
}

// look decides about every machine and starts what is to be done. It returns
// when to look again if nothing happens.
func (i *installer) look(ctx context.Context) time.Duration {
	next := time.Hour
	machines := map[string]bool{}
	for _, in := range i.o.Machines.Installs() {
		machines[in.ServerUUID] = true
	}
	for _, e := range i.journal.all() {
		machines[e.ServerUUID] = true
		if e.Step == stepSent {
			next = min(next, max(time.Second, e.GiveUp.Sub(i.o.Now())+time.Second))
		}
	}
	for uuid := range machines {
		if a, _ := decide(i.situation(uuid)); a != actWait {
			i.begin(ctx, uuid)
		}
	}
	return next
}

// situation gathers what there is to know about one machine.
func (i *installer) situation(uuid string) situation {
	s := situation{now: i.o.Now(), seq: i.o.Machines.Seq()}
	live := i.o.Machines.Live()
	if live {
		for _, in := range i.o.Machines.Installs() {
			if in.ServerUUID == uuid {
				s.install = &in
			}
		}
	}
	session := ""
	if e, ok := i.journal.get(uuid); ok {
		s.entry, session = &e, e.Session
		s.fresh = live && s.seq >= e.FeedSeq
	} else if s.install != nil {
		session = s.install.Session
	}
	holder, _, key, here := i.o.Bus.Holder(session)
	s.alive = here && muster.SameUUID(holder, uuid)
	i.mu.Lock()
	defer i.mu.Unlock()
	b, ok := i.bundles[uuid]
	s.holding = ok && s.entry != nil && b.Epoch == s.entry.Epoch
	r := i.running[uuid]
	s.running = here && r.boot == bootOf(session, key) && s.now.Before(r.end)
	return s
}

// begin does one thing about a machine, one at a time. What it is is decided
// once nothing else can change it.
func (i *installer) begin(ctx context.Context, uuid string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.busy[uuid] {
		return
	}
	i.busy[uuid] = true
	i.work.Go(func() {
		err := i.do(ctx, uuid, i.situation(uuid))
		if err != nil && !errors.Is(err, errStale) && ctx.Err() == nil { // without the journal nothing may be done
			i.counts.add("install_journal_errors")
			i.o.Log.Error("an install cannot go on; trying again", "machine", uuid, "error", err)
			pause(ctx, 10*time.Second)
		}
		i.mu.Lock()
		delete(i.busy, uuid)
		i.mu.Unlock()
		poke(i.wakeup)
	})
}

func (i *installer) do(ctx context.Context, uuid string, s situation) error {
	var e entry
	if s.entry != nil {
		e = *s.entry
	} else if in := s.install; in != nil {
		e = entry{ServerUUID: uuid, Epoch: in.Epoch, Session: in.Session, FeedSeq: s.seq, GiveUp: in.Deadline}
		_, e.MAC, e.PublicKey, _ = i.o.Bus.Holder(in.Session)
	}
	switch a, why := decide(s); a {
	case actTake:
		return i.take(ctx, e)
	case actSend:
		return i.send(ctx, e)
	case actFail:
		return i.ended(e, muster.SetupOutcome{Epoch: e.Epoch, Reason: why}, false)
	case actReport:
		return i.report(ctx, e)
	case actForget:
		i.o.Log.Info("an install is over", "machine", uuid, "epoch", e.Epoch, "step", string(e.Step))
		i.leave(uuid)
		return i.write(&e, stepGone)
	}
	return nil
}

// write makes a step durable.
func (i *installer) write(e *entry, s step) error {
	from := e.Step
	e.Step, e.At = s, i.o.Now().UTC()
	if err := i.journal.put(from, *e); err != nil {
		e.Step = from
		return err
	}
	i.counts.add("install_" + string(s))
	i.o.Log.Info("install", "machine", e.ServerUUID, "epoch", e.Epoch, "step", string(s), "session", e.Session)
	return nil
}

func (i *installer) take(ctx context.Context, e entry) error {
	if e.Step != stepTaking {
		if err := i.write(&e, stepTaking); err != nil {
			return err
		}
	}
	b, err := i.o.Control.TakeBundle(ctx, e.ServerUUID, muster.TakeRequest{Epoch: e.Epoch, Session: e.Session})
	if err == nil && (b.Epoch != e.Epoch || b.Script == "") {
		err = muster.Problemf(muster.CodeConflict, "the bundle is of setup %d", b.Epoch)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		if final(err) {
			return i.ended(e, muster.SetupOutcome{Epoch: e.Epoch, Reason: "the control plane does not hand out the bundle: " + err.Error()}, false)
		}
		i.o.Log.Warn("the bundle of an approved setup cannot be fetched yet", "machine", e.ServerUUID, "epoch", e.Epoch, "error", err)
		i.mu.Lock()
		i.tries[e.ServerUUID]++
		n := i.tries[e.ServerUUID]
		i.mu.Unlock()
		pause(ctx, backoff(n-1))
		return nil
	}
	i.mu.Lock()
	delete(i.tries, e.ServerUUID)
	i.mu.Unlock()
	sum := sha256.Sum256([]byte(b.Script))
	e.Script = "sha256:" + hex.EncodeToString(sum[:])
	if err := i.write(&e, stepTaken); err != nil {
		return err // it will be a failure: what was not written down does not exist
	}
	i.mu.Lock()
	i.bundles[e.ServerUUID] = b
	i.mu.Unlock()
	return nil
}

// send is the one place from which a script of an install leaves.
func (i *installer) send(ctx context.Context, e entry) error {
	i.mu.Lock()
	b := i.bundles[e.ServerUUID]
	delete(i.bundles, e.ServerUUID)
	i.mu.Unlock()
	e.Request = nonce()
	if end := i.o.Now().Add(muster.SetupDeadline); end.After(e.GiveUp) {
		e.GiveUp = end // by our own clock, should it be ahead of the control plane's
	}
	if err := i.write(&e, stepSent); err != nil {
		return err
	}
	i.mu.Lock()
	i.running[e.ServerUUID] = sentRun{bootOf(e.Session, e.PublicKey), e.GiveUp}
	i.mu.Unlock()
	i.expect(e)
	i.awaitAnswer(ctx, e)
	if err := i.o.Bus.Send(e.Session, e.Request, b.Script, b.Env); err != nil {
		i.drop(e.ServerUUID)
		i.mu.Lock()
		delete(i.running, e.ServerUUID)
		i.mu.Unlock()
		return i.ended(e, muster.SetupOutcome{Epoch: e.Epoch, Reason: "the script could not be sent, nothing was run on the machine: " + err.Error()}, false)
	}
	i.sentStep(e)
	return nil
}
