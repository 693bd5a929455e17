package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/rogpeppe/go-internal/diff"
	"golang.org/x/sys/unix"

	"muster.internal"
	"muster.internal/credential"
	"muster.internal/host"
	"muster.internal/linux"
	"muster.internal/resource"
)

const showBytes = 256 << 10 // of a file in a diff

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
	d, err := e.declaration(args[0])
	if err != nil {
		return err
	}
	w := host.Work{Declaration: &d, Trigger: "local", Version: muster.Build, Local: true, DryRun: dryRun}
	return e.applied(dir, w)
}

// declaration reads one from a file, for this machine alone.
func (e *env) declaration(file string) (resource.Declaration, error) {
	text, err := e.read(file)
	if err != nil {
		return resource.Declaration{}, err
	}
	d, err := resource.Parse(file, text)
	if err == nil && d.Confirm != "" {
		err = fmt.Errorf("%s: confirm: only what comes from a control plane can be confirmed by it", file)
	}
	if err == nil {
		err = readSources(&d, file)
	}
	return d, err
}

// readSources gives files with a source the content that lies beside the
// declaration.
func readSources(d *resource.Declaration, file string) error {
	for _, r := range d.Resources {
		if r.File == nil || r.File.Source == "" {
			continue
		}
		if file == "-" {
			return fmt.Errorf("%s: source: nothing is beside standard input; name the declaration's file", r.Ref())
		}
		text := new(strings.Builder)
		if err := copyFile(text, filepath.Join(filepath.Dir(file), r.File.Source)); err != nil {
			return fmt.Errorf("%s: %s: source: %w", file, r.Ref(), err)
		}
		r.File.Content, r.File.Source = text.String(), ""
	}
	return nil
}

// copyFile reads a file whole, and once.
func copyFile(to *strings.Builder, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	i, err := f.Stat()
	if err != nil {
		return err
	}
	to.Grow(int(i.Size()))
	_, err = io.Copy(to, f)
	return err
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
	defer thrift(w.Declaration)()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one thing after the other: more would only wake each other
	s, err := openStore(dir)
	if err != nil {
		return err
	}
	w.Names = e.names(dir, w.Declaration)
	r, err := s.apply(e, w)
	if e := s.close(); err == nil {
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
func (e *env) names(dir string, d *resource.Declaration) map[string]string {
	if !slices.ContainsFunc(d.Resources, func(r resource.Resource) bool { return r.File != nil && r.File.Template != "" }) {
		return nil
	}
	names := e.nodeFacts(dir)
	maps.Copy(names, d.Values)
	return names
}

// nodeFacts are the names that every template can use; one that cannot be told
// is empty.
func (e *env) nodeFacts(dir string) map[string]string {
	p := e.machine.Profile()
	names := map[string]string{"address": linux.Address(), "arch": p.Arch, "firmware": p.Firmware, "kernel": p.Kernel, "os": p.OS, "os_version": p.OSVersion, "hostname": "", "node_id": "", "server_uuid": ""}
	if h, err := os.Hostname(); err == nil {
		names["hostname"] = h
	}
	if f, err := e.machine.Facts(); err == nil {
		names["server_uuid"] = f.UUID
	}
	if id, err := credential.LoadIdentity(identityFile(dir)); err == nil {
		names["node_id"] = id.NodeID()
	}
	return names
}

// printReport shows every line that is not simply ok, then the sum.
func printReport(out io.Writer, r resource.Report, w host.Work) {
	for _, l := range r.Lines {
		if l.Outcome == resource.OutcomeOK && l.Did == "" {
			continue
		}
		fmt.Fprint(out, l.Text())
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
	is, err := readToShow(r.File.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || len(is) > showBytes || bytes.IndexByte(is, 0) >= 0 {
		return nil, false
	}
	_, text, _ := bytes.Cut(diff.Diff(r.File.Path, is, r.File.Path+" (declared)", []byte(want)), []byte("\n")) // the first line names both again
	return text, true
}

// readToShow reads a regular file, and of a long one more than is shown. Whatever
// else is there may have no end, or wait for ever.
func readToShow(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if i, err := f.Stat(); err != nil || !i.Mode().IsRegular() {
		return nil, cmp.Or(err, fs.ErrInvalid)
	}
	return io.ReadAll(io.LimitReader(f, showBytes+1))
}
