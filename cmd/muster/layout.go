package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	muster "muster.internal"
	"muster.internal/layout"
)

func (a *app) layoutCmd() *cobra.Command {
	return group("layout", "Disk layouts: what would be built of which disks",
		`Layouts are chosen by rules from the disks alone; what an operator asks for
narrows them. Nothing here touches a disk or asks the control plane.`, a.layoutPlan())
}

type layoutFlags struct {
	disks         string
	layout        string
	spares, width int
	noCache       bool
	exclude       []string
}

func (a *app) layoutPlan() *cobra.Command {
	var o layoutFlags
	c := &cobra.Command{
		Use:   "plan",
		Short: "Show the pool that the rules would build of an inventory",
		Long: `Show the pool that the rules would build of an inventory. The inventory is a JSON
object {"disks": [{"type", "name", "vid", "pid", "size" (bytes), "removable",
"solid_state"}, …]}, with "layout", "spares", "width", "cache" and "exclude" if
wanted, or a bare array of such disks; flags win over it. With --output json the
answer is {"vdevs", "capacity", "spares", "logs", "cache"} or {"error"}, and
exit code 1 with the latter.`,
		Example: `  muster layout plan --disks inventory.json
  muster registration show 8CX2P53 -o json | jq '{disks: [.disks[] | {type: .transport,
    name: .path, vid: .vendor, pid: .model, size, solid_state}]}' | muster layout plan --disks -
  muster layout plan --disks inventory.json --layout raidz2 --spares 1 --output json`,
		Args: names(),
		RunE: func(c *cobra.Command, _ []string) error {
			if o.disks == "" {
				return usagef("--disks FILE is needed (- for standard input)")
			}
			b, err := a.readFile(o.disks)
			if err != nil {
				return err
			}
			q, err := o.request(c, b)
			if err != nil {
				return fmt.Errorf("%s: %w", o.disks, err)
			}
			r, err := layout.Plan(q)
			if err != nil {
				var refused *layout.Refusal
				if a.output == "json" && errors.As(err, &refused) {
					must(writeJSON(a.stdout, map[string]string{"error": refused.Text}))
				}
				return muster.Problemf(muster.CodeInvalid, "no pool can be built: %v", err)
			}
			return a.show(r, func(w io.Writer) { a.drawLayout(w, r) })
		},
	}
	f := c.Flags()
	f.StringVar(&o.disks, "disks", "", "JSON file with the inventory; - for standard input")
	f.StringVar(&o.layout, "layout", "", "single, mirror, raidz1, raidz2, raidz3 (default: by the rules)")
	numberVar(f, &o.spares, "spares", 0, 0, 1024, "hot spares (default: by the rules)")
	numberVar(f, &o.width, "width", 0, 1, 1024, "disks in each group (default: by the rules)")
	f.BoolVar(&o.noCache, "no-cache", false, "use no disk as read cache")
	f.StringSliceVar(&o.exclude, "exclude", nil, "disks to leave alone, by name")
	a.complete(c, "layout", "single", "mirror", "raidz1", "raidz2", "raidz3")
	return c
}

func (o *layoutFlags) request(c *cobra.Command, b []byte) (layout.Request, error) {
	if t := bytes.TrimSpace(b); len(t) > 0 && t[0] == '[' {
		b = append(append([]byte(`{"disks":`), t...), '}')
	}
	if !json.Valid(b) {
		return layout.Request{}, errors.New("this is not JSON")
	}
	q, err := layout.ParseRequest(bytes.NewReader(b))
	if err != nil {
		return q, err
	}
	set := c.Flags().Changed
	if set("layout") {
		q.Layout = o.layout
	}
	if set("spares") {
		q.Spares = &o.spares
	}
	if set("width") {
		q.Width = &o.width
	}
	if set("no-cache") {
		cache := !o.noCache
		q.Cache = &cache
	}
	if set("exclude") {
		q.Exclude = o.exclude
	}
	return q, nil
}

func (a *app) drawLayout(w io.Writer, r layout.Result) {
	a.fields(w, "layout", r.Layout, "capacity", size(r.Capacity))
	fmt.Fprintln(w)
	var rows [][]string
	add := func(role string, ds []layout.Device) {
		for _, d := range ds {
			kind := "spinning"
			if d.SolidState {
				kind = "solid"
			}
			rows = append(rows, []string{role, dash(d.Name), dash(d.VID), dash(d.PID), size(d.Size), kind})
		}
	}
	for i, v := range r.VDevs {
		role := first(v.Type, "data")
		if len(r.VDevs) > 1 {
			role = fmt.Sprintf("%s %d", role, i+1)
		}
		add(role, v.Devices)
	}
	add("spare", r.Spares)
	add("log", r.Logs)
	add("cache", r.Cache)
	grid(w, []string{"ROLE", "DISK", "VENDOR", "MODEL", "SIZE", "KIND"}, rows)
	for _, name := range sortedKeys(r.Unused) {
		fmt.Fprintf(w, "%s is left alone: %s\n", said(name), said(r.Unused[name]))
	}
}
