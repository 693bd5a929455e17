package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"muster.internal"
	"muster.internal/host"
	"muster.internal/linux"
	"muster.internal/resource"
)

// owned lists what the host answers for.
func owned(_ context.Context, e *env) error {
	dir := stateDir
	if err := e.flags("owned", func(f *flag.FlagSet) {
		f.StringVar(&dir, "state", stateDir, "the host's state directory")
	}); err != nil {
		return err
	}
	s, err := openStore(dir)
	if err != nil {
		return err
	}
	defer s.close()
	all := s.ledger.All()
	return e.print(all, func(out io.Writer) {
		if s.ledger.Lost != "" {
			fmt.Fprintf(out, "part of the record is lost: %s\n", s.ledger.Lost)
		}
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "RESOURCE\tORIGIN\tSINCE\tGENERATION\tORIGINAL")
		for _, o := range all {
			generation := fmt.Sprint(o.Generation)
			if o.Local {
				generation = "local"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", o.Ref, o.OriginText(), o.Since.Local().Format(time.DateTime), generation, o.Original)
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
	s, err := openStore(dir)
	if err != nil {
		return err
	}
	defer s.close()
	ref := resource.RefOf(args[0])
	o, known := s.ledger.Get(ref)
	switch {
	case !known:
		return fmt.Errorf("this host owns no %s; `muster-host owned` lists what it does", ref)
	case o.Origin != resource.OriginAdopted:
		return fmt.Errorf("%s was %s by this host, not adopted: there is no original of it", ref, o.Origin)
	}
	hands, err := linux.NewResources(s.dir.Originals())
	if err != nil {
		return err
	}
	line := host.Remove(o, hands, false)
	if line.Outcome == resource.OutcomeFailed {
		return fmt.Errorf("%s: %s", ref, line.Reason)
	}
	// It is the machine's own from here on, whatever is declared.
	o.Origin, o.Conflict, o.Resolved = resource.OriginFound, false, resource.ResolveKeep
	if err := errors.Join(hands.Sync(), s.ledger.Write(o), s.ledger.Sync()); err != nil {
		return err
	}
	return e.print(line, func(out io.Writer) { fmt.Fprintf(out, "%s is again as it was found, and no longer the host's\n", ref) })
}

// adopt says a person's word on a conflict, and applies what is declared.
func adopt(_ context.Context, e *env) error {
	dir, file := stateDir, ""
	switch {
	case len(e.args) > 0 && e.args[0] == "resolve":
		e.args = e.args[1:]
	case len(e.args) == 0 || !strings.HasPrefix(e.args[0], "-"):
		fmt.Fprintf(e.err, "usage: muster-host %s [flags]\n", lessons["adopt resolve"].call)
		return status(exitUsage)
	}
	args, err := e.flagsAndArgs("adopt resolve", "RESOURCE, and take or keep", 2, func(f *flag.FlagSet) {
		f.StringVar(&dir, "state", stateDir, "the host's state directory")
		f.StringVar(&file, "file", "", "the declaration it is in, when that was applied by hand")
	})
	if err != nil {
		return err
	}
	ref, word := resource.RefOf(args[0]), resource.Resolution(args[1])
	if word != resource.ResolveTake && word != resource.ResolveKeep {
		fmt.Fprintf(e.err, "muster-host adopt resolve: say take or keep, not %q\n", args[1])
		return status(exitUsage)
	}
	s, err := openStore(dir)
	if err != nil {
		return err
	}
	w, err := e.resolving(s, ref, file)
	if e := s.close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	w.Resolve = map[resource.Ref]resource.Resolution{ref: word}
	return e.applied(dir, w)
}

// resolving is the work in which a conflict is resolved.
func (e *env) resolving(s *store, ref resource.Ref, file string) (host.Work, error) {
	w := host.Work{Trigger: "local", Version: muster.Build, Local: file != ""}
	if o, known := s.ledger.Get(ref); !known || !o.Conflict && o.Resolved == "" {
		return w, fmt.Errorf("%s is in no conflict; `muster-host owned` lists what is", ref)
	}
	if file != "" {
		d, err := e.declaration(file)
		w.Declaration = &d
		if err == nil && d.Find(ref) == nil {
			err = fmt.Errorf("%s does not name %s", file, ref)
		}
		return w, err
	}
	h, err := s.held()
	if err != nil {
		return w, err
	}
	if w.Declaration = h.Declaration; w.Declaration == nil || w.Declaration.Find(ref) == nil {
		return w, fmt.Errorf("%s is in no declaration of the control plane; name the file it is in with --file", ref)
	}
	return w, nil
}
