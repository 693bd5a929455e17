package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"muster.internal"
	"muster.internal/client"
	"muster.internal/credential"
	"muster.internal/host"
	"muster.internal/linux"
	"muster.internal/resource"
	"muster.internal/setup"
	"muster.internal/state"
)

// describeEvery is how often a node looks whether it is still what it said.
const describeEvery = 10 * time.Minute

// node is the life of a node with a store: it is told what to be, over the
// link. It ends when it is told to, or with one of the errors of host.Linked.
func node(ctx context.Context, e *env, dir string, c setup.Credential, supervised bool) error {
	end, err := state.Live(dir)
	switch {
	case errors.Is(err, state.ErrLived):
		return exit{exitLived, err}
	case err != nil:
		e.say("whether another muster-host runs on this machine cannot be told: %v", err)
	default:
		defer end()
	}
	key, err := client.New(c.URL, c.APIKey, client.Trust{CA: []byte(c.CA)})
	if err != nil {
		return err
	}
	boot, err := bootID()
	if err != nil {
		return err
	}
	l := &link{ctx: ctx, e: e, dir: dir, credential: c, key: key, boot: boot, restart: e.linux().Restart}
	if supervised {
		if l.program, err = ownProgram(); err != nil {
			return err
		}
	}
	if l.identity, err = ownIdentity(dir); err != nil {
		return err
	}
	l.watch = newWatch(boot, e.linux().DisksThere)
	defer l.watch.run(ctx)()
	defer func() { l.hangUp(); l.key.Close() }()
	if next, err := credential.Load(nextFile(dir)); err == nil {
		l.next = &next
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return host.Linked(l)
}

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// A link is a node's store, hands and line, for package host.
type link struct {
	ctx        context.Context
	e          *env
	dir        string
	credential setup.Credential
	next       *setup.Credential // was delivered, and was not put in its place yet
	identity   credential.Identity
	key        *client.Client // speaks with the agent key
	line       *client.Client // speaks with the certificate; nil before there is one
	boot       string
	// Where somebody starts this program again when it ends: its file as it was
	// at first.
	program fs.FileInfo

	owned       digest // of what the ledger held last
	mirrored    digest // of what the control plane knows of it
	described   digest
	hardware    digest
	restart     func() error // of the machine
	describedAt time.Duration
	watch       *watch
	told        digest // of what the control plane knows of health
	late        bool   // the certificate could not be renewed in time
}

// A digest tells whether something is to be said again; zero: it was never said.
type digest [sha256.Size]byte

func digestOf(v any) digest {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain values
	}
	return sha256.Sum256(text)
}

func (l *link) Moment() host.Moment { return momentOf(l.boot) }

func momentOf(boot string) host.Moment {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // every Linux has it
	}
	return host.Moment{Wall: time.Now(), Boot: boot, Up: time.Duration(t.Nano())}
}

func (l *link) Node() string            { return l.identity.NodeID() }
func (l *link) Dice() float64           { return rand.Float64() }
func (l *link) Woken() (trigger string) { return l.watch.woken() }
func (l *link) Pause(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.watch.news:
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
	return nil
}

// Say tells a person; what fails because everything ends is no news.
func (l *link) Say(text string) {
	if l.ctx.Err() == nil {
		l.e.say("%s", text)
	}
}

// with works with the store, and leaves it to others afterwards.
func (l *link) with(do func(*store) error) error {
	s, err := openStore(l.dir)
	if err != nil {
		return err
	}
	err = do(s)
	return errors.Join(err, s.close())
}

func (l *link) Held() (h host.Held, err error) {
	err = l.with(func(s *store) (err error) {
		h, err = s.held()
		return err
	})
	if errors.Is(err, state.ErrDamaged) {
		l.e.say("what this machine was told is lost, and is asked for again: %v", err)
		return host.Held{}, nil
	}
	return h, err
}

func (l *link) Hold(h host.Held) error {
	return l.with(func(s *store) error { return s.dir.Save(heldRecord, h) })
}

// Lost takes an empty record for a lost one: a node that owns nothing learns
// that from its control plane, too. One that has given everything up need not.
func (l *link) Lost() (lost bool, err error) {
	err = l.with(func(s *store) error {
		h, err := s.held()
		lost = s.ledger.Lost != "" || len(s.ledger.All()) == 0 && (err != nil || !h.Retiring)
		return nil
	})
	return lost, err
}

func (l *link) Apply(d *resource.Declaration, trigger string) (r resource.Report, err error) {
	if d.Confirm != "" { // a connection from before proves nothing: a firewall that takes no new one leaves it be
		defer l.hangUp()
	}
	defer l.busy(muster.LinkBusyEvery, d.Generation)()
	defer debug.FreeOSMemory() // the next one is minutes away
	defer thrift(d)()
	err = l.with(func(s *store) (err error) {
		r, err = s.apply(l.e, host.Work{Declaration: d, Names: l.e.names(l.dir, d), Trigger: trigger, Version: muster.Build})
		l.owned = digestOf(s.ledger.All())
		return err
	})
	l.watch.applied(d)
	if news := r.News(); news != "" && err == nil {
		l.Say(news)
	}
	return r, err
}

// busy says now and then that this host is at work, until what it returns is
// called: a package manager takes its time, and nobody is away who only works.
func (l *link) busy(every time.Duration, holds int64) (done func()) {
	if l.line == nil || l.identity.Certificate == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(l.ctx)
	line, ended := l.line, make(chan struct{})
	go func() {
		defer close(ended)
		for pause(ctx, every) == nil {
			_, _ = line.LinkNext(ctx, l.poll(holds, true)) // it is only a sign of life
		}
	}()
	return func() { cancel(); <-ended }
}

// Updated and Proven are for who is started again when it ends.
func (l *link) Updated() bool {
	now, err := ownProgram()
	return l.program != nil && err == nil && !os.SameFile(now, l.program)
}

func (l *link) Proven() error {
	if l.program == nil {
		return nil
	}
	return keepProven(l.dir)
}

func (l *link) Reboot() error { return l.restart() }
func (l *link) Forget() error { return forgetIdentity(l.dir) }

// Recover asks for the mirror and takes back what is still so.
func (l *link) Recover() error {
	mirror, err := l.line.LinkOwned(l.ctx)
	if err != nil && !muster.IsCode(err, muster.CodeNotFound) {
		return err
	}
	return l.with(func(s *store) error {
		hands, err := linux.NewResources(s.dir.Originals())
		if err != nil {
			return err
		}
		kept := func(original string) bool { // and nowhere else than where this host keeps them
			_, err := os.Lstat(original)
			return err == nil && filepath.Dir(original) == s.dir.Originals()
		}
		taken, left, err := host.Recover(mirror, hands, s.ledger, kept)
		if err != nil {
			return err
		}
		if len(mirror) > 0 {
			l.e.say("the record of what this machine owns was lost; the control plane knew of %d resources, and %d are as they were left", len(mirror), taken)
		}
		for _, x := range left {
			l.e.say("%s is nobody's now: %s", x.Ref, x.Reason)
		}
		l.owned = digestOf(s.ledger.All())
		return s.ledger.Recovered()
	})
}

func (l *link) Mirror() error {
	if l.owned == l.mirrored && l.owned != (digest{}) {
		return nil
	}
	all := []resource.Owned{}
	if err := l.with(func(s *store) error {
		all = s.ledger.All()
		return nil
	}); err != nil {
		return err
	}
	if err := l.line.SetLinkOwned(l.ctx, all); err != nil {
		return err
	}
	l.owned = digestOf(all)
	l.mirrored = l.owned
	return nil
}

func (l *link) Describe() error {
	up := l.Moment().Up
	if l.describedAt != 0 && up-l.describedAt < describeEvery {
		return nil
	}
	profile, err := json.Marshal(l.e.machine.Profile())
	if err != nil {
		return err
	}
	p := muster.Profile{Profile: profile, Facts: l.e.nodeFacts(l.dir)}
	if d := digestOf(p); d != l.described {
		if err := (&line{l.ctx, l.e, l.key, l.credential.Epoch}).Refresh(); err != nil {
			return err
		}
		if err := l.line.LinkProfile(l.ctx, p); err != nil {
			return err
		}
		l.described = d
	}
	if err := l.describeHardware(); err != nil {
		return err
	}
	l.describedAt = up
	return nil
}

// Health says what the watch has seen, when that was not said.
func (l *link) Health() error {
	all, looked := l.watch.health()
	d := digestOf(all)
	if !looked || d == l.told {
		return nil
	}
	err := l.line.SetLinkHealth(l.ctx, all)
	if err == nil || muster.IsCode(err, muster.CodeNotFound) { // an older control plane cannot be told
		l.told, err = d, nil
	}
	return err
}

// describeHardware says what the machine is made of. That one cannot be read is
// no reason not to be linked, and a control plane that does not ask for it is none.
func (l *link) describeHardware() error {
	ours := map[string]bool{}
	if err := l.with(func(s *store) error {
		for _, o := range s.ledger.All() {
			if name, is := strings.CutPrefix(string(o.Ref), "container:"); is {
				ours[name] = true
			}
		}
		return nil
	}); err != nil {
		return err
	}
	h, err := l.e.linux().Hardware(func(name string) bool { return ours[name] })
	if err != nil {
		l.Say("what this machine is made of cannot be read: " + err.Error())
		return nil
	}
	d := digestOf(h)
	if d == l.hardware {
		return nil
	}
	if err := l.line.LinkHardware(l.ctx, h); err != nil && !muster.IsCode(err, muster.CodeNotFound) && !muster.IsCode(err, muster.CodeNotAllowed) {
		return err
	}
	l.hardware = d
	return nil
}

func (l *link) Report(r resource.Report) error { return l.line.LinkReport(l.ctx, r) }

// Next waits no longer when the machine itself has news.
func (l *link) Next(holds int64) (muster.LinkAnswer, error) {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	woken := false
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		select {
		case <-l.watch.news:
			woken = true
			cancel()
		case <-ctx.Done():
		}
	}()
	a, err := l.line.LinkNext(ctx, l.poll(holds, false))
	cancel()
	<-heard
	if err != nil && woken && l.ctx.Err() == nil {
		return muster.LinkAnswer{NextSeconds: 1}, nil
	}
	if err != nil {
		l.told = digest{} // whoever answers next may know less
	}
	return a, err
}

func (l *link) poll(holds int64, busy bool) muster.LinkPoll {
	return muster.LinkPoll{Holds: holds, Version: muster.Build, Capability: muster.Capability, BootID: l.boot, Busy: busy}
}
