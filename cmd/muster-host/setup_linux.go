package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"muster.internal/host"
	"muster.internal/setup"
)

// keyFile holds this boot's private key, in memory, for the setup that the
// announcing process starts.
const keyFile = "key"

// lockFile is locked while a setup runs.
const lockFile = "setup.lock"

// doSetup does what the environment describes. The last line on standard output
// is the outcome; the exit status is for the agent, which restarts the machine.
func doSetup(_ context.Context, e *env) error {
	r := trySetup(e)
	fmt.Fprintln(e.out, r.Line)
	return status(r.Exit)
}

func trySetup(e *env) host.Result {
	m := e.linux()
	vars := map[string]string{}
	for _, v := range os.Environ() {
		if k, value, _ := strings.Cut(v, "="); strings.HasPrefix(k, "MUSTER_") {
			vars[k] = value
		}
	}
	o, err := setup.ParseOrder(vars)
	if err != nil {
		return host.Failed(fmt.Errorf("the order cannot be read: %w", err))
	}
	// The bus may bring another order while this one is at work, and two at
	// once would build on each other's disks.
	alone, err := only(filepath.Join(m.Run, lockFile))
	if err != nil {
		return host.Failed(err)
	}
	defer alone.Close()
	if _, err := m.Facts(); err != nil {
		return host.Failed(err)
	}
	if m.Key, err = os.ReadFile(filepath.Join(m.Run, keyFile)); err != nil {
		return host.Failed(fmt.Errorf("this boot's key: %w", err))
	}
	r := host.Setup(o, m, func(p host.Progress) { e.say("%s", setup.StepLine(p.Step, p.Of, p.Name, p.Text)) })
	if r.OK {
		e.say("setup is complete; the machine restarts")
	}
	return r
}

// only locks a file until it is closed or this process ends, however it ends.
func only(name string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, fmt.Errorf("locking setups: %w", err)
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking setups: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.New("another setup runs on this machine: wait for its end, or restart the machine, and approve again")
		}
		return nil, fmt.Errorf("locking setups: %w", err)
	}
	return f, nil
}
