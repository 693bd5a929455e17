package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"muster.internal/host"
	"muster.internal/resource"
)

// A Ground is what stands on an imaginary machine beside its pools, and the
// record of what its host owns of that. Host.Apply works on it. What was not
// made durable may go back when the power does.
type Ground struct {
	// There is what stands there now.
	There map[resource.Ref]Thing
	// Faults are knobs for what goes wrong. The zero value is good hardware.
	Faults GroundFaults
	// Changed, if there is one, hears of everything that the host does, before and
	// after.
	Changed func(ref resource.Ref, was, is Thing)
	// Clock is the machine's own.
	Clock func() time.Time

	before  map[resource.Ref]Thing          // how what was changed since the last sync stood then
	records map[resource.Ref]resource.Owned // of the ledger, in memory
	durable map[resource.Ref]resource.Owned // and on the disk
	effects int
}

var (
	_ host.Resources = (*Ground)(nil)
	_ host.Ledger    = (*Ground)(nil)
)

// A Thing is what stands at a reference: how it reads, and the resource that made
// it so. The zero value is nothing.
type Thing struct {
	State resource.State
	From  *resource.Resource
}

// Runs tells whether it is something that runs.
func (t Thing) Runs() bool { return t.State != nil && t.State[resource.FieldRunning] == resource.Yes }

// GroundFaults are what can be wrong with a ground.
type GroundFaults struct {
	// PowerCutAt is the effect, counted from now, in the middle of which the power
	// goes: 1 is the next one, 0 is never.
	PowerCutAt int
	// Lies is how many effects from now on say that they were done and were not.
	Lies int
}

// A PowerCut is what a call panics with once the power is gone: nothing runs any
// more, whatever it was about to do. Who runs the machine recovers it.
type PowerCut struct{}

// NewGround is a machine on which nothing was ever made.
func NewGround() *Ground {
	g := &Ground{There: map[resource.Ref]Thing{}}
	g.PowerOff(nil)
	return g
}

// PowerOff has the memory lost, and of what was not durable what back says. What
// runs ends.
func (g *Ground) PowerOff(back func(resource.Ref) bool) {
	for _, ref := range slices.Sorted(maps.Keys(g.before)) {
		if was := g.before[ref]; back(ref) {
			g.put(ref, was)
		}
	}
	g.before, g.records, g.effects = map[resource.Ref]Thing{}, maps.Clone(g.durable), 0
	if g.records == nil {
		g.records = map[resource.Ref]resource.Owned{}
	}
	g.durable = maps.Clone(g.records)
}

func (g *Ground) put(ref resource.Ref, t Thing) {
	was := g.There[ref]
	if t.State == nil {
		delete(g.There, ref)
	} else {
		g.There[ref] = t
	}
	if g.Changed != nil {
		g.Changed(ref, was, t)
	}
}

// effect is one act that a power cut can come in the middle of: before it has
// happened or after it.
func (g *Ground) effect(ref resource.Ref, t Thing) error {
	g.effects++
	cut := g.Faults.PowerCutAt == 1
	if g.Faults.PowerCutAt > 0 {
		g.Faults.PowerCutAt--
	}
	if cut && g.effects%2 == 0 {
		panic(PowerCut{})
	}
	if g.Faults.Lies > 0 {
		g.Faults.Lies--
	} else {
		if _, known := g.before[ref]; !known && (ref.Kind() == resource.KindFile || ref.Kind() == resource.KindDirectory) {
			g.before[ref] = g.There[ref]
		}
		g.put(ref, t)
	}
	if cut {
		panic(PowerCut{})
	}
	return nil
}

// Read implements host.Resources.
func (g *Ground) Read(ref resource.Ref) (resource.State, error) {
	return maps.Clone(g.There[ref].State), nil
}

// Create implements host.Resources.
func (g *Ground) Create(r *resource.Resource, text string) error {
	if g.There[r.Ref()].State != nil {
		return fmt.Errorf("%s is there", r.Ref())
	}
	return g.Update(r, text, nil)
}

// Update implements host.Resources.
func (g *Ground) Update(r *resource.Resource, text string, _ resource.State) error {
	q := *r
	if r.File != nil {
		f := *r.File
		f.Content, f.Template = text, ""
		q.File = &f
	}
	want, err := q.Want(nil)
	if err != nil {
		return err
	}
	return g.effect(r.Ref(), Thing{want, &q})
}

// Restart implements host.Resources.
func (g *Ground) Restart(ref resource.Ref) error { return g.effect(ref, g.There[ref]) }

// Done implements host.Resources: of an action nothing is left to see.
func (g *Ground) Done(*resource.Action) (bool, error) { return false, nil }

// Run implements host.Resources.
func (g *Ground) Run(a *resource.Action) error {
	ref := resource.NewRef(resource.KindAction, a.Name)
	return g.effect(ref, Thing{State: resource.State{resource.FieldDone: resource.Yes}})
}

// Keep implements host.Resources.
func (g *Ground) Keep(ref resource.Ref) (string, error) { return "originals/" + ref.Key(), nil }

// Remove implements host.Resources.
func (g *Ground) Remove(ref resource.Ref) error {
	if g.There[ref].State == nil {
		return nil
	}
	return g.effect(ref, Thing{})
}

// Stop implements host.Resources.
func (g *Ground) Stop(ref resource.Ref) error {
	return g.effect(ref, Thing{State: resource.State{resource.FieldEnabled: "no", resource.FieldRunning: "no"}})
}

// Halt implements host.Resources.
func (g *Ground) Halt(ref resource.Ref) error {
	t := g.There[ref]
	t.State = maps.Clone(t.State)
	t.State[resource.FieldRunning] = "no"
	return g.effect(ref, t)
}

// Restore implements host.Resources.
func (g *Ground) Restore(o resource.Owned) error { return g.effect(o.Ref, Thing{State: o.Found}) }

// Now implements host.Resources.
func (g *Ground) Now() time.Time { return g.Clock() }

// Sync implements host.Resources and host.Ledger: on a disk like this one, what
// is durable is all of it.
func (g *Ground) Sync() error {
	clear(g.before)
	g.durable = maps.Clone(g.records)
	return nil
}

// Get implements host.Ledger.
func (g *Ground) Get(ref resource.Ref) (resource.Owned, bool) { o, is := g.records[ref]; return o, is }

// All implements host.Ledger.
func (g *Ground) All() []resource.Owned {
	return slices.SortedFunc(maps.Values(g.records), func(a, b resource.Owned) int { return strings.Compare(string(a.Ref), string(b.Ref)) })
}

// Write implements host.Ledger.
func (g *Ground) Write(o resource.Owned) error {
	g.records[o.Ref] = o
	return nil
}

// Forget implements host.Ledger.
func (g *Ground) Forget(ref resource.Ref) error {
	delete(g.records, ref)
	return nil
}
