package world

import (
	"encoding/json"
	"errors"
	"time"

	"muster.internal"
	"muster.internal/sim"
)

// A network is what is between machines and the control plane. The zero value is
// a good one.
type network struct {
	loss, twice float64       // of a message, each way
	delay       time.Duration // at most
}

// Times of the network.
const (
	quick      = 20 * time.Millisecond
	patience   = 30 * time.Second // of a host for an answer
	pollIsOver = 75 * time.Second // and for one that may take its time
)

var (
	errSilence = errors.New("the control plane does not answer")
	errRefused = errors.New("the control plane is not there: connection refused")
	errReset   = errors.New("the control plane closed the connection")
)

// transit is how long a message takes. Each takes its own time, and so they come
// in another order.
func (w *World) transit() time.Duration {
	return w.between(time.Millisecond, max(quick, w.network.delay))
}

// send brings a call to the control plane: once, twice or not at all.
func (w *World) send(m *machine, a ask) {
	turn, copies := m.turn, 1
	if w.chance(w.network.twice) {
		copies = 2
	}
	for range copies {
		if m.away || w.chance(w.network.loss) {
			w.unanswered(m, turn, a)
			continue
		}
		w.after(w.transit(), func() { w.plane.hear(m, turn, a) })
	}
}

// unanswered has a host lose its patience, if nothing else comes.
func (w *World) unanswered(m *machine, turn int, a ask) {
	limit := patience
	if a.what == sim.CallNext {
		limit = pollIsOver
	}
	w.after(limit, func() { m.answer(turn, reply{err: errSilence}) })
}

// reply brings an answer to a host, as it is on the wire.
func (w *World) reply(m *machine, turn int, a ask, out any, err error) {
	if m.away || w.chance(w.network.loss) {
		w.unanswered(m, turn, a)
		return
	}
	r := reply{err: err}
	if err == nil {
		r.text, err = json.Marshal(out)
		w.must(err)
	} else {
		r.err = overTheWire(err)
	}
	w.after(w.transit(), func() { m.answer(turn, r) })
}

// overTheWire is a problem as whoever gets it reads it.
func overTheWire(err error) error {
	var p *muster.Problem
	if !errors.As(err, &p) {
		return err
	}
	q := new(muster.Problem)
	text, err := json.Marshal(p)
	if err == nil {
		err = json.Unmarshal(text, q)
	}
	if err != nil {
		return err
	}
	return q
}
