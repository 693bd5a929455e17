package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	muster "muster.internal"
	"muster.internal/module"
)

// A target is one of the things that a verb is said of.
type target struct {
	id, name string
	is       map[string]string // what a selector can ask for
}

// A finder lists everything that a verb can be said of.
type finder func(ctx context.Context, f fleet) ([]target, error)

// inBulk lets a verb about one thing be said of all that a selector finds, in
// place of its name. What asks for each to be named twice still does.
func (a *app) inBulk(c *cobra.Command, what string, find finder) *cobra.Command {
	one, check := c.RunE, c.Args
	var selector string
	careful := c.Flags().Lookup("yes") != nil
	yes := false
	c.Flags().StringVar(&selector, "selector", "", "instead of "+what+": all with these labels or properties, KEY=VALUE[,KEY=VALUE]...")
	if !careful {
		c.Flags().BoolVar(&yes, "yes", false, "with --selector, do not ask")
	}
	given := func(args []string) []string {
		if selector == "" {
			return args
		}
		return append([]string{what}, args...)
	}
	c.Args = func(c *cobra.Command, args []string) error {
		if yes && selector == "" {
			return usagef("--yes goes with --selector")
		}
		if careful && selector != "" && c.Flags().Changed("yes") {
			return usagef("--yes does not go with --selector here: each is confirmed by its serial number")
		}
		return check(c, given(args))
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if selector == "" {
			return one(c, args)
		}
		return a.each(c, what, selector, find, yes, func(t target) error { return one(c, append([]string{t.id}, args...)) })
	}
	return c
}

// each does something with all that a selector finds, once somebody has said so,
// and goes on after a failure.
func (a *app) each(c *cobra.Command, what, selector string, find finder, yes bool, do func(target) error) error {
	want, err := selected(strings.Split(selector, ","))
	if err != nil {
		return usagef("--selector %s: it is KEY=VALUE[,KEY=VALUE]...", selector)
	}
	f, err := a.fleet(c.Context())
	if err != nil {
		return err
	}
	all, err := find(c.Context(), f)
	if err != nil {
		return err
	}
	var ts []target
	for _, t := range all {
		if module.Selects(want, t.is) {
			ts = append(ts, t)
		}
	}
	if len(ts) == 0 {
		return muster.Problemf(muster.CodeNotFound, "no %s has %s", strings.ToLower(what), strings.Join(strings.Split(selector, ","), " and "))
	}
	if err := a.agree(c, ts, yes); err != nil {
		return err
	}
	var failed [][]string
	for i, t := range ts {
		fmt.Fprintf(a.stderr, "%d of %d: %s\n", i+1, len(ts), said(t.name))
		if err := do(t); err != nil {
			if c.Context().Err() != nil {
				return fmt.Errorf("stopped at %s, number %d of %d: %w", t.name, i+1, len(ts), err)
			}
			failed = append(failed, []string{t.id, dash(t.name), said(err.Error())})
		}
	}
	if len(failed) == 0 {
		return nil
	}
	grid(a.stderr, []string{what, "NAME", "WHY IT FAILED"}, failed)
	return fmt.Errorf("%d of %d failed", len(failed), len(ts))
}

// agree shows what a verb would be said of, and wants their number typed.
func (a *app) agree(c *cobra.Command, ts []target, yes bool) error {
	for _, t := range ts {
		fmt.Fprintf(a.stderr, "%s  %s %s\n", c.CommandPath(), t.id, said(t.name))
	}
	if yes {
		return nil
	}
	fmt.Fprintf(a.stderr, "type how many these are (%d) to go on, anything else to stop: ", len(ts))
	typed, err := asked(c.Context(), func() (string, error) { return readLine(a.stdin) })
	if err == errInterrupted {
		fmt.Fprintln(a.stderr)
	}
	if err != nil {
		return fmt.Errorf("nothing was changed: nobody said yes (%w)", err)
	}
	if strings.TrimSpace(typed) != strconv.Itoa(len(ts)) {
		return fmt.Errorf("nothing was changed: %q is not %d", said(strings.TrimSpace(typed)), len(ts))
	}
	return nil
}

// ofNodes finds nodes that are not decommissioned: by their labels, and by
// policy, state, host, vendor, model and serial.
func ofNodes(ctx context.Context, f fleet) ([]target, error) {
	ns, err := f.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	rs, err := allRegistrations(ctx, f, "")
	if err != nil {
		return nil, err
	}
	of := map[string]muster.Registration{}
	for _, r := range rs {
		of[r.ServerUUID] = r
	}
	var ts []target
	for _, n := range ns {
		if n.State == muster.NodeDecommissioned {
			continue
		}
		ts = append(ts, target{n.ID, cmp.Or(n.Hostname, n.ServerUUID), properties(n, of[n.ServerUUID])})
	}
	return ts, nil
}

func properties(n muster.Node, r muster.Registration) map[string]string {
	is := map[string]string{"policy": string(n.Policy), "state": string(n.State), "host": n.Hostname, "vendor": r.Manufacturer, "model": r.Product, "serial": r.Serial}
	maps.Copy(is, n.Labels)
	return is
}

// ofDisks finds disks that are in service: by their labels, and by node (its
// host name or id), policy, vendor, model and pool (member).
func ofDisks(ctx context.Context, f fleet) ([]target, error) {
	ns, err := f.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	hosts := map[string]string{}
	for _, n := range ns {
		hosts[n.ID] = cmp.Or(n.Hostname, n.ID)
	}
	ds, err := f.Disks(ctx)
	var ts []target
	for _, d := range ds {
		if d.State == muster.DiskDecommissioned {
			continue
		}
		is := map[string]string{"node": hosts[d.NodeID], "policy": string(d.Policy), "vendor": d.Disk.Vendor, "model": d.Disk.Model, "pool": inPool(d)}
		maps.Copy(is, d.Labels)
		ts = append(ts, target{d.ID, hosts[d.NodeID] + " " + d.Disk.Describe(), is})
	}
	return ts, err
}

// ofRegistrations finds machines: by state, door, host, vendor, model and serial,
// and by the labels of their nodes.
func ofRegistrations(ctx context.Context, f fleet) ([]target, error) {
	rs, err := allRegistrations(ctx, f, "")
	if err != nil {
		return nil, err
	}
	ns, err := f.Nodes(ctx)
	labels := map[string]map[string]string{}
	for _, n := range ns {
		labels[n.ID] = n.Labels
	}
	var ts []target
	for _, r := range rs {
		is := map[string]string{"state": string(r.State), "door": string(r.Door), "host": r.Hostname, "vendor": r.Manufacturer, "model": r.Product, "serial": r.Serial}
		maps.Copy(is, labels[r.NodeID])
		ts = append(ts, target{r.ServerUUID, callable(r), is})
	}
	return ts, err
}
