package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	muster "muster.internal"
)

// setupFlags are an operator's choices about a setup; none means that the
// layout rules choose.
type setupFlags struct {
	req           muster.SetupRequest
	pool          string
	spares, width int
}

func (s *setupFlags) bind(a *app, c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.pool, "pool", "", "zfs (the default) or btrfs")
	f.StringVar(&s.req.Layout, "layout", "", "single, mirror, raidz1, raidz2, raidz3 (default: by the rules)")
	numberVar(f, &s.spares, "spares", 0, 0, 1024, "hot spares (default: by the rules)")
	numberVar(f, &s.width, "width", 0, 1, 1024, "disks in each group (default: by the rules)")
	f.BoolVar(&s.req.NoCache, "no-cache", false, "use no disk as read cache")
	f.StringSliceVar(&s.req.Exclude, "exclude", nil, "disks to leave alone, by path or name")
	f.StringVar(&s.req.Compression, "compression", "", strings.Join(muster.Compressions, ", "))
	f.StringVar(&s.req.Hostname, "hostname", "", "host name: one label")
	f.BoolVar(&s.req.Rebuild, "rebuild", false, "replace a pool that carries this machine's own stamp")
	a.complete(c, "pool", string(muster.ZFS), string(muster.Btrfs))
	a.complete(c, "layout", "single", "mirror", "raidz1", "raidz2", "raidz3")
	a.complete(c, "compression", muster.Compressions...)
}

func (s *setupFlags) request(c *cobra.Command) muster.SetupRequest {
	r := s.req
	r.Pool = muster.PoolKind(s.pool)
	if c.Flags().Changed("spares") {
		r.Spares = &s.spares
	}
	if c.Flags().Changed("width") {
		r.Width = &s.width
	}
	return r
}

func (a *app) registrationPlanSetup() *cobra.Command {
	var s setupFlags
	c := &cobra.Command{
		Use:   "plan-setup MACHINE",
		Short: "Show the pool that an approval would build, disk by disk",
		Long: `Show the exact pool that an approval would build, disk by disk, with what is on
each. Nothing is changed.`,
		Example: `  muster registration plan-setup 8CX2P53
  muster registration plan-setup 8CX2P53 --layout mirror --exclude /dev/sda`,
		Args:              names("MACHINE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, machine, func(c *cobra.Command, f fleet, r muster.Registration) error {
			p, err := f.PlanSetup(c.Context(), r.ServerUUID, s.request(c))
			if err != nil {
				return err
			}
			return a.show(p, func(w io.Writer) { a.drawPlan(w, r, p) })
		}),
	}
	s.bind(a, c)
	return c
}

// drawPlan shows what would be built and what would be lost by it.
func (a *app) drawPlan(w io.Writer, r muster.Registration, p muster.SetupPlan) {
	a.fields(w,
		"machine", p.ServerUUID,
		"serial", first(said(p.Serial), "none: it is confirmed by its UUID"),
		"hardware", said(strings.TrimSpace(r.Manufacturer+" "+r.Product)),
		"mac", said(strings.Join(r.MACs, ", ")),
		"host", said(p.Hostname),
		"pool", fmt.Sprintf("%s (%s), %s, %s usable, compression %s", muster.PoolName, p.Pool, p.Layout, size(p.Capacity), p.Compression),
		"image", strings.TrimPrefix(imageName(p.Image), "-"),
	)
	fmt.Fprintln(w)
	header := []string{"ROLE", "PATH", "VENDOR", "MODEL", "SERIAL", "WWN", "SIZE", "ON IT"}
	var rows [][]string
	add := func(role string, d muster.Disk) {
		rows = append(rows, append([]string{role}, a.diskCells(d, p.ServerUUID)...))
	}
	for i, v := range p.VDevs {
		role := first(v.Type, "data")
		if len(p.VDevs) > 1 {
			role = fmt.Sprintf("%s %d", role, i+1)
		}
		for _, d := range v.Disks {
			add(role, d)
		}
	}
	for _, g := range []struct {
		role  string
		disks []muster.Disk
	}{{"spare", p.Spares}, {"log", p.Logs}, {"cache", p.Cache}} {
		for _, d := range g.disks {
			add(g.role, d)
		}
	}
	for _, u := range p.Unused {
		rows = append(rows, append([]string{a.paint(dim, "left alone")}, a.diskCells(u.Disk, p.ServerUUID)...))
	}
	grid(w, header, rows)
	for _, u := range p.Unused {
		fmt.Fprintf(w, "%s is left alone: %s\n", said(u.Path), said(u.Why))
	}
	if p.Rebuild {
		a.warn(w, "an existing pool with this machine's own stamp would be replaced")
	}
	for _, s := range p.Warnings {
		a.warn(w, "%s", said(s))
	}
}

// diskCells are path, vendor, model, serial, WWN, size and contents.
func (a *app) diskCells(d muster.Disk, uuid string) []string {
	on := "nothing"
	if len(d.Contents) > 0 {
		on = a.paint(red, contents(d.Contents, uuid))
	}
	return []string{dash(d.Path), dash(d.Vendor), dash(d.Model), dash(d.Serial), dash(d.WWN), size(d.Size), on}
}

// contents says whose a pool is: this machine's, or another's that has a name.
func contents(cs []muster.Content, uuid string) string {
	parts := make([]string, len(cs))
	for i, c := range cs {
		s := said(c.Kind)
		if c.Name != "" {
			s += " " + said(c.Name)
		}
		switch {
		case c.Stamp != "" && c.Stamp == uuid:
			s += " of this machine"
		case c.Stamp != "":
			s += " of machine " + said(c.Stamp)
		case c.GUID != "" && c.Kind == "zpool":
			s += " (" + said(c.GUID) + ", no stamp)"
		}
		parts[i] = s
	}
	return strings.Join(parts, ", ")
}

func (a *app) drawDisks(w io.Writer, ds []muster.Disk, uuid string) {
	rows := make([][]string, len(ds))
	for i, d := range ds {
		kind := "spinning"
		switch {
		case d.SSD:
			kind = "solid"
		case d.Transport == "virtio":
			kind = "disk" // a virtual machine's: what it lies on is not told
		}
		cells := a.diskCells(d, uuid) // what is on it comes last: it may be long
		rows[i] = slices.Insert(cells, len(cells)-1, strings.TrimSpace(said(d.Transport)+" "+kind))
	}
	grid(w, []string{"PATH", "VENDOR", "MODEL", "SERIAL", "WWN", "SIZE", "KIND", "ON IT"}, rows)
}
