package world

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"muster.internal"
	"muster.internal/api"
	"muster.internal/credential"
	"muster.internal/host"
	"muster.internal/inventory"
	"muster.internal/resource"
	"muster.internal/sim"
)

// A machine is an imaginary one, and its host as a coroutine: that runs when it
// is handed the turn, until it waits for time or for an answer.
type machine struct {
	w    *World
	name string
	node *sim.Node

	nodeID   string
	key      string // the agent's
	identity credential.Identity
	gone     bool // an operator expunged it, or it was retired: nobody counts on it
	away     bool // nothing comes through to it
	skew     time.Duration

	on      bool
	boots   int
	since   time.Time // it has power
	life    *sim.Life
	next    func() (ask, bool)
	stop    func()
	wait    func(ask) reply // of the coroutine: hands the turn back until there is a reply
	turn    int             // of its host: what was meant for an older one comes too late
	reply   reply
	cut     bool  // its power went in the middle of an effect
	ended   error // why its host ended by itself
	counted bool  // what runs here is in the books
	acting  bool  // it is its host's turn
	poll    *parked
	looks   int                  // after the health of what runs here: the one that counts
	up      map[string]time.Time // by placement, when it has caught up
	sick    map[string]time.Time // by module, until when nothing of it is healthy here
}

// An ask is what a host waits for: time, or an answer.
type ask struct {
	sleep time.Duration
	what  string // empty: time
	text  []byte
	proof api.Proof
}

type reply struct {
	text []byte
	err  error
}

// diskOf is one of the disks that the n-th machine could have.
func diskOf(n, number int) muster.Disk {
	return muster.Disk{Path: fmt.Sprintf("/dev/sd%c", 'a'+number), Vendor: "IMAGINE", Model: "Flash 3", Serial: fmt.Sprintf("W%05d-%d", n, number),
		WWN: fmt.Sprintf("0x5000c500%04x%04x", n, number), Size: 960e9, Transport: "SCSI", SSD: true}
}

// rack puts a machine into the world, without power.
func (w *World) rack(name string) *machine {
	n := len(w.all) + 1
	mac := fmt.Sprintf("52:54:00:79:%02x:%02x", n>>8, n&0xff)
	m := &machine{w: w, name: name, up: map[string]time.Time{}, sick: map[string]time.Time{}, node: &sim.Node{
		Facts: inventory.Facts{UUID: fmt.Sprintf("5ca1ab1e-%04x-4000-8000-525400790000", n), Hostname: name, Manufacturer: "Muster Simulation", Product: "Imaginary 1U",
			Serial: fmt.Sprintf("W%05d", n), MemoryMiB: 65536, CPUs: 16, MACs: []string{mac}, AdminMAC: mac, Firmware: "uefi", Disks: []muster.Disk{diskOf(n, 0), diskOf(n, 1)}},
		Profile: inventory.Profile{Arch: "amd64", OS: "debian", OSVersion: "12", Kernel: "6.1.0", Firmware: "uefi", ServiceManager: "systemd", PackageManager: "apt", ContainerRuntime: "podman"},
		Address: fmt.Sprintf("10.1.%d.%d", n/250, n%250+1),
	}}
	m.wiped()
	w.all = append(w.all, m)
	w.names[name] = m
	return m
}

// wiped is a machine on which nothing is any more.
func (m *machine) wiped() {
	m.node.Kept, m.node.Ground = nil, sim.NewGround()
	m.node.Holds = func(was, is host.Held) {
		if is.Newest < was.Newest {
			m.w.fail("%s goes from generation %d to the older %d", m.name, was.Newest, is.Newest)
		}
	}
	m.node.Ground.Changed = func(ref resource.Ref, was, is sim.Thing) { m.w.books.changed(m, was, is) }
}

// powerOn starts the machine: what it runs comes up by itself, then its host.
func (m *machine) powerOn() {
	if m.on || m.nodeID == "" {
		return
	}
	m.boots++
	m.on, m.cut, m.ended, m.since = true, false, nil, m.w.now
	m.w.books.power(m)
	m.life = m.node.Live(line{m})
	m.next, m.stop = iter.Pull(func(yield func(ask) bool) {
		defer func() {
			if p := recover(); p != nil {
				if _, is := p.(sim.PowerCut); !is {
					panic(p)
				}
				m.cut = true
			}
		}()
		m.wait = func(a ask) reply {
			if !yield(a) {
				panic(sim.PowerCut{})
			}
			return m.reply
		}
		m.ended = host.Linked(m.life)
	})
	m.resume(reply{})
}

// powerOff takes the power away.
func (m *machine) powerOff() {
	if !m.on {
		return
	}
	m.stop()
	m.lose()
}

// lose is what a power cut leaves.
func (m *machine) lose() {
	m.on = false
	m.turn++
	m.hangUp()
	m.node.Ground.Faults = sim.GroundFaults{}
	m.node.Ground.PowerOff(func(resource.Ref) bool { return m.w.dice.IntN(2) == 0 })
	m.w.books.power(m)
}

// resume gives a host its turn.
func (m *machine) resume(r reply) {
	m.turn++
	m.reply, m.acting = r, true
	a, more := m.next()
	m.acting = false
	switch {
	case more:
		m.handle(a)
		m.lookSoon()
	case m.cut:
		m.w.say("%s loses its power in the middle of something", m.name)
		m.lose()
		m.w.after(m.w.between(time.Minute, 10*time.Minute), m.powerOn)
	default:
		m.lose()
		m.gone = true
		m.w.books.power(m)
		if m.w.say("the host of %s ends: %v", m.name, m.ended); !errors.Is(m.ended, host.ErrRetired) {
			m.w.fail("the host of %s ended: %v", m.name, m.ended)
		}
	}
}

// handle has what a host waits for come.
func (m *machine) handle(a ask) {
	if a.what != "" {
		m.w.send(m, a)
		return
	}
	turn := m.turn
	m.w.after(a.sleep, func() { m.answer(turn, reply{}) })
}

// answer resumes a host that still waits for this.
func (m *machine) answer(turn int, r reply) {
	if m.on && m.turn == turn {
		m.resume(r)
	}
}

// hangUp is what a control plane notices of a machine that went silent: its poll
// ends when its time is over.
func (m *machine) hangUp() {
	if p := m.poll; p != nil {
		m.poll = nil
		m.w.after(m.w.between(time.Second, 55*time.Second), func() { m.w.plane.drop(p) })
	}
}

// nudge has a parked poll end as it would by itself within a minute, so that the
// host does what is due.
func (m *machine) nudge() {
	m.w.after(m.w.between(time.Second, 55*time.Second), func() {
		if p := m.poll; p != nil {
			m.w.plane.over(p)
		}
	})
}

// atRest tells whether the next reconcile would find what the last one left.
func (m *machine) atRest() bool {
	for _, l := range m.life.Last.Lines {
		if l.Outcome != resource.OutcomeOK {
			return false
		}
	}
	return m.life.Last.Outcome != resource.OutcomeFailed
}
