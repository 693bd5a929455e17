package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	muster "muster.internal"
	"muster.internal/lifecycle"
)

func (a *app) bootCmd() *cobra.Command {
	return group("boot", "Boot records: what each network card is served at power-on",
		`A boot record is the netboot identity of one admin network card, by its MAC
address. States: discovered (served nothing), enrolling (the enrollment image),
enrolled (its own image), decommissioned (nothing but rescue). A record is never
deleted: that would lose its address. Decommission it, and reactivate it later.`,
		a.bootLs(), a.bootShow(), a.bootExplain(), a.bootReplay(), a.bootSet(),
		a.bootRaise("enroll", "Reserve an address and serve the enrollment image",
			"is enrolling", `  muster boot enroll 52:54:00:77:00:01`),
		a.bootRaise("decommission", "Serve nothing any more (rescue excepted)",
			"is decommissioned", `  muster boot decommission 52:54:00:77:00:01`),
		a.bootRaise("reactivate", "Bring a decommissioned record back as discovered",
			"is discovered again", `  muster boot reactivate 52:54:00:77:00:01`),
		a.bootNetworks(), a.bootLimits())
}

func (a *app) bootLs() *cobra.Command {
	var state string
	c := &cobra.Command{
		Use:   "ls",
		Short: "List boot records",
		Example: `  muster boot ls
  muster boot ls --state discovered`,
		Args: names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			rs, err := allBootRecords(c.Context(), f, muster.BootState(state))
			if err != nil {
				return err
			}
			return a.show(list(rs), func(w io.Writer) {
				if len(rs) == 0 {
					fmt.Fprintln(a.stderr, "no network card has asked to boot yet")
					return
				}
				uuids := make([]string, len(rs))
				for i, r := range rs {
					uuids[i] = first(r.ServerUUID, r.SeenUUID)
				}
				short := brief(uuids)
				rows := make([][]string, len(rs))
				for i, r := range rs {
					rows[i] = []string{r.MAC, a.bootState(r.State), a.bootMode(r), dash(r.Address),
						dash(short(first(r.ServerUUID, r.SeenUUID))), dash(r.ServiceTag), imageName(r.AssignedPI), a.ago(r.LastSeen), said(r.Note)}
				}
				grid(w, []string{"MAC", "STATE", "MODE", "ADDRESS", "UUID", "SERIAL", "ASSIGNED", "SEEN", "NOTE"}, rows)
			})
		}),
	}
	c.Flags().StringVar(&state, "state", "", "only records in this state")
	a.complete(c, "state", states(muster.BootStates)...)
	return c
}

func (a *app) bootMode(r muster.BootRecord) string {
	if r.Mode == muster.RescueMode {
		s := string(r.Mode)
		if r.RescueUntil != nil {
			s += ", " + left(r.RescueUntil.Sub(a.now())) + " left"
		}
		return a.paint(yellow, s)
	}
	return dash(string(r.Mode))
}

func (a *app) bootShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show NIC",
		Short: "Show one boot record (a MAC that was never seen reads as discovered)",
		Example: `  muster boot show 52:54:00:77:00:01
  muster boot show 10.77.0.101
  muster boot show web1`,
		Args:              names("NIC"),
		ValidArgsFunction: a.completeWith(nicWords),
		RunE: on(a, nic, func(c *cobra.Command, f fleet, mac string) error {
			r, err := f.BootRecord(c.Context(), mac)
			if err != nil {
				return err
			}
			return a.show(r, func(w io.Writer) { a.drawBootRecord(w, r) })
		}),
	}
}

func (a *app) drawBootRecord(w io.Writer, r muster.BootRecord) {
	var net muster.Networking
	if r.Networking != nil {
		net = *r.Networking
	}
	a.fields(w,
		"mac", r.MAC,
		"state", a.bootState(r.State),
		"mode", a.bootMode(r),
		"network", said(r.Network),
		"address", first(said(net.Address), said(r.Address)),
		"gateway", said(net.Gateway),
		"resolvers", said(strings.Join(net.Resolvers, ", ")),
		"host", said(net.Hostname),
		"machine", first(r.ServerUUID, said(r.SeenUUID)),
		"told to be", r.OwnUUID,
		"serial", said(r.ServiceTag),
		"image", strings.TrimPrefix(imageName(r.AssignedPI), "-"),
		"kernel arguments", said(strings.Join(r.KernelArgs, " ")),
		"came by", said(r.Provenance),
		"seen", a.ago(r.LastSeen),
		"note", said(r.Note),
	)
	if r.Synthesized {
		fmt.Fprintln(w, "this card has never asked to boot: there is no record yet")
	}
}

// bootFlags are what an operator may set on a record; only what is named
// changes.
type bootFlags struct {
	mode, image string
	rescueFor   lifetime
	args        []string
	clearArgs   bool
	address     string
	gateway     string
	resolvers   []string
	uuid        string
	hostname    string
}

func (a *app) bootSet() *cobra.Command {
	var o bootFlags
	c := &cobra.Command{
		Use:   "set NIC",
		Short: "Set mode, image, kernel arguments or networking of a record",
		Long: `Set mode, image, kernel arguments or networking of a record; what is not named
stays. A record is made for a card that was never seen. Rescue ends by itself
(after 4 hours, at most 24).`,
		Example: `  muster boot set 52:54:00:77:00:01 --mode rescue --for 2h
  muster boot set 52:54:00:77:00:01 --image debian-12-3
  muster boot set 52:54:00:77:00:01 --kernel-arg console=ttyS0 --kernel-arg quiet
  muster boot set 52:54:00:77:00:01 --address 10.77.0.140/24 --gateway 10.77.0.1`,
		Args:              names("NIC"),
		ValidArgsFunction: a.completeWith(nicWords),
		RunE: on(a, nic, func(c *cobra.Command, f fleet, mac string) error {
			was, err := f.BootRecord(c.Context(), mac)
			if err != nil {
				return err
			}
			change, err := o.change(c, was)
			if err != nil {
				return err
			}
			r, err := f.SetBootRecord(c.Context(), mac, change)
			if err != nil {
				return err
			}
			return a.show(r, func(w io.Writer) { a.drawBootRecord(w, r) })
		}),
	}
	f := c.Flags()
	f.StringVar(&o.mode, "mode", "", "normal or rescue")
	f.Var(&o.rescueFor, "for", "how long rescue lasts, with --mode rescue (default: 4h, at most 24h)")
	f.StringVar(&o.image, "image", "", `image by name; "" clears it`)
	f.StringArrayVar(&o.args, "kernel-arg", nil, "a kernel argument; repeat for more; replaces those there")
	f.BoolVar(&o.clearArgs, "no-kernel-args", false, "remove all kernel arguments")
	f.StringVar(&o.address, "address", "", "address with prefix length, 10.77.0.140/24")
	f.StringVar(&o.gateway, "gateway", "", `address of the router; "" clears it`)
	f.StringSliceVar(&o.resolvers, "resolver", nil, `addresses of name servers, by commas; replaces those there; "" clears them`)
	f.StringVar(&o.hostname, "hostname", "", `host name: one label; "" clears it`)
	f.StringVar(&o.uuid, "uuid", "", `the UUID that the machine must call itself; "" clears it`)
	clears(c, "image", "gateway", "resolver", "hostname", "uuid")
	a.complete(c, "mode", string(muster.NormalMode), string(muster.RescueMode))
	must(c.RegisterFlagCompletionFunc("image", a.completeWith(imageWords)))
	return c
}

func (o *bootFlags) change(c *cobra.Command, was muster.BootRecord) (muster.BootChange, error) {
	set := c.Flags().Changed
	var b muster.BootChange
	if set("mode") {
		m := muster.BootMode(o.mode)
		if m != muster.NormalMode && m != muster.RescueMode {
			return b, usagef("--mode is normal or rescue, not %q", o.mode)
		}
		b.Mode = &m
	}
	if set("for") {
		if o.mode != string(muster.RescueMode) {
			return b, usagef("--for goes with --mode rescue")
		}
		s := int(o.rescueFor)
		b.RescueFor = &s
	}
	if set("image") {
		b.AssignedPI = &o.image
	}
	switch {
	case set("kernel-arg") && o.clearArgs:
		return b, usagef("--kernel-arg and --no-kernel-args exclude each other")
	case o.clearArgs:
		b.KernelArgs = &[]string{}
	case set("kernel-arg"):
		b.KernelArgs = &o.args
	}
	if set("address") || set("gateway") || set("resolver") || set("hostname") {
		n := muster.Networking{}
		if was.Networking != nil {
			n = *was.Networking
		}
		if set("address") {
			n.Address = o.address
		}
		if set("gateway") {
			n.Gateway = o.gateway
		}
		if set("resolver") {
			n.Resolvers = o.resolvers
		}
		if set("hostname") {
			n.Hostname = o.hostname
		}
		b.Networking = &n
	}
	if set("uuid") {
		b.OwnUUID = &o.uuid
	}
	if b == (muster.BootChange{}) {
		return b, usagef("nothing to set: name at least one of the flags")
	}
	return b, nil
}

func (a *app) bootRaise(verb, shortHelp, done, example string) *cobra.Command {
	e := raises(lifecycle.BootRecords, verb)
	return &cobra.Command{
		Use:               verb + " NIC",
		Short:             shortHelp,
		Example:           example,
		Args:              names("NIC"),
		ValidArgsFunction: a.completeWith(nicWords),
		RunE: on(a, nic, func(c *cobra.Command, f fleet, mac string) error {
			r, err := f.RaiseBootRecord(c.Context(), mac, e)
			if err != nil {
				return err
			}
			return a.show(r, func(w io.Writer) {
				line := r.MAC + " " + done
				if r.Address != "" {
					line += ", address " + r.Address
				}
				fmt.Fprintln(w, line)
			})
		}),
	}
}
