package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"muster.internal/host"
	"muster.internal/setup"
)

// keyFile holds this boot's private key, in memory, for the setup that the
// announcing process starts.
const keyFile = "key"

// doSetup does what the environment describes. The last line on standard output
// is the outcome; the exit status is for the agent, which restarts the machine.
func doSetup(_ context.Context, e *env) error {
	r := trySetup(e)
	fmt.Fprintln(e.out, r.Line)
	return status(r.Exit)
}

func trySetup(e *env) host.Result {
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
	if _, err := e.machine.Facts(); err != nil {
		return host.Failed(err)
	}
	if e.machine.Key, err = os.ReadFile(filepath.Join(e.machine.Run, keyFile)); err != nil {
		return host.Failed(fmt.Errorf("this boot's key: %w", err))
	}
	r := host.Setup(o, e.machine, func(p host.Progress) { e.say("setup %d/%d %s", p.Step, p.Of, p.Text) })
	if r.OK {
		e.say("setup is complete; the machine restarts")
	}
	return r
}
