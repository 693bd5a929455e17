package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	muster "muster.internal"
	"muster.internal/module"
)

func (a *app) moduleCmd() *cobra.Command {
	return group("module", "Modules: what can be placed on nodes",
		`A module is a named list of resources (files, directories, packages, services,
containers) with a rule that says where it goes: to each node, to each disk, as so
many replicas spread over nodes or a label, or to nodes that it names. Whatever
runs in the fleet is one, and the planner sees to it that it is there.

A version of a module never changes: what says something else is the next version.
At most one version is wanted at a time; placements that have another get it,
never so many at once that fewer than the module's minimum are available. All
versions are kept, and any can be wanted again. docs/fleet.md has examples.`,
		a.moduleAdd(), a.moduleLs(), a.moduleShow(), a.moduleWanted(), a.moduleRm())
}

func (a *app) moduleAdd() *cobra.Command {
	var unwanted, fromHere bool
	c := &cobra.Command{
		Use:   "add FILE",
		Short: "Add a version of a module, and have it placed",
		Long: `Add a version of a module from a file of JSON or YAML ("-": standard input), and
have the planner want it. Without a version in it, it becomes the next one; if the
newest version says the same, nothing changes.

  module: motd
  place: {each_node: true}
  resources:
  - file: {path: /etc/motd, template: "this is {{ node.hostname }}\n"}

"place" is one of each_node: true, each_disk: true, replicas: N (with spread: LABEL
and minimum: M) and pinned: [NODE-ID, ...]; where: {LABEL: VALUE} chooses nodes.
A module may not carry an action, nor a secret as it is: grant the node a secret
(muster node grant) and name it in a template of a "secret" file.

Some modules come with this program ("muster module ls --shipped"); with --shipped
FILE is the name of one. Change a copy of it for what differs at your site.

What it would change is said by "muster plan --what-if add-module FILE".`,
		Example: `  muster module add web.yaml
  muster module add --unwanted web.yaml   # only keep it
  muster module add --shipped chrony`,
		Args: names("FILE"),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			read := a.readModule
			if fromHere {
				read = readShipped
			}
			m, err := read(args[0])
			if err != nil {
				return err
			}
			v, err := f.AddModule(c.Context(), muster.NewModule{Module: m, Unwanted: unwanted})
			if err != nil {
				return err
			}
			return a.show(v, func(w io.Writer) {
				a.saidOfModule(w, v)
				if v.Wanted {
					fmt.Fprintf(a.stderr, "what comes of it: muster plan, muster placement ls --module %s\n", v.Name)
				}
			})
		}),
	}
	c.Flags().BoolVar(&fromHere, "shipped", false, "FILE is the name of a module that comes with this program")
	c.Flags().BoolVar(&unwanted, "unwanted", false, "only keep it: the planner goes on wanting what it wants")
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return []cobra.Completion{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
	}
	return c
}

func (a *app) saidOfModule(w io.Writer, v muster.ModuleVersion) {
	is := "is kept, and not wanted"
	if v.Wanted {
		is = "is wanted: " + said(v.Place)
	}
	fmt.Fprintf(w, "%s version %d %s\n", said(v.Name), v.Version, is)
}

// readModule reads and checks a module, before anybody is asked.
func (a *app) readModule(file string) (module.Module, error) {
	name, text, err := a.readInput(file, module.MaxBytes)
	if err != nil {
		return module.Module{}, err
	}
	return module.ParseDraft(name, text)
}

func (a *app) moduleLs() *cobra.Command {
	var fromHere bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "List modules",
		Long: `List modules, each in the version that is wanted, or its newest if none is. What
is not wanted has no placements, once those that it had have left.`,
		Example: `  muster module ls
  muster module ls --shipped   # what comes with this program`,
		Args: names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			if fromHere {
				return a.showShipped()
			}
			vs, err := f.Modules(c.Context())
			if err != nil {
				return err
			}
			return a.show(list(vs), func(w io.Writer) {
				if len(vs) == 0 {
					fmt.Fprintln(a.stderr, "there is no module yet: muster module add --help")
					return
				}
				a.drawModules(w, vs)
			})
		}),
	}
	c.Flags().BoolVar(&fromHere, "shipped", false, "those that come with this program, which can be added by name")
	return c
}

func (a *app) drawModules(w io.Writer, vs []muster.ModuleVersion) {
	rows := make([][]string, len(vs))
	for i, v := range vs {
		wanted := a.paint(dim, "no")
		if v.Wanted {
			wanted = a.paint(green, "yes")
		}
		rows[i] = []string{said(v.Name), fmt.Sprint(v.Version), wanted, said(v.Place), a.ago(&v.AddedAt), said(v.AddedBy)}
	}
	grid(w, []string{"MODULE", "VERSION", "WANTED", "PLACE", "ADDED", "BY"}, rows)
}

func (a *app) moduleShow() *cobra.Command {
	var version int64
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "Show a module's versions, and what one of them says",
		Long: `Show a module's versions, and what one of them says: the one that is wanted, or
the newest, or the one of --version. What is shown can be added again.`,
		Example: `  muster module show web
  muster module show web --version 3 -o json | jq .document > web-3.json`,
		Args:              names("NAME"),
		ValidArgsFunction: a.completeWith(moduleWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			vs, err := f.Module(c.Context(), args[0])
			if err != nil {
				return err
			}
			i := slices.IndexFunc(vs, func(v muster.ModuleVersion) bool { return v.Version == version })
			if version == 0 {
				i = max(0, slices.IndexFunc(vs, func(v muster.ModuleVersion) bool { return v.Wanted }))
			}
			if i < 0 || i >= len(vs) {
				return muster.Problemf(muster.CodeNotFound, "module %s has no version %d", args[0], version)
			}
			return a.show(vs[i], func(w io.Writer) {
				a.drawModules(w, vs)
				text, err := json.MarshalIndent(vs[i].Document, "", "  ")
				if err == nil {
					fmt.Fprintf(w, "\nversion %d:\n", vs[i].Version)
					for _, line := range strings.Split(string(text), "\n") {
						fmt.Fprintln(w, said(line))
					}
				}
			})
		}),
	}
	numberVar(c.Flags(), &version, "version", 0, 1, maxSeq, "of this version (default: the one that is wanted, else the newest)")
	return c
}

func (a *app) moduleWanted() *cobra.Command {
	return &cobra.Command{
		Use:   "wanted NAME VERSION",
		Short: "Have the planner want a version that is kept: a way back, or forward",
		Long: `Have the planner want a version of a module that is kept, and no other: the way
back from a version that was no good. What "muster module rm" took away comes back
so, too.`,
		Example:           `  muster module wanted web 3`,
		Args:              names("NAME", "VERSION"),
		ValidArgsFunction: a.completeWith(moduleWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			version := int64(0)
			if err := (number[int64]{&version, 1, maxSeq}).Set(args[1]); err != nil {
				return usagef("VERSION: %v", err)
			}
			v, err := f.WantModule(c.Context(), args[0], version)
			if err != nil {
				return err
			}
			return a.show(v, func(w io.Writer) { a.saidOfModule(w, v) })
		}),
	}
}

func (a *app) moduleRm() *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "Want a module no more: its placements leave",
		Long: `Want a module no more: all of its placements leave, and what their hosts made for
them is taken away. Its versions are kept, and "muster module wanted" brings it
back. What would leave is said by "muster plan --what-if remove-module NAME".`,
		Example:           `  muster module rm web`,
		Args:              names("NAME"),
		ValidArgsFunction: a.completeWith(moduleWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			if err := f.RemoveModule(c.Context(), args[0]); err != nil {
				return err
			}
			return a.show(map[string]string{"module": args[0]}, func(w io.Writer) {
				fmt.Fprintf(w, "%s is wanted no more: its placements leave\n", args[0])
				fmt.Fprintf(a.stderr, "how far that is: muster placement ls --module %s\n", args[0])
			})
		}),
	}
}

func moduleWords(ctx context.Context, f fleet) ([]string, error) {
	vs, err := f.Modules(ctx)
	words := make([]string, len(vs))
	for i, v := range vs {
		words[i] = v.Name + "\t" + said(v.Place)
	}
	return words, err
}
