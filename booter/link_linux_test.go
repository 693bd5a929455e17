package booter

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"muster.internal"
	"muster.internal/dhcp"
	"muster.internal/udp"
)

// inside runs a test again in a network namespace of its own, and tells whether
// this is that run.
func inside(t *testing.T) bool {
	const mark = "MUSTER_TEST_NAMESPACE"
	if os.Getenv(mark) == t.Name() {
		return true
	}
	if os.Getuid() != 0 {
		t.Skip("it takes root to make a network namespace")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("there is no ip (package iproute2) to make a link with")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil && cmd.ProcessState == nil:
		t.Skip("this system does not let us make a network namespace: ", err)
	case err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// A wire is the machines' end of an Ethernet whose other end, seg0, has
// 10.77.0.1. It sees and sends whole frames.
type wire struct {
	t  *testing.T
	fd int
}

const wireMAC = "52:54:00:00:00:99"

func newWire(t *testing.T) *wire {
	t.Helper()
	for _, c := range []string{"link set lo up", "link add seg0 type veth peer name seg1 address " + wireMAC, "address add 10.77.0.1/16 dev seg0",
		"link set seg0 up", "link set seg1 up",
		// Who has these addresses would answer ARP from a machine of its own.
		"neighbour add 10.77.0.2 lladdr " + wireMAC + " dev seg0", "neighbour add 10.77.0.102 lladdr " + wireMAC + " dev seg0"} {
		if out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", c, err, out)
		}
	}
	i, err := net.InterfaceByName("seg1")
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(udp.NetworkOrder(unix.ETH_P_ALL)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: udp.NetworkOrder(unix.ETH_P_ALL), Ifindex: i.Index}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}); err != nil {
		t.Fatal(err)
	}
	return &wire{t, fd}
}

// say puts a datagram on the wire, as from somebody with this address.
func (w *wire) say(m dhcp.MAC, from, to string, payload []byte) {
	w.t.Helper()
	w.put(m, dhcp.AppendDatagram(nil, netip.MustParseAddrPort(from), netip.MustParseAddrPort(to), payload))
}

// put puts a datagram on the wire as it is.
func (w *wire) put(m dhcp.MAC, datagram []byte) {
	w.t.Helper()
	eth := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, m[:]...)
	eth = append(append(eth, 8, 0), datagram...)
	if _, err := unix.Write(w.fd, eth); err != nil {
		w.t.Fatal(err)
	}
}

// A heardFrame is a datagram of the booter's.
type heardFrame struct {
	hardware dhcp.MAC // that it is for
	from, to netip.AddrPort
	raw      []byte // from the IPv4 header on
	p        dhcp.Packet
}

// hear returns the answer to a message, nil when none comes.
func (w *wire) hear(xid uint32, patience time.Duration) *heardFrame {
	buf := make([]byte, 2048)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		n, err := unix.Read(w.fd, buf)
		if err != nil || n < 42 || buf[12] != 8 || buf[13] != 0 || buf[23] != unix.IPPROTO_UDP { // a tag of a VLAN would stand at 12
			continue
		}
		f := &heardFrame{hardware: dhcp.MAC(buf[:6]), raw: append([]byte(nil), buf[14:n]...)}
		b := f.raw
		f.from = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[12:16])), binary.BigEndian.Uint16(b[20:]))
		f.to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[16:20])), binary.BigEndian.Uint16(b[22:]))
		if f.p.Parse(b[28:]) == nil && f.p.XID == xid && f.p.Op == dhcp.BootReply {
			return f
		}
	}
	return nil
}

// whole tells whether both checksums of a datagram are right.
func (f *heardFrame) whole() bool {
	sum := func(acc uint32, b []byte) uint16 {
		if len(b)%2 == 1 {
			b = append(b[:len(b):len(b)], 0)
		}
		for ; len(b) > 0; b = b[2:] {
			acc += uint32(binary.BigEndian.Uint16(b))
		}
		for acc > 0xffff {
			acc = acc>>16 + acc&0xffff
		}
		return uint16(acc)
	}
	return sum(0, f.raw[:20]) == 0xffff && sum(uint32(17+len(f.raw)-20), f.raw[12:]) == 0xffff &&
		int(binary.BigEndian.Uint16(f.raw[2:])) == len(f.raw)
}

// onLink is a booter on seg0 that knows machines 1 and 2, of which only the
// first boots something, and its log.
func onLink(t *testing.T) (*wire, *Booter, *plane, *lines) {
	w := newWire(t)
	p := newPlane()
	ref := p.addImage("node-1", "kernel", "initrd")
	p.policy.Networks = adminNetwork()
	p.set(enrolled(1, ref))
	p.set(enrolled(2, nil))
	log := &lines{t: t}
	cfg := loopback(t, p)
	cfg.Address, cfg.Interface, cfg.Log = netip.MustParseAddr("10.77.0.1"), "seg0", slog.New(slog.NewTextHandler(log, nil))
	cfg.Ports = Ports{DHCP: dhcp.ServerPort, TFTP: -1, HTTP: -1, Bus: -1}
	b, _ := run(t, cfg)
	staged(t, b, ref)
	return w, b, p, log
}

// TestAnswersOnALink: where an answer goes, as frames on a real interface, for
// every way that RFC 2131 §4.1 and RFC 8357 know.
func TestAnswersOnALink(t *testing.T) {
	if !inside(t) {
		return
	}
	w, b, _, _ := onLink(t)
	everybody := dhcp.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	station, err := dhcp.ParseMAC(wireMAC)
	if err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		name     string
		machine  int
		typ      dhcp.MessageType
		set      func(*dhcp.Packet)
		from     string
		to       string // the booter's answer goes to
		hardware dhcp.MAC
		frame    bool
	}{
		{"no address, no flag", 1, dhcp.Discover, func(*dhcp.Packet) {}, "0.0.0.0:68", "10.77.0.102:68", dhcp.MAC{}, true},
		{"REQUEST, no flag", 1, dhcp.Request, func(p *dhcp.Packet) { p.Set(dhcp.OptServerID, []byte{10, 77, 0, 1}) }, "0.0.0.0:68", "10.77.0.102:68", dhcp.MAC{}, true},
		{"the flag", 1, dhcp.Discover, func(p *dhcp.Packet) { p.Flags = dhcp.BroadcastFlag }, "0.0.0.0:68", "255.255.255.255:68", everybody, false},
		{"renewing", 1, dhcp.Request, func(p *dhcp.Packet) { p.CIAddr = netip.MustParseAddr("10.77.0.102") }, "10.77.0.102:68", "10.77.0.102:68", station, false},
		{"a relay", 1, dhcp.Discover, func(p *dhcp.Packet) {
			p.GIAddr, p.Hops = netip.MustParseAddr("10.77.0.2"), 1
			p.Set(dhcp.OptRelayInfo, []byte{dhcp.RelayCircuitID, 2, 'p', '1'})
		}, "10.77.0.2:67", "10.77.0.2:67", station, false},
		{"a relay with a flag", 1, dhcp.Discover, func(p *dhcp.Packet) {
			p.GIAddr, p.Hops, p.Flags = netip.MustParseAddr("10.77.0.2"), 1, dhcp.BroadcastFlag
		}, "10.77.0.2:67", "10.77.0.2:67", station, false},
		{"a relay on a port of its own", 1, dhcp.Discover, func(p *dhcp.Packet) {
			p.GIAddr, p.Hops = netip.MustParseAddr("10.77.0.2"), 1
			p.Set(dhcp.OptRelayInfo, []byte{dhcp.RelaySourcePort, 0})
		}, "10.77.0.2:40067", "10.77.0.2:40067", station, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.t = t
			f := &firmware{mac: mustMAC(t, mac(tt.machine)), arch: 7}
			q := f.message(tt.typ)
			q.Hops, q.GIAddr = 0, netip.IPv4Unspecified()
			q.Delete(dhcp.OptRelayInfo)
			tt.set(q)
			q.XID = uint32(i + 1)
			w.say(f.mac, tt.from, "255.255.255.255:67", q.Append(nil))
			a := w.hear(q.XID, 5*time.Second)
			if a == nil {
				t.Fatalf("silence: %v", b.Counters())
			}
			hardware := tt.hardware
			if tt.frame {
				hardware = f.mac
			}
			if a.hardware != hardware || a.to.String() != tt.to || a.from.String() != "10.77.0.1:67" {
				t.Errorf("to %v at %v from %v, want %s at %v", a.to, a.hardware, a.from, tt.to, hardware)
			}
			if tt.frame && !a.whole() {
				t.Errorf("the datagram is damaged: %x", a.raw)
			}
			if a.p.YIAddr.String() != "10.77.0.102" || a.p.GIAddr != q.GIAddr || a.p.Flags != q.Flags {
				t.Errorf("%+v", a.p)
			}
		})
	}
	until(t, "both frames are counted", func() bool { return b.Counters()["dhcp_frames"] == 2 })
	if n := b.Counters()["dhcp_frame_errors"] + b.Counters()["dhcp_send_errors"]; n != 0 {
		t.Errorf("%d answers could not be sent", n)
	}
}

// TestRogueServerOnALink: a server that answers our machines with addresses of
// its own is warned of once, and reported for muster booter ls. What goes by
// without being a server's is not taken for one.
func TestRogueServerOnALink(t *testing.T) {
	if !inside(t) {
		return
	}
	w, b, p, log := onLink(t)
	rogue := dhcp.MAC{2, 0, 0, 0, 0, 9}
	f := &firmware{mac: mustMAC(t, mac(1)), arch: 7}
	for xid := uint32(1); xid <= 3; xid++ {
		q := f.message(dhcp.Discover)
		q.Hops, q.GIAddr, q.XID = 0, netip.IPv4Unspecified(), xid
		q.Delete(dhcp.OptRelayInfo)
		w.say(f.mac, "0.0.0.0:68", "255.255.255.255:67", q.Append(nil))
		if w.hear(xid, 5*time.Second) == nil { // ours
			t.Fatalf("silence: %v", b.Counters())
		}
		q.Op, q.YIAddr = dhcp.BootReply, netip.MustParseAddr("192.168.0.77") // and the other's
		q.Set(dhcp.OptMessageType, []byte{byte(dhcp.Offer)})
		q.Set(dhcp.OptServerID, []byte{192, 168, 0, 1})
		w.say(rogue, "192.168.0.1:67", "255.255.255.255:68", q.Append(nil))
		w.say(rogue, "192.168.0.1:5000", "255.255.255.255:68", q.Append(nil)) // not from the servers' port
		w.say(rogue, "192.168.0.1:67", "255.255.255.255:68", []byte("nonsense"))
	}
	until(t, "the other server is noticed", func() bool { l := b.rivals.list(); return len(l) == 1 && l[0].Differs == 3 })
	if n := strings.Count(log.String(), "a second DHCP server answers on this segment"); n != 1 {
		t.Errorf("warned %d times:\n%s", n, log)
	}
	poke(b.report)
	var told []muster.OtherServer
	until(t, "it is reported", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		told = p.status.OtherServers
		return len(told) == 1
	})
	if s := told[0]; s.Address != "192.168.0.1" || s.Offered != "192.168.0.77" || s.MAC != mac(1) || s.Same != 0 {
		t.Errorf("%+v", s)
	}
	until(t, "all our answers left as frames", func() bool { return b.Counters()["dhcp_frames"] == 3 })
}

// TestOnlyServersAreHeard: what the kernel lets through to the watch for other
// DHCP servers. Each message is followed by one that is heard: when that comes
// first, the message was dropped.
func TestOnlyServersAreHeard(t *testing.T) {
	if !inside(t) {
		return
	}
	w := newWire(t)
	f, err := openFrames("seg0")
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	relay := mustMAC(t, wireMAC)
	datagram := func(from string, op byte, mark string) []byte {
		payload := append(make([]byte, 240), mark...)
		payload[0] = op
		return dhcp.AppendDatagram(nil, netip.MustParseAddrPort(from), netip.MustParseAddrPort("10.77.0.1:67"), payload)
	}
	reply := func() []byte { return datagram("10.77.0.2:67", dhcp.BootReply, "it") }
	changed := func(at int, v byte) []byte { d := reply(); d[at] = v; return d }
	for _, tt := range []struct {
		name     string
		datagram []byte
		heard    bool
	}{
		{"a server's answer", reply(), true},
		{"a server's answer behind IP options", func() []byte { // more than the filter knows the place of
			d := slices.Insert(reply(), 20, 1, 1, 1, 1)
			d[0], d[3] = 0x46, d[3]+4
			return d
		}(), true},
		{"a request that a relay passes on", datagram("10.77.0.2:67", dhcp.BootRequest, "it"), false},
		{"a machine's request", datagram("0.0.0.0:68", dhcp.BootRequest, "it"), false},
		{"an answer of no server", datagram("10.77.0.2:5000", dhcp.BootReply, "it"), false},
		{"a fragment", changed(7, 1), false},
		{"another protocol", changed(9, unix.IPPROTO_TCP), false},
		{"too short for a message", reply()[:28], false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.t = t
			w.put(relay, tt.datagram)
			w.put(relay, datagram("10.77.0.2:67", dhcp.BootReply, "next"))
			buf := make([]byte, 2048)
			f.ears.SetReadDeadline(time.Now().Add(10 * time.Second))
			for _, mark := range []string{"it", "next"} {
				if mark == "it" && !tt.heard {
					continue
				}
				payload, from, err := f.receive(buf)
				if err != nil || len(payload) < 240 || string(payload[240:]) != mark || from.String() != "10.77.0.2" {
					t.Fatalf("%q from %v, %v; want %q", payload[min(len(payload), 240):], from, err, mark)
				}
			}
		})
	}
}

func mustMAC(t *testing.T, s string) dhcp.MAC {
	t.Helper()
	m, err := dhcp.ParseMAC(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
