package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.internal/bus"
	"muster.internal/inventory"
	"muster.internal/lifecycle"
	"muster.internal/setup"
	"muster.internal/sim"

	muster "muster.internal"
)

// TestAFleetComesUpAndComesBack takes eight machines from power-on to nodes,
// stops everything, and starts again from what is on disk.
func TestAFleetComesUpAndComesBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := start(t, dir, 101, DevConfig{Machines: 8, Auto: true})
	in.until("eight nodes", func() bool { return in.count("", member) >= 8 })
	in.settled(8)
	for _, m := range in.d.machines {
		if want := m.hw.Firmware == sim.UEFI; want != strings.Contains(in.log.String(), "loading "+strings.ReplaceAll(m.hw.MACs[0], ":", "-")+"/snponly.efi") {
			t.Errorf("%s (%s): its loader came by TFTP: want %v", m.hw.Name, m.hw.Firmware, want)
		}
	}
	in.stop()
	noSecrets(t, dir, in)

	if _, err := OpenDev(t.Context(), DevConfig{Dir: dir, API: "127.0.0.1:1"}); err == nil || !strings.Contains(err.Error(), "know their control plane at") {
		t.Errorf("it starts elsewhere than its machines believe: %v", err)
	}
	in = start(t, dir, 101, DevConfig{Machines: 8})
	in.until("eight nodes again", func() bool { return in.count("", member) >= 8 })
	in.settled(8)
	if n := in.count("", "setup"); n != 0 {
		t.Errorf("%d things were set up again:\n%s", n, in.transcript())
	}
}

// noSecrets looks for every secret that the installation has in what it said.
func noSecrets(t *testing.T, dir string, in *installation) {
	t.Helper()
	said := in.log.String() + in.transcript()
	var secrets []string
	files, _ := filepath.Glob(filepath.Join(dir, "machines", "*.json"))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var m sim.Machine
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		for _, p := range m.Pools {
			if p.Credential != nil {
				secrets = append(secrets, p.Credential.APIKey)
			}
		}
	}
	for _, f := range []string{"admin.password", "booter/booter.key", "booter/ur_enroll.key", "booter/bus.password"} {
		b, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, strings.TrimSpace(string(b)))
		if st, _ := os.Stat(filepath.Join(dir, f)); st.Mode().Perm() != 0o600 {
			t.Errorf("%s may be read by others: %v", f, st.Mode())
		}
	}
	env, err := os.ReadFile(filepath.Join(dir, "dev.env"))
	if err != nil {
		t.Fatal(err)
	}
	if _, token, ok := strings.Cut(string(env), "MUSTER_KEY='"); ok {
		token, _, _ = strings.Cut(token, "'")
		secrets = append(secrets, token)
	}
	if len(secrets) != 13 {
		t.Errorf("%d secrets were found, want 13", len(secrets))
	}
	for _, s := range secrets {
		if len(s) < 16 || strings.Contains(said, s) {
			t.Errorf("the secret %.8s… was said aloud", s)
		}
	}
}

// twins are two machines whose firmware has the same UUID.
func twins(n int) *sim.Machine {
	m := sim.Hardware(n)
	m.UUID = sim.Hardware(1).UUID
	return m
}

// TestTwoMachinesWithOneUUIDAreNeverMerged approves the one that came first
// while the other goes on announcing itself: it gets nothing, and hinders
// nothing.
func TestTwoMachinesWithOneUUIDAreNeverMerged(t *testing.T) {
	t.Parallel()
	uuid := twins(1).UUID
	taking, came := make(chan struct{}), make(chan struct{})
	take, twin := sync.OnceFunc(func() { close(taking) }), sync.OnceFunc(func() { close(came) })
	in := start(t, t.TempDir(), 102, DevConfig{Machines: 2, Hardware: twins, Between: func(f muster.ForBooter) muster.ForBooter {
		return gate{ForBooter: f, take: func() { take(); <-came }, announce: func(err error) {
			select {
			case <-taking:
				if muster.IsCode(err, muster.CodeConflict) {
					twin() // the other one came between approval and take
				}
			default:
			}
		}}
	}})
	in.until("one of them is registered, and the other noted as a conflict", func() bool { return len(in.registration(uuid).Conflicts) > 0 })
	first := in.registration(uuid)
	in.approve(uuid, muster.SetupRequest{})
	in.until("one node", func() bool { return in.count("", member) > 0 })
	recs, err := in.d.Fleet().BootRecords(t.Context(), muster.BootFilter{State: muster.Enrolled})
	if err != nil || len(recs) != 1 || !slices.Contains(first.MACs, recs[0].MAC) {
		t.Errorf("enrolled are %+v (%v), registered is %v", recs, err, first.MACs)
	}
	in.stop()
	for _, m := range in.d.machines {
		if want := m.hw.Serial == first.Serial; want != (len(m.hw.Pools) == 1) {
			t.Errorf("%s (%s) has %d pools", m.hw.Name, m.hw.Serial, len(m.hw.Pools))
		}
	}
}

// TestTwoBoardsWithADefaultUUID: a vendor put one UUID on two boards. Each is told
// the UUID that is derived from its serial number and card, before it says a
// word; both are set up, neither is taken for the other, and after a power cut
// they are who they were.
func TestTwoBoardsWithADefaultUUID(t *testing.T) {
	t.Parallel()
	const shared = "03000200-0400-0500-0006-000700080009"
	boards := func(n int) *sim.Machine {
		m := sim.Hardware(n)
		m.UUID = shared
		return m
	}
	dir := t.TempDir()
	both := func(in *installation) func() bool {
		return func() bool { return in.count("m01", member) > 0 && in.count("m02", member) > 0 }
	}
	in := start(t, dir, 119, DevConfig{Machines: 2, Hardware: boards, Auto: true})
	in.until("two nodes", both(in))
	nodes := map[string]string{}
	for _, again := range []bool{false, true} {
		if again {
			in.stop()
			in = start(t, dir, 119, DevConfig{Machines: 2, Hardware: boards})
			in.until("two nodes again", both(in))
			if n := in.count("", "setup"); n != 0 {
				t.Errorf("%d things were set up again", n)
			}
		}
		in.settled(2)
		ms, err := in.d.Fleet().Machines(t.Context(), muster.MachineFilter{})
		if err != nil || len(ms) != 2 || slices.ContainsFunc(ms, func(m muster.Machine) bool { return m.State != muster.MachineKnown || m.Case != "" }) {
			t.Errorf("%+v, %v", ms, err)
		}
		for n := 1; n <= 2; n++ {
			hw := sim.Hardware(n)
			own, ok := inventory.Derive(hw.Serial, hw.MACs[0])
			r := in.registration(own)
			if !ok || r.Serial != hw.Serial || len(r.Conflicts) != 0 || again && r.NodeID != nodes[own] {
				t.Errorf("%s is registered as %+v", own, r)
			}
			nodes[own] = r.NodeID
		}
	}
	in.stop()
	for _, m := range in.d.machines {
		own, _ := inventory.Derive(m.hw.Serial, m.hw.MACs[0])
		if len(m.hw.Pools) != 1 || m.hw.Pools[0].Stamp != own {
			t.Errorf("%s has the pools %+v, want one of %s", m.hw.Name, m.hw.Pools, own)
		}
	}
}

// gate stands between booter and control plane: it holds calls up, and hears
// their answers. A nil hook does nothing.
type gate struct {
	muster.ForBooter
	take, complete func()
	announce       func(error)
}

func (g gate) TakeBundle(ctx context.Context, uuid string, r muster.TakeRequest) (muster.TakenBundle, error) {
	if g.take != nil {
		g.take()
	}
	return g.ForBooter.TakeBundle(ctx, uuid, r)
}

func (g gate) SetupComplete(ctx context.Context, uuid string, o muster.SetupOutcome) error {
	if g.complete != nil {
		g.complete()
	}
	return g.ForBooter.SetupComplete(ctx, uuid, o)
}

func (g gate) Announce(ctx context.Context, a muster.Announcement) (muster.Announced, error) {
	r, err := g.ForBooter.Announce(ctx, a)
	if g.announce != nil {
		g.announce(err)
	}
	return r, err
}

// TestAnImpostorGetsNothing lets somebody on the segment take the machine's
// queue name over after the approval: with the machine's address and all.
func TestAnImpostorGetsNothing(t *testing.T) {
	t.Parallel()
	held, release := make(chan struct{}, 8), make(chan struct{})
	in := start(t, t.TempDir(), 103, DevConfig{Machines: 1, Between: func(f muster.ForBooter) muster.ForBooter {
		return gate{ForBooter: f, take: func() { held <- struct{}{}; <-release }}
	}})
	uuid := sim.Hardware(1).UUID
	in.approve(uuid, muster.SetupRequest{})
	<-held // the booter is about to take the bundle

	rec, err := in.d.Fleet().BootRecord(t.Context(), in.d.machines[0].hw.MACs[0])
	if err != nil {
		t.Fatal(err)
	}
	got := speakAs(t, in, rec)
	in.until("the epoch is void, and the operator is told", func() bool {
		r := in.registration(uuid)
		return r.State == muster.AwaitingSetup && r.LastSetupError != ""
	})
	close(release)
	if r := in.registration(uuid); !strings.Contains(r.LastSetupError, rec.Address) || r.BoundKeyID != "" {
		t.Errorf("the reason is %q, the key %q", r.LastSetupError, r.BoundKeyID)
	}
	in.stop()
	if s := got(); slices.Contains(s, setup.Script) {
		t.Errorf("the impostor was sent %d scripts, the setup among them", len(s))
	}
	if n := len(in.d.machines[0].hw.Pools); n != 0 {
		t.Errorf("%d pools were built", n)
	}
}

// speakAs speaks on the bus as the machine of a boot record, with a key of
// its own, until the test ends. It returns what it was sent.
func speakAs(t *testing.T, in *installation, rec muster.BootRecord) (scripts func() []string) {
	var mu sync.Mutex
	var got []string
	liar := sim.Hardware(1)
	liar.True = time.Now
	if err := liar.PowerOn(); err != nil {
		t.Fatal(err)
	}
	password, err := os.ReadFile(filepath.Join(in.d.cfg.Dir, "booter", "bus.password"))
	if err != nil {
		t.Fatal(err)
	}
	a := &bus.Agent{
		Options: bus.Options{Addr: fmt.Sprintf("%s:%d", in.d.host(1), in.d.booter.Ports().Bus), User: "dev", Password: strings.TrimSpace(string(password)),
			UUID: liar.UUID, MAC: rec.MAC, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(rec.Address), 0))},
		Sysinfo: func(context.Context) (json.RawMessage, error) { return liar.Sysinfo("impostor"), nil },
		Handle: func(_ context.Context, m bus.Message) bus.Reply {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, m.Script)
			return bus.Reply{ExitStatus: 1}
		},
		Log: slog.New(slog.DiscardHandler), RetryError: 50 * time.Millisecond, RetryClosed: 50 * time.Millisecond,
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(got) }
}

// TestTheControlPlaneGoesAwayInTheMiddle stops the control plane after the
// machine was set up and before that could be reported, and starts it again
// when the machine is back: one setup, one node, no second script.
func TestTheControlPlaneGoesAwayInTheMiddle(t *testing.T) {
	t.Parallel()
	finished, release := make(chan struct{}, 1), make(chan struct{})
	in := start(t, t.TempDir(), 104, DevConfig{Machines: 1, Between: func(f muster.ForBooter) muster.ForBooter {
		return gate{ForBooter: f, complete: func() {
			select {
			case finished <- struct{}{}:
			default:
			}
			<-release
		}}
	}})
	name, uuid := sim.Hardware(1).Name, sim.Hardware(1).UUID
	in.approve(uuid, muster.SetupRequest{})
	<-finished
	if err := in.d.control.Close(); err != nil {
		t.Fatal(err)
	}
	in.until("the machine is back from its restart", func() bool { return in.count(name, "starts from its pool") > 0 })
	if err := in.d.openControl(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(release)
	in.until("a node", func() bool { return in.count(name, member) > 0 })
	in.settled(1)
	in.stop()
	if n := len(in.d.machines[0].hw.Pools); n != 1 {
		t.Errorf("%d pools", n)
	}
	if n := in.count(name, "setup 1/"); n != 1 {
		t.Errorf("the setup ran %d times", n)
	}
}

// TestAPowerCutInTheMiddle cuts the power right after the pool was made. The
// broken connection fails the setup; the machine comes back, and the second try
// has to say that it rebuilds.
func TestAPowerCutInTheMiddle(t *testing.T) {
	t.Parallel()
	in := start(t, t.TempDir(), 105, DevConfig{Machines: 1, Hardware: func(n int) *sim.Machine {
		m := sim.Hardware(n)
		m.Faults.PowerCutAt = 5 // the clock, two disks, and the pool is just there
		return m
	}})
	uuid := sim.Hardware(1).UUID
	in.approve(uuid, muster.SetupRequest{})
	in.until("the setup has failed", func() bool {
		r := in.registration(uuid)
		return r.State == muster.AwaitingSetup && r.LastSetupError != ""
	})
	if r := in.registration(uuid); r.BoundKeyID != "" {
		t.Errorf("key %s is still there", r.BoundKeyID)
	}
	in.approve(uuid, muster.SetupRequest{Rebuild: true})
	in.until("a node", func() bool { return in.count("", member) > 0 })
	in.settled(1)
}

// TestAForgottenMachineAnnouncesItself: told to enroll, with a credential that
// nobody knows any more, a machine keeps its pool and asks for another approval.
func TestAForgottenMachineAnnouncesItself(t *testing.T) {
	t.Parallel()
	dir, uuid, mac := t.TempDir(), sim.Hardware(1).UUID, sim.Hardware(1).MACs[0]
	in := start(t, dir, 106, DevConfig{Machines: 1, Auto: true})
	in.until("a node", func() bool { return in.count("", member) > 0 })
	ctx, f := t.Context(), in.d.Fleet()
	if _, err := f.RaiseRegistration(ctx, uuid, lifecycle.Disable); err != nil {
		t.Fatal(err)
	}
	if err := f.DeleteRegistration(ctx, uuid); err != nil {
		t.Fatal(err)
	}
	for _, e := range []muster.Event{lifecycle.Reactivate, lifecycle.Enroll} {
		if _, err := f.RaiseBootRecord(ctx, mac, e); err != nil {
			t.Fatal(err)
		}
	}
	in.stop()

	in = start(t, dir, 106, DevConfig{Machines: 1})
	in.until("it awaits its setup", func() bool { return in.registration(uuid).State == muster.AwaitingSetup })
	in.stop()
	if pools := in.d.machines[0].hw.Pools; len(pools) != 1 || pools[0].Credential == nil {
		t.Errorf("its pool was not left alone: %+v", pools)
	}
}
