package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"muster.internal/lab"
)

func (a *app) devCmd() *cobra.Command {
	var cfg lab.DevConfig
	var verbose bool
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole fleet on this machine: no root, no hardware",
		Long: `Run a whole fleet on this machine: a control plane, a booter and simulated
machines in one process, without root. What passes between them is real: DHCP
by way of a relay, TFTP, HTTP, the boot bus, the API over TLS. Machines power on
with empty disks, announce themselves and wait for you, in another shell:

  . DIR/dev.env
  muster registration ls
  muster registration approve-setup SIM00001

Everything is kept in DIR and comes back as it was; remove DIR to start anew.
With --auto every setup is approved by itself, for demonstrations.`,
		Example: `  muster dev
  muster dev --machines 30 --dir ./big --auto`,
		Args: names(),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.dev(c, cfg, verbose)
		},
	}
	f := c.Flags()
	numberVar(f, &cfg.Machines, "machines", 4, 0, 4000, "how many simulated machines, at most 4000")
	f.StringVar(&cfg.API, "api", "", "where the control plane listens (default: where it did, at first 127.0.0.1:8443)")
	f.StringVar(&cfg.Dir, "dir", "muster-dev", "where everything is kept")
	f.BoolVar(&cfg.Auto, "auto", false, "approve every setup by itself")
	f.Float64Var(&cfg.Hurry, "hurry", 1, "divide the waits of simulated firmware by this")
	f.BoolVarP(&verbose, "verbose", "v", false, "log what control plane and booter do in detail")
	must(c.MarkFlagDirname("dir"))
	return c
}

func (a *app) dev(c *cobra.Command, cfg lab.DevConfig, verbose bool) error {
	cfg.Dir = a.abs(cfg.Dir)
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return err
	}
	logFile, err := os.OpenFile(filepath.Join(cfg.Dir, "muster.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	cfg.Log = slog.New(slog.NewTextHandler(logFile, &slog.HandlerOptions{Level: level}))
	screen := a.screen()
	cfg.Tell = screen.Tell
	d, err := lab.OpenDev(c.Context(), cfg)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return &hinted{err: err, hint: "another control plane runs there: stop it, or name another address with --api"}
	case err != nil:
		return &hinted{err: err, hint: "the log is " + logFile.Name()}
	}
	say := func(format string, args ...any) {
		screen.Tell(lab.Happening{At: a.now(), Stage: lab.StageControl, Text: fmt.Sprintf(format, args...)})
	}
	say("control plane at %s, log in %s", d.URL(), logFile.Name())
	say("in another shell: . %s && muster registration ls", d.Env())
	screen.Foot = fmt.Sprintf("in another shell: . %s, then muster registration approve-setup SERIAL; ^C stops", filepath.Join(cfg.Dir, "dev.env"))
	err = d.Run(c.Context())
	if err == nil && c.Context().Err() != nil {
		fmt.Fprintf(a.stderr, "stopped; %s holds everything, muster dev --dir %s goes on\n", cfg.Dir, cfg.Dir)
		return nil
	}
	return err
}

// screen is plain lines, or more when standard output is a terminal.
func (a *app) screen() *lab.Screen {
	s := &lab.Screen{W: a.stdout, Colour: a.colour}
	if f, ok := a.stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.Terminal = true
		s.Rows = 12
		if width, height, err := term.GetSize(int(f.Fd())); err == nil {
			s.Columns, s.Rows = width, height/2
		}
	}
	return s
}
