package host_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/host"
)

// A door is a control plane that answers from a list, and a machine whose time
// passes as it waits.
type door struct {
	registers []any // RegisterReply or error
	answers   []any // RegisterStatus or error
	notReady  error
	storeErr  error
	now       time.Duration
	did       []string
	shown     string
}

func (d *door) next(list *[]any) any {
	if len(*list) == 0 {
		d.now += 30 * time.Second
		return muster.RegisterStatus{State: muster.Pending}
	}
	v := (*list)[0]
	*list = (*list)[1:]
	return v
}

func (d *door) Register() (muster.RegisterReply, error) {
	d.did = append(d.did, "register")
	switch v := d.next(&d.registers).(type) {
	case muster.RegisterReply:
		return v, nil
	case error:
		return muster.RegisterReply{}, v
	}
	return muster.RegisterReply{State: muster.Pending, ClaimCode: "ABC-123", PollToken: "t"}, nil
}

func (d *door) Status(token string, wait time.Duration) (muster.RegisterStatus, error) {
	switch v := d.next(&d.answers).(type) {
	case muster.RegisterStatus:
		return v, nil
	case error:
		return muster.RegisterStatus{}, v
	}
	panic("a door answers with a status or an error")
}

func (d *door) Ready() error { return d.notReady }
func (d *door) Store(key string) error {
	d.did = append(d.did, "store "+key)
	return d.storeErr
}
func (d *door) ShowCode(code string)   { d.did, d.shown = append(d.did, "show "+code), code }
func (d *door) HideCode()              { d.did, d.shown = append(d.did, "hide"), "" }
func (d *door) Say(s string)           {}
func (d *door) Elapsed() time.Duration { return d.now }
func (d *door) Pause(t time.Duration) error {
	d.now += t
	return nil
}

func TestClaim(t *testing.T) {
	pending := muster.RegisterStatus{State: muster.Pending}
	approved := muster.RegisterStatus{State: muster.Approved, APIKey: "mus_k"}
	away := muster.Problemf(muster.CodeUnavailable, "not now")
	for _, c := range []struct {
		name string
		door door
		want string // in the error; "" is success
		did  []string
	}{
		{"approved at once", door{answers: []any{approved}}, "", []string{"register", "show ABC-123", "store mus_k", "hide"}},
		{"approved after a while", door{answers: []any{pending, errors.New("reset"), away, pending, approved}}, "", []string{"register", "show ABC-123", "store mus_k", "hide"}},
		{"control plane comes up late", door{registers: []any{errors.New("refused"), away}, answers: []any{approved}}, "", []string{"register", "register", "register", "show ABC-123", "store mus_k", "hide"}},
		{"no code, a window was open", door{registers: []any{muster.RegisterReply{State: muster.Approved, PollToken: "t"}}, answers: []any{approved}}, "", []string{"register", "store mus_k", "hide"}},
		{"refused: already approved", door{registers: []any{muster.Problemf(muster.CodeConflict, "it is approved")}}, "it is approved", []string{"register"}},
		{"nobody approves", door{}, "within an hour", []string{"register", "show ABC-123", "hide"}},
		{"token is unknown", door{answers: []any{muster.Problemf(muster.CodeNotFound, "no such token")}}, "no such token", []string{"register", "show ABC-123", "hide"}},
		{"disabled", door{answers: []any{pending, muster.RegisterStatus{State: muster.Disabled}}}, "disabled", []string{"register", "show ABC-123", "hide"}},
		{"key was lost", door{answers: []any{muster.RegisterStatus{State: muster.Approved, Delivered: true}}}, "delivered before", []string{"register", "show ABC-123", "hide"}},
		{"nowhere to store", door{notReady: errors.New("read-only file system")}, "read-only", nil},
		{"storing fails", door{storeErr: errors.New("disk full"), answers: []any{approved}}, "delivered once: have an operator disable", []string{"register", "show ABC-123", "store mus_k", "hide"}},
		{"never answers", door{registers: forever(2000, errors.New("refused"))}, "did not answer", nil},
	} {
		err := host.Claim(&c.door)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		if c.did != nil && !reflect.DeepEqual(c.door.did, c.did) {
			t.Errorf("%s: did %q, want %q", c.name, c.door.did, c.did)
		}
		if c.door.shown != "" {
			t.Errorf("%s: the code is still shown", c.name)
		}
		if c.door.now > host.ClaimFor+time.Minute {
			t.Errorf("%s: it took %v", c.name, c.door.now)
		}
		if err != nil && strings.Contains(err.Error(), "mus_k") {
			t.Errorf("%s: the key is in the error", c.name)
		}
	}
}

func forever(n int, v any) []any {
	all := make([]any, n)
	for i := range all {
		all[i] = v
	}
	return all
}

func TestNextBeat(t *testing.T) {
	refused := muster.Problemf(muster.CodeUnauthenticated, "unknown key")
	busy := muster.Problemf(muster.CodeUnavailable, "busy")
	busy.RetryAfter = 20
	for _, c := range []struct {
		name     string
		next     int
		err      error
		failures int
		lo, hi   time.Duration
		say      string
	}{
		{"as told", 60, nil, 0, 54 * time.Second, 66 * time.Second, ""},
		{"not told", 0, nil, 0, 27 * time.Second, 33 * time.Second, ""},
		{"told nonsense", 1 << 40, nil, 0, 9 * time.Minute, 11 * time.Minute, ""},
		{"first failure", 0, errors.New("refused"), 0, time.Second, 3 * time.Second, "waiting for it: refused"},
		{"fourth failure", 0, errors.New("refused"), 3, time.Second, 17 * time.Second, ""},
		{"for days", 0, errors.New("refused"), 100000, time.Second, 61 * time.Second, ""},
		{"told to wait", 0, busy, 7, 20 * time.Second, 40 * time.Second, ""},
		{"refused", 0, refused, 0, 5 * time.Minute, 10 * time.Minute, "refuses this machine's credential"},
		{"still refused", 0, refused, 9, 5 * time.Minute, 10 * time.Minute, ""},
	} {
		for _, dice := range []float64{0, 0.5, 0.999} {
			p := host.NextBeat(c.next, c.err, c.failures, dice)
			if p.After < c.lo || p.After > c.hi || c.say == "" && p.Say != "" || !strings.Contains(p.Say, c.say) {
				t.Errorf("%s: got %+v, want %v to %v, %q", c.name, p, c.lo, c.hi, c.say)
			}
		}
	}
}
