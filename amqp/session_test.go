package amqp

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

const (
	testUUID = "564d9f2e-6d6c-4b4a-9a53-0c2b1a6f7d10"
	testMAC  = "52:54:00:aa:bb:01"
)

func frames(ms ...any) string {
	var b []byte
	for i := 0; i < len(ms); i += 2 {
		b = AppendMethod(b, uint16(ms[i].(int)), ms[i+1].(Method))
	}
	return string(b)
}

func publish(channel int, key, body string) string {
	b := AppendMethod(nil, uint16(channel), &BasicPublish{Exchange: "amq.topic", Key: key})
	return string(AppendContent(b, uint16(channel), JSON, []byte(body), FrameMax))
}

// handshake is what a stock agent sends before its channels.
func handshake(vhost string) string {
	return Header + frames(
		0, &ConnectionStartOK{Table{{"version", "0.0.1"}, {"platform", "node-v0.8"}, {"product", "node-amqp"}}, "AMQPLAIN", Login("AMQPLAIN", "guest", "guest"), "en_US"},
		0, &ConnectionTuneOK{0, FrameMax, 30}, 0, &ConnectionOpen{vhost, "", true})
}

// stockAgent is all of it: channels, queues, and the bindings without waiting.
func stockAgent(vhost string) string {
	q := "ur.request." + testUUID + "." + testMAC
	return handshake(vhost) + frames(
		1, &ChannelOpen{}, 2, &ChannelOpen{},
		2, &QueueDeclare{Queue: q, Exclusive: true, AutoDelete: true},
		2, &QueueBind{Queue: q, Exchange: "amq.topic", Key: "ur.execute." + testUUID + "-" + testMAC + ".*"},
		2, &QueueBind{Queue: q, Exchange: "amq.topic", Key: "ur.execute." + testUUID + ".*"},
		2, &QueueBind{Queue: q, Exchange: "amq.topic", Key: "ur.broadcast.*.*"},
		2, &BasicQos{PrefetchCount: 1}, 2, &BasicConsume{Queue: q, Tag: "node-amqp-1-0.5"},
		3, &ChannelOpen{}, 3, &QueueDeclare{Queue: "ur.ping." + testUUID, AutoDelete: true},
		3, &BasicQos{PrefetchCount: 1}, 3, &BasicConsume{Queue: "ur.ping." + testUUID, Tag: "node-amqp-1-0.6"},
		3, &QueueBind{Queue: "ur.ping." + testUUID, Exchange: "amq.topic", Key: "ur.ping." + testUUID})
}

func testPolicy() Policy {
	return Policy{Product: "test", Login: func(u, p string) bool { return u == "guest" && p == "guest" }}
}

// said spells the frames that a session sent, one a line.
func said(t *testing.T, out []byte) []string {
	t.Helper()
	var lines []string
	for len(out) > 0 {
		if string(out) == Header {
			return append(lines, "header")
		}
		f, n, err := ParseFrame(out, FrameMax)
		if err != nil || n == 0 {
			t.Fatalf("%d bytes that are no frame: %v", len(out), err)
		}
		out = out[n:]
		switch f.Type {
		case FrameMethod:
			m, err := ParseMethod(f.Payload)
			if err != nil {
				t.Fatal(err)
			}
			switch m := m.(type) {
			case *ConnectionClose:
				lines = append(lines, fmt.Sprintf("%d close connection %d", f.Channel, m.Code))
			case *ChannelClose:
				lines = append(lines, fmt.Sprintf("%d close channel %d", f.Channel, m.Code))
			case *BasicDeliver:
				lines = append(lines, fmt.Sprintf("%d deliver %d %s", f.Channel, m.DeliveryTag, m.Key))
			default:
				lines = append(lines, fmt.Sprintf("%d %s", f.Channel, strings.TrimPrefix(fmt.Sprintf("%T", m), "*amqp.")))
			}
		case FrameBody:
			lines = append(lines, fmt.Sprintf("%d body %s", f.Channel, f.Payload))
		case FrameHeartbeat:
			lines = append(lines, "heartbeat")
		}
	}
	return lines
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("%s:\n%s\nwant\n%s", what, g, w)
	}
}

func eventNames(es []Event) []string {
	var names []string
	for _, e := range es {
		n := strings.TrimPrefix(fmt.Sprintf("%T", e), "amqp.")
		switch e := e.(type) {
		case Published:
			n += fmt.Sprintf(" %s %d", e.Key, len(e.Body))
		case Closed:
			if e.Err != nil {
				n += fmt.Sprintf(" %d", e.Err.Code)
			}
		}
		names = append(names, n)
	}
	return names
}

func TestStockAgent(t *testing.T) {
	s := NewSession(testPolicy())
	events := s.Receive([]byte(stockAgent("/")))
	expect(t, "answers", said(t, s.Output()),
		"0 ConnectionStart", "0 ConnectionTune", "0 ConnectionOpenOK",
		"1 ChannelOpenOK", "2 ChannelOpenOK", "2 QueueDeclareOK", "2 QueueBindOK", "2 QueueBindOK", "2 QueueBindOK", "2 BasicQosOK", "2 BasicConsumeOK",
		"3 ChannelOpenOK", "3 QueueDeclareOK", "3 BasicQosOK", "3 BasicConsumeOK", "3 QueueBindOK")
	expect(t, "events", eventNames(events),
		"Opened", "Declared", "Listening", "Listening", "Listening", "Listening", "Declared", "Listening", "Listening")
	if s.Heartbeat() != 30 || !s.Ready() || s.Done() {
		t.Errorf("heartbeat %d, ready %v, done %v", s.Heartbeat(), s.Ready(), s.Done())
	}

	deliver := func(key string, want int) {
		t.Helper()
		if n, err := s.Deliver(Message{Exchange: "amq.topic", Key: key, Properties: JSON, Body: []byte(`{"k":"` + key + `"}`)}); n != want || err != nil {
			t.Errorf("%s goes to %d queues (%v), want %d", key, n, err, want)
		}
	}
	deliver("ur.execute."+testUUID+"-"+testMAC+".1", 1)
	deliver("ur.execute.00000000-0000-0000-0000-000000000001.2", 0)
	deliver("ur.broadcast.sysinfo.3", 1)
	deliver("ur.ping."+testUUID, 1)
	expect(t, "prefetch 1", said(t, s.Output()),
		"2 deliver 1 ur.execute."+testUUID+"-"+testMAC+".1", `2 body {"k":"ur.execute.`+testUUID+"-"+testMAC+`.1"}`,
		"3 deliver 1 ur.ping."+testUUID, `3 body {"k":"ur.ping.`+testUUID+`"}`)
	s.Receive([]byte(frames(2, &BasicAck{DeliveryTag: 1})))
	expect(t, "after the ack", said(t, s.Output()), "2 deliver 2 ur.broadcast.sysinfo.3", `2 body {"k":"ur.broadcast.sysinfo.3"}`)

	expect(t, "a publication", eventNames(s.Receive([]byte(publish(1, "ur.sysinfo."+testUUID+".9", strings.Repeat("x", 300000))))),
		"Published ur.sysinfo."+testUUID+".9 300000")
	expect(t, "the client goes", eventNames(s.Receive([]byte(frames(0, &ConnectionClose{Code: 200})))), "Closed")
	expect(t, "and is told so", said(t, s.Output()), "0 ConnectionCloseOK")
	if !s.Done() || s.Buffered() != 0 {
		t.Error("something is left of a closed session")
	}
}

func TestMessagesBeforeBindings(t *testing.T) {
	s := NewSession(testPolicy())
	s.Receive([]byte(handshake("/") + frames(1, &ChannelOpen{}, 1, &QueueDeclare{Queue: "q"})))
	s.Output()
	if n, _ := s.Deliver(Message{Key: "a.b"}); n != 0 || s.Routes("a.b") != 0 {
		t.Error("a message reached a queue without a binding")
	}
	s.Receive([]byte(frames(1, &QueueBind{Queue: "q", Exchange: "amq.topic", Key: "a.*"})))
	if n, _ := s.Deliver(Message{Key: "a.b", Body: []byte("later")}); n != 1 || s.Routes("a.b") != 0 {
		t.Error("a bound queue without consumers must keep the message, and say that nobody listens")
	}
	expect(t, "nobody listens", said(t, s.Output()), "1 QueueBindOK")
	s.Receive([]byte(frames(1, &BasicConsume{Queue: "", Tag: "t", NoAck: true})))
	expect(t, "somebody does", said(t, s.Output()), "1 BasicConsumeOK", "1 deliver 1 a.b", "1 body later")
	for i := range 40 {
		s.Deliver(Message{Key: "a.b", Body: []byte{byte('a' + i%26)}})
	}
	if n := len(said(t, s.Output())); n != 80 {
		t.Errorf("%d lines for 40 messages without acknowledgement", n)
	}
}

func TestQueueIsBounded(t *testing.T) {
	s := NewSession(testPolicy())
	s.Receive([]byte(handshake("/") + frames(1, &ChannelOpen{}, 1, &QueueDeclare{Queue: "q"}, 1, &QueueBind{Queue: "q", Exchange: "amq.topic", Key: "#"})))
	n := 0
	for ; n < 1000; n++ {
		if _, err := s.Deliver(Message{Key: "k", Body: make([]byte, 1000)}); err != nil {
			break
		}
	}
	if n != 16 {
		t.Errorf("%d messages wait", n)
	}
	s.Receive([]byte(frames(1, &QueuePurge{Queue: "q"})))
	if s.Buffered() != channelCost {
		t.Errorf("%d bytes after a purge", s.Buffered())
	}
	s.Deliver(Message{Key: "k", Body: make([]byte, 900<<10)})
	if _, err := s.Deliver(Message{Key: "k", Body: make([]byte, 900<<10)}); err != ErrFull {
		t.Errorf("1.8 MB wait: %v", err)
	}
}

func TestSessionErrors(t *testing.T) {
	open := handshake("/") + frames(1, &ChannelOpen{})
	p := testPolicy()
	p.MaxChannels, p.MaxQueues, p.MaxBindings, p.MaxTags, p.MaxBody = 3, 2, 2, 2, 100
	p.Declare = func(q string) *Error {
		switch q {
		case "locked":
			return &Error{Code: ResourceLocked, Text: "taken"}
		case "foreign":
			return &Error{Code: AccessRefused, Text: "not yours", Hard: true}
		}
		return nil
	}
	body := AppendFrame(nil, Frame{Type: FrameBody, Channel: 1, Payload: []byte("x")})
	for _, c := range []struct{ name, in, want string }{
		{"HTTP", "GET / HTTP/1.1\r\n\r\n", "header"},
		{"AMQP 1.0", "AMQP\x00\x01\x00\x00", "header"},
		{"wrong password", Header + frames(0, &ConnectionStartOK{nil, "PLAIN", Login("PLAIN", "guest", "no"), "en_US"}), "0 close connection 403"},
		{"wrong AMQPLAIN password", Header + frames(0, &ConnectionStartOK{nil, "AMQPLAIN", Login("AMQPLAIN", "guest", "no"), "en_US"}), "0 close connection 403"},
		{"EXTERNAL", Header + frames(0, &ConnectionStartOK{nil, "EXTERNAL", "", "en_US"}), "0 close connection 403"},
		{"garbage in AMQPLAIN", Header + frames(0, &ConnectionStartOK{nil, "AMQPLAIN", "\xff\xff", "en_US"}), "0 close connection 502"},
		{"another host", handshake("/other"), "0 close connection 530"},
		{"frame-max 1", strings.Replace(handshake("/"), frames(0, &ConnectionTuneOK{0, FrameMax, 30}), frames(0, &ConnectionTuneOK{0, 1, 30}), 1), "0 close connection 530"},
		{"a channel's method before open", Header + frames(1, &ChannelOpen{}), "0 close connection 503"},
		{"open twice", handshake("/") + frames(0, &ConnectionOpen{VirtualHost: "/"}), "0 close connection 503"},
		{"a server's method", open + frames(1, &BasicDeliver{}), "0 close connection 503"},
		{"a channel's method on channel 0", handshake("/") + frames(0, &ChannelOpen{}), "0 close connection 503"},
		{"channel not open", handshake("/") + frames(5, &BasicQos{}), "0 close connection 504"},
		{"channel open twice", open + frames(1, &ChannelOpen{}), "0 close connection 504"},
		{"body out of place", open + string(body), "0 close connection 505"},
		{"method within a message", open + frames(1, &BasicPublish{Exchange: "amq.topic"}, 1, &BasicQos{}), "0 close connection 505"},
		{"tx.select", open + "\x01\x00\x01\x00\x00\x00\x04\x00\x5a\x00\x0a\xce", "0 close connection 540"},
		{"malformed method", open + "\x01\x00\x01\x00\x00\x00\x05\x00\x14\x00\x14\x02\xce", "0 close connection 502"},
		{"malformed frame", open + "\x09\x00\x01\x00\x00\x00\x00\xce", "0 close connection 501"},
		{"too large a frame", open + "\x03\x00\x01\x00\x10\x00\x00\xce", "0 close connection 501"},
		{"four channels", open + frames(2, &ChannelOpen{}, 3, &ChannelOpen{}, 4, &ChannelOpen{}), "0 close connection 530"},
		{"three queues", open + frames(1, &QueueDeclare{Queue: "a"}, 1, &QueueDeclare{}, 1, &QueueDeclare{}), "0 close connection 530"},
		{"three bindings", open + frames(1, &QueueDeclare{Queue: "a"}, 1, &QueueBind{Exchange: "amq.topic", Key: "a"}, 1, &QueueBind{Exchange: "amq.topic", Key: "b"}, 1, &QueueBind{Exchange: "amq.topic", Key: "c"}), "0 close connection 530"},
		{"three consumers", open + frames(1, &QueueDeclare{Queue: "a"}, 1, &BasicConsume{}, 1, &BasicConsume{}, 1, &BasicConsume{}), "0 close connection 530"},
		{"one tag twice", open + frames(1, &QueueDeclare{Queue: "a"}, 1, &BasicConsume{Tag: "t"}, 1, &BasicConsume{Tag: "t"}), "0 close connection 530"},
		{"foreign name", open + frames(1, &QueueDeclare{Queue: "foreign"}), "0 close connection 403"},
		{"locked name", open + frames(1, &QueueDeclare{Queue: "locked"}), "1 close channel 405"},
		{"bind nothing", open + frames(1, &QueueBind{Queue: "none", Exchange: "amq.topic"}), "1 close channel 404"},
		{"bind to nothing", open + frames(1, &QueueDeclare{Queue: "a"}, 1, &QueueBind{Exchange: "none"}), "1 close channel 404"},
		{"passive queue", open + frames(1, &QueueDeclare{Queue: "none", Passive: true}), "1 close channel 404"},
		{"passive exchange", open + frames(1, &ExchangeDeclare{Exchange: "none", Passive: true}), "1 close channel 404"},
		{"publish to nothing", open + frames(1, &BasicPublish{Exchange: "none"}), "1 close channel 404"},
		{"too large a message", open + publish(1, "k", strings.Repeat("x", 101)), "1 close channel 311"},
		{"ack of nothing", open + frames(1, &BasicAck{DeliveryTag: 1}), "1 close channel 406"},
	} {
		s := NewSession(p)
		s.Receive([]byte(c.in))
		got := said(t, s.Output())
		if got[len(got)-1] != c.want {
			t.Errorf("%s: %q, want %q", c.name, got[len(got)-1], c.want)
		}
		if hard := !strings.Contains(c.want, "channel"); s.Done() != hard {
			t.Errorf("%s: done %v", c.name, s.Done())
		}
	}
}

func TestClosedChannelIsDeafUntilCloseOK(t *testing.T) {
	s := NewSession(testPolicy())
	in := handshake("/") + frames(1, &ChannelOpen{}, 1, &BasicPublish{Exchange: "none"}) + publish(1, "k", "lost")
	expect(t, "events", eventNames(s.Receive([]byte(in))), "Opened")
	s.Output()
	expect(t, "open again", eventNames(s.Receive([]byte(frames(1, &ChannelCloseOK{}, 1, &ChannelOpen{})+publish(1, "k", "heard")))), "Published k 5")
	expect(t, "answer", said(t, s.Output()), "1 ChannelOpenOK")
}

// TestNothingIsDeliveredTwice holds for refusals, for a channel that closes and
// for two consumers of one queue.
func TestNothingIsDeliveredTwice(t *testing.T) {
	s := NewSession(testPolicy())
	s.Receive([]byte(handshake("/") + frames(1, &ChannelOpen{}, 2, &ChannelOpen{}, 1, &QueueDeclare{Queue: "q"},
		1, &QueueBind{Exchange: "amq.topic", Key: "#"}, 1, &QueueBind{Exchange: "amq.topic", Key: "k"},
		1, &BasicQos{PrefetchCount: 1}, 1, &BasicConsume{Queue: "q"}, 2, &BasicQos{PrefetchCount: 1}, 2, &BasicConsume{Queue: "q"})))
	s.Output()
	for _, b := range []string{"one", "two", "three", "four"} {
		s.Deliver(Message{Key: "k", Body: []byte(b)})
	}
	expect(t, "in turn", said(t, s.Output()), "1 deliver 1 k", "1 body one", "2 deliver 1 k", "2 body two")
	expect(t, "refused", eventNames(s.Receive([]byte(frames(1, &BasicNack{DeliveryTag: 1, Requeue: true})))), "Rejected")
	expect(t, "the next one", said(t, s.Output()), "1 deliver 2 k", "1 body three")
	s.Receive([]byte(frames(1, &ChannelClose{Code: 200})))
	s.Receive([]byte(frames(2, &BasicAck{Multiple: true})))
	expect(t, "the other consumer gets the rest", said(t, s.Output()), "1 ChannelCloseOK", "2 deliver 2 k", "2 body four")
}

func TestOtherMethods(t *testing.T) {
	s := NewSession(testPolicy())
	s.Receive([]byte(handshake("/") + frames(1, &ChannelOpen{}, 1, &QueueDeclare{Queue: "q"}, 1, &QueueBind{Exchange: "amq.topic", Key: "k"}, 1, &BasicConsume{Tag: "t"})))
	s.Output()
	in := frames(1, &ExchangeDeclare{Exchange: "e", Type: "topic"}, 1, &ChannelFlow{Active: false})
	s.Receive([]byte(in))
	s.Deliver(Message{Key: "k", Body: []byte("b")})
	expect(t, "paused", said(t, s.Output()), "1 ExchangeDeclareOK", "1 ChannelFlowOK")
	s.Receive([]byte(frames(1, &ChannelFlow{Active: true})))
	expect(t, "resumed", said(t, s.Output()), "1 ChannelFlowOK", "1 deliver 1 k", "1 body b")
	s.Receive([]byte(frames(1, &QueueUnbind{Exchange: "amq.topic", Key: "k"}, 1, &QueueDelete{Queue: "q", IfUnused: true})))
	expect(t, "in use", said(t, s.Output()), "1 QueueUnbindOK", "1 close channel 406")
	if n, _ := s.Deliver(Message{Key: "k"}); n != 0 {
		t.Error("an unbound queue still gets messages")
	}
	s.Receive([]byte(frames(1, &ChannelCloseOK{}, 1, &ChannelOpen{}, 1, &QueueDelete{Queue: "q"})))
	expect(t, "deleted", said(t, s.Output()), "1 ChannelOpenOK", "1 QueueDeleteOK")
	s.Beat()
	s.Close(ConnectionForced, "taken over")
	expect(t, "the end", said(t, s.Output()), "heartbeat", "0 close connection 320")
	if s.Receive([]byte(publish(1, "k", "late"))) != nil || s.Output() != nil {
		t.Error("a dead session answers")
	}
}

// TestTablesAreCounted: a table of empty fields takes dozens of times more
// memory than it has bytes, and each channel could hold one.
func TestTablesAreCounted(t *testing.T) {
	headers := make(Table, 30000)
	for i := range headers {
		headers[i] = Field{Value: true}
	}
	h := ContentHeader{Class: basic >> 16, Size: 1, Properties: Properties{Flags: HasHeaders, Headers: headers}}
	c := coder{writing: true}
	h.fields(&c)
	s := NewSession(testPolicy())
	s.Receive([]byte(handshake("/")))
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	const channels = 100
	for n := 1; n <= channels; n++ {
		s.Receive(AppendFrame([]byte(frames(n, &ChannelOpen{}, n, &BasicPublish{Exchange: "amq.topic", Key: "k"})), Frame{Type: FrameHeader, Channel: uint16(n), Payload: c.b}))
	}
	if s.Done() || len(s.channels) != channels || !s.channels[channels].asm.Busy() {
		t.Fatal("the session did not take it")
	}
	if grown := heap() - before; grown > int64(s.Buffered())+1<<20 {
		t.Errorf("%d bytes are held, and %d said to be", grown, s.Buffered())
	}
	runtime.KeepAlive(s)
}
