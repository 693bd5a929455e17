package booter

import (
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
