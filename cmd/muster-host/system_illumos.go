package main

import (
	"context"
	"fmt"
	"log/slog"

	"muster.internal/host"
	"muster.internal/illumos"
	"muster.internal/setup"
)

// toolPath is where this system keeps its tools.
const toolPath = illumos.Path

// systemUsage are the commands that only this system has.
const systemUsage = `  smf        print the manifest of the service that runs muster-host here
  setup      refuses: an illumos machine is not set up by this program
`

var systemCommands = map[string]func(context.Context, *env) error{"setup": doSetup, "smf": smf}

func newMachine(log *slog.Logger) system { return illumos.New(log) }

// node is the life of a node; there is no store on this system.
func node(ctx context.Context, e *env, _ string, c setup.Credential, _ bool) error {
	return live(ctx, e, c, false)
}

// anew has nothing to forget here.
func anew(_ string, _ func(string), store func() error) error { return store() }

// smf prints the service's manifest, for the place where this system looks for
// those that are kept over a restart.
func smf(_ context.Context, e *env) error {
	if err := e.flags("smf", nil); err != nil {
		return err
	}
	_, err := e.out.Write(illumos.Manifest)
	return err
}

// doSetup answers an order as one that failed, so that whoever sent it learns
// why at once, and touches nothing.
func doSetup(_ context.Context, e *env) error {
	r := host.Failed(illumos.ErrSetup)
	fmt.Fprintln(e.out, r.Line)
	return status(r.Exit)
}

// started is for a machine whose first process this is, which no illumos has.
func started(context.Context, *env) error { return illumos.ErrBoot }

func initrd() error { return illumos.ErrBoot }
