// Package bus is the machine's side of the boot bus: it connects to the booter
// as a stock SmartOS ur-agent does, says what the machine is, and runs what it
// is sent.
//
// It must never run one message twice, and never run anything that was not
// addressed to this machine. It must stay small: the root process of every
// machine carries it.
package bus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"muster.internal/amqp"
)

// ErrClosed means that the booter ended the connection in an orderly way.
var ErrClosed = errors.New("the boot bus closed the connection")

// Options say where the bus is and who speaks.
type Options struct {
	Addr      string // host:port
	User      string
	Password  string
	LocalAddr net.Addr // to speak from; nil: the system chooses
	UUID      string   // of the machine
	MAC       string   // of the NIC it booted from, with colons
	// Connect replaces the dialling of TCP.
	Connect func(ctx context.Context, addr string) (net.Conn, error)
}

const (
	heartbeat    = 30 * time.Second
	writeTimeout = 30 * time.Second
	dialTimeout  = 30 * time.Second
	maxMessage   = 6 << 20
	exchange     = "amq.topic"
)

// A Delivery is a message that was routed to this machine.
type Delivery struct {
	Key  string
	Body []byte
}

// A Conn is one open connection, with its queues declared and bound.
type Conn struct {
	net   net.Conn
	split amqp.Splitter
	buf   []byte
	asm   map[uint16]*amqp.Assembly
	tags  map[uint16]uint64
	early []Delivery // came before anybody could ask for them
	// silence ends the connection; 0 during the handshake, which ends by its
	// context.
	silence time.Duration

	in    chan Delivery
	quit  chan struct{}
	ended chan struct{}
	once  sync.Once
	err   error // why; readable once ended is closed

	asking sync.Mutex
	smu    sync.Mutex
	syncs  []chan struct{} // who waits, oldest first

	wmu      sync.Mutex // one writer at a time
	frameMax int
}

// Dial connects, logs in, and takes the machine's queue name over.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	connect := o.Connect
	if connect == nil {
		connect = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{LocalAddr: o.LocalAddr}).DialContext(ctx, "tcp", addr)
		}
	}
	nc, err := connect(ctx, o.Addr)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the boot bus at %s: %w", o.Addr, err)
	}
	c := &Conn{
		net: nc, buf: make([]byte, 16<<10), tags: map[uint16]uint64{},
		asm: map[uint16]*amqp.Assembly{executing: new(amqp.Assembly), pinging: new(amqp.Assembly)}, quit: make(chan struct{}),
		in: make(chan Delivery, 8), ended: make(chan struct{}), frameMax: amqp.FrameMax,
	}
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	err = c.handshake(o)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("the boot bus at %s: %w", o.Addr, err)
	}
	nc.SetDeadline(time.Time{})
	c.silence = 2 * heartbeat
	go c.read()
	go c.beat()
	return c, nil
}

func (c *Conn) handshake(o Options) error {
	if _, err := c.net.Write([]byte(amqp.Header)); err != nil {
		return err
	}
	if _, err := expect[*amqp.ConnectionStart](c); err != nil {
		return err
	}
	client := amqp.Table{{Name: "product", Value: "muster-host"}}
	if err := c.send(0, &amqp.ConnectionStartOK{Properties: client, Mechanism: "AMQPLAIN", Response: amqp.Login("AMQPLAIN", o.User, o.Password), Locale: "en_US"}); err != nil {
		return err
	}
	tune, err := expect[*amqp.ConnectionTune](c)
	if err != nil {
		return err
	}
	if tune.FrameMax >= 4096 && tune.FrameMax < amqp.FrameMax {
		c.frameMax = int(tune.FrameMax)
	}
	if err := c.send(0, &amqp.ConnectionTuneOK{FrameMax: uint32(c.frameMax), Heartbeat: uint16(heartbeat / time.Second)}, &amqp.ConnectionOpen{VirtualHost: "/"}); err != nil {
		return err
	}
	if _, err := expect[*amqp.ConnectionOpenOK](c); err != nil {
		return err
	}
	return c.listen(o)
}

// Channels, as the stock agent numbers them.
const (
	publishing = 1
	executing  = 2
	pinging    = 3
)

// listen opens the channels, declares and binds the queues, and consumes.
func (c *Conn) listen(o Options) error {
	request, ping := "ur.request."+o.UUID+"."+o.MAC, "ur.ping."+o.UUID
	for _, step := range []struct {
		channel uint16
		ask     amqp.Method
		answer  amqp.Method
	}{
		{publishing, &amqp.ChannelOpen{}, &amqp.ChannelOpenOK{}},
		{executing, &amqp.ChannelOpen{}, &amqp.ChannelOpenOK{}},
		{executing, &amqp.QueueDeclare{Queue: request, Exclusive: true, AutoDelete: true}, &amqp.QueueDeclareOK{}},
		{executing, &amqp.QueueBind{Queue: request, Exchange: exchange, Key: "ur.execute." + o.UUID + "-" + o.MAC + ".*"}, &amqp.QueueBindOK{}},
		{executing, &amqp.QueueBind{Queue: request, Exchange: exchange, Key: "ur.execute." + o.UUID + ".*"}, &amqp.QueueBindOK{}},
		{executing, &amqp.QueueBind{Queue: request, Exchange: exchange, Key: "ur.broadcast.*.*"}, &amqp.QueueBindOK{}},
		{executing, &amqp.BasicQos{PrefetchCount: 1}, &amqp.BasicQosOK{}},
		{executing, &amqp.BasicConsume{Queue: request, Tag: "muster-execute"}, &amqp.BasicConsumeOK{}},
		{pinging, &amqp.ChannelOpen{}, &amqp.ChannelOpenOK{}},
		{pinging, &amqp.QueueDeclare{Queue: ping, AutoDelete: true}, &amqp.QueueDeclareOK{}},
		{pinging, &amqp.BasicQos{PrefetchCount: 1}, &amqp.BasicQosOK{}},
		{pinging, &amqp.QueueBind{Queue: ping, Exchange: exchange, Key: ping}, &amqp.QueueBindOK{}},
		{pinging, &amqp.BasicConsume{Queue: ping, Tag: "muster-ping"}, &amqp.BasicConsumeOK{}},
	} {
		if err := c.send(step.channel, step.ask); err != nil {
			return err
		}
		class, method := amqp.ClassMethod(step.answer)
		for {
			m, err := c.method()
			if err != nil {
				return err
			}
			if cl, me := amqp.ClassMethod(m); cl == class && me == method {
				break
			}
			if _, ok := m.(*amqp.BasicDeliver); !ok { // a message may come between: the reader's maps have it
				return fmt.Errorf("answers %T with %T", step.ask, m)
			}
		}
	}
	return nil
}

// expect reads frames until a method comes, which must be an M.
func expect[M amqp.Method](c *Conn) (M, error) {
	m, err := c.method()
	if err != nil {
		var none M
		return none, err
	}
	want, ok := m.(M)
	if !ok {
		return want, fmt.Errorf("it sends %T where %T is due", m, want)
	}
	return want, nil
}

// Publish sends a JSON message. It returns when the bytes are on their way,
// not when the booter has them; Sync tells that.
func (c *Conn) Publish(key string, body []byte) error {
	b := amqp.AppendMethod(nil, publishing, &amqp.BasicPublish{Exchange: exchange, Key: key})
	return c.why(c.write(amqp.AppendContent(b, publishing, amqp.JSON, body, c.frameMax)))
}

// why replaces the failure of a write by what the booter said before it closed
// the connection, if it did.
func (c *Conn) why(err error) error {
	if err == nil {
		return nil
	}
	<-c.ended
	return c.err
}

// Sync waits until the booter has read everything that was published before:
// a channel's methods are answered in order. More than a few messages that come
// first must be taken by Next meanwhile.
func (c *Conn) Sync(ctx context.Context) error {
	done := make(chan struct{})
	c.asking.Lock() // the order of asking is the order of the answers
	c.smu.Lock()
	c.syncs = append(c.syncs, done)
	c.smu.Unlock()
	err := c.send(publishing, &amqp.BasicQos{PrefetchCount: 1})
	c.asking.Unlock()
	if err != nil {
		return c.why(err)
	}
	select {
	case <-done:
		return nil
	case <-c.ended:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Next returns the next message; it has been acknowledged already, so that it
// never comes again.
func (c *Conn) Next(ctx context.Context) (Delivery, error) {
	select {
	case d := <-c.in:
		return d, nil
	case <-c.ended:
		return Delivery{}, c.err
	case <-ctx.Done():
		return Delivery{}, ctx.Err()
	}
}

// Close ends the connection as the stock agent does: by closing the socket.
func (c *Conn) Close() error {
	c.once.Do(func() { close(c.quit) })
	err := c.net.Close()
	<-c.ended
	return err
}

func (c *Conn) send(channel uint16, ms ...amqp.Method) error {
	var b []byte
	for _, m := range ms {
		b = amqp.AppendMethod(b, channel, m)
	}
	return c.write(b)
}

func (c *Conn) write(b []byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.net.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := c.net.Write(b)
	if err != nil {
		c.net.Close() // half a frame may be out: nothing can follow
	}
	return err
}
