package amqp

import "slices"

// sessionChannel is one channel of a session.
type sessionChannel struct {
	asm      Assembly
	closing  bool // we sent close: everything but close-ok is dropped
	paused   bool
	prefetch int // 0: no limit but maxUnacked
	nextTag  uint64
	unacked  []uint64 // delivery tags, ascending
	tags     map[string]*sessionQueue
	queue    string // the last one declared: what an empty name means
}

// sessionQueue holds what waits for one of its consumers.
type sessionQueue struct {
	name      string
	keys      []string
	waiting   []Message
	bytes     int
	consumers []consumer
}

type consumer struct {
	channel uint16
	tag     string
	noAck   bool
}

const (
	maxUnacked    = 256
	maxQueueBytes = 1 << 20
)

func (s *Session) channelMethod(n uint16, m Method) error {
	if s.state != running {
		return errorf(CommandInvalid, "the connection is not open yet")
	}
	c := s.channels[n]
	if _, open := m.(*ChannelOpen); open {
		if c != nil {
			return errorf(ChannelError, "channel %d is open", n)
		}
		if len(s.channels) >= s.policy.MaxChannels {
			return errorf(NotAllowed, "no more than %d channels", s.policy.MaxChannels)
		}
		s.channels[n] = &sessionChannel{tags: map[string]*sessionQueue{}}
		s.send(n, &ChannelOpenOK{})
		return nil
	}
	if c == nil {
		return errorf(ChannelError, "channel %d is not open", n)
	}
	switch m.(type) {
	case *ChannelCloseOK:
		if !c.closing {
			return errorf(CommandInvalid, "a close-ok that nobody asked for")
		}
		delete(s.channels, n)
		return nil
	case *ChannelClose:
		s.drop(n)
		delete(s.channels, n)
		s.send(n, &ChannelCloseOK{})
		return nil
	}
	if c.closing {
		return nil
	}
	if c.asm.Busy() {
		return errorf(UnexpectedFrame, "a method in the middle of a message")
	}
	switch m := m.(type) {
	case *ChannelFlow:
		c.paused = !m.Active
		s.send(n, &ChannelFlowOK{Active: m.Active})
		s.pumpAll()
		return nil
	case *ExchangeDeclare:
		return s.declareExchange(n, m)
	case *QueueDeclare:
		return s.declareQueue(n, c, m)
	case *QueueBind:
		return s.bind(n, c, m)
	case *QueueUnbind:
		return s.unbind(n, c, m)
	case *QueuePurge:
		return s.purge(n, c, m)
	case *QueueDelete:
		return s.deleteQueue(n, c, m)
	case *BasicQos:
		c.prefetch = int(m.PrefetchCount)
		s.send(n, &BasicQosOK{})
		s.pumpAll()
		return nil
	case *BasicConsume:
		return s.consume(n, c, m)
	case *BasicCancel:
		s.cancel(n, c, m.Tag)
		if !m.NoWait {
			s.send(n, &BasicCancelOK{Tag: m.Tag})
		}
		return nil
	case *BasicPublish:
		if m.Immediate {
			return errorf(NotImplemented, "immediate messages are not part of the boot bus")
		}
		if m.Exchange != "" && !s.exchanges[m.Exchange] {
			return errorf(NotFound, "there is no exchange of that name")
		}
		return c.asm.Begin(m.Exchange, m.Key)
	case *BasicAck:
		return s.settle(c, m.DeliveryTag, m.Multiple, false)
	case *BasicReject:
		return s.settle(c, m.DeliveryTag, false, true)
	case *BasicNack:
		return s.settle(c, m.DeliveryTag, m.Multiple, true)
	}
	return errorf(CommandInvalid, "method not expected from a client")
}

// content takes header and body frames.
func (s *Session) content(f Frame) error {
	c := s.channels[f.Channel]
	if c == nil || s.state != running {
		return errorf(ChannelError, "content on channel %d, which is not open", f.Channel)
	}
	if c.closing {
		return nil
	}
	var done bool
	var err error
	if f.Type == FrameHeader {
		done, err = c.asm.Header(f.Payload, s.policy.MaxBody)
	} else {
		done, err = c.asm.Body(f.Payload)
	}
	if err != nil {
		return err
	}
	if done {
		if m, kept := c.asm.Take(); kept {
			s.events = append(s.events, Published{m})
		}
	}
	return nil
}

// drop forgets what a channel consumes and what it was sending.
func (s *Session) drop(n uint16) {
	c := s.channels[n]
	for tag := range c.tags {
		s.cancel(n, c, tag)
	}
	c.asm, c.unacked = Assembly{}, nil
}

func (s *Session) declareExchange(n uint16, m *ExchangeDeclare) error {
	if !s.exchanges[m.Exchange] {
		if m.Passive || m.Exchange == "" {
			return errorf(NotFound, "there is no exchange of that name")
		}
		if len(s.exchanges) >= s.policy.MaxQueues {
			return errorf(NotAllowed, "no more than %d exchanges", s.policy.MaxQueues)
		}
		s.exchanges[m.Exchange] = true
	}
	if !m.NoWait {
		s.send(n, &ExchangeDeclareOK{})
	}
	return nil
}

func (s *Session) declareQueue(n uint16, c *sessionChannel, m *QueueDeclare) error {
	name := m.Queue
	switch {
	case name == "" && m.Passive:
		name = c.queue
	case name == "":
		name = s.serverName("gen")
	}
	q := s.queue(name)
	if q == nil {
		if m.Passive {
			return errorf(NotFound, "there is no queue of that name")
		}
		if len(s.queues) >= s.policy.MaxQueues {
			return errorf(NotAllowed, "no more than %d queues", s.policy.MaxQueues)
		}
		if err := s.policy.Declare(name); err != nil {
			return err
		}
		q = &sessionQueue{name: name}
		s.queues = append(s.queues, q)
		s.events = append(s.events, Declared{name})
	}
	c.queue = name
	if !m.NoWait {
		s.send(n, &QueueDeclareOK{Queue: name, Messages: uint32(len(q.waiting)), Consumers: uint32(len(q.consumers))})
	}
	return nil
}

func (s *Session) find(c *sessionChannel, name string) (*sessionQueue, error) {
	if name == "" {
		name = c.queue
	}
	if q := s.queue(name); q != nil {
		return q, nil
	}
	return nil, errorf(NotFound, "there is no queue of that name")
}

func (s *Session) queue(name string) *sessionQueue {
	for _, q := range s.queues {
		if q.name == name {
			return q
		}
	}
	return nil
}

func (s *Session) bind(n uint16, c *sessionChannel, m *QueueBind) error {
	q, err := s.find(c, m.Queue)
	if err != nil {
		return err
	}
	if !s.exchanges[m.Exchange] {
		return errorf(NotFound, "there is no exchange of that name")
	}
	if !slices.Contains(q.keys, m.Key) { // stock agents bind everything twice
		if s.bindings >= s.policy.MaxBindings {
			return errorf(NotAllowed, "no more than %d bindings", s.policy.MaxBindings)
		}
		s.bindings++
		q.keys = append(q.keys, m.Key)
		s.events = append(s.events, Listening{q.name})
	}
	if !m.NoWait {
		s.send(n, &QueueBindOK{})
	}
	return nil
}

func (s *Session) unbind(n uint16, c *sessionChannel, m *QueueUnbind) error {
	q, err := s.find(c, m.Queue)
	if err != nil {
		return err
	}
	if i := slices.Index(q.keys, m.Key); i >= 0 {
		q.keys = slices.Delete(q.keys, i, i+1)
		s.bindings--
	}
	s.send(n, &QueueUnbindOK{})
	return nil
}

func (s *Session) purge(n uint16, c *sessionChannel, m *QueuePurge) error {
	q, err := s.find(c, m.Queue)
	if err != nil {
		return err
	}
	count := len(q.waiting)
	q.waiting, q.bytes = nil, 0
	if !m.NoWait {
		s.send(n, &QueuePurgeOK{Messages: uint32(count)})
	}
	return nil
}

func (s *Session) deleteQueue(n uint16, c *sessionChannel, m *QueueDelete) error {
	q, err := s.find(c, m.Queue)
	if err != nil {
		return err
	}
	if m.IfUnused && len(q.consumers) > 0 || m.IfEmpty && len(q.waiting) > 0 {
		return errorf(PreconditionFailed, "the queue is in use")
	}
	for _, k := range q.consumers {
		delete(s.channels[k.channel].tags, k.tag)
		s.tags--
	}
	s.bindings -= len(q.keys)
	s.queues = slices.DeleteFunc(s.queues, func(o *sessionQueue) bool { return o == q })
	if !m.NoWait {
		s.send(n, &QueueDeleteOK{Messages: uint32(len(q.waiting))})
	}
	return nil
}
