package linux

import (
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// linkWait is how long a NIC may take to appear and to have a carrier.
const linkWait = 30 * time.Second

// NetworkUp gives an address to the NIC with this MAC address, and waits for
// its carrier. It returns the NIC's name.
func (m *Machine) NetworkUp(ctx context.Context, mac string, addr netip.Prefix, gateway netip.Addr) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, linkWait)
	defer cancel()
	nic := ""
	if !poll(ctx, func() bool { nic = nicByMAC(m.Sys, mac); return nic != "" }) {
		return "", fmt.Errorf("no NIC has the address %s; the kernel knows %s: is its driver in the image?", mac, nicNames(m.Sys))
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nic, err
	}
	defer unix.Close(s)
	if err := linkUp(s, "lo"); err != nil {
		return nic, fmt.Errorf("bringing up lo: %w", err)
	}
	if err := linkUp(s, nic); err != nil {
		return nic, fmt.Errorf("bringing up %s: %w", nic, err)
	}
	if err := setAddress(s, nic, addr); err != nil {
		return nic, fmt.Errorf("giving %s the address %s: %w", nic, addr, err)
	}
	if !poll(ctx, func() bool { return attribute(m.Sys, path.Join("class/net", nic, "carrier")) == "1" }) {
		return nic, fmt.Errorf("%s (%s) has no carrier: is its cable in?", nic, mac)
	}
	if gateway.IsValid() {
		if err := defaultRoute(gateway); err != nil {
			return nic, fmt.Errorf("setting the route through %s: %w", gateway, err)
		}
	}
	return nic, nil
}

// poll asks until it is so, or time is up.
func poll(ctx context.Context, so func() bool) bool {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

func nicByMAC(sys fs.FS, mac string) string {
	for _, n := range nicNamesOf(sys) {
		if strings.EqualFold(attribute(sys, path.Join("class/net", n, "address")), mac) {
			return n
		}
	}
	return ""
}

func nicNamesOf(sys fs.FS) []string {
	entries, _ := fs.ReadDir(sys, "class/net")
	var all []string
	for _, e := range entries {
		if e.Name() != "lo" {
			all = append(all, e.Name())
		}
	}
	return all
}

func nicNames(sys fs.FS) string {
	var all []string
	for _, n := range nicNamesOf(sys) {
		all = append(all, n+" ("+attribute(sys, path.Join("class/net", n, "address"))+")")
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

func linkUp(s int, nic string) error {
	r, err := unix.NewIfreq(nic)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, r); err != nil {
		return err
	}
	r.SetUint16(r.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r)
}

func setAddress(s int, nic string, addr netip.Prefix) error {
	mask := make([]byte, 4)
	binary.BigEndian.PutUint32(mask, ^uint32(0)<<(32-addr.Bits()))
	ip := addr.Addr().As4()
	for _, v := range []struct {
		req uint
		ip  []byte
	}{{unix.SIOCSIFADDR, ip[:]}, {unix.SIOCSIFNETMASK, mask}} {
		r, err := unix.NewIfreq(nic)
		if err == nil {
			err = r.SetInet4Addr(v.ip)
		}
		if err == nil {
			err = unix.IoctlIfreq(s, v.req, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// defaultRoute asks for it by rtnetlink (RFC 3549): one message with one
// attribute, and the kernel's answer to it.
func defaultRoute(gateway netip.Addr) error {
	const size = unix.SizeofNlMsghdr + unix.SizeofRtMsg + unix.SizeofRtAttr + 4
	var msg struct {
		unix.NlMsghdr
		unix.RtMsg
		unix.RtAttr
		gateway [4]byte
	}
	msg.NlMsghdr = unix.NlMsghdr{Len: size, Type: unix.RTM_NEWROUTE, Seq: 1,
		Flags: unix.NLM_F_REQUEST | unix.NLM_F_CREATE | unix.NLM_F_REPLACE | unix.NLM_F_ACK}
	msg.RtMsg = unix.RtMsg{Family: unix.AF_INET, Table: unix.RT_TABLE_MAIN, Protocol: unix.RTPROT_BOOT, Scope: unix.RT_SCOPE_UNIVERSE, Type: unix.RTN_UNICAST}
	msg.RtAttr = unix.RtAttr{Len: unix.SizeofRtAttr + 4, Type: unix.RTA_GATEWAY}
	msg.gateway = gateway.As4()
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	if err := unix.Sendto(s, unsafe.Slice((*byte)(unsafe.Pointer(&msg)), size), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	b := make([]byte, 4096)
	n, _, err := unix.Recvfrom(s, b, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(b[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("the kernel answered with %d bytes that are no acknowledgement", n)
	}
	if code := int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
