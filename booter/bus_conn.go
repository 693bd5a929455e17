package booter

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/amqp"
)

const (
	beatEvery    = 15 * time.Second // shorter than any client waits
	writeTimeout = 30 * time.Second
	lingerFor    = time.Second
	maxOutbox    = 1 << 20   // bytes that may wait for a slow reader
	lowOutbox    = 128 << 10 // below this a client's next bytes are read
	maxSysinfo   = 1 << 20
	freeBuffer   = 2 * amqp.FrameMax // bytes that each connection may make us hold
	requestQueue = "ur.request."
)

// busConn is one TCP connection. Three goroutines serve it: one reads, one
// writes, and one, once the machine is known, speaks with the control plane.
// Nobody writes to the socket while holding a lock.
type busConn struct {
	bus     *Bus
	net     net.Conn
	source  netip.Addr
	session string // nonce: names this connection and no other
	wakeup  chan struct{}
	room    chan struct{}
	news    chan struct{} // sysinfo came
	gone    chan struct{} // closed at the end
	counted int           // under bus.mu
	refused bool          // and said so; the reading goroutine's

	// Identity, from the queue name. Written once, under mu, by the reading
	// goroutine before the connection is among bus.holders; who finds it there
	// may read it without.
	name, uuid, mac string
	spelled         string // UUID and MAC as the machine spells them in its keys

	mu        sync.Mutex
	sess      *amqp.Session
	out       []byte
	handling  bool // of what was received
	publicKey string
	sysinfo   json.RawMessage // the last one that passed the checks
	told      json.RawMessage // the last one that the control plane heard
	early     *amqp.Message   // said before the queue was named
	asked     string          // id under which it was asked who it is
	waiting   map[string]chan busReply
	held      []busReply // answers that wait until we know who gives them
}

func newBusConn(b *Bus, nc net.Conn, source netip.Addr) *busConn {
	c := &busConn{
		bus: b, net: nc, source: source, session: nonce(), wakeup: make(chan struct{}, 1), room: make(chan struct{}, 1),
		news: make(chan struct{}, 1), gone: make(chan struct{}), waiting: map[string]chan busReply{},
	}
	c.sess = amqp.NewSession(amqp.Policy{Product: "muster-booter", MaxBody: b.o.MaxMessage, Login: b.login, Declare: c.admit})
	return c
}

func nonce() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (c *busConn) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { c.write(ctx) })
	c.read(ctx, &work)
	close(c.gone)
	cancel()
	c.net.Close()
	c.bus.forget(c)
	work.Wait()
}

// read takes bytes from the socket until the connection is over.
func (c *busConn) read(ctx context.Context, work *sync.WaitGroup) {
	settle := time.Now().Add(c.bus.o.Settle)
	buf := make([]byte, 16<<10)
	for {
		if !c.setDeadline(settle) {
			c.linger(buf)
			return
		}
		n, err := c.net.Read(buf)
		c.mu.Lock()
		events := c.sess.Receive(buf[:n])
		c.handling = true
		c.mu.Unlock()
		for _, e := range events {
			c.handle(ctx, e, work)
		}
		c.mu.Lock()
		c.handling = false
		c.collect()
		held, done := c.sess.Buffered()+c.kept(), c.sess.Done()
		c.mu.Unlock()
		switch {
		case done:
			c.linger(buf)
			return
		case err != nil:
			c.silence(err)
			return
		case !c.bus.charge(c, held):
			c.bus.counts.add("bus_out_of_memory")
			c.close(amqp.ResourceError, "too much is being sent to the booter at once")
		}
		if !c.awaitRoom() {
			return
		}
	}
}

// kept is how many bytes of the machine's words are kept; c.mu is held.
func (c *busConn) kept() int {
	n := len(c.sysinfo) + len(c.told)
	if c.early != nil {
		n += len(c.early.Body)
	}
	for _, r := range c.held {
		n += len(r.Stdout) + len(r.Stderr)
	}
	return n
}

// setDeadline says when silence becomes too long: twice the agreed heartbeat,
// and for a connection that has not said who it is, the time to settle. False:
// the session is over.
func (c *busConn) setDeadline(settle time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := settle
	if c.name != "" {
		t = time.Time{} // a client that wants no heartbeats: TCP keep-alive must do
		if beat := c.sess.Heartbeat(); beat != 0 {
			t = time.Now().Add(2 * time.Duration(beat) * time.Second)
		}
	}
	c.net.SetReadDeadline(t)
	return !c.sess.Done()
}

func (c *busConn) silence(err error) {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	reason := "it has been silent for twice its heartbeat"
	if c.name == "" {
		reason = "it did not log in and name a machine's queue in time"
	}
	c.bus.counts.add("bus_silent")
	c.bus.refused(c.source, c.uuid, c.mac, reason)
}

// linger lets the peer read our last words: closing a socket that still has
// unread input would destroy them on the way.
func (c *busConn) linger(buf []byte) {
	end := time.Now().Add(lingerFor)
	c.net.SetReadDeadline(end)
	for time.Now().Before(end) {
		if _, err := c.net.Read(buf); err != nil {
			return
		}
	}
}

// awaitRoom holds a client back that does not read its answers.
func (c *busConn) awaitRoom() bool {
	for {
		c.mu.Lock()
		full := len(c.out) > lowOutbox
		c.mu.Unlock()
		if !full {
			return true
		}
		select {
		case <-c.room:
		case <-c.gone:
			return false
		}
	}
}

// write sends what is in the outbox, and heartbeats.
func (c *busConn) write(ctx context.Context) {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		c.mu.Lock()
		b, done := c.out, c.sess.Done() && !c.handling
		c.out = nil
		c.mu.Unlock()
		poke(c.room)
		if len(b) > 0 {
			c.net.SetWriteDeadline(time.Now().Add(writeTimeout))
			if _, err := c.net.Write(b); err != nil {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					c.bus.counts.add("bus_slow_readers")
					uuid, mac := c.who()
					c.bus.refused(c.source, uuid, mac, "it does not read what is sent to it")
				}
				c.net.Close() // ends the reader
				c.discard()
				return
			}
			continue
		}
		if done {
			if t, ok := c.net.(interface{ CloseWrite() error }); ok {
				t.CloseWrite()
			}
			c.mu.Lock()
			c.net.SetReadDeadline(time.Now().Add(lingerFor)) // the reader may be deep in a wait
			c.mu.Unlock()
			return
		}
		select {
		case <-c.wakeup:
		case <-beat.C:
			c.mu.Lock()
			c.sess.Beat()
			c.collect()
			c.mu.Unlock()
		case <-ctx.Done():
			c.close(amqp.ConnectionForced, "the booter stops")
		case <-c.gone:
			return
		}
	}
}

// discard empties the outbox of a socket that is broken.
func (c *busConn) discard() {
	c.mu.Lock()
	c.out = nil
	c.mu.Unlock()
	poke(c.room)
}

// close says why and ends the connection once that is written.
func (c *busConn) close(code uint16, reason string) {
	c.mu.Lock()
	c.sess.Close(code, reason)
	c.collect()
	c.mu.Unlock()
}

// collect moves what the session says into the outbox; c.mu is held. Nothing
// is answered while a client's words are being handled: an answer means that
// what came before it was.
func (c *busConn) collect() {
	if !c.handling {
		c.out = append(c.out, c.sess.Output()...)
		poke(c.wakeup)
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (c *busConn) who() (uuid, mac string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.uuid, c.mac
}

func (c *busConn) key() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.publicKey
}

// listens tells whether the machine has said who it is and would hear an
// execute that is addressed to it alone.
func (c *busConn) listens() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sysinfo != nil && c.sess.Ready() && c.sess.Routes(executeKey+c.spelled+".x") > 0
}

// deliver sends a message to this connection, and says so if nobody listens.
func (c *busConn) deliver(key string, body []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sess.Done() {
		return errConnectionOver
	}
	if len(c.out)+len(body) > maxOutbox && len(c.out) > 0 {
		return errors.New("the machine does not read what was sent to it before")
	}
	n, err := c.sess.Deliver(amqp.Message{Exchange: "amq.topic", Key: key, Properties: amqp.JSON, Body: body})
	c.collect()
	if err == nil && n == 0 {
		err = errors.New("the machine has no queue that listens for it")
	}
	return err
}

var errConnectionOver = errors.New("the connection to the machine is over")

// admit decides on a new queue name. It runs under c.mu and must not block.
func (c *busConn) admit(queue string) *amqp.Error {
	rest, is := strings.CutPrefix(queue, requestQueue)
	if !is {
		return nil // a private queue; nothing is routed there but pings
	}
	refuse := func(uuid, mac, reason string, tell bool) *amqp.Error {
		c.refused = true
		c.bus.counts.add("bus_refused_names")
		c.bus.refused(c.source, uuid, mac, reason)
		if tell {
			c.bus.told.add(change{uuid: uuid, SessionChange: muster.SessionChange{MAC: mac, Source: c.source.String(), Reason: reason}})
		}
		return &amqp.Error{Code: amqp.AccessRefused, Text: reason, Hard: true}
	}
	u, m, _ := strings.Cut(rest, ".")
	uuid, err := muster.ParseUUID(u)
	if err != nil {
		return refuse("", "", "its queue name holds no usable UUID: "+err.Error(), false)
	}
	mac, err := muster.ParseMAC(m)
	if err != nil {
		return refuse(uuid, "", "its queue name holds no MAC address: "+err.Error(), false)
	}
	if c.name != "" {
		return refuse(uuid, mac, "its connection speaks for another machine already", false)
	}
	if reason := c.bus.belongs(mac, c.source); reason != "" {
		return refuse(uuid, mac, reason, true)
	}
	c.name, c.uuid, c.mac, c.spelled = uuid+"."+mac, uuid, mac, u+"-"+m
	return nil
}
