package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"muster.internal"
	"muster.internal/boot"
	"muster.internal/dhcp"
)

// A Site is what a booter would decide with at one moment.
type Site struct {
	Now      time.Time
	Record   *muster.BootRecord // nil: the machine was never heard of
	Policy   muster.BootPolicy
	Servers  []netip.Addr                      // the booters that may be meant, the one that decides first
	Image    func(digest string) *muster.Image // staged; nil: not
	NoLoader map[string]bool                   // loader files that are missing
}

// Decide asks boot.Decide about a DHCP message. Not ok: it is no request, or
// names no Ethernet address.
func (s Site) Decide(p *dhcp.Packet) (boot.Decision, bool) {
	q, ok := boot.FromDHCP(p)
	if !ok || p.Op != dhcp.BootRequest {
		return boot.Decision{}, false
	}
	return s.Ask(q), true
}

// Ask asks boot.Decide. What is meant for a booter is decided as that one does.
func (s Site) Ask(q boot.Request) boot.Decision {
	var server netip.Addr
	if len(s.Servers) > 0 {
		server = s.Servers[0]
	}
	if slices.Contains(s.Servers, q.ServerID) {
		server = q.ServerID
	}
	return boot.Decide(q, boot.NewMachine(s.Record), boot.NewPolicy(&s.Policy), boot.Env{Now: s.Now, Server: server, Staged: s.staged,
		HasLoader: func(name string) bool { return !s.NoLoader[name] }})
}

func (s Site) staged(digest string) *muster.Image {
	if s.Image == nil {
		return nil
	}
	return s.Image(digest)
}

// Firmware says what a DHCP message tells of who sent it.
func Firmware(p *dhcp.Packet) muster.BootFirmware {
	f := muster.BootFirmware{Message: p.Type().String(), Stage: "an operating system", Arch: -1, Name: "no architecture named",
		Class: plain(p.Get(dhcp.OptClassID), 64), UUID: p.MachineUUID(), Circuit: plain(p.RelaySub(dhcp.RelayCircuitID), 64)}
	if a, ok := p.Arch(); ok {
		f.Arch, f.Name = int(a), boot.ArchName(a)
	}
	switch {
	case p.IPXE():
		f.Stage = "iPXE"
	case p.Class() == dhcp.PXEClass || p.Class() == dhcp.HTTPClass:
		f.Stage = "firmware"
	}
	if !p.GIAddr.IsUnspecified() {
		f.Giaddr = p.GIAddr.String()
	}
	if a := p.Addr(dhcp.OptServerID); a.IsValid() {
		f.Server = a.String()
	}
	if a := p.Addr(dhcp.OptRequestedIP); a.IsValid() {
		f.Claims = a.String()
	} else if !p.CIAddr.IsUnspecified() {
		f.Claims = p.CIAddr.String()
	}
	return f
}

// Reply says what a DHCP answer gives.
func Reply(p *dhcp.Packet) string {
	s := p.Type().String()
	if s == "message type 6" {
		s = "NAK"
	}
	if !p.YIAddr.IsUnspecified() {
		s += " of " + p.YIAddr.String()
	}
	if f := bootFile(p); f != "" {
		s += ", boot file " + f
	}
	if c := p.Get(dhcp.OptClassID); c != nil {
		s += ", class " + plain(c, 32)
	}
	return s
}

// bootFile is the boot file of an answer: option 67, else the header's field.
func bootFile(p *dhcp.Packet) string {
	f := p.Get(dhcp.OptBootFile)
	for len(f) > 0 && f[len(f)-1] == 0 {
		f = f[:len(f)-1]
	}
	if len(f) == 0 {
		f = p.File
	}
	return plain(f, 255)
}

// serverOf is the address of the server that sent an answer.
func serverOf(p *dhcp.Packet) netip.Addr {
	if a := p.Addr(dhcp.OptServerID); a.IsValid() {
		return a
	}
	if !p.SIAddr.IsUnspecified() {
		return p.SIAddr
	}
	return netip.Addr{}
}

// plain makes bytes off the wire safe to show.
func plain(b []byte, n int) string {
	cut := len(b) > n
	b = b[:min(n, len(b))]
	out := make([]byte, len(b))
	for i, c := range b {
		if c < ' ' || c > '~' {
			c = '.'
		}
		out[i] = c
	}
	if cut {
		return fmt.Sprintf("%s… (%d more)", out, len(b)-n)
	}
	return string(out)
}

func parse4(s string) netip.Addr {
	if a, err := netip.ParseAddr(s); err == nil && a.Is4() {
		return a
	}
	return netip.Addr{}
}
