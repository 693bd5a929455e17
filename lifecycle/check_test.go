package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"muster.internal"
)

// key is a State that can be compared.
type key struct {
	core  core
	boots [2]Boot
	disks [2]Disk
}

func keyOf(s *State) (k key) {
	k.core = s.core()
	copy(k.boots[:], s.Boots)
	copy(k.disks[:], s.Disks)
	return k
}

// A step is something that the rules let happen.
type step struct {
	rules     *rules
	old, next *State
	info      *Info
	e         muster.Event
	m         int
	f         *Facts
}

// boot is the record that the step is about, before and after.
func (s *step) boot() (Boot, Boot) { return s.old.Boots[s.m], s.next.Boots[s.m] }
func (s *step) disk() (Disk, Disk) { return s.old.Disks[s.m], s.next.Disks[s.m] }

func (s *step) is(es ...muster.Event) bool { return slices.Contains(es, s.e) }

// A checker explores worlds and collects complaints.
type checker struct {
	r       *rules
	used    map[*anyRow]uint64 // which of its From states, as bits
	reached map[string]bool
	// stop ends the check at the first complaint.
	stop       bool
	now        step
	next       State
	complaints []complaint
	states     int
	steps      int
	sizes      []string // of each world, for people
}

// A complaint is what is wrong, and the shortest story that shows it.
type complaint struct{ what, story string }

// check explores every world; with stop, it ends at the first complaint.
func check(r *rules, ws []world, stop bool) *checker {
	c := &checker{r: r, stop: stop, used: map[*anyRow]uint64{},
		reached: map[string]bool{}}
	if c.form(); len(c.complaints) > 0 {
		return c // rules without form cannot be explored
	}
	for _, w := range ws {
		if c.done() {
			return c
		}
		c.explore(w)
	}
	if !c.done() {
		for _, w := range ws {
			for _, sc := range w.covers {
				c.dead(sc)
			}
		}
	}
	return c
}

func (c *checker) done() bool { return c.stop && len(c.complaints) > 0 }

// say keeps the first story for a complaint, which is the shortest.
func (c *checker) say(what, story string) {
	if !slices.ContainsFunc(c.complaints, func(k complaint) bool { return k.what == what }) {
		c.complaints = append(c.complaints, complaint{what, story})
	}
}

// combos are the facts with which each event is tried: a mutant is asked what
// the real rows are.
var combos = func() map[muster.Event][]Facts {
	m := map[muster.Event][]Facts{}
	for _, i := range table.events {
		m[i.Event] = combinations(table.hearing[i.Event])
	}
	return m
}()

// combinations lists every way in which the outside facts that an event's rows
// read may hold or not.
func combinations(hs []hearer) []Facts {
	var facts Facts
	var bits []*bool
	for _, h := range hs {
		for _, row := range h.rows {
			for _, f := range slices.Concat(row.When, row.Needs) {
				if f.reads != nil && !slices.Contains(bits, f.reads(&facts)) {
					bits = append(bits, f.reads(&facts))
				}
			}
		}
	}
	var all []Facts
	for n := range 1 << len(bits) {
		for i, b := range bits {
			*b = n>>i&1 == 0 // everything holds first
		}
		all = append(all, facts)
	}
	return all
}

// A path is how a state was come to.
type path struct {
	from int
	step *step
}

func (c *checker) explore(w world) {
	before := c.steps
	var states []*State
	var paths []path
	var edges [][]int32
	index := map[key]int{}
	add := func(s *State, p path) int {
		k := keyOf(s)
		i, known := index[k]
		if !known {
			i = len(states)
			index[k] = i
			kept := *s
			s = &kept
			if p.step != nil {
				kept := *p.step
				p.step = &kept
			}
			states, paths, edges = append(states, s), append(paths, p), append(edges, nil)
		}
		return i
	}
	story := func(i int, last string) string {
		var words []string
		if last != "" {
			words = append(words, last)
		}
		for ; paths[i].from >= 0; i = paths[i].from {
			words = append(words, paths[i].step.String())
		}
		slices.Reverse(words)
		return fmt.Sprintf("with %s: %s", w.name, strings.Join(words, ", "))
	}
	for i := range w.starts {
		add(&w.starts[i], path{-1, nil})
	}
	for i := 0; i < len(states) && !c.done(); i++ {
		s := states[i]
		for _, p := range promised.never {
			if p.broken(s) {
				c.say(p.name, story(i, ""))
			}
		}
		c.wedged(s, func(what string) { c.say(what, story(i, "")) })
		for n := range c.r.events {
			info := &c.r.events[n]
			if slices.Contains(w.skip, info.Event) {
				continue
			}
			c.try(s, info, func(st *step) {
				c.steps++
				if done := after[st.e]; !done(st.next, st.m) {
					c.say(fmt.Sprintf("%s does not lead where it should", st.e), story(i, st.String()))
				}
				for _, p := range promised.step {
					if p.broken(st) {
						c.say(p.name, story(i, st.String()))
					}
				}
				c.listen(st, func(what string) { c.say(what, story(i, st.String())) })
				j := add(st.next, path{i, st})
				if !slices.Contains(edges[i], int32(j)) {
					edges[i] = append(edges[i], int32(j))
				}
			}, func(st *step) {
				for _, p := range promised.possible {
					if p.broken(st) {
						c.say(p.name, story(i, st.String()))
					}
				}
			})
		}
	}
	c.states += len(states)
	c.sizes = append(c.sizes, fmt.Sprintf("%s: %d states, %d steps", w.name, len(states), c.steps-before))
	if c.done() || len(w.skip) > 0 {
		return
	}
	for _, p := range promised.always {
		if i := unreachable(states, edges, p.is, p.excused); i >= 0 {
			c.say(p.name, story(i, ""))
		}
	}
}

// try raises one event on every member and under every combination of facts.
// The step that it hands on is good until the next.
func (c *checker) try(s *State, info *Info, accepted, refused func(*step)) {
	from, to := -1, 0
	if n := info.members(s); n >= 0 {
		from, to = 0, n
	}
	owner := c.r.hearing[info.Event][0]
	for m := from; m < to; m++ {
		combos := combos[info.Event]
		at := owner.l.at(s, m)
		if n := len(combos); n > 2 && !slices.ContainsFunc(owner.rows, func(r *anyRow) bool { return slices.Contains(r.From, at) }) {
			combos = []Facts{combos[0], combos[n-1]} // no fact will help
		}
		for n := range combos {
			next, ok, _ := c.r.step(s, info, m, &combos[n])
			c.now = step{c.r, s, &c.next, info, info.Event, m, &combos[n]}
			c.next = next
			if ok {
				accepted(&c.now)
			} else {
				refused(&c.now)
			}
		}
	}
}

// String tells a step: the event, its member, and the facts that do not hold.
func (s *step) String() string {
	t := string(s.e)
	if s.m >= 0 {
		t += fmt.Sprintf("[%d]", s.m)
	}
	return t
}

// listen checks that no follower is deaf, that no two rows compete, and notes
// which rows were used.
func (c *checker) listen(st *step, say func(string)) {
	hs := c.r.hearing[st.e]
	already := false
	for _, h := range hs {
		for m := range h.l.targets(st.old, st.info, st.m) {
			at, found := h.l.at(st.old, m), 0
			for _, row := range h.rows {
				if i := slices.Index(row.From, at); i >= 0 && every(row.When, st.old, m, st.f) {
					found++
					c.used[row] |= 1 << i
					already = already || row.Already
				}
			}
			if found == 0 {
				say(fmt.Sprintf("%s is deaf to %s in %q", h.l.name, st.e, at))
			}
			if found > 1 {
				say(fmt.Sprintf("%s has two rows for %s in %q", h.l.name, st.e, at))
			}
		}
		if already {
			return
		}
	}
}

// dead complains of rows, and of states, that never happen.
func (c *checker) dead(sc scope) {
	for _, l := range c.r.lifecycles {
		if l.scope != sc {
			continue
		}
		for i := range l.rows {
			row := &l.rows[i]
			for i, from := range row.From {
				if c.used[row]>>i&1 == 0 {
					c.say(fmt.Sprintf("never happens: %s in %q hears %s", l.name, from, row.On), row.Doc)
				}
			}
		}
		for _, p := range l.places {
			if !c.reached[l.name+"/"+p.State] {
				c.say(fmt.Sprintf("never reached: %s %q", l.name, p.State), "")
			}
		}
	}
}

// form checks what can be seen without exploring: who owns, who may refuse.
func (c *checker) form() {
	for _, i := range c.r.events {
		if hs := c.r.hearing[i.Event]; len(hs) == 0 || !hs[0].owner || len(hs[0].rows) == 0 {
			c.say(fmt.Sprintf("nobody owns %s", i.Event), "")
		}
	}
	for _, i := range c.r.events {
		if !slices.Contains(mayRaise[i.By], i.Event) {
			c.say(fmt.Sprintf("%s is not for %s to raise", i.Event, i.By), "")
		}
	}
	for _, l := range c.r.lifecycles {
		for _, p := range l.places {
			var after time.Duration
			if p.End != nil {
				after = p.End.After
			}
			want, ends := mustEnd[l.name+"/"+p.State]
			if p.End != nil && after == 0 && p.End.Unless == nil {
				c.say(fmt.Sprintf("%s in %q never rests", l.name, p.State), "")
			}
			if ends != (p.End != nil) || after != want.after || ends && p.End.Out != want.out {
				c.say(fmt.Sprintf("%s in %q does not end as promised", l.name, p.State), "")
			}
		}
		for _, row := range l.rows {
			i := c.r.info[row.On]
			switch {
			case i == nil:
				c.say(fmt.Sprintf("%s hears %s, which is no event", l.name, row.On), "")
			case i.Owner != l.name && (len(row.Needs) > 0 || row.Already):
				c.say(fmt.Sprintf("%s has conditions on %s and does not own it", l.name, row.On), "")
			}
		}
	}
}
