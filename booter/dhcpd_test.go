package booter

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/dhcp"
	"muster.internal/udp"
)

var update = flag.Bool("update", false, "rewrite golden files")

// A firmware is a machine's end of DHCP, as it arrives by way of a relay that
// asks for answers on its own port (RFC 8357), since port 67 needs root.
type firmware struct {
	t     *testing.T
	conn  *net.UDPConn
	mac   dhcp.MAC
	arch  byte
	ipxe  bool
	xid   uint32
	class string
}

func newFirmware(t *testing.T, b *Booter, mac string, arch byte) *firmware {
	t.Helper()
	m, err := dhcp.ParseMAC(mac)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: b.Ports().DHCP})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &firmware{t: t, conn: c, mac: m, arch: arch}
}

func (f *firmware) message(typ dhcp.MessageType) *dhcp.Packet {
	p := &dhcp.Packet{Op: dhcp.BootRequest, Hops: 1, XID: 42, GIAddr: netip.MustParseAddr("127.0.0.1")}
	p.SetMAC(f.mac)
	p.Set(dhcp.OptMessageType, []byte{byte(typ)})
	p.Set(dhcp.OptClassID, []byte(cmp.Or(f.class, "PXEClient:Arch:00007:UNDI:003000")))
	p.Set(dhcp.OptArch, []byte{0, f.arch})
	if f.ipxe {
		p.Set(dhcp.OptUserClass, []byte("iPXE"))
	}
	p.Set(dhcp.OptRelayInfo, []byte{dhcp.RelayCircuitID, 3, 'b', 'r', '1', dhcp.RelaySourcePort, 0})
	return p
}

// ask sends a message and returns the answer to it, nil when none comes.
func (f *firmware) ask(p *dhcp.Packet, patience time.Duration) *dhcp.Packet {
	f.t.Helper()
	f.xid++
	p.XID = f.xid
	if _, err := f.conn.Write(p.Append(nil)); err != nil {
		f.t.Fatal(err)
	}
	f.conn.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 2048)
	for {
		n, err := f.conn.Read(buf)
		if err != nil {
			return nil
		}
		var a dhcp.Packet
		if err := a.Parse(buf[:n]); err != nil {
			f.t.Fatal(err)
		}
		if a.XID == f.xid { // not the late answer to an earlier message
			return &a
		}
	}
}

// lease goes through DISCOVER and REQUEST until there is an ACK.
func (f *firmware) lease() *dhcp.Packet {
	f.t.Helper()
	var offer *dhcp.Packet
	until(f.t, f.mac.String()+" gets an offer", func() bool {
		offer = f.ask(f.message(dhcp.Discover), 100*time.Millisecond)
		return offer != nil
	})
	req := f.message(dhcp.Request)
	req.Set(dhcp.OptServerID, offer.Get(dhcp.OptServerID))
	a := offer.YIAddr.As4()
	req.Set(dhcp.OptRequestedIP, a[:])
	ack := f.ask(req, 5*time.Second)
	if ack == nil || ack.Type() != dhcp.Ack || ack.YIAddr != offer.YIAddr {
		f.t.Fatalf("REQUEST got %+v", ack)
	}
	return ack
}

// TestCapturedFirmware replays what real firmware sent. Each line of the golden
// file is a request and the answer it gets, or the reason for silence.
func TestCapturedFirmware(t *testing.T) {
	p := newPlane()
	ref := p.addImage("node-1", "kernel", "initrd", "amd64", "arm64")
	p.policy.Networks = adminNetwork()
	for i, m := range []string{"a1", "b1", "c1", "d1", "e1", "f1"} {
		r := enrolled(i, ref)
		r.MAC = "52:54:00:77:00:" + m
		p.set(r)
	}
	cfg := loopback(t, p)
	cfg.Ports = Ports{-1, -1, -1, -1, -1}
	b, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	// Captures name their own server: take its address, as if it were us.
	b.cfg.Address = netip.MustParseAddr("10.77.0.1")
	b.site.HTTP = netip.MustParseAddrPort("10.77.0.1:80")
	b.account()
	start(t, b)
	staged(t, b, ref)
	r := newResponder(b, false)
	var out strings.Builder
	var req, ans dhcp.Packet
	for _, f := range capturedRequests(t) {
		if err := req.Parse(f.payload); err != nil {
			t.Fatal(err)
		}
		if v := req.Get(dhcp.OptRequestedIP); v != nil { // what that other server gave
			m, _ := req.MAC()
			copy(v, parse4(b.dir.lookup(m).Address))
		}
		before := b.Counters()
		raw := req.Append(nil)
		got, dst := r.answer(raw, f.src, 0)
		fmt.Fprintf(&out, "%s %v arch %x ipxe %v\n", f.file, req.Type(), req.Get(dhcp.OptArch), req.IPXE())
		if got == nil {
			fmt.Fprintf(&out, "    silence: %s\n", grown(before, b.Counters()))
			continue
		}
		if err := ans.Parse(got); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "    %v to %v, %d bytes, flags %04x, your %v, server %v, file %q\n", ans.Type(), way(dst), len(got), ans.Flags, ans.YIAddr, ans.SIAddr, ans.File)
		for _, o := range ans.Options {
			fmt.Fprintf(&out, "        %d %x %s\n", o.Code, o.Value, readable(o.Value))
		}
	}
	golden(t, "testdata/captured.golden", out.String())
}

func way(r dhcp.Route) string {
	if r.Frame {
		return "the hardware address, " + r.To.String()
	}
	return r.To.String()
}

func readable(b []byte) string {
	for _, c := range b {
		if c < ' ' || c > '~' || len(b) < 5 {
			return ""
		}
	}
	return string(b)
}

func parse4(s string) []byte {
	a := netip.MustParseAddr(s).As4()
	return a[:]
}

func grown(before, after map[string]int64) string {
	for name, n := range after {
		if n > before[name] && strings.HasPrefix(name, "dhcp_") {
			return name
		}
	}
	return "nothing was counted"
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		os.MkdirAll(filepath.Dir(name), 0o755)
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (rewrite with -update):\n%s", name, got)
	}
}

type captured struct {
	file    string
	src     netip.AddrPort
	payload []byte
}

// capturedRequests are the DHCP requests of the captures that package dhcp keeps.
func capturedRequests(t testing.TB) (out []captured) {
	files, _ := filepath.Glob("../dhcp/testdata/pcap/gold-*.pcap")
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for b = b[24:]; len(b) >= 16; {
			n := int(binary.LittleEndian.Uint32(b[8:]))
			eth := b[16 : 16+n]
			b = b[16+n:]
			if len(eth) < 42 || binary.BigEndian.Uint16(eth[12:]) != 0x0800 || eth[23] != 17 || binary.BigEndian.Uint16(eth[36:]) != 67 {
				continue
			}
			u := eth[14+int(eth[14]&15)*4:]
			if u[8] == dhcp.BootRequest {
				out = append(out, captured{filepath.Base(name), netip.AddrPortFrom(netip.AddrFrom4([4]byte(eth[26:30])),
					binary.BigEndian.Uint16(u)), u[8:binary.BigEndian.Uint16(u[4:])]})
			}
		}
	}
	if len(out) < 20 {
		t.Fatalf("only %d captured requests", len(out))
	}
	return out
}

func TestPacketPathMakesNoGarbage(t *testing.T) {
	p := newPlane()
	ref := p.addImage("node-1", "kernel", "initrd")
	p.policy.Networks = adminNetwork()
	p.set(enrolled(1, ref))
	p.set(muster.BootRecord{MAC: mac(2), State: muster.BootDecommissioned})
	b, _ := run(t, loopback(t, p))
	staged(t, b, ref)
	r := newResponder(b, false)
	src := netip.MustParseAddrPort("127.0.0.1:4011")
	for name, f := range map[string]*firmware{"served": newFirmware(t, b, mac(1), 7), "silent": newFirmware(t, b, mac(2), 7)} {
		msg := f.message(dhcp.Discover).Append(nil)
		got, _ := r.answer(msg, src, 0) // the first time there is something to report and to log
		if (got != nil) != (name == "served") {
			t.Fatalf("%s: %x", name, got)
		}
		until(t, "the sighting is told", func() bool { return len(p.sightings()) > 0 })
		if n := testing.AllocsPerRun(100, func() { r.answer(msg, src, 0) }); n != 0 {
			t.Errorf("%s: %v allocations for each packet", name, n)
		}
	}
}

// deaf is a responder that knows 10,000 machines, without sockets.
func deaf() *responder { return deafTo(10000) }

func deafTo(machines int) *responder {
	bo := &Booter{cfg: Config{Name: "b", Address: netip.MustParseAddr("10.77.0.1")}, now: time.Now, dir: newDirectory(), tally: &tally{}, loaders: &loaders{}}
	p := newPlane()
	ref := p.addImage("node-1", "kernel", "initrd")
	i := p.images[ref.Digest]
	bo.stage = &stage{images: map[string]*muster.Image{ref.Digest: &i}}
	bo.loaders.files.Store(&map[string][]byte{"snponly.efi": {1}, "undionly.kpxe": {1}})
	log := slog.New(slog.DiscardHandler)
	bo.sight, bo.quiet = newSightings("b", p, bo.dir, log, bo.tally), newSilences(log, bo.tally)
	bo.traces = newTraces("b", p, log, bo.tally)
	pol := muster.DefaultBootPolicy()
	pol.Networks = adminNetwork()
	f := muster.BooterFeed{Policy: &pol}
	for n := range machines {
		f.Records = append(f.Records, enrolled(n, ref))
	}
	bo.dir.Apply(0, f)
	bo.account()
	return newResponder(bo, false)
}

// BenchmarkAnswer is a four-way exchange without the system calls. The cost must
// not grow with the number of records. With as many machines asking at every
// size only the search differs; with all of them by turns each is out of the
// processor's caches again, too. CPU time is what counts on a busy machine.
func BenchmarkAnswer(b *testing.B) {
	src := netip.MustParseAddrPort("127.0.0.1:4011")
	for _, records := range []int{10, 10000, 100000} {
		r := deafTo(records)
		for _, asking := range slices.Compact([]int{10, records}) {
			machines := make([]dhcp.MAC, asking)
			addresses := make([][4]byte, asking)
			for i := range machines {
				known := enrolled(i*7919%asking*(records/asking), nil) // neighbours in time are none in the table
				machines[i], _ = dhcp.ParseMAC(known.MAC)
				addresses[i] = [4]byte(parse4(known.Address))
			}
			f := &firmware{arch: 7, mac: machines[0]}
			discover, request := f.message(dhcp.Discover), f.message(dhcp.Request)
			request.Set(dhcp.OptServerID, []byte{10, 77, 0, 1})
			request.Set(dhcp.OptRequestedIP, addresses[0][:])
			msgs := [2][]byte{discover.Append(nil), request.Append(nil)}
			claimed := bytes.LastIndex(msgs[1], append([]byte{dhcp.OptRequestedIP, 4}, addresses[0][:]...)) + 2
			b.Run(fmt.Sprintf("records=%d/asking=%d", records, asking), func(b *testing.B) {
				exchange := func(i int) {
					copy(msgs[1][claimed:], addresses[i][:])
					for _, msg := range msgs {
						copy(msg[28:], machines[i][:])
						if out, _ := r.answer(msg, src, 0); out == nil {
							b.Fatalf("silence: %s", r.x.Decision.Why())
						}
					}
				}
				for i := range machines { // what is kept of each is made at its first
					exchange(i)
				}
				runtime.GC()
				b.ReportAllocs()
				var before, after syscall.Rusage
				syscall.Getrusage(syscall.RUSAGE_SELF, &before)
				for i := 0; b.Loop(); i++ {
					exchange(i % asking)
				}
				syscall.Getrusage(syscall.RUSAGE_SELF, &after)
				used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
				b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// FuzzAnswer: whatever comes, an answer is whole, is an OFFER or an ACK (or BOOTP to BOOTP), and
// goes to a machine that is known; never a NAK.
func FuzzAnswer(f *testing.F) {
	for _, c := range capturedRequests(f) {
		f.Add(c.payload)
	}
	fw := &firmware{mac: dhcp.MAC{0x52, 0x54, 0, 0x77, 0, 7}, arch: 7}
	f.Add(fw.message(dhcp.Discover).Append(nil))
	f.Add(fw.message(dhcp.Request).Append(nil))
	r := deaf()
	src := netip.MustParseAddrPort("127.0.0.1:4011")
	f.Fuzz(func(t *testing.T, raw []byte) {
		out, _ := r.answer(raw, src, 0)
		if out == nil {
			return
		}
		var a dhcp.Packet
		if len(out) > dhcp.MaxSize {
			return // echoed options of a message that was long already
		}
		if err := a.Parse(out); err != nil || len(out) < dhcp.MinSize {
			t.Fatalf("%d bytes, %v", len(out), err)
		}
		m, ok := a.MAC()
		if typ := a.Type(); !ok || typ != dhcp.Offer && typ != dhcp.Ack && (typ != 0 || r.x.Request.Type != 0) || r.b.dir.lookup(m) == nil {
			t.Fatalf("%v to %v", typ, m)
		}
	})
}

func TestNoise(t *testing.T) {
	p := newPlane()
	b, _ := run(t, loopback(t, p))
	f := newFirmware(t, b, mac(1), 0)
	for _, raw := range [][]byte{nil, {1}, make([]byte, 300), make([]byte, 5000)} {
		f.conn.Write(raw)
	}
	reply := f.message(dhcp.Offer)
	reply.Op = dhcp.BootReply
	f.conn.Write(reply.Append(nil))
	infini := f.message(dhcp.Discover)
	infini.HType = 32
	f.conn.Write(infini.Append(nil))
	until(t, "noise is counted", func() bool {
		c := b.Counters()
		return c["dhcp_malformed"] >= 4 && c["dhcp_not_ethernet"] == 1
	})
	if len(p.sightings()) != 0 {
		t.Errorf("noise was reported as machines: %+v", p.sightings())
	}
}

// TestOneBadAnswerStopsNoOther: answers go out together, and one that the kernel
// does not take is counted and costs its neighbours nothing.
func TestOneBadAnswerStopsNoOther(t *testing.T) {
	near, err := listenUDP(netip.MustParseAddrPort("127.0.0.1:0"), "")
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	quick, err := udp.NewMessages(near)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	b := &Booter{log: slog.New(slog.NewTextHandler(&log, nil)), tally: &tally{}}
	v := &voice{b: b, conn: quick, bound: true}
	way := dhcp.Route{To: far.LocalAddr().(*net.UDPAddr).AddrPort()}
	for range 2 { // its memory is used again
		v.say([]byte("one"), way, dhcp.MAC{2, 0, 0, 0, 0, 1}, 0)
		v.say(make([]byte, 1<<16), way, dhcp.MAC{2, 0, 0, 0, 0, 2}, 0)
		v.say([]byte("three"), way, dhcp.MAC{2, 0, 0, 0, 0, 3}, 0)
		v.flush()
		in := make([]byte, 100)
		far.SetReadDeadline(time.Now().Add(10 * time.Second))
		for _, want := range []string{"one", "three"} {
			if n, err := far.Read(in); string(in[:n]) != want {
				t.Errorf("%q instead of %q, %v", in[:n], want, err)
			}
		}
	}
	if n := b.tally.counts[countSendErrors].Load(); n != 2 || strings.Count(log.String(), "02:00:00:00:00:02") != 2 {
		t.Errorf("%d errors counted: %s", n, log.String())
	}
}
