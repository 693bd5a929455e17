package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"

	"muster.internal"
	"muster.internal/host"
	"muster.internal/resource"
	"muster.internal/state"
)

// reconcile makes the machine as its control plane told it last, now, whether
// that can be reached or not. A machine that belongs to none is made as the
// bundle says that it carries: that is how the first control plane comes to be.
func reconcile(_ context.Context, e *env) error {
	dir, name, dryRun := stateDir, "", false
	if err := e.flags("reconcile", func(f *flag.FlagSet) {
		f.StringVar(&dir, "state", stateDir, "the host's state directory")
		f.StringVar(&name, "bundle", "", "on a machine that belongs to no control plane: what to raise one from, embedded or postgresql, or a file (default: the same as last time, else embedded)")
		f.BoolVar(&dryRun, "dry-run", false, "change nothing, and show what would be changed")
	}); err != nil {
		return err
	}
	s, err := openStore(dir)
	if err != nil {
		return err
	}
	h, err := s.held()
	lost := s.ledger.Lost
	file := ""
	if err == nil && h.Declaration == nil && h.CutOff == "" && lost == "" {
		file, err = s.bundle(name, dryRun)
	}
	if e := s.close(); err == nil {
		err = e
	}
	switch {
	case err != nil:
		return err
	case h.CutOff != "":
		return fmt.Errorf("this machine was cut off for good, so nothing is applied: %s", h.CutOff)
	case lost != "":
		return fmt.Errorf("the record of what this machine owns is not whole (%s), so nothing is applied; a running muster-host asks the control plane for what it knows of it", lost)
	case h.Declaration == nil && file == "":
		fmt.Fprintln(e.err, "muster-host: this machine is a node, and its control plane has not told it what to be: there is nothing to do. `muster-host apply FILE` applies a file")
		return nil
	case h.Declaration == nil:
		return e.raise(dir, file, dryRun)
	case name != "":
		return errors.New("a control plane has told this machine what to be, and a bundle is for a machine that belongs to none; `muster-host apply FILE` applies a file beside that")
	}
	return e.applied(dir, host.Work{Declaration: h.Declaration, Trigger: "local", Version: muster.Build, DryRun: dryRun})
}

// briefing shows how the last apply went, resource by resource.
func briefing(_ context.Context, e *env) error {
	dir := stateDir
	if err := e.flags("briefing", func(f *flag.FlagSet) {
		f.StringVar(&dir, "state", stateDir, "the host's state directory")
	}); err != nil {
		return err
	}
	d, err := state.Open(dir, lockWait)
	if err != nil {
		return err
	}
	var r resource.Report
	err = d.Load(reportRecord, &r)
	d.Close()
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("nothing was applied here yet")
	}
	if err != nil {
		return err
	}
	b := r.Briefing()
	if err := e.print(b, func(out io.Writer) { fmt.Fprint(out, b.Text()) }); err != nil {
		return err
	}
	return statusOf(b.Outcome)
}
