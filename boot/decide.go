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
	// Loader: the network boot program that firmware loads by TFTP.
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

// A Request is one machine asking.
type Request struct {
	Via  Via
	MAC  dhcp.MAC
	Want Stage // TFTP and HTTP: what for

	// The rest is DHCP's.
	Type     dhcp.MessageType
	Class    dhcp.Class
	IPXE     bool
	Arch     uint16
	HasArch  bool
	ServerID netip.Addr // the server that the client has chosen; not valid: none
	Claimed  netip.Addr // the address it asks for or holds; not valid: none
}

// FromDHCP reads a request out of a message. Not ok: there is no Ethernet
// address to answer for.
func FromDHCP(p *dhcp.Packet) (r Request, ok bool) {
	r.Via = DHCP
	r.MAC, ok = p.MAC()
	r.Type, r.Class, r.IPXE = p.Type(), p.Class(), p.IPXE()
	r.Arch, r.HasArch = p.Arch()
	r.ServerID = p.Addr(dhcp.OptServerID)
	if r.Claimed = p.Addr(dhcp.OptRequestedIP); !r.Claimed.IsValid() && !p.CIAddr.IsUnspecified() {
		r.Claimed = p.CIAddr
	}
	return r, ok
}

// boots tells whether the request comes from something that wants to boot.
func (r *Request) boots() bool {
	return r.Via != DHCP || r.IPXE || r.Class == dhcp.PXEClass || r.Class == dhcp.HTTPClass
}

// An Env is what the answer depends on besides record and policy.
type Env struct {
	Now    time.Time
	Server netip.Addr // our address, as the client sees it
	// Staged returns the image of a manifest digest if all of it is here and
	// verified, else nil.
	Staged func(digest string) *muster.Image
	// HasLoader tells whether a loader file can be served.
	HasLoader func(name string) bool
}

// A Decision is the answer. When it is silence, Reason says why, and the other
// fields hold what is known.
type Decision struct {
	Serve  bool
	Reason Reason // Served, or why not
	Rule   Rule
	// Sight: the control plane should hear of this request.
	Sight bool

	MAC     dhcp.MAC
	State   muster.BootState // empty: there is no record
	Stage   Stage
	Mode    Mode
	Arch    uint16
	Loader  string        // the loader's file name, for firmware
	Image   *muster.Image // nil with modes Nothing and Probe
	Variant *muster.ImageVariant
	Named   *muster.ImageRef // the image as policy or record name it
	Address netip.Prefix     // reserved address and length of its network
	Gateway netip.Addr
	DNS     [3]netip.Addr
	Lease   uint32 // seconds
}

const defaultLease = 3600

// Decide is the rules, top to bottom: the first that applies wins. A nil record
// is a machine that was never heard of.
func Decide(q Request, rec *muster.BootRecord, pol *muster.BootPolicy, env Env) Decision {
	d := Decision{MAC: q.MAC, Stage: q.Want, Arch: q.Arch}
	if rec != nil {
		d.State = rec.State
	}
	if q.Via == DHCP {
		if r := d.message(&q, pol, env.Server); r != Served {
			return d.silent(r)
		}
	} else if rec != nil {
		d.Arch = uint16(rec.Arch)
	}
	if r := d.mode(rec, env.Now); r != Served {
		return d.silent(r)
	}
	if r := d.machine(&q); r != Served {
		return d.silent(r)
	}
	if r := d.image(rec, pol, env); r != Served {
		return d.silent(r)
	}
	if r := d.address(rec, pol); r != Served {
		return d.silent(r)
	}
	if q.Type == dhcp.Request && q.Claimed.IsValid() && q.Claimed != d.Address.Addr() {
		return d.silent(OtherAddress)
	}
	if d.Loader != "" && !env.HasLoader(d.Loader) {
		return d.silent(LoaderMissing)
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
func (d *Decision) message(q *Request, pol *muster.BootPolicy, server netip.Addr) Reason {
	switch {
	case q.Type != dhcp.Discover && q.Type != dhcp.Request:
		return MessageType
	case !q.boots() && q.Class != dhcp.SunClass && pol.AnswerOnlyPXE:
		return NotPXE
	}
	d.Sight = q.boots() || q.Class == dhcp.SunClass
	if q.ServerID.IsValid() && q.ServerID != server {
		return OtherServer
	}
	switch {
	case q.IPXE:
		d.Stage = Start
	case q.boots():
		d.Stage = Loader
	}
	return Served
}

// mode: what may this machine boot at all? Rescue goes before every state.
func (d *Decision) mode(rec *muster.BootRecord, now time.Time) Reason {
	switch {
	case rec == nil:
		return Unknown
	case rec.Mode == muster.RescueMode && rec.RescueUntil != nil && now.Before(*rec.RescueUntil):
		d.Mode, d.Rule = Rescue, RuleRescue
	case rec.State == muster.Enrolling:
		d.Mode, d.Rule = Enroll, RuleEnrolling
	case rec.State == muster.Enrolled:
		d.Mode, d.Rule = Node, RuleEnrolled
	case rec.State == muster.BootDecommissioned:
		return Decommissioned
	case rec.Probe:
		d.Mode, d.Rule = Probe, RuleProbe
		if d.Stage == Script || d.Stage == File {
			return Probing
		}
	default:
		return Discovered
	}
	return Served
}

// machine: is there a loader for this firmware? What speaks iPXE or HTTP has
// its loader already.
func (d *Decision) machine(q *Request) Reason {
	if q.Via != DHCP || !q.boots() {
		return Served
	}
	switch a := archOf(q.Arch); {
	case !q.HasArch || a.goarch == "":
		return UnknownArch
	case q.IPXE:
		return Served
	case q.Class == dhcp.HTTPClass:
		return HTTPBoot
	case a.loader == "":
		return UnknownArch
	default:
		d.Loader = a.loader
	}
	return Served
}

// image: which one, and can it be served?
func (d *Decision) image(rec *muster.BootRecord, pol *muster.BootPolicy, env Env) Reason {
	switch d.Mode {
	case Enroll:
		d.Named = pol.EnrollmentPI
	case Node:
		d.Named = rec.AssignedPI
	case Rescue:
		if d.Named = pol.RescuePI; d.Named == nil {
			d.Named = rec.AssignedPI
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
		for _, a := range rec.KernelArgs {
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
func (d *Decision) address(rec *muster.BootRecord, pol *muster.BootPolicy) Reason {
	a, err := netip.ParseAddr(rec.Address)
	if err != nil || !a.Is4() {
		return NoAddress
	}
	bits, dns := -1, []string(nil)
	d.Lease = defaultLease
	for i := range pol.Networks {
		n := &pol.Networks[i]
		if n.Name != rec.Network {
			continue
		}
		if p, err := netip.ParsePrefix(n.Prefix); err == nil && p.Addr().Is4() {
			bits = p.Bits()
		}
		d.Gateway, dns = parse4(n.Gateway), n.Resolvers
		if n.Lease > 0 {
			d.Lease = uint32(n.Lease)
		}
	}
	if n := rec.Networking; n != nil {
		if p, err := netip.ParsePrefix(n.Address); err == nil && p.Addr().Is4() {
			bits = p.Bits()
		}
		if g := parse4(n.Gateway); g.IsValid() {
			d.Gateway = g
		}
		if len(n.Resolvers) > 0 {
			dns = n.Resolvers
		}
	}
	if bits < 0 {
		return NoNetwork
	}
	d.Address = netip.PrefixFrom(a, bits)
	at := 0
	for _, s := range dns {
		if r := parse4(s); r.IsValid() && at < len(d.DNS) {
			d.DNS[at] = r
			at++
		}
	}
	return Served
}

// parse4 reads an IPv4 address; what is none is not valid.
func parse4(s string) netip.Addr {
	if a, err := netip.ParseAddr(s); err == nil && a.Is4() {
		return a
	}
	return netip.Addr{}
}
