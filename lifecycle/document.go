package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// draw is the lifecycle as a Mermaid diagram. What leaves the state as it is,
// is not drawn.
func (l *lifecycle) draw() string {
	b := new(strings.Builder)
	b.WriteString("stateDiagram-v2\n")
	id := func(state string) string { return strings.ReplaceAll(word(state), " ", "_") }
	for _, p := range l.places {
		if id(p.State) != word(p.State) {
			fmt.Fprintf(b, "    state %q as %s\n", word(p.State), id(p.State))
		}
	}
	for _, from := range l.places {
		for _, to := range l.places {
			var es []string
			for _, r := range l.rows {
				if !r.Stay && !r.Already && r.To == to.State && from.State != to.State && slices.Contains(r.From, from.State) && !slices.Contains(es, string(r.On)) {
					es = append(es, string(r.On))
				}
			}
			if len(es) > 0 {
				fmt.Fprintf(b, "    %s --> %s : %s\n", id(from.State), id(to.State), strings.Join(es, ", "))
			}
		}
	}
	return b.String()
}

// word is a state by name.
func word(state string) string {
	if state == "" {
		return "none"
	}
	return state
}

// Document is everything that the rows say, for people, as Markdown.
func Document() string {
	d := &document{}
	d.line("# Lifecycles")
	d.line("")
	d.line("A machine does not have one lifecycle, it has several, on different keys. They advance on their own and meet only in the [joints](#joints). " +
		"All of them hear an event and look only at the state before it; the event's owner must accept it, the others follow. " +
		"Whoever repeats what has been done succeeds, and nothing changes. Whoever is refused is told the state, the reason, and what could be done instead.")
	d.line("")
	d.line("This page is generated from the rows in package `lifecycle`, which are what the programs run: `go test ./lifecycle -run Docs -update` rewrites it.")
	d.raised()
	d.deadlines()
	d.joints()
	for _, l := range table.lifecycles {
		d.lifecycle(l)
	}
	return d.String()
}

type document struct{ strings.Builder }

func (d *document) line(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

// title starts a section.
func (d *document) title(level int, format string, args ...any) {
	d.line("\n%s %s\n", strings.Repeat("#", level), fmt.Sprintf(format, args...))
}

// head starts a table.
func (d *document) head(columns ...string) {
	d.row(columns...)
	d.line("|%s", strings.Repeat("---|", len(columns)))
}

func (d *document) row(cells ...string) { d.line("| %s |", strings.Join(cells, " | ")) }

func (d *document) raised() {
	d.title(2, "Who may raise what")
	d.line("The route is what an operator says to the API, `POST /v1/<subject>/<key>/<verb>` unless a method is named; the command line uses the same verbs, and `rm` for `DELETE`. What has none is said by the programs among themselves, or not yet.")
	for _, by := range Actors {
		d.title(3, "%s", sentence(string(by)))
		d.head("event", "about", "route", "what it does")
		for _, i := range table.events {
			if i.By == by {
				d.row(mono(i.Event), subjects[i.Subject], i.route(), sentence(i.Doc))
			}
		}
	}
}

var subjects = map[Subject]string{Registrations: "registration", BootRecords: "boot record", Nodes: "node", Disks: "disk", Machines: "machine"}

// route is how the API spells an event.
func (i Info) route() string {
	switch i.Verb {
	case "":
		return ""
	case "set":
		return "`PATCH`"
	case "delete":
		return "`DELETE`"
	case "approve":
		return "`POST /v1/claim-codes/approve`"
	}
	return "`" + i.Verb + "`"
}

func (d *document) deadlines() {
	d.title(2, "Deadlines")
	d.line("Whatever is not at rest has an end. A clock ends these:")
	d.line("")
	d.head("lifecycle", "state", "lasts", "then", "which leads to", "a way out before")
	for _, l := range table.lifecycles {
		for _, p := range l.places {
			if e := p.End; e != nil && e.After > 0 {
				lasts := duration(e.After)
				if e.Unless != nil {
					lasts += ", unless " + e.Unless.Is
				}
				d.row(l.name, mono(word(p.State)), lasts, mono(e.Raises), mono(word(e.Leads)), mono(e.Out))
			}
		}
	}
	d.line("\nA rescue may be given another time, at most %s. These wait for the world, and the control plane tries again on every pass:\n", duration(RescueAtMost))
	d.head("lifecycle", "state", "until", "by", "a way out before")
	for _, l := range table.lifecycles {
		for _, p := range l.places {
			if p.End != nil && p.End.After == 0 {
				out := "none: it is one-way"
				if p.End.Out != "" {
					out = mono(p.End.Out)
				}
				d.row(l.name, mono(word(p.State)), p.End.Unless.Is, mono(p.End.Raises), out)
			}
		}
	}
}

// joints are the events that move more than one lifecycle.
func (d *document) joints() {
	d.title(2, "Joints")
	d.line("These events move more than one lifecycle, in one transaction:")
	d.line("")
	d.head("event", "moves")
	for _, i := range table.events {
		var moves []string
		for _, h := range table.hearing[i.Event] {
			if slices.ContainsFunc(h.rows, func(r *anyRow) bool { return !r.Stay && !r.Already }) {
				moves = append(moves, h.l.name)
			}
		}
		if len(moves) > 1 {
			d.row(mono(i.Event), strings.Join(moves, ", "))
		}
	}
}

func (d *document) lifecycle(l *lifecycle) {
	d.title(2, "%s", sentence(l.name))
	d.line("%s: one %s.\n", sentence(l.doc), [...]string{"per machine", "per NIC", "per disk"}[l.scope])
	d.line("```mermaid\n%s```\n", l.draw())
	d.head("state", "meaning")
	for _, p := range l.places {
		d.row(mono(word(p.State)), p.Doc)
	}
	d.line("")
	d.head("event", "from", "to", "if", "remarks")
	for _, r := range l.rows {
		to := mono(word(r.To))
		switch {
		case r.Already:
			to = "(done already)"
		case r.Stay:
			to = "(stays)"
		}
		d.row(mono(r.On), monos(r.From), to, conditions(r), r.Doc)
	}
}

func conditions(r anyRow) string {
	var cs []string
	for _, f := range slices.Concat(r.When, r.Needs) {
		cs = append(cs, f.Is)
	}
	return strings.Join(cs, "; ")
}

func mono[S ~string](s S) string { return "`" + string(s) + "`" }

func monos(states []string) string {
	var cs []string
	for _, s := range states {
		cs = append(cs, mono(word(s)))
	}
	return strings.Join(cs, ", ")
}

func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func duration(d time.Duration) string {
	if d%time.Hour == 0 {
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d min", d/time.Minute)
}

// Help is an operator's events about a subject that have a verb, for the
// command line and the API: the verb and its sentence.
func Help(on Subject) []Info {
	var is []Info
	for _, i := range table.events {
		if i.Subject == on && i.By == Operator && i.Verb != "" {
			is = append(is, i)
		}
	}
	return is
}
