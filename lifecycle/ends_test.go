package lifecycle

import (
	"fmt"

	"muster.internal"
)

// wedged complains of a state that is no rest and has no way on.
func (c *checker) wedged(s *State, say func(string)) {
	for _, l := range c.r.lifecycles {
		for m := range l.targets(s, &Info{}, -1) {
			at := l.at(s, m)
			p := l.place(at)
			if p == nil {
				say(fmt.Sprintf("%s has no state %q", l.name, at))
				continue
			}
			c.reached[l.name+"/"+at] = true
			end := p.End
			if end == nil || end.Unless != nil && end.Unless.holds(s, m, &everything) {
				continue
			}
			next, ok := c.raise(s, l, m, end.Raises)
			switch {
			case !ok:
				say(fmt.Sprintf("%s wedges in %q: %s is refused", l.name, at, end.Raises))
			case l.at(&next, m) != end.Leads:
				say(fmt.Sprintf("%s in %q: %s leads to %q", l.name, at, end.Raises, l.at(&next, m)))
			case end.After == 0 && end.Unless != nil && !end.Unless.holds(&next, m, &everything):
				say(fmt.Sprintf("%s in %q does not rest after %s", l.name, at, end.Raises))
			}
			if by := c.r.info[end.Raises].By; by != Clock && end.After > 0 || by != Control && end.After == 0 {
				say(fmt.Sprintf("%s in %q: %s is not for %s to raise", l.name, at, end.Raises, by))
			}
			if end.Out == "" {
				continue
			}
			if next, ok := c.raise(s, l, m, end.Out); !ok || l.at(&next, m) == at || c.r.info[end.Out].By != Operator {
				say(fmt.Sprintf("%s in %q: %s is no way out", l.name, at, end.Out))
			}
		}
	}
}

// raise applies an event for member m of l, everything outside permitting.
func (c *checker) raise(s *State, l *lifecycle, m int, e muster.Event) (State, bool) {
	switch n := c.r.info[e].members(s); {
	case n < 0:
		m = -1
	case m < 0 || m >= n:
		return *s, false
	}
	next, ok, _ := c.r.step(s, c.r.info[e], m, &everything)
	return next, ok
}

func (l *lifecycle) place(at string) *anyPlace {
	for i := range l.places {
		if l.places[i].State == at {
			return &l.places[i]
		}
	}
	return nil
}

// unreachable finds the first state from which none that is is can be reached.
func unreachable(states []*State, edges [][]int32, is, excused func(*State) bool) int {
	back := make([][]int32, len(states))
	for i, es := range edges {
		for _, j := range es {
			back[j] = append(back[j], int32(i))
		}
	}
	can := make([]bool, len(states))
	var todo []int32
	for i, s := range states {
		if is(s) {
			can[i] = true
			todo = append(todo, int32(i))
		}
	}
	for len(todo) > 0 {
		j := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, i := range back[j] {
			if !can[i] {
				can[i] = true
				todo = append(todo, i)
			}
		}
	}
	for i, s := range states {
		if !can[i] && (excused == nil || !excused(s)) {
			return i
		}
	}
	return -1
}
