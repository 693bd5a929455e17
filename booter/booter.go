package booter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/boot"
	"muster.internal/dhcp"
	"muster.internal/image"
)

// Ports are what the booter listens on. In a Config 0 means any free port, and
// below 0 that the protocol is not served.
//
// PXE is the port of PXE boot servers, 4011 by the book. It goes with DHCP: it
// is not served without, and 0 is 4011 where DHCP is on its own port.
type Ports struct{ DHCP, TFTP, HTTP, Bus, PXE int }

// A Config is a booter's settings.
type Config struct {
	// Name is this booter's name in the control plane.
	Name string
	// Control speaks with the booter key, Enroll with the ur_enroll key.
	Control, Enroll muster.ForBooter
	// Dir holds the cache, staged images and the install journal.
	Dir string
	// IPXE is the directory with the boot loaders, as Debian's package ipxe has them.
	IPXE string
	// Interface is the one that machines boot on; empty: any that has Address.
	Interface string
	// Address is ours as machines see it; not valid: the interface's first.
	Address netip.Addr
	Ports   Ports
	// Proxy: a DHCP server of the site gives addresses on this segment, and the
	// booter says only what to boot.
	Proxy bool
	// BusUser and BusPassword are what every machine logs in to the boot bus
	// with; the script that a machine boots carries them.
	BusUser, BusPassword string
	Log                  *slog.Logger
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// A Booter is a boot server whose sockets are bound.
type Booter struct {
	cfg     Config
	log     *slog.Logger
	now     func() time.Time
	site    boot.Site
	dir     *Directory
	stage   *stage
	loaders *loaders
	sight   *sightings
	secrets secrets
	quiet   *silences
	traces  *traces
	tally   *tally
	watch   *watch
	rivals  *rivals
	env     boot.Env
	report  chan struct{} // poked when there is something new to report
	bus     *Bus
	install *installer // nil until open

	dhcp   *net.UDPConn // nil: not served
	pxe    *net.UDPConn
	frames *frames // nil: no privilege for it, or no need
	tftp   *net.UDPConn
	http   net.Listener
	amqp   net.Listener
}

// Listen binds the sockets, which may need privileges that Run does not. It
// touches no file, so that Run can begin as somebody else.
func Listen(cfg Config) (*Booter, error) {
	b := &Booter{cfg: cfg, log: cfg.Log, now: cfg.Now, dir: newDirectory(), tally: &tally{}, report: make(chan struct{}, 1)}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if b.now == nil {
		b.now = time.Now
	}
	if err := b.check(); err != nil {
		return nil, err
	}
	b.stage = newStage(filepath.Join(cfg.Dir, "images"), cfg.Control, b.dir, b.log, func() { poke(b.report) })
	b.loaders = &loaders{dir: cfg.IPXE, log: b.log}
	b.sight = newSightings(cfg.Name, cfg.Control, b.dir, b.log, b.tally)
	b.quiet = newSilences(b.log, b.tally)
	b.traces = newTraces(cfg.Name, cfg.Control, b.log, b.tally)
	b.account()
	b.bus = newBus(busOptions{Booter: cfg.Name, User: cfg.BusUser, Password: cfg.BusPassword, Machines: b.dir, Control: cfg.Enroll, Log: b.log})
	if err := b.bind(); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func (b *Booter) check() error {
	c := &b.cfg
	if c.Name == "" || c.Dir == "" || c.Control == nil || c.Enroll == nil {
		return errors.New("a booter needs a name, a directory and a control plane, with one key to serve and one to announce")
	}
	if !c.Address.IsValid() {
		a, err := firstAddress(c.Interface)
		if err != nil {
			return err
		}
		c.Address = a
	}
	if !c.Address.Is4() {
		return fmt.Errorf("the booter's address %s must be an IPv4 address", c.Address)
	}
	b.site = boot.Site{BusUser: c.BusUser, BusPassword: c.BusPassword}
	return b.site.Check()
}

// open reads what the last run has left in Dir, and the boot loaders.
func (b *Booter) open() (err error) {
	if err := os.MkdirAll(b.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("opening the booter's directory: %w", err)
	}
	if b.stage.blobs, err = image.OpenBlobs(filepath.Join(b.cfg.Dir, "blobs")); err != nil {
		return fmt.Errorf("opening the booter's image store: %w", err)
	}
	if err := loadCache(b.cacheFile(), b.dir); err != nil {
		b.log.Warn("the booter's cache cannot be read; machines are served once the control plane has spoken", "file", b.cacheFile(), "error", err)
	}
	b.loaders.refresh()
	b.install, err = newInstaller(installerOptions{Journal: filepath.Join(b.cfg.Dir, "installs"), Machines: b.dir, Bus: b.bus, Control: b.cfg.Control,
		Log: b.log, Seen: b.seenMACs, Now: b.now})
	return err
}

// bind opens every socket that is served. DHCP hears broadcasts, so it listens
// on all addresses of the interface unless the booter lives on loopback, where
// machines come by way of a relay.
func (b *Booter) bind() (err error) {
	c := &b.cfg
	any := netip.IPv4Unspecified()
	if c.Address.IsLoopback() {
		any = c.Address
	}
	if c.Ports.DHCP >= 0 {
		if b.dhcp, err = listenUDP(netip.AddrPortFrom(any, uint16(c.Ports.DHCP)), c.Interface); err != nil {
			return fmt.Errorf("listening for DHCP: %w", err)
		}
	}
	if c.Ports.TFTP >= 0 {
		if b.tftp, err = listenUDP(netip.AddrPortFrom(c.Address, uint16(c.Ports.TFTP)), c.Interface); err != nil {
			return fmt.Errorf("listening for TFTP: %w", err)
		}
	}
	if c.Ports.HTTP >= 0 {
		if b.http, err = listenTCP(netip.AddrPortFrom(c.Address, uint16(c.Ports.HTTP)), c.Interface); err != nil {
			return fmt.Errorf("listening for HTTP: %w", err)
		}
	}
	if c.Ports.Bus >= 0 {
		if b.amqp, err = listenTCP(netip.AddrPortFrom(c.Address, uint16(c.Ports.Bus)), c.Interface); err != nil {
			return fmt.Errorf("listening for the boot bus: %w", err)
		}
	}
	if err := b.bindPXE(any); err != nil {
		return err
	}
	p := b.Ports()
	b.site.HTTP = netip.AddrPortFrom(c.Address, uint16(max(0, p.HTTP)))
	b.site.Bus = netip.AddrPortFrom(c.Address, uint16(max(0, p.Bus)))
	return nil
}

// bindPXE opens the port of PXE boot servers and the packet socket, neither of
// which a segment needs that has no other server: without them the booter says
// so and goes on.
func (b *Booter) bindPXE(any netip.Addr) (err error) {
	c := &b.cfg
	if b.dhcp == nil || c.Ports.PXE < 0 && !c.Proxy {
		return nil
	}
	port := max(0, c.Ports.PXE)
	if port == 0 && c.Ports.DHCP == dhcp.ServerPort {
		port = dhcp.PXEPort
	}
	if b.pxe, err = listenUDP(netip.AddrPortFrom(any, uint16(port)), c.Interface); err != nil {
		if c.Proxy {
			return fmt.Errorf("listening for PXE boot server requests: %w", err)
		}
		b.log.Warn("the port of PXE boot servers is taken; firmware that insists on it does not boot", "error", err)
	}
	if c.Address.IsLoopback() {
		return nil
	}
	if b.frames, err = openFrames(c.Interface); err != nil {
		b.frames = nil
		b.log.Info("no packet socket: answers to machines without an address are broadcast, and other DHCP servers are only noticed when machines name them", "error", err)
	}
	return nil
}

// Ports tells what the booter listens on; below 0: not at all.
func (b *Booter) Ports() Ports {
	p := Ports{-1, -1, -1, -1, -1}
	if b.pxe != nil {
		p.PXE = b.pxe.LocalAddr().(*net.UDPAddr).Port
	}
	if b.dhcp != nil {
		p.DHCP = b.dhcp.LocalAddr().(*net.UDPAddr).Port
	}
	if b.tftp != nil {
		p.TFTP = b.tftp.LocalAddr().(*net.UDPAddr).Port
	}
	if b.http != nil {
		p.HTTP = b.http.Addr().(*net.TCPAddr).Port
	}
	if b.amqp != nil {
		p.Bus = b.amqp.Addr().(*net.TCPAddr).Port
	}
	return p
}

// Directory is what the booter knows of machines.
func (b *Booter) Directory() *Directory { return b.dir }

// Counters returns how often each thing happened since the start.
func (b *Booter) Counters() map[string]int64 {
	all := b.tally.snapshot()
	maps.Copy(all, b.bus.Counters())
	return all
}

// Close closes the sockets of a booter that is not run.
func (b *Booter) Close() {
	for _, c := range []interface{ Close() error }{b.dhcp, b.pxe, b.tftp, b.http, b.amqp} {
		switch c := c.(type) {
		case *net.UDPConn:
			if c != nil {
				c.Close()
			}
		case nil:
		default:
			c.Close()
		}
	}
	if b.frames != nil {
		b.frames.close()
	}
}

// Run serves until ctx ends, and returns when everything has come to rest.
func (b *Booter) Run(ctx context.Context) error {
	if err := b.open(); err != nil {
		b.Close()
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var work sync.WaitGroup
	part := func(name string, run func(context.Context) error) {
		work.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				stop(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	// What changed while the booter was off goes before what it remembers: the
	// sockets are bound, so what machines ask meanwhile waits in them.
	asked := make(chan struct{})
	part("change feed", func(ctx context.Context) error { return b.follow(ctx, sync.OnceFunc(func() { close(asked) })) })
	late := time.NewTimer(catchUp)
	select {
	case <-asked:
	case <-late.C:
		b.log.Warn("the control plane is slow to answer; known machines are served from memory meanwhile")
	case <-ctx.Done():
	}
	late.Stop()
	part("cache", b.keepCache)
	part("staging", b.stage.run)
	part("loaders", b.loaders.run)
	part("sightings", b.sight.run)
	part("traces", b.traces.run)
	part("status", b.reportStatus)
	if b.dhcp != nil {
		part("DHCP", func(ctx context.Context) error { return b.serveDHCP(ctx, b.dhcp, false) })
	}
	if b.pxe != nil {
		part("PXE boot server", func(ctx context.Context) error { return b.serveDHCP(ctx, b.pxe, true) })
	}
	if b.frames != nil {
		part("other DHCP servers", b.listenServers)
	}
	if b.tftp != nil {
		part("TFTP", b.serveTFTP)
	}
	if b.http != nil {
		part("HTTP", b.serveHTTP)
	}
	if b.amqp != nil {
		part("boot bus", func(ctx context.Context) error { return b.bus.Serve(ctx, b.amqp) })
		part("installs", b.install.Run)
	}
	p := b.Ports()
	b.log.Info("serving", "booter", b.cfg.Name, "address", b.cfg.Address, "interface", cmp.Or(b.cfg.Interface, "any"),
		"proxy", b.cfg.Proxy, "dhcp", p.DHCP, "pxe", p.PXE, "tftp", p.TFTP, "http", p.HTTP, "bus", p.Bus)
	<-ctx.Done()
	b.Close()
	work.Wait()
	b.reportEnd()
	b.log.Info("ended", "booter", b.cfg.Name, "counters", b.Counters())
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// decide is the one gate for every protocol.
func (b *Booter) decide(q boot.Request) (boot.Decision, *muster.BootRecord) {
	return b.decideAt(q, b.now())
}

func (b *Booter) decideAt(q boot.Request, now time.Time) (boot.Decision, *muster.BootRecord) {
	if q.Via != boot.DHCP && !q.HasArch {
		q.Arch, q.HasArch = b.sight.archOf(q.MAC)
	}
	env := b.env
	env.Now = now
	m, pol := b.dir.judgedBy(q.MAC)
	if m == nil {
		return boot.Decide(q, nil, pol, env), nil
	}
	if m.State == muster.Enrolling && b.install != nil && b.install.finishedMAC(m.MAC) {
		// Its setup is over, and we know it before the control plane does.
		own := *m
		own.State = muster.Enrolled
		if own.AssignedPI == nil {
			own.AssignedPI = pol.EnrollmentPI
		}
		m = &own
	}
	return boot.Decide(q, m, pol, env), &m.BootRecord
}

// account makes ready what decisions depend on and what is kept of them.
func (b *Booter) account() {
	b.watch, b.rivals = newWatch(), newRivals(b.log, b.tally, b.cfg.Proxy)
	b.env = boot.Env{Server: b.cfg.Address, Proxy: b.cfg.Proxy, Staged: b.stage.lookup, HasLoader: b.loaders.has,
		Loop: b.watch.Loop}
	b.dir.proxy = b.cfg.Proxy
}

func firstAddress(name string) (netip.Addr, error) {
	if name == "" {
		return netip.Addr{}, errors.New("a booter needs the address that machines see it by, or the interface that has it")
	}
	i, err := net.InterfaceByName(name)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("interface %s: %w", name, err)
	}
	as, err := i.Addrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("interface %s: %w", name, err)
	}
	for _, a := range as {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("interface %s has no IPv4 address; give it one, or name ours", name)
}
