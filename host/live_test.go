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

var errEnd = errors.New("told to end")

// A wire answers from a list, and ends the program after it.
type wire struct {
	answers []any // int: seconds; error
	did     []string
	pauses  []time.Duration
}

func (w *wire) take(what string) (int, error) {
	w.did = append(w.did, what)
	v := w.answers[0]
	w.answers = w.answers[1:]
	if err, bad := v.(error); bad {
		return 0, err
	}
	return v.(int), nil
}

func (w *wire) Refresh() error     { _, err := w.take("refresh"); return err }
func (w *wire) Beat() (int, error) { return w.take("beat") }
func (w *wire) Say(s string)       { w.did = append(w.did, "say "+s) }
func (w *wire) Dice() float64      { return 0 }
func (w *wire) Pause(d time.Duration) error {
	w.pauses = append(w.pauses, d)
	if len(w.answers) == 0 {
		return errEnd
	}
	return nil
}

func TestLive(t *testing.T) {
	away, refused := errors.New("no route"), muster.Problemf(muster.CodeUnauthenticated, "unknown key")
	gone := muster.Problemf(muster.CodeGone, "expunged: this key is dead for ever")
	for _, c := range []struct {
		name    string
		once    bool
		answers []any
		want    error
		did     string
	}{
		{"a quiet life", false, []any{0, 10, 20}, errEnd, "refresh say beat beat"},
		{"control plane comes late", false, []any{away, away, 0, 10}, errEnd, "refresh say refresh refresh say beat"},
		{"goes and returns", false, []any{0, 10, away, away, 10, 10}, errEnd, "refresh say beat beat say beat beat say beat"},
		{"disabled, and taken back", false, []any{0, refused, refused, 10}, errEnd, "refresh say beat say beat beat say"},
		{"refused for ever", false, []any{refused, refused, refused}, errEnd, "refresh say refresh refresh"},
		{"refused, and may announce instead", true, []any{refused}, host.ErrRefused, "refresh"},
		{"was expunged, and may announce instead", true, []any{gone}, host.ErrRefused, "refresh"},
		{"was expunged, and may not", false, []any{gone, gone}, errEnd, "refresh say refresh"},
		{"may announce, but only nobody answers", true, []any{away, 0, 10}, errEnd, "refresh say refresh say beat"},
		{"may announce, but was accepted before", true, []any{0, refused}, errEnd, "refresh say beat say"},
	} {
		w := &wire{answers: c.answers}
		if err := host.Live(w, c.once); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v", c.name, err)
		}
		var did []string
		for _, s := range w.did {
			did = append(did, strings.Fields(s)[0])
		}
		if got := strings.Join(did, " "); got != c.did {
			t.Errorf("%s: did %q, want %q", c.name, got, c.did)
		}
	}
	w := &wire{answers: []any{0, 10, refused, away}}
	host.Live(w, false)
	if want := []time.Duration{9 * time.Second, 5 * time.Minute, time.Second}; !reflect.DeepEqual(w.pauses, want) {
		t.Errorf("paused %v, want %v", w.pauses, want)
	}
}
