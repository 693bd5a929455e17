package bus

import (
	"errors"
	"fmt"
	"net"
	"time"

	"muster.internal/amqp"
)

// frame returns the next frame, however many reads it takes.
func (c *Conn) frame() (amqp.Frame, error) {
	for {
		f, ok, err := c.split.Next()
		if err != nil || ok {
			return f, err
		}
		if c.silence != 0 {
			c.net.SetReadDeadline(time.Now().Add(c.silence))
		}
		n, err := c.net.Read(c.buf)
		c.split.Push(c.buf[:n])
		if err != nil && n == 0 {
			return f, err
		}
	}
}

// step takes in one frame: it returns a method, or a message that is complete
// with it, or neither.
func (c *Conn) step() (amqp.Method, *Delivery, error) {
	f, err := c.frame()
	if err != nil {
		return nil, nil, err
	}
	switch f.Type {
	case amqp.FrameHeartbeat:
		return nil, nil, nil
	case amqp.FrameMethod:
		m, err := amqp.ParseMethod(f.Payload)
		if err == nil {
			err = c.take(f.Channel, m)
		}
		return m, nil, err
	}
	d, err := c.content(f)
	return nil, d, err
}

// take handles the methods that a server sends of its own accord.
func (c *Conn) take(channel uint16, m amqp.Method) error {
	switch m := m.(type) {
	case *amqp.ConnectionClose:
		c.send(0, &amqp.ConnectionCloseOK{})
		return fmt.Errorf("%w: %d %s", ErrClosed, m.Code, m.Text)
	case *amqp.ChannelClose: // a stock agent would agree and go on deaf; we begin anew
		return fmt.Errorf("the boot bus closed channel %d: %d %s", channel, m.Code, m.Text)
	case *amqp.BasicDeliver:
		if channel != executing && channel != pinging {
			return errors.New("a delivery on a channel that does not consume")
		}
		c.tags[channel] = m.DeliveryTag
		return c.asm[channel].Begin(m.Exchange, m.Key)
	}
	return nil
}

func (c *Conn) content(f amqp.Frame) (*Delivery, error) {
	a := c.asm[f.Channel]
	if a == nil {
		return nil, errors.New("content on a channel that does not consume")
	}
	var done bool
	var err error
	if f.Type == amqp.FrameHeader {
		done, err = a.Header(f.Payload, maxMessage)
	} else {
		done, err = a.Body(f.Payload)
	}
	if err != nil || !done {
		return nil, err
	}
	m, _ := a.Take()
	// Acknowledged before it is looked at: it must not come again, whatever
	// happens to us.
	if err := c.send(f.Channel, &amqp.BasicAck{DeliveryTag: c.tags[f.Channel]}); err != nil {
		return nil, err
	}
	return &Delivery{m.Key, m.Body}, nil
}

// method waits for the next method; messages that come before it are kept.
func (c *Conn) method() (amqp.Method, error) {
	for {
		m, d, err := c.step()
		if err != nil {
			return nil, err
		}
		if d != nil {
			c.early = append(c.early, *d)
		}
		if m != nil {
			return m, nil
		}
	}
}

// read runs until the connection ends. Two heartbeats of silence end it.
func (c *Conn) read() {
	c.err = c.readAll()
	c.net.Close()
	close(c.ended)
}

func (c *Conn) readAll() error {
	for _, d := range c.early {
		if err := c.hand(d); err != nil {
			return err
		}
	}
	c.early = nil
	for {
		m, d, err := c.step()
		if err == nil && d != nil {
			err = c.hand(*d)
		}
		if err != nil {
			return err
		}
		if _, ok := m.(*amqp.BasicQosOK); ok {
			c.smu.Lock()
			if len(c.syncs) > 0 {
				close(c.syncs[0])
				c.syncs = c.syncs[1:]
			}
			c.smu.Unlock()
		}
	}
}

func (c *Conn) hand(d Delivery) error {
	select {
	case c.in <- d:
		return nil
	case <-c.quit:
		return net.ErrClosed
	}
}

// beat keeps the connection known to be alive.
func (c *Conn) beat() {
	t := time.NewTicker(heartbeat)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if c.write(amqp.AppendHeartbeat(nil)) != nil {
				return
			}
		case <-c.ended:
			return
		}
	}
}
