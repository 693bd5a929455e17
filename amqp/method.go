package amqp

// A Method is a command of the protocol, one struct each below. Reserved
// fields are kept as they came, so that reading and writing agree.
type Method interface {
	id() uint32 // class in the upper half
	fields(*coder)
}

// ClassMethod returns a method's two numbers.
func ClassMethod(m Method) (class, method uint16) {
	return uint16(m.id() >> 16), uint16(m.id())
}

// AppendMethod writes m as a frame on a channel.
func AppendMethod(dst []byte, channel uint16, m Method) []byte {
	c := coder{b: make([]byte, 0, 64), writing: true}
	id := m.id()
	c.long(&id)
	m.fields(&c)
	return AppendFrame(dst, Frame{Type: FrameMethod, Channel: channel, Payload: c.b})
}

// ParseMethod reads the payload of a method frame. Its errors are *Error:
// 540 for a method outside the subset, 502 for one that is malformed.
func ParseMethod(payload []byte) (Method, error) {
	c := coder{b: payload}
	var id uint32
	c.long(&id)
	if c.err != nil {
		return nil, c.err
	}
	m := newMethod(id)
	if m == nil {
		return nil, &Error{Code: NotImplemented, Text: "method is not part of the boot bus", Class: uint16(id >> 16), Method: uint16(id)}
	}
	m.fields(&c)
	if c.err == nil && len(c.b) > 0 {
		c.fail("bytes after the last field")
	}
	if c.err != nil {
		c.err.Class, c.err.Method = ClassMethod(m)
		return nil, c.err
	}
	return m, nil
}

const (
	connection = 10 << 16
	channel    = 20 << 16
	exchange   = 40 << 16
	queue      = 50 << 16
	basic      = 60 << 16
)

func newMethod(id uint32) Method {
	switch id {
	case connection | 10:
		return new(ConnectionStart)
	case connection | 11:
		return new(ConnectionStartOK)
	case connection | 30:
		return new(ConnectionTune)
	case connection | 31:
		return new(ConnectionTuneOK)
	case connection | 40:
		return new(ConnectionOpen)
	case connection | 41:
		return new(ConnectionOpenOK)
	case connection | 50:
		return new(ConnectionClose)
	case connection | 51:
		return new(ConnectionCloseOK)
	case channel | 10:
		return new(ChannelOpen)
	case channel | 11:
		return new(ChannelOpenOK)
	case channel | 20:
		return new(ChannelFlow)
	case channel | 21:
		return new(ChannelFlowOK)
	case channel | 40:
		return new(ChannelClose)
	case channel | 41:
		return new(ChannelCloseOK)
	case exchange | 10:
		return new(ExchangeDeclare)
	case exchange | 11:
		return new(ExchangeDeclareOK)
	case queue | 10:
		return new(QueueDeclare)
	case queue | 11:
		return new(QueueDeclareOK)
	case queue | 20:
		return new(QueueBind)
	case queue | 21:
		return new(QueueBindOK)
	case queue | 30:
		return new(QueuePurge)
	case queue | 31:
		return new(QueuePurgeOK)
	case queue | 40:
		return new(QueueDelete)
	case queue | 41:
		return new(QueueDeleteOK)
	case queue | 50:
		return new(QueueUnbind)
	case queue | 51:
		return new(QueueUnbindOK)
	case basic | 10:
		return new(BasicQos)
	case basic | 11:
		return new(BasicQosOK)
	case basic | 20:
		return new(BasicConsume)
	case basic | 21:
		return new(BasicConsumeOK)
	case basic | 30:
		return new(BasicCancel)
	case basic | 31:
		return new(BasicCancelOK)
	case basic | 40:
		return new(BasicPublish)
	case basic | 60:
		return new(BasicDeliver)
	case basic | 80:
		return new(BasicAck)
	case basic | 90:
		return new(BasicReject)
	case basic | 120:
		return new(BasicNack)
	}
	return nil
}
