// Command muster-booter is the boot server of one network segment: DHCP, TFTP,
// HTTP and the boot bus. It owns flags, signals, privileges and exit codes, and
// nothing else; package booter does the work.
//
// Started as root with --user it binds its sockets, then lives on as that user
// with no capability at all. It must never print a key or a password.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	c := command(os.Stderr)
	begun := false
	c.PreRun = func(*cobra.Command, []string) { begun = true } // flags and arguments were right
	err := c.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "muster-booter:", err)
		if !begun {
			fmt.Fprintln(os.Stderr, "muster-booter: hint: muster-booter --help")
		}
		os.Exit(1)
	}
}
