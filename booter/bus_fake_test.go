package booter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/bus"
	"muster.internal/setup"
)

const (
	uuidA = "564d9f2e-6d6c-4b4a-9a53-0c2b1a6f7d10"
	uuidB = "564d9f2e-6d6c-4b4a-9a53-0c2b1a6f7d11"
	macA  = "52:54:00:aa:00:01"
	macB  = "52:54:00:aa:00:02"
	ipA   = "127.0.5.1"
	ipB   = "127.0.5.2"
)

var (
	keyA = publicKey()
	keyB = publicKey()
)

func publicKey() string {
	_, public, err := setup.GenerateKey()
	if err != nil {
		panic(err)
	}
	return setup.EncodePublicKey(public)
}

// said is what the fake control plane was told, in order.
type said struct {
	what    string // announce, survey, changed, take, complete, failed
	uuid    string
	session string
	a       muster.Announcement
	s       muster.Survey
	c       muster.SessionChange
	o       muster.SetupOutcome
	p       muster.SetupProgress
}

// fakeControl is a control plane that remembers what it was told. Down makes
// it unreachable; refuse answers one kind of call with a problem.
type fakeControl struct {
	muster.ForBooter // what the bus must not call

	mu     sync.Mutex
	heard  []said
	more   chan struct{}
	down   bool
	refuse map[string]error
	survey bool
	take   func(uuid string, r muster.TakeRequest) (muster.TakenBundle, error)
}

func newFakeControl() *fakeControl {
	return &fakeControl{more: make(chan struct{}), refuse: map[string]error{}, survey: true}
}

func (f *fakeControl) hear(s said) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return errors.New("connection refused")
	}
	f.heard = append(f.heard, s)
	close(f.more)
	f.more = make(chan struct{})
	return f.refuse[s.what]
}

func (f *fakeControl) Announce(_ context.Context, a muster.Announcement) (muster.Announced, error) {
	err := f.hear(said{what: "announce", uuid: a.ServerUUID, session: a.Session, a: a})
	f.mu.Lock()
	defer f.mu.Unlock()
	wanted := f.survey
	for _, s := range f.heard {
		wanted = wanted && !(s.what == "survey" && s.session == a.Session)
	}
	return muster.Announced{State: muster.AwaitingSetup, Survey: wanted && err == nil}, err
}

func (f *fakeControl) Survey(_ context.Context, uuid string, s muster.Survey) error {
	return f.hear(said{what: "survey", uuid: uuid, session: s.Session, s: s})
}

func (f *fakeControl) SessionChanged(_ context.Context, uuid string, c muster.SessionChange) error {
	return f.hear(said{what: "changed", uuid: uuid, c: c})
}

func (f *fakeControl) TakeBundle(_ context.Context, uuid string, r muster.TakeRequest) (muster.TakenBundle, error) {
	if err := f.hear(said{what: "take", uuid: uuid, session: r.Session}); err != nil {
		return muster.TakenBundle{}, err
	}
	return f.take(uuid, r)
}

func (f *fakeControl) SetupComplete(_ context.Context, uuid string, o muster.SetupOutcome) error {
	return f.hear(said{what: "complete", uuid: uuid, session: o.Session, o: o})
}

func (f *fakeControl) SetupFailed(_ context.Context, uuid string, o muster.SetupOutcome) error {
	return f.hear(said{what: "failed", uuid: uuid, session: o.Session, o: o})
}

func (f *fakeControl) SetupProgress(_ context.Context, uuid string, p muster.SetupProgress) error {
	return f.hear(said{what: "progress", uuid: uuid, session: p.Session, p: p})
}

func (f *fakeControl) setDown(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
}

func (f *fakeControl) count(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, s := range f.heard {
		if s.what == what {
			n++
		}
	}
	return n
}

// await returns the first thing said that fits, now or later.
func (f *fakeControl) await(t *testing.T, what string, fits func(said) bool) said {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		f.mu.Lock()
		for _, s := range f.heard {
			if s.what == what && (fits == nil || fits(s)) {
				f.mu.Unlock()
				return s
			}
		}
		more := f.more
		f.mu.Unlock()
		select {
		case <-more:
		case <-limit:
			t.Fatalf("the control plane never heard the %s that was awaited; it heard %s", what, f.all())
		}
	}
}

func (f *fakeControl) all() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := ""
	for _, s := range f.heard {
		out += fmt.Sprintf("\n  %s %s %+v %+v", s.what, s.session, s.c, s.o)
	}
	return out
}

// reserved is a boot record that reserves an address for a MAC.
func reserved(mac, address string) muster.BootRecord {
	return muster.BootRecord{MAC: mac, State: muster.Enrolling, Address: address}
}

func directory(records ...muster.BootRecord) *Directory {
	d := newDirectory()
	d.Apply(0, muster.BooterFeed{Seq: 1, Records: records})
	return d
}

// testBus is a served bus on a real socket.
type testBus struct {
	*Bus
	control *fakeControl
	dir     *Directory
	addr    string
	stop    func()
}

func startBus(t *testing.T, o busOptions, control *fakeControl) *testBus {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if o.AskAfter == 0 {
		o.AskAfter = 20 * time.Millisecond
	}
	return serveBus(t, l, o, control)
}

func serveBus(t *testing.T, l net.Listener, o busOptions, control *fakeControl) *testBus {
	if o.Machines == nil {
		o.Machines = directory(reserved(macA, ipA), reserved(macB, ipB))
	}
	o.Booter, o.User, o.Password, o.Control = "booter-1", "muster", "s3cret", control
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	b := newBus(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Serve(ctx, l)
	}()
	var once sync.Once
	stop := func() { once.Do(func() { cancel(); <-done }) }
	t.Cleanup(stop)
	return &testBus{Bus: b, control: control, dir: o.Machines, addr: l.Addr().String(), stop: stop}
}

// until waits for something about sessions to be true.
func (b *testBus) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		changed := b.Changed()
		if is() {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// options are those of a machine that speaks from source.
func (b *testBus) options(uuid, mac, source string) bus.Options {
	return bus.Options{Addr: b.addr, User: "muster", Password: "s3cret", UUID: uuid, MAC: mac,
		LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
}

func sysinfo(uuid, key string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"UUID":%q,"Hostname":"h","Muster":{"public_key":%q}}`, uuid, key))
}

// machine is an agent that runs scripts by a function.
type machine struct {
	agent *bus.Agent
	ran   chan bus.Message
	stop  func()
	err   error // of Run, after stop
}

func (b *testBus) machine(t *testing.T, o bus.Options, key string, run func(bus.Message) bus.Reply) *machine {
	m := &machine{ran: make(chan bus.Message, 100)}
	a := &bus.Agent{
		Options: o, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), RetryError: 5 * time.Millisecond, RetryClosed: 10 * time.Millisecond,
		Sysinfo: func(context.Context) (json.RawMessage, error) { return sysinfo(o.UUID, key), nil },
		Handle: func(_ context.Context, msg bus.Message) bus.Reply {
			m.ran <- msg
			if msg.Script == setup.SurveyScript {
				return bus.Reply{Stdout: `[{"path":"/dev/vda","serial":"S1","size":1000}]`}
			}
			return run(msg)
		},
	}
	m.agent = a
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.err = a.Run(ctx)
	}()
	m.stop = func() { cancel(); <-done }
	t.Cleanup(m.stop)
	return m
}

// sessions returns the sessions that have said who they are, sorted by name.
func (b *testBus) sessions() []string {
	b.mu.Lock()
	var held []*busConn
	for _, c := range b.holders {
		held = append(held, c)
	}
	b.mu.Unlock()
	slices.SortFunc(held, func(x, y *busConn) int { return slices.Compare([]string{x.name}, []string{y.name}) })
	var out []string
	for _, c := range held {
		if c.listens() {
			out = append(out, c.session)
		}
	}
	return out
}

// pipeListener serves the ends of pipes, with the addresses that tests give
// them; it is what synctest can wait for.
type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

type pipeConn struct {
	net.Conn
	remote net.Addr
}

func (c pipeConn) RemoteAddr() net.Addr { return c.remote }

// from returns how to connect from an address.
func (l *pipeListener) from(source string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, _ string) (net.Conn, error) {
		near, far := net.Pipe()
		select {
		case l.conns <- pipeConn{far, &net.TCPAddr{IP: net.ParseIP(source), Port: 40000}}:
			return near, nil
		case <-l.done:
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
