package booter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"muster.internal"
	"muster.internal/dhcp"
	"muster.internal/durable"
)

const (
	feedWait    = 30 * time.Second // how long the control plane may hold a question
	feedTimeout = feedWait + 15*time.Second
	feedPause   = 200 * time.Millisecond // between questions at least, when the answers come at once
	cachePause  = 2 * time.Second        // between writes of the cache at least
	reportEvery = 10 * time.Second       // on average; store.BooterSilence is some times as long
	lastWord    = 3 * time.Second        // that it may take to say that we stop
	maxLoops    = 1000
	// catchUp is how long a start waits for the first answer; firmware asks for
	// much longer than that.
	catchUp = 3 * time.Second
)

// tellEvery is how many failures in a row there are to a line in the log.
const tellEvery = 20

// failures are the calls to the control plane that failed in a row.
type failures int

// another counts one more. Tell: the log should have it; rest: before the next
// attempt.
func (f *failures) another() (tell bool, rest time.Duration) {
	tell, rest = *f%tellEvery == 0, backoff(int(*f))
	*f++
	return tell, rest
}

// follow keeps the directory up to date with the control plane's change feed.
// It begins with everything: the cache may be older than the control plane's
// memory, or of another control plane. After the first answer, or the first
// failure, it calls asked.
func (b *Booter) follow(ctx context.Context, asked func()) error {
	var after int64
	var failed failures
	for ctx.Err() == nil {
		began := time.Now()
		call, cancel := context.WithTimeout(ctx, feedTimeout)
		f, err := b.cfg.Control.Feed(call, b.cfg.Name, after, feedWait)
		cancel()
		if err != nil {
			if ctx.Err() != nil {
				break
			}
			tell, rest := failed.another()
			if tell {
				b.log.Warn("the control plane does not answer; known machines are served from memory meanwhile", "error", err)
			}
			b.tally.add(countFeedErrors)
			asked()
			pause(ctx, rest)
			continue
		}
		if failed > 0 {
			b.log.Info("the control plane answers again", "attempts", int(failed))
			failed = 0
		}
		if f.Seq < after { // it was restored to an earlier state
			b.log.Warn("the control plane's feed went back; everything is read again", "from", after, "to", f.Seq)
			after = 0
			pause(ctx, feedPause)
			continue
		}
		if odd := b.dir.Apply(after, f); len(odd) > 0 {
			b.log.Warn("boot records with a MAC that cannot be read were left out", "macs", odd)
		}
		after = f.Seq
		asked()
		if time.Since(began) < feedPause {
			pause(ctx, feedPause)
		}
	}
	return nil
}

func (b *Booter) cacheFile() string { return filepath.Join(b.cfg.Dir, "directory.json") }

// keepCache writes the directory to disk when it changed, so that known
// machines boot while the control plane is away, even after a restart of ours.
func (b *Booter) keepCache(ctx context.Context) error {
	for {
		changed := b.dir.Changed()
		if b.dir.Live() {
			if err := saveCache(b.cacheFile(), b.dir); err != nil {
				b.log.Error("the booter's cache could not be written; after a restart only the control plane could say whom to serve", "error", err)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
		if !pause(ctx, cachePause) && b.dir.Live() {
			return saveCache(b.cacheFile(), b.dir)
		}
	}
}

func loadCache(file string, d *Directory) error {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var c cached
	if err := json.Unmarshal(raw, &c); err != nil {
		return err
	}
	d.restore(c.BooterFeed)
	for mac, a := range c.Given {
		if m, err := dhcp.ParseMAC(mac); err == nil {
			d.give(m, a)
		}
	}
	return nil
}

// cached is what the cache file holds.
type cached struct {
	muster.BooterFeed
	// Given are the addresses that the site's DHCP server was seen to give, by
	// MAC: machines that renew theirs with that server alone do not tell us again.
	Given map[string]netip.Addr `json:"given,omitempty"`
}

func saveCache(file string, d *Directory) error {
	raw, err := json.Marshal(cached{d.snapshot(), d.givenAddresses()})
	if err != nil {
		return err
	}
	return durable.Replace(file, raw, 0o600)
}

// loops lists the machines that go round now, as many as a report holds.
func (b *Booter) loops() []muster.LoopingMachine {
	var all []muster.LoopingMachine
	for m, l := range b.watch.All(b.now()) {
		all = append(all, muster.LoopingMachine{MAC: m.String(), Stage: l.Stage.String(), Count: l.Count, Until: l.Until})
	}
	slices.SortFunc(all, func(a, b muster.LoopingMachine) int { return cmp.Compare(a.MAC, b.MAC) })
	return all[:min(len(all), maxLoops)]
}

// reportStatus tells the control plane how the booter fares: when something
// was staged, and every ten seconds: what it does not say for long is taken for
// lost.
func (b *Booter) reportStatus(ctx context.Context) error {
	var failed failures
	for {
		call, cancel := context.WithTimeout(ctx, feedTimeout)
		err := b.cfg.Control.ReportBooter(call, b.status())
		cancel()
		next := reportEvery/2 + rand.N(reportEvery)
		if err != nil && ctx.Err() == nil {
			var tell bool
			if tell, next = failed.another(); tell {
				b.log.Warn("the booter's status could not be reported; it is tried again", "error", err)
			}
		} else {
			failed = 0
		}
		t := time.NewTimer(next)
		select {
		case <-t.C:
		case <-b.report:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
		t.Stop()
	}
}

// reportEnd tells the control plane, once nothing is served any more, that what
// this run held is over. If it cannot be told now, the next run's report or our
// silence tells.
func (b *Booter) reportEnd() {
	call, cancel := context.WithTimeout(context.Background(), lastWord)
	defer cancel()
	s := b.status()
	s.Stopped = true
	if err := b.cfg.Control.ReportBooter(call, s); err != nil {
		b.log.Warn("the control plane could not be told that the booter stops; it will notice", "error", err)
	}
}

// status is what the booter says of itself. How far it has followed the feed is
// read first: of machines that were announced later it says nothing.
func (b *Booter) status() muster.BooterStatus {
	s := muster.BooterStatus{Booter: b.cfg.Name, Address: b.cfg.Address.String(), Seq: b.dir.Seq(),
		Counters: b.Counters(), Proxy: b.cfg.Proxy, OtherServers: b.rivals.list(), Loops: b.loops()}
	s.Staged, s.Errors = b.stage.status()
	s.Run, s.Sessions = b.bus.Sessions()
	return s
}
