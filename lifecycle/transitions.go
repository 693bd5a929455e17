package lifecycle

import "muster.internal"

// A Transition is one change of state that an event makes in the lifecycle that
// owns it.
type Transition struct {
	Event    muster.Event
	Subject  Subject
	Verb     string // how an operator says it; empty: nobody can, yet
	From, To string
}

// Transitions lists what an actor's events change, in the order of the rows;
// what leaves the state as it is, is not listed.
func Transitions(by Actor) []Transition {
	var all []Transition
	seen := map[Transition]bool{}
	for _, i := range table.events {
		if i.By != by {
			continue
		}
		for _, l := range table.lifecycles {
			if l.name != i.Owner {
				continue
			}
			for _, r := range l.rows {
				if r.On != i.Event || r.Stay || r.Already {
					continue
				}
				for _, from := range r.From {
					t := Transition{i.Event, i.Subject, i.Verb, from, r.To}
					if from != r.To && !seen[t] {
						seen[t] = true
						all = append(all, t)
					}
				}
			}
		}
	}
	return all
}
