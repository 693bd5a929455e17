package amqp

// ConnectionStart opens the handshake, server to client.
type ConnectionStart struct {
	Major, Minor uint8
	Properties   Table
	Mechanisms   string // separated by blanks
	Locales      string
}

func (*ConnectionStart) id() uint32 { return connection | 10 }
func (m *ConnectionStart) fields(c *coder) {
	c.octet(&m.Major)
	c.octet(&m.Minor)
	c.table(&m.Properties)
	c.longstr(&m.Mechanisms)
	c.longstr(&m.Locales)
}

// ConnectionStartOK carries the credentials.
type ConnectionStartOK struct {
	Properties Table
	Mechanism  string
	Response   string
	Locale     string
}

func (*ConnectionStartOK) id() uint32 { return connection | 11 }
func (m *ConnectionStartOK) fields(c *coder) {
	c.table(&m.Properties)
	c.shortstr(&m.Mechanism)
	c.longstr(&m.Response)
	c.shortstr(&m.Locale)
}

// ConnectionTune proposes limits; 0 is "no limit", heartbeats in seconds.
type ConnectionTune struct {
	ChannelMax uint16
	FrameMax   uint32
	Heartbeat  uint16
}

func (*ConnectionTune) id() uint32 { return connection | 30 }
func (m *ConnectionTune) fields(c *coder) {
	c.short(&m.ChannelMax)
	c.long(&m.FrameMax)
	c.short(&m.Heartbeat)
}

// ConnectionTuneOK settles them.
type ConnectionTuneOK ConnectionTune

func (*ConnectionTuneOK) id() uint32        { return connection | 31 }
func (m *ConnectionTuneOK) fields(c *coder) { (*ConnectionTune)(m).fields(c) }

// ConnectionOpen names the virtual host; only "/" exists.
type ConnectionOpen struct {
	VirtualHost string
	Reserved1   string
	Reserved2   bool
}

func (*ConnectionOpen) id() uint32 { return connection | 40 }
func (m *ConnectionOpen) fields(c *coder) {
	c.shortstr(&m.VirtualHost)
	c.shortstr(&m.Reserved1)
	c.bits(&m.Reserved2)
}

// ConnectionOpenOK ends the handshake.
type ConnectionOpenOK struct{ Reserved string }

func (*ConnectionOpenOK) id() uint32        { return connection | 41 }
func (m *ConnectionOpenOK) fields(c *coder) { c.shortstr(&m.Reserved) }

// ConnectionClose says why; class and method name the offender.
type ConnectionClose struct {
	Code          uint16
	Text          string
	Class, Method uint16
}

func (*ConnectionClose) id() uint32 { return connection | 50 }
func (m *ConnectionClose) fields(c *coder) {
	c.short(&m.Code)
	c.shortstr(&m.Text)
	c.short(&m.Class)
	c.short(&m.Method)
}

// ConnectionCloseOK agrees.
type ConnectionCloseOK struct{}

func (*ConnectionCloseOK) id() uint32    { return connection | 51 }
func (*ConnectionCloseOK) fields(*coder) {}

// ChannelOpen opens a channel.
type ChannelOpen struct{ Reserved string }

func (*ChannelOpen) id() uint32        { return channel | 10 }
func (m *ChannelOpen) fields(c *coder) { c.shortstr(&m.Reserved) }

// ChannelOpenOK agrees.
type ChannelOpenOK struct{ Reserved string }

func (*ChannelOpenOK) id() uint32        { return channel | 11 }
func (m *ChannelOpenOK) fields(c *coder) { c.longstr(&m.Reserved) }

// ChannelFlow stops or resumes deliveries.
type ChannelFlow struct{ Active bool }

func (*ChannelFlow) id() uint32        { return channel | 20 }
func (m *ChannelFlow) fields(c *coder) { c.bits(&m.Active) }

// ChannelFlowOK agrees.
type ChannelFlowOK struct{ Active bool }

func (*ChannelFlowOK) id() uint32        { return channel | 21 }
func (m *ChannelFlowOK) fields(c *coder) { c.bits(&m.Active) }

// ChannelClose says why.
type ChannelClose ConnectionClose

func (*ChannelClose) id() uint32        { return channel | 40 }
func (m *ChannelClose) fields(c *coder) { (*ConnectionClose)(m).fields(c) }

// ChannelCloseOK agrees.
type ChannelCloseOK struct{}

func (*ChannelCloseOK) id() uint32    { return channel | 41 }
func (*ChannelCloseOK) fields(*coder) {}

// ExchangeDeclare names an exchange.
type ExchangeDeclare struct {
	Reserved                                       uint16
	Exchange, Type                                 string
	Passive, Durable, AutoDelete, Internal, NoWait bool
	Arguments                                      Table
}

func (*ExchangeDeclare) id() uint32 { return exchange | 10 }
func (m *ExchangeDeclare) fields(c *coder) {
	c.short(&m.Reserved)
	c.shortstr(&m.Exchange)
	c.shortstr(&m.Type)
	c.bits(&m.Passive, &m.Durable, &m.AutoDelete, &m.Internal, &m.NoWait)
	c.table(&m.Arguments)
}

// ExchangeDeclareOK agrees.
type ExchangeDeclareOK struct{}

func (*ExchangeDeclareOK) id() uint32    { return exchange | 11 }
func (*ExchangeDeclareOK) fields(*coder) {}

// QueueDeclare names a queue; an empty name asks the server for one.
type QueueDeclare struct {
	Reserved                                        uint16
	Queue                                           string
	Passive, Durable, Exclusive, AutoDelete, NoWait bool
	Arguments                                       Table
}

func (*QueueDeclare) id() uint32 { return queue | 10 }
func (m *QueueDeclare) fields(c *coder) {
	c.short(&m.Reserved)
	c.shortstr(&m.Queue)
	c.bits(&m.Passive, &m.Durable, &m.Exclusive, &m.AutoDelete, &m.NoWait)
	c.table(&m.Arguments)
}

// QueueDeclareOK tells the queue's name and fill.
type QueueDeclareOK struct {
	Queue               string
	Messages, Consumers uint32
}

func (*QueueDeclareOK) id() uint32 { return queue | 11 }
func (m *QueueDeclareOK) fields(c *coder) {
	c.shortstr(&m.Queue)
	c.long(&m.Messages)
	c.long(&m.Consumers)
}

// QueueBind routes keys that match a pattern to a queue.
type QueueBind struct {
	Reserved             uint16
	Queue, Exchange, Key string
	NoWait               bool
	Arguments            Table
}

func (*QueueBind) id() uint32 { return queue | 20 }
func (m *QueueBind) fields(c *coder) {
	c.short(&m.Reserved)
	c.shortstr(&m.Queue)
	c.shortstr(&m.Exchange)
	c.shortstr(&m.Key)
	c.bits(&m.NoWait)
	c.table(&m.Arguments)
}

// QueueBindOK agrees.
type QueueBindOK struct{}

func (*QueueBindOK) id() uint32    { return queue | 21 }
func (*QueueBindOK) fields(*coder) {}

// QueuePurge empties a queue.
type QueuePurge struct {
	Reserved uint16
	Queue    string
	NoWait   bool
}

func (*QueuePurge) id() uint32 { return queue | 30 }
func (m *QueuePurge) fields(c *coder) {
	c.short(&m.Reserved)
	c.shortstr(&m.Queue)
	c.bits(&m.NoWait)
}

// QueuePurgeOK counts what was thrown away.
type QueuePurgeOK struct{ Messages uint32 }

func (*QueuePurgeOK) id() uint32        { return queue | 31 }
func (m *QueuePurgeOK) fields(c *coder) { c.long(&m.Messages) }

// QueueDelete removes a queue.
type QueueDelete struct {
	Reserved                  uint16
	Queue                     string
	IfUnused, IfEmpty, NoWait bool
}

func (*QueueDelete) id() uint32 { return queue | 40 }
func (m *QueueDelete) fields(c *coder) {
	c.short(&m.Reserved)
	c.shortstr(&m.Queue)
	c.bits(&m.IfUnused, &m.IfEmpty, &m.NoWait)
}

// QueueDeleteOK counts what was in it.
type QueueDeleteOK struct{ Messages uint32 }

func (*QueueDeleteOK) id() uint32        { return queue | 41 }
func (m *QueueDeleteOK) fields(c *coder) { c.long(&m.Messages) }

// QueueUnbind undoes a binding.
type QueueUnbind struct {
	Reserved             uint16
	Queue, Exchange, Key string
	Arguments            Table
}

func (*QueueUnbind) id() uint32 { return queue | 50 }
func (m *QueueUnbind) fields(c *coder) {
	c.short(&m.Reserved)
	c.shortstr(&m.Queue)
	c.shortstr(&m.Exchange)
	c.shortstr(&m.Key)
	c.table(&m.Arguments)
}

// QueueUnbindOK agrees.
type QueueUnbindOK struct{}

func (*QueueUnbindOK) id() uint32    { return queue | 51 }
func (*QueueUnbindOK) fields(*coder) {}

// BasicQos bounds how many deliveries may wait for their acknowledgement.
type BasicQos struct {
	PrefetchSize  uint32
	PrefetchCount uint16
	Global        bool
}

func (*BasicQos) id() uint32 { return basic | 10 }
func (m *BasicQos) fields(c *coder) {
	c.long(&m.PrefetchSize)
	c.short(&m.PrefetchCount)
	c.bits(&m.Global)
}

// BasicQosOK agrees.
type BasicQosOK struct{}

func (*BasicQosOK) id() uint32    { return basic | 11 }
func (*BasicQosOK) fields(*coder) {}

// BasicConsume asks for deliveries from a queue.
type BasicConsume struct {
	Reserved                          uint16
	Queue, Tag                        string
	NoLocal, NoAck, Exclusive, NoWait bool
	Arguments                         Table
}

func (*BasicConsume) id() uint32 { return basic | 20 }
func (m *BasicConsume) fields(c *coder) {
	c.short(&m.Reserved)
	c.shortstr(&m.Queue)
	c.shortstr(&m.Tag)
	c.bits(&m.NoLocal, &m.NoAck, &m.Exclusive, &m.NoWait)
	c.table(&m.Arguments)
}

// BasicConsumeOK repeats or gives the consumer's tag.
type BasicConsumeOK struct{ Tag string }

func (*BasicConsumeOK) id() uint32        { return basic | 21 }
func (m *BasicConsumeOK) fields(c *coder) { c.shortstr(&m.Tag) }

// BasicCancel ends a consumer.
type BasicCancel struct {
	Tag    string
	NoWait bool
}

func (*BasicCancel) id() uint32 { return basic | 30 }
func (m *BasicCancel) fields(c *coder) {
	c.shortstr(&m.Tag)
	c.bits(&m.NoWait)
}

// BasicCancelOK agrees.
type BasicCancelOK struct{ Tag string }

func (*BasicCancelOK) id() uint32        { return basic | 31 }
func (m *BasicCancelOK) fields(c *coder) { c.shortstr(&m.Tag) }

// BasicPublish starts a message; a header and body frames follow.
type BasicPublish struct {
	Reserved             uint16
	Exchange, Key        string
	Mandatory, Immediate bool
}

func (*BasicPublish) id() uint32 { return basic | 40 }
func (m *BasicPublish) fields(c *coder) {
	c.short(&m.Reserved)
	c.shortstr(&m.Exchange)
	c.shortstr(&m.Key)
	c.bits(&m.Mandatory, &m.Immediate)
}

// BasicDeliver starts a message to a consumer.
type BasicDeliver struct {
	Tag           string
	DeliveryTag   uint64
	Redelivered   bool
	Exchange, Key string
}

func (*BasicDeliver) id() uint32 { return basic | 60 }
func (m *BasicDeliver) fields(c *coder) {
	c.shortstr(&m.Tag)
	c.longlong(&m.DeliveryTag)
	c.bits(&m.Redelivered)
	c.shortstr(&m.Exchange)
	c.shortstr(&m.Key)
}

// BasicAck acknowledges one delivery, or all up to it.
type BasicAck struct {
	DeliveryTag uint64
	Multiple    bool
}

func (*BasicAck) id() uint32 { return basic | 80 }
func (m *BasicAck) fields(c *coder) {
	c.longlong(&m.DeliveryTag)
	c.bits(&m.Multiple)
}

// BasicReject refuses one delivery.
type BasicReject struct {
	DeliveryTag uint64
	Requeue     bool
}

func (*BasicReject) id() uint32 { return basic | 90 }
func (m *BasicReject) fields(c *coder) {
	c.longlong(&m.DeliveryTag)
	c.bits(&m.Requeue)
}

// BasicNack refuses one delivery, or all up to it (RabbitMQ's extension).
type BasicNack struct {
	DeliveryTag       uint64
	Multiple, Requeue bool
}

func (*BasicNack) id() uint32 { return basic | 120 }
func (m *BasicNack) fields(c *coder) {
	c.longlong(&m.DeliveryTag)
	c.bits(&m.Multiple, &m.Requeue)
}
