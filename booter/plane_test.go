package booter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/dhcp"
	"muster.internal/image"
)

// A plane is a small true control plane for tests: it keeps records, policy
// and images, answers the feed, and can be taken away.
type plane struct {
	muster.ForBooter // what these tests never call

	mu         sync.Mutex
	changed    chan struct{}
	down       bool
	hold       chan struct{} // what the feed waits for, if anything
	seq        int64
	records    map[string]muster.BootRecord
	policy     muster.BootPolicy
	images     map[string]muster.Image
	blobs      map[string][]byte
	admit      func(muster.Sighting, muster.BootRecord) muster.BootRecord // what a sighting leads to
	sights     []muster.Sighting
	inFlight   int
	most       int // sightings calls at the same time
	status     muster.BooterStatus
	blobGets   int
	traces     map[string]muster.BootTrace
	traceCalls int
	truncate   bool     // send half of each blob
	asked      []string // who fetched a root password, with which nonce
}

var errDown = errors.New("connection refused")

func newPlane() *plane {
	return &plane{changed: make(chan struct{}), seq: 1, records: map[string]muster.BootRecord{}, policy: muster.DefaultBootPolicy(),
		images: map[string]muster.Image{}, blobs: map[string][]byte{},
		traces: map[string]muster.BootTrace{}}
}

func (p *plane) do(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.seq++
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *plane) set(r muster.BootRecord) {
	p.do(func() { r.Seq = p.seq + 1; p.records[r.MAC] = r })
}

// addImage makes a Linux image, for amd64 unless said otherwise, and returns a
// reference to it.
func (p *plane) addImage(name, kernel, initrd string, arches ...string) *muster.ImageRef {
	if arches == nil {
		arches = []string{"amd64"}
	}
	i := muster.Image{Name: name, Kind: muster.LinuxImage}
	for _, a := range arches {
		i.Variants = append(i.Variants, muster.ImageVariant{Arch: a, Args: []string{"quiet"}, Files: []muster.ImageFile{
			{Role: "kernel", Digest: image.DigestOf([]byte(kernel)), Size: int64(len(kernel))},
			{Role: "initrd", Digest: image.DigestOf([]byte(initrd)), Size: int64(len(initrd))}}})
	}
	i.Digest = image.Digest(i)
	p.do(func() {
		p.images[i.Digest] = i
		p.blobs[image.DigestOf([]byte(kernel))], p.blobs[image.DigestOf([]byte(initrd))] = []byte(kernel), []byte(initrd)
	})
	return &muster.ImageRef{Name: name, Digest: i.Digest}
}

func (p *plane) Feed(ctx context.Context, booter string, after int64, wait time.Duration) (muster.BooterFeed, error) {
	p.mu.Lock()
	hold := p.hold
	p.mu.Unlock()
	if hold != nil {
		<-hold
	}
	end := time.NewTimer(wait)
	defer end.Stop()
	for {
		p.mu.Lock()
		if p.down {
			p.mu.Unlock()
			return muster.BooterFeed{}, errDown
		}
		if after != p.seq {
			defer p.mu.Unlock()
			pol := p.policy
			f := muster.BooterFeed{Seq: p.seq, Policy: &pol}
			for _, r := range p.records {
				if r.Seq > after {
					f.Records = append(f.Records, r)
				}
			}
			return f, nil
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-end.C:
			return muster.BooterFeed{Seq: after}, nil
		case <-ctx.Done():
			return muster.BooterFeed{}, ctx.Err()
		}
	}
}

func (p *plane) Sight(ctx context.Context, booter string, s []muster.Sighting) ([]muster.BootRecord, error) {
	p.mu.Lock()
	p.inFlight++
	p.most = max(p.most, p.inFlight)
	down := p.down
	p.mu.Unlock()
	defer func() { p.mu.Lock(); p.inFlight--; p.mu.Unlock() }()
	if down {
		return nil, errDown
	}
	var out []muster.BootRecord
	p.do(func() {
		p.sights = append(p.sights, s...)
		for _, g := range s {
			r, ok := p.records[g.MAC]
			if !ok {
				r = muster.BootRecord{MAC: g.MAC, State: muster.Discovered, Mode: muster.NormalMode, Arch: g.Arch}
			}
			if p.admit != nil {
				r = p.admit(g, r)
			}
			r.Seq = p.seq + 1
			p.records[g.MAC] = r
			out = append(out, r)
		}
	})
	return out, nil
}

func (p *plane) ReportBooter(ctx context.Context, s muster.BooterStatus) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return errDown
	}
	p.status = s
	return nil
}

func (p *plane) ReportTraces(ctx context.Context, booter string, ts []muster.BootTrace) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return errDown
	}
	p.traceCalls++
	for _, v := range ts {
		p.traces[v.MAC] = v
	}
	return nil
}

func (p *plane) ImageByDigest(ctx context.Context, digest string) (muster.Image, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i, ok := p.images[digest]; ok && !p.down {
		return i, nil
	}
	return muster.Image{}, errDown
}

func (p *plane) Blob(ctx context.Context, digest string) (io.ReadCloser, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.blobs[digest]
	if !ok || p.down {
		return nil, errDown
	}
	p.blobGets++
	if p.truncate {
		b = b[:len(b)/2]
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (p *plane) sightings() []muster.Sighting {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]muster.Sighting(nil), p.sights...)
}

// loopback is a booter's configuration without privileges: machines come by
// way of a relay.
func loopback(t *testing.T, p *plane) Config {
	t.Helper()
	ipxe := t.TempDir()
	for name, size := range map[string]int{"undionly.kpxe": 70000, "snponly.efi": 170001, "ipxe-arm64.efi": 170003} {
		if err := os.WriteFile(filepath.Join(ipxe, name), bytes.Repeat([]byte(name), size/len(name)+1)[:size], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Config{Name: "booter-1", Control: p, Enroll: p, Dir: t.TempDir(), IPXE: ipxe, Address: netip.MustParseAddr("127.0.0.1"),
		BusUser: "guest", BusPassword: "s3cret", Log: slog.New(slog.NewTextHandler(&lines{t: t}, nil))}
}

// lines sends the log to the test's own.
type lines struct {
	t  *testing.T
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// run starts a booter and stops it when the test ends, or when stop is called.
func run(t *testing.T, cfg Config) (b *Booter, stop func()) {
	t.Helper()
	b, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b, start(t, b)
}

func start(t *testing.T, b *Booter) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("the booter ended with %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// until asks again at every change of the directory or the stage until f holds.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	end := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("never came true: %s", what)
		}
	}
}

func staged(t *testing.T, b *Booter, refs ...*muster.ImageRef) {
	t.Helper()
	until(t, "images staged", func() bool {
		for _, r := range refs {
			if b.stage.lookup(r.Digest) == nil {
				return false
			}
		}
		return true
	})
}

func mac(n int) string {
	return dhcp.MAC{0x52, 0x54, byte(n >> 16), 0x77, byte(n >> 8), byte(n)}.String()
}

func enrolled(n int, pi *muster.ImageRef) muster.BootRecord {
	return muster.BootRecord{MAC: mac(n), State: muster.Enrolled, Mode: muster.NormalMode, Network: "admin",
		Address: fmt.Sprintf("10.%d.%d.%d", 77+n/20000, n/100%200, n%100+101), AssignedPI: pi}
}

func adminNetwork() []muster.AdminNetwork {
	return []muster.AdminNetwork{{Name: "admin", Prefix: "10.77.0.0/16", Start: "10.77.0.101", End: "10.77.0.200", Gateway: "10.77.0.254"}}
}
