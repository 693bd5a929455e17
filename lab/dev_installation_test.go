package lab

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	muster "muster.internal"
)

// An installation is a Dev that runs, with ears.
type installation struct {
	t    *testing.T
	d    *Dev
	stop func()

	mu    sync.Mutex
	heard []Happening
	news  chan struct{} // has room for one: something happened
	log   lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// patience bounds a test that would never end.
const patience = 60 * time.Second

// start opens and runs an installation in dir on a network of its own.
func start(t *testing.T, dir string, network int, cfg DevConfig) *installation {
	t.Helper()
	in := &installation{t: t, news: make(chan struct{}, 1)}
	cfg.Dir, cfg.Hurry = dir, 20
	if cfg.API == "" {
		cfg.API = "127.0.0.1:0"
	}
	cfg.Net = netip.PrefixFrom(netip.AddrFrom4([4]byte{127, byte(network), 0, 0}), 16)
	cfg.Log = slog.New(slog.NewTextHandler(&in.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg.Tell = func(h Happening) {
		in.mu.Lock()
		in.heard = append(in.heard, h)
		in.mu.Unlock()
		select {
		case in.news <- struct{}{}:
		default:
		}
	}
	d, err := OpenDev(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	in.d = d
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	in.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the installation ended with: %v", err)
		}
		if t.Failed() {
			t.Logf("what was heard:\n%s", in.transcript())
			if os.Getenv("MUSTER_LOG") != "" {
				t.Logf("log:\n%s", in.log.String())
			}
		}
	})
	t.Cleanup(in.stop)
	return in
}

func (in *installation) transcript() string {
	in.mu.Lock()
	defer in.mu.Unlock()
	var b strings.Builder
	s := Screen{W: &b}
	for _, h := range in.heard {
		s.Tell(h)
	}
	return b.String()
}

// count tells how often a machine was heard to say something.
func (in *installation) count(machine, text string) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := 0
	for _, h := range in.heard {
		if (machine == "" || h.Machine == machine) && strings.Contains(h.Text, text) {
			n++
		}
	}
	return n
}

// until waits for what a test wants to see, looking again whenever something
// happened.
func (in *installation) until(what string, is func() bool) {
	in.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for !is() {
		select {
		case <-in.news:
		case <-limit.C:
			in.t.Fatalf("it never came to this: %s", what)
		}
	}
}

func (in *installation) registrations() []muster.Registration {
	rs, err := in.d.Fleet().Registrations(in.t.Context(), muster.RegistrationFilter{})
	if err != nil {
		in.t.Fatal(err)
	}
	return rs
}

func (in *installation) registration(uuid string) muster.Registration {
	for _, r := range in.registrations() {
		if r.ServerUUID == uuid {
			return r
		}
	}
	return muster.Registration{}
}

// approve approves a setup as soon as that can be done: the machine awaits it,
// is connected, and has shown its disks.
func (in *installation) approve(uuid string, q muster.SetupRequest) {
	in.t.Helper()
	var last error
	defer func() {
		if last != nil {
			in.t.Logf("the last refusal: %v", last)
		}
	}()
	in.until("machine "+uuid+" can be approved", func() bool {
		p, err := in.d.Fleet().PlanSetup(in.t.Context(), uuid, q)
		if err == nil {
			_, err = in.d.Fleet().ApproveSetup(in.t.Context(), uuid, muster.SetupApproval{SetupRequest: q, Plan: p.Digest, Confirm: p.Serial})
		}
		if last = err; err != nil && !muster.IsCode(err, muster.CodeConflict) && !muster.IsCode(err, muster.CodeNotFound) {
			in.t.Fatal(err)
		}
		return err == nil
	})
}

const member = "a node of the fleet"

// settled checks that n machines are nodes in every book.
func (in *installation) settled(n int) {
	in.t.Helper()
	rs := in.registrations()
	if len(rs) != n {
		in.t.Errorf("%d registrations, want %d", len(rs), n)
	}
	nodes, err := in.d.Fleet().Nodes(in.t.Context())
	if err != nil || len(nodes) != n {
		in.t.Errorf("%d nodes, want %d (%v)", len(nodes), n, err)
	}
	recs, err := in.d.Fleet().BootRecords(in.t.Context(), muster.BootFilter{})
	if err != nil {
		in.t.Fatal(err)
	}
	for _, r := range rs {
		if r.State != muster.Approved || r.NodeID == "" || r.BoundKeyID == "" || r.LastSetupError != "" {
			in.t.Errorf("%s is %s, node %q, key %q, error %q", r.ServerUUID, r.State, r.NodeID, r.BoundKeyID, r.LastSetupError)
		}
		bound := 0
		for _, b := range recs {
			if b.ServerUUID == r.ServerUUID && b.State == muster.Enrolled && b.AssignedPI != nil {
				bound++
			}
		}
		if bound != 1 {
			in.t.Errorf("%s has %d enrolled boot records with an image", r.ServerUUID, bound)
		}
	}
	v, err := in.d.Fleet().VerifyAudit(in.t.Context())
	if err != nil || !v.OK {
		in.t.Errorf("the audit chain: %+v, %v", v, err)
	}
}
