package host

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"muster.internal/resource"
)

// Resources is the machine's hand for them. Each call is one effect
// or one reading; errors are for people and hold no secret. An effect that was
// cut short leaves the old or the new, never half of each.
type Resources interface {
	// Read tells what stands there, nil when nothing does. It is not asked
	// about actions.
	Read(ref resource.Ref) (resource.State, error)
	// Create makes what was not there, and fails when something is by now.
	Create(r *resource.Resource, text string) error
	// Update changes what is there to be as declared. A thing of another type
	// at its place is an error.
	Update(r *resource.Resource, text string, is resource.State) error
	// Restart starts a service or container anew.
	Restart(ref resource.Ref) error
	// Done tells whether an action need not run; Run runs it.
	Done(a *resource.Action) (bool, error)
	Run(a *resource.Action) error
	// Keep copies an original before it is taken over, durably, and tells where.
	Keep(ref resource.Ref) (string, error)
	// Remove removes what the host made, and what a crash left of making it;
	// Stop ends a service, Restore gives back what was there before it was
	// adopted.
	Remove(ref resource.Ref) error
	Stop(ref resource.Ref) error
	// Halt stops a service or container, which starts with the machine all the same.
	Halt(ref resource.Ref) error
	Restore(o resource.Owned) error
	// Sync makes what was changed survive a power cut.
	Sync() error
	Now() time.Time
}

// ErrNotEmpty means that a directory holds what the host did not make.
var ErrNotEmpty = errors.New("it is not empty; what is in it is not the host's")

// A Ledger is the record of what the host owns. Nothing of what Write and Forget
// are told is on the disk before Sync, which makes it survive a power cut, in the
// order of their calls: so the record of a change is never there without it.
type Ledger interface {
	Get(ref resource.Ref) (resource.Owned, bool)
	All() []resource.Owned
	Write(o resource.Owned) error
	Forget(ref resource.Ref) error
	Sync() error
}

// Work is what is to be applied, and how.
type Work struct {
	Declaration *resource.Declaration
	Names       map[string]string // facts and values, for templates
	Trigger     string
	Version     string // of the running host
	// RolledBack is the version of this program that is not installed again.
	RolledBack RolledBack
	// Local work comes from a person at the machine: what it does not name
	// stays, and what it makes is recorded as local.
	Local bool
	// DryRun changes nothing, and its report says what would be.
	DryRun  bool
	Resolve map[resource.Ref]resource.Resolution
	// Begin, if there is one, hears of each resource before it is looked at.
	Begin func(index int, ref resource.Ref)
}

// syncEvery is after how many records of files all is made durable in between.
// Intents are durable before the first effect, so a crash in between costs
// nothing but looking again.
const syncEvery = 64

// An applying is one apply in progress.
type applying struct {
	Work
	m         Resources
	ledger    Ledger
	bad       map[resource.Ref]resource.Outcome // what dependents must not build on
	lost      map[resource.Ref]bool             // disks that are not there, and what comes after them
	triggered map[resource.Ref][]resource.Ref   // by trigger, what it restarts
	intended  map[resource.Ref]bool             // what this apply is the first to make
	unsynced  int
	report    resource.Report
}

// Apply makes the machine as declared: it removes what is declared no longer,
// then goes through the list. Each resource is read, compared, changed only
// when it differs, read back and recorded. A failure stops only what depends
// on it. The ledger's error is returned; it ends the apply, because what
// cannot be recorded must not be done.
func Apply(w Work, m Resources, ledger Ledger) (resource.Report, error) {
	a := &applying{Work: w, m: m, ledger: ledger, bad: map[resource.Ref]resource.Outcome{}, lost: map[resource.Ref]bool{}, triggered: map[resource.Ref][]resource.Ref{}, intended: map[resource.Ref]bool{}}
	a.report = resource.Report{Generation: w.Declaration.Generation, Trigger: w.Trigger, Started: m.Now(), Version: w.Version}
	for i := range w.Declaration.Resources {
		r := &w.Declaration.Resources[i]
		for _, t := range r.RestartOn() {
			a.triggered[t] = append(a.triggered[t], r.Ref())
		}
	}
	err := a.all()
	if e := a.sync(); err == nil {
		err = e
	}
	a.report.Finished = m.Now()
	outcomes := []resource.Outcome{}
	for _, l := range a.report.Lines {
		outcomes = append(outcomes, l.Outcome)
	}
	a.report.Outcome = resource.Worst(outcomes...)
	if err != nil {
		a.report.Outcome = resource.OutcomeFailed
	}
	return a.report, err
}

func (a *applying) all() error {
	if !a.Local {
		if err := a.removeUndeclared(); err != nil {
			return err
		}
	}
	if err := a.intend(); err != nil {
		return err
	}
	dirs := a.declaredDirectories()
	for i := range a.Declaration.Resources {
		r := &a.Declaration.Resources[i]
		if a.Begin != nil {
			a.Begin(i, r.Ref())
		}
		line, err := a.one(r, dirs)
		if err != nil {
			return fmt.Errorf("%s: it cannot be recorded: %w", r.Ref(), err)
		}
		line.Ref = r.Ref()
		if line.Outcome == resource.OutcomeFailed || line.Outcome == resource.OutcomeUnknown {
			a.bad[line.Ref] = line.Outcome
			if r.Disk != nil && line.Outcome == resource.OutcomeFailed {
				a.lost[line.Ref] = true
			}
		}
		a.report.Lines = append(a.report.Lines, line)
	}
	return nil
}

// declaredDirectories are the directories and disks, by path.
func (a *applying) declaredDirectories() map[string]resource.Ref {
	dirs := map[string]resource.Ref{}
	for i := range a.Declaration.Resources {
		if ref := a.Declaration.Resources[i].Ref(); ref.Kind() == resource.KindDirectory || ref.Kind() == resource.KindDisk {
			dirs[ref.Key()] = ref
		}
	}
	return dirs
}

// blocked names an earlier resource that this one depends on and that did not
// work.
func (a *applying) blocked(r *resource.Resource, dirs map[string]resource.Ref) (resource.Ref, bool) {
	if len(a.bad) == 0 {
		return "", false
	}
	for _, ref := range r.After {
		if a.bad[ref] != "" {
			return ref, true
		}
	}
	p := r.Path()
	if p == "" {
		return "", false
	}
	for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
		if ref := dirs[dir]; a.bad[ref] != "" {
			return ref, true
		}
	}
	return "", false
}

// intend looks at every resource that the host has no record of, before
// anything is changed, and records what it is about to make or take over. So a
// service that its own package starts is known to be the host's, and a file
// that is found after a crash, too.
func (a *applying) intend() error {
	if a.DryRun {
		return nil
	}
	for i := range a.Declaration.Resources {
		r := &a.Declaration.Resources[i]
		if r.Ref() == self || r.Unread != nil {
			continue
		}
		o, known := a.ledger.Get(r.Ref())
		if known && (o.Origin != resource.OriginFound || !r.Adopt || a.word(r, o) == resource.ResolveKeep) {
			continue
		}
		o, owned, err := a.claim(r)
		if err != nil || !owned {
			continue // one says why when its turn comes
		}
		if err := a.write(o); err != nil {
			return fmt.Errorf("%s: it cannot be recorded: %w", r.Ref(), err)
		}
	}
	// Always: intents that an earlier run wrote may not be durable yet.
	return a.sync()
}

// claim decides whether the host may own a resource that it has no record of.
func (a *applying) claim(r *resource.Resource) (resource.Owned, bool, error) {
	o := resource.Owned{Ref: r.Ref(), Local: a.Local, Since: a.m.Now(), Generation: a.Declaration.Generation, Origin: resource.OriginCreated, Begun: true}
	want, err := r.Want(a.Names)
	if err != nil {
		return o, false, err
	}
	o.Applied = want
	if r.Kind() == resource.KindAction {
		return o, false, nil // recorded when it runs
	}
	is, err := a.m.Read(r.Ref())
	switch {
	case err != nil:
		return o, false, err
	case free(r, is):
		a.intended[o.Ref] = true
		return o, true, nil
	case r.Adopt && r.Path() != "" && is[resource.FieldType] != string(r.Kind()):
		return o, false, fmt.Errorf("what is there is no %s (its type is %s), so it cannot be taken over", r.Kind(), is[resource.FieldType])
	case r.Adopt:
		o.Origin, o.Found, o.Begun = resource.OriginAdopted, is, false
		if o.Conflict = !is.Satisfies(want); o.Conflict {
			o.Applied = is // nothing was
		}
		if a.DryRun {
			return o, true, nil
		}
		if r.Path() != "" {
			o.Original, err = a.m.Keep(r.Ref())
		}
		return o, err == nil, err
	case is.Satisfies(want) && r.Disk != nil: // its id makes it the host's
		o.Begun = false
		return o, true, nil
	case is.Satisfies(want):
		o.Origin, o.Found, o.Begun = resource.OriginFound, is, false
		return o, true, nil
	}
	return o, false, nil
}

// free tells whether nobody else's thing is there. A service's unit is not the
// host's to begin with, so one that neither runs nor starts by itself is free.
func free(r *resource.Resource, is resource.State) bool {
	return is == nil || r.Kind() == resource.KindService && is[resource.FieldEnabled] != resource.Yes && is[resource.FieldRunning] != resource.Yes
}

// write records a resource, and makes the record durable now and then. Files come
// by the thousand; what else there is takes its time, and is not done twice.
func (a *applying) write(o resource.Owned) error {
	if a.DryRun {
		return nil
	}
	if err := a.ledger.Write(o); err != nil {
		return err
	}
	a.unsynced++
	if k := o.Ref.Kind(); !o.Begun && k != resource.KindFile && k != resource.KindDirectory || a.unsynced >= syncEvery {
		return a.sync()
	}
	return nil
}

// sync makes what was changed durable, then the record of it.
func (a *applying) sync() error {
	a.unsynced = 0
	if err := a.m.Sync(); err != nil {
		return fmt.Errorf("what was changed cannot be made durable: %w", err)
	}
	return a.ledger.Sync()
}

// removalOrder is in which order things go: what runs before what it runs from.
var removalOrder = []resource.Kind{resource.KindContainer, resource.KindService, resource.KindFile, resource.KindDirectory, resource.KindDisk, resource.KindPackage, resource.KindAction}

// removeUndeclared does with each owned resource that is declared no longer
// what the removal table says.
func (a *applying) removeUndeclared() error {
	declared := map[resource.Ref]bool{}
	for i := range a.Declaration.Resources {
		declared[a.Declaration.Resources[i].Ref()] = true
	}
	all := a.ledger.All()
	var gone []resource.Owned
	for _, o := range all {
		switch {
		case declared[o.Ref]:
		case !o.Local:
			gone = append(gone, o)
		case a.Trigger == resource.TriggerRetire:
			a.report.Lines = append(a.report.Lines, resource.Line{Ref: o.Ref, Outcome: resource.OutcomeKept, Reason: "it was made here, by a file, and stays with the machine"})
		}
	}
	slices.SortFunc(gone, func(x, y resource.Owned) int {
		if d := slices.Index(removalOrder, x.Ref.Kind()) - slices.Index(removalOrder, y.Ref.Kind()); d != 0 {
			return d
		}
		return strings.Compare(y.Ref.Key(), x.Ref.Key()) // what is deeper first
	})
	went, unclear := map[resource.Ref]bool{}, a.Declaration.Unclear()
	for _, o := range gone {
		if unclear != "" {
			a.report.Lines = append(a.report.Lines, resource.Line{Ref: o.Ref, Outcome: resource.OutcomeKept, Reason: fmt.Sprintf("it is declared no longer, but %s may stand for it, which this version of muster-host does not know; it is looked at again by one that does", unclear)})
			continue
		}
		if in, holds := held(o, all, went); holds {
			a.report.Lines = append(a.report.Lines, resource.Line{Ref: o.Ref, Outcome: resource.OutcomeOK, Reason: fmt.Sprintf("it goes once %s, which is in it, is the host's no longer", in)})
			continue
		}
		line := Remove(o, a.m, a.DryRun)
		a.report.Lines = append(a.report.Lines, line)
		if line.Outcome == resource.OutcomeFailed {
			continue // it is tried again next time
		}
		if went[o.Ref] = true; a.DryRun {
			continue
		}
		if err := a.ledger.Forget(o.Ref); err != nil {
			return fmt.Errorf("%s: it cannot be recorded: %w", o.Ref, err)
		}
	}
	return nil
}

// held tells whether something that the host owns, and that did not go, is in a
// directory that it made.
func held(o resource.Owned, all []resource.Owned, went map[resource.Ref]bool) (resource.Ref, bool) {
	if o.Ref.Kind() != resource.KindDirectory || o.Removal() != resource.RemovalRemove {
		return "", false
	}
	for _, in := range all {
		k := in.Ref.Kind()
		if (k == resource.KindFile || k == resource.KindDirectory) && !went[in.Ref] && in.Removal() == resource.RemovalRemove && strings.HasPrefix(in.Ref.Key(), o.Ref.Key()+"/") {
			return in.Ref, true
		}
	}
	return "", false
}
