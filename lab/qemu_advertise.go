package lab

import (
	"net"

	"golang.org/x/net/ipv6"
)

// advertise answers router solicitations on the bridge (RFC 4861, section 4.2)
// with a router that routes nothing and a network without prefixes. iPXE asks
// both IP versions for a configuration and waits 14 seconds for the one that
// does not answer; nobody on the segment gets an IPv6 route from this.
func (s *Segment) advertise() error {
	return s.inside(func() error {
		c, err := net.ListenPacket("ip6:ipv6-icmp", "::")
		if err != nil {
			return err
		}
		s.closes(c)
		bridge, err := net.InterfaceByName(s.Bridge)
		if err != nil {
			return err
		}
		p := ipv6.NewPacketConn(c)
		if err := p.JoinGroup(bridge, &net.IPAddr{IP: net.ParseIP("ff02::2")}); err != nil {
			return err
		}
		if err := p.SetMulticastInterface(bridge); err != nil {
			return err
		}
		// So that receivers know that no router has forwarded it.
		if err := p.SetMulticastHopLimit(255); err != nil {
			return err
		}
		go answerSolicitations(c, bridge.Name)
		return nil
	})
}

const (
	routerSolicitation  = 133
	routerAdvertisement = 134
)

func answerSolicitations(c net.PacketConn, bridge string) {
	everybody := &net.IPAddr{IP: net.ParseIP("ff02::1"), Zone: bridge}
	// Type, code, checksum (the kernel's), hop limit 64, no flags, lifetime 0:
	// not a default router; no times.
	answer := make([]byte, 16)
	answer[0], answer[4] = routerAdvertisement, 64
	buf := make([]byte, 1500)
	for {
		n, _, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		if n >= 8 && buf[0] == routerSolicitation {
			c.WriteTo(answer, everybody)
		}
	}
}
