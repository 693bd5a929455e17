package lifecycle

import (
	"fmt"
	"slices"
	"strings"

	"muster.internal"
)

// A Refusal says why an event cannot happen now, and what could instead. It is
// the body of a 409.
type Refusal struct {
	Event     muster.Event
	Lifecycle string  // the event's owner
	State     string  // that it is in; "none" when there is nothing
	Unmet     []*Fact // what would have to hold, the state being right
	Allowed   []muster.Event
	// Subject is the machine, record or disk by name, for the sentence. The
	// rows do not know it; whoever does may fill it in.
	Subject string

	verb  string
	verbs []string
}

func (r *rules) refuse(s *State, i *Info, m int, unmet []*Fact) *Refusal {
	l := r.hearing[i.Event][0].l
	f := &Refusal{Event: i.Event, Lifecycle: l.name, State: l.at(s, m), Unmet: unmet, verb: i.Verb,
		Allowed: r.allowed(s, i.By, i.Subject, m)}
	if f.State == "" {
		f.State = "none"
	}
	for _, e := range f.Allowed {
		if v := r.info[e].Verb; v != "" && !slices.Contains(f.verbs, v) {
			f.verbs = append(f.verbs, v)
		}
	}
	return f
}

// Error is a sentence: what cannot be done, to what, and why.
func (r *Refusal) Error() string {
	b := new(strings.Builder)
	verb := r.verb
	if verb == "" {
		verb = strings.ReplaceAll(string(r.Event), "_", "-")
	}
	subject := r.Subject
	if subject == "" {
		subject = "this machine"
	}
	fmt.Fprintf(b, "cannot %s %s: ", verb, subject)
	if len(r.Unmet) == 0 {
		fmt.Fprintf(b, "the %s is %s", r.Lifecycle, r.State)
		return b.String()
	}
	for i, f := range r.Unmet {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(f.Else)
	}
	return b.String()
}

// Reason is the sentence without what was tried, for a note on the subject.
func (r *Refusal) Reason() string {
	_, reason, _ := strings.Cut(r.Error(), ": ")
	return reason
}

// Problem is the refusal for whoever asked: a conflict with state, reason and
// the verbs that the same actor could use now; or, when nothing but fields of
// the request is wrong, a bad request that names them; or, when a gate is
// closed, forbidden.
func (r *Refusal) Problem() *muster.Problem {
	var fields []muster.FieldError
	for _, f := range r.Unmet {
		if f.Field != "" {
			fields = append(fields, muster.FieldError{Field: f.Field, Message: f.Else})
		}
	}
	if len(fields) > 0 && len(fields) == len(r.Unmet) {
		p := muster.Problemf(muster.CodeInvalid, "the request is not valid")
		p.Errors = fields
		return p
	}
	code := muster.CodeConflict
	if slices.ContainsFunc(r.Unmet, func(f *Fact) bool { return f.Closed }) {
		code = muster.CodeForbidden
	}
	p := muster.Problemf(code, "%s", r.Error())
	p.State, p.Allowed = r.State, r.verbs
	return p
}
