package booter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/amqp"
	"muster.internal/setup"
)

// Routing keys of the boot bus: a key is a prefix, a machine, and perhaps an
// id. Words hold no dots.
const (
	startupKey   = "ur.startup."
	sysinfoKey   = "ur.sysinfo."
	replyKey     = "ur.execute-reply."
	progressKey  = "ur.progress."
	executeKey   = "ur.execute."
	broadcastKey = "ur.broadcast.sysinfo."
)

const (
	surveyTimeout = 5 * time.Minute
	// identifyBy is how long the holder of a name may keep silent about who it is.
	identifyBy = 90 * time.Second
	maxHeld    = 4 // answers that wait for their giver's identity
)

// An execRequest is the body of an execute.
type execRequest struct {
	Type   string            `json:"type"`
	Script string            `json:"script"`
	Env    map[string]string `json:"env,omitempty"`
}

// A busReply is the body of an execute-reply. Stock agents put a number or an
// error's name into exit_status and leave stderr out when a signal killed the
// script.
type busReply struct {
	id     string
	Status string
	Stdout string
	Stderr string
}

func parseReply(id string, body []byte) (busReply, error) {
	var r struct {
		ExitStatus json.RawMessage `json:"exit_status"`
		Stdout     string          `json:"stdout"`
		Stderr     string          `json:"stderr"`
	}
	if err := parseObject(body, &r); err != nil {
		return busReply{}, err
	}
	status := strings.Trim(string(r.ExitStatus), `"`)
	if status == "" || len(status) > 64 {
		status = "unknown"
	}
	return busReply{id: id, Status: status, Stdout: r.Stdout, Stderr: r.Stderr}, nil
}

func parseObject(body []byte, into any) error {
	if b := bytes.TrimSpace(body); len(b) == 0 || b[0] != '{' {
		return errors.New("it is no JSON object")
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("its JSON cannot be read: %v", err)
	}
	return nil
}

// parseSysinfo checks what a machine says of itself against the name under
// which it says so, and returns the public key of its boot, "" if it has none.
func parseSysinfo(uuid string, body []byte) (publicKey string, err error) {
	if len(body) > maxSysinfo {
		return "", fmt.Errorf("its sysinfo has %d bytes", len(body))
	}
	var m map[string]json.RawMessage
	if err := parseObject(body, &m); err != nil {
		return "", err
	}
	var said string
	if json.Unmarshal(m["UUID"], &said) != nil {
		return "", errors.New("its sysinfo has no UUID")
	}
	got, err := muster.ParseUUID(said)
	if err != nil {
		return "", err
	}
	if got != uuid {
		return "", fmt.Errorf("its sysinfo says UUID %s", got)
	}
	var own struct {
		PublicKey string `json:"public_key"`
	}
	if raw, ok := m["Muster"]; ok && json.Unmarshal(raw, &own) != nil {
		return "", errors.New("the part Muster of its sysinfo cannot be read")
	}
	if own.PublicKey != "" {
		if _, err := setup.ParsePublicKey(own.PublicKey); err != nil {
			return "", err
		}
	}
	return own.PublicKey, nil
}

// handle takes in an event of the session; only the reading goroutine calls it.
func (c *busConn) handle(ctx context.Context, e amqp.Event, work *sync.WaitGroup) {
	switch e := e.(type) {
	case amqp.Declared:
		if strings.HasPrefix(e.Queue, requestQueue) {
			c.bus.hold(c)
			work.Go(func() { c.speak(ctx) })
			c.mu.Lock()
			early := c.early
			c.early = nil
			c.mu.Unlock()
			if early != nil {
				c.published(*early)
			}
		}
	case amqp.Listening:
		c.bus.wake()
	case amqp.Published:
		c.published(e.Message)
	case amqp.Closed:
		if e.Err != nil && !c.refused {
			c.bus.counts.add("bus_errors")
			c.bus.refused(c.source, c.uuid, c.mac, e.Err.Error())
		}
	}
}

func (c *busConn) published(m amqp.Message) {
	if c.name == "" {
		if len(m.Body) <= maxSysinfo && strings.HasPrefix(m.Key, sysinfoKey) {
			c.mu.Lock()
			c.early = &m
			c.mu.Unlock()
		}
		return
	}
	kind, id, err := c.understand(m)
	if err != nil {
		c.bus.counts.add("bus_refused_messages")
		c.bus.refused(c.source, c.uuid, c.mac, err.Error())
		return
	}
	switch kind {
	case sysinfoKey:
		c.identified(m.Body)
	case replyKey:
		r, err := parseReply(id, m.Body)
		if err != nil {
			c.bus.counts.add("bus_refused_messages")
			c.bus.refused(c.source, c.uuid, c.mac, "an answer: "+err.Error())
			return
		}
		c.answered(r)
	case progressKey:
		c.progressed(id, m.Body)
	}
}

// understand tells what a message is, after the checks that come before
// anybody else hears of it. Kind "" is none of ours.
func (c *busConn) understand(m amqp.Message) (kind, id string, err error) {
	rest := ""
	for _, k := range []string{startupKey, sysinfoKey, replyKey, progressKey} {
		if r, is := strings.CutPrefix(m.Key, k); is {
			kind, rest = k, r
			break
		}
	}
	if kind == "" {
		return "", "", nil
	}
	who, id, _ := strings.Cut(rest, ".")
	uuid, err := muster.ParseUUID(who)
	if err != nil {
		return "", "", err
	}
	if uuid != c.uuid {
		return "", "", fmt.Errorf("it speaks for machine %s, but holds the queue of %s", uuid, c.uuid)
	}
	if kind == replyKey && id != "" && id == c.askedAs() {
		kind = startupKey
	}
	if kind == startupKey {
		kind = sysinfoKey
	}
	if kind == sysinfoKey {
		key, err := parseSysinfo(c.uuid, m.Body)
		if err != nil {
			return "", "", err
		}
		if old := c.key(); old != "" && key != old {
			return "", "", errors.New("it announces another public key than before on the same connection")
		}
	}
	return kind, id, nil
}

func (c *busConn) askedAs() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// identified takes in a sysinfo that passed the checks.
func (c *busConn) identified(body []byte) {
	key, _ := parseSysinfo(c.uuid, body)
	c.mu.Lock()
	first := c.sysinfo == nil
	c.publicKey, c.sysinfo = key, append(json.RawMessage(nil), body...)
	held := c.held
	c.held = nil
	c.mu.Unlock()
	poke(c.news)
	if first {
		c.bus.wake()
	}
	for _, r := range held {
		c.answered(r)
	}
}

// answered hands an answer to whoever waits for it.
func (c *busConn) answered(r busReply) {
	c.mu.Lock()
	wait := c.waiting[r.id]
	delete(c.waiting, r.id)
	known := c.sysinfo != nil
	if wait == nil && !known && len(c.held) < maxHeld {
		c.held = append(c.held, r)
	}
	c.mu.Unlock()
	switch {
	case wait != nil:
		wait <- r
	case known && !c.bus.expectedBy(c, r):
		c.bus.counts.add("bus_unexpected_answers") // a repetition, most likely
	}
}

// execute runs a script on this connection's machine and waits for the answer.
func (c *busConn) execute(ctx context.Context, script string) (busReply, error) {
	id := nonce()
	answer := make(chan busReply, 1)
	c.mu.Lock()
	c.waiting[id] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
	}()
	body, err := json.Marshal(execRequest{Type: "script", Script: script})
	if err != nil {
		return busReply{}, err
	}
	if err := c.deliver(executeKey+c.spelled+"."+id, body); err != nil {
		return busReply{}, err
	}
	select {
	case r := <-answer:
		return r, nil
	case <-ctx.Done():
		return busReply{}, ctx.Err()
	case <-c.gone:
		return busReply{}, errConnectionOver
	}
}

// An expectation is an answer that may also come by a later connection of the
// same machine in the same boot.
type expectation struct {
	uuid, mac, session, publicKey string
	answer                        chan busReply
	progress                      func(setup.Progress) // nil: nobody wants to know
}

// of tells whether a connection may speak for what is expected.
func (e *expectation) of(c *busConn, key string) bool {
	same := e.session == c.session || e.publicKey != "" && e.publicKey == key
	return muster.SameUUID(e.uuid, c.uuid) && e.mac == c.mac && same
}

// Follow has f called for what the machine says of request id, which must be
// expected, while it runs. f must not block.
func (b *Bus) Follow(id string, f func(setup.Progress)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.expected[id]; e != nil {
		e.progress = f
	}
}

// progressed takes in how a script fares, from the connection that runs it and
// from no other.
func (c *busConn) progressed(id string, body []byte) {
	b := c.bus
	key := c.key()
	b.mu.Lock()
	e := b.expected[id]
	wanted := e != nil && e.progress != nil && e.of(c, key)
	b.mu.Unlock()
	p, err := setup.ParseProgress(body)
	if err != nil || !wanted {
		b.counts.add("bus_refused_progress")
		return
	}
	e.progress(p)
}

// Expect waits for the answer to request id. It is accepted from the session
// it was sent to, and from a later connection of the same machine that
// announced the same public key. Call forget when the answer is wanted no more.
func (b *Bus) Expect(id, uuid, mac, session, publicKey string) (answer <-chan busReply, forget func()) {
	e := &expectation{uuid: uuid, mac: mac, session: session, publicKey: publicKey, answer: make(chan busReply, 1)}
	b.mu.Lock()
	b.expected[id] = e
	b.mu.Unlock()
	return e.answer, func() {
		b.mu.Lock()
		delete(b.expected, id)
		b.mu.Unlock()
	}
}

func (b *Bus) expectedBy(c *busConn, r busReply) bool {
	key := c.key()
	b.mu.Lock()
	e := b.expected[r.id]
	b.mu.Unlock()
	if e == nil {
		return false
	}
	if !e.of(c, key) {
		b.counts.add("bus_refused_answers")
		b.refused(c.source, c.uuid, c.mac, "it answers a request that was sent to another machine or another boot")
		return true
	}
	select {
	case e.answer <- r:
	default: // the first one counts
	}
	return true
}

// Send puts a script with its environment on the connection of one live
// session. The answer, if any, comes to who expects it.
func (b *Bus) Send(session, id, script string, env map[string]string) error {
	c := b.find(session)
	if c == nil {
		return errConnectionOver
	}
	body, err := json.Marshal(execRequest{Type: "script", Script: script, Env: env})
	if err != nil {
		return err
	}
	return c.deliver(executeKey+c.spelled+"."+id, body)
}
