package main

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"muster.internal"
	"muster.internal/client"
	"muster.internal/credential"
	"muster.internal/host"
	"muster.internal/setup"
)

// stateDir is where a machine keeps its state that is not started from a
// platform image.
const stateDir = "/var/lib/muster-host"

// run lives as a node, with the credential of its state directory, once there
// is one; or, in an initrd, as what the disks and the boot server say that it is.
func run(ctx context.Context, e *env) error {
	state, boot, supervised := stateDir, false, false
	err := e.flags("run", func(f *flag.FlagSet) {
		f.StringVar(&state, "state", stateDir, "directory with the credential")
		f.BoolVar(&supervised, "supervised", false, "it is started again when it ends: so it ends once another version of it was installed, and keeps the one that was linked, for a bad one to be rolled back to")
		f.BoolVar(&boot, "boot", false, "this machine was started from a platform image")
	})
	if err != nil {
		return err
	}
	if boot {
		return started(ctx, e)
	}
	for {
		c, err := hosted(ctx, e, credentialFile(state))
		if err != nil {
			return ended(ctx, err)
		}
		e.machine.Identify(c.ServerUUID)
		if err := e.machine.Prepare(); err != nil {
			e.say("%v", err) // it is a node without that, too
		}
		if err = node(ctx, e, state, c, supervised); !errors.Is(err, host.ErrRetired) && !errors.Is(err, host.ErrReplaced) {
			if errors.Is(err, host.ErrUpdated) {
				e.say("%v", err)
				return nil
			}
			return ended(ctx, err)
		}
		e.say("%v", err)
	}
}

// hosted is the life of a machine that belongs to no fleet: nothing is asked and
// nothing is done, until somebody gives it a credential.
func hosted(ctx context.Context, e *env, file string) (setup.Credential, error) {
	waited := false
	for {
		c, err := credential.Load(file)
		if !errors.Is(err, fs.ErrNotExist) {
			return c, err
		}
		if !waited {
			e.say("hosted: there is no credential in %s, and nothing is done without one; `muster-host enrol` and `muster-host register` bring it", filepath.Dir(file))
			waited = true
			debug.FreeOSMemory()
		}
		if err := e.machine.Await(ctx, file); err != nil {
			return setup.Credential{}, err
		}
	}
}

// credentialFile is where a state directory has the credential.
func credentialFile(state string) string { return filepath.Join(state, "credential") }

// identityFile is where it has the key pair with its certificate.
func identityFile(state string) string { return filepath.Join(state, "identity.pem") }

// ended makes a wish to end no error.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// live speaks to the control plane until ctx ends, and is told nothing but when
// to speak again: the life of a node without a store.
func live(ctx context.Context, e *env, c setup.Credential, once bool) error {
	api, err := client.New(c.URL, c.APIKey, client.Trust{CA: []byte(c.CA)})
	if err != nil {
		return err
	}
	defer api.Close()
	return host.Live(&line{ctx, e, api, c.Epoch}, once)
}

// A line is a node's line to its control plane, for package host.
type line struct {
	ctx   context.Context
	e     *env
	api   muster.ForHost
	epoch int64
}

func (l *line) Refresh() error {
	f, err := sysinfo(l.e)
	if err != nil {
		return err
	}
	r := muster.RefreshRequest{Epoch: l.epoch, Disks: f.Disks, Version: muster.Build}
	if h, err := os.Hostname(); err == nil && h != "localhost" && muster.ValidHostname(h) {
		r.Hostname = h // else it keeps the one that was chosen for it
	}
	if r.Sysinfo, err = l.e.machine.Describe(f); err != nil {
		return err
	}
	_, err = l.api.Refresh(l.ctx, r)
	return err
}

func (l *line) Beat() (int, error) {
	r, err := l.api.Heartbeat(l.ctx, muster.Heartbeat{Version: muster.Build})
	return r.NextSeconds, err
}

func (l *line) Say(text string)             { l.e.say("%s", text) }
func (l *line) Dice() float64               { return rand.Float64() }
func (l *line) Pause(d time.Duration) error { return pause(l.ctx, d) }

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
