package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	muster "muster.internal"
	"muster.internal/lifecycle"
)

// unwalked are an operator's transitions that the walk cannot make, each with
// what it takes. docs/walk.md ends with them.
var unwalked = map[string]string{
	"resume on 'graceful_remove'":  "a removal that is held up by what is placed on the node: that of an empty one is over within a second",
	"expunge on 'graceful_remove'": "a removal that is held up, too",
}

// unheard are events of machines, clocks and the control plane that do not
// happen in the walk, each with what it takes.
var unheard = map[muster.Event]string{
	lifecycle.Void:         "two connections that claim one machine's name while it is set up",
	lifecycle.StartProbe:   "an allowlist of service tags",
	lifecycle.Dismiss:      "firmware that tells a service tag which is not on the allowlist",
	lifecycle.ExpireProbe:  "firmware that never tells its service tag",
	lifecycle.ExpireRecord: "a card that the policy admitted, and behind which no machine says who it is",
}

// leftOut ends the page with what is not walked.
func (w *walk) leftOut() {
	w.page.WriteString("\n## What is not walked\n\nThese changes take more than a command and the time that passes here:\n\n| change | what it takes |\n|---|---|\n")
	for _, key := range sortedKeys(unwalked) {
		event, from, _ := strings.Cut(key, " on ")
		fmt.Fprintf(&w.page, "| an operator's `%s` in `%s` | %s |\n", event, strings.Trim(from, "'"), unwalked[key])
	}
	for _, e := range slices.Sorted(maps.Keys(unheard)) {
		fmt.Fprintf(&w.page, "| `%s` | %s |\n", e, unheard[e])
	}
}

// covered compares what happened with the lifecycles' own rows: each transition
// that an operator can make, and each event of all others.
func (w *walk) covered() {
	n := 0
	for _, x := range lifecycle.Transitions(lifecycle.Operator) {
		key := fmt.Sprintf("%s on '%s'", x.Event, x.From)
		switch {
		case x.Verb == "": // nobody can say it
		case w.walked[key]:
			n++
			if unwalked[key] != "" {
				w.t.Errorf("%s is walked: take it out of unwalked", key)
			}
		case unwalked[key] == "":
			w.t.Errorf("no step of testdata/walk.txt makes an operator's %s, which leads to '%s'", key, x.To)
		}
	}
	events := 0
	for _, i := range lifecycle.Events() {
		switch {
		case i.By == lifecycle.Operator:
		case w.happened[i.Event]:
			events++
			if unheard[i.Event] != "" {
				w.t.Errorf("%s happens: take it out of unheard", i.Event)
			}
		case unheard[i.Event] == "":
			w.t.Errorf("nothing in testdata/walk.txt leads to %s, by the %s", i.Event, i.By)
		}
	}
	w.t.Logf("%d transitions by operators and %d events of others were walked; %d and %d were not", n, events, len(unwalked), len(unheard))
}

// before is how everything stands: by lifecycle, and the audit's subject.
type before map[[2]string]string

// states asks how everything stands.
func (w *walk) states() before {
	f, all := w.dev.Fleet(), before{}
	ctx := w.t.Context()
	w.registrations(ctx, f, all)
	recs, err := f.BootRecords(ctx, muster.BootFilter{})
	w.ok(err)
	for _, r := range recs {
		of := "boot-record/" + r.MAC
		all[[2]string{"boot record", of}] = string(r.State)
		all[[2]string{"mode", of}] = string(r.Mode)
		if r.AssignedPI != nil {
			all[[2]string{"assigned image", of}] = string(lifecycle.Assigned)
		}
		// The machines are given addresses in the order in which they ask.
		if n, err := strconv.Atoi(strings.TrimPrefix(r.MAC, "52:54:00:77:00:")); err == nil && r.Address != "" {
			fixed := fmt.Sprintf("127.77.0.%d", 15+n)
			w.names[r.Address+"/16"], w.names[", address "+r.Address+"\n"] = fixed+"/16", ", address "+fixed+"\n"
		}
	}
	nodes, err := f.Nodes(ctx)
	w.ok(err)
	for _, n := range nodes {
		all[[2]string{"node policy", "node/" + n.ID}] = string(n.Policy)
		d, err := f.Node(ctx, n.ID)
		w.ok(err)
		w.ids["NODE("+d.Serial+")"] = n.ID
		for _, k := range d.Disks {
			all[[2]string{"disk policy", "disk/" + k.ID}] = string(k.Policy)
			w.ids["DISK("+k.Disk.Serial+")"] = k.ID
		}
	}
	ms, err := f.Machines(ctx, muster.MachineFilter{})
	w.ok(err)
	for _, m := range ms {
		all[[2]string{"machine", "machine/" + m.ID}] = string(m.State)
	}
	return all
}

func (w *walk) registrations(ctx context.Context, f muster.Fleet, all before) {
	regs, err := f.Registrations(ctx, muster.RegistrationFilter{})
	w.ok(err)
	for _, r := range regs {
		of := "registration/" + r.ServerUUID
		all[[2]string{"registration", of}] = string(r.State)
		if r.State != muster.Disabled {
			continue
		}
		whole, err := f.Registration(ctx, r.ServerUUID)
		w.ok(err)
		if whole.Tombstone != nil {
			all[[2]string{"tombstone", of}] = string(lifecycle.Tombstoned)
		}
	}
}

func (w *walk) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// owners are the lifecycles that must accept each event.
func owners() map[muster.Event]string {
	all := map[muster.Event]string{}
	for _, i := range lifecycle.Events() {
		all[i.Event] = i.Owner
	}
	return all
}

// note writes down which events the audit holds since, and of an operator's
// from which state.
func (w *walk) note(was before) {
	is, owner := w.states(), owners()
	entries, err := w.dev.Fleet().Audit(w.t.Context(), muster.AuditFilter{After: w.seq})
	w.ok(err)
	for _, e := range entries {
		w.seq = max(w.seq, e.Seq)
		w.happened[muster.Event(e.Action)] = true
		if !strings.HasPrefix(e.Actor, "operator:") {
			continue
		}
		if e.Action != string(lifecycle.SetRecord) {
			w.walk(muster.Event(e.Action), was[[2]string{owner[muster.Event(e.Action)], e.Subject}])
			continue
		}
		// One entry for all that is set at once: what changed tells the events.
		for kind, events := range map[string]map[string]muster.Event{
			"boot record":    {string(muster.Discovered): lifecycle.SetRecord},
			"mode":           {string(muster.RescueMode): lifecycle.RescueOn, string(muster.NormalMode): lifecycle.RescueOff},
			"assigned image": {string(lifecycle.Assigned): lifecycle.Pin, "": lifecycle.Unpin},
		} {
			if at := [2]string{kind, e.Subject}; was[at] != is[at] {
				w.walk(events[is[at]], was[at])
			}
		}
	}
}

func (w *walk) walk(e muster.Event, from string) { w.walked[fmt.Sprintf("%s on '%s'", e, from)] = true }
