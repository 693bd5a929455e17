package boot

import (
	"net/netip"
	"time"

	"muster.internal"
	"muster.internal/dhcp"
)

// A Request is one machine asking.
type Request struct {
	Via  Via
	MAC  dhcp.MAC
	Want Stage // TFTP and HTTP: what for

	// Arch is option 93; of several, the first that can be served. Over TFTP and HTTP: what is known of the machine
	// otherwise; without HasArch its record is asked.
	Arch    uint16
	HasArch bool

	// The rest is DHCP's, as the packet has it; quirks correct what they know.
	Type         dhcp.MessageType // 0: plain BOOTP
	Class        dhcp.Class
	IPXE         bool
	Mark         dhcp.IPXEMark
	Features     dhcp.Features
	ClassArch    uint16 // the architecture that the class names
	HasClassArch bool
	UBootARM64   bool       // the class is "U-Boot.armv8"
	ServerID     netip.Addr // the server that the client has chosen; not valid: none
	Claimed      netip.Addr // the address it asks for or holds; not valid: none
	AtPXE        bool       // it came to the port of PXE boot servers, 4011
	// AddressOnly: nothing to boot is wanted or can be had.
	AddressOnly bool
}

// FromDHCP reads a request out of a message. Not ok: there is no Ethernet
// address to answer for.
func FromDHCP(p *dhcp.Packet) (r Request, ok bool) {
	r.Via = DHCP
	r.MAC, ok = p.MAC()
	r.Type, r.Class, r.Mark, r.Features = p.Type(), p.Class(), p.IPXEMark(), p.IPXEFeatures()
	r.IPXE = r.Mark == dhcp.IPXEClass // the other spellings are quirks
	r.Arch, r.HasArch = archIn(p)
	r.ClassArch, r.HasClassArch = p.ClassArch()
	r.UBootARM64 = string(p.Get(dhcp.OptClassID)) == "U-Boot.armv8"
	r.ServerID = p.Addr(dhcp.OptServerID)
	if r.Claimed = p.Addr(dhcp.OptRequestedIP); !r.Claimed.IsValid() && !p.CIAddr.IsUnspecified() {
		r.Claimed = p.CIAddr
	}
	return r, ok
}

// archIn is the architecture of a client that may list several: the first that
// something is served to, else the first.
func archIn(p *dhcp.Packet) (uint16, bool) {
	for n := 0; ; n++ {
		a, ok := p.ArchAt(n)
		if !ok {
			return p.Arch()
		}
		if archOf(a).goarch != "" {
			return a, true
		}
	}
}

// boots tells whether the request comes from something that wants to boot.
func (r *Request) boots() bool {
	return r.Via != DHCP || r.IPXE || r.Class == dhcp.PXEClass || r.Class == dhcp.HTTPClass || r.Class == dhcp.UBootClass
}

// renews tells whether the client says that an address is its own already: it
// renews, rebinds, restarts with what it remembers (RFC 2131 §4.3.2), or only
// asks for what goes with its address (§4.3.5).
func (r *Request) renews() bool {
	return (r.Type == dhcp.Request || r.Type == dhcp.Inform) && !r.ServerID.IsValid() && r.Claimed.IsValid() && !r.AtPXE
}

// An Env is what the answer depends on besides record and policy.
type Env struct {
	Now    time.Time
	Server netip.Addr // our address, as the client sees it
	// Proxy: a DHCP server of the site gives addresses; ours are never offered.
	Proxy bool
	// Staged returns the image of a manifest digest if all of it is here and
	// verified, else nil.
	Staged func(digest string) *muster.Image
	// HasLoader tells whether a loader file can be served.
	HasLoader func(name string) bool
	// Loop tells whether a machine is given the same again and again, in this
	// mode with this image; nil: no account is kept.
	Loop func(m dhcp.MAC, mode Mode, image string, now time.Time) Loop
}

// A Loop is one stage that was served again and again without what should
// follow it. Count 0: there is none.
type Loop struct {
	Stage Stage
	Count int       // how often, until serving was stopped
	Until time.Time // when it is tried again
}
