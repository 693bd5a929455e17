package boot

import (
	"time"

	"muster.internal/dhcp"
)

// What counts as a loop: rows. A stage that was served Limit times, none of
// them longer than loopWindow after the one before and without what should
// follow, is served again only once every loopPause. A machine that restarts as
// often as it likes is none, since each of its boots goes on to the next stage;
// nor is one that repeats a DISCOVER, since only what is fetched or confirmed
// counts.
var loopRows = [...]struct {
	stage Stage
	limit uint16
}{
	{Loader, 5}, // fetched, and no iPXE asks for an address
	{Start, 5},  // confirmed to iPXE, and no script is asked for
	{Script, 8}, // fetched, and no file of the image is; or again without a new DHCP exchange
}

const (
	loopWindow = time.Hour
	loopPause  = 10 * time.Minute
	watched    = 1 << 16 // machines, before those that went on are forgotten
)

// A Watch keeps account of how far machines get with what they are served. It
// keeps no time of its own, makes no garbage and is for one user at a time.
type Watch struct {
	courses map[dhcp.MAC]*course
	room    int // how many there may be before some are forgotten
}

// A course is one machine's way through the stages. It begins anew when
// something else is served.
type course struct {
	mode  Mode
	image string // digest
	rows  [len(loopRows)]struct {
		last  int64 // by Unix nanoseconds
		count uint16
	}
	xid   uint32 // of the last exchange that counted
	asked bool   // firmware has asked by DHCP since a loader was counted
	file  bool   // a file of the image was asked for since the last DHCP exchange
}

// NewWatch returns an empty watch.
func NewWatch() *Watch { return &Watch{courses: map[dhcp.MAC]*course{}, room: watched} }

// Asked notes a DHCP request to boot that was decided on. Account is kept of
// machines from their first that is served; iPXE's shows that the loader has
// done its work, and any, after a file of the image, is a new boot.
func (w *Watch) Asked(d *Decision, now time.Time) {
	c := w.courses[d.MAC]
	if c == nil {
		if !d.Serve {
			return
		}
		if len(w.courses) >= w.room {
			w.sweep(now)
		}
		c = &course{}
		w.courses[d.MAC] = c
	}
	if c.asked = d.Stage != Start; !c.asked {
		c.rows[0].count = 0
	}
	if c.file {
		c.rows[2].count, c.file = 0, false
	}
}

// Fetched notes what a machine has fetched by TFTP or HTTP, served or not.
func (w *Watch) Fetched(m dhcp.MAC, s Stage) {
	c := w.courses[m]
	if c == nil {
		return
	}
	switch s {
	case Start:
		c.rows[0].count = 0
	case Script:
		c.rows[0].count, c.rows[1].count = 0, 0
	case File:
		c.rows[0].count, c.rows[1].count, c.file = 0, 0, true
	}
}

// Served notes that a stage was served whole: a loader or script over TFTP or
// HTTP, or an acknowledgement to iPXE, where repetitions have the same xid. It
// returns the loop that this is, with Count 0 for none. One exchange of DHCP
// makes one load, however often the file is fetched.
func (w *Watch) Served(d *Decision, xid uint32, now time.Time) Loop {
	i := rowOf(d.Stage)
	if i < 0 || !d.Serve {
		return Loop{}
	}
	c := w.courses[d.MAC]
	if c == nil || d.Stage == Loader && !c.asked || xid != 0 && xid == c.xid {
		return Loop{}
	}
	if image := digestOf(d); c.mode != d.Mode || c.image != image {
		*c = course{mode: d.Mode, image: image}
	}
	c.xid, c.asked = xid, c.asked && d.Stage != Loader
	r := &c.rows[i]
	if now.UnixNano()-r.last > int64(loopWindow) {
		r.count = 0
	}
	if r.count++; r.count == 0 { // round the end
		r.count--
	}
	r.last = now.UnixNano()
	return c.loop(now)
}

// Loop tells whether a machine goes round with what it would be served.
func (w *Watch) Loop(m dhcp.MAC, mode Mode, image string, now time.Time) Loop {
	c := w.courses[m]
	if c == nil || c.mode != mode || c.image != image {
		return Loop{}
	}
	return c.loop(now)
}

func (c *course) loop(now time.Time) Loop {
	for i := range c.rows {
		r := &c.rows[i]
		if until := time.Unix(0, r.last).Add(loopPause); r.count >= loopRows[i].limit && now.Before(until) {
			return Loop{Stage: loopRows[i].stage, Count: int(r.count), Until: until}
		}
	}
	return Loop{}
}

// All lists the machines that go round now.
func (w *Watch) All(now time.Time) map[dhcp.MAC]Loop {
	all := map[dhcp.MAC]Loop{}
	for m, c := range w.courses {
		if l := c.loop(now); l.Count > 0 {
			all[m] = l
		}
	}
	return all
}

// sweep forgets the machines that nothing was served to for a while. When that
// makes no room, there are more machines than that: it must not look at all of
// them for each that comes.
func (w *Watch) sweep(now time.Time) {
	for m, c := range w.courses {
		old := true
		for _, r := range c.rows {
			old = old && now.UnixNano()-r.last > int64(loopPause)
		}
		if old {
			delete(w.courses, m)
		}
	}
	w.room = max(watched, 2*len(w.courses))
}

func rowOf(s Stage) int {
	for i := range loopRows {
		if loopRows[i].stage == s {
			return i
		}
	}
	return -1
}

func digestOf(d *Decision) string {
	if d.Image == nil {
		return ""
	}
	return d.Image.Digest
}
