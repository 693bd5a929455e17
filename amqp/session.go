package amqp

import (
	"fmt"
	"strings"
)

// A Policy is what a server allows on one connection. Zero limits are replaced
// by the defaults below.
type Policy struct {
	Product     string
	Heartbeat   uint16 // seconds, proposed to the client
	MaxBody     int    // bytes of one message from the client
	MaxChannels int
	MaxQueues   int
	MaxBindings int
	MaxTags     int // consumers
	MaxWaiting  int // messages that wait in one queue
	// Login checks a user's password.
	Login func(user, password string) bool
	// Declare decides on a new queue; nil allows it. Its *Error closes channel
	// or connection, as the code says.
	Declare func(queue string) *Error
}

func (p Policy) withDefaults() Policy {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	if p.Heartbeat == 0 {
		p.Heartbeat = 30
	}
	def(&p.MaxBody, 6<<20)
	// A stock agent opens one more channel on every reconnect, for as long as
	// it runs: channels are cheap and must not run out soon.
	def(&p.MaxChannels, 1024)
	def(&p.MaxTags, 1024)
	def(&p.MaxQueues, 16)
	def(&p.MaxBindings, 64)
	def(&p.MaxWaiting, 16)
	if p.Login == nil {
		p.Login = func(string, string) bool { return false }
	}
	if p.Declare == nil {
		p.Declare = func(string) *Error { return nil }
	}
	return p
}

// Events tell what a client did. They are for the server's owner: nothing that
// a client publishes ever reaches another client by itself.
type (
	// Opened: the client has logged in.
	Opened struct{ User, Product string }
	// Declared: a queue that was not there before.
	Declared struct{ Queue string }
	// Listening: a queue's bindings or consumers grew.
	Listening struct{ Queue string }
	// Published: a whole message.
	Published struct{ Message }
	// Rejected: a delivery was refused; it is not repeated.
	Rejected struct{ DeliveryTag uint64 }
	// Closed: the connection is over. Err is nil when the client closed it.
	Closed struct{ Err *Error }
)

// An Event is one of the types above.
type Event any

type sessionState uint8

const (
	wantHeader sessionState = iota
	wantStartOK
	wantTuneOK
	wantOpen
	running
	done
)

// A Session is the server's end of one connection. Queues belong to it alone:
// two clients that declare the same name have two queues. Deliveries are made
// at most once: what a client does not acknowledge, or refuses, is not
// repeated, because a script must never run twice.
type Session struct {
	policy    Policy
	state     sessionState
	split     Splitter
	head      []byte // of the protocol header
	out       []byte
	events    []Event
	user      string
	product   string
	frameMax  int
	heartbeat uint16
	channels  map[uint16]*sessionChannel
	exchanges map[string]bool
	queues    []*sessionQueue
	bindings  int
	tags      int
	serial    int // of names that the server gives
}

// NewSession waits for a client's protocol header.
func NewSession(p Policy) *Session {
	return &Session{
		policy: p.withDefaults(), frameMax: FrameMax, split: Splitter{Max: FrameMax},
		channels: map[uint16]*sessionChannel{}, exchanges: map[string]bool{"amq.topic": true},
	}
}

// Receive takes what came from the client, in pieces of any size, and returns
// what it meant. What must be sent back is in Output.
func (s *Session) Receive(b []byte) []Event {
	s.events = nil
	if s.state == wantHeader {
		n := min(len(Header)-len(s.head), len(b))
		s.head = append(s.head, b[:n]...)
		b = b[n:]
		if len(s.head) < len(Header) {
			return nil
		}
		s.start()
	}
	for s.state != done && len(b) > 0 {
		n := min(len(b), 4096) // so that a dead session buffers nothing more
		s.split.Push(b[:n])
		b = b[n:]
		s.frames()
	}
	return s.events
}

func (s *Session) frames() {
	for s.state != done {
		f, ok, err := s.split.Next()
		if err == nil && !ok {
			return
		}
		if err == nil {
			err = s.frame(f)
		}
		if err != nil {
			s.fail(f.Channel, err.(*Error))
		}
	}
}

// Output returns the bytes that must be sent to the client, once.
func (s *Session) Output() []byte {
	b := s.out
	s.out = nil
	return b
}

// Done tells that the connection can be closed once the output is sent.
func (s *Session) Done() bool { return s.state == done }

// Ready tells that the client has logged in and not been closed.
func (s *Session) Ready() bool { return s.state == running }

// Heartbeat is the agreed interval in seconds; 0: none.
func (s *Session) Heartbeat() uint16 { return s.heartbeat }

// Beat appends a heartbeat to the output.
func (s *Session) Beat() {
	if s.state == running || s.state == wantOpen {
		s.out = AppendHeartbeat(s.out)
	}
}

// What a channel and a consumer take in memory at most, beside bodies, in bytes.
const (
	channelCost = 512
	messageCost = 4 << 10 // of properties, names and keys
	tagCost     = 512
)

// Buffered is how many bytes the session holds for the client: incomplete
// frames, incomplete messages, messages that wait, and what channels and
// consumers take.
func (s *Session) Buffered() int {
	n := s.split.Buffered() + len(s.channels)*channelCost + s.tags*tagCost
	for _, c := range s.channels {
		n += c.asm.Buffered() + 8*cap(c.unacked)
		if c.asm.Busy() {
			n += messageCost
		}
	}
	for _, q := range s.queues {
		n += q.bytes
	}
	return n
}

func (s *Session) start() {
	if string(s.head) != Header {
		s.out = append(s.out, Header...) // section 4.2.2: say what would do, and close
		s.end(errorf(FrameError, "not an AMQP 0-9-1 client"))
		return
	}
	s.state = wantStartOK
	s.send(0, &ConnectionStart{
		Major: 0, Minor: 9, Mechanisms: "AMQPLAIN PLAIN", Locales: "en_US",
		Properties: Table{{"product", s.policy.Product}, {"capabilities", Table{{"authentication_failure_close", true}}}},
	})
}

func (s *Session) send(channel uint16, m Method) { s.out = AppendMethod(s.out, channel, m) }

func (s *Session) end(err *Error) {
	if s.state != done {
		s.state = done
		s.events = append(s.events, Closed{err})
	}
	s.split, s.channels, s.queues, s.tags = Splitter{}, map[uint16]*sessionChannel{}, nil, 0
}

// Close ends the connection from our side, with a reason for the client.
func (s *Session) Close(code uint16, text string) {
	if s.state != done {
		s.fail(0, &Error{Code: code, Text: text, Hard: true})
	}
}

// fail closes what the error says: channel or connection. Of a connection it
// is the end at once: nobody waits for close-ok.
func (s *Session) fail(channel uint16, err *Error) {
	if c := s.channels[channel]; c != nil && err.Soft() && s.state == running {
		s.drop(channel)
		c.closing = true
		s.send(channel, &ChannelClose{Code: err.Code, Text: err.Text, Class: err.Class, Method: err.Method})
		return
	}
	s.send(0, &ConnectionClose{Code: err.Code, Text: err.Text, Class: err.Class, Method: err.Method})
	s.end(err)
}

func (s *Session) frame(f Frame) error {
	switch f.Type {
	case FrameHeartbeat:
		if f.Channel != 0 || len(f.Payload) != 0 {
			return errorf(FrameError, "a heartbeat that carries something")
		}
		return nil
	case FrameMethod:
		m, err := ParseMethod(f.Payload)
		if err != nil {
			return err
		}
		class, id := ClassMethod(m)
		if f.Channel == 0 {
			err = s.connectionMethod(m)
		} else {
			err = s.channelMethod(f.Channel, m)
		}
		if e, ok := err.(*Error); ok && e.Class == 0 {
			e.Class, e.Method = class, id
		}
		return err
	}
	return s.content(f)
}

func (s *Session) connectionMethod(m Method) error {
	switch m := m.(type) {
	case *ConnectionClose:
		s.send(0, &ConnectionCloseOK{})
		s.end(nil)
		return nil
	case *ConnectionStartOK:
		if s.state == wantStartOK {
			return s.login(m)
		}
	case *ConnectionTuneOK:
		if s.state == wantTuneOK {
			return s.tune(m)
		}
	case *ConnectionOpen:
		if s.state != wantOpen {
			break
		}
		if m.VirtualHost != "/" {
			return errorf(NotAllowed, "there is no virtual host but /")
		}
		s.state = running
		s.send(0, &ConnectionOpenOK{})
		s.events = append(s.events, Opened{s.user, s.product})
		return nil
	}
	if class, _ := ClassMethod(m); class != connection>>16 {
		return errorf(CommandInvalid, "a channel's method on channel 0")
	}
	return errorf(CommandInvalid, "method not expected now")
}

func (s *Session) login(m *ConnectionStartOK) error {
	var user, password string
	switch m.Mechanism {
	case "PLAIN": // RFC 4616: authorization identity, user, password
		parts := strings.Split(m.Response, "\x00")
		if len(parts) != 3 {
			return errorf(SyntaxError, "a PLAIN response has three parts")
		}
		user, password = parts[1], parts[2]
	case "AMQPLAIN":
		var t Table
		c := coder{b: []byte(m.Response)}
		c.tableBody(&t, maxDepth)
		if c.err != nil {
			return c.err
		}
		user, password = t.Get("LOGIN"), t.Get("PASSWORD")
	default:
		return &Error{Code: AccessRefused, Text: "the mechanisms are AMQPLAIN and PLAIN", Hard: true}
	}
	if !s.policy.Login(user, password) {
		return &Error{Code: AccessRefused, Text: "wrong user or password", Hard: true}
	}
	s.user, s.product, s.state = user, m.Properties.Get("product"), wantTuneOK
	s.send(0, &ConnectionTune{ChannelMax: uint16(min(s.policy.MaxChannels, 65535)), FrameMax: FrameMax, Heartbeat: s.policy.Heartbeat})
	return nil
}

// Login builds the response of a mechanism; it is what a client sends.
func Login(mechanism, user, password string) string {
	if mechanism == "PLAIN" {
		return "\x00" + user + "\x00" + password
	}
	c := coder{writing: true}
	c.tableBody(&Table{{"LOGIN", user}, {"PASSWORD", password}}, maxDepth)
	return string(c.b)
}

func (s *Session) tune(m *ConnectionTuneOK) error {
	if m.FrameMax != 0 {
		if m.FrameMax < minFrameMax || m.FrameMax > FrameMax {
			return errorf(NotAllowed, "frame-max must lie between %d and %d", minFrameMax, FrameMax)
		}
		s.frameMax = int(m.FrameMax)
		s.split.Max = s.frameMax
	}
	// channel-max 0 is what stock agents answer, always; our own limit holds.
	if n := int(m.ChannelMax); n != 0 && n < s.policy.MaxChannels {
		s.policy.MaxChannels = n
	}
	s.heartbeat, s.state = m.Heartbeat, wantOpen
	return nil
}

// serverName makes a name where a client left it empty.
func (s *Session) serverName(kind string) string {
	s.serial++
	return fmt.Sprintf("amq.%s-%d", kind, s.serial)
}
