package lifecycle

import (
	"fmt"
	"slices"

	"muster.internal"
)

// A mutant is the rules with one small thing changed.
type mutant struct {
	kind   string // what was changed: a lifecycle, or who raises an event
	what   string
	scope  scope
	events []Info
	rows   []*lifecycle
}

// mutants yields every small change of the rows: a row, one of its states or
// conditions dropped, its target changed, one more state let in; an event
// given to somebody else; the end of a state forgotten or sent elsewhere.
func mutants(yield func(mutant)) {
	for i := range events() {
		for _, by := range Actors {
			es := events()
			if was := es[i].By; by != was {
				es[i].By = by
				yield(mutant{"who raises it", fmt.Sprintf("%s raised by %s instead of %s", es[i].Event, by, was), perMachine, es, lifecycles()})
			}
		}
	}
	for i, l := range lifecycles() {
		mutateRows(l, func(what string, rows []anyRow) {
			ls := lifecycles()
			ls[i].rows = rows
			yield(mutant{l.name, l.name + ": " + what, l.scope, events(), ls})
		})
		mutateEnds(l, func(what string, places []anyPlace) {
			ls := lifecycles()
			ls[i].places = places
			yield(mutant{l.name, l.name + ": " + what, l.scope, events(), ls})
		})
	}
}

func mutateRows(l *lifecycle, yield func(string, []anyRow)) {
	for j, r := range l.rows {
		name := fmt.Sprintf("%q hears %s", r.From, r.On)
		change := func(what string, change func(*anyRow)) {
			rows := slices.Clone(l.rows)
			change(&rows[j])
			yield(name+" "+what, rows)
		}
		yield(name+" dropped", slices.Delete(slices.Clone(l.rows), j, j+1))
		if len(r.From) > 1 {
			for k, from := range r.From {
				change(fmt.Sprintf("without %q", from), func(r *anyRow) { r.From = slices.Delete(slices.Clone(r.From), k, k+1) })
			}
		}
		for k, f := range r.When {
			change("though not "+f.Name, func(r *anyRow) { r.When = slices.Delete(slices.Clone(r.When), k, k+1) })
			change("unless "+f.Name, func(r *anyRow) { r.When = slices.Clone(r.When); r.When[k] = not(f) })
		}
		for k, f := range r.Needs {
			change("without need of "+f.Name, func(r *anyRow) { r.Needs = slices.Delete(slices.Clone(r.Needs), k, k+1) })
			change("needing not "+f.Name, func(r *anyRow) { r.Needs = slices.Clone(r.Needs); r.Needs[k] = not(f) })
		}
		for _, p := range l.places {
			if !(r.Stay || r.Already) && p.State != r.To || (r.Stay || r.Already) && !slices.Equal(r.From, []string{p.State}) {
				change(fmt.Sprintf("and goes to %q", p.State), func(r *anyRow) { r.To, r.Stay, r.Already = p.State, false, false })
			}
			if !l.owns(r.On) {
				continue // a follower that let in one more state would only have a row that never happens
			}
			if heard := slices.ContainsFunc(l.rows, func(o anyRow) bool { return o.On == r.On && slices.Contains(o.From, p.State) }); !heard {
				change(fmt.Sprintf("from %q too", p.State), func(r *anyRow) { r.From = append(slices.Clone(r.From), p.State) })
			}
		}
		if !r.Stay && !r.Already {
			change("and stays", func(r *anyRow) { r.Stay = true })
		}
	}
}

func mutateEnds(l *lifecycle, yield func(string, []anyPlace)) {
	for j, p := range l.places {
		if p.End == nil {
			continue
		}
		change := func(what string, change func(*anyPlace)) {
			places := slices.Clone(l.places)
			end := *p.End
			places[j].End = &end
			change(&places[j])
			yield(fmt.Sprintf("%q %s", p.State, what), places)
		}
		change("never ends", func(p *anyPlace) { p.End = nil })
		change("ends by nobody", func(p *anyPlace) { p.End.Raises = Sight })
		if p.End.Out != "" {
			change("has no way out", func(p *anyPlace) { p.End.Out = "" })
			change("has another way out", func(p *anyPlace) { p.End.Out = SetRecord })
		}
		change("may last another time", func(p *anyPlace) { p.End.After += 1 })
		for _, q := range l.places {
			if q.State != p.End.Leads {
				change(fmt.Sprintf("leads to %q", q.State), func(p *anyPlace) { p.End.Leads = q.State })
			}
		}
		if p.End.Unless != nil {
			change("never rests", func(p *anyPlace) { p.End.Unless = nil })
			change("rests too early", func(p *anyPlace) { p.End.Unless = not(p.End.Unless) })
		}
	}
}

func (l *lifecycle) owns(e muster.Event) bool { return table.info[e].Owner == l.name }
