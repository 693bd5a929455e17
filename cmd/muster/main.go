// Command muster is the operator's command line. It owns flags, environment,
// signals and exit codes, and nothing else: what it asks for is answered by a
// muster.Fleet, and every rule is enforced by the control plane.
//
// It must never print a secret that it was not asked to print, and it must
// never send a credential to an address that the credential was not made for.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, osEnv(), os.Args[1:])
	stop()
	os.Exit(code)
}
