package host

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"muster.internal"
)

// Args are what the boot server tells a machine on the kernel's command line.
type Args struct {
	MAC     string // of the NIC it booted from, canonical
	Address netip.Prefix
	Gateway netip.Addr // may be invalid: none
	Mode    string     // enroll, node, rescue
	Time    time.Time  // of the boot server, when it rendered this
	// UUID is what the machine must call itself; empty: what its firmware says.
	UUID string
	// Once is the URL at which this boot, and no other, finds the hash of the
	// machine's root password; empty: it has none.
	Once string
	// Root is the URL of the root file system that a node lives in, and ends in
	// its SHA-256, RootSum; empty: the node lives in its initrd.
	Root, RootSum string
	// Resolvers are for that root. Leased: its address is a lease of the site's
	// DHCP server, and must be renewed there.
	Resolvers []netip.Addr
	Leased    bool
	// The boot bus.
	BusAddr     string // address:port
	BusUser     string
	BusPassword string
}

// ParseArgs reads the muster.* words of a kernel command line; the last of a
// name counts. An error never quotes the password.
func ParseArgs(cmdline string) (Args, error) {
	said := map[string]string{}
	for _, w := range strings.Fields(cmdline) {
		if k, v, ok := strings.Cut(w, "="); ok && strings.HasPrefix(k, "muster.") {
			said[k] = v
		}
	}
	var a Args
	if len(said) == 0 {
		return a, fmt.Errorf("the kernel's command line has no muster.* words: this machine was not started by muster")
	}
	var err error
	if a.MAC, err = muster.ParseMAC(said["muster.mac"]); err != nil {
		return Args{}, fmt.Errorf("muster.mac: %w", err)
	}
	if a.Address, err = parseAddress(said["muster.ip"]); err != nil || !a.Address.Addr().Is4() {
		return Args{}, fmt.Errorf("muster.ip=%q is not an IPv4 address with its prefix length", said["muster.ip"])
	}
	if gw := said["muster.gw"]; gw != "" {
		if a.Gateway, err = netip.ParseAddr(gw); err != nil || !a.Gateway.Is4() {
			return Args{}, fmt.Errorf("muster.gw=%q is not an IPv4 address", gw)
		}
	}
	switch a.Mode = said["muster.mode"]; Role(a.Mode) {
	case RoleEnroll, RoleNode, RoleRescue:
	default:
		return Args{}, fmt.Errorf("muster.mode=%q is none of enroll, node, rescue", a.Mode)
	}
	secs, err := strconv.ParseInt(said["muster.time"], 10, 64)
	if err != nil || secs < 0 || secs > 253402300799 {
		return Args{}, fmt.Errorf("muster.time=%q is not a time in seconds since 1970", said["muster.time"])
	}
	a.Time = time.Unix(secs, 0).UTC()
	if u := said["muster.uuid"]; u != "" {
		if a.UUID, err = muster.ParseUUID(u); err != nil {
			return Args{}, fmt.Errorf("muster.uuid: %w", err)
		}
	}
	if a.Once = said["muster.once"]; a.Once != "" && !strings.HasPrefix(a.Once, "http://") {
		return Args{}, fmt.Errorf("muster.once is not an http URL")
	}
	if err := a.parseRoot(said); err != nil {
		return Args{}, err
	}
	bus := strings.Split(said["muster.bus"], ":")
	if len(bus) != 4 || bus[0] == "" || bus[1] == "" {
		return Args{}, fmt.Errorf("muster.bus is not USER:PASSWORD:ADDRESS:PORT")
	}
	at, err := netip.ParseAddrPort(bus[2] + ":" + bus[3])
	if err != nil || at.Port() == 0 {
		return Args{}, fmt.Errorf("muster.bus has no address and port")
	}
	a.BusUser, a.BusPassword, a.BusAddr = bus[0], bus[1], at.String()
	return a, nil
}

// rootURL is one that ends in the SHA-256 of what is there.
var rootURL = regexp.MustCompile(`^http://.+/([0-9a-f]{64})$`)

// parseRoot reads what is said of a root file system.
func (a *Args) parseRoot(said map[string]string) error {
	if a.Root = said["muster.root"]; a.Root == "" {
		return nil
	}
	m := rootURL.FindStringSubmatch(a.Root)
	if m == nil {
		return fmt.Errorf("muster.root=%q is not an http URL that ends in a SHA-256", a.Root)
	}
	a.RootSum, a.Leased = m[1], said["muster.dhcp"] != ""
	for _, s := range strings.FieldsFunc(said["muster.dns"], func(r rune) bool { return r == ',' }) {
		addr, err := netip.ParseAddr(s)
		if err != nil {
			return fmt.Errorf("muster.dns=%q is not a list of addresses", said["muster.dns"])
		}
		a.Resolvers = append(a.Resolvers, addr)
	}
	return nil
}

// parseAddress reads an address with the length of its network's prefix or, as
// a boot loader knows it, with its mask.
func parseAddress(s string) (netip.Prefix, error) {
	addr, mask, _ := strings.Cut(s, "/")
	m, err := netip.ParseAddr(mask)
	if err != nil || !m.Is4() {
		return netip.ParsePrefix(s)
	}
	b := m.As4()
	ones := bits.LeadingZeros32(^binary.BigEndian.Uint32(b[:]))
	if binary.BigEndian.Uint32(b[:])<<ones != 0 {
		return netip.Prefix{}, fmt.Errorf("%s is no network mask", mask)
	}
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.PrefixFrom(a, ones), nil
}
