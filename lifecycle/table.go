package lifecycle

import (
	"fmt"
	"slices"
	"time"

	"muster.internal"
)

// scope says how many there are of a lifecycle.
type scope int

const (
	perMachine scope = iota
	perRecord
	perDisk
)

// A row is one thing that may happen in one lifecycle, as it is written down.
// The words are typed, so that a state of another lifecycle does not compile.
type row[S ~string] struct {
	On   muster.Event
	From []S
	// When chooses among rows: without it the row is not there. An owner's
	// row may also have Needs: without them the event is refused.
	When  []*Fact
	Needs []*Fact
	To    S
	// Stay leaves the state as it is; what the event brings (a report, a
	// later deadline) is written down all the same.
	Stay bool
	// Already is the repetition of what has been done: success, and nothing
	// changes anywhere.
	Already bool
	Doc     string
}

// A place is one state of a lifecycle. It is a rest unless it has an end.
type place[S ~string] struct {
	State S
	Doc   string
	End   *end[S]
}

// An end says what a state waits for: a time, after which Raises happens, or,
// without a time, the control plane, which raises it again on every pass.
// Unless names what makes the state a rest after all.
type end[S ~string] struct {
	After  time.Duration
	Raises muster.Event
	Leads  S
	Out    muster.Event // an operator's way out before that
	Unless *Fact
}

// The same without types, as the machinery reads it.
type (
	anyRow struct {
		On            muster.Event
		From          []string
		When, Needs   []*Fact
		To            string
		Stay, Already bool
		Doc           string
	}
	anyPlace struct {
		State, Doc string
		End        *anyEnd
	}
	anyEnd struct {
		After  time.Duration
		Raises muster.Event
		Leads  string
		Out    muster.Event
		Unless *Fact
	}
)

// A lifecycle is a named table of rows, and the place where its state is kept.
type lifecycle struct {
	name   string
	doc    string
	scope  scope
	at     func(s *State, m int) string
	set    func(s *State, m int, to string)
	places []anyPlace
	rows   []anyRow
}

// define forgets the types.
func define[S ~string](name, doc string, sc scope, at func(s *State, m int) *S, places []place[S], rows []row[S]) *lifecycle {
	l := &lifecycle{name: name, doc: doc, scope: sc,
		at:  func(s *State, m int) string { return string(*at(s, m)) },
		set: func(s *State, m int, to string) { *at(s, m) = S(to) },
	}
	if !slices.ContainsFunc(places, func(p place[S]) bool { return p.State == "" }) {
		// A state that was never said is the first one.
		first, said := string(places[0].State), l.at
		l.at = func(s *State, m int) string {
			if at := said(s, m); at != "" {
				return at
			}
			return first
		}
	}
	for _, p := range places {
		q := anyPlace{State: string(p.State), Doc: p.Doc}
		if p.End != nil {
			q.End = &anyEnd{p.End.After, p.End.Raises, string(p.End.Leads), p.End.Out, p.End.Unless}
		}
		l.places = append(l.places, q)
	}
	for _, r := range rows {
		q := anyRow{r.On, nil, r.When, r.Needs, string(r.To), r.Stay, r.Already, r.Doc}
		for _, f := range r.From {
			q.From = append(q.From, string(f))
		}
		l.rows = append(l.rows, q)
	}
	return l
}

// in lists states.
func in[S ~string](states ...S) []S { return states }

// all lists facts.
func all(facts ...*Fact) []*Fact { return facts }

// match finds the row of l that e takes in old. Without one, unmet says what a
// row would need whose state is right.
func (l *lifecycle) match(rows []*anyRow, old *State, m int, f *Facts) (row *anyRow, unmet []*Fact) {
	at := l.at(old, m)
	for _, r := range rows {
		if !slices.Contains(r.From, at) || !every(r.When, old, m, f) {
			continue
		}
		if every(r.Needs, old, m, f) {
			return r, nil
		}
		for _, n := range r.Needs {
			if !n.holds(old, m, f) {
				unmet = append(unmet, n)
			}
		}
	}
	return nil, unmet
}

func every(facts []*Fact, s *State, m int, f *Facts) bool {
	for _, c := range facts {
		if !c.holds(s, m, f) {
			return false
		}
	}
	return true
}

// Rules are lifecycles that share events.
type rules struct {
	events     []Info
	lifecycles []*lifecycle

	info map[muster.Event]*Info
	// hearing has an event's hearers, the owner first.
	hearing map[muster.Event][]hearer
}

// A hearer is a lifecycle with the rows that an event has in it.
type hearer struct {
	l     *lifecycle
	rows  []*anyRow
	owner bool
}

// table is what everybody reads.
var table = compile(events(), lifecycles())

func compile(events []Info, ls []*lifecycle) *rules {
	r := &rules{events: events, lifecycles: ls, info: map[muster.Event]*Info{}, hearing: map[muster.Event][]hearer{}}
	for i := range events {
		e := &events[i]
		r.info[e.Event] = e
		for _, l := range ls {
			h := hearer{l: l, owner: l.name == e.Owner}
			for j := range l.rows {
				if l.rows[j].On == e.Event {
					h.rows = append(h.rows, &l.rows[j])
				}
			}
			switch {
			case h.owner:
				r.hearing[e.Event] = append([]hearer{h}, r.hearing[e.Event]...)
			case len(h.rows) > 0:
				r.hearing[e.Event] = append(r.hearing[e.Event], h)
			}
		}
	}
	return r
}

// lifecycles is the whole table.
func lifecycles() []*lifecycle {
	return slices.Concat(registrationRows(), machineRows(), bootRows(), nodeRows(), diskRows())
}

// Apply returns the state after e. Every lifecycle hears the event and looks
// only at the old state; the event's owner must accept it, the others follow.
// The member is the index of the boot record or disk that the event is about,
// -1 when it is about the machine. The error is a *Refusal, unless the event
// or the member does not exist.
func Apply(old State, e muster.Event, member int, facts Facts) (State, error) {
	return table.apply(old, e, member, &facts)
}

func (r *rules) apply(old State, e muster.Event, member int, f *Facts) (State, error) {
	info := r.info[e]
	if info == nil {
		return old, fmt.Errorf("no such event: %q", e)
	}
	if n := info.members(&old); n >= 0 && (member < 0 || member >= n) || n < 0 && member != -1 {
		return old, fmt.Errorf("%s is about %s, and there is no number %d of them", e, info.Subject, member)
	}
	next, accepted, unmet := r.step(&old, info, member, f)
	if !accepted {
		return old, r.refuse(&old, info, member, unmet)
	}
	return next, nil
}

// step is apply for an event and a member that exist.
func (r *rules) step(old *State, info *Info, member int, f *Facts) (next State, accepted bool, unmet []*Fact) {
	hs := r.hearing[info.Event]
	row, unmet := hs[0].l.match(hs[0].rows, old, member, f)
	switch {
	case row == nil:
		return *old, false, unmet
	case row.Already:
		return *old, true, nil
	}
	next = old.clone()
	for _, h := range hs {
		for m := range h.l.targets(old, info, member) {
			if row, _ := h.l.match(h.rows, old, m, f); row != nil && !row.Stay {
				h.l.set(&next, m, row.To)
			}
		}
	}
	return next, true, nil
}

// members is how many of the event's subject there are, -1 if it is about the
// machine as a whole.
func (i *Info) members(s *State) int {
	switch i.Subject {
	case BootRecords:
		return len(s.Boots)
	case Disks:
		return len(s.Disks)
	}
	return -1
}

// targets yields the members of l that hear an event: all of them when it is
// about the machine, the one that it names when it is about that one.
func (l *lifecycle) targets(s *State, i *Info, member int) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		switch {
		case l.scope == perMachine:
			yield(-1)
		case member >= 0:
			if (l.scope == perRecord) == (i.Subject == BootRecords) {
				yield(member)
			}
		default:
			n := len(s.Boots)
			if l.scope == perDisk {
				n = len(s.Disks)
			}
			for m := range n {
				if !yield(m) {
					return
				}
			}
		}
	}
}

// allowed lists what by may raise about a subject in s, the outside facts
// permitting, without what has been done already.
func (r *rules) allowed(s *State, by Actor, on Subject, member int) (es []muster.Event) {
	for i := range r.events {
		info := &r.events[i]
		hs := r.hearing[info.Event]
		if info.By != by || info.Subject != on {
			continue
		}
		if n := info.members(s); n >= 0 && (member < 0 || member >= n) {
			continue
		}
		f := everything
		if row, _ := hs[0].l.match(hs[0].rows, s, member, &f); row != nil && !row.Already {
			es = append(es, info.Event)
		}
	}
	return es
}

// everything holds, as far as the outside goes.
var everything = func() (f Facts) {
	for _, p := range f.all() {
		*p = true
	}
	return f
}()

// Events lists every event, in the order in which people should read them.
func Events() []Info { return slices.Clone(table.events) }

// Lookup finds an event.
func Lookup(e muster.Event) (Info, bool) {
	if i := table.info[e]; i != nil {
		return *i, true
	}
	return Info{}, false
}

// ByVerb finds the operator's event behind the last segment of a route.
func ByVerb(on Subject, verb string) (Info, bool) {
	for _, i := range table.events {
		if i.Subject == on && i.Verb == verb && verb != "" {
			return i, true
		}
	}
	return Info{}, false
}

// Words lists the states of a lifecycle that have a name, for CHECKs in SQL.
func Words(name string) []string {
	var words []string
	for _, l := range table.lifecycles {
		if l.name != name {
			continue
		}
		for _, p := range l.places {
			if p.State != "" {
				words = append(words, p.State)
			}
		}
	}
	return words
}
