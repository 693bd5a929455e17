// Package control is the control plane: it composes the store, the files
// beside it (CA, master key, images' content) and the clocks into what the API
// speaks for, and runs it.
//
// It decides nothing that the lifecycle rows decide and writes nothing that
// the store does not write. It must never log, return or keep a secret that
// the store hands out once.
package control

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/api"
	"muster.internal/image"
	"muster.internal/provider"
	"muster.internal/store"
)

// Config says where a control plane keeps its things and how it is reached.
// Only Dir is needed.
type Config struct {
	Dir       string   // state: CA, master key, images, and the SQLite file
	Store     string   // postgres://…, the path of a SQLite file, or memory:NAME; empty: DIR/muster.db
	Listen    string   // host:port; empty: 127.0.0.1:8443
	Advertise string   // https://host:port, how machines reach it; empty: made from Listen and Names
	Names     []string // names and addresses in the server's certificate, beside loopback
	Log       *slog.Logger
	Now       func() time.Time // the clock; nil: time.Now
	// Dice is where ids and secrets of the store come from; nil: crypto/rand.
	Dice io.Reader
	// Beat is how often machines are asked for a heartbeat; 0: 30 s.
	Beat time.Duration
	// Provider is where grants are made; nil: provider.At.
	Provider func(kind muster.ProviderKind, url string) (provider.Provider, error)
}

// A Control is an open control plane. It serves once Start was called; As
// gives a caller in the same process what a client would get from afar.
type Control struct {
	cfg    Config
	log    *slog.Logger
	now    func() time.Time
	opened time.Time
	store  *store.Store
	blobs  *image.Blobs
	// collecting is held while a blob is wanted or removed.
	collecting sync.Mutex
	authority  *Authority
	keys       *authCache
	locks      []*lock
	secrets    *guard        // keys and operators' tokens
	doubted    chan struct{} // secrets being looked up for sources that fail too often
	logins     *guard        // passwords
	names      *guard        // passwords, by operator
	welcome    *welcome      // addresses from which operators came in
	approvers  *welcome      // and from which they approved claim codes
	codes      *guard        // claim codes
	polls      *guard        // poll tokens
	tokens     *guard        // enrolment tokens
	doors      *guard        // registrations, which anybody may ask for
	hashing    chan struct{} // passwords being checked
	hub        *hub          // of who follows events
	watch      *watch        // of nodes that wait
	presence   *presence     // of nodes that are linked
	planning   *planning
	url        string

	server *server // nil until Start

	closing sync.Once
	closed  error
}

func (c Config) storeURL() string {
	if c.Store == "" {
		return filepath.Join(c.Dir, "muster.db")
	}
	return c.Store
}

// Open opens a control plane's store and files, and makes what the first start
// makes: CA, master key, first operator.
func Open(ctx context.Context, cfg Config) (*Control, error) {
	if cfg.Dir == "" {
		return nil, errors.New("a control plane needs a directory for its state")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:8443"
	}
	if cfg.Provider == nil {
		cfg.Provider = provider.At
	}
	if cfg.Beat == 0 {
		cfg.Beat = 30 * time.Second
	}
	c := &Control{cfg: cfg, log: cfg.Log, now: cfg.Now, opened: cfg.Now(), hashing: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		secrets: newGuard("wrong keys and tokens", pace{6 * time.Second, 10}, pace{time.Second / 20, 200}),
		doubted: make(chan struct{}, 2),
		logins:  newGuard("failed attempts", pace{6 * time.Second, 10}, pace{time.Second / 20, 200}),
		// One address can fail once in six seconds: it takes many to use up an
		// operator's share.
		names:   newGuard("failed attempts at this operator", pace{time.Second, 60}, pace{time.Second / 200, 2000}),
		welcome: new(welcome), approvers: new(welcome),
		// 30 random bits that live for an hour: some 3650 guesses in that time.
		codes:  newGuard("wrong claim codes", pace{30 * time.Second, 10}, pace{time.Second, 50}).strict(),
		polls:  newGuard("unknown poll tokens", pace{6 * time.Second, 20}, pace{time.Second / 20, 200}),
		tokens: newGuard("wrong enrolment tokens", pace{6 * time.Second, 10}, pace{time.Second / 20, 200}),
		doors:  newGuard("registrations", pace{time.Second / 2, 200}, pace{time.Second / 50, 2000}),
	}
	c.hub, c.watch, c.presence = newHub(c), newWatch(c), &presence{nodes: map[string]*present{}}
	if err := c.open(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Control) open(ctx context.Context) (err error) {
	if err := os.MkdirAll(c.cfg.Dir, 0o700); err != nil {
		return err
	}
	if kind, _, is := strings.Cut(c.cfg.Store, "://"); is && kind != "postgres" && kind != "postgresql" {
		return fmt.Errorf("a store of kind %.20q is not known: postgres://… or the path of a SQLite file", kind)
	}
	if err := c.lockAll(); err != nil {
		return err
	}
	names, err := c.reachable()
	if err != nil {
		return err
	}
	if c.authority, err = OpenAuthority(filepath.Join(c.cfg.Dir, "tls"), names, c.now); err != nil {
		return err
	}
	master, err := masterKey(filepath.Join(c.cfg.Dir, "master.key"))
	if err != nil {
		return err
	}
	if c.blobs, err = image.OpenBlobs(filepath.Join(c.cfg.Dir, "blobs")); err != nil {
		return err
	}
	if c.store, err = store.Open(ctx, store.Options{URL: c.cfg.storeURL(), MasterKey: master, Dice: c.cfg.Dice, Log: c.log}); err != nil {
		return err
	}
	c.keys, c.planning = newAuthCache(c.store), newPlanning(c)
	return c.firstOperator(ctx)
}

// reachable settles the advertised address and the names that must be in the
// certificate for it.
func (c *Control) reachable() ([]string, error) {
	host, port, err := net.SplitHostPort(c.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen address %q is not HOST:PORT: %w", c.cfg.Listen, err)
	}
	names := append([]string(nil), c.cfg.Names...)
	best := "127.0.0.1"
	if len(names) > 0 {
		best = names[0]
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		names = append(names, host)
		if ip == nil || !ip.IsLoopback() || len(c.cfg.Names) == 0 {
			best = host // where it listens is certainly where it is reached
		}
	}
	if c.cfg.Advertise == "" {
		c.url = "https://" + net.JoinHostPort(strings.Trim(best, "[]"), port)
		return names, namesFit(names)
	}
	u, err := url.Parse(c.cfg.Advertise)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Path != "" && u.Path != "/" ||
		u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || !portFits(u.Port()) {
		return nil, errors.New("the advertised address must be https://HOST:PORT and nothing else: machines are told it as it is")
	}
	c.url = u.Scheme + "://" + u.Host
	names = append(names, u.Hostname())
	return names, namesFit(names)
}

func portFits(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

var dnsName = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`)

// namesFit refuses what cannot stand in a certificate: clients throw away the
// whole certificate for one wrong name.
func namesFit(names []string) error {
	for _, n := range names {
		if n = strings.Trim(n, "[]"); net.ParseIP(n) == nil && (len(n) > 253 || !dnsName.MatchString(n)) {
			return fmt.Errorf("%.80q is neither an address nor a host name (letters, digits, hyphens and dots; other scripts as xn--…)", n)
		}
	}
	return nil
}

// newPassword makes 120 random bits that people can type.
func newPassword() (string, error) {
	b := make([]byte, 15)
	if _, err := rand.Read(b); err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// Close ends serving, writes down what was gathered and closes the store.
func (c *Control) Close() error {
	c.closing.Do(func() {
		if c.server != nil {
			c.server.stop()
		}
		c.hub.close()
		c.watch.close()
		if c.store != nil {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			c.closed = errors.Join(c.store.FlushSeen(ctx, c.now()), c.KeepLinks(ctx), c.store.Close())
		}
		for _, l := range c.locks {
			c.closed = errors.Join(c.closed, l.release())
		}
	})
	return c.closed
}

// Kill ends a control plane that was never started as a power cut would: what
// it had gathered and not written down is lost.
func (c *Control) Kill() error {
	c.closing.Do(func() {
		c.hub.close()
		c.watch.close()
		c.closed = c.store.Close()
		for _, l := range c.locks {
			c.closed = errors.Join(c.closed, l.release())
		}
	})
	return c.closed
}

// URL is how machines reach this control plane.
func (c *Control) URL() string { return c.url }

// CA is the certificate that they trust, in PEM.
func (c *Control) CA() []byte { return c.authority.PEM() }

// Fingerprint is that certificate's, in hex.
func (c *Control) Fingerprint() string { return c.authority.Fingerprint() }

// Ready implements api.Service.
func (c *Control) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := room(c.cfg.Dir); err != nil {
		return err
	}
	return c.store.Ping(ctx)
}

// As implements api.Service: the control plane as caller sees it. Whoever
// calls it has decided access.
func (c *Control) As(caller muster.Caller) api.Session { return session{c, caller} }

// A session is one caller's view.
type session struct {
	*Control
	by muster.Caller
}

func (s session) Version(context.Context) (muster.Version, error) {
	now := s.now().UTC()
	return muster.Version{Time: &now, Version: muster.Build, Capability: muster.Capability, URL: s.url, CA: string(s.authority.PEM())}, nil
}
