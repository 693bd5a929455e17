package booter

import (
	"net"
	"strings"
	"sync"
	"testing"

	"muster.internal/amqp"
)

// A stock is a stock agent, byte by byte: it writes what SmartOS' agent writes,
// in its order and with its numbers, reads everything, and acknowledges each
// delivery before it looks at it.
type stock struct {
	t         *testing.T
	c         net.Conn
	uuid, mac string

	mu       sync.Mutex
	wmu      sync.Mutex
	answers  []amqp.Method
	messages []amqp.Message
	beats    int
	ended    bool
	mute     bool // acknowledges nothing, answers nothing
}

func connectStock(t *testing.T, l *pipeListener, uuid, mac, source string) *stock {
	t.Helper()
	c, err := l.from(source)(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	s := &stock{t: t, c: c, uuid: uuid, mac: mac}
	go s.read()
	return s
}

// startStock connects and says all that an agent says until it listens. Neither
// startup nor sysinfo: that is what a reconnection looks like.
func startStock(t *testing.T, l *pipeListener, uuid, mac, source string) *stock {
	s := connectStock(t, l, uuid, mac, source)
	s.login()
	s.listen(2)
	s.ping(3)
	return s
}

func (s *stock) raw(b []byte) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	s.c.Write(b)
}

func (s *stock) send(channel uint16, ms ...amqp.Method) {
	var b []byte
	for _, m := range ms {
		b = amqp.AppendMethod(b, channel, m)
	}
	s.raw(b)
}

// login is steps 1 to 4: AMQPLAIN, channel-max 0 whatever was proposed, the
// server's frame-max, heartbeats of 30 seconds.
func (s *stock) login() {
	s.raw([]byte(amqp.Header))
	s.send(0, &amqp.ConnectionStartOK{Properties: amqp.Table{{Name: "version", Value: "0.0.1"}, {Name: "platform", Value: "node-v20"}, {Name: "product", Value: "node-amqp"}},
		Mechanism: "AMQPLAIN", Response: amqp.Login("AMQPLAIN", "muster", "s3cret"), Locale: "en_US"})
	s.send(0, &amqp.ConnectionTuneOK{ChannelMax: 0, FrameMax: amqp.FrameMax, Heartbeat: 30}, &amqp.ConnectionOpen{VirtualHost: "/"})
	s.send(1, &amqp.ChannelOpen{})
}

func (s *stock) queue() string { return "ur.request." + s.uuid + "." + s.mac }

func (s *stock) bindings(channel uint16) {
	for _, key := range []string{"ur.execute." + s.uuid + "-" + s.mac + ".*", "ur.execute." + s.uuid + ".*", "ur.broadcast.*.*"} {
		s.send(channel, &amqp.QueueBind{Queue: s.queue(), Exchange: "amq.topic", Key: key})
	}
}

func (s *stock) listen(channel uint16) {
	s.send(channel, &amqp.ChannelOpen{}, &amqp.QueueDeclare{Queue: s.queue(), Exclusive: true, AutoDelete: true})
	s.bindings(channel)
	s.send(channel, &amqp.BasicQos{PrefetchCount: 1}, &amqp.BasicConsume{Queue: s.queue(), Tag: "node-amqp-1"})
}

func (s *stock) ping(channel uint16) {
	q := "ur.ping." + s.uuid
	s.send(channel, &amqp.ChannelOpen{}, &amqp.QueueDeclare{Queue: q, AutoDelete: true}, &amqp.BasicQos{PrefetchCount: 1},
		&amqp.BasicConsume{Queue: q, Tag: "node-amqp-ping"}, &amqp.QueueBind{Queue: q, Exchange: "amq.topic", Key: q})
}

// publish fills each body payload up to frame-max: its frame is 8 bytes larger
// than was agreed.
func (s *stock) publish(key string, body []byte) {
	b := amqp.AppendMethod(nil, 1, &amqp.BasicPublish{Exchange: "amq.topic", Key: key})
	s.raw(amqp.AppendContent(b, 1, amqp.JSON, body, amqp.FrameMax+8))
}

func (s *stock) sysinfo() { s.publish("ur.sysinfo."+s.uuid+".1a2b", sysinfo(s.uuid, "")) }

func (s *stock) read() {
	var split amqp.Splitter
	var asm amqp.Assembly
	var tag uint64
	buf := make([]byte, 16<<10)
	for {
		n, err := s.c.Read(buf)
		split.Push(buf[:n])
		for {
			f, ok, ferr := split.Next()
			if ferr != nil || !ok {
				break
			}
			done := false
			switch f.Type {
			case amqp.FrameHeartbeat:
				s.mu.Lock()
				s.beats++
				s.mu.Unlock()
			case amqp.FrameMethod:
				m, _ := amqp.ParseMethod(f.Payload)
				if d, is := m.(*amqp.BasicDeliver); is {
					tag = d.DeliveryTag
					asm.Begin(d.Exchange, d.Key)
					continue
				}
				s.mu.Lock()
				s.answers = append(s.answers, m)
				s.mu.Unlock()
				if _, is := m.(*amqp.ChannelClose); is && !s.mute {
					s.send(f.Channel, &amqp.ChannelCloseOK{})
				}
			case amqp.FrameHeader:
				done, _ = asm.Header(f.Payload, 1<<20)
			case amqp.FrameBody:
				done, _ = asm.Body(f.Payload)
			}
			if done {
				m, _ := asm.Take()
				if !s.mute {
					s.send(f.Channel, &amqp.BasicAck{DeliveryTag: tag})
				}
				s.mu.Lock()
				s.messages = append(s.messages, m)
				s.mu.Unlock()
			}
		}
		if err != nil {
			s.mu.Lock()
			s.ended = true
			s.mu.Unlock()
			return
		}
	}
}

// heard are the messages under keys that begin so.
func (s *stock) heard(prefix string) (out []amqp.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.messages {
		if strings.HasPrefix(m.Key, prefix) {
			out = append(out, m)
		}
	}
	return out
}

// answered counts the answers of one kind.
func answered[M amqp.Method](s *stock) (out []M) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.answers {
		if a, is := m.(M); is {
			out = append(out, a)
		}
	}
	return out
}

func (s *stock) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// id is the last word of a key.
func id(key string) string { return key[strings.LastIndex(key, ".")+1:] }
