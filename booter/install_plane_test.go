package booter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"muster.internal"
	"muster.internal/bus"
	"muster.internal/setup"
)

// installPlane is a control plane that knows one machine and whose operator
// approves whatever was surveyed. It keeps the rules of a setup: one epoch at a
// time, bound to a session, the bundle taken once.
type installPlane struct {
	muster.ForBooter

	mu        sync.Mutex
	state     muster.RegistrationState
	epoch     int64
	session   string // that the approval is bound to
	key       string
	taken     bool
	surveyed  string // session
	deadline  time.Time
	seq       int64
	approvals int
	dir       *Directory // of the booter that runs now
	ends      []string   // how each epoch ended
	down      bool
	holdTake  bool // the bundle is not handed out for now
}

func newInstallPlane() *installPlane {
	return &installPlane{state: muster.AwaitingSetup, dir: newDirectory()}
}

var proofKey = []byte("a proof key of thirty-two bytes!")

// feed tells the booter what is true; the caller holds mu.
func (p *installPlane) feed() {
	p.seq++
	f := muster.BooterFeed{Seq: p.seq, Records: []muster.BootRecord{reserved(macA, ipA)}}
	if p.state == muster.SettingUp {
		f.Installs = []muster.Install{{ServerUUID: uuidA, Epoch: p.epoch, Session: p.session, Taken: p.taken, Deadline: p.deadline}}
	}
	p.dir.Apply(0, f)
}

// attach gives a booter that starts its directory.
func (p *installPlane) attach() *Directory {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dir = newDirectory()
	p.feed()
	return p.dir
}

func (p *installPlane) end(s muster.RegistrationState, how string) {
	p.state, p.surveyed = s, ""
	p.ends = append(p.ends, how)
	p.feed()
}

func (p *installPlane) call(f func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return errors.New("connection refused")
	}
	return f()
}

func (p *installPlane) Announce(_ context.Context, a muster.Announcement) (got muster.Announced, err error) {
	err = p.call(func() error {
		if p.state == muster.SettingUp && a.Session != p.session && (!p.taken || a.PublicKey != p.key) {
			p.end(muster.AwaitingSetup, "void by a newcomer")
		}
		p.key = a.PublicKey
		got = muster.Announced{State: p.state, Survey: p.state == muster.AwaitingSetup && p.surveyed != a.Session}
		return nil
	})
	return got, err
}

func (p *installPlane) Survey(_ context.Context, _ string, s muster.Survey) error {
	return p.call(func() error {
		if p.state != muster.AwaitingSetup {
			return muster.Problemf(muster.CodeConflict, "not awaiting setup")
		}
		p.surveyed, p.session, p.state, p.taken = s.Session, s.Session, muster.SettingUp, false
		p.epoch++
		p.approvals++
		epoch := p.epoch
		p.deadline = time.Now().Add(muster.SetupDeadline)
		time.AfterFunc(muster.SetupDeadline, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.state == muster.SettingUp && p.epoch == epoch {
				p.end(muster.AwaitingSetup, "expired")
			}
		})
		p.feed()
		return nil
	})
}

func (p *installPlane) SessionChanged(_ context.Context, _ string, c muster.SessionChange) error {
	return p.call(func() error {
		if p.state == muster.SettingUp && !p.taken && (c.Lost == p.session || c.Lost == "") {
			p.end(muster.AwaitingSetup, "void by a lost session")
		}
		return nil
	})
}

func (p *installPlane) TakeBundle(_ context.Context, _ string, r muster.TakeRequest) (b muster.TakenBundle, err error) {
	err = p.call(func() error {
		if p.holdTake {
			return muster.Problemf(muster.CodeUnavailable, "later")
		}
		if p.state != muster.SettingUp || p.taken || r.Epoch != p.epoch || r.Session != p.session {
			return muster.Problemf(muster.CodeConflict, "there is no bundle for setup %d", r.Epoch)
		}
		p.taken = true
		p.feed()
		b = muster.TakenBundle{Epoch: p.epoch, Script: setup.Script, Env: map[string]string{
			setup.EnvServerUUID: uuidA, setup.EnvEpoch: strconv.FormatInt(p.epoch, 10), setup.EnvBundle: "sealed"}}
		return nil
	})
	return b, err
}

func (p *installPlane) SetupComplete(_ context.Context, _ string, o muster.SetupOutcome) error {
	return p.call(func() error {
		if p.state == muster.Approved && o.Epoch == p.epoch {
			return nil
		}
		if p.state != muster.SettingUp || o.Epoch != p.epoch || o.Proof != setup.Proof(proofKey, uuidA, p.epoch) {
			return muster.Problemf(muster.CodeConflict, "setup %d is not under way", o.Epoch)
		}
		if len(o.MACs) != 1 || o.MACs[0] != macA {
			return muster.Invalid("macs", "is %v", o.MACs)
		}
		p.end(muster.Approved, "complete")
		return nil
	})
}

func (p *installPlane) SetupFailed(_ context.Context, _ string, o muster.SetupOutcome) error {
	return p.call(func() error {
		if p.state != muster.SettingUp || o.Epoch != p.epoch {
			return muster.Problemf(muster.CodeConflict, "setup %d is not under way", o.Epoch)
		}
		p.end(muster.AwaitingSetup, "failed: "+o.Reason)
		return nil
	})
}

func (p *installPlane) SetupProgress(_ context.Context, _ string, r muster.SetupProgress) error {
	return p.call(func() error {
		if p.state != muster.SettingUp || r.Epoch != p.epoch {
			return muster.Problemf(muster.CodeConflict, "setup %d is not under way", r.Epoch)
		}
		return nil
	})
}

// refresh is what the machine itself proves on its second boot.
func (p *installPlane) refresh(epoch int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == muster.SettingUp && p.epoch == epoch {
		p.end(muster.Approved, "proved by the machine")
	}
}

func (p *installPlane) now() (muster.RegistrationState, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state, fmt.Sprintf("%s after %q", p.state, p.ends)
}

// mortal wraps what a booter process does to the outside, so that it can be
// killed at any of it. It dies before or after what it does.
type mortal struct {
	*installPlane
	*brittleDisk
}

func (m mortal) mortally(f func() error) error {
	if !m.step() {
		return errPower
	}
	err := f()
	if !m.step() {
		return errPower // it has happened, and nobody lives to hear of it
	}
	return err
}

func (m mortal) Announce(ctx context.Context, a muster.Announcement) (got muster.Announced, err error) {
	err = m.mortally(func() error { got, err = m.installPlane.Announce(ctx, a); return err })
	return got, err
}

func (m mortal) Survey(ctx context.Context, uuid string, s muster.Survey) error {
	return m.mortally(func() error { return m.installPlane.Survey(ctx, uuid, s) })
}

func (m mortal) SessionChanged(ctx context.Context, uuid string, c muster.SessionChange) error {
	return m.mortally(func() error { return m.installPlane.SessionChanged(ctx, uuid, c) })
}

func (m mortal) TakeBundle(ctx context.Context, uuid string, r muster.TakeRequest) (b muster.TakenBundle, err error) {
	err = m.mortally(func() error { b, err = m.installPlane.TakeBundle(ctx, uuid, r); return err })
	return b, err
}

func (m mortal) SetupComplete(ctx context.Context, uuid string, o muster.SetupOutcome) error {
	return m.mortally(func() error { return m.installPlane.SetupComplete(ctx, uuid, o) })
}

func (m mortal) SetupFailed(ctx context.Context, uuid string, o muster.SetupOutcome) error {
	return m.mortally(func() error { return m.installPlane.SetupFailed(ctx, uuid, o) })
}

// life is a booter that may die and be started again, and a machine.
type lifeTest struct {
	t       *testing.T
	plane   *installPlane
	journal string

	mu       sync.Mutex
	listener *pipeListener // of the booter that runs now
	bus      *Bus
	install  *installer
	stopped  chan struct{}
	stop     context.CancelFunc

	runs     map[string]int // setup scripts run, by epoch
	setUp    int64          // epoch whose credential is on the machine's pool
	overtime int            // scripts that ran on a machine that was set up
	active   int            // setup scripts running now
	beside   int            // scripts that were started beside another
	cut      func()         // ends the machine's connection
}

func (l *lifeTest) start(left int, onDeath func()) {
	pl := newPipeListener()
	d := &brittleDisk{left: left, onDeath: onDeath}
	m := mortal{l.plane, d}
	dir := l.plane.attach()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	b := newBus(busOptions{Booter: "b", User: "muster", Password: "s3cret", Machines: dir, Control: m, Log: log})
	i, err := newInstaller(installerOptions{Journal: l.journal, Machines: dir, Bus: b, Control: m, Log: log, disk: d})
	if err != nil {
		if !d.dead {
			l.t.Fatal(err)
		}
		return // killed while it opened its journal
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	l.mu.Lock()
	l.listener, l.bus, l.install, l.stop, l.stopped = pl, b, i, cancel, done
	l.mu.Unlock()
	go func() {
		defer close(done)
		var work sync.WaitGroup
		work.Go(func() { b.Serve(ctx, pl) })
		work.Go(func() { i.Run(ctx) })
		work.Wait()
	}()
}

func (l *lifeTest) kill() {
	if l.stop != nil {
		l.stop()
		<-l.stopped
		l.stop = nil
	}
}

func (l *lifeTest) connect(ctx context.Context, addr string) (net.Conn, error) {
	l.mu.Lock()
	pl := l.listener
	l.mu.Unlock()
	if pl == nil {
		return nil, errors.New("connection refused")
	}
	c, err := pl.from(ipA)(ctx, addr)
	if err == nil {
		l.mu.Lock()
		l.cut = func() { c.Close() }
		l.mu.Unlock()
	}
	return c, err
}

// machine lives until it is set up and has proved it, or ctx ends. It stays
// in the enrollment image until a script asks for a restart.
func (l *lifeTest) machine(ctx context.Context, script func(epoch int64) bus.Reply) {
	key := publicKey()
	a := &bus.Agent{
		Options: bus.Options{User: "muster", Password: "s3cret", UUID: uuidA, MAC: macA, Connect: l.connect},
		Log:     slog.New(slog.NewTextHandler(io.Discard, nil)),
		Sysinfo: func(context.Context) (json.RawMessage, error) { return sysinfo(uuidA, key), nil },
		Handle: func(ctx context.Context, m bus.Message) bus.Reply {
			if m.Script == setup.SurveyScript {
				return bus.Reply{Stdout: "[]"}
			}
			epoch, err := strconv.ParseInt(m.Env[setup.EnvEpoch], 10, 64)
			if m.Script != setup.Script || err != nil {
				return bus.Reply{ExitStatus: 127, Stderr: "what is this?"}
			}
			l.mu.Lock()
			l.runs[m.Env[setup.EnvEpoch]]++
			if l.setUp != 0 {
				l.overtime++
			}
			if l.active++; l.active > 1 {
				l.beside++
			}
			l.mu.Unlock()
			time.Sleep(2 * time.Minute) // building a pool, in the bubble's time
			r := script(epoch)
			l.mu.Lock()
			l.active--
			l.mu.Unlock()
			if r.ExitStatus == setup.ExitReboot {
				l.mu.Lock()
				l.setUp = epoch
				l.mu.Unlock()
			}
			return r
		},
	}
	if err := a.Run(ctx); !errors.Is(err, bus.ErrReboot) {
		return
	}
	time.Sleep(time.Minute) // firmware, kernel
	l.plane.refresh(l.setUp)
}

func works(epoch int64) bus.Reply {
	return bus.Reply{ExitStatus: setup.ExitReboot, Stdout: "pool zones built\n" + setup.Sentinel(epoch, setup.Proof(proofKey, uuidA, epoch)) + "\n"}
}

// inLife runs a machine beside a booter in a bubble. The booter is killed at
// its n-th deed (n < 0: never) and started again a little later.
func inLife(t *testing.T, n int, down time.Duration, script func(int64) bus.Reply, test func(l *lifeTest)) (died bool) {
	synctest.Test(t, func(t *testing.T) {
		l := &lifeTest{t: t, plane: newInstallPlane(), journal: filepath.Join(t.TempDir(), "journal"), runs: map[string]int{}}
		ctx, cancel := context.WithCancel(context.Background())
		var work sync.WaitGroup
		dead := make(chan struct{})
		l.start(n, func() { close(dead) })
		work.Go(func() { l.machine(ctx, script) })
		work.Go(func() {
			select {
			case <-dead:
				l.kill()
				time.Sleep(down)
				l.start(-1, nil)
			case <-ctx.Done():
			}
		})
		time.Sleep(4 * time.Hour)
		synctest.Wait()
		select {
		case <-dead:
			died = true
		default:
		}
		for epoch, n := range l.runs {
			if n > 1 {
				t.Errorf("the script of setup %s ran %d times", epoch, n)
			}
		}
		if l.beside > 0 {
			t.Errorf("%d scripts were started beside another", l.beside)
		}
		if l.overtime > 0 {
			t.Errorf("%d scripts ran on a machine that was set up", l.overtime)
		}
		test(l)
		cancel()
		work.Wait()
		l.kill()
		if e := l.install.journal.all(); len(e) > 0 && e[0].Step != stepTaking {
			t.Errorf("the journal still remembers %+v", e)
		}
	})
	return died
}
