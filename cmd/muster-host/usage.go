package main

import (
	"flag"
	"fmt"
	"strings"
)

// A lesson is what a command's help says before its flags: how it is called, and
// what a person should know who calls it.
type lesson struct{ call, text string }

// appliedStatuses are of the commands that end as an apply does.
const appliedStatuses = `
Exit statuses: 0 all is as declared; 1 something failed; 4 nothing failed, and
something was kept as it is, or could not be told.
`

var lessons = map[string]lesson{
	"profile":   {"profile", "Shows what this machine's system is made of: what modules may need.\n"},
	"inventory": {"inventory", "Shows what this machine is: firmware, network cards, disks. It changes nothing.\n"},
	"survey":    {"survey", "Shows the disks of this machine and what is on them. It only reads.\n"},
	"ticket":    {"ticket", "Tells a workload on this machine whether the control plane sent whoever presents a\nticket, and who that is. The ticket comes on standard input.\n"},
	"register": {"register --url URL --ca-fingerprint FINGERPRINT", `Asks a control plane to let this machine in, and shows a code. An operator
approves it by that code (muster registration approve); the command waits for
it, and keeps the credential. Exit status 3: nobody approved it in time.
`},
	"run": {"run", `Lives as a node of the fleet. A service manager starts it. Without a credential
it waits for one, and does nothing else; with one it keeps this machine as its
control plane declared it last, whether that can be reached or not. Its log has a
line for each apply that changed something or failed. Exit status 6: another one
runs on this state directory already.
`},
	"apply": {"apply FILE", `Makes this machine as a declaration says, JSON or YAML ("-": standard input), by
hand and without any control plane. What the file does not name stays as it is.
What it makes is recorded as local, and kept until a declaration of the control
plane names it. It is safe to repeat, also after it was cut short.
` + appliedStatuses},
	"owned": {"owned", `Lists what this host answers for on this machine: since when, from which
generation, whether it made it, adopted it or found it as declared, and where
the original of an adopted file is. It touches nothing else.
`},
	"restore": {"restore RESOURCE", `Puts an adopted resource back as it was found, and ends the host's ownership:
from then on it is kept as it is, until a person decides otherwise. A path alone
names a file. muster-host owned lists what has an original.
`},
	"adopt resolve": {"adopt resolve RESOURCE take|keep", `What was adopted and is not as declared stays the machine's own until a person
decides: "take" makes it as declared (its original is kept, and muster-host
restore gives it back), "keep" leaves it as it is and ends the host's ownership.
` + appliedStatuses},
	"reconcile": {"reconcile", `Makes this machine as its control plane declared it last, now, whether that can
be reached or not. The service does the same every ten minutes by itself.

On a machine that belongs to no control plane it raises one, from the bundle
that the package muster-bundle carries. It is safe to repeat, also after it was
cut short.
` + appliedStatuses},
	"briefing": {"briefing", `Shows how the last apply went, every resource in one of four words: ok (it is as
declared), kept (the machine's own stays, and differs), unknown, failed. The
outcome is the worst of them.
` + appliedStatuses},
}

// teach makes -h say what a command is for.
func teach(name string, f *flag.FlagSet) {
	l, is := lessons[name]
	if !is {
		return
	}
	f.Usage = func() {
		fmt.Fprintf(f.Output(), "usage: muster-host %s [flags]\n\n%s\nflags:\n", l.call, l.text)
		printFlags(f)
	}
}

// printFlags lists flags with two dashes, as every text here writes them.
func printFlags(f *flag.FlagSet) {
	out := f.Output()
	var list strings.Builder
	f.SetOutput(&list)
	f.PrintDefaults()
	f.SetOutput(out)
	fmt.Fprint(out, strings.TrimPrefix(strings.ReplaceAll("\n"+list.String(), "\n  -", "\n  --"), "\n"))
}
