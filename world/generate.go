package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A generator makes up what operators do and what goes wrong. It knows only what
// it has said itself, and leaves enough machines for everything to have a place.
type generator struct {
	dice  *rand.Rand
	s     Scenario
	now   time.Duration
	racks map[string]string
	in    []string // machines that serve
	left  []string // and those that were removed
	wants map[string]int
	ends  time.Duration // of what goes wrong for a time
}

// enough machines must serve for all replicas to have room in all racks.
const enough = 4

// Generate makes the scenario of a seed: some days of a small fleet, with faults,
// and then rest.
func Generate(seed uint64) Scenario {
	g := &generator{dice: rand.New(rand.NewPCG(seed, 1)), s: Scenario{Seed: seed}, racks: map[string]string{}, wants: map[string]int{}}
	for _, m := range []string{"time", "db", "web", "one", "agent"} {
		if g.dice.IntN(5) > 0 {
			g.want(m)
		}
	}
	for n := range 5 + g.dice.IntN(4) {
		name := fmt.Sprintf("n%d", n+1)
		g.racks[name] = fmt.Sprintf("rack=r%d", n%3+1)
		g.now += g.upTo(10 * time.Minute)
		g.step("adopt %s %s", name, g.racks[name])
		g.in = append(g.in, name)
	}
	for range 10 + g.dice.IntN(16) {
		g.now += g.upTo(5 * time.Hour)
		if g.dice.IntN(2) == 0 {
			g.fault()
		} else {
			g.operator()
		}
	}
	g.now += g.upTo(time.Hour)
	g.step("net")
	slices.SortStableFunc(g.s.Steps, func(a, b Step) int { return int(a.At - b.At) })
	g.s.Until = max(g.now, g.ends) + 9*time.Hour
	return g.s
}

func (g *generator) upTo(d time.Duration) time.Duration {
	return time.Duration(g.dice.Int64N(int64(d/time.Second))+1) * time.Second
}

func (g *generator) step(format string, args ...any) {
	g.s.Steps = append(g.s.Steps, Step{g.now, strings.Fields(fmt.Sprintf(format, args...))})
}

func (g *generator) one(all []string) string { return all[g.dice.IntN(len(all))] }

// lasts is for how long something goes wrong.
func (g *generator) lasts(most time.Duration) time.Duration {
	d := g.upTo(most)
	g.ends = max(g.ends, g.now+d)
	return d
}

func (g *generator) want(module string) {
	g.wants[module]++
	g.step("want %s %d", module, g.wants[module])
}

// operator does something.
func (g *generator) operator() {
	name := g.one(g.in)
	switch n := g.dice.IntN(12); {
	case n < 3:
		g.want(g.one([]string{"time", "db", "web", "one", "agent"}))
	case n == 3:
		if m := g.one([]string{"web", "one", "agent"}); g.wants[m] > 0 {
			g.step("unwant %s", m)
		}
	case n == 4:
		g.step("label %s zone=z%d", name, g.dice.IntN(3))
	case n == 5:
		g.step("twin %s", name)
	case n == 6:
		g.step("node %s no_provision", name)
		g.later(20*time.Hour, "node %s resume", name)
	case n == 7 && len(g.in) > enough:
		g.step("node %s quiesce", name)
		g.in = slices.DeleteFunc(g.in, func(o string) bool { return o == name })
		g.later(20*time.Hour, "node %s resume", name)
	case n < 10 && len(g.in) > enough:
		g.remove(name, g.one([]string{"graceful_remove", "expunge"}))
	case len(g.left) > 0:
		name = g.left[0]
		g.left = g.left[1:]
		g.step("readd %s %s", name, g.racks[name])
		g.in = append(g.in, name)
	}
}

// later adds a step for another time.
func (g *generator) later(within time.Duration, format string, args ...any) {
	at := g.now
	g.now += g.upTo(within)
	g.ends = max(g.ends, g.now)
	g.step(format, args...)
	g.now = at
}

func (g *generator) remove(name, event string) {
	g.step("node %s %s", name, event)
	g.in = slices.DeleteFunc(g.in, func(o string) bool { return o == name })
	g.left = append(g.left, name)
}

// fault has something go wrong.
func (g *generator) fault() {
	name := g.one(g.in)
	switch g.dice.IntN(12) {
	case 0, 1:
		g.step("net loss=0.%d twice=0.%d delay=%ds", g.dice.IntN(4), g.dice.IntN(4), 1+g.dice.IntN(40))
	case 2:
		g.step("net")
	case 3:
		g.step("off %s %s", name, spell(g.lasts(5*time.Hour)))
	case 4:
		g.step("cut %s %d", name, 1+g.dice.IntN(6))
	case 5:
		g.step("lie %s %d", name, 1+g.dice.IntN(4))
	case 6:
		g.step("jump %s %s", name, g.one([]string{"-3h", "26h", "40s", "-40s"}))
	case 7:
		g.step("away %s %s", name, spell(g.lasts(60*time.Hour)))
	case 8:
		g.step("%s %s", g.one([]string{"kill", "kill_on_commit"}), spell(g.lasts(20*time.Minute)))
	case 9:
		g.step("sick %s db %s", name, spell(g.lasts(2*time.Hour)))
	case 10:
		g.step("off all %s", spell(g.lasts(2*time.Hour)))
	case 11:
		g.step("pull %s 1", name)
		g.later(5*time.Hour, "plug %s 1", name)
	}
}
