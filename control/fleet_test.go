package control_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/client"
	"muster.internal/control"
	"muster.internal/image"
	"muster.internal/provider"
	"muster.internal/setup"
)

// A place is a control plane that serves, and the clients of everybody who
// talks to it. Its clock only moves when a test moves it, but starts at now,
// since certificates are checked by the real one.
type place struct {
	testing.TB
	c     *control.Control
	dir   string
	store string
	log   *lockedBuffer
	mu    sync.Mutex
	now   time.Time
	// provider is where grants are made; nil: the real ones.
	provider func(kind muster.ProviderKind, url string) (provider.Provider, error)

	anyone, admin, viewer, full, booter, enroll *client.Client
	secrets                                     []string // everything that must never show
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

// engines runs a test on a fresh control plane over each database.
func engines(t *testing.T, f func(p *place)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(newPlace(t, "")) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(newPlace(t, postgresURL(t))) })
}

func newPlace(t testing.TB, storeURL string) *place {
	t.Helper()
	p := &place{TB: t, dir: t.TempDir(), store: storeURL, log: new(lockedBuffer), now: time.Now().UTC().Truncate(time.Second)}
	p.first()
	return p
}

// first starts a control plane that has nobody yet.
func (p *place) first() {
	p.Helper()
	p.start()
	first, err := control.ReadFirstLogin(p.dir)
	p.ok(err)
	tok := must(p, func(ctx context.Context) (muster.Token, error) {
		return p.anyone.Login(ctx, muster.Login{Name: first.Operator, Password: first.Password})
	})
	p.admin = p.anyone.WithToken(tok.Token)
	p.keep(first.Password, tok.Token)
	p.full = p.key(muster.ScopeFull)
	p.booter = p.key(muster.ScopeBooter)
	p.enroll = p.key(muster.ScopeURenroll)
}

// withViewer makes an operator who may only look.
func (p *place) withViewer() {
	p.Helper()
	must(p, func(ctx context.Context) (muster.Operator, error) {
		return p.admin.CreateOperator(ctx, muster.NewOperator{Name: "vic", Role: muster.Viewer, Password: "a viewer's password"})
	})
	tok := must(p, func(ctx context.Context) (muster.Token, error) {
		return p.anyone.Login(ctx, muster.Login{Name: "vic", Password: "a viewer's password"})
	})
	p.viewer = p.anyone.WithToken(tok.Token)
	p.keep("a viewer's password", tok.Token)
}

// start opens and serves; after a stop it is a restart.
func (p *place) start() {
	p.Helper()
	c, err := control.Open(p.Context(), control.Config{
		Dir: p.dir, Store: p.store, Listen: "127.0.0.1:0", Now: p.clock, Provider: p.provider,
		Log: slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		c.Close()
		if p.Failed() {
			for _, l := range strings.Split(p.log.String(), "\n") {
				if strings.Contains(l, "level=WARN") || strings.Contains(l, "level=ERROR") {
					p.Log(l)
				}
			}
		}
	})
	if err := c.Start(); err != nil {
		p.Fatal(err)
	}
	p.c = c
	if p.anyone, err = client.New(c.URL(), "", client.Trust{CA: c.CA()}); err != nil {
		p.Fatal(err)
	}
	p.Cleanup(p.anyone.Close)
}

func (p *place) clock() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

func (p *place) advance(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = p.now.Add(d)
}

func (p *place) keep(secrets ...string) { p.secrets = append(p.secrets, secrets...) }

func (p *place) key(s muster.Scope) *client.Client {
	p.Helper()
	k := must(p, func(ctx context.Context) (muster.CreatedKey, error) {
		return p.admin.CreateKey(ctx, muster.NewKey{Scope: s})
	})
	p.keep(k.Secret)
	return p.anyone.WithToken(k.Secret)
}

func must[T any](p *place, f func(context.Context) (T, error)) T {
	p.Helper()
	v, err := f(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	return v
}

// refused demands a problem of this code.
func (p *place) refused(err error, code muster.Code) *muster.Problem {
	p.Helper()
	if !muster.IsCode(err, code) {
		p.Fatalf("got %v, want %s", err, code)
	}
	return err.(*muster.Problem)
}

func (p *place) ok(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *place) registration(uuid string) muster.Registration {
	p.Helper()
	return must(p, func(ctx context.Context) (muster.Registration, error) { return p.admin.Registration(ctx, uuid) })
}

func (p *place) record(mac string) muster.BootRecord {
	p.Helper()
	return must(p, func(ctx context.Context) (muster.BootRecord, error) { return p.admin.BootRecord(ctx, mac) })
}

// head is the end of the audit chain, which moves with every change.
func (p *place) head() string {
	p.Helper()
	v := must(p, p.admin.VerifyAudit)
	if !v.OK {
		p.Fatalf("the audit chain is broken at %d: %s", v.BrokenAt, v.Reason)
	}
	return fmt.Sprint(v.VerifiedTo, v.Head)
}

// content puts a small image there and a policy that boots it.
func (p *place) content() muster.Image {
	p.Helper()
	i := muster.Image{Name: "linux-1", Kind: muster.LinuxImage, Variants: []muster.ImageVariant{{Arch: "amd64"}}}
	for _, role := range []string{"kernel", "initrd"} {
		b := []byte("the content of " + role)
		d := image.DigestOf(b)
		p.ok(p.admin.PutBlob(p.Context(), d, int64(len(b)), bytes.NewReader(b)))
		i.Variants[0].Files = append(i.Variants[0].Files, muster.ImageFile{Role: role, Digest: d, Size: int64(len(b))})
	}
	i = must(p, func(ctx context.Context) (muster.Image, error) { return p.admin.AddImage(ctx, i) })
	pol := muster.DefaultBootPolicy()
	pol.EnrollmentPI = &muster.ImageRef{Name: i.Name}
	pol.Networks = []muster.AdminNetwork{{Name: "lab", Prefix: "10.77.0.0/24", Start: "10.77.0.100", End: "10.77.0.103", Gateway: "10.77.0.1", Interface: "br0"}}
	must(p, func(ctx context.Context) (muster.BootPolicy, error) { return p.admin.SetBootPolicy(ctx, pol) })
	return i
}

// A bare is a machine with empty disks, as the booter hears it.
type bare struct {
	p             *place
	uuid, mac     string
	serial        string
	session, addr string
	private       []byte
	public        string
	disks         []muster.Disk
}

func (p *place) bare(n int) *bare {
	p.Helper()
	m := &bare{p: p, uuid: fmt.Sprintf("4c4c4544-0042-4a10-8054-%012x", n), mac: fmt.Sprintf("52:54:00:00:00:%02x", n), serial: fmt.Sprintf("SN-%04d", n)}
	for i := range 2 {
		m.disks = append(m.disks, muster.Disk{Path: fmt.Sprintf("/dev/vd%c", 'b'+i), Vendor: "ACME", Model: "Disk", Serial: fmt.Sprintf("D%d-%d", n, i),
			Size: 8 << 30, Transport: "virtio"})
	}
	m.boot()
	return m
}

// boot is a power-on: a new session and a new key.
func (m *bare) boot() {
	m.p.Helper()
	private, public, err := setup.GenerateKey()
	m.p.ok(err)
	m.private, m.public = private, setup.EncodePublicKey(public)
	m.session = fmt.Sprintf("%032x", sessions.Add(1))
}

var sessions atomic.Int64

// sighted makes the booter report it, and is what became of its record.
func (m *bare) sighted() muster.BootRecord {
	m.p.Helper()
	rs := must(m.p, func(ctx context.Context) ([]muster.BootRecord, error) {
		return m.p.booter.Sight(ctx, "b1", []muster.Sighting{{MAC: m.mac, Arch: 7, Interface: "br0", At: m.p.clock()}})
	})
	if len(rs) != 1 || rs[0].MAC != m.mac {
		m.p.Fatalf("sighting %s led to %+v", m.mac, rs)
	}
	m.addr = rs[0].Address
	return rs[0]
}

const bootPassword = "planted-bus-password"

func (m *bare) sysinfo() json.RawMessage {
	b, err := json.Marshal(map[string]any{
		"UUID": m.uuid, "Hostname": "bare", "Manufacturer": "ACME", "Product": "Server 1", "Serial Number": m.serial, "MiB of Memory": 2048,
		"Boot Parameters":    map[string]string{"muster.bus": "guest:" + bootPassword + ":10.77.0.1:5672", "rabbitmq": "guest:" + bootPassword + ":10.77.0.1:5672", "root_shadow": bootPassword},
		"Network Interfaces": map[string]any{"eth0": map[string]any{"MAC Address": m.mac, "ip4addr": m.addr, "Link Status": "up", "NIC Names": []string{"admin"}}},
		"Muster":             map[string]any{"public_key": m.public, "version": "1", "macs": []string{m.mac}, "boot_mac": m.mac, "firmware": "uefi"},
	})
	m.p.ok(err)
	return b
}

func (m *bare) announcement() muster.Announcement {
	return muster.Announcement{ServerUUID: m.uuid, MAC: m.mac, Session: m.session, Source: m.addr, PublicKey: m.public, Booter: "b1", Sysinfo: m.sysinfo()}
}

func (m *bare) announce() (muster.Announced, error) {
	return m.p.enroll.Announce(m.p.Context(), m.announcement())
}

func (m *bare) survey() error {
	return m.p.enroll.Survey(m.p.Context(), m.uuid, muster.Survey{Session: m.session, Disks: m.disks})
}

// ready brings it to where an operator can approve, and plans.
func (m *bare) ready() muster.SetupPlan {
	m.p.Helper()
	m.sighted()
	a, err := m.announce()
	m.p.ok(err)
	if a.State != muster.AwaitingSetup || !a.Survey {
		m.p.Fatalf("announced: %+v", a)
	}
	m.p.ok(m.survey())
	return must(m.p, func(ctx context.Context) (muster.SetupPlan, error) {
		return m.p.admin.PlanSetup(ctx, m.uuid, muster.SetupRequest{})
	})
}

// approved brings it to setting_up.
func (m *bare) approved() muster.SetupGrant {
	m.p.Helper()
	plan := m.ready()
	return must(m.p, func(ctx context.Context) (muster.SetupGrant, error) {
		return m.p.admin.ApproveSetup(ctx, m.uuid, muster.SetupApproval{Plan: plan.Digest, Confirm: m.serial})
	})
}

func (m *bare) take(epoch int64) (muster.TakenBundle, error) {
	return m.p.booter.TakeBundle(m.p.Context(), m.uuid, muster.TakeRequest{Epoch: epoch, Session: m.session})
}

// opened takes the bundle and opens it as the machine would.
func (m *bare) opened(epoch int64) setup.Bundle {
	m.p.Helper()
	taken, err := m.take(epoch)
	m.p.ok(err)
	if taken.Script != setup.Script {
		m.p.Fatalf("script: %q", taken.Script)
	}
	order, err := setup.ParseOrder(taken.Env)
	m.p.ok(err)
	b, err := setup.Open(m.private, order.Bundle)
	m.p.ok(err)
	m.p.ok(order.Check(b))
	m.p.keep(b.APIKey, string(b.ProofKey), string(b.Tickets.Console))
	for _, k := range [][]byte{b.ProofKey, b.Tickets.Console, b.Tickets.Metadata, b.Tickets.Move} {
		if len(k) != 32 {
			m.p.Fatalf("a key of %d bytes", len(k))
		}
		m.p.keep(base64.StdEncoding.EncodeToString(k), base64.RawURLEncoding.EncodeToString(k))
	}
	return b
}

// complete reports success; others are more cards that the booter saw.
func (m *bare) complete(b setup.Bundle, others ...string) error {
	return m.p.booter.SetupComplete(m.p.Context(), m.uuid, muster.SetupOutcome{
		Epoch: b.Epoch, Session: m.session, Proof: setup.Proof(b.ProofKey, m.uuid, b.Epoch), MACs: append(others, m.mac)})
}

func TestMain(m *testing.M) {
	if dir := os.Getenv("MUSTERD_TEST_DIR"); dir != "" {
		os.Exit(child(dir))
	}
	code := m.Run()
	stopCluster()
	os.Exit(code)
}

// searched looks for every secret in a text.
func (p *place) searched(where, text string) {
	p.Helper()
	for _, s := range p.secrets {
		if strings.Contains(text, s) {
			p.Errorf("%s holds a secret: …%s…", where, s[:min(6, len(s))])
		}
	}
}

// files reads everything in the state directory but the keys themselves and the
// first login.
func (p *place) files(f func(path string, content string)) {
	p.Helper()
	p.ok(filepath.WalkDir(p.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, ".key") || path == control.FirstLoginFile(p.dir) {
			return err
		}
		b, err := os.ReadFile(path)
		f(path, string(b))
		return err
	}))
}
