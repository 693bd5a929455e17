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
// that can be reached or not.
func reconcile(_ context.Context, e *env) error {
	dir, dryRun := stateDir, false
	if err := e.flags("reconcile", func(f *flag.FlagSet) {
		f.StringVar(&dir, "state", stateDir, "the host's state directory")
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
	if e := s.close(); err == nil {
		err = e
	}
	switch {
	case err != nil:
		return err
	case h.CutOff != "":
		return fmt.Errorf("this machine was cut off for good, so nothing is applied: %s", h.CutOff)
	case h.Declaration == nil:
		return errors.New("no control plane has told this machine what to be; `muster-host apply FILE` applies a file")
	case lost != "":
		return fmt.Errorf("the record of what this machine owns is not whole (%s), so nothing is applied; a running muster-host asks the control plane for what it knows of it", lost)
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
