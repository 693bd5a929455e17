package world

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Scenario is what happens to a fleet from outside.
type Scenario struct {
	Comment []string
	Seed    uint64
	Until   time.Duration // when everything must have come to rest
	Steps   []Step        // by time
}

// A Step is one thing that an operator does, or that goes wrong.
type Step struct {
	At    time.Duration
	Words []string
}

func (s Step) String() string { return "at " + spell(s.At) + " " + strings.Join(s.Words, " ") }

// spell writes a time without the zeros at its end.
func spell(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// String is the scenario as Parse reads it.
func (s Scenario) String() string {
	b := new(strings.Builder)
	for _, c := range s.Comment {
		fmt.Fprintln(b, "#", c)
	}
	fmt.Fprintln(b, "seed", s.Seed)
	for _, step := range s.Steps {
		fmt.Fprintln(b, step)
	}
	fmt.Fprintln(b, "until", spell(s.Until))
	return b.String()
}

// Parse reads a scenario: a line "seed N", lines "at TIME STEP", a line "until
// TIME". Lines that begin with # are comments, and those that begin with a space
// are a transcript, which is passed over. Steps are:
//
//	adopt MACHINE [LABEL=VALUE]...     a machine comes, with a token
//	label MACHINE LABEL=VALUE...
//	want MODULE VERSION                of those that Modules names
//	unwant MODULE
//	node MACHINE EVENT                 quiesce, resume, no_provision, graceful_remove, expunge
//	readd MACHINE [LABEL=VALUE]...     the same hardware, wiped, comes again
//	twin MACHINE                       another one comes with its UUID
//	net [loss=P] [twice=P] [delay=D]   what the network is from now on; bare: good
//	away MACHINE D                     nothing comes through to it
//	off MACHINE|all D                  no power
//	cut MACHINE N                      its power goes in the N-th effect from now
//	lie MACHINE N                      the next N effects do nothing, and say that they did
//	jump MACHINE D                     its clock is set
//	sick MACHINE MODULE D              nothing of it is healthy there
//	pull MACHINE N, plug MACHINE N     a disk
//	kill D, kill_on_commit D           the control plane, at once or between a commit and what it sends
func Parse(text io.Reader) (s Scenario, err error) {
	in := bufio.NewScanner(text)
	for n := 1; in.Scan(); n++ {
		words := strings.Fields(in.Text())
		wrong := func(what string) error { return fmt.Errorf("line %d: %q: %s", n, in.Text(), what) }
		switch {
		case len(words) == 0, strings.HasPrefix(in.Text(), " "):
		case strings.HasPrefix(in.Text(), "#"):
			s.Comment = append(s.Comment, strings.TrimSpace(in.Text()[1:]))
		case words[0] == "seed" && len(words) == 2:
			if s.Seed, err = strconv.ParseUint(words[1], 10, 64); err != nil {
				return s, wrong("a seed is a number")
			}
		case words[0] == "until" && len(words) == 2:
			if s.Until, err = time.ParseDuration(words[1]); err != nil {
				return s, wrong("until when?")
			}
		case words[0] == "at" && len(words) > 2:
			step := Step{Words: words[2:]}
			if step.At, err = time.ParseDuration(words[1]); err != nil {
				return s, wrong("at what time?")
			}
			if err := step.check(); err != nil {
				return s, wrong(err.Error())
			}
			s.Steps = append(s.Steps, step)
		default:
			return s, wrong("is neither seed, nor at, nor until")
		}
	}
	slices.SortStableFunc(s.Steps, func(a, b Step) int { return int(a.At - b.At) })
	return s, in.Err()
}

// words is how many a step has at least, and what the last one is.
var words = map[string]struct {
	least int
	last  string
}{
	"adopt": {2, ""}, "label": {3, ""}, "want": {3, "number"}, "unwant": {2, ""}, "node": {3, ""}, "readd": {2, ""}, "twin": {2, ""}, "net": {1, ""},
	"away": {3, "time"}, "off": {3, "time"}, "cut": {3, "number"}, "lie": {3, "number"}, "jump": {3, "time"}, "sick": {4, "time"}, "pull": {3, "number"}, "plug": {3, "number"},
	"kill": {2, "time"}, "kill_on_commit": {2, "time"},
}

func (s Step) check() error {
	w, known := words[s.Words[0]]
	last := s.Words[len(s.Words)-1]
	switch {
	case !known:
		return fmt.Errorf("there is no step %q", s.Words[0])
	case len(s.Words) < w.least:
		return fmt.Errorf("%s has %d words", s.Words[0], w.least)
	case w.last == "number":
		_, err := strconv.Atoi(last)
		return err
	case w.last == "time":
		_, err := time.ParseDuration(last)
		return err
	case s.Words[0] == "net":
		_, err := parseNetwork(s.Words[1:])
		return err
	case s.Words[0] == "want" && catalogue[s.Words[1]] == "":
		return fmt.Errorf("there is no module %q", s.Words[1])
	}
	return nil
}

func parseNetwork(words []string) (n network, err error) {
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "loss":
			n.loss, err = strconv.ParseFloat(value, 64)
		case "twice":
			n.twice, err = strconv.ParseFloat(value, 64)
		case "delay":
			n.delay, err = time.ParseDuration(value)
		default:
			err = fmt.Errorf("a network has no %q", name)
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// labels reads LABEL=VALUE words.
func labels(words []string) map[string]string {
	all := map[string]string{}
	for _, word := range words {
		k, v, _ := strings.Cut(word, "=")
		all[k] = v
	}
	return all
}
