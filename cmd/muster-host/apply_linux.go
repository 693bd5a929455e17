package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rogpeppe/go-internal/diff"

	"muster.internal"
	"muster.internal/host"
	"muster.internal/linux"
	"muster.internal/resource"
	"muster.internal/state"
)

const (
	lockWait  = 30 * time.Second // for another muster-host on this machine
	showBytes = 256 << 10        // of a file in a diff
	garbage   = 40               // percent: an apply is short, and a big declaration twice in memory is not
)

// applyFile makes the machine as a file says, beside what it was told by its
// control plane.
func applyFile(_ context.Context, e *env) error {
	dir, dryRun := stateDir, false
	args, err := e.flagsAndArgs("apply", "FILE", 1, func(f *flag.FlagSet) {
		f.StringVar(&dir, "state", stateDir, "the host's state directory")
		f.BoolVar(&dryRun, "dry-run", false, "change nothing, and show what would be changed")
	})
	if err != nil {
		return err
	}
	text, err := e.read(args[0])
	if err != nil {
		return err
	}
	d, err := resource.Parse(args[0], text)
	if err != nil {
		return err
	}
	if d.Confirm != "" {
		return fmt.Errorf("%s: confirm: only what comes from a control plane can be confirmed by it", args[0])
	}
	w := host.Work{Declaration: &d, Trigger: "local", Version: muster.Build, Local: true, DryRun: dryRun}
	return e.applied(dir, w)
}

// read reads a file, or standard input for "-".
func (e *env) read(name string) ([]byte, error) {
	in := e.in
	var b bytes.Buffer
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if i, err := f.Stat(); err == nil && i.Size() <= resource.MaxBytes {
			b.Grow(int(i.Size()) + bytes.MinRead) // it is not kept twice, to grow
		}
		in = f
	}
	_, err := b.ReadFrom(io.LimitReader(in, resource.MaxBytes+1))
	return b.Bytes(), err
}

// applied does the work and prints its report; the worst line is the exit
// status.
func (e *env) applied(dir string, w host.Work) error {
	defer debug.SetGCPercent(debug.SetGCPercent(garbage))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one thing after the other: more would only wake each other
	d, err := state.Open(dir, lockWait)
	if err != nil {
		return err
	}
	defer d.Close()
	l, err := d.Ledger()
	if err != nil {
		return err
	}
	hands, err := linux.NewResources(d.Originals())
	if err != nil {
		return err
	}
	w.Names = e.names(w.Declaration)
	r, err := host.Apply(w, hands, l)
	if e := l.Close(); err == nil {
		err = e
	}
	if e := e.print(r, func(out io.Writer) { printReport(out, r, w) }); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return statusOf(r.Outcome)
}

// statusOf is the exit status of an outcome.
func statusOf(o resource.Outcome) error {
	switch o {
	case resource.OutcomeFailed:
		return status(exitFailed)
	case resource.OutcomeKept, resource.OutcomeUnknown:
		return status(exitIncomplete)
	}
	return nil
}

// names are this node's facts and the declaration's values, for templates; they
// are not gathered when there is none.
func (e *env) names(d *resource.Declaration) map[string]string {
	if !slices.ContainsFunc(d.Resources, func(r resource.Resource) bool { return r.File != nil && r.File.Template != "" }) {
		return nil
	}
	p := e.machine.Profile()
	names := map[string]string{"arch": p.Arch, "firmware": p.Firmware, "kernel": p.Kernel, "os": p.OS, "os_version": p.OSVersion, "hostname": "", "node_id": "", "server_uuid": ""}
	if h, err := os.Hostname(); err == nil {
		names["hostname"] = h
	}
	if f, err := e.machine.Facts(); err == nil {
		names["server_uuid"] = f.UUID
	}
	maps.Copy(names, d.Values)
	return names
}

// printReport shows every line that is not simply ok, then the sum.
func printReport(out io.Writer, r resource.Report, w host.Work) {
	for _, l := range r.Lines {
		if l.Outcome == resource.OutcomeOK && l.Did == "" {
			continue
		}
		fmt.Fprintf(out, "%-8s %s", l.Outcome, l.Ref)
		if l.Did != "" {
			fmt.Fprintf(out, "  %s", l.Did)
		}
		if l.Reason != "" {
			fmt.Fprintf(out, ": %s", l.Reason)
		}
		fmt.Fprintln(out)
		if w.DryRun || l.Outcome == resource.OutcomeKept {
			printDifferences(out, l, w)
		}
	}
	sum := r.Sum()
	var words []string
	for _, o := range []resource.Outcome{resource.OutcomeOK, resource.OutcomeChanged, resource.OutcomeKept, resource.OutcomeUnknown, resource.OutcomeFailed} {
		if n := sum[o]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, o))
		}
	}
	if len(words) == 0 {
		words = []string{"nothing is declared"}
	}
	what := "outcome"
	if w.DryRun {
		what = "would be"
	}
	fmt.Fprintf(out, "%s: %s (%s)\n", what, r.Outcome, strings.Join(words, ", "))
}

// printDifferences shows a content as a diff and all else as is and want.
func printDifferences(out io.Writer, l resource.Line, w host.Work) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, d := range l.Differences {
		if d.Field == resource.FieldContent {
			if text, shown := contentDiff(l.Ref, w); shown {
				t.Flush()
				out.Write(indent(text))
				continue
			}
		}
		is := d.Is
		if l.Did == "created" {
			continue // nothing is there, so all of it differs
		}
		if is == "" {
			is = "-"
		}
		fmt.Fprintf(t, "    %s\t%s\t→ %s\n", d.Field, is, d.Want)
	}
	t.Flush()
}

func indent(text []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(text) {
		b.WriteString("    ")
		b.Write(line)
	}
	return b.Bytes()
}

// contentDiff compares a file with its declared content; what is secret, long
// or no text is shown by its hash alone.
func contentDiff(ref resource.Ref, w host.Work) ([]byte, bool) {
	r := w.Declaration.Find(ref)
	if r == nil || r.File == nil || r.Hides() {
		return nil, false
	}
	want, err := r.File.Text(w.Names)
	if err != nil || len(want) > showBytes {
		return nil, false
	}
	is, err := os.ReadFile(r.File.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || len(is) > showBytes || bytes.IndexByte(is, 0) >= 0 {
		return nil, false
	}
	_, text, _ := bytes.Cut(diff.Diff(r.File.Path, is, r.File.Path+" (declared)", []byte(want)), []byte("\n")) // the first line names both again
	return text, true
}

// owned lists what the host answers for.
func owned(_ context.Context, e *env) error {
	dir := stateDir
	if err := e.flags("owned", func(f *flag.FlagSet) {
		f.StringVar(&dir, "state", stateDir, "the host's state directory")
	}); err != nil {
		return err
	}
	d, err := state.Open(dir, lockWait)
	if err != nil {
		return err
	}
	defer d.Close()
	l, err := d.Ledger()
	if err != nil {
		return err
	}
	defer l.Close()
	all := l.All()
	return e.print(all, func(out io.Writer) {
		if l.Lost != "" {
			fmt.Fprintf(out, "part of the record is lost: %s\n", l.Lost)
		}
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "RESOURCE\tORIGIN\tSINCE\tGENERATION\tORIGINAL")
		for _, o := range all {
			origin := string(o.Origin)
			switch {
			case o.Begun:
				origin += ", not finished"
			case o.Conflict:
				origin += ", in conflict"
			}
			generation := fmt.Sprint(o.Generation)
			if o.Local {
				generation = "local"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", o.Ref, origin, o.Since.Local().Format(time.DateTime), generation, o.Original)
		}
		t.Flush()
	})
}

// restore gives an adopted original back and ends the host's ownership of it.
func restore(_ context.Context, e *env) error {
	dir := stateDir
	args, err := e.flagsAndArgs("restore", "RESOURCE", 1, func(f *flag.FlagSet) {
		f.StringVar(&dir, "state", stateDir, "the host's state directory")
	})
	if err != nil {
		return err
	}
	d, err := state.Open(dir, lockWait)
	if err != nil {
		return err
	}
	defer d.Close()
	l, err := d.Ledger()
	if err != nil {
		return err
	}
	defer l.Close()
	ref := resource.Ref(args[0])
	if strings.HasPrefix(args[0], "/") {
		ref = resource.NewRef(resource.KindFile, args[0])
	}
	o, known := l.Get(ref)
	switch {
	case !known:
		return fmt.Errorf("this host owns no %s; `muster-host owned` lists what it does", ref)
	case o.Origin != resource.OriginAdopted:
		return fmt.Errorf("%s was %s by this host, not adopted: there is no original of it", ref, o.Origin)
	}
	hands, err := linux.NewResources(d.Originals())
	if err != nil {
		return err
	}
	line := host.Remove(o, hands, false)
	if line.Outcome == resource.OutcomeFailed {
		return fmt.Errorf("%s: %s", ref, line.Reason)
	}
	// It is the machine's own from here on, whatever is declared.
	o.Origin, o.Conflict = resource.OriginFound, false
	if err := l.Write(o); err != nil {
		return err
	}
	return e.print(line, func(out io.Writer) { fmt.Fprintf(out, "%s is again as it was found, and no longer the host's\n", ref) })
}
