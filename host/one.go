package host

import (
	"fmt"
	"strings"
	"time"

	"muster.internal/resource"
)

const (
	// undoneMost is how often the same change by somebody else is undone; then
	// it is left, and said.
	undoneMost = 2
	// undoneRest is after how long without it the count begins anew.
	undoneRest = 24 * time.Hour
)

// self is the host's own service.
var self = resource.NewRef(resource.KindService, "muster-host.service")

// one makes one resource as declared. The error is the ledger's.
func (a *applying) one(r *resource.Resource, dirs map[string]resource.Ref) (resource.Line, error) {
	if r.Unread != nil {
		return failed("this version of muster-host does not know %s; update it", r.Unread.Why), nil
	}
	if on, is := a.blocked(r, dirs); is {
		if a.lost[on] {
			a.lost[r.Ref()] = true
			return a.halt(r, on)
		}
		return unknown("not tried: it depends on %s, which did not work", on), nil
	}
	if r.Action != nil {
		return a.action(r)
	}
	if r.Ref() == self {
		return failed("it is this host, which neither stops nor restarts itself: its package enables it, and it ends by itself, to be started anew, when its program has changed. Take it out of the declaration"), nil
	}
	want, err := r.Want(a.Names)
	if err != nil {
		return failed("%v", err), nil
	}
	is, err := a.m.Read(r.Ref())
	if err != nil {
		return unknown("it cannot be read: %v", err), nil
	}
	if b := a.RolledBack; b.refuses(r, is) {
		return failed("version %s was rolled back on %s and is not installed again: %s. Declare another version", b.Package, b.At.UTC().Format(time.DateTime), b.Reason), nil
	}
	o, known := a.ledger.Get(r.Ref())
	if !known && (is == nil || a.DryRun || r.Adopt) { // it could not be looked at or kept when this began, or it went since
		claimed, may, err := a.claim(r)
		if err != nil {
			return failed("%v", err), nil
		}
		if o, known = claimed, may; may && !a.DryRun {
			if err := a.ledger.Write(o); err != nil {
				return resource.Line{}, err
			}
			if err := a.sync(); err != nil {
				return resource.Line{}, err
			}
		}
	}
	if !known {
		return a.notOurs(r, is, want), nil
	}
	return a.owned(r, o, is, want)
}

func failed(format string, args ...any) resource.Line {
	return resource.Line{Outcome: resource.OutcomeFailed, Reason: fmt.Sprintf(format, args...)}
}

func unknown(format string, args ...any) resource.Line {
	return resource.Line{Outcome: resource.OutcomeUnknown, Reason: fmt.Sprintf(format, args...)}
}

// halt stops what the host runs on a disk that is not there; it is started again
// when the disk is. What is not the host's is left to find out by itself.
func (a *applying) halt(r *resource.Resource, on resource.Ref) (resource.Line, error) {
	line := unknown("not tried: it depends on %s, which did not work", on)
	o, known := a.ledger.Get(r.Ref())
	if !known || o.Origin == resource.OriginFound || o.Conflict || r.Service == nil && r.Container == nil || r.Ref() == self {
		return line, nil
	}
	is, err := a.m.Read(r.Ref())
	if err != nil || is[resource.FieldRunning] != resource.Yes {
		return line, nil
	}
	if line.Did = "stopped"; a.DryRun {
		return line, nil
	}
	o.Halted = true
	if err := a.ledger.Write(o); err != nil {
		return line, err
	}
	if err := a.ledger.Sync(); err != nil {
		return line, err
	}
	if err := a.m.Halt(r.Ref()); err != nil {
		return failed("it depends on %s, which did not work, and cannot be stopped: %v", on, err), nil
	}
	return line, nil
}

// notOurs is the line of something that is there and was never the host's.
func (a *applying) notOurs(r *resource.Resource, is, want resource.State) resource.Line {
	if is == nil {
		return unknown("it was there a moment ago, and now is not; it is looked at again next time")
	}
	line := resource.Line{Outcome: resource.OutcomeKept, Differences: resource.Differences(is, want)}
	line.Reason = fmt.Sprintf("this %s was there before and is not the host's; \"adopt\": true would take it over", r.Kind())
	return line
}

// owned makes a resource that the host has a record of as declared.
func (a *applying) owned(r *resource.Resource, o resource.Owned, is, want resource.State) (resource.Line, error) {
	if o.Begun && is != nil && o.Origin == resource.OriginCreated && r.Kind() != resource.KindService && !is.Satisfies(o.Applied) && !is.Satisfies(want) {
		// The host said that nothing was there, and something else came.
		line := a.notOurs(r, is, want)
		if a.DryRun {
			return line, nil
		}
		return line, a.ledger.Forget(o.Ref)
	}
	if o.Origin == resource.OriginFound && !is.Satisfies(want) {
		line := a.notOurs(r, is, want)
		line.Reason = fmt.Sprintf("this %s was as declared before the host came, so it is not the host's, and has changed; \"adopt\": true would take it over", r.Kind())
		if o.Resolved == resource.ResolveKeep {
			line.Reason = keptByWord
		}
		return line, nil
	}
	if o.Conflict {
		return a.conflict(r, o, is, want)
	}
	if is.Satisfies(want) {
		return a.settled(r, o, want)
	}
	return a.change(r, o, is, want)
}

// conflict is an adopted resource that is not as declared: the machine's own
// stays until a person resolves it.
func (a *applying) conflict(r *resource.Resource, o resource.Owned, is, want resource.State) (resource.Line, error) {
	word := a.word(r, o)
	switch {
	case is.Satisfies(want):
		o.Conflict = false
		return a.settled(r, o, want)
	case word == resource.ResolveTake:
		o.Conflict = false
		line, err := a.change(r, o, is, want)
		return line, err
	case word == resource.ResolveKeep:
		o.Origin, o.Conflict, o.Resolved, o.Generation = resource.OriginFound, false, word, a.Declaration.Generation
		line := a.notOurs(r, is, want)
		line.Reason = keptByWord
		return line, a.write(o)
	}
	line := resource.Line{Outcome: resource.OutcomeKept, Did: "adopted", Differences: resource.Differences(is, want)}
	line.Reason = "it is adopted and differs from the declaration; the machine's own stays until a person decides: take or keep, by `muster-host adopt resolve` or `muster node resolve`"
	return line, nil
}

const keptByWord = "the machine's own was kept, as a person decided; `muster-host adopt resolve` or `muster node resolve` can take it over"

// word is the last that a person said of a conflict: at the machine, in a newer
// declaration, or before.
func (a *applying) word(r *resource.Resource, o resource.Owned) resource.Resolution {
	switch w := a.Resolve[o.Ref]; {
	case w != "":
		return w
	case r.Resolve != "" && (o.Resolved == "" || a.Local || a.Declaration.Generation > o.Generation):
		return r.Resolve
	}
	return o.Resolved
}

// settled is a resource that is as wanted; only its record may have to follow.
func (a *applying) settled(r *resource.Resource, o resource.Owned, want resource.State) (resource.Line, error) {
	line := resource.Line{Outcome: resource.OutcomeOK}
	local := o.Local && a.Local
	stale := o.Begun || o.Halted || o.Local != local || !want.Satisfies(o.Applied) || !o.Applied.Satisfies(want)
	if o.Begun {
		line.Outcome, line.Did = resource.OutcomeChanged, "created"
		if !a.intended[o.Ref] { // else a resource before it did, as a package that starts its service
			line.Reason = "an earlier apply was cut short after it"
		}
	}
	restart, triggers, err := a.restart(r, o)
	switch {
	case err != nil:
		return failed("it is as declared, and could not be restarted: %v", err), nil
	case restart:
		line.Outcome, line.Did, line.Reason = resource.OutcomeChanged, "restarted", ""
	}
	if stale || restart || triggers != o.Triggers {
		o.Halted = false
		o.Begun, o.Local, o.Applied, o.Triggers, o.Generation = false, local, want, triggers, a.Declaration.Generation
		return line, a.write(o)
	}
	return line, nil
}

// change puts a resource in its declared state, and reads it back.
func (a *applying) change(r *resource.Resource, o resource.Owned, is, want resource.State) (resource.Line, error) {
	line := resource.Line{Outcome: resource.OutcomeChanged, Did: "updated", Differences: resource.Differences(is, want)}
	switch {
	case r.Disk != nil:
		line.Did = "mounted"
	case o.Halted:
		line.Did = "started"
	case is == nil || o.Begun:
		line.Did = "created"
	}
	if line.Drift = !o.Begun && !o.Halted && r.Disk == nil && !o.Conflict && o.Applied.Satisfies(want) && want.Satisfies(o.Applied); line.Drift {
		if left := a.drifted(&o, &line, is); left {
			return line, nil
		}
	}
	if a.DryRun {
		return line, nil
	}
	if err := a.soil(r.Ref()); err != nil {
		return line, err
	}
	if err := a.put(r, is); err != nil {
		bad := failed("%v", err)
		bad.Differences, bad.Drift = line.Differences, line.Drift
		return bad, nil
	}
	now, err := a.m.Read(r.Ref())
	if err != nil {
		return unknown("it was changed and cannot be read back: %v", err), nil
	}
	if !now.Satisfies(want) {
		line = failed("it was changed and reads back otherwise: %s", spell(resource.Differences(now, want)))
		return line, nil
	}
	o.Halted = false
	o.Begun, o.Conflict, o.Local, o.Applied, o.Generation = false, false, a.Local && (o.Local || line.Did == "created" || line.Did == "mounted"), want, a.Declaration.Generation
	o.Triggers = a.triggers(r) // what has just been started needs no restart
	return line, a.write(o)
}

// put creates or updates.
func (a *applying) put(r *resource.Resource, is resource.State) error {
	text := ""
	if r.File != nil {
		var err error
		if text, err = r.File.Text(a.Names); err != nil {
			return err
		}
	}
	if is == nil {
		return a.m.Create(r, text)
	}
	return a.m.Update(r, text, is)
}

// drifted counts that somebody else has changed what the host made. The same
// change again and again is undone twice; then it is left as it is and said, so
// that two tools do not fight for ever.
func (a *applying) drifted(o *resource.Owned, line *resource.Line, is resource.State) (left bool) {
	now := a.m.Now()
	what := resource.Hash(spell(resource.Differences(is, o.Applied)))
	if o.Drift != what || o.UndoneAt == nil || now.Sub(*o.UndoneAt) > undoneRest {
		o.Drift, o.Undone = what, 0
	}
	line.Reason = "it was as declared, and somebody else has changed it"
	if o.Undone >= undoneMost && !a.Local {
		line.Outcome, line.Did, line.Fought = resource.OutcomeKept, "", true
		line.Reason = fmt.Sprintf("somebody else makes the same change again and again; after undoing it %d times the host leaves it. Find who does (another configuration tool?); a changed declaration, or `muster-host apply`, ends the truce", o.Undone)
		return true
	}
	o.Undone++
	o.UndoneAt = &now
	if line.Fought = o.Undone > 1; line.Fought {
		line.Reason = fmt.Sprintf("somebody else has made the same change again after the host undid it; undone %d times now", o.Undone)
	}
	return false
}

// soil marks what a resource's change must restart, durably, before it changes:
// so a crash in between forgets no restart.
func (a *applying) soil(ref resource.Ref) error {
	wrote := false
	for _, s := range a.triggered[ref] {
		if o, known := a.ledger.Get(s); known && o.Triggers != "" {
			o.Triggers = ""
			if err := a.ledger.Write(o); err != nil {
				return err
			}
			wrote = true
		}
	}
	if wrote {
		return a.sync()
	}
	return nil
}

// triggers is what a resource's restart_on stands at: what was last applied of
// each. A trigger that the host does not own counts as it is named.
func (a *applying) triggers(r *resource.Resource) string {
	refs := r.RestartOn()
	if len(refs) == 0 {
		return ""
	}
	b := new(strings.Builder)
	for _, ref := range refs {
		o, _ := a.ledger.Get(ref)
		fmt.Fprintln(b, ref, spell(resource.Differences(nil, o.Applied)))
	}
	return resource.Hash(b.String())
}

// restart starts it anew when one of its triggers has changed since it was
// last started. What was found running, and not adopted, is not touched.
func (a *applying) restart(r *resource.Resource, o resource.Owned) (bool, string, error) {
	now := a.triggers(r)
	if now == o.Triggers {
		return false, now, nil
	}
	running := r.Service == nil || r.Service.Running == nil || *r.Service.Running
	if o.Origin == resource.OriginFound || !running {
		return false, now, nil
	}
	if a.DryRun {
		return true, now, nil
	}
	return true, now, a.m.Restart(r.Ref())
}

// action runs an action that is not done yet. One without "unless" runs once
// for each form of its command.
func (a *applying) action(r *resource.Resource) (resource.Line, error) {
	act := r.Action
	o, known := a.ledger.Get(r.Ref())
	form := resource.State{resource.FieldCommand: strings.Join(act.Command, "\x00")}
	done := false
	switch {
	case len(act.Unless) > 0:
		var err error
		if done, err = a.m.Done(act); err != nil {
			return unknown("whether it is done cannot be told: %v", err), nil
		}
	case known && o.Applied.Satisfies(form):
		if o.Begun {
			return unknown("it was begun and cut short, and nothing tells whether it is done; it is not run twice. Give it an \"unless\", or run it by hand"), nil
		}
		done = true
	}
	if done {
		var err error
		if local := o.Local && a.Local; known && (o.Begun || o.Local != local) {
			o.Begun, o.Local = false, local
			err = a.write(o)
		}
		return resource.Line{Outcome: resource.OutcomeOK}, err
	}
	line := resource.Line{Outcome: resource.OutcomeChanged, Did: "ran"}
	if a.DryRun {
		return line, nil
	}
	o = resource.Owned{Ref: r.Ref(), Origin: resource.OriginCreated, Local: a.Local, Since: a.m.Now(), Generation: a.Declaration.Generation, Applied: form, Begun: true}
	err := a.ledger.Write(o)
	if err == nil {
		err = a.sync()
	}
	if err != nil {
		return line, err
	}
	if err := a.m.Run(act); err != nil {
		e := a.ledger.Forget(o.Ref) // it may be tried again
		if e == nil {
			e = a.sync()
		}
		return failed("%v", err), e
	}
	o.Begun = false
	return line, a.write(o)
}

// spell says differences in a line.
func spell(all []resource.Difference) string {
	b := new(strings.Builder)
	for i, d := range all {
		if i > 0 {
			b.WriteString(", ")
		}
		is := d.Is
		if is == "" {
			is = "nothing"
		}
		fmt.Fprintf(b, "%s is %s and should be %s", d.Field, is, d.Want)
	}
	return b.String()
}
