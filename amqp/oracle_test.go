package amqp_test

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"muster.internal/amqp"
)

// oracleServer is the thinnest server around a Session: it echoes what is
// published back to the publisher's own queues.
func oracleServer(t *testing.T, c net.Conn) *sync.WaitGroup {
	s := amqp.NewSession(amqp.Policy{Product: "muster-booter", MaxBody: 2 << 20, MaxWaiting: 1000,
		Login: func(u, p string) bool { return u == "guest" && p == "secret" }})
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		defer c.Close()
		buf := make([]byte, 8192)
		for !s.Done() {
			n, err := c.Read(buf)
			for _, e := range s.Receive(buf[:n]) {
				if p, ok := e.(amqp.Published); ok {
					if _, err := s.Deliver(p.Message); err != nil {
						t.Errorf("deliver: %v", err)
					}
				}
			}
			if _, werr := c.Write(s.Output()); err != nil || werr != nil {
				return
			}
		}
	}()
	return &wg
}

func dialOracle(t *testing.T, password string) (*amqp091.Connection, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	server := make(chan *sync.WaitGroup, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
			close(server)
			return
		}
		server <- oracleServer(t, c)
	}()
	conn, err := amqp091.DialConfig("amqp://guest:"+password+"@"+l.Addr().String()+"/", amqp091.Config{Heartbeat: 10 * time.Second, Locale: "en_US"})
	wg := <-server
	t.Cleanup(func() {
		if conn != nil {
			conn.Close()
		}
		wg.Wait()
	})
	return conn, err
}

// TestOracle lets RabbitMQ's own client library talk to a Session.
func TestOracle(t *testing.T) {
	conn, err := dialOracle(t, "secret")
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(ch.ExchangeDeclare("amq.topic", "topic", true, false, false, false, nil))
	q, err := ch.QueueDeclare("", false, true, true, false, amqp091.Table{"x-max-length": int32(10)})
	check(err)
	check(ch.QueueBind(q.Name, "ur.#", "amq.topic", false, nil))
	check(ch.Qos(1, 0, false))
	in, err := ch.Consume(q.Name, "", false, true, false, false, nil)
	check(err)

	sent := amqp091.Publishing{
		ContentType: "application/json", DeliveryMode: 2, CorrelationId: "c", Timestamp: time.Unix(1764500000, 0).UTC(), AppId: "app",
		Headers: amqp091.Table{"s": "text", "i": int32(7), "l": int64(1) << 40, "t": true, "f": 1.5, "x": []byte{1}, "n": amqp091.Table{"a": []any{"b", int32(2)}}},
	}
	for _, size := range []int{0, 1, amqp.FrameMax - 8, amqp.FrameMax, 1 << 20} {
		sent.Body = bytes.Repeat([]byte{'x'}, size)
		check(ch.Publish("amq.topic", "ur.sysinfo.a.b", false, false, sent))
		d := <-in
		if d.RoutingKey != "ur.sysinfo.a.b" || d.Exchange != "amq.topic" || d.ContentType != sent.ContentType || d.CorrelationId != "c" ||
			!d.Timestamp.Equal(sent.Timestamp) || d.AppId != "app" || d.DeliveryMode != 2 || !bytes.Equal(d.Body, sent.Body) {
			t.Errorf("%d bytes came back as %+v", size, d)
		}
		if n, ok := d.Headers["n"].(amqp091.Table); !ok || d.Headers["l"] != int64(1)<<40 || len(n["a"].([]any)) != 2 {
			t.Errorf("headers came back as %v", d.Headers)
		}
		check(d.Ack(false))
	}

	// prefetch 1: the second message waits for the first's acknowledgement
	check(ch.Publish("amq.topic", "ur.a", false, false, amqp091.Publishing{Body: []byte("1")}))
	check(ch.Publish("amq.topic", "ur.b", false, false, amqp091.Publishing{Body: []byte("2")}))
	first := <-in
	// What is asked in one breath with a message is answered before that is
	// handed round, so it may take another look.
	got, err := ch.QueueDeclarePassive(q.Name, false, true, true, false, nil)
	for n := 0; n < 3 && err == nil && got.Messages == 0; n++ {
		got, err = ch.QueueDeclarePassive(q.Name, false, true, true, false, nil)
	}
	if err != nil || got.Messages != 1 || got.Consumers != 1 {
		t.Errorf("the queue holds %+v, %v", got, err)
	}
	check(first.Ack(false))
	if second := <-in; string(second.Body) != "2" {
		t.Errorf("then comes %q", second.Body)
	}

	// a soft error costs the channel, not the connection
	_, err = ch.QueueDeclarePassive("none", false, false, false, false, nil)
	var e *amqp091.Error
	if !errors.As(err, &e) || e.Code != 404 {
		t.Errorf("a passive declare of nothing: %v", err)
	}
	ch, err = conn.Channel()
	check(err)
	// a hard one costs both
	check(ch.Publish("amq.topic", "ur.x", false, false, amqp091.Publishing{}))
	if err := ch.Tx(); !errors.As(err, &e) || e.Code != 540 {
		t.Errorf("tx.select: %v", err)
	}
	if !conn.IsClosed() {
		<-conn.NotifyClose(make(chan *amqp091.Error, 1))
	}
}

func TestOracleWrongPassword(t *testing.T) {
	if _, err := dialOracle(t, "wrong"); !errors.Is(err, amqp091.ErrCredentials) {
		var e *amqp091.Error
		if !errors.As(err, &e) || e.Code != 403 {
			t.Errorf("wrong password: %v", err)
		}
	}
}

func TestOracleClosesCleanly(t *testing.T) {
	conn, err := dialOracle(t, "secret")
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Close(); err != nil {
		t.Error(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}
