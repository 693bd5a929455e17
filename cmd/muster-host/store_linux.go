package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"muster.internal/credential"
	"muster.internal/durable"
	"muster.internal/host"
	"muster.internal/linux"
	"muster.internal/resource"
	"muster.internal/state"
)

const (
	lockWait = 30 * time.Second // for another muster-host on this machine

	// How much an apply may hold: beside what it needs, percent, and in all, bytes
	// for a declaration of a usual size. A bigger one would be collected all the time.
	garbage       = 25
	memoryUsual   = 12 << 20
	resourceUsual = 1500
)

// thrift holds an apply to little memory, until the end that it returns.
func thrift(d *resource.Declaration) (end func()) {
	percent := debug.SetGCPercent(garbage)
	limit := debug.SetMemoryLimit(-1) // which only asks
	if len(d.Resources) <= resourceUsual {
		debug.SetMemoryLimit(min(limit, memoryUsual))
	}
	return func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}

// The records in the state directory, beside the ledger.
const (
	heldRecord   = "held"   // host.Held
	reportRecord = "report" // resource.Report of the last apply
)

// A store is the state directory with its ledger, for one process at a time.
type store struct {
	path   string
	dir    *state.Dir
	ledger *state.Ledger
}

func openStore(path string) (*store, error) {
	d, err := state.Open(path, lockWait)
	if err != nil {
		return nil, err
	}
	l, err := d.Ledger()
	if err != nil {
		d.Close()
		return nil, err
	}
	return &store{path, d, l}, nil
}

func (s *store) close() error { return errors.Join(s.ledger.Close(), s.dir.Close()) }

// held is what this machine was told, and is empty when it was told nothing.
func (s *store) held() (h host.Held, err error) {
	if err = s.dir.Load(heldRecord, &h); errors.Is(err, fs.ErrNotExist) {
		return host.Held{}, nil
	}
	return h, err
}

// apply does the work and keeps its report.
func (s *store) apply(e *env, w host.Work) (resource.Report, error) {
	hands, err := linux.NewResources(s.dir.Originals())
	if err != nil {
		return resource.Report{}, err
	}
	if err := loadFile(filepath.Join(s.path, rolledBackFile), &w.RolledBack); err != nil {
		e.say("%v", err) // as if it were not there
	}
	r, err := host.Apply(w, hands, s.ledger)
	if err == nil && !w.DryRun {
		err = s.dir.Save(reportRecord, r)
		if s.path == stateDir {
			if e2 := note(noteFile, r); e2 != nil {
				e.say("who logs in is not told how it went: %v", e2)
			}
		}
	}
	return r, err
}

// noteFile is shown to everybody who logs in (pam_motd(8)).
const noteFile = "/run/motd.d/muster-host"

func note(file string, r resource.Report) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return durable.Replace(file, []byte(r.Briefing().Note()), 0o644)
}

// forgetIdentity is the end of being a node: its credential goes before its key pair
// and what it was told, that it gives everything up: cut short, it is done again.
func forgetIdentity(dir string) error {
	for _, file := range []string{candidateFile, provenFile} { // nothing is on trial where nothing is to be linked
		if err := credential.Drop(filepath.Join(dir, file)); err != nil {
			return err
		}
	}
	if err := credential.Drop(credentialFile(dir)); err != nil {
		return err
	}
	return forgetNode(dir)
}

// anew forgets the node that the machine was, and stores what it is now, while no
// other muster-host is at work here: it would write down again what it was told,
// and sweep away what is half-stored.
func anew(dir string, say func(string), store func() error) error {
	d, err := state.Open(dir, 0)
	if errors.Is(err, state.ErrBusy) {
		say("another muster-host is at work on this machine; what was delivered is stored once that has ended")
		for errors.Is(err, state.ErrBusy) {
			d, err = state.Open(dir, lockWait)
		}
	}
	if err != nil {
		return err
	}
	defer d.Close()
	if err := dropNode(dir, d); err != nil {
		return err
	}
	return store()
}

// forgetNode drops what belongs to one identity and must not be taken for
// another's. What is owned stays on record.
func forgetNode(dir string) error {
	d, err := state.Open(dir, lockWait)
	if err != nil {
		return err
	}
	defer d.Close()
	return dropNode(dir, d)
}

func dropNode(dir string, d *state.Dir) error {
	if err := credential.Drop(nextFile(dir)); err != nil {
		return err
	}
	if err := d.Drop(heldRecord); err != nil {
		return err
	}
	return credential.Drop(identityFile(dir))
}
