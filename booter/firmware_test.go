package booter

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/dhcp"
)

// TestHTTPBoot goes the way of UEFI HTTP boot, of both architectures: an offer
// of its class with a URL, the size, the program, then iPXE's own request.
func TestHTTPBoot(t *testing.T) {
	for _, tt := range []struct {
		arch   byte
		goarch string
		build  string
		loader string
	}{{16, "amd64", "x86_64", "snponly.efi"}, {19, "arm64", "arm64", "ipxe-arm64.efi"}} {
		t.Run(tt.goarch, func(t *testing.T) {
			p := newPlane()
			ref := p.addImage("node-1", "kernel", "initrd", "amd64", "arm64")
			p.policy.Networks = adminNetwork()
			p.set(enrolled(1, ref)) // its record says BIOS
			b, _ := run(t, loopback(t, p))
			staged(t, b, ref)
			f := newFirmware(t, b, mac(1), tt.arch)
			f.class = "HTTPClient:Arch:00016:UNDI:003000"
			ack := f.lease()
			url := string(ack.Get(dhcp.OptBootFile))
			if string(ack.Get(dhcp.OptClassID)) != "HTTPClient" || ack.Get(dhcp.OptVendorInfo) != nil || ack.Get(dhcp.OptTFTPServer) != nil ||
				!strings.HasSuffix(url, "/boot/52-54-00-77-00-01/"+tt.loader) {
				t.Fatalf("answer %+v", ack)
			}
			program, err := os.ReadFile(filepath.Join(b.cfg.IPXE, tt.loader))
			if err != nil {
				t.Fatal(err)
			}
			head, err := http.Head(url)
			if err != nil || head.StatusCode != 200 || head.ContentLength != int64(len(program)) || head.Header.Get("Content-Type") != "application/efi" {
				t.Fatalf("HEAD: %v %v", head, err)
			}
			if got := get(t, url, 200); got != string(program) {
				t.Fatalf("got %d bytes, want %d", len(got), len(program))
			}
			dir := url[:strings.LastIndex(url, "/")]
			if got := get(t, dir+"/autoexec.ipxe", 200); got != "" {
				t.Errorf("autoexec.ipxe: %q", got)
			}
			get(t, dir+"/snponly-arm64.efi", 404) // a loader that is not there
			script := get(t, dir+"/script.ipxe?uuid=&serial=&product=x&buildarch="+tt.build, 200)
			if !strings.Contains(script, "kernel --name kernel "+dir+"/file/") {
				t.Errorf("script: %s", script)
			}
		})
	}
}

// TestArchOfTheMomentGoesBeforeTheRecord: a record made by hand says BIOS; the
// files are those of the machine that really asks.
func TestArchOfTheMomentGoesBeforeTheRecord(t *testing.T) {
	p := newPlane()
	ref := p.addImage("node-1", "kernel", "initrd") // amd64 only
	p.policy.Networks = adminNetwork()
	p.set(enrolled(1, ref))
	b, _ := run(t, loopback(t, p))
	staged(t, b, ref)
	url := b.site.URL(dhcp.MAC{0x52, 0x54, 0, 0x77, 0, 1}) + "/script.ipxe?uuid=&serial=&product=a&b"
	get(t, url, 200)
	if why := get(t, url+"&buildarch=arm64", 404); !strings.Contains(why, "nothing for UEFI arm64") {
		t.Errorf("an arm64 iPXE is told %q", why)
	}
	get(t, url, 404) // it is still the same machine
	get(t, url+"&buildarch=i386", 200)
	f := newFirmware(t, b, mac(1), 11)
	if a := f.ask(f.message(dhcp.Discover), 50*time.Millisecond); a != nil {
		t.Errorf("an arm64 machine is offered an image for amd64: %+v", a)
	}
	until(t, "the silence is counted", func() bool { return b.Counters()["dhcp_silent_no_variant"] == 1 })
}

func TestUBoot(t *testing.T) {
	p := newPlane()
	ref := p.addImage("node-1", "kernel", "initrd", "arm64")
	p.policy.Networks = adminNetwork()
	p.set(enrolled(1, ref))
	b, _ := run(t, loopback(t, p))
	staged(t, b, ref)
	f := newFirmware(t, b, mac(1), 22)
	f.class = "U-Boot.armv8"
	for _, typ := range []dhcp.MessageType{dhcp.Discover, 0} { // 0: its command bootp
		q := f.message(typ)
		if typ == 0 {
			q.Delete(dhcp.OptMessageType)
			q.Delete(dhcp.OptArch)
		}
		a := f.ask(q, 5*time.Second)
		if a == nil {
			t.Fatalf("%v: silence, %v", typ, b.Counters())
		}
		if string(a.File) != "52-54-00-77-00-01/ipxe-arm64.efi" || a.SIAddr != netip.MustParseAddr("127.0.0.1") || a.Get(dhcp.OptClassID) != nil {
			t.Errorf("%v: file %q at %v, %+v", typ, a.File, a.SIAddr, a.Options)
		}
		if typ == 0 && (a.Get(dhcp.OptMessageType) != nil || a.Get(dhcp.OptLeaseTime) != nil) {
			t.Errorf("plain BOOTP is answered by DHCP: %+v", a.Options)
		}
	}
}

// TestHolderKeepsItsAddress: whoever holds a served record's address renews it,
// whatever it is and whatever is wrong with what it would boot.
func TestHolderKeepsItsAddress(t *testing.T) {
	p := newPlane()
	ref := p.addImage("node-1", "kernel", "initrd")
	p.policy.Networks = adminNetwork()
	p.set(enrolled(1, ref))
	r := enrolled(2, nil)
	p.set(r) // no image at all
	gone := enrolled(3, ref)
	gone.State = muster.BootDecommissioned
	p.set(gone)
	b, _ := run(t, loopback(t, p))
	staged(t, b, ref)
	for n, want := range map[int]dhcp.MessageType{1: dhcp.Ack, 2: dhcp.Ack, 3: 0} {
		for _, class := range []string{"SUNW.i86pc", "none", "PXEClient:Arch:00007:UNDI:003000"} {
			for _, how := range []string{"renewing", "init-reboot", "another address", "discover"} {
				f := newFirmware(t, b, mac(n), 7)
				f.class = class
				q := f.message(dhcp.Request)
				if class == "none" {
					q.Delete(dhcp.OptClassID)
				}
				mine := netip.MustParseAddr(enrolled(n, nil).Address)
				expect := want
				switch how {
				case "renewing":
					q.CIAddr = mine
				case "init-reboot":
					a := mine.As4()
					q.Set(dhcp.OptRequestedIP, a[:])
				case "another address":
					q.Set(dhcp.OptRequestedIP, []byte{10, 77, 9, 9})
					expect = 0
				case "discover":
					q.Set(dhcp.OptMessageType, []byte{byte(dhcp.Discover)})
					if expect = dhcp.Offer; n == 3 || class == "none" || n == 2 && class[0] == 'P' {
						expect = 0
					}
				}
				patience := 5 * time.Second
				if expect == 0 {
					patience = 20 * time.Millisecond
				}
				a := f.ask(q, patience)
				switch {
				case a == nil && expect != 0:
					t.Errorf("machine %d, %s, %s: silence %v", n, class, how, b.Counters())
				case a != nil && (a.Type() != expect || a.YIAddr != mine):
					t.Errorf("machine %d, %s, %s: %v of %v", n, class, how, a.Type(), a.YIAddr)
				}
			}
		}
	}
}

// TestInform: an INFORM of the holder gets what goes with its address, and no
// lease (RFC 2131 §4.3.5).
func TestInform(t *testing.T) {
	p := newPlane()
	p.policy.Networks = adminNetwork()
	p.set(enrolled(1, nil))
	log := &lines{t: t}
	cfg := loopback(t, p)
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	b, _ := run(t, cfg)
	until(t, "the record is known", func() bool { _, ok := b.dir.Record(mac(1)); return ok })
	f := newFirmware(t, b, mac(1), 7)
	q := f.message(dhcp.Inform)
	q.Delete(dhcp.OptClassID)
	q.CIAddr = netip.MustParseAddr(enrolled(1, nil).Address)
	a := f.ask(q, 5*time.Second)
	if a == nil || a.Type() != dhcp.Ack || !a.YIAddr.IsUnspecified() || a.Get(dhcp.OptLeaseTime) != nil || a.Get(dhcp.OptRouter) == nil {
		t.Fatalf("%+v", a)
	}
	if a := f.ask(f.message(dhcp.Decline), 20*time.Millisecond); a != nil {
		t.Errorf("a DECLINE is answered: %+v", a)
	}
	f.ask(f.message(dhcp.Release), 20*time.Millisecond)
	until(t, "both are told", func() bool {
		return strings.Contains(log.String(), "level=WARN msg=\"not served\" mac="+mac(1)+" via=DHCP reason=declined") && b.Counters()["dhcp_silent_released"] == 1
	})
}

// TestProxy: beside a DHCP server of the site a booter says what to boot and
// gives no address; a bus session counts by the address that server gave.
func TestProxy(t *testing.T) {
	p := newPlane()
	ref := p.addImage("node-1", "kernel", "initrd")
	p.set(func() muster.BootRecord { r := enrolled(1, ref); r.Address = ""; return r }())
	log := &lines{t: t}
	cfg := loopback(t, p)
	cfg.Proxy, cfg.Log = true, slog.New(slog.NewTextHandler(log, nil))
	b, _ := run(t, cfg)
	staged(t, b, ref)
	f := newFirmware(t, b, mac(1), 7)
	offer := f.ask(f.message(dhcp.Discover), 5*time.Second)
	if offer == nil || !offer.YIAddr.IsUnspecified() || offer.Get(dhcp.OptLeaseTime) != nil || offer.Get(dhcp.OptSubnetMask) != nil ||
		string(offer.Get(dhcp.OptClassID)) != "PXEClient" || string(offer.Get(dhcp.OptVendorInfo)) != "\x06\x01\x08\xff" ||
		string(offer.File) != "52-54-00-77-00-01/snponly.efi" {
		t.Fatalf("%+v", offer)
	}
	site := f.message(dhcp.Request)
	site.Set(dhcp.OptServerID, []byte{192, 0, 2, 1})
	site.Set(dhcp.OptRequestedIP, []byte{192, 0, 2, 77})
	if a := f.ask(site, 20*time.Millisecond); a != nil {
		t.Errorf("the site's lease is answered: %+v", a)
	}
	until(t, "the site's address is known", func() bool { r, _ := b.dir.Record(mac(1)); return r.Address == "192.0.2.77" })
	// The second way, of firmware that insists: a request to the boot server.
	at, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: b.Ports().PXE})
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	g := *f
	g.conn = at
	q := f.message(dhcp.Request)
	q.GIAddr, q.CIAddr = netip.IPv4Unspecified(), netip.MustParseAddr("192.0.2.78")
	ack := g.ask(q, 5*time.Second)
	if ack == nil || ack.Type() != dhcp.Ack || !ack.YIAddr.IsUnspecified() || string(ack.File) != "52-54-00-77-00-01/snponly.efi" {
		t.Fatalf("%+v", ack)
	}
	if r, _ := b.dir.Record(mac(1)); r.Address != "192.0.2.78" {
		t.Errorf("the machine has %s now", r.Address)
	}
	f.ipxe = true
	if a := f.ask(f.message(dhcp.Discover), 5*time.Second); a == nil || !strings.HasSuffix(string(a.File), "/start.ipxe") || string(a.Get(dhcp.OptClassID)) != "PXEClient" {
		t.Errorf("iPXE: %+v", a)
	}
	if s := get(t, b.site.URL(f.mac)+"/script.ipxe", 200); !strings.Contains(s, "muster.ip=${netX/ip}/${netX/netmask} muster.gw=${netX/gateway} ") {
		t.Errorf("script:\n%s", s)
	}
	if !strings.Contains(log.String(), "msg=boots mac="+mac(1)+" ") || !strings.Contains(log.String(), " address=127.0.0.1 rule=") {
		t.Errorf("the log does not tell the address that it boots with:\n%s", log)
	}
}

// TestOtherServers: one that gives what the records say is another booter; one
// that does not is warned of once and listed.
func TestOtherServers(t *testing.T) {
	p := newPlane()
	p.policy.Networks = adminNetwork()
	p.set(enrolled(1, nil))
	log := &lines{t: t}
	cfg := loopback(t, p)
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	b, _ := run(t, cfg)
	until(t, "the record is known", func() bool { _, ok := b.dir.Record(mac(1)); return ok })
	f := newFirmware(t, b, mac(1), 7)
	reply := func(server, yours byte, file string) []byte {
		q := f.message(dhcp.Discover)
		q.Op, q.YIAddr, q.File = dhcp.BootReply, netip.AddrFrom4([4]byte{10, 77, 0, yours}), []byte(file)
		q.Set(dhcp.OptMessageType, []byte{byte(dhcp.Offer)})
		q.Set(dhcp.OptServerID, []byte{10, 77, 0, server})
		return q.Append(nil)
	}
	var pkt dhcp.Packet
	from := netip.MustParseAddr("10.77.0.9")
	b.heard(&pkt, reply(7, 102, ""), from)                             // as recorded
	b.heard(&pkt, reply(8, 55, "52-54-00-77-00-01/snponly.efi"), from) // a booter that knows more
	for range 3 {
		b.heard(&pkt, reply(9, 200, "pxelinux.0"), from)
	}
	nak := f.message(dhcp.Discover) // one that refuses machines what we gave them
	nak.Op = dhcp.BootReply
	nak.Set(dhcp.OptMessageType, []byte{byte(refusal)})
	nak.Set(dhcp.OptServerID, []byte{10, 77, 0, 10})
	b.heard(&pkt, nak.Append(nil), from)
	q := f.message(dhcp.Request) // and as machines tell
	q.Set(dhcp.OptServerID, []byte{10, 77, 0, 9})
	q.Set(dhcp.OptRequestedIP, []byte{10, 77, 0, 200})
	f.ask(q, 20*time.Millisecond)
	until(t, "all are listed", func() bool {
		l := b.rivals.list()
		return len(l) == 4 && l[3].Differs == 1 && l[3].Address == "10.77.0.10" && l[3].MAC == mac(1) && l[3].Offered == "" && l[0].Same == 1 && l[0].Differs == 0 && l[1].Differs == 0 && l[2].Differs == 4 && l[2].Same == 0 &&
			l[2].Address == "10.77.0.9" && l[2].Offered == "10.77.0.200" && l[2].MAC == mac(1)
	})
	if n := strings.Count(log.String(), "a second DHCP server"); n != 2 {
		t.Errorf("warned %d times", n)
	}
}
