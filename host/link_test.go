package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"muster.internal"
	"muster.internal/resource"
)

var (
	errAway     = errors.New("no route")
	errToldTo   = errors.New("told to end")
	errRevoked  = muster.Problemf(muster.CodeUnauthenticated, "this key was disabled")
	errExpunged = &muster.Problem{Code: muster.CodeGone, Type: muster.TypeExpunged, Detail: "expunged: stolen"}
)

// declares is a declaration of one file, whose content says which it is.
func declares(generation int64, confirm string) *resource.Declaration {
	return &resource.Declaration{Generation: generation, Confirm: confirm, Resources: []resource.Resource{{File: &resource.File{Path: "/a", Content: fmt.Sprint(generation)}}}}
}

// named is a declaration in a log.
func named(d *resource.Declaration) string {
	if d == nil || len(d.Resources) == 0 {
		return "nothing"
	}
	return d.Resources[0].File.Content
}

// A life is an imaginary node's, in imaginary time, with a control plane whose
// behaviour is a function.
type life struct {
	plug   // pulled at an effect that lasts
	is     string
	unread error // why the state cannot be read, until then
	readAt time.Duration
	now    Moment
	ends   time.Duration
	held   Held
	lost   bool
	gone   bool   // the identity
	state  string // what the machine is made to be
	worst  resource.Outcome
	full   error            // why nothing can be applied
	heard  *resource.Report // the last that was delivered
	// The declaration that brings another version; and how often this one was
	// proven.
	updated string
	woken   string // what the machine is to be looked at for
	proven  int
	plane   func(l *life, call string, holds int64) (muster.LinkAnswer, error)
	log     []string
	calls   []time.Duration // of Next
}

func newLife(plane func(l *life, call string, holds int64) (muster.LinkAnswer, error)) *life {
	return &life{plug: plug{1 << 30}, now: Moment{time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC), "b1", time.Hour}, ends: 2 * time.Hour, plane: plane, worst: resource.OutcomeChanged}
}

func (l *life) note(format string, args ...any) {
	l.log = append(l.log, fmt.Sprintf("%s ", (l.now.Up-time.Hour).Round(time.Second))+fmt.Sprintf(format, args...))
}

func (l *life) pass(d time.Duration) { l.now.Up += d; l.now.Wall = l.now.Wall.Add(d) }

func (l *life) Moment() Moment { return l.now }
func (l *life) Dice() float64  { return 0.5 }
func (l *life) Say(s string)   {}
func (l *life) Pause(d time.Duration) error {
	if l.woken != "" {
		return nil
	}
	if l.pass(d); l.now.Up > l.ends {
		return errToldTo
	}
	return nil
}
func (l *life) Held() (Held, error) {
	if l.unread != nil && l.now.Up < l.readAt {
		return Held{}, l.unread
	}
	return l.held, nil
}
func (l *life) Hold(h Held) error {
	if l.pull() {
		panic(errCut)
	}
	l.held = h
	return nil
}
func (l *life) Lost() (bool, error) { return l.lost, nil }
func (l *life) Node() string        { return l.is }
func (l *life) Apply(d *resource.Declaration, trigger string) (resource.Report, error) {
	if l.pull() {
		panic(errCut)
	}
	l.state = named(d)
	l.note("apply %s %s", l.state, trigger)
	if l.full != nil {
		return resource.Report{}, l.full
	}
	return resource.Report{Generation: d.Generation, Trigger: trigger, Outcome: l.worst}, nil
}
func (l *life) Updated() bool { return l.updated != "" && l.updated == l.state }
func (l *life) Proven() error { l.proven++; return nil }
func (l *life) Reboot() error {
	l.note("reboot")
	return nil
}

func (l *life) Forget() error {
	if l.pull() {
		panic(errCut)
	}
	l.gone = true
	l.note("forget")
	return nil
}
func (l *life) call(what string) error {
	if l.pull() {
		panic(errCut)
	}
	_, err := l.plane(l, what, 0)
	return err
}
func (l *life) Certify(anew, rekey bool) error {
	what := "certify"
	if anew || rekey {
		what += fmt.Sprintf(" anew=%v rekey=%v", anew, rekey)
		l.note("%s", what)
	}
	return l.call(what)
}
func (l *life) Recover() error {
	l.note("recover")
	err := l.call("recover")
	if err == nil {
		l.lost = false
	}
	return err
}
func (l *life) Describe() error { return l.call("describe") }
func (l *life) Mirror() error   { return l.call("mirror") }
func (l *life) Health() error   { return l.call("health") }
func (l *life) Woken() string {
	defer func() { l.woken = "" }()
	return l.woken
}
func (l *life) Report(r resource.Report) error {
	err := l.call("report")
	if err == nil {
		l.heard = &r
		l.note("report %d %s %s", r.Generation, r.Trigger, r.Outcome)
	}
	return err
}
func (l *life) Next(holds int64) (muster.LinkAnswer, error) {
	l.calls = append(l.calls, l.now.Up)
	return l.plane(l, "next", holds)
}

// tells is a control plane that has declared this, and gives orders once.
func tells(d *resource.Declaration, orders ...muster.OrderKind) func(*life, string, int64) (muster.LinkAnswer, error) {
	return func(l *life, call string, holds int64) (a muster.LinkAnswer, err error) {
		a.NextSeconds = 100
		if call != "next" {
			return a, nil
		}
		if a.Orders, orders = orders, nil; a.Orders == nil && (d == nil || d.Generation == holds) {
			l.pass(20 * time.Second) // it waits in vain
		}
		if d != nil && d.Generation > holds {
			a.Generation, a.Declaration = d.Generation, d
		}
		return a, nil
	}
}

// until is one control plane before that time, and another after it.
func until(end time.Duration, before, after func(*life, string, int64) (muster.LinkAnswer, error)) func(*life, string, int64) (muster.LinkAnswer, error) {
	return func(l *life, call string, holds int64) (muster.LinkAnswer, error) {
		if l.now.Up-time.Hour < end {
			return before(l, call, holds)
		}
		return after(l, call, holds)
	}
}

func always(err error) func(*life, string, int64) (muster.LinkAnswer, error) {
	return func(*life, string, int64) (muster.LinkAnswer, error) { return muster.LinkAnswer{}, err }
}

// refusing takes offence at one kind of call.
func refusing(what string, then func(*life, string, int64) (muster.LinkAnswer, error)) func(*life, string, int64) (muster.LinkAnswer, error) {
	return func(l *life, call string, holds int64) (muster.LinkAnswer, error) {
		if call == what {
			return muster.LinkAnswer{}, muster.Problemf(muster.CodeTooLarge, "too much")
		}
		return then(l, call, holds)
	}
}

func holding(d *resource.Declaration) Held {
	h, err := Held{}.Accept(*d, Moment{})
	if err != nil {
		panic(err)
	}
	return h
}

func TestLinked(t *testing.T) {
	trial := holding(declares(5, "2m"))
	trial.Trial.Before = declares(4, "")
	trial.Trial.Since, trial.Trial.Applied = Moment{time.Date(2026, 11, 30, 7, 59, 0, 0, time.UTC), "b1", 59 * time.Minute}, true
	rebooted := trial
	of := *trial.Trial
	rebooted.Trial = &of
	rebooted.Trial.Since.Boot = "b0"
	cutShort := trial
	of2 := *trial.Trial
	of2.Applied, of2.Since.Up = false, 50*time.Minute
	cutShort.Trial = &of2
	for _, c := range []struct {
		name  string
		setUp func(*life)
		plane func(*life, string, int64) (muster.LinkAnswer, error)
		ends  time.Duration
		want  string
		err   error
	}{
		{name: "new, and nothing is declared", plane: tells(nil), want: ""},
		{name: "new, and told what to be", plane: tells(declares(1, "")), ends: 12 * time.Minute,
			want: "0s apply 1 declaration; 0s report 1 declaration changed; 10m0s apply 1 timer; 10m0s report 1 timer changed"},
		{name: "started again", setUp: func(l *life) { l.held = holding(declares(1, "")) }, plane: tells(declares(1, "")), ends: 9 * time.Minute,
			want: "0s apply 1 start; 0s report 1 start changed"},
		{name: "the control plane is away", setUp: func(l *life) { l.held = holding(declares(1, "")) }, plane: always(errAway), ends: 21 * time.Minute,
			want: "0s apply 1 start; 10m0s apply 1 timer; 20m0s apply 1 timer"},
		{name: "and comes back", setUp: func(l *life) { l.held = holding(declares(1, "")) }, plane: until(3*time.Minute, always(errAway), tells(declares(1, ""))), ends: 9 * time.Minute,
			want: "0s apply 1 start; 3m11s report 1 start changed; 3m31s apply 1 reconnect; 5m11s report 1 reconnect changed"},
		{name: "revoked for ever", setUp: func(l *life) { l.held = holding(declares(1, "")) }, plane: always(errRevoked), ends: 21 * time.Minute,
			want: "0s apply 1 start; 1s certify anew=true rekey=false; 7m31s certify anew=true rekey=false; 10m0s apply 1 timer; 15m1s certify anew=true rekey=false; 20m0s apply 1 timer"},
		{name: "cut off", setUp: func(l *life) { l.held = holding(declares(1, "")) }, plane: always(errExpunged), ends: time.Hour,
			want: "0s apply 1 start"},
		{name: "cut off, and started again", setUp: func(l *life) { l.held = holding(declares(1, "")); l.held.CutOff = "expunged" }, plane: always(errExpunged), ends: time.Hour, want: ""},
		{name: "no tombstone: a proxy says that it is gone", setUp: func(l *life) { l.held = holding(declares(1, "")) }, plane: always(muster.Problemf(muster.CodeGone, "")), ends: 11 * time.Minute,
			want: "0s apply 1 start; 10m0s apply 1 timer"},
		{name: "the store was lost", setUp: func(l *life) { l.lost = true; l.held = holding(declares(1, "")) }, plane: until(12*time.Minute, always(errAway), tells(declares(1, ""))), ends: 16 * time.Minute,
			want: "12m29s recover; 12m29s apply 1 start; 12m29s report 1 start changed; 12m49s apply 1 reconnect; 14m29s report 1 reconnect changed"},
		{name: "told to report", setUp: func(l *life) { l.held = holding(declares(1, "")) }, plane: tells(declares(1, ""), muster.OrderReportNow), ends: 9 * time.Minute,
			want: "0s apply 1 start; 0s report 1 start changed; 0s apply 1 asked; 1s report 1 asked changed"},
		{name: "told to change its key", plane: tells(nil, muster.OrderRekey), ends: time.Minute, want: "1s certify anew=false rekey=true"},
		{name: "told to restart, and again until it does", plane: tells(nil, muster.OrderReboot, muster.OrderReboot), ends: time.Minute, want: "0s reboot"},
		{name: "told what it does not know", plane: tells(nil, "sing"), ends: time.Minute, want: ""},
		{name: "retired", setUp: func(l *life) { l.held = holding(declares(1, "")) }, plane: tells(declares(1, ""), muster.OrderRetire),
			want: "0s apply 1 start; 0s report 1 start changed; 0s apply nothing retire; 1s report 1 retire changed; 1s forget", err: ErrRetired},
		{name: "retired, and revoked before it could say so", setUp: func(l *life) { l.held = holding(declares(1, "")).Retired() }, plane: always(errRevoked),
			want: "0s apply nothing retire; 0s forget", err: ErrRetired},
		{name: "retired, and something cannot be removed", setUp: func(l *life) { l.held = holding(declares(1, "")).Retired(); l.worst = resource.OutcomeFailed }, plane: tells(declares(1, "")), ends: 5 * time.Minute,
			want: "0s apply nothing retire; 0s report 1 retire failed"},
		{name: "updated", setUp: func(l *life) { l.updated = "2" }, plane: tells(declares(2, "")),
			want: "0s apply 2 declaration; 0s report 2 declaration changed", err: ErrUpdated},
		{name: "updated, and nobody to tell", setUp: func(l *life) { l.held, l.updated = holding(declares(2, "")), "2" }, plane: always(errAway),
			want: "0s apply 2 start", err: ErrUpdated},
		{name: "a disk went", setUp: func(l *life) { l.held = holding(declares(1, "")) },
			plane: func(l *life, call string, holds int64) (muster.LinkAnswer, error) {
				if call == "next" && l.now.Up == time.Hour {
					l.woken = TriggerDisk
				}
				return tells(declares(1, ""))(l, call, holds)
			}, ends: 5 * time.Minute,
			want: "0s apply 1 start; 0s report 1 start changed; 20s apply 1 disk; 2m0s report 1 disk changed"},
		{name: "updated, and told nothing else", setUp: func(l *life) { l.held = holding(declares(1, "")); l.held.Capability = 0 }, plane: tells(declares(1, "")), ends: 5 * time.Minute,
			want: "0s apply 1 start; 0s report 1 start changed"},
		{name: "updated, and told what it had passed over", setUp: func(l *life) {
			l.held = holding(declares(1, ""))
			l.held.Capability, l.held.Digest = 0, "of less"
		}, plane: tells(declares(1, "")), ends: 5 * time.Minute,
			want: "0s apply 1 start; 0s report 1 start changed; 0s apply 1 declaration; 0s report 1 declaration changed"},
		{name: "an older one", setUp: func(l *life) { l.held = holding(declares(7, "")) },
			plane: func(l *life, call string, _ int64) (muster.LinkAnswer, error) {
				return muster.LinkAnswer{Generation: 3, Declaration: declares(3, ""), NextSeconds: 100}, nil
			}, ends: 5 * time.Minute,
			want: "0s apply 7 start; 0s report 7 start changed; 1m40s report 3 declaration failed"},
		{name: "offended by reports", setUp: func(l *life) { l.held = holding(declares(1, "")) }, plane: refusing("report", tells(declares(2, ""))), ends: 9 * time.Minute,
			want: "0s apply 1 start; 0s apply 2 declaration"},
		{name: "offended by the profile and the mirror", plane: refusing("mirror", refusing("describe", refusing("health", tells(declares(2, ""))))), ends: 9 * time.Minute,
			want: "0s apply 2 declaration; 0s report 2 declaration changed"},

		{name: "confirmed", plane: tells(declares(1, "2m")), ends: 9 * time.Minute,
			want: "0s apply 1 declaration; 0s report 1 declaration changed"},
		{name: "not confirmed", setUp: func(l *life) { l.held = holding(declares(4, "")) }, ends: 9 * time.Minute,
			plane: func(l *life, call string, holds int64) (muster.LinkAnswer, error) {
				if l.state == "5" {
					return muster.LinkAnswer{}, errAway
				}
				return tells(declares(5, "2m"))(l, call, holds)
			},
			want: "0s apply 4 start; 0s report 4 start changed; 0s apply 5 declaration; 2m0s apply 4 revert; 2m0s report 5 revert changed; 2m20s apply 4 reconnect; 4m0s report 4 reconnect changed"},
		{name: "the first one is not confirmed", ends: 3 * time.Minute,
			plane: func(l *life, call string, holds int64) (muster.LinkAnswer, error) {
				if l.state == "5" {
					return muster.LinkAnswer{}, errAway
				}
				return tells(declares(5, "2m"))(l, call, holds)
			},
			want: "0s apply 5 declaration; 2m0s apply nothing revert; 2m0s report 5 revert changed; 2m20s apply nothing reconnect"},
		{name: "started again on trial, and reached", setUp: func(l *life) { l.held = trial }, plane: tells(trial.Declaration), ends: 9 * time.Minute,
			want: "0s apply 5 start; 0s report 5 start changed"},
		{name: "started again on trial, and not reached", setUp: func(l *life) { l.held = trial }, plane: always(errAway), ends: 9 * time.Minute,
			want: "0s apply 5 start; 1m0s apply 4 revert"},
		{name: "another boot on trial, and not reached", setUp: func(l *life) { l.held = rebooted }, plane: always(errAway), ends: 9 * time.Minute,
			want: "0s apply 5 start; 1m0s apply 4 revert"},
		{name: "another boot, long after, and reached", setUp: func(l *life) { l.held = rebooted; l.now.Wall = l.now.Wall.Add(time.Hour) }, plane: tells(trial.Declaration), ends: 9 * time.Minute,
			want: "0s apply 5 start; 0s report 5 start changed"},
		{name: "another boot, long after, and not reached", setUp: func(l *life) { l.held = rebooted; l.now.Wall = l.now.Wall.Add(time.Hour) }, plane: always(errAway), ends: 9 * time.Minute,
			want: "0s apply 5 start; 0s apply 4 revert"},
		{name: "the wall clock was set, and does not count", setUp: func(l *life) { l.held = trial; l.now.Wall = l.now.Wall.Add(time.Hour) }, plane: always(errAway), ends: 9 * time.Minute,
			want: "0s apply 5 start; 1m0s apply 4 revert"},
		{name: "what it holds cannot be read for a while", setUp: func(l *life) { l.held = trial; l.unread, l.readAt = errors.New("read-only"), time.Hour+150*time.Second },
			plane: tells(trial.Declaration), ends: 9 * time.Minute,
			want: "0s report 0 start failed; 3m0s apply 5 start; 3m0s report 5 start changed"},
		{name: "told to another node", setUp: func(l *life) { l.held = holding(declares(9, "")); l.held.Node, l.is = "n1", "n2" }, plane: tells(declares(1, "")), ends: 9 * time.Minute,
			want: "0s apply 9 start; 0s apply 1 declaration; 0s report 1 declaration changed"},
		{name: "never applied to its end", setUp: func(l *life) { l.held = cutShort }, plane: always(errAway), ends: 9 * time.Minute,
			want: "0s apply 4 revert"},
	} {
		l := newLife(c.plane)
		if c.setUp != nil {
			c.setUp(l)
		}
		if c.ends > 0 {
			l.ends = time.Hour + c.ends
		}
		if c.err == nil {
			c.err = errToldTo
		}
		if err := Linked(l); !errors.Is(err, c.err) {
			t.Errorf("%s: it ended with %v", c.name, err)
		}
		if diff := cmp.Diff(strings.Split(c.want, "; "), strings.Split(strings.Join(l.log, "; "), "; ")); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

// Whatever the control plane answers, it is not asked more often than it said,
// but for what it sent that was new.
func TestLinkedNeverStorms(t *testing.T) {
	for name, plane := range map[string]func(*life, string, int64) (muster.LinkAnswer, error){
		"the same refused declaration": func(l *life, _ string, _ int64) (muster.LinkAnswer, error) {
			return muster.LinkAnswer{Declaration: declares(3, ""), NextSeconds: 30}, nil
		},
		"the same orders": func(l *life, _ string, _ int64) (muster.LinkAnswer, error) {
			return muster.LinkAnswer{Orders: []muster.OrderKind{muster.OrderReportNow, muster.OrderRekey}}, nil
		},
		"nothing, at once":  func(*life, string, int64) (muster.LinkAnswer, error) { return muster.LinkAnswer{NextSeconds: 1}, nil },
		"an error, at once": always(errAway),
	} {
		l := newLife(plane)
		l.held = holding(declares(7, ""))
		l.ends = 90 * time.Minute
		Linked(l)
		for i := 1; i < len(l.calls); i++ {
			if d := l.calls[i] - l.calls[i-1]; d < 900*time.Millisecond {
				t.Errorf("%s: asked again after %v", name, d)
				break
			}
		}
	}
}

func TestAccept(t *testing.T) {
	h := holding(declares(5, ""))
	other := declares(5, "")
	other.Resources[0].File.Content = "other"
	action := declares(6, "")
	action.Resources = append(action.Resources, resource.Resource{Action: &resource.Action{Name: "x", Command: []string{"/bin/true"}}})
	source := declares(6, "")
	source.Resources = append(source.Resources, resource.Resource{File: &resource.File{Path: "/x", Source: "x"}})
	broken := declares(6, "")
	broken.Resources[0].File.Path = "relative"
	unread := new(resource.Declaration)
	if err := json.Unmarshal([]byte(`{"generation":6,"resources":[{"user":{"name":"x"}}]}`), unread); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		d    *resource.Declaration
		want string // of the refusal
		held int64
	}{
		"newer":         {declares(6, ""), "", 6},
		"doubled":       {declares(5, ""), "", 5},
		"older":         {declares(4, ""), "which is newer", 5},
		"another":       {other, "another one of that number", 5},
		"none":          {declares(0, ""), "no generation", 5},
		"an action":     {action, "action:x", 5},
		"a source":      {source, "file:/x", 5},
		"not valid":     {broken, "file.path", 5},
		"of no kind":    {&resource.Declaration{Generation: 6, Resources: []resource.Resource{{}}}, "must be one of", 5},
		"of a new kind": {unread, "", 6},
	} {
		got, err := h.Accept(*c.d, Moment{})
		if got.Newest != c.held || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: it holds %d, %v", name, got.Newest, err)
		}
	}
}

func TestTrialLeft(t *testing.T) {
	wall := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	trial := &Trial{Within: 2 * time.Minute, Since: Moment{wall, "a", time.Hour}}
	for name, c := range map[string]struct {
		now  Moment
		left time.Duration
	}{
		"at once":                       {Moment{wall, "a", time.Hour}, 2 * time.Minute},
		"a minute later":                {Moment{wall.Add(time.Minute), "a", time.Hour + time.Minute}, time.Minute},
		"the clock was set ahead":       {Moment{wall.Add(time.Hour), "a", time.Hour + time.Minute}, time.Minute},
		"the clock was set back":        {Moment{wall.Add(-time.Hour), "a", time.Hour + time.Minute}, time.Minute},
		"over":                          {Moment{wall, "a", time.Hour + 3*time.Minute}, -time.Minute},
		"another boot":                  {Moment{wall.Add(time.Minute), "b", time.Second}, time.Minute},
		"another boot, long after":      {Moment{wall.Add(time.Hour), "b", time.Second}, -58 * time.Minute},
		"another boot, its clock is 70": {Moment{time.Unix(0, 0), "b", time.Second}, 2 * time.Minute},
	} {
		if got := trial.Left(c.now); got != c.left {
			t.Errorf("%s: %v left, not %v", name, got, c.left)
		}
	}
}

// Cut the power at any effect, any number of times, with a control plane that
// comes and goes: the machine ends up as the newest declaration that does not
// cut it off, and what was confirmed is never taken back.
func TestLinkedCrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bad := map[string]bool{} // declarations that cut the machine off
		for g := range 4 {
			bad[fmt.Sprint(g+1)] = rapid.Bool().Draw(t, fmt.Sprintf("%d cuts off", g+1))
		}
		newest, away := int64(1), false
		l := newLife(nil)
		l.state = "nothing"
		l.plane = func(l *life, call string, holds int64) (muster.LinkAnswer, error) {
			if away || bad[l.state] {
				return muster.LinkAnswer{}, errAway
			}
			return tells(declares(newest, "2m"))(l, call, holds)
		}
		for i := range rapid.IntRange(1, 12).Draw(t, "lives") {
			switch rapid.IntRange(0, 3).Draw(t, "what happens") {
			case 0:
				newest = min(newest+1, 4)
			case 1:
				away = !away
			}
			l.left = rapid.IntRange(0, 12).Draw(t, "effects")
			l.ends = l.now.Up + 5*time.Minute
			if rapid.Bool().Draw(t, "reboot") {
				l.now.Boot, l.now.Up, l.ends = fmt.Sprint("reboot", i), 0, 5*time.Minute
			}
			live(l)
		}
		var want []string
		if last := fmt.Sprint(newest); newest > l.held.Newest && !bad[last] {
			want = []string{last}
		} else {
			if on := named(l.held.Declaration); !bad[on] {
				want = append(want, on)
			}
			if l.held.Trial != nil { // its confirmation, if any, was not saved
				want = append(want, named(l.held.Trial.Before))
			}
		}
		away, l.left, l.ends = false, 1<<30, l.now.Up+time.Hour
		live(l)
		if !slices.Contains(want, l.state) || l.held.Trial != nil {
			t.Fatalf("it is %s, and should be %v; %v cut it off; %s", l.state, want, bad, strings.Join(l.log, "; "))
		}
	})
}

// live lives until the power goes.
func live(l *life) {
	defer func() {
		if v := recover(); v != nil && v != errCut {
			panic(v)
		}
	}()
	Linked(l)
}

func TestConfirm(t *testing.T) {
	file := resource.NewRef(resource.KindFile, "/a")
	applied := resource.State{"type": "file", "content": "sha256:1"}
	found := resource.State{"type": "file", "content": "sha256:0"}
	for name, c := range map[string]struct {
		o    resource.Owned
		is   resource.State
		kept bool
		want string // of the refusal
		then resource.Origin
	}{
		"as it was left":            {o: resource.Owned{Ref: file, Origin: resource.OriginCreated, Applied: applied}, is: applied, then: resource.OriginCreated},
		"made, and not said so":     {o: resource.Owned{Ref: file, Origin: resource.OriginCreated, Applied: applied, Begun: true}, is: applied, then: resource.OriginCreated},
		"gone":                      {o: resource.Owned{Ref: file, Origin: resource.OriginCreated, Applied: applied}, want: "nothing is there"},
		"changed since":             {o: resource.Owned{Ref: file, Origin: resource.OriginCreated, Applied: applied}, is: found, want: "content is sha256:0 and should be sha256:1"},
		"adopted":                   {o: resource.Owned{Ref: file, Origin: resource.OriginAdopted, Applied: applied, Found: found, Original: "o/1"}, is: applied, kept: true, then: resource.OriginAdopted},
		"adopted, and nothing kept": {o: resource.Owned{Ref: file, Origin: resource.OriginAdopted, Applied: applied, Found: found, Original: "o/1"}, is: applied, then: resource.OriginFound},
		"in conflict":               {o: resource.Owned{Ref: file, Origin: resource.OriginAdopted, Applied: applied, Found: found, Original: "o/1", Conflict: true}, is: found, kept: true, then: resource.OriginAdopted},
		"a mirror that says little": {o: resource.Owned{Ref: file, Origin: resource.OriginCreated}, is: applied, want: "does not say"},
		"an action":                 {o: resource.Owned{Ref: "action:x", Applied: resource.State{"command": "x"}}, is: applied, want: "action"},
	} {
		got, err := Confirm(c.o, c.is, c.kept)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (got.Origin != c.then || got.Begun || got.Origin == resource.OriginFound && got.Original != "") {
			t.Errorf("%s: taken as %+v", name, got)
		}
	}
}

// What the ledger knows counts more than the mirror; what cannot be read is left.
func TestRecover(t *testing.T) {
	m := newFake()
	l := newLedger(m.plug)
	state := resource.State{"type": "file"}
	mirror := []resource.Owned{}
	for _, p := range []string{"/known", "/taken", "/gone", "/blind"} {
		ref := resource.NewRef(resource.KindFile, p)
		mirror = append(mirror, resource.Owned{Ref: ref, Origin: resource.OriginCreated, Applied: state})
		if p != "/gone" {
			m.there[ref] = state
		}
	}
	l.Write(resource.Owned{Ref: "file:/known", Origin: resource.OriginFound})
	m.blind["file:/blind"] = 1
	taken, left, err := Recover(mirror, m, l, func(string) bool { return false })
	if err != nil || taken != 1 || len(left) != 2 || l.durable["file:/taken"].Origin != resource.OriginCreated || l.now["file:/known"].Origin != resource.OriginFound {
		t.Errorf("took %d, left %v, %v: %v", taken, left, err, l.now)
	}
	l = newLedger(&plug{0})
	if _, _, err := Recover(mirror[1:2], m, l, nil); !errors.Is(err, errCut) {
		t.Errorf("the record cannot be written: %v", err)
	}
}

// Where nothing can be applied, the control plane hears why.
func TestApplyThatCannotBeRecorded(t *testing.T) {
	l := newLife(tells(declares(3, "")))
	l.ends, l.full = l.now.Up+time.Minute, errors.New("no space left on device")
	if err := Linked(l); !errors.Is(err, errToldTo) {
		t.Fatal(err)
	}
	at := l.heard.Finished
	want := &resource.Report{Generation: 3, Trigger: triggerDeclaration, Started: at, Finished: at, Version: muster.Build, Outcome: resource.OutcomeFailed,
		Lines: []resource.Line{{Ref: "declaration", Outcome: resource.OutcomeFailed, Reason: "no space left on device"}}}
	if diff := cmp.Diff(want, l.heard); diff != "" || at.IsZero() {
		t.Error(diff)
	}
}
