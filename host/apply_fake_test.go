package host

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"muster.internal/resource"
)

// errCut is what every call says once the power is gone.
var errCut = errors.New("the power is gone")

// A plug is pulled after a number of effects.
type plug struct{ left int }

func (p *plug) pull() bool {
	p.left--
	return p.left < 0
}

// machine is a machine in memory: what stands there, by reference, and what
// was kept of originals. An effect happens whole or not at all.
type machine struct {
	*plug
	there  map[resource.Ref]resource.State
	before map[resource.Ref]resource.State // how what was changed since the last sync stood then
	kept   map[resource.Ref]resource.State
	done   map[string]int // actions, and how often each ran
	starts map[resource.Ref]int
	reads  map[resource.Ref]string // what a service read from /srv/a when it was started
	broken map[resource.Ref]string // whatever is done to it fails
	blind  map[resource.Ref]int    // how often it cannot be read yet
	now    time.Time
	log    []string
}

func newFake() *machine {
	return &machine{plug: &plug{1 << 30}, there: map[resource.Ref]resource.State{}, before: map[resource.Ref]resource.State{}, kept: map[resource.Ref]resource.State{}, done: map[string]int{},
		starts: map[resource.Ref]int{}, reads: map[resource.Ref]string{}, broken: map[resource.Ref]string{}, blind: map[resource.Ref]int{}, now: time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)}
}

func (m *machine) effect(ref resource.Ref, what string, do func()) error {
	if m.pull() {
		return errCut
	}
	if why := m.broken[ref]; why != "" {
		return errors.New(why)
	}
	m.log = append(m.log, what+" "+string(ref))
	if _, known := m.before[ref]; !known && (ref.Kind() == resource.KindFile || ref.Kind() == resource.KindDirectory) {
		m.before[ref] = maps.Clone(m.there[ref])
	}
	do()
	return nil
}

func (m *machine) Sync() error {
	if m.left < 0 {
		return errCut
	}
	clear(m.before)
	return nil
}

// powerCut undoes of what was not durable what back says.
func (m *machine) powerCut(back func(resource.Ref) bool) {
	for _, ref := range slices.Sorted(maps.Keys(m.before)) {
		switch was := m.before[ref]; {
		case !back(ref):
		case was == nil:
			delete(m.there, ref)
		default:
			m.there[ref] = was
		}
	}
	clear(m.before)
}

func (m *machine) start(ref resource.Ref) {
	m.starts[ref]++
	m.reads[ref] = m.there["file:/srv/a"]["content"]
}

func (m *machine) Now() time.Time { return m.now }

func (m *machine) Read(ref resource.Ref) (resource.State, error) {
	if m.left < 0 {
		return nil, errCut
	}
	if m.blind[ref] > 0 {
		m.blind[ref]--
		return nil, errors.New("nobody answers")
	}
	return maps.Clone(m.there[ref]), nil
}

func (m *machine) want(r *resource.Resource, text string) resource.State {
	q := *r
	if r.File != nil {
		f := *r.File
		f.Content, f.Template = text, ""
		q.File = &f
	}
	s, err := q.Want(nil)
	if err != nil {
		panic(err)
	}
	return s
}

func (m *machine) Create(r *resource.Resource, text string) error {
	if m.there[r.Ref()] != nil {
		return fmt.Errorf("%s is there", r.Ref())
	}
	return m.effect(r.Ref(), "create", func() {
		m.there[r.Ref()] = m.want(r, text)
		if r.Package != nil { // as Debian does: what is installed runs
			unit := resource.NewRef(resource.KindService, r.Package.Name+".service")
			m.there[unit] = resource.State{"enabled": "yes", "running": "yes"}
			m.start(unit)
		}
		if r.Service != nil || r.Container != nil {
			m.start(r.Ref())
		}
	})
}

func (m *machine) Update(r *resource.Resource, text string, is resource.State) error {
	return m.effect(r.Ref(), "update", func() {
		if r.Service != nil && is["running"] != "yes" {
			m.start(r.Ref())
		}
		m.there[r.Ref()] = m.want(r, text)
	})
}

func (m *machine) Restart(ref resource.Ref) error {
	return m.effect(ref, "restart", func() { m.start(ref) })
}

func (m *machine) Done(a *resource.Action) (bool, error) { return m.done[a.Name] > 0, nil }

func (m *machine) Run(a *resource.Action) error {
	return m.effect(resource.NewRef(resource.KindAction, a.Name), "run", func() { m.done[a.Name]++ })
}

func (m *machine) Keep(ref resource.Ref) (string, error) {
	return "originals/" + ref.Key(), m.effect(ref, "keep", func() { m.kept[ref] = maps.Clone(m.there[ref]) })
}

func (m *machine) Remove(ref resource.Ref) error {
	if m.there[ref] == nil && m.left >= 0 {
		return nil // there is nothing to do
	}
	return m.effect(ref, "remove", func() { delete(m.there, ref) })
}

func (m *machine) Stop(ref resource.Ref) error {
	return m.effect(ref, "stop", func() { m.there[ref] = resource.State{"enabled": "no", "running": "no"} })
}

func (m *machine) Halt(ref resource.Ref) error {
	return m.effect(ref, "halt", func() { m.there[ref]["running"] = "no" })
}

func (m *machine) Restore(o resource.Owned) error {
	return m.effect(o.Ref, "restore", func() { m.there[o.Ref] = maps.Clone(o.Found) })
}

// ledger loses what was not synced when the power goes, or the process.
type ledger struct {
	*plug
	now, written, durable map[resource.Ref]resource.Owned
}

func newLedger(p *plug) *ledger {
	return &ledger{p, map[resource.Ref]resource.Owned{}, map[resource.Ref]resource.Owned{}, map[resource.Ref]resource.Owned{}}
}

func (l *ledger) Get(ref resource.Ref) (resource.Owned, bool) { o, is := l.now[ref]; return o, is }

func (l *ledger) All() []resource.Owned {
	return slices.SortedFunc(maps.Values(l.now), func(a, b resource.Owned) int { return strings.Compare(string(a.Ref), string(b.Ref)) })
}

func (l *ledger) Write(o resource.Owned) error {
	if l.pull() {
		return errCut
	}
	l.now[o.Ref] = o
	return nil
}

func (l *ledger) Forget(ref resource.Ref) error {
	if l.pull() {
		return errCut
	}
	delete(l.now, ref)
	return nil
}

func (l *ledger) Sync() error {
	if l.left >= 0 {
		l.written = maps.Clone(l.now)
	}
	if l.pull() {
		return errCut
	}
	l.durable = maps.Clone(l.now)
	return nil
}

// crash leaves what is durable, or what the last sync had begun to write.
func (l *ledger) crash(written bool) {
	l.now = maps.Clone(l.durable)
	if written {
		l.now = maps.Clone(l.written)
	}
	l.durable, l.written = maps.Clone(l.now), maps.Clone(l.now)
}
