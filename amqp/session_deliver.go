package amqp

import (
	"errors"
	"slices"
)

// ErrFull refuses a message when too many wait for this client already.
var ErrFull = errors.New("amqp: too many messages wait for this client")

// Routes counts the queues of this session that a key reaches and that have a
// consumer.
func (s *Session) Routes(key string) int {
	n := 0
	for _, q := range s.queues {
		if len(q.consumers) > 0 && q.wants(key) {
			n++
		}
	}
	return n
}

func (q *sessionQueue) wants(key string) bool {
	for _, k := range q.keys {
		if Match(k, key) {
			return true
		}
	}
	return false
}

// Deliver puts a message into every queue of this session that its key
// reaches, once each, and tells how many these are. Nothing is queued when one
// of them is full.
func (s *Session) Deliver(m Message) (int, error) {
	if s.state != running {
		return 0, nil
	}
	var to []*sessionQueue
	for _, q := range s.queues {
		if !q.wants(m.Key) {
			continue
		}
		if len(q.waiting) >= s.policy.MaxWaiting || len(q.waiting) > 0 && q.bytes+len(m.Body) > maxQueueBytes {
			return 0, ErrFull
		}
		to = append(to, q)
	}
	for _, q := range to {
		q.waiting = append(q.waiting, m)
		q.bytes += len(m.Body)
		s.pump(q)
	}
	return len(to), nil
}

func (s *Session) pumpAll() {
	for _, q := range s.queues {
		s.pump(q)
	}
}

// pump sends what a queue's consumers have room for, in turn.
func (s *Session) pump(q *sessionQueue) {
	for len(q.waiting) > 0 {
		k := q.turn(s)
		if k == nil {
			return
		}
		m := q.waiting[0]
		q.waiting[0] = Message{}
		q.waiting = q.waiting[1:]
		q.bytes -= len(m.Body)
		c := s.channels[k.channel]
		c.nextTag++
		if !k.noAck {
			c.unacked = append(c.unacked, c.nextTag)
		}
		s.send(k.channel, &BasicDeliver{Tag: k.tag, DeliveryTag: c.nextTag, Exchange: m.Exchange, Key: m.Key})
		s.out = AppendContent(s.out, k.channel, m.Properties, m.Body, s.frameMax)
	}
}

// turn picks the next consumer with room and moves it to the end of the line.
func (q *sessionQueue) turn(s *Session) *consumer {
	for i := range q.consumers {
		k := q.consumers[i]
		c := s.channels[k.channel]
		limit := maxUnacked
		if c.prefetch > 0 {
			limit = min(c.prefetch, maxUnacked)
		}
		if c.paused || !k.noAck && len(c.unacked) >= limit {
			continue
		}
		q.consumers = append(append(q.consumers[:i:i], q.consumers[i+1:]...), k)
		return &k
	}
	return nil
}

func (s *Session) consume(n uint16, c *sessionChannel, m *BasicConsume) error {
	q, err := s.find(c, m.Queue)
	if err != nil {
		return err
	}
	tag := m.Tag
	if tag == "" {
		tag = s.serverName("ctag")
	}
	if c.tags[tag] != nil {
		return errorf(NotAllowed, "that consumer tag is in use")
	}
	if s.tags >= s.policy.MaxTags {
		return errorf(NotAllowed, "no more than %d consumers", s.policy.MaxTags)
	}
	s.tags++
	c.tags[tag] = q
	q.consumers = append(q.consumers, consumer{n, tag, m.NoAck})
	if !m.NoWait {
		s.send(n, &BasicConsumeOK{Tag: tag})
	}
	s.events = append(s.events, Listening{q.name})
	s.pump(q)
	return nil
}

func (s *Session) cancel(n uint16, c *sessionChannel, tag string) {
	q := c.tags[tag]
	if q == nil {
		return
	}
	delete(c.tags, tag)
	s.tags--
	q.consumers = slices.DeleteFunc(q.consumers, func(k consumer) bool { return k.channel == n && k.tag == tag })
}

// settle takes acknowledgements and refusals. Tag 0 with multiple means all.
func (s *Session) settle(c *sessionChannel, tag uint64, multiple, refused bool) error {
	if tag == 0 && !multiple || tag > c.nextTag {
		return errorf(PreconditionFailed, "unknown delivery tag %d", tag)
	}
	kept := c.unacked[:0]
	found := multiple
	for _, t := range c.unacked {
		switch {
		case t == tag, multiple && (tag == 0 || t < tag):
			found = true
			if refused {
				s.events = append(s.events, Rejected{t})
			}
		default:
			kept = append(kept, t)
		}
	}
	c.unacked = kept
	if !found {
		return errorf(PreconditionFailed, "delivery tag %d is settled", tag)
	}
	s.pumpAll()
	return nil
}
