package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// app is one invocation: its outside and its global flags.
type app struct {
	env
	urlFlag, keyFile, caFlag string
	output                   string // table or json
	// lastCommand is the path of the command that was meant, for hints.
	lastCommand string
}

// run parses, does and reports; it is the program, with its outside as an
// argument.
func run(ctx context.Context, e env, args []string) int {
	a := &app{env: e}
	out := &written{w: e.stdout}
	a.stdout = out
	root := a.root()
	root.SetArgs(args)
	started := false
	root.PersistentPreRunE = func(c *cobra.Command, args []string) error {
		a.lastCommand = c.CommandPath()
		if err := filled(c, args); err != nil {
			return err
		}
		if a.output != "table" && a.output != "json" {
			return usagef("--output is table or json, not %q", a.output)
		}
		started = true
		return nil
	}
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil && out.err != nil { // what was asked for has not arrived
		err = fmt.Errorf("the result could not be written: %w", out.err)
	}
	if err == nil {
		return exitOK
	}
	if !started { // cobra's own complaints: flags, arguments, unknown commands
		a.lastCommand = cmd.CommandPath()
		if !errors.As(err, new(*usageError)) {
			err = usagef("%s", strings.TrimSpace(err.Error()))
		}
	}
	a.complain(err)
	return exitCode(err)
}

const rootLong = `Muster carries computers through their whole life in a fleet: seen, enrolled,
approved, set up, serving, removed. This is the operator's command line.

The control plane is named by MUSTER_URL (https://HOST:PORT), the credential by
MUSTER_KEY (an API key or an operator's token), its certificate authority by
MUSTER_CA (a PEM file). --url, --key-file and --ca win over them; what
"muster login" keeps comes after, and last a control plane of your own on this
machine, to which it logs in by itself until the first password is changed. No
credential is ever an argument, because everybody on the host can read those.

Wherever a machine's UUID is asked for, its serial number, its host name, one
of its MAC addresses or the first characters of its UUID will do, as long as
they name one machine only.

Results go to standard output, everything else to standard error. --output json
prints what the API holds, for programs, and an error as one JSON object on
standard error. Colours are for terminals alone, and NO_COLOR turns them off.

Exit codes:
  0  done
  1  refused or failed
  2  wrong use: flags, arguments
  3  the control plane cannot be reached
  4  not found
  5  not logged in, or not permitted
  6  conflict: not in the state that this needs (the message says what is allowed)`

// root builds the whole tree. There are no package variables: every
// invocation, and every test, has its own.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "muster",
		Short: "Carry computers through their whole life in a fleet",
		Long:  rootLong,
		Example: `  # a whole fleet on this laptop, with six simulated machines
  muster dev --machines 6 --dir ./dev
  . ./dev/dev.env

  # who waits for a decision, and what would be built there
  muster registration ls --state awaiting_setup
  muster registration plan-setup 8CX2P53`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(wrongFlag)
	holdsOthers(root)
	pf := root.PersistentFlags()
	pf.StringVar(&a.urlFlag, "url", "", "control plane, https://HOST:PORT (MUSTER_URL)")
	pf.StringVar(&a.keyFile, "key-file", "", "file that holds an API key or operator token, - for standard input (MUSTER_KEY holds the key itself)")
	pf.StringVar(&a.caFlag, "ca", "", "PEM file of the control plane's certificate authority (MUSTER_CA)")
	pf.StringVarP(&a.output, "output", "o", "table", "table for eyes, json for programs")
	a.complete(root, "output", "table", "json")

	about := func(id, title string, cs ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, c := range cs {
			c.GroupID = id
		}
		root.AddCommand(cs...)
	}
	about("machines", "Machines and their lives:", a.registrationCmd(), a.nodeCmd(), a.diskCmd(), a.firmwareCmd(), a.claimCmd(), a.machineCmd())
	about("fleet", "What the fleet shall be:", a.moduleCmd(), a.blueprintCmd(), a.placementCmd(), a.planCmd(), a.explainCmd())
	about("boot", "What machines boot:", a.bootCmd(), a.policyCmd(), a.imageCmd(), a.booterCmd(), a.layoutCmd())
	about("doors", "Who gets in:", a.loginCmd(), a.logoutCmd(), a.operatorCmd(), a.keyCmd(), a.windowCmd(), a.tokenCmd(), a.providerCmd())
	about("history", "What happens, and what happened:", a.eventsCmd(), a.auditCmd())
	about("try", "To try it out:", a.devCmd(), a.labCmd())
	about("self", "This program:", a.versionCmd())
	root.SetHelpCommandGroupID("self")
	root.SetCompletionCommandGroupID("self")
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	return root
}

// group is a command that only holds others.
func group(use, short, long string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Long: long}
	holdsOthers(c)
	for _, s := range subs { // what other programs call the same
		switch s.Name() {
		case "ls":
			s.SuggestFor = []string{"list"}
		case "rm", "revoke":
			s.SuggestFor = []string{"delete", "remove"}
		}
	}
	c.AddCommand(subs...)
	return c
}

// holdsOthers lets a command do nothing but show what it holds, and name those
// whose names are near to what was typed.
func holdsOthers(c *cobra.Command) {
	c.SuggestionsMinimumDistance = 2
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		if s := slices.Compact(c.SuggestionsFor(args[0])); len(s) > 0 {
			return usagef("unknown command %q for %q: did you mean %s?", args[0], c.CommandPath(), strings.Join(s, " or "))
		}
		return usagef("unknown command %q for %q", args[0], c.CommandPath())
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
}

// names checks the number of arguments and says which one is missing.
func names(want ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < len(want):
			return usagef("%s: missing %s", c.CommandPath(), strings.Join(want[len(args):], " "))
		case len(args) > len(want):
			return usagef("%s: unexpected %q", c.CommandPath(), args[len(want)])
		}
		return nil
	}
}

// complete offers fixed values for a flag.
func (a *app) complete(c *cobra.Command, flag string, values ...string) {
	must(c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
}

// must guards calls that can only fail by a mistake in this program.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("muster: %v", err))
	}
}
