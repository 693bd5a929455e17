package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"muster.internal/bus"
	"muster.internal/client"
	"muster.internal/dhcp"
	"muster.internal/durable"
	"muster.internal/host"
	"muster.internal/setup"
	"muster.internal/sim"

	muster "muster.internal"
)

// Stage is where a simulated machine is in its life, for people.
type Stage string

const (
	StageOff      Stage = "off"
	StageFirmware Stage = "firmware" // asks the network
	StageEnroll   Stage = "enroll"   // announced, waits for a decision
	StageSetup    Stage = "setup"    // builds its pool
	StageNode     Stage = "node"     // authenticated, heartbeats
	StageRescue   Stage = "rescue"
	StageControl  Stage = "control" // what the control plane did
)

// A Happening is one thing that a simulated machine, or the installation
// itself, has to say.
type Happening struct {
	At      time.Time
	Machine string // empty: the installation
	Stage   Stage
	Text    string
}

// A machine is a sim.Machine with power: it boots by a real booter, speaks on
// the real bus, and reports to the real control plane, until its context ends.
type machine struct {
	file string // where its disks are kept
	wire *wire
	log  *slog.Logger
	tell func(Happening)

	mu sync.Mutex // guards hw: scripts run beside the agent
	hw *sim.Machine
}

// openMachine returns the machine that a file holds, or a new one.
func openMachine(file string, fresh *sim.Machine) (*machine, error) {
	m := &machine{file: file, hw: fresh}
	b, err := os.ReadFile(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		m.hw = new(sim.Machine)
		if err := json.Unmarshal(b, m.hw); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	m.hw.True = time.Now
	return m, m.save()
}

// save writes the disks to their file, which holds credentials.
func (m *machine) save() error {
	b, err := json.MarshalIndent(m.hw, "", "  ")
	if err != nil {
		return err
	}
	return durable.Replace(m.file, append(b, '\n'), 0o600)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (m *machine) say(s Stage, format string, args ...any) {
	m.tell(Happening{time.Now(), m.hw.Name, s, fmt.Sprintf(format, args...)})
}

// run is the machine's life: power on, boot, be what the disks say, and again
// after each restart.
func (m *machine) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := m.boot(ctx)
		m.mu.Lock()
		m.hw.PowerOff()
		serr := m.save()
		m.mu.Unlock()
		if serr != nil {
			m.say(StageOff, "its disks cannot be kept: %v", serr)
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, bus.ErrReboot) {
			m.say(StageOff, "restarts")
			continue
		}
		m.say(StageOff, "%v; power cycle", err)
		if m.wire.Sleep(ctx, 5*time.Second) != nil {
			return
		}
	}
}

// boot is one boot, from power-on to the end of what it leads to.
func (m *machine) boot(ctx context.Context) error {
	m.mu.Lock()
	err := m.hw.PowerOn()
	hw := *m.hw // names do not change
	m.mu.Unlock()
	if err != nil {
		return err
	}
	mac, err := dhcp.ParseMAC(hw.MACs[0])
	if err != nil {
		return err
	}
	m.say(StageFirmware, "power on (%s), asks the network", strings.ToUpper(string(hw.Firmware)))
	f := sim.Firmware{Kind: hw.Firmware, MAC: mac, UUID: hw.UUID, Serial: hw.Serial, Product: hw.Product, Loader: runnable}
	loaded, err := f.Run(ctx, m.wire)
	if err != nil {
		return err
	}
	args, err := host.ParseArgs(strings.Join(loaded.Args, " "))
	if err != nil {
		return err
	}
	m.say(StageFirmware, "kernel starts with %s, mode %s", args.Address, args.Mode)
	m.mu.Lock()
	m.hw.CallItself(args.UUID)
	start, cred := host.Start(args.Mode, m.hw.Self(), m.hw.Hands())
	m.mu.Unlock()
	switch start.Role {
	case host.RoleNode:
		err := m.serve(ctx, cred, args.Mode == string(host.RoleEnroll))
		if !errors.Is(err, host.ErrRefused) {
			return err
		}
		m.mu.Lock()
		rerr := m.hw.Hands().Release(start.Pool)
		m.mu.Unlock()
		if rerr != nil {
			return rerr
		}
		start.Reason = err.Error()
	case host.RoleRescue:
		m.say(StageRescue, "rescue: %s", start.Reason)
		<-ctx.Done()
		return ctx.Err()
	}
	m.say(StageEnroll, "announces itself: %s", start.Reason)
	return m.enroll(ctx, args)
}

// runnable tells whether a loader is one: an EFI program begins with MZ, and
// the placeholder that stands in for one says so.
func runnable(_ string, content []byte) bool {
	s := string(content[:min(len(content), len(placeholder))])
	return strings.HasPrefix(s, "MZ") || s == placeholder
}

// enroll lives on the boot bus until a setup asks for a restart.
func (m *machine) enroll(ctx context.Context, args host.Args) error {
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	var agent *bus.Agent
	agent = &bus.Agent{
		Options: bus.Options{Addr: args.BusAddr, User: args.BusUser, Password: args.BusPassword, UUID: m.hw.Self(), MAC: m.hw.MACs[0],
			LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(args.Address.Addr(), 0))},
		Log: m.log,
		Sysinfo: func(context.Context) (json.RawMessage, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.hw.Sysinfo(muster.Build), nil
		},
		Handle: func(ctx context.Context, msg bus.Message) bus.Reply {
			r := m.execute(msg, func(p setup.Progress) { agent.Progress(msg.ID, p) })
			m.mu.Lock()
			defer m.mu.Unlock()
			if !m.hw.On() { // the power went in the middle: nobody answers
				cut(sim.ErrPower)
				<-ctx.Done()
			}
			return r
		},
		RetryError: m.wire.scaled(time.Second), RetryClosed: m.wire.scaled(10 * time.Second), AnnounceEvery: m.wire.scaled(time.Minute),
	}
	err := agent.Run(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, sim.ErrPower) {
		return cause
	}
	return err
}

// execute runs what came over the bus: the two scripts that the image knows,
// by the real brain, and nothing else.
func (m *machine) execute(msg bus.Message, report func(setup.Progress)) bus.Reply {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch msg.Script {
	case setup.SurveyScript:
		disks, err := m.hw.Survey()
		if err != nil {
			return bus.Reply{ExitStatus: 1, Stderr: err.Error()}
		}
		b, err := json.Marshal(disks)
		if err != nil {
			return bus.Reply{ExitStatus: 1, Stderr: err.Error()}
		}
		m.tell(Happening{time.Now(), m.hw.Name, StageEnroll, fmt.Sprintf("shows its %s, waits for approval: %s", counted(len(disks), "disk"), m.hw.Serial)})
		return bus.Reply{Stdout: string(b) + "\n"}
	case setup.Script:
		r := m.setUp(msg.Env, report)
		if err := m.save(); err != nil {
			r = host.Failed(err)
		}
		text := "setup done, restarts"
		switch reason, _ := setup.ParseFailure(r.Line); {
		case !m.hw.On():
			text = "the power goes out in the middle of it"
		case !r.OK:
			text = "setup refused: " + reason
		}
		m.tell(Happening{time.Now(), m.hw.Name, StageSetup, text})
		return bus.Reply{ExitStatus: r.Exit, Stdout: r.Line + "\n"}
	}
	return bus.Reply{ExitStatus: 127, Stderr: "this machine knows no such script\n"}
}

func (m *machine) setUp(env map[string]string, report func(setup.Progress)) host.Result {
	o, err := setup.ParseOrder(env)
	if err != nil {
		return host.Failed(err)
	}
	r := host.Setup(o, m.hw.Hands(), func(p host.Progress) {
		m.tell(Happening{time.Now(), m.hw.Name, StageSetup, fmt.Sprintf("setup %d/%d: %s", p.Step, p.Of, p.Text)})
		report(setup.Progress{Epoch: o.Epoch, Step: p.Name, Percent: setup.StepPercent(p.Step, p.Of), Text: p.Text})
	})
	if r.OK && o.Hostname != "" {
		m.hw.Hostname = o.Hostname
	}
	return r
}

// serve is a node's life: authenticate, then heartbeats for ever. With once it
// ends when the credential is refused.
func (m *machine) serve(ctx context.Context, cred setup.Credential, once bool) error {
	c, err := client.New(cred.URL, cred.APIKey, client.Trust{CA: []byte(cred.CA)})
	if err != nil {
		return err
	}
	defer c.Close()
	m.say(StageNode, "starts from its pool, asks to be let in")
	return host.Live(&line{ctx, m, c, cred.Epoch}, once)
}

// A line is a simulated node's line to its control plane.
type line struct {
	ctx   context.Context
	m     *machine
	api   muster.ForHost
	epoch int64
}

// Refresh implements host.Line.
func (l *line) Refresh() error {
	l.m.mu.Lock()
	r := muster.RefreshRequest{Hostname: l.m.hw.Hostname, Epoch: l.epoch, Sysinfo: l.m.hw.Sysinfo(muster.Build), Version: muster.Build}
	var err error
	r.Disks, err = l.m.hw.Survey()
	l.m.mu.Unlock()
	if err != nil {
		return err
	}
	_, err = l.api.Refresh(l.ctx, r)
	return err
}

// Beat implements host.Line.
func (l *line) Beat() (int, error) {
	r, err := l.api.Heartbeat(l.ctx, muster.Heartbeat{Version: muster.Build})
	return r.NextSeconds, err
}

// Say implements host.Line. What fails because everything ends is no news.
func (l *line) Say(text string) {
	if l.ctx.Err() == nil {
		l.m.say(StageNode, "%s", text)
	}
}

// Dice implements host.Line.
func (l *line) Dice() float64 { return rand.Float64() }

// Pause implements host.Line.
func (l *line) Pause(d time.Duration) error { return sleep(l.ctx, d) }
