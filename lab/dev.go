package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"muster.internal/booter"
	"muster.internal/client"
	"muster.internal/control"
	"muster.internal/sim"

	muster "muster.internal"
)

// DevConfig says what a laptop installation is made of. Dir is needed.
type DevConfig struct {
	Machines int    // simulated
	API      string // HOST:PORT of the control plane; empty: as before, or 127.0.0.1:8443
	Dir      string // all state
	Auto     bool   // approve every setup
	// Net is the admin network, a prefix of loopback: .1 is the booter, .2 the
	// relay, and machines get addresses from .16 on. Not valid: 127.77.0.0/16.
	Net netip.Prefix
	// Hurry divides the waits of simulated firmware; below 1 is 1.
	Hurry float64
	Log   *slog.Logger // of control plane and booter
	// Now is the control plane's clock; nil: time.Now.
	Now func() time.Time
	// Tell hears what happens; it is called by many goroutines, one at a time.
	Tell func(Happening)
	// Between stands between the booter and the control plane; nil: nothing does.
	Between func(muster.ForBooter) muster.ForBooter
	// Hardware makes the n-th machine, counted from 1; nil: sim.Hardware.
	Hardware func(n int) *sim.Machine
}

// A Dev is a control plane, a booter and simulated machines in one process,
// without root. Every message between them is real: DHCP through a relay, TFTP,
// HTTP, the boot bus, the API over TLS.
type Dev struct {
	cfg      DevConfig
	control  *control.Control
	booter   *booter.Booter
	machines []*machine
	names    map[string]string // UUID or MAC to the machine's name
	env      string
	password string // the first operator's

	telling sync.Mutex
}

// OpenDev opens an installation: new in an empty directory, else the one that
// is there, with every machine as its disks are.
func OpenDev(ctx context.Context, cfg DevConfig) (*Dev, error) {
	if !cfg.Net.IsValid() {
		cfg.Net = netip.MustParsePrefix("127.77.0.0/16")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Tell == nil {
		cfg.Tell = func(Happening) {}
	}
	if cfg.Between == nil {
		cfg.Between = func(f muster.ForBooter) muster.ForBooter { return f }
	}
	if cfg.Hardware == nil {
		cfg.Hardware = sim.Hardware
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	cfg.Dir = dir
	for _, sub := range []string{"machines", "booter"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	d := &Dev{cfg: cfg, names: map[string]string{}}
	if err := d.open(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Dev) open(ctx context.Context) error {
	if err := d.openControl(ctx); err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	if err := d.openBooter(ctx); err != nil {
		return fmt.Errorf("booter: %w", err)
	}
	if err := d.openPolicy(ctx); err != nil {
		return fmt.Errorf("boot policy: %w", err)
	}
	p := d.booter.Ports()
	for n := 1; n <= d.cfg.Machines; n++ {
		fresh := d.cfg.Hardware(n)
		m, err := openMachine(filepath.Join(d.cfg.Dir, "machines", fresh.Name+".json"), fresh)
		if err != nil {
			return fmt.Errorf("machine %s: %w", fresh.Name, err)
		}
		name := m.hw.Name
		m.log, m.tell = d.cfg.Log.With("machine", name), d.tell
		m.wire = &wire{relay: d.host(2), circuit: name, hurry: d.cfg.Hurry, http: &http.Client{Timeout: time.Minute},
			dhcp: netip.AddrPortFrom(d.host(1), uint16(p.DHCP)), tftp: netip.AddrPortFrom(d.host(1), uint16(p.TFTP)),
			say: func(line string) { m.log.Debug("screen", "line", line) }}
		if d.names[m.hw.UUID] == "" {
			d.names[m.hw.UUID] = name
		} else {
			d.names[m.hw.UUID] = "?" // two machines claim it
		}
		for _, mac := range m.hw.MACs {
			d.names[mac] = name
		}
		d.machines = append(d.machines, m)
	}
	return nil
}

// host is the n-th address of the admin network.
func (d *Dev) host(n int) netip.Addr {
	a := d.cfg.Net.Masked().Addr().As4()
	a[2], a[3] = a[2]+byte(n>>8), a[3]+byte(n)
	return netip.AddrFrom4(a)
}

// admin is the first operator, in this process.
func (d *Dev) admin() muster.Fleet {
	return d.control.As(muster.Caller{Operator: control.FirstOperator, Role: muster.Admin, Source: "muster dev"})
}

// openControl starts the control plane and writes dev.env, with which the
// command line speaks as the first operator.
func (d *Dev) openControl(ctx context.Context) (err error) {
	kept := filepath.Join(d.cfg.Dir, "api")
	api, err := apiAddress(kept, d.cfg.API)
	if err != nil {
		return err
	}
	dir := filepath.Join(d.cfg.Dir, "control")
	d.control, err = control.Open(ctx, control.Config{Dir: dir, Listen: api, Log: d.cfg.Log, Now: d.cfg.Now})
	if err != nil {
		return err
	}
	if err := d.control.Start(); err != nil {
		return err
	}
	if err := os.WriteFile(kept, []byte(d.control.Addr().String()+"\n"), 0o644); err != nil {
		return err
	}
	password, err := keepSecret(filepath.Join(d.cfg.Dir, "admin.password"), func() (string, error) {
		l, err := control.ReadFirstLogin(dir)
		if err != nil {
			return "", fmt.Errorf("admin.password was lost (%w): remove %s and start anew", err, d.cfg.Dir)
		}
		return l.Password, nil
	})
	if err != nil {
		return err
	}
	d.env, d.password = filepath.Join(d.cfg.Dir, "dev.env"), password
	if err := os.WriteFile(d.ca(), d.control.CA(), 0o644); err != nil {
		return err
	}
	return d.writeEnv(ctx)
}

func (d *Dev) ca() string { return filepath.Join(d.cfg.Dir, "ca.pem") }

// writeEnv logs the first operator in and writes dev.env.
func (d *Dev) writeEnv(ctx context.Context) error {
	anybody, err := d.client("")
	if err != nil {
		return err
	}
	defer anybody.Close()
	t, err := anybody.Login(ctx, muster.Login{Name: control.FirstOperator, Password: d.password})
	if err != nil {
		return err
	}
	return writeSecret(d.env, fmt.Sprintf("export MUSTER_URL='%s'\nexport MUSTER_KEY='%s'\nexport MUSTER_CA='%s'\n", d.control.URL(), t.Token, d.ca())+pathLine())
}

// pathLine makes a shell find this very program by its name.
func pathLine() string {
	self, err := os.Executable()
	if err != nil || filepath.Base(self) != "muster" || strings.ContainsAny(self, "'\n:") {
		return ""
	}
	return fmt.Sprintf("export PATH='%s':\"$PATH\"\n", filepath.Dir(self))
}

// renewEvery is shorter than an operator's token lives.
const renewEvery = 4 * time.Hour

// renew keeps dev.env good while the installation runs.
func (d *Dev) renew(ctx context.Context) {
	for sleep(ctx, renewEvery) == nil {
		if err := d.writeEnv(ctx); err != nil {
			d.cfg.Log.Warn("dev.env could not be renewed", "error", err)
		}
	}
}

// apiAddress is where the control plane has to be: where it was, since that is
// what machines that are nodes have written down.
func apiAddress(file, wanted string) (string, error) {
	b, err := os.ReadFile(file)
	was := strings.TrimSpace(string(b))
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return "", err
	case was == "" && wanted == "":
		return "127.0.0.1:8443", nil
	case was == "":
		return wanted, nil
	case wanted == "" || wanted == was || strings.HasSuffix(wanted, ":0"):
		return was, nil
	}
	return "", fmt.Errorf("the machines here know their control plane at %s, not at %s; start it there, or begin anew in an empty directory", was, wanted)
}

func (d *Dev) client(token string) (*client.Client, error) {
	return client.New(d.control.URL(), token, client.Trust{CA: d.control.CA()})
}

// openBooter binds a booter that speaks to the control plane with two keys of
// its own, over TLS like any other.
func (d *Dev) openBooter(ctx context.Context) error {
	keyed := func(scope muster.Scope) (*client.Client, error) {
		secret, err := keepSecret(filepath.Join(d.cfg.Dir, "booter", string(scope)+".key"), func() (string, error) {
			k, err := d.admin().CreateKey(ctx, muster.NewKey{Scope: scope, Comment: "muster dev"})
			return k.Secret, err
		})
		if err != nil {
			return nil, err
		}
		return d.client(secret)
	}
	serve, err := keyed(muster.ScopeBooter)
	if err != nil {
		return err
	}
	announce, err := keyed(muster.ScopeURenroll)
	if err != nil {
		return err
	}
	ipxe, err := loaderDir(d.cfg.Dir)
	if err != nil {
		return err
	}
	busPassword, err := keepSecret(filepath.Join(d.cfg.Dir, "booter", "bus.password"), randomHex)
	if err != nil {
		return err
	}
	d.booter, err = booter.Listen(booter.Config{
		Name: "dev", Control: d.cfg.Between(serve), Enroll: d.cfg.Between(announce), Dir: filepath.Join(d.cfg.Dir, "booter"), IPXE: ipxe,
		Address: d.host(1), BusUser: "dev", BusPassword: busPassword, Log: d.cfg.Log,
	})
	return err
}

// openPolicy sets what a new installation lacks, once: what an operator changes
// later stays.
func (d *Dev) openPolicy(ctx context.Context) error {
	f := d.admin()
	ref, err := addDevImage(ctx, f)
	if err != nil {
		return err
	}
	p, err := f.BootPolicy(ctx)
	if err != nil {
		return err
	}
	changed := false
	if p.EnrollmentPI == nil {
		p.EnrollmentPI, changed = ref, true
	}
	if len(p.Networks) == 0 {
		p.Networks, changed = []muster.AdminNetwork{{Name: "dev", Prefix: d.cfg.Net.String(), Start: d.host(16).String(),
			End: d.host(16 + 4095).String(), Giaddrs: []string{d.host(2).String()}}}, true
	}
	if changed {
		_, err = f.SetBootPolicy(ctx, p)
	}
	return err
}

// Env is the file that makes the command line work when a shell reads it.
func (d *Dev) Env() string { return d.env }

// URL is where the control plane is.
func (d *Dev) URL() string { return d.control.URL() }

// Fleet is the installation as its first operator sees it.
func (d *Dev) Fleet() muster.Fleet { return d.admin() }

// tell passes on one happening at a time.
func (d *Dev) tell(h Happening) {
	d.telling.Lock()
	defer d.telling.Unlock()
	d.cfg.Tell(h)
}

// Run powers every machine on and lets them live until ctx ends; then
// everything is closed, and what the disks held is kept.
func (d *Dev) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var work, fleet sync.WaitGroup
	work.Go(func() {
		if err := d.booter.Run(ctx); err != nil && ctx.Err() == nil {
			stop(fmt.Errorf("booter: %w", err))
		}
	})
	work.Go(func() { d.watch(ctx) })
	work.Go(func() { d.renew(ctx) })
	for i, m := range d.machines {
		fleet.Go(func() {
			// A rack's power strip switches its outlets on one by one.
			if m.wire.Sleep(ctx, time.Duration(i)*150*time.Millisecond) == nil {
				m.run(ctx)
			}
		})
	}
	<-ctx.Done()
	fleet.Wait()
	work.Wait()
	err := d.Close()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return errors.Join(cause, err)
	}
	return err
}

// Close closes what Run would; it is for an installation that is not run.
func (d *Dev) Close() error {
	if d.booter != nil {
		d.booter.Close()
	}
	if d.control != nil {
		return d.control.Close()
	}
	return nil
}
