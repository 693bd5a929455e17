package booter

import (
	"context"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/amqp"
)

// busOptions say what a boot bus works with. Zero limits get the defaults.
type busOptions struct {
	Booter   string // this booter's name
	User     string // what the boot parameters tell every machine
	Password string
	Machines *Directory
	Control  muster.ForBooter
	Log      *slog.Logger

	MaxConnections int           // in all; default 4096
	MaxPerSource   int           // per source address; default 8
	MaxMessage     int           // bytes; default 6 MiB, for a reply with 5 MiB of output
	MaxBuffered    int           // bytes held for all clients together; default 64 MiB
	Settle         time.Duration // until a client must have logged in and named its queue; default 60 s
	AskAfter       time.Duration // how long a new connection may keep silent before it is asked who it is; default 2 s
}

// A Bus is the server's end of the boot bus. It checks who speaks before it
// tells the control plane, and addresses what it sends to one connection,
// never to a UUID that two machines may share. Nothing that a machine
// publishes reaches another machine.
type Bus struct {
	o      busOptions
	run    string // names this run: its sessions end with it
	counts *counters

	mu       sync.Mutex
	ctx      context.Context
	conns    map[*busConn]struct{}
	sources  map[netip.Addr]int
	holders  map[string]*busConn // queue name, canonical → the connection that holds it
	expected map[string]*expectation
	changed  chan struct{} // closed when a session comes, goes or says who it is
	told     sessionChanges
	work     sync.WaitGroup
	buffered int
}

// newBus returns a bus that Serve brings to life.
func newBus(o busOptions) *Bus {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.MaxConnections, 4096)
	def(&o.MaxPerSource, 8)
	def(&o.MaxMessage, 6<<20)
	def(&o.MaxBuffered, 64<<20)
	if o.Settle == 0 {
		o.Settle = time.Minute
	}
	if o.AskAfter == 0 {
		o.AskAfter = 2 * time.Second
	}
	return &Bus{
		o: o, run: nonce(), counts: newCounters(), conns: map[*busConn]struct{}{}, sources: map[netip.Addr]int{}, holders: map[string]*busConn{},
		expected: map[string]*expectation{}, changed: make(chan struct{}), told: newSessionChanges(),
	}
}

// Counters returns how often each thing happened since the start.
func (b *Bus) Counters() map[string]int64 { return b.counts.snapshot() }

// Changed returns a channel that is closed when a session comes, goes or says
// who it is. Take it before reading.
func (b *Bus) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

func (b *Bus) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.changed)
	b.changed = make(chan struct{})
}

// Serve accepts machines until ctx ends, then says goodbye to them and waits
// until everything has come to rest.
func (b *Bus) Serve(ctx context.Context, l net.Listener) error {
	b.mu.Lock()
	b.ctx = ctx
	b.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	b.work.Go(func() { b.reportChanges(ctx) })
	b.work.Go(func() { b.recheck(ctx) })
	defer b.work.Wait()
	rest := 5 * time.Millisecond
	for {
		c, err := l.Accept()
		if err == nil {
			rest = 5 * time.Millisecond
			b.accept(ctx, c)
			continue
		}
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			b.closeAll()
			return ctx.Err()
		}
		b.o.Log.Error("boot bus: cannot accept a connection; trying again", "error", err)
		pause(ctx, rest) // out of file descriptors, most likely: give some back first
		rest = min(2*rest, time.Second)
	}
}

func (b *Bus) accept(ctx context.Context, nc net.Conn) {
	source, ok := sourceOf(nc)
	b.mu.Lock()
	reason := ""
	switch {
	case !ok:
		reason = "its address cannot be read"
	case len(b.conns) >= b.o.MaxConnections:
		reason = "too many connections in all"
	case b.sources[source] >= b.o.MaxPerSource:
		reason = "too many connections from its address"
	}
	if reason != "" {
		b.mu.Unlock()
		nc.Close()
		b.counts.add("bus_turned_away")
		b.refused(source, "", "", reason)
		return
	}
	c := newBusConn(b, nc, source)
	b.conns[c] = struct{}{}
	b.sources[source]++
	b.mu.Unlock()
	b.counts.add("bus_connections")
	b.work.Go(func() { c.run(ctx) })
}

func sourceOf(c net.Conn) (netip.Addr, bool) {
	ap, err := netip.ParseAddrPort(c.RemoteAddr().String())
	return ap.Addr().Unmap(), err == nil
}

// forget takes a connection out of the books; it may hold a name no more.
func (b *Bus) forget(c *busConn) {
	b.mu.Lock()
	delete(b.conns, c)
	if b.sources[c.source]--; b.sources[c.source] <= 0 {
		delete(b.sources, c.source)
	}
	held := c.name != "" && b.holders[c.name] == c
	if held {
		delete(b.holders, c.name)
	}
	b.buffered -= c.counted
	stopping := b.ctx.Err() != nil
	b.mu.Unlock()
	if held && !stopping {
		b.told.add(change{uuid: c.uuid, name: c.name, SessionChange: muster.SessionChange{
			MAC: c.mac, Source: c.source.String(), PublicKey: c.key(), Reason: "the connection ended"}})
	}
	b.wake()
}

// hold gives a queue name to its newest connection. The one before is closed:
// it is half open most of the time, and its machine has come back.
func (b *Bus) hold(c *busConn) {
	b.mu.Lock()
	old := b.holders[c.name]
	b.holders[c.name] = c
	b.mu.Unlock()
	if old != nil {
		b.counts.add("bus_takeovers")
		if !b.counts.often(c.source.String()+"|"+c.uuid+"|takeover", time.Now()) {
			b.o.Log.Warn("boot bus: a newer connection takes a machine's name over", "machine", c.uuid, "mac", c.mac,
				"source", c.source, "session", c.session, "old_session", old.session)
		}
		old.close(amqp.ConnectionForced, "a newer connection from "+c.source.String()+" holds this queue name")
	}
	b.wake()
}

func (b *Bus) closeAll() {
	b.mu.Lock()
	var all []*busConn
	for c := range b.conns {
		all = append(all, c)
	}
	b.mu.Unlock()
	for _, c := range all {
		c.close(amqp.ConnectionForced, "the booter stops")
	}
}

// recheck closes connections whose address is reserved for them no more.
func (b *Bus) recheck(ctx context.Context) {
	for {
		changed := b.o.Machines.Changed()
		b.mu.Lock()
		var held []*busConn
		for _, c := range b.holders {
			held = append(held, c)
		}
		b.mu.Unlock()
		for _, c := range held {
			if reason := b.belongs(c.mac, c.source); reason != "" {
				b.refused(c.source, c.uuid, c.mac, reason)
				c.close(amqp.ConnectionForced, reason)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// belongs tells why an address may not speak for a MAC; "" if it may.
func (b *Bus) belongs(mac string, source netip.Addr) string {
	r, ok := b.o.Machines.Record(mac)
	if !ok {
		return "no boot record is known for that MAC address"
	}
	if r.Address == "" {
		return "no address is reserved for that MAC address"
	}
	if a, err := netip.ParseAddr(r.Address); err != nil || a.Unmap() != source {
		return "it does not speak from the address that is reserved for its MAC address, " + r.Address
	}
	return ""
}

// login compares in constant time, user and password both.
func (b *Bus) login(user, password string) bool {
	u := subtle.ConstantTimeCompare([]byte(user), []byte(b.o.User))
	p := subtle.ConstantTimeCompare([]byte(password), []byte(b.o.Password))
	return u&p == 1
}

// refused says once in a while who was refused and why.
func (b *Bus) refused(source netip.Addr, uuid, mac, reason string) {
	if b.counts.often(source.String()+"|"+uuid+"|"+reason, time.Now()) {
		return
	}
	b.o.Log.Warn("boot bus: refused", "source", source, "machine", uuid, "mac", mac, "reason", reason)
}

// charge books how much a connection makes us hold; false: too much for all.
// A little each may hold always.
func (b *Bus) charge(c *busConn, bytes int) bool {
	bytes = max(0, bytes-freeBuffer)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buffered += bytes - c.counted
	c.counted = bytes
	return b.buffered <= b.o.MaxBuffered || bytes == 0
}

// Holder tells who holds a live session: a connection that has said who it is
// and listens for scripts.
func (b *Bus) Holder(session string) (uuid, mac, publicKey string, ok bool) {
	if c := b.find(session); c != nil && c.listens() {
		return c.uuid, c.mac, c.key(), true
	}
	return "", "", "", false
}

// Sessions lists the sessions that are held, and names the run that holds them.
func (b *Bus) Sessions() (run string, sessions []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.holders {
		sessions = append(sessions, c.session)
	}
	slices.Sort(sessions)
	return b.run, sessions
}

func (b *Bus) find(session string) *busConn {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.holders {
		if c.session == session {
			return c
		}
	}
	return nil
}
