// Package boot decides what a machine that asks the network for something to
// boot is given, and renders it. One function gates DHCP, TFTP and HTTP alike,
// and its answer is one value: verdict, rule, reason and what is served.
//
// It reads no clock and does no I/O: time and what is staged are arguments. It
// must never let a machine boot what would destroy or import pools, and never
// serve anything to a machine that is only discovered or decommissioned.
package boot

import (
	"net/netip"
	"time"

	"muster.internal"
	"muster.internal/dhcp"
)

// Via is the protocol that a request came by.
type Via byte

const (
	DHCP Via = iota
	TFTP
	HTTP
)

func (v Via) String() string { return [...]string{"DHCP", "TFTP", "HTTP"}[v] }

// A Stage is a step of a network boot.
type Stage byte

const (
	// Address: an address, and nothing to boot.
	Address Stage = iota
	// Loader: the network boot program that firmware loads, by TFTP or HTTP.
	Loader
	// Autoexec: the script that a loader looks for beside itself; empty.
	Autoexec
	// Start: the first-stage script, which says what machine it runs on.
	Start
	// Script: what the machine boots, rendered.
	Script
	// File: a file of the image that the script names.
	File
)

func (s Stage) String() string {
	return [...]string{"address", "loader", "autoexec", "start", "script", "file"}[s]
}

// A Mode is what a machine boots for.
type Mode byte

const (
	Nothing Mode = iota
	Probe        // only to learn its service tag
	Enroll
	Node
	Rescue
)

// String is the mode as the booted machine is told (muster.mode).
func (m Mode) String() string { return [...]string{"nothing", "probe", "enroll", "node", "rescue"}[m] }

// A Decision is the answer. When it is silence, Reason says why, and the other
// fields hold what is known.
type Decision struct {
	Serve  bool
	Reason Reason // Served, or why not
	Rule   Rule
	Quirks Quirks // the rows that corrected the request
	// Sight: the control plane should hear of this request.
	Sight bool

	MAC     dhcp.MAC
	State   muster.BootState // empty: there is no record
	Stage   Stage
	Mode    Mode
	Arch    uint16 // after quirks; over TFTP and HTTP what is known from before
	Class   dhcp.Class
	Shape   dhcp.Shape    // the kind of DHCP answer
	Loader  string        // the loader's file name, for firmware
	Image   *muster.Image // nil with modes Nothing and Probe
	Variant *muster.ImageVariant
	Named   *muster.ImageRef // the image as policy or record name it
	Address netip.Prefix     // reserved address and length of its network
	Gateway netip.Addr
	DNS     [3]netip.Addr
	Lease   uint32 // seconds
	// Proxied: the answer carries no address; another server has given one.
	Proxied bool
	// Holder: the machine holds the reserved address and asks to keep it.
	Holder bool
	// Loop is what was served again and again, if Reason is Looping.
	Loop Loop
	// NodeConfig is what the policy adds to a SmartOS machine's node.config.
	NodeConfig map[string]string
}

const defaultLease = 3600

// Decide is the rules, top to bottom: the first that applies wins. A nil machine
// is one that was never heard of. Whoever holds a served record's address
// keeps it, whatever is wrong with what it would boot.
func Decide(q Request, m *Machine, pol *Policy, env Env) Decision {
	var set Quirks
	if q.Via == DHCP {
		set = q.quirks()
	}
	d := decide(&q, m, pol, &env)
	if !d.Serve && d.Holder && d.Reason.ofBoot() {
		q.AddressOnly = true
		d = decide(&q, m, pol, &env)
	}
	d.Quirks = set
	return d
}

func decide(q *Request, m *Machine, pol *Policy, env *Env) Decision {
	d := Decision{MAC: q.MAC, Stage: q.Want, Arch: q.Arch, Class: q.Class}
	if m != nil {
		d.State = m.State
	}
	if q.Via == DHCP {
		d.Holder = q.renews() && m.Reserves(q.Claimed)
		if r := d.message(q, pol, env); r != Served {
			return d.silent(r)
		}
	} else if m != nil && !q.HasArch {
		d.Arch = uint16(m.Arch)
	}
	r := d.mode(m, env.Now)
	if r == Served {
		r = d.machine(q, env)
	}
	if r == Served {
		r = d.image(m, pol, env)
	}
	if r == Served {
		r = d.address(q, m, pol, env)
	}
	if r == Served {
		r = d.again(env)
	}
	if r != Served {
		return d.silent(r)
	}
	d.Serve = true
	return d
}

func (d Decision) silent(r Reason) Decision {
	d.Reason, d.Rule = r, r.rule(d.Rule)
	return d
}

// message: is this DHCP message one that a boot server answers? Never with a
// NAK: another server's clients are left alone.
func (d *Decision) message(q *Request, pol *Policy, env *Env) Reason {
	if q.ServerID.IsValid() && q.ServerID != env.Server && !env.Proxy {
		d.Sight = q.boots() && q.Type == dhcp.Request
		return OtherServer
	}
	switch q.Type {
	case dhcp.Discover, dhcp.Request:
	case dhcp.Decline:
		return Declined
	case dhcp.Release:
		return Released
	case dhcp.Inform:
		if !d.Holder && !q.AtPXE {
			return MessageType
		}
	case 0:
		if !q.boots() {
			return MessageType
		}
	default:
		return MessageType
	}
	if !q.boots() && (q.AtPXE || q.Class != dhcp.SunClass && pol.AnswerOnlyPXE && !d.Holder) {
		return NotPXE
	}
	d.Sight = q.boots() || q.Class == dhcp.SunClass
	if d.Proxied = q.AtPXE || env.Proxy; d.Proxied && !q.AtPXE && (!q.boots() || q.Type == dhcp.Request || q.Type == dhcp.Inform) {
		return SiteGives
	}
	d.shape(q)
	return Served
}

// shape: what such a client takes. Its class says how it loads, its
// architecture what.
func (d *Decision) shape(q *Request) {
	switch {
	case q.AddressOnly || q.Type == dhcp.Inform && !q.AtPXE || !q.boots():
		d.Stage, d.Shape = Address, dhcp.Plain
	case q.IPXE:
		if d.Stage, d.Shape = Start, dhcp.IPXE; d.Proxied { // it takes a proxy's word only with the class
			d.Shape = dhcp.PXE
		}
	case q.Class == dhcp.HTTPClass:
		d.Stage, d.Shape = Loader, dhcp.HTTP
	case q.Class == dhcp.UBootClass:
		d.Stage, d.Shape = Loader, dhcp.Plain
	default:
		d.Stage, d.Shape = Loader, dhcp.PXE
	}
}

// mode: what may this machine boot at all? Rescue goes before every state.
func (d *Decision) mode(m *Machine, now time.Time) Reason {
	switch {
	case m == nil:
		return Unknown
	case m.Mode == muster.RescueMode && m.RescueUntil != nil && now.Before(*m.RescueUntil):
		d.Mode, d.Rule = Rescue, RuleRescue
	case m.State == muster.Enrolling:
		d.Mode, d.Rule = Enroll, RuleEnrolling
		if m.AwaitsUUID && (d.Stage == Script || d.Stage == File) {
			return AwaitingUUID
		}
	case m.State == muster.Enrolled:
		d.Mode, d.Rule = Node, RuleEnrolled
	case m.State == muster.BootDecommissioned:
		return Decommissioned
	case m.Probe:
		d.Mode, d.Rule = Probe, RuleProbe
		if d.Stage == Script || d.Stage == File {
			return Probing
		}
	default:
		return Discovered
	}
	if d.Holder && d.Stage == Address {
		d.Rule = RuleHolder
	}
	return Served
}

// machine: is there a loader for this firmware? What speaks iPXE has its loader
// already.
func (d *Decision) machine(q *Request, env *Env) Reason {
	if q.Via != DHCP || d.Stage == Address {
		return Served
	}
	a := archOf(q.Arch)
	switch {
	case !q.HasArch:
		return NoArch
	case a.goarch == "" || d.Stage == Loader && len(a.loaders) == 0:
		return UnknownArch
	case d.Stage != Loader:
		return Served
	}
	there := false
	if d.Loader, there = a.loader(env.HasLoader); !there {
		return LoaderMissing
	}
	return Served
}

// image: which one, and can it be served?
func (d *Decision) image(m *Machine, pol *Policy, env *Env) Reason {
	switch d.Mode {
	case Enroll:
		d.Named = pol.EnrollmentPI
	case Node:
		d.Named = m.AssignedPI
	case Rescue:
		if d.Named = pol.RescuePI; d.Named == nil {
			d.Named = m.AssignedPI
		}
		if d.Named == nil {
			d.Named = pol.EnrollmentPI
		}
	}
	if d.Stage == Address || d.Mode == Probe {
		return Served
	}
	if d.Named == nil || d.Named.Name == "" || d.Named.Digest == "" {
		return NoImage
	}
	if !muster.ValidStamp(d.Named.Name) {
		return BadStamp
	}
	if d.Image = env.Staged(d.Named.Digest); d.Image == nil {
		return NotStaged
	}
	want := archOf(d.Arch).goarch
	for i := range d.Image.Variants {
		if v := &d.Image.Variants[i]; v.Arch == want {
			d.Variant = v
		}
	}
	if d.Variant == nil {
		return NoVariant
	}
	if d.Mode != Rescue {
		for _, a := range m.KernelArgs {
			if argFault(a) != "" {
				return BadArgs
			}
		}
	}
	return Served
}

// address: the reserved one, and what belongs to it. The record's networking
// goes before its network, but the address is always the reserved one: the
// boot bus knows a machine by it.
func (d *Decision) address(q *Request, m *Machine, pol *Policy, env *Env) Reason {
	if env.Proxy {
		return Served
	}
	if !m.address.IsValid() {
		return NoAddress
	}
	n := m.network(pol)
	d.Gateway, d.DNS, d.Lease, d.NodeConfig = n.gateway, n.dns, n.lease, pol.NodeConfig
	if n.bits < 0 {
		return NoNetwork
	}
	d.Address = netip.PrefixFrom(m.address, n.bits)
	if q.Type == dhcp.Request && !q.AtPXE && q.Claimed.IsValid() && q.Claimed != m.address {
		return OtherAddress
	}
	return Served
}

// again: is it given what it was given in vain several times already? Files of
// a boot that is going on are not held back.
func (d *Decision) again(env *Env) Reason {
	if env.Loop == nil || d.Stage == Address || d.Stage == File {
		return Served
	}
	if d.Loop = env.Loop(d.MAC, d.Mode, digestOf(d), env.Now); d.Loop.Count > 0 {
		return Looping
	}
	return Served
}
