// Command muster-host is the root process of every machine of a fleet. In the
// initrd of a platform image it is init, too.
//
// It decides nothing that package host does not, and must never run what comes
// over the link, nor import the control plane's side, SQL or HTML.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"muster.internal"
	"muster.internal/host"
)

// Exit statuses, beside 0 and those of a setup.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNotApproved = 3 // register: nobody approved the code in time
	exitIncomplete  = 4 // apply: something was kept as it is, or could not be told
	exitLived       = 6 // run: another one runs on this state directory
	// run --boot: the first process is to go on in the node's root file system.
	exitRootReady status = 5
)

const usage = `usage: muster-host COMMAND [flags]

  profile    what this machine's system is made of
  inventory  what this machine is: firmware, NICs, disks
  survey     its disks and what is on them, read-only
  version    of this program
  register   ask a control plane to let this machine in, by a code that is shown
  enrol      let this machine in by an enrolment token
  run        live as a node of the fleet (started by init or a service manager)
  ticket     check a ticket that somebody presents to this machine
` + systemUsage + `
muster-host COMMAND -h says more of a command.
`

func main() {
	if os.Getpid() == 1 || filepath.Base(os.Args[0]) == "init" {
		fatal(initrd())
	}
	if os.Getenv("PATH") == "" { // a script from the bus has only what it was sent
		os.Setenv("PATH", toolPath)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// commands take their own flags; each returns its error or an exit status.
var commands = map[string]func(ctx context.Context, e *env) error{
	"profile":   profile,
	"inventory": facts,
	"survey":    survey,
	"version":   version,
	"register":  register,
	"enrol":     enrol,
	"run":       run,
	"ticket":    checkTicket,
}

// An env is what a command works with.
type env struct {
	args     []string
	in       io.Reader
	out, err io.Writer
	machine  system
	output   string // json or text
}

// status is an error that has said what it had to, and ends with a status.
type status int

func (s status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// An exit is an error that ends the program with a status of its own.
type exit struct {
	status int
	error
}

func (e exit) Unwrap() error { return e.error }

func command(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	return commandOn(ctx, newMachine, args, in, out, errOut)
}

// commandOn runs a command on the machine that make makes.
func commandOn(ctx context.Context, make func(*slog.Logger) system, args []string, in io.Reader, out, errOut io.Writer) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		fmt.Fprint(out, usage)
		return 0
	}
	do := commands[args[0]]
	if do == nil {
		do = systemCommands[args[0]]
	}
	if do == nil {
		fmt.Fprintf(errOut, "muster-host: there is no command %q%s; `muster-host help` lists what there is\n", args[0], meant(args[0]))
		return exitUsage
	}
	log := slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{Level: slog.LevelInfo}))
	err := do(ctx, &env{args: args[1:], in: in, out: out, err: errOut, machine: make(log)})
	var s status
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &s):
		return int(s)
	case errors.Is(err, host.ErrNotApproved):
		fmt.Fprintf(errOut, "muster-host: %v\n", err)
		return exitNotApproved
	}
	fmt.Fprintf(errOut, "muster-host: %v\n", err)
	if x := (exit{}); errors.As(err, &x) {
		return x.status
	}
	return exitFailed
}

// meant asks whether a word is a command cut short, or with more to it.
func meant(word string) string {
	for _, name := range append(slices.Sorted(maps.Keys(commands)), slices.Sorted(maps.Keys(systemCommands))...) {
		if strings.HasPrefix(name, word) || strings.HasPrefix(word, name) {
			return ": did you mean " + name + "?"
		}
	}
	return ""
}

// flags parses a command's flags; more adds to the usual one.
func (e *env) flags(name string, more func(*flag.FlagSet)) error {
	_, err := e.flagsAndArgs(name, "", 0, more)
	return err
}

// parse reads flags that stand before or behind the arguments.
func parse(f *flag.FlagSet, in []string) (args []string, err error) {
	for {
		if err := f.Parse(in); err != nil {
			return nil, err
		}
		if f.NArg() == 0 {
			return args, nil
		}
		args, in = append(args, f.Arg(0)), f.Args()[1:]
	}
}

// flagsAndArgs parses the flags of a command that takes that many arguments.
func (e *env) flagsAndArgs(name, what string, count int, more func(*flag.FlagSet)) ([]string, error) {
	f := flag.NewFlagSet("muster-host "+name, flag.ContinueOnError)
	f.SetOutput(e.err)
	f.StringVar(&e.output, "output", "text", "text or json")
	teach(name, f)
	if more != nil {
		more(f)
	}
	args, err := parse(f, e.args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return nil, err
	case err != nil:
		return nil, status(exitUsage) // it was said already
	case len(args) > count:
		fmt.Fprintf(e.err, "muster-host %s: what is %q?\n", name, args[count])
		return nil, status(exitUsage)
	case len(args) < count:
		fmt.Fprintf(e.err, "muster-host %s: which %s?\n", name, what)
		return nil, status(exitUsage)
	case e.output != "text" && e.output != "json":
		fmt.Fprintf(e.err, "muster-host %s: --output is text or json, not %q\n", name, e.output)
		return nil, status(exitUsage)
	}
	return args, nil
}

// print writes v as JSON, or by text.
func (e *env) print(v any, text func(io.Writer)) error {
	if e.output == "text" {
		text(e.out)
		return nil
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = e.out.Write(append(b, '\n'))
	return err
}

// say tells a person at the screen what happens.
func (e *env) say(format string, args ...any) {
	fmt.Fprintf(e.out, "muster-host: "+format+"\n", args...)
}

func fatal(err error) {
	fmt.Fprintf(os.Stderr, "muster-host: %v\n", err)
	os.Exit(exitFailed)
}

func version(_ context.Context, e *env) error {
	if err := e.flags("version", nil); err != nil {
		return err
	}
	v := muster.Version{Version: muster.Build, Capability: muster.Capability}
	return e.print(v, func(w io.Writer) { fmt.Fprintf(w, "muster-host %s (capability %d)\n", v.Version, v.Capability) })
}
