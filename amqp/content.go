package amqp

// Property flags of a content header (section 4.2.6.1), in wire order.
const (
	HasContentType     = 1 << 15
	HasContentEncoding = 1 << 14
	HasHeaders         = 1 << 13
	HasDeliveryMode    = 1 << 12
	HasPriority        = 1 << 11
	HasCorrelationID   = 1 << 10
	HasReplyTo         = 1 << 9
	HasExpiration      = 1 << 8
	HasMessageID       = 1 << 7
	HasTimestamp       = 1 << 6
	HasType            = 1 << 5
	HasUserID          = 1 << 4
	HasAppID           = 1 << 3
	HasClusterID       = 1 << 2
)

// Properties describe a message. Only the fields whose flag is set are there.
type Properties struct {
	Flags           uint16
	ContentType     string
	ContentEncoding string
	Headers         Table
	DeliveryMode    uint8
	Priority        uint8
	CorrelationID   string
	ReplyTo         string
	Expiration      string
	MessageID       string
	Timestamp       uint64
	Type            string
	UserID          string
	AppID           string
	ClusterID       string
}

// JSON are the properties that every message on the boot bus carries. Without
// the content type a stock agent ignores what it gets.
var JSON = Properties{Flags: HasContentType, ContentType: "application/json"}

// A ContentHeader precedes a message's body.
type ContentHeader struct {
	Class uint16
	Size  uint64
	Properties
}

func (h *ContentHeader) fields(c *coder) {
	var weight uint16
	c.short(&h.Class)
	c.short(&weight)
	c.longlong(&h.Size)
	c.short(&h.Flags)
	if weight != 0 {
		c.fail("a content header with a weight")
	}
	if h.Flags&3 != 0 {
		c.fail("a content header with undefined properties")
	}
	on := func(flag uint16, f func()) {
		if h.Flags&flag != 0 {
			f()
		}
	}
	on(HasContentType, func() { c.shortstr(&h.ContentType) })
	on(HasContentEncoding, func() { c.shortstr(&h.ContentEncoding) })
	on(HasHeaders, func() { c.table(&h.Headers) })
	on(HasDeliveryMode, func() { c.octet(&h.DeliveryMode) })
	on(HasPriority, func() { c.octet(&h.Priority) })
	on(HasCorrelationID, func() { c.shortstr(&h.CorrelationID) })
	on(HasReplyTo, func() { c.shortstr(&h.ReplyTo) })
	on(HasExpiration, func() { c.shortstr(&h.Expiration) })
	on(HasMessageID, func() { c.shortstr(&h.MessageID) })
	on(HasTimestamp, func() { c.longlong(&h.Timestamp) })
	on(HasType, func() { c.shortstr(&h.Type) })
	on(HasUserID, func() { c.shortstr(&h.UserID) })
	on(HasAppID, func() { c.shortstr(&h.AppID) })
	on(HasClusterID, func() { c.shortstr(&h.ClusterID) })
}

// ParseHeader reads the payload of a content header frame.
func ParseHeader(payload []byte) (ContentHeader, error) {
	c := coder{b: payload}
	var h ContentHeader
	h.fields(&c)
	if c.err == nil && len(c.b) > 0 {
		c.fail("bytes after the last property")
	}
	if c.err != nil {
		return ContentHeader{}, c.err
	}
	return h, nil
}

// AppendContent writes a message's header and body frames, none of them larger
// than frameMax bytes in all.
func AppendContent(dst []byte, channel uint16, p Properties, body []byte, frameMax int) []byte {
	c := coder{b: make([]byte, 0, 64), writing: true}
	h := ContentHeader{Class: basic >> 16, Size: uint64(len(body)), Properties: p}
	h.fields(&c)
	dst = AppendFrame(dst, Frame{Type: FrameHeader, Channel: channel, Payload: c.b})
	for step := frameMax - frameOverhead; len(body) > 0; {
		n := min(step, len(body))
		dst = AppendFrame(dst, Frame{Type: FrameBody, Channel: channel, Payload: body[:n]})
		body = body[n:]
	}
	return dst
}

// A Message is what is published and delivered.
type Message struct {
	Exchange string
	Key      string // routing key
	Properties
	Body []byte
}

// An Assembly puts a message together from the frames of one channel. The zero
// value expects a publish or deliver method.
type Assembly struct {
	msg     Message
	left    uint64
	table   int   // bytes that the headers take in memory
	stage   uint8 // 0 idle, 1 wants the header, 2 wants body
	Discard bool  // of a message that was refused: count it, keep nothing
}

// Begin starts a message; a message before it must be complete.
func (a *Assembly) Begin(exchange, key string) error {
	if a.stage != 0 {
		return errorf(UnexpectedFrame, "a method in the middle of a message")
	}
	*a = Assembly{msg: Message{Exchange: exchange, Key: key}, stage: 1}
	return nil
}

// Busy tells whether a message is incomplete.
func (a *Assembly) Busy() bool { return a.stage != 0 }

// Buffered is how many bytes are held: the body, and the table of headers, which
// takes many times the memory that it took on the wire.
func (a *Assembly) Buffered() int { return cap(a.msg.Body) + a.table }

// Header takes the content header. A body larger than max is 311; its frames
// must still be handed in, and are dropped.
func (a *Assembly) Header(payload []byte, max int) (done bool, err error) {
	if a.stage != 1 {
		return false, errorf(UnexpectedFrame, "a content header without a method")
	}
	h, err := ParseHeader(payload)
	if err != nil {
		return false, err
	}
	if h.Class != basic>>16 {
		return false, errorf(FrameError, "a content header of class %d", h.Class)
	}
	a.msg.Properties, a.left, a.stage, a.table = h.Properties, h.Size, 2, h.Headers.size()
	if h.Size > uint64(max) {
		a.Discard = true
		err = &Error{Code: ContentTooLarge, Text: "the message is too large", Class: 60, Method: 40}
	}
	return a.left == 0, err
}

// Body takes a body frame.
func (a *Assembly) Body(payload []byte) (done bool, err error) {
	if a.stage != 2 || a.left == 0 {
		return false, errorf(UnexpectedFrame, "a body frame without a content header")
	}
	if uint64(len(payload)) > a.left {
		return false, errorf(FrameError, "more body than the header said")
	}
	a.left -= uint64(len(payload))
	if !a.Discard {
		a.msg.Body = append(a.msg.Body, payload...)
	}
	return a.left == 0, nil
}

// Take returns the complete message and is ready for the next; false when the
// message was discarded.
func (a *Assembly) Take() (Message, bool) {
	m, kept := a.msg, !a.Discard
	*a = Assembly{}
	return m, kept
}
