package bus

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"muster.internal/amqp"
)

// booter is the other end: a Session for each connection, with what was heard.
type booter struct {
	t     *testing.T
	mu    sync.Mutex
	heard []amqp.Message
	at    []time.Time
	dials []time.Time
	conn  net.Conn // the connection that lives
	sess  *amqp.Session
	out   chan []byte // to it
	deaf  bool        // accepts nothing
	mute  bool        // sends no heartbeats
}

func (b *booter) connect(ctx context.Context, _ string) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dials = append(b.dials, time.Now())
	if b.deaf {
		return nil, errors.New("connection refused")
	}
	near, far := net.Pipe()
	s := amqp.NewSession(amqp.Policy{Login: func(u, p string) bool { return u == "u" && p == "p" }})
	b.conn, b.sess, b.out = far, s, make(chan []byte, 1000)
	go b.serve(far, s, b.out)
	go b.speak(far, b.out)
	return near, nil
}

func (b *booter) serve(c net.Conn, s *amqp.Session, out chan []byte) {
	defer close(out)
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		b.mu.Lock()
		for _, e := range s.Receive(buf[:n]) {
			if p, ok := e.(amqp.Published); ok {
				b.heard, b.at = append(b.heard, p.Message), append(b.at, time.Now())
			}
		}
		b.flush(s, out)
		b.mu.Unlock()
	}
}

// speak writes, so that who reads need not wait for it, and sends heartbeats.
func (b *booter) speak(c net.Conn, out chan []byte) {
	t := time.NewTicker(15 * time.Second)
	defer t.Stop()
	for {
		select {
		case p, ok := <-out:
			if !ok {
				return
			}
			if p == nil {
				c.Close()
			}
			c.Write(p)
		case <-t.C:
			b.mu.Lock()
			if !b.mute {
				b.sess.Beat()
				b.flush(b.sess, b.out)
			}
			b.mu.Unlock()
		}
	}
}

func (b *booter) flush(s *amqp.Session, out chan []byte) {
	if p := s.Output(); len(p) > 0 {
		out <- p
	}
	if s.Done() {
		out <- nil
	}
}

// do acts on the live session and sends what comes of it.
func (b *booter) do(f func(*amqp.Session)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b.sess)
	b.flush(b.sess, b.out)
}

func (b *booter) deliver(key, body string) {
	b.do(func(s *amqp.Session) {
		if _, err := s.Deliver(amqp.Message{Exchange: "amq.topic", Key: key, Properties: amqp.JSON, Body: []byte(body)}); err != nil {
			b.t.Error(err)
		}
	})
}

// dialled tells when the agent connected, or tried to.
func (b *booter) dialled() []time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.dials)
}

// all returns the bodies heard under keys with a prefix.
func (b *booter) all(prefix string) (keys, bodies []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.heard {
		if strings.HasPrefix(m.Key, prefix) {
			if m.ContentType != "application/json" || m.Exchange != "amq.topic" {
				b.t.Errorf("published %+v", m)
			}
			keys, bodies = append(keys, m.Key), append(bodies, string(m.Body))
		}
	}
	return keys, bodies
}

// inTime runs an agent beside a booter in a bubble.
func inTime(t *testing.T, handle func(context.Context, Message) Reply, test func(t *testing.T, b *booter, ended <-chan error)) {
	synctest.Test(t, func(t *testing.T) {
		b := &booter{t: t}
		a := &Agent{
			Options: Options{User: "u", Password: "p", UUID: uuid, MAC: mac, Connect: b.connect},
			Sysinfo: func(context.Context) (json.RawMessage, error) { return json.RawMessage(`{"UUID":"` + uuid + `"}`), nil },
			Handle:  handle, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		synctest.Wait()
		test(t, b, ended)
		cancel()
		synctest.Wait()
		b.mu.Lock()
		if b.conn != nil {
			b.conn.Close()
		}
		b.mu.Unlock()
	})
}

func nothing(context.Context, Message) Reply { return Reply{} }
