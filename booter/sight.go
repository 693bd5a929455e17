package booter

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/boot"
	"muster.internal/dhcp"
)

// How sightings are told to the control plane.
const (
	sightUnserved = 5 * time.Second // how often of a machine that is not served
	sightServed   = time.Minute     // and of one that is
	sightBatch    = 500
	sightStrange  = 8192 // machines without a record that are remembered
	sightTimeout  = 30 * time.Second
)

// sightings tells the control plane who asks for something to boot: in
// batches, each machine at most once in flight, from a queue that is bounded
// by the number of machines. Nothing here waits on the packet path.
type sightings struct {
	booter  string
	control muster.ForBooter
	dir     *Directory
	log     *slog.Logger
	tally   *tally

	mu      sync.Mutex
	seen    map[dhcp.MAC]*sighted
	strange int        // of seen, without a record when it was seen
	queue   []dhcp.MAC // those that are due
	links   interfaceNames
	more    chan struct{}
}

// sighted is the last that was seen of a machine.
type sighted struct {
	muster.Sighting
	strange  bool
	queued   bool
	inFlight bool
	told     time.Time // when it was told last
	arch     uint16    // the latest, with what its own boot program says
	hasArch  bool
}

func newSightings(booter string, control muster.ForBooter, dir *Directory, log *slog.Logger, t *tally) *sightings {
	return &sightings{booter: booter, control: control, dir: dir, log: log, tally: t,
		seen: map[dhcp.MAC]*sighted{}, links: interfaceNames{}, more: make(chan struct{}, 1)}
}

// packet notes a DHCP request. Known: there is a record.
func (s *sightings) packet(p *dhcp.Packet, q *boot.Request, d *boot.Decision, known bool, index int, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(q.MAC, known, now)
	if e == nil {
		return
	}
	if q.HasArch {
		e.arch, e.hasArch = d.Arch, true
	}
	every := sightUnserved
	if d.Serve {
		every = sightServed
	}
	if e.queued || e.Arch == int(d.Arch) && now.Sub(e.told) < every {
		return
	}
	e.At, e.Arch = now, int(d.Arch)
	if u := p.MachineUUID(); u != "" {
		e.UUID = u
	}
	e.Class = clip(p.Get(dhcp.OptClassID), 64)
	e.CircuitID = clip(p.RelaySub(dhcp.RelayCircuitID), 64)
	e.Giaddr, e.Interface = "", s.links.name(index)
	if !p.GIAddr.IsUnspecified() {
		e.Giaddr = p.GIAddr.String()
	}
	s.due(q.MAC, e)
}

// tag notes what the first-stage script says of a machine.
func (s *sightings) tag(m dhcp.MAC, rec *muster.BootRecord, uuid, serviceTag string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(m, rec != nil, now)
	if e == nil {
		return
	}
	news := serviceTag != e.ServiceTag || !e.Script || now.Sub(e.told) >= sightUnserved
	if rec != nil && e.At.IsZero() {
		e.Arch = rec.Arch // this booter has not seen its DHCP, maybe before a restart
	}
	e.At, e.ServiceTag, e.Script = now, serviceTag, true
	if uuid != "" {
		e.UUID = uuid
	}
	if news && !e.queued {
		s.due(m, e)
	}
}

// archOf is the architecture of a machine that asks by another protocol, as this
// booter has seen it: later than its record, which hears of it by a report.
func (s *sightings) archOf(m dhcp.MAC) (uint16, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.seen[m]; e != nil {
		return e.arch, e.hasArch
	}
	return 0, false
}

// built notes for what architecture a machine's iPXE says that it is built.
func (s *sightings) built(m dhcp.MAC, known bool, arch uint16, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entry(m, known, now); e != nil {
		e.arch, e.hasArch = arch, true
	}
}

func (s *sightings) entry(m dhcp.MAC, known bool, now time.Time) *sighted {
	if e := s.seen[m]; e != nil {
		return e
	}
	if !known {
		if s.strange >= sightStrange {
			s.sweep(now)
		}
		if s.strange >= sightStrange {
			s.tally.add(countSightingsDropped)
			return nil
		}
		s.strange++
	}
	e := &sighted{Sighting: muster.Sighting{MAC: m.String()}, strange: !known}
	s.seen[m] = e
	return e
}

// sweep forgets strangers who have been told and have not come back.
func (s *sightings) sweep(now time.Time) {
	for m, e := range s.seen {
		if e.strange && !e.queued && !e.inFlight && now.Sub(e.told) > sightServed {
			delete(s.seen, m)
			s.strange--
		}
	}
}

func (s *sightings) due(m dhcp.MAC, e *sighted) {
	e.queued = true
	if e.inFlight {
		return // goes out when that call is over
	}
	s.queue = append(s.queue, m)
	poke(s.more)
}

// run tells until ctx ends. A call that fails is tried again with what is then
// the latest.
func (s *sightings) run(ctx context.Context) error {
	var failed failures
	for {
		macs, batch := s.take()
		if len(batch) == 0 {
			select {
			case <-s.more:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		call, cancel := context.WithTimeout(ctx, sightTimeout)
		records, err := s.control.Sight(call, s.booter, batch)
		cancel()
		s.done(macs, err)
		if err == nil {
			failed = 0
			s.dir.Learn(records)
			s.tally.counts[countSightings].Add(int64(len(batch)))
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		s.tally.add(countSightingErrors)
		tell, rest := failed.another()
		if tell {
			s.log.Warn("machines seen on the wire could not be reported; they are reported again", "machines", len(batch), "error", err)
		}
		if !pause(ctx, rest) {
			return nil
		}
	}
}

func (s *sightings) take() (macs []dhcp.MAC, batch []muster.Sighting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.queue), sightBatch)
	macs = slices.Clone(s.queue[:n])
	s.queue = append(s.queue[:0], s.queue[n:]...)
	for _, m := range macs {
		e := s.seen[m]
		e.queued, e.inFlight = false, true
		batch = append(batch, e.Sighting)
	}
	return macs, batch
}

func (s *sightings) done(macs []dhcp.MAC, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range macs {
		e := s.seen[m]
		e.inFlight = false
		if err == nil {
			e.told = e.At
		}
		if err != nil || e.queued {
			e.queued = false
			s.due(m, e)
		}
	}
}

// seenMACs lists the MACs that asked to boot and claimed this UUID.
func (b *Booter) seenMACs(uuid string) []string {
	b.sight.mu.Lock()
	defer b.sight.mu.Unlock()
	var macs []string
	for _, e := range b.sight.seen {
		if uuid != "" && muster.SameUUID(e.UUID, uuid) {
			macs = append(macs, e.MAC)
		}
	}
	slices.Sort(macs)
	return macs
}

// clip makes bytes off the wire safe to store and show.
func clip(b []byte, n int) string {
	b = b[:min(n, len(b))]
	out := make([]byte, len(b))
	for i, c := range b {
		if c < ' ' || c > '~' {
			c = '.'
		}
		out[i] = c
	}
	return string(out)
}
