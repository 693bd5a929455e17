package bus

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"muster.internal/setup"
)

// ErrReboot ends Run: a script ended with setup.ExitReboot, its reply (which
// says 0) was read a second ago, and the machine is to restart now.
var ErrReboot = errors.New("the script asks for a restart")

// MaxOutput is how much of each output stream goes into a reply, in bytes; of
// more, the end is kept.
const MaxOutput = 2 << 20

// A Message is a script to run. Env is its whole environment; nil means the
// agent's own.
type Message struct {
	ID     string
	Type   string // always "script"
	Script string
	Env    map[string]string
}

// A Reply is what came of a script.
type Reply struct {
	ExitStatus int
	Stdout     string
	Stderr     string
}

// An Agent lives on the bus until its context ends or a script asks for a
// restart. Zero durations get the stock agent's values.
type Agent struct {
	Options
	// Sysinfo is asked at every announcement.
	Sysinfo func(ctx context.Context) (json.RawMessage, error)
	// Handle runs a script; several may run at once, as with the stock agent.
	Handle func(ctx context.Context, m Message) Reply
	Log    *slog.Logger

	AnnounceEvery time.Duration // 60 s
	RetryError    time.Duration // after a connection that broke or was refused: 1 s, growing to RetryClosed
	RetryClosed   time.Duration // after one that the booter closed: 30 s

	mu      sync.Mutex
	conn    *Conn
	fresh   chan struct{} // closed when there is a new connection
	replies []reply
	seen    []string // ids of what was run, the last few
	work    sync.WaitGroup
}

// reply is kept after it was sent: the booter may have lost it. Every new
// connection repeats the last few, with the ids that they had; the booter
// knows what it has heard. (A stock agent forgets.)
type reply struct {
	key  string
	body []byte
}

// Bounds of what is kept.
const (
	keptReplies = 4
	keptIDs     = 64
	maxReply    = 5 << 20
)

func or(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// Run connects, and connects again, until ctx ends or a script asks for a
// restart (ErrReboot). It returns when no script runs any more.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.fresh = make(chan struct{})
	soon, late := or(a.RetryError, time.Second), or(a.RetryClosed, 30*time.Second)
	started := false
	for wait := soon; ctx.Err() == nil; {
		c, err := Dial(ctx, a.Options)
		if err == nil {
			wait = soon
			err = a.live(ctx, cancel, c, &started)
			c.Close()
		}
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, ErrClosed) {
			wait = late
		}
		a.Log.Warn("boot bus: no connection; trying again", "error", err, "in", wait)
		pause(ctx, wait)
		wait = min(2*wait, late)
	}
	cancel(nil)
	a.work.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, ErrReboot) {
		return ErrReboot
	}
	return ctx.Err()
}

// live serves one connection until it ends.
func (a *Agent) live(ctx context.Context, cancel context.CancelCauseFunc, c *Conn, started *bool) error {
	a.mu.Lock()
	a.conn = c
	close(a.fresh)
	a.fresh = make(chan struct{})
	kept := append([]reply(nil), a.replies...)
	a.mu.Unlock()
	if !*started { // once a boot, as the stock agent has it
		if err := a.announce(ctx, c, "ur.startup."+a.UUID); err != nil {
			return err
		}
		*started = true
	}
	if err := a.announce(ctx, c, "ur.sysinfo."+a.UUID+"."+nonce()); err != nil {
		return err
	}
	for _, r := range kept { // after the sysinfo: the booter must know whose they are
		if err := c.Publish(r.key, r.body); err != nil {
			return err
		}
	}
	t := time.NewTicker(or(a.AnnounceEvery, time.Minute))
	defer t.Stop()
	for {
		var err error
		select {
		case d := <-c.in:
			err = a.handle(ctx, cancel, c, d)
		case <-t.C:
			err = a.announce(ctx, c, "ur.sysinfo."+a.UUID+"."+nonce())
		case <-c.ended:
			return c.err
		case <-ctx.Done():
			return ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

func (a *Agent) announce(ctx context.Context, c *Conn, key string) error {
	info, err := a.Sysinfo(ctx)
	if err != nil {
		a.Log.Error("boot bus: this machine cannot say what it is; trying again", "error", err)
		return nil
	}
	return c.Publish(key, info)
}

// handle takes in one message. What is not for this machine, or not understood,
// is left alone, as the stock agent does.
func (a *Agent) handle(ctx context.Context, cancel context.CancelCauseFunc, c *Conn, d Delivery) error {
	w := strings.SplitN(d.Key, ".", 4)
	if len(w) < 3 || w[0] != "ur" || !json.Valid(d.Body) {
		return nil
	}
	id := ""
	if len(w) == 4 {
		id = w[3]
	}
	switch {
	case w[1] == "broadcast" && w[2] == "sysinfo" && id != "":
		return a.announce(ctx, c, "ur.execute-reply."+a.UUID+"."+id)
	case w[1] == "ping" && w[2] == a.UUID:
		return a.pong(c, d.Body)
	case w[1] == "execute" && id != "" && (w[2] == a.UUID || w[2] == a.UUID+"-"+a.MAC):
		a.execute(ctx, cancel, id, d.Body)
	}
	return nil
}

func (a *Agent) pong(c *Conn, body []byte) error {
	var ping struct {
		ClientID string `json:"client_id"`
		ID       string `json:"id"`
	}
	if json.Unmarshal(body, &ping) != nil {
		return nil
	}
	b, err := json.Marshal(struct {
		ReqID     string `json:"req_id"`
		Timestamp string `json:"timestamp"`
	}{ping.ID, time.Now().UTC().Format(time.RFC3339Nano)})
	key := "ur.ack" + ping.ClientID + "." + a.UUID
	if err != nil || len(key) > 255 {
		return nil
	}
	return c.Publish(key, b)
}

// execute runs a script beside everything else, once for each id.
func (a *Agent) execute(ctx context.Context, cancel context.CancelCauseFunc, id string, body []byte) {
	var m Message
	if json.Unmarshal(body, &m) != nil || m.Type != "script" {
		return
	}
	m.ID = id
	a.mu.Lock()
	again := slices.Contains(a.seen, id)
	if !again {
		a.seen = append(a.seen, id)
		a.seen = a.seen[max(0, len(a.seen)-keptIDs):]
	}
	a.mu.Unlock()
	if again {
		return
	}
	a.work.Add(1)
	go func() {
		defer a.work.Done()
		r := a.Handle(ctx, m)
		reboot := r.ExitStatus == setup.ExitReboot
		if reboot {
			r.ExitStatus = 0
		}
		out := reply{"ur.execute-reply." + a.UUID + "." + id, encode(r)}
		c := a.keep(out)
		if c != nil {
			c.Publish(out.key, out.body) // else, or if it fails, the next connection carries it
		}
		if reboot {
			a.delivered(ctx, out)
			pause(ctx, time.Second) // as the stock agent does
			cancel(ErrReboot)
		}
	}()
}

func (a *Agent) keep(r reply) *Conn {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.replies = append(a.replies, r)
	size := 0
	for i := len(a.replies) - 1; i >= 0; i-- {
		size += len(a.replies[i].body)
		if len(a.replies)-i > keptReplies || size > maxReply && i < len(a.replies)-1 {
			a.replies = append([]reply(nil), a.replies[i+1:]...)
			break
		}
	}
	return a.conn
}

// delivered waits until the booter has read a reply, for ten seconds at most:
// after that, the next boot is the proof.
func (a *Agent) delivered(ctx context.Context, r reply) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		a.mu.Lock()
		c, fresh := a.conn, a.fresh
		a.mu.Unlock()
		if c.Sync(ctx) == nil {
			return
		}
		select { // the new connection repeats the reply by itself
		case <-fresh:
		case <-ctx.Done():
		}
	}
	a.Log.Warn("boot bus: restarting, though the booter may not have the reply", "reply", r.key)
}

// encode writes a reply within the limit; of longer output the end is kept.
func encode(r Reply) []byte {
	for limit := MaxOutput; ; limit /= 2 {
		r.Stdout, r.Stderr = end(r.Stdout, limit), end(r.Stderr, limit)
		b, err := json.Marshal(struct {
			ExitStatus int    `json:"exit_status"`
			Stdout     string `json:"stdout"`
			Stderr     string `json:"stderr"`
		}{r.ExitStatus, r.Stdout, r.Stderr})
		if err == nil && len(b) <= maxReply {
			return b
		}
	}
}

func end(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// nonce returns random hex digits, for ids that travel in routing keys.
func nonce() string {
	var b [4]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
