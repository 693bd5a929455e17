package booter

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/boot"
	"muster.internal/dhcp"
)

// How much is remembered of machines, and how often it is told. A boot is about
// ten exchanges; ten thousand machines that boot at once must not become a
// hundred thousand rows.
const (
	tracedKnown   = 4096 // machines with a boot record
	tracedStrange = 1024 // and without: noise must not push the others out
	traceEvery    = time.Second
	traceNews     = 2 * time.Second  // of one machine, at least between reports
	traceRepeats  = 15 * time.Second // and when it only did the same again
	traceTimeout  = 30 * time.Second
)

// traces remember, for each machine, the last exchanges: what was asked, what
// was decided and what was sent. Noting one is cheap and makes no garbage once
// its place was used before; telling the control plane is the work of run.
// What boot scripts and files say is never noted: they hold the bus password.
type traces struct {
	booter  string
	control muster.ForBooter
	log     *slog.Logger
	tally   *tally

	mu       sync.Mutex
	machines map[dhcp.MAC]*traced
	known    recent
	strange  recent
	serial   uint64
	queue    []*traced // those that are due to be told
	more     chan struct{}

	links interfaceNames // of run alone
}

// traced is one machine. Its memory goes to another one when it was not heard
// for longest.
type traced struct {
	mac        dhcp.MAC
	list       *recent
	prev, next *traced
	steps      []exchange // a ring once it is full
	oldest     int
	queued     bool
	news       bool // more than repetitions since it was told
	told       time.Time
}

// An exchange is one step of a trace, as it is noted.
type exchange struct {
	id          uint64 // names it as long as it is remembered
	first, at   time.Time
	count       int
	via         boot.Via
	typ         dhcp.MessageType
	asked       string // TFTP and HTTP
	src, dst    netip.AddrPort
	index       int // of the interface
	packet, out []byte
	d           boot.Decision
	outcome     string
	sent, size  int64
	took        time.Duration
}

// A handle finds an exchange that is under way.
type handle struct {
	mac dhcp.MAC
	id  uint64
}

func newTraces(booter string, control muster.ForBooter, log *slog.Logger, t *tally) *traces {
	return &traces{booter: booter, control: control, log: log, tally: t, machines: map[dhcp.MAC]*traced{},
		known: recent{most: tracedKnown}, strange: recent{most: tracedStrange}, more: make(chan struct{}, 1), links: interfaceNames{}}
}

// packet notes a DHCP message and its answer; nil: silence.
func (t *traces) packet(q *boot.Request, d *boot.Decision, msg, out []byte, src, dst netip.AddrPort, index int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.machine(d)
	if e := m.last(); e != nil && e.via == boot.DHCP && e.typ == q.Type && e.index == index && same(&e.d, d) {
		e.count++
		e.at, e.d, e.src, e.dst = now, *d, src, dst
		e.keep(msg, out)
		t.due(m, false)
		return
	}
	e := t.next(m)
	e.via, e.typ, e.first, e.at, e.count = boot.DHCP, q.Type, now, now, 1
	e.d, e.src, e.dst, e.index = *d, src, dst, index
	e.keep(msg, out)
	t.due(m, true)
}

func (e *exchange) keep(msg, out []byte) {
	e.packet = append(e.packet[:0], msg[:min(len(msg), muster.TracePacket)]...)
	e.out = append(e.out[:0], out[:min(len(out), muster.TracePacket)]...)
}

// same tells whether two decisions say the same of two messages.
func same(a, b *boot.Decision) bool {
	return a.Serve == b.Serve && a.Reason == b.Reason && a.Rule == b.Rule && a.Stage == b.Stage && a.Mode == b.Mode && a.State == b.State &&
		a.Arch == b.Arch && a.Loader == b.Loader && a.Image == b.Image && a.Address == b.Address
}

// request notes that a machine asked for a file, by TFTP or HTTP. What is
// refused is over at once; the rest ends with done.
func (t *traces) request(via boot.Via, asked string, d *boot.Decision, src netip.AddrPort, size int64, now time.Time) handle {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.machine(d)
	e := m.last()
	if e != nil && e.via == via && e.asked == asked && !d.Serve && same(&e.d, d) {
		e.count++
		e.at, e.src = now, src
		t.due(m, false)
		return handle{m.mac, e.id}
	}
	e = t.next(m)
	e.via, e.asked, e.first, e.at, e.count = via, asked, now, now, 1
	e.d, e.src, e.size = *d, src, size
	t.due(m, true)
	return handle{m.mac, e.id}
}

// done notes how a transfer ended, if it is still remembered.
func (t *traces) done(h handle, outcome string, sent int64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.machines[h.mac]
	if m == nil {
		return
	}
	for i := range m.steps {
		if e := &m.steps[i]; e.id == h.id && e.outcome == "" {
			e.outcome, e.sent, e.took = outcome, sent, now.Sub(e.at)
			t.due(m, true)
		}
	}
}

// machine finds a machine's trace and makes it the most recent, or makes one
// in the place of what was not heard for longest.
func (t *traces) machine(d *boot.Decision) *traced {
	list := &t.known
	if d.State == "" {
		list = &t.strange
	}
	m := t.machines[d.MAC]
	switch {
	case m != nil:
		m.list.remove(m)
	case list.n < list.most:
		m = &traced{mac: d.MAC}
		t.machines[d.MAC] = m
	default:
		m = list.last
		list.remove(m)
		delete(t.machines, m.mac)
		t.machines[d.MAC] = m
		m.mac, m.steps, m.oldest, m.told, m.news = d.MAC, m.steps[:0], 0, time.Time{}, false
	}
	if list.n >= list.most { // it became known, or unknown
		old := list.last
		list.remove(old)
		delete(t.machines, old.mac)
		old.steps = nil
	}
	list.push(m)
	return m
}

func (m *traced) last() *exchange {
	n := len(m.steps)
	if n == 0 {
		return nil
	}
	return &m.steps[(m.oldest+n-1)%n]
}

// next is the place for one more exchange: a new one, or that of the oldest.
// Its packets' memory is used again.
func (t *traces) next(m *traced) *exchange {
	n := len(m.steps)
	var e *exchange
	switch {
	case n == muster.TraceSteps:
		e = &m.steps[m.oldest]
		m.oldest = (m.oldest + 1) % n
	case n < cap(m.steps):
		m.steps = m.steps[:n+1]
		e = &m.steps[n]
	default:
		m.steps = append(m.steps, exchange{})
		e = &m.steps[n]
	}
	t.serial++
	*e = exchange{id: t.serial, packet: e.packet[:0], out: e.out[:0]}
	return e
}

func (t *traces) due(m *traced, news bool) {
	m.news = m.news || news
	if m.queued {
		return
	}
	m.queued = true
	t.queue = append(t.queue, m)
	poke(t.more)
}

// recent is a list of machines, the one heard last in front.
type recent struct {
	first, last *traced
	n, most     int
}

func (r *recent) push(m *traced) {
	m.list, m.prev, m.next = r, nil, r.first
	if r.first != nil {
		r.first.prev = m
	} else {
		r.last = m
	}
	r.first = m
	r.n++
}

func (r *recent) remove(m *traced) {
	if m.prev != nil {
		m.prev.next = m.next
	} else {
		r.first = m.next
	}
	if m.next != nil {
		m.next.prev = m.prev
	} else {
		r.last = m.prev
	}
	m.prev, m.next, m.list = nil, nil, nil
	r.n--
}

// run tells until ctx ends: one batch a second at most, each machine at most
// every two. What could not be told is told later, as it is then.
func (t *traces) run(ctx context.Context) error {
	var failed failures
	for {
		batch, left := t.take(time.Now())
		if len(batch) == 0 && !left {
			select {
			case <-t.more:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		wait := traceEvery
		if len(batch) > 0 {
			call, cancel := context.WithTimeout(ctx, traceTimeout)
			err := t.control.ReportTraces(call, t.booter, batch)
			cancel()
			switch {
			case err == nil:
				failed = 0
				t.tally.counts[countTraces].Add(int64(len(batch)))
			case ctx.Err() != nil:
				return nil
			default:
				t.tally.add(countTraceErrors)
				var tell bool
				if tell, wait = failed.another(); tell {
					t.log.Warn("what passed between machines and this booter could not be told; it is told again", "machines", len(batch), "error", err)
				}
				t.again(batch)
			}
		}
		if !pause(ctx, wait) {
			return nil
		}
	}
}

// take picks the machines that are due at now. Left: others wait for their time.
func (t *traces) take(now time.Time) (batch []muster.BootTrace, left bool) {
	t.mu.Lock()
	queue := t.queue
	t.queue = nil
	t.mu.Unlock()
	var later []*traced
	for _, m := range queue {
		t.mu.Lock()
		every := traceRepeats
		if m.news {
			every = traceNews
		}
		switch {
		case m.list == nil: // forgotten
			m.queued = false
		case len(batch) == muster.TraceBatch || now.Sub(m.told) < every:
			later = append(later, m)
		default:
			m.queued, m.news, m.told = false, false, now
			steps := m.copy()
			mac := m.mac
			t.mu.Unlock() // what follows makes garbage: nobody waits for it
			batch = append(batch, t.tell(mac, steps))
			t.mu.Lock()
		}
		t.mu.Unlock()
	}
	t.mu.Lock()
	t.queue = append(later, t.queue...)
	left = len(t.queue) > 0
	t.mu.Unlock()
	return batch, left
}

// again puts back what was not told.
func (t *traces) again(batch []muster.BootTrace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range batch {
		if m, err := dhcp.ParseMAC(b.MAC); err == nil && t.machines[m] != nil {
			t.machines[m].told = time.Time{}
			t.due(t.machines[m], true)
		}
	}
}

// copy returns the exchanges, oldest first, for use without the lock.
func (m *traced) copy() []exchange {
	out := make([]exchange, 0, len(m.steps))
	for i := range m.steps {
		e := m.steps[(m.oldest+i)%len(m.steps)]
		e.packet, e.out = slices.Clone(e.packet), slices.Clone(e.out)
		out = append(out, e)
	}
	return out
}

// tell is a machine's trace as the control plane keeps it.
func (t *traces) tell(mac dhcp.MAC, steps []exchange) muster.BootTrace {
	b := muster.BootTrace{Booter: t.booter, MAC: mac.String(), Steps: make([]muster.BootStep, 0, len(steps))}
	for i := range steps {
		e := &steps[i]
		s := muster.BootStep{First: e.first.UTC(), At: e.at.UTC(), Count: e.count, Via: e.via.String(), Asked: e.asked, Source: e.src.String(),
			Interface: t.links.name(e.index), BootVerdict: e.d.Verdict(), Outcome: e.outcome, Sent: e.sent, Size: e.size, Millis: e.took.Milliseconds()}
		if e.via == boot.DHCP {
			s.Asked, s.Packet, s.Answer = e.typ.String(), e.packet, e.out
			if len(e.out) > 0 {
				s.To = e.dst.String()
			}
		}
		b.Steps = append(b.Steps, s)
		if s.At.After(b.At) {
			b.At = s.At
		}
	}
	return b
}
