package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	muster "muster.internal"
)

func (a *app) policyCmd() *cobra.Command {
	return group("policy", "The boot policy: what a machine never seen before is served",
		`The boot policy is the site's answer to a machine that it has never seen: whether
it may enroll, with which image, and on which network its address is reserved.`,
		a.policyShow(), a.policySet())
}

func (a *app) policyShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Show the boot policy",
		Example: `  muster policy show
  muster policy show --output json > policy.json`,
		Args: names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			p, err := f.BootPolicy(c.Context())
			if err != nil {
				return err
			}
			return a.show(p, func(w io.Writer) { a.drawPolicy(w, p) })
		}),
	}
}

func (a *app) drawPolicy(w io.Writer, p muster.BootPolicy) {
	admit := "every machine on an admin network"
	if len(p.Allow) > 0 {
		parts := make([]string, len(p.Allow))
		for i, e := range p.Allow {
			parts[i] = allowWord(e)
		}
		admit = strings.Join(parts, ", ")
	}
	if !p.AutoEnroll {
		admit = "none by itself"
	}
	a.fields(w,
		"admits", said(admit),
		"answers only PXE", yesNo(p.AnswerOnlyPXE),
		"enrollment image", imageName(p.EnrollmentPI),
		"rescue image", imageName(p.RescuePI),
		"new disks", map[muster.DiskAdoption]string{muster.AdoptAuto: "are adopted by themselves when they are empty"}[p.AdoptDisks],
	)
	for _, key := range slices.Sorted(maps.Keys(p.NodeConfig)) {
		fmt.Fprintf(w, "node.config       %s=%s\n", said(key), said(p.NodeConfig[key]))
	}
	if p.AutoEnroll && p.EnrollmentPI == nil {
		a.warn(w, "no enrollment image is set: machines that enroll are served nothing (muster policy set --enrollment-pi NAME)")
	}
	if len(p.Networks) == 0 {
		a.warn(w, "no admin network is set: no address can be reserved (muster policy set --network name=…,prefix=…,range=…)")
		return
	}
	fmt.Fprintln(w)
	rows := make([][]string, len(p.Networks))
	for i, n := range p.Networks {
		via := []string{}
		if n.Interface != "" {
			via = append(via, "interface "+n.Interface)
		}
		if len(n.Giaddrs) > 0 {
			via = append(via, "relays "+strings.Join(n.Giaddrs, " "))
		}
		if n.CircuitID != "" {
			via = append(via, "circuit "+n.CircuitID)
		}
		rows[i] = []string{dash(n.Name), dash(n.Prefix), n.Start + "-" + n.End, dash(n.Gateway), dash(strings.Join(n.Resolvers, " ")), dash(strings.Join(via, ", "))}
	}
	grid(w, []string{"NETWORK", "PREFIX", "RANGE", "GATEWAY", "RESOLVERS", "COMES BY"}, rows)
}

func allowWord(e muster.AllowEntry) string {
	if e.ServiceTag != "" {
		return "tag:" + e.ServiceTag
	}
	return "mac:" + e.MACPrefix
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

type policyFlags struct {
	autoEnroll, onlyPXE    bool
	enrollmentPI, rescuePI string
	allow                  []string
	allowAll               bool
	networks               []string
	rmNetworks             []string
	nodeConfig             []string
	adoptDisks             string
	file                   string
}

func (a *app) policySet() *cobra.Command {
	var o policyFlags
	c := &cobra.Command{
		Use:   "set",
		Short: "Change the boot policy, by flags or from a file",
		Long: `Change the boot policy. Flags change what they name and leave the rest; --file
replaces all of it with a JSON or YAML document in the form that
"policy show --output json" prints.

A network is name=, prefix= (CIDR), range=FIRST-LAST, and if wanted gateway=,
resolver= (repeated), interface= (where its requests arrive), giaddr= (its
relay; repeated), circuit=, lease= (seconds). A network of the same name is
replaced.

SmartOS machines are given a node.config, which their services evaluate at every
boot. --node-config adds to it what is the same for all (datacenter_name,
dns_domain, ntp_hosts); values that would not come back as they are, are refused.`,
		Example: `  muster policy set --enrollment-pi debian-12-3
  muster policy set --network name=rack1,prefix=10.77.0.0/24,range=10.77.0.100-10.77.0.199,gateway=10.77.0.1,interface=eno1
  muster policy set --allow tag:8CX2P53 --allow mac:52:54:00
  muster policy set --allow-all --auto-enroll=false
  muster policy set --node-config datacenter_name=east-1 --node-config ntp_hosts=10.77.0.1
  muster policy set --file policy.yaml`,
		Args: names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			p, err := o.policy(a, c, f)
			if err != nil {
				return err
			}
			if p, err = f.SetBootPolicy(c.Context(), p); err != nil {
				return err
			}
			return a.show(p, func(w io.Writer) { a.drawPolicy(w, p) })
		}),
	}
	f := c.Flags()
	f.BoolVar(&o.autoEnroll, "auto-enroll", true, "machines never seen enroll by themselves")
	f.BoolVar(&o.onlyPXE, "answer-only-pxe", true, "leave clients alone that do not ask to boot")
	f.StringVar(&o.enrollmentPI, "enrollment-pi", "", `image that enrolling machines boot; "" clears it`)
	f.StringVar(&o.rescuePI, "rescue-pi", "", `image for rescue; "" clears it`)
	f.StringArrayVar(&o.allow, "allow", nil, "tag:SERVICETAG or mac:PREFIX; repeat for more; replaces the list")
	f.BoolVar(&o.allowAll, "allow-all", false, "empty the list: every machine is admitted")
	f.StringArrayVar(&o.networks, "network", nil, "name=…,prefix=…,range=FIRST-LAST,…; repeat for more")
	f.StringArrayVar(&o.rmNetworks, "rm-network", nil, "forget a network, by name")
	f.StringArrayVar(&o.nodeConfig, "node-config", nil, "KEY=VALUE for the node.config of SmartOS machines, KEY= to take it out; repeat for more")
	f.StringVar(&o.adoptDisks, "adopt-disks", "", "explicit: you adopt each disk that turns up in a node; auto: empty ones that are new there adopt themselves")
	f.StringVar(&o.file, "file", "", "JSON or YAML file with the whole policy; - for standard input")
	clears(c, "enrollment-pi", "rescue-pi")
	must(c.RegisterFlagCompletionFunc("enrollment-pi", a.completeWith(imageWords)))
	must(c.RegisterFlagCompletionFunc("rescue-pi", a.completeWith(imageWords)))
	return c
}

// policy is what the flags ask for: the file's, or the present one as changed.
func (o *policyFlags) policy(a *app, c *cobra.Command, f fleet) (muster.BootPolicy, error) {
	if o.file != "" {
		if err := o.alone(c); err != nil {
			return muster.BootPolicy{}, err
		}
		return a.readPolicy(o.file)
	}
	p, err := f.BootPolicy(c.Context())
	if err != nil {
		return p, err
	}
	return p, o.apply(c, &p)
}

func (o *policyFlags) alone(c *cobra.Command) error {
	for _, n := range []string{"auto-enroll", "answer-only-pxe", "enrollment-pi", "rescue-pi", "allow", "allow-all", "network", "rm-network", "node-config", "adopt-disks"} {
		if c.Flags().Changed(n) {
			return usagef("--file replaces the whole policy and goes without --%s", n)
		}
	}
	return nil
}

func (o *policyFlags) apply(c *cobra.Command, p *muster.BootPolicy) error {
	set := c.Flags().Changed
	touched := false
	for _, n := range []string{"auto-enroll", "answer-only-pxe", "enrollment-pi", "rescue-pi", "allow", "allow-all", "network", "rm-network", "node-config", "adopt-disks"} {
		touched = touched || set(n)
	}
	if !touched {
		return usagef("nothing to set: name at least one of the flags, or --file")
	}
	if set("auto-enroll") {
		p.AutoEnroll = o.autoEnroll
	}
	if set("answer-only-pxe") {
		p.AnswerOnlyPXE = o.onlyPXE
	}
	if set("adopt-disks") {
		p.AdoptDisks = muster.DiskAdoption(o.adoptDisks)
	}
	if set("enrollment-pi") {
		p.EnrollmentPI = imageRef(o.enrollmentPI)
	}
	if set("rescue-pi") {
		p.RescuePI = imageRef(o.rescuePI)
	}
	if o.allowAll {
		if set("allow") {
			return usagef("--allow and --allow-all exclude each other")
		}
		p.Allow = []muster.AllowEntry{}
	}
	if set("allow") {
		p.Allow = nil
		for _, s := range o.allow {
			e, err := parseAllow(s)
			if err != nil {
				return err
			}
			p.Allow = append(p.Allow, e)
		}
	}
	for _, s := range o.nodeConfig {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			return usagef("--node-config is KEY=VALUE, not %q", s)
		}
		if p.NodeConfig == nil {
			p.NodeConfig = map[string]string{}
		}
		if p.NodeConfig[key] = value; value == "" {
			delete(p.NodeConfig, key)
		}
	}
	for _, name := range o.rmNetworks {
		if !dropNetwork(p, name) {
			return muster.Problemf(muster.CodeNotFound, "the policy has no network %q", name)
		}
	}
	for _, s := range o.networks {
		n, err := parseNetwork(s)
		if err != nil {
			return err
		}
		dropNetwork(p, n.Name)
		p.Networks = append(p.Networks, n)
	}
	return nil
}

func dropNetwork(p *muster.BootPolicy, name string) bool {
	for i, n := range p.Networks {
		if n.Name == name {
			p.Networks = append(p.Networks[:i:i], p.Networks[i+1:]...)
			return true
		}
	}
	return false
}

func imageRef(name string) *muster.ImageRef {
	if name == "" {
		return nil
	}
	return &muster.ImageRef{Name: name}
}

func parseAllow(s string) (muster.AllowEntry, error) {
	kind, value, ok := strings.Cut(s, ":")
	switch {
	case ok && value != "" && kind == "tag":
		return muster.AllowEntry{ServiceTag: value}, nil
	case ok && value != "" && kind == "mac":
		return muster.AllowEntry{MACPrefix: strings.ToLower(value)}, nil
	}
	return muster.AllowEntry{}, usagef("--allow is tag:SERVICETAG or mac:PREFIX, not %q", s)
}

func parseNetwork(s string) (muster.AdminNetwork, error) {
	var n muster.AdminNetwork
	for _, part := range strings.Split(s, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return n, usagef("--network: %q is not key=value", part)
		}
		switch key {
		case "name":
			n.Name = value
		case "prefix":
			n.Prefix = value
		case "range":
			if n.Start, n.End, ok = strings.Cut(value, "-"); !ok {
				return n, usagef("--network: range=%s is not FIRST-LAST", value)
			}
		case "gateway":
			n.Gateway = value
		case "resolver":
			n.Resolvers = append(n.Resolvers, value)
		case "interface":
			n.Interface = value
		case "giaddr":
			n.Giaddrs = append(n.Giaddrs, value)
		case "circuit":
			n.CircuitID = value
		case "lease":
			l, err := strconv.Atoi(value)
			if err != nil {
				return n, usagef("--network: lease=%s is not a number of seconds", value)
			}
			n.Lease = l
		default:
			return n, usagef("--network: unknown key %q (name, prefix, range, gateway, resolver, interface, giaddr, circuit, lease)", key)
		}
	}
	if n.Name == "" || n.Prefix == "" || n.Start == "" {
		return n, usagef("--network %s: name=, prefix= and range= are needed", s)
	}
	return n, nil
}

// readPolicy reads JSON or YAML strictly: a word that means nothing is a
// mistake, not a comment.
func (a *app) readPolicy(path string) (muster.BootPolicy, error) {
	p := muster.BootPolicy{}
	b, err := a.readFile(path)
	if err != nil {
		return p, err
	}
	var doc any
	if err := yaml.Unmarshal(b, &doc); err != nil { // YAML holds JSON
		return p, fmt.Errorf("%s: %v", path, err)
	}
	if b, err = json.Marshal(doc); err != nil {
		return p, fmt.Errorf("%s: %v", path, err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, fmt.Errorf("%s: %v", path, errors.New(strings.TrimPrefix(err.Error(), "json: ")))
	}
	return p, nil
}

// maxFile bounds what is read from a file or from standard input.
const maxFile = 16 << 20

// readFile reads a file, or standard input for "-".
func (a *app) readFile(path string) ([]byte, error) {
	in := a.stdin
	if path != "-" {
		f, err := os.Open(a.abs(path))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s is larger than %s", path, size(maxFile))
	}
	return b, err
}
