package host

import (
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/resource"
)

const (
	// missesMost is how often in a row a placement that was up must be found
	// otherwise before it is said: one lost answer is no outage.
	missesMost = 3
	checkEvery = 10 * time.Second
	// checkSoon is how often it is looked after an apply, for checkEager, while
	// something is not up yet: it is probably starting.
	checkSoon  = time.Second
	checkEager = 30 * time.Second
)

// A Probe is what one look at a placement found.
type Probe struct {
	Healthy  bool
	CaughtUp bool
	Reason   string // why it is not
}

// A Watch judges what is found of the placements that a host checks. The zero
// one has checked nothing.
type Watch struct {
	checks  []resource.Check
	applied time.Duration // by the time since the kernel began
	all     map[string]*watched
}

type watched struct {
	Probe
	since  time.Time
	misses int // in a row, that found it otherwise
}

// Applied tells the watch that a declaration with these checks was applied.
func (w *Watch) Applied(checks []resource.Check, now Moment) {
	w.checks, w.applied = checks, now.Up
	is := map[string]*watched{}
	for _, c := range checks {
		if o := w.all[c.ID]; o != nil {
			is[c.ID] = o
		}
	}
	w.all = is
}

// Checks are what is to be looked at.
func (w *Watch) Checks() []resource.Check { return w.checks }

// Next is when to look again, with a dice in [0, 1); ok: there is anything to
// look at.
func (w *Watch) Next(now Moment, dice float64) (after time.Duration, ok bool) {
	if len(w.checks) == 0 {
		return 0, false
	}
	every := checkEvery
	for _, c := range w.checks {
		if o := w.all[c.ID]; (o == nil || !o.Healthy || !o.CaughtUp) && now.Up-w.applied < checkEager {
			every = checkSoon
		}
	}
	return every - every/10 + time.Duration(dice*float64(every/5)), true
}

// Saw takes in what was found of each check, and tells whether anything is to be
// said. Good news is believed at once, and so is the first of all.
func (w *Watch) Saw(found []Probe, now time.Time) (news bool) {
	for i, c := range w.checks[:min(len(w.checks), len(found))] {
		p, o := found[i], w.all[c.ID]
		switch better := o != nil && (p.Healthy && !o.Healthy || p.Healthy && p.CaughtUp && !o.CaughtUp); {
		case o == nil:
			w.all[c.ID], news = &watched{Probe: p, since: now}, true
		case o.Probe == p:
			o.misses = 0
		case better || o.misses+1 == missesMost:
			o.Probe, o.since, o.misses, news = p, now, 0, true
		default:
			o.misses++
		}
	}
	return news
}

// Health is what there is to say, by placement; ok: each was looked at. What was
// not must not be taken for down.
func (w *Watch) Health() (said []muster.PlacementHealth, ok bool) {
	all := make([]muster.PlacementHealth, 0, len(w.all))
	for id, o := range w.all {
		all = append(all, muster.PlacementHealth{ID: id, Healthy: o.Healthy, CaughtUp: o.CaughtUp, Reason: o.Reason, Since: o.since.UTC()})
	}
	slices.SortFunc(all, func(a, b muster.PlacementHealth) int { return strings.Compare(a.ID, b.ID) })
	return all, len(all) == len(w.checks)
}
