package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"muster.internal"
	"muster.internal/api"
)

// Times of the server.
const (
	drainTime   = 10 * time.Second // for requests under way when it is told to stop
	tickEvery   = time.Second      // overdue setups, codes, keys, rescues, probes
	flushEvery  = 5 * time.Second  // what was heard of machines
	tracesEvery = time.Minute      // boot traces that are old or too many
)

// A server is the part of a control plane that listens.
type server struct {
	api      *api.API
	http     *http.Server
	listener net.Listener
	quit     context.CancelFunc
	done     sync.WaitGroup
	failed   chan error
	once     sync.Once
}

// Start listens and serves, and starts the clocks. With port 0 in
// Config.Listen, Addr tells which port it became.
func (c *Control) Start() error {
	l, err := net.Listen("tcp", c.cfg.Listen)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w", c.cfg.Listen, err)
	}
	if c.cfg.Advertise == "" {
		c.learnPort(l.Addr())
	}
	if err := c.followFirstLogin(); err != nil {
		c.log.Warn("the first login does not say where this control plane is now", "error", err)
	}
	a := api.New(c, api.Options{Version: muster.Build, Log: c.log})
	s := &server{api: a, listener: l, failed: make(chan error, 1)}
	s.http = &http.Server{
		Handler:           a,
		TLSConfig:         c.authority.Config(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(c.log.Handler(), slog.LevelDebug), // handshakes of strangers
	}
	ctx, quit := context.WithCancel(context.Background())
	s.quit = quit
	s.done.Go(func() {
		if err := s.http.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- err
		}
	})
	s.done.Go(func() { c.clocks(ctx) })
	s.done.Go(func() { c.grantClock(ctx) })
	s.done.Go(func() { c.hookClock(ctx) })
	s.done.Go(func() { c.planClock(ctx) })
	c.server = s
	c.log.Info("serving", "listen", l.Addr().String(), "url", c.url, "ca_sha256", c.Fingerprint())
	return nil
}

// learnPort puts the port that was chosen into the advertised address.
func (c *Control) learnPort(addr net.Addr) {
	host, port, err := net.SplitHostPort(c.url[len("https://"):])
	if err == nil && port == "0" {
		c.url = fmt.Sprintf("https://%s", net.JoinHostPort(host, fmt.Sprint(addr.(*net.TCPAddr).Port)))
	}
}

// Addr is where it listens, or nil before Start.
func (c *Control) Addr() net.Addr {
	if c.server == nil {
		return nil
	}
	return c.server.listener.Addr()
}

// stop ends long polls, waits for requests under way, and ends the clocks.
func (s *server) stop() {
	s.once.Do(func() {
		s.api.Drain()
		ctx, cancel := context.WithTimeout(context.Background(), drainTime)
		defer cancel()
		if s.http.Shutdown(ctx) != nil {
			s.http.Close() // whoever is left had its time
		}
		s.quit()
		s.done.Wait()
	})
}

// Run opens and serves a control plane until ctx ends, then closes it.
func Run(ctx context.Context, cfg Config) error {
	c, err := Open(ctx, cfg)
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return errors.Join(err, c.Close())
	}
	// A service manager is told; without one there is nobody to tell.
	if _, err := daemon.SdNotify(true, daemon.SdNotifyReady); err != nil {
		c.log.Warn("the service manager cannot be told that this is ready", "error", err)
	}
	select {
	case <-ctx.Done():
		c.log.Info("stopping")
		return c.Close()
	case err := <-c.server.failed:
		return errors.Join(err, c.Close())
	}
}

// clocks does what happens by itself.
func (c *Control) clocks(ctx context.Context) {
	tick, flush, traces := time.NewTicker(tickEvery), time.NewTicker(flushEvery), time.NewTicker(tracesEvery)
	defer tick.Stop()
	defer flush.Stop()
	defer traces.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := c.Tick(ctx); err != nil && ctx.Err() == nil {
				c.log.Warn("what is overdue could not be ended; it is tried again", "error", err)
			}
		case <-traces.C:
			if err := c.store.ExpireTraces(ctx, c.now()); err != nil && ctx.Err() == nil {
				c.log.Warn("old boot traces could not be forgotten; it is tried again", "error", err)
			}
		case <-flush.C:
			if err := c.store.FlushSeen(ctx, c.now()); err != nil && ctx.Err() == nil {
				c.log.Warn("when machines were last heard could not be written; it is kept", "error", err)
			}
			if err := c.KeepLinks(ctx); err != nil && ctx.Err() == nil {
				c.log.Warn("which nodes are linked could not be written; it is kept", "error", err)
			}
		}
	}
}
