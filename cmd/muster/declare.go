package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	muster "muster.internal"
	"muster.internal/resource"
)

func (a *app) nodeDeclare() *cobra.Command {
	var dry bool
	c := &cobra.Command{
		Use:   "declare NODE FILE",
		Short: "Tell a node what to be from now on",
		Long: `Tell a node what to be from now on: files, directories, packages, services and
containers, in order, in a file of JSON or YAML ("-": standard input). Its host
takes the newest declaration whenever it reaches the control plane, however long
it was away. What is declared no longer is taken back, if the host made it.

The difference to what stands is shown first; with --dry-run, that is all. What
is secret is compared and shown by its hash. Declaring what stands already
changes nothing. A node that is declared so is left alone by the planner until
"muster node hand-over"; one on which modules are placed is told by the blueprint,
and refuses. Actions, and files with a source, are refused: they come to a
machine with a bundle, or with a file and "muster-host apply".`,
		Example: `  muster node declare 8CX2P53 web.yaml --dry-run
  muster node declare 8CX2P53 web.yaml`,
		Args:              names("NODE", "FILE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			d, err := a.readDeclaration(args[1])
			if err != nil {
				return err
			}
			n, err := node(c.Context(), f, args[0])
			if err != nil {
				return err
			}
			was, err := f.Declaration(c.Context(), n.ID)
			if err != nil && !muster.IsCode(err, muster.CodeNotFound) {
				return err
			}
			changes := declarationChanges(was.Declaration.Redacted(), d.Redacted())
			if dry {
				return a.show(map[string]any{"node_id": n.ID, "generation": was.Generation, "changes": list(changes)}, func(w io.Writer) { a.drawDifference(w, changes) })
			}
			now, err := f.Declare(c.Context(), n.ID, d)
			if err != nil {
				return err
			}
			return a.show(now, func(w io.Writer) {
				if now.Generation == was.Generation {
					fmt.Fprintf(w, "%s (%s) is told this already, as generation %d\n", n.ID, dash(n.Hostname), now.Generation)
					return
				}
				a.drawDifference(w, changes)
				fmt.Fprintf(w, "%s (%s) is told generation %d\n", n.ID, dash(n.Hostname), now.Generation)
				fmt.Fprintf(a.stderr, "how it went: muster node report %s\n", n.ID)
			})
		}),
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "show what would change, and change nothing")
	return c
}

// readInput reads a file, or standard input when that is named "-", up to one
// byte more than may be in it, and says what errors shall call it.
func (a *app) readInput(file string, most int64) (name string, text []byte, err error) {
	if file == "-" {
		text, err = io.ReadAll(io.LimitReader(a.stdin, most+1))
		return "standard input", text, err
	}
	text, err = os.ReadFile(a.abs(file))
	return file, text, err
}

// readDeclaration reads and checks a declaration, before anybody is asked.
func (a *app) readDeclaration(file string) (resource.Declaration, error) {
	name, text, err := a.readInput(file, resource.MaxBytes)
	if err != nil {
		return resource.Declaration{}, err
	}
	d, err := resource.Parse(name, text)
	if err == nil {
		if err = errors.Join(d.CheckWhole(), d.CheckRemote()); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}
	return d, err
}

// A declarationChange is what becomes of one resource, or of what holds for all
// (an empty ref).
type declarationChange struct {
	Ref    resource.Ref          `json:"ref,omitempty"`
	Change string                `json:"change"` // added, removed, changed
	Fields []resource.Difference `json:"fields,omitempty"`
}

// declarationChanges compares two declarations, resource by resource, in the
// order of the new one; then what is gone.
func declarationChanges(was, is resource.Declaration) (all []declarationChange) {
	if whole := differences(whole(was), whole(is)); len(whole) > 0 {
		all = append(all, declarationChange{Change: "changed", Fields: whole})
	}
	for i := range is.Resources {
		r := &is.Resources[i]
		old := was.Find(r.Ref())
		if old == nil {
			all = append(all, declarationChange{Ref: r.Ref(), Change: "added", Fields: differences(nil, fieldsOf(r))})
		} else if d := differences(fieldsOf(old), fieldsOf(r)); len(d) > 0 {
			all = append(all, declarationChange{Ref: r.Ref(), Change: "changed", Fields: d})
		}
	}
	for i := range was.Resources {
		if r := was.Resources[i].Ref(); is.Find(r) == nil {
			all = append(all, declarationChange{Ref: r, Change: "removed"})
		}
	}
	if len(all) == 0 && !slices.Equal(refsOf(was), refsOf(is)) {
		all = append(all, declarationChange{Change: "changed", Fields: []resource.Difference{{Field: "order", Is: strings.Join(refsOf(was), "\n"), Want: strings.Join(refsOf(is), "\n")}}})
	}
	return all
}

func refsOf(d resource.Declaration) []string {
	all := make([]string, len(d.Resources))
	for i := range d.Resources {
		all[i] = string(d.Resources[i].Ref())
	}
	return all
}

// whole is what a declaration says beside its resources.
func whole(d resource.Declaration) map[string]string {
	m := map[string]string{}
	if d.Confirm != "" {
		m["confirm"] = d.Confirm
	}
	for name, v := range d.Values {
		m["values."+name] = v
	}
	return m
}

// fieldsOf are a resource's fields as JSON names them.
func fieldsOf(r *resource.Resource) map[string]string {
	text, err := json.Marshal(r)
	var tree map[string]any
	if err != nil || json.Unmarshal(text, &tree) != nil {
		return nil // cannot be: texts, numbers and lists
	}
	m := map[string]string{}
	flatten("", tree, m)
	return m
}

func flatten(at string, v any, m map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		for name, x := range v {
			flatten(strings.TrimPrefix(at+"."+name, "."), x, m)
		}
	case string:
		m[at] = v
	default:
		text, _ := json.Marshal(v) // it came from JSON
		m[at] = string(text)
	}
}

// differences are the fields that are not the same, by name.
func differences(was, is map[string]string) (all []resource.Difference) {
	names := sortedKeys(was)
	for _, name := range sortedKeys(is) {
		if _, there := was[name]; !there {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if was[name] != is[name] {
			all = append(all, resource.Difference{Field: name, Is: was[name], Want: is[name]})
		}
	}
	return all
}

// drawDifference draws a difference as people know it: a line that goes begins
// with a minus sign, one that comes with a plus sign.
func (a *app) drawDifference(w io.Writer, changes []declarationChange) {
	if len(changes) == 0 {
		fmt.Fprintln(w, "nothing changes")
		return
	}
	for _, c := range changes {
		switch c.Change {
		case "added":
			fmt.Fprintln(w, a.paint(green, "+ "+said(string(c.Ref))))
		case "removed":
			fmt.Fprintln(w, a.paint(red, "- "+said(string(c.Ref))))
		default:
			fmt.Fprintf(w, "  %s\n", first(said(string(c.Ref)), "the whole"))
		}
		for _, f := range c.Fields {
			a.drawLines(w, red, "-", f.Field, f.Is)
			a.drawLines(w, green, "+", f.Field, f.Want)
		}
	}
}

// drawLines draws one side of a field; a long text line by line.
func (a *app) drawLines(w io.Writer, c style, sign, field, text string) {
	if text == "" {
		return
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) == 1 {
		fmt.Fprintln(w, a.paint(c, fmt.Sprintf("%s   %s: %s", sign, said(field), said(lines[0]))))
		return
	}
	fmt.Fprintln(w, a.paint(c, fmt.Sprintf("%s   %s:", sign, said(field))))
	for _, l := range lines {
		fmt.Fprintln(w, a.paint(c, sign+"     "+said(l)))
	}
}

func (a *app) nodeDeclaration() *cobra.Command {
	return &cobra.Command{
		Use:   "declaration NODE",
		Short: "Show what a node is told to be",
		Long: `Show what a node is told to be, since when and by whom. In place of what is
secret stands its hash; a declaration that holds such hashes cannot be declared.`,
		Example:           `  muster node declaration 8CX2P53 -o json`,
		Args:              names("NODE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, node, func(c *cobra.Command, f fleet, n muster.Node) error {
			d, err := f.Declaration(c.Context(), n.ID)
			if err != nil {
				return err
			}
			return a.show(d, func(w io.Writer) {
				a.fields(w, "node", d.NodeID, "generation", fmt.Sprint(d.Generation), "declared", a.ago(&d.DeclaredAt), "by", said(d.DeclaredBy), "confirm", said(d.Declaration.Confirm))
				fmt.Fprintln(w)
				a.drawDifference(w, declarationChanges(resource.Declaration{}, d.Declaration))
			})
		}),
	}
}

func (a *app) nodeReport() *cobra.Command {
	var now bool
	c := &cobra.Command{
		Use:   "report NODE",
		Short: "Show how the last apply of a node went",
		Long: `Show what the host of a node said last of how its declaration was applied, one
resource a line: ok, changed (it is as declared now), kept (it is not, and may
not be touched without "adopt"), unknown, failed. What is ok is counted. With
--now it is asked to look at everything again first, and waited for.`,
		Example: `  muster node report 8CX2P53
  muster node report 8CX2P53 --now`,
		Args:              names("NODE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, node, func(c *cobra.Command, f fleet, n muster.Node) error {
			if now {
				if err := a.reportNow(c.Context(), f, n); err != nil {
					return err
				}
			}
			r, err := f.NodeReport(c.Context(), n.ID)
			if err != nil {
				return err
			}
			return a.show(r, func(w io.Writer) {
				a.fields(w, "node", r.NodeID, "generation", fmt.Sprint(r.Report.Generation), "outcome", said(string(r.Report.Outcome)),
					"reported", a.ago(&r.ReportedAt), "trigger", said(r.Report.Trigger), "version", said(r.Report.Version),
					"ok", fmt.Sprint(r.Report.Sum()[resource.OutcomeOK]))
				a.drawReport(w, r.Report)
				if r.Notable != nil && r.Report.Outcome == resource.OutcomeOK {
					fmt.Fprintf(w, "\nbefore that, %s:\n", a.ago(&r.Notable.Finished))
					a.drawReport(w, *r.Notable)
				}
			})
		}),
	}
	c.Flags().BoolVar(&now, "now", false, "have the host apply and report first, and wait for it")
	return c
}

func (a *app) nodeBriefing() *cobra.Command {
	return &cobra.Command{
		Use:   "briefing NODE",
		Short: "Show each resource of a node in one of four words",
		Long: `Show how the last apply of a node went, every resource in one of four words: ok
(it is as declared), kept (the machine's own stays, and differs), unknown,
failed. The outcome is the worst of them. It is what muster-host briefing shows
on the machine, and its JSON stays as it is.`,
		Example:           `  muster node briefing 8CX2P53`,
		Args:              names("NODE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, node, func(c *cobra.Command, f fleet, n muster.Node) error {
			b, err := f.NodeBriefing(c.Context(), n.ID)
			if err != nil {
				return err
			}
			return a.show(b, func(w io.Writer) { fmt.Fprint(w, safe(b).Text()) })
		}),
	}
}

// safe is a briefing without what could steer a terminal: a machine says it.
func safe(b resource.Briefing) resource.Briefing {
	b.Lines = slices.Clone(b.Lines)
	for i, l := range b.Lines {
		l.Ref, l.Outcome, l.Did, l.Reason = resource.Ref(said(string(l.Ref))), resource.Outcome(said(string(l.Outcome))), said(l.Did), said(l.Reason)
		l.Differences = slices.Clone(l.Differences)
		for j, d := range l.Differences {
			l.Differences[j] = resource.Difference{Field: said(d.Field), Is: said(d.Is), Want: said(d.Want)}
		}
		b.Lines[i] = l
	}
	return b
}

func (a *app) nodeResolve() *cobra.Command {
	return &cobra.Command{
		Use:   "resolve NODE RESOURCE take|keep",
		Short: "Settle an adopted resource that is not as declared",
		Long: `Settle an adopted resource that is not as declared. Until then the machine's own
stays. "take" makes it as declared; its original is kept on the machine, and
comes back when it is declared no longer. "keep" leaves it as it is and ends the
host's ownership. The word goes to the host as the next generation of its
declaration. The same can be said at the machine: muster-host adopt resolve.`,
		Example: `  muster node owned 8CX2P53
  muster node resolve 8CX2P53 file:/etc/chrony/chrony.conf take`,
		Args:              names("NODE", "RESOURCE", "take|keep"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			ref, word := resource.RefOf(args[1]), resource.Resolution(args[2])
			if word != resource.ResolveTake && word != resource.ResolveKeep {
				return usagef("say take or keep, not %q", args[2])
			}
			n, err := node(c.Context(), f, args[0])
			if err != nil {
				return err
			}
			r := muster.ConflictResolution{Ref: ref, Resolve: word}
			d, err := f.ResolveConflict(c.Context(), n.ID, r)
			if err != nil {
				return err
			}
			return a.show(d, func(w io.Writer) {
				fmt.Fprintf(w, "%s (%s) is told to %s %s, as generation %d\n", n.ID, dash(n.Hostname), r.Resolve, said(string(r.Ref)), d.Generation)
				fmt.Fprintf(a.stderr, "how it went: muster node briefing %s\n", n.ID)
			})
		}),
	}
}

func (a *app) drawReport(w io.Writer, r resource.Report) {
	var rows [][]string
	for _, l := range r.Lines {
		if l.Outcome == resource.OutcomeOK {
			continue
		}
		why := said(l.Reason)
		switch {
		case why != "":
		case l.Fought:
			why = "somebody else changes it back, again and again"
		case l.Drift:
			why = "it had been changed by somebody else"
		}
		rows = append(rows, []string{said(string(l.Ref)), said(string(l.Outcome)), dash(l.Did), dash(why)})
	}
	if len(rows) > 0 {
		fmt.Fprintln(w)
		grid(w, []string{"RESOURCE", "OUTCOME", "DID", "WHY"}, rows)
	}
}

func (a *app) nodeOwned() *cobra.Command {
	return &cobra.Command{
		Use:   "owned NODE",
		Short: "List what the host of a node answers for",
		Long: `List what the host of a node answers for, as it said last: what it made, what it
adopted, and what it found as declared. Nothing else on the machine is touched.`,
		Example:           `  muster node owned 8CX2P53`,
		Args:              names("NODE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, node, func(c *cobra.Command, f fleet, n muster.Node) error {
			o, err := f.NodeOwned(c.Context(), n.ID)
			if err != nil {
				return err
			}
			return a.show(o, func(w io.Writer) {
				if len(o.Owned) == 0 {
					fmt.Fprintf(a.stderr, "the host of %s answers for nothing\n", o.NodeID)
					return
				}
				rows := make([][]string, len(o.Owned))
				for i, x := range o.Owned {
					rows[i] = []string{said(string(x.Ref)), said(x.OriginText()), a.ago(&x.Since), fmt.Sprint(x.Generation), said(string(x.Removal())), dash(x.Original)}
					if x.Local { // made by a person with a file: no declaration is to miss it
						rows[i][3], rows[i][4] = "local", "stay"
					}
				}
				grid(w, []string{"RESOURCE", "ORIGIN", "SINCE", "GENERATION", "WHEN NO LONGER DECLARED", "ORIGINAL"}, rows)
			})
		}),
	}
}

func (a *app) nodeHealth() *cobra.Command {
	return &cobra.Command{
		Use:   "health NODE",
		Short: "Show what the host of a node sees of the placements there",
		Long: `Show what the host of a node sees of the placements there whose modules have a
health check. It looks on the machine itself, every ten seconds, and says what has
changed: one that was up is down once it was found so three times in a row.`,
		Example:           `  muster node health 8CX2P53`,
		Args:              names("NODE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, node, func(c *cobra.Command, f fleet, n muster.Node) error {
			h, err := f.NodeHealth(c.Context(), n.ID)
			if err != nil {
				return err
			}
			return a.show(h, func(w io.Writer) {
				if h.Unable != "" {
					fmt.Fprintf(a.stderr, "nothing is known of health on %s: %s\n", h.NodeID, h.Unable)
				}
				if len(h.Placements) == 0 {
					fmt.Fprintf(a.stderr, "the host of %s has said nothing of the health of placements\n", h.NodeID)
					return
				}
				rows := make([][]string, len(h.Placements))
				for i, p := range h.Placements {
					rows[i] = []string{said(p.ID), yesNo(p.Healthy), yesNo(p.CaughtUp), a.ago(&p.Since), dash(said(p.Reason))}
				}
				grid(w, []string{"PLACEMENT", "HEALTHY", "CAUGHT UP", "SINCE", "WHY NOT"}, rows)
			})
		}),
	}
}

func (a *app) nodeProfile() *cobra.Command {
	return &cobra.Command{
		Use:               "profile NODE",
		Short:             "Show what the host of a node says of its machine",
		Long:              "Show what the host of a node says of its machine, and the facts that templates\nof files can use.",
		Example:           `  muster node profile 8CX2P53`,
		Args:              names("NODE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, node, func(c *cobra.Command, f fleet, n muster.Node) error {
			p, err := f.NodeProfile(c.Context(), n.ID)
			if err != nil {
				return err
			}
			return a.show(p, func(w io.Writer) {
				a.fields(w, "node", p.NodeID, "said", a.ago(&p.ProfiledAt))
				var pairs []string
				for _, name := range sortedKeys(p.Facts) {
					pairs = append(pairs, said(name), said(p.Facts[name]))
				}
				a.fields(w, pairs...)
				if len(p.Profile.Profile) > 0 {
					fmt.Fprintln(a.stderr, "the whole of it: -o json")
				}
			})
		}),
	}
}

// linked says how a node's host is linked.
func (a *app) linked(l *muster.NodeLink) string {
	switch {
	case l == nil:
		return "-"
	case l.Linked:
		return a.paint(green, "linked")
	}
	return a.paint(red, "away "+span(max(0, a.now().Sub(l.LastLinked))))
}
