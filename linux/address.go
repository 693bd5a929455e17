package linux

import (
	"net"
	"net/netip"
)

// Address is where others reach this machine, as far as it can tell itself: what
// it would speak from to the world, else any address that is not for itself
// alone, else loopback.
func Address() string {
	for _, far := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} { // nobody's, and nothing is sent
		if c, err := net.Dial("udp", far); err == nil {
			defer c.Close()
			return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().String()
		}
	}
	all, _ := net.InterfaceAddrs() // one that cannot be asked has none
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
			return p.Addr().String()
		}
	}
	return "127.0.0.1"
}
