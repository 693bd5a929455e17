package booter

import (
	"net/netip"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/dhcp"
)

// TestGivenAddressesOutliveUs: what the site's DHCP server gave to a machine is
// known after a restart of the booter, since the machine renews its lease with
// that server alone; and an address that went to another machine meanwhile is
// that one's.
func TestGivenAddressesOutliveUs(t *testing.T) {
	p := newPlane()
	ref := p.addImage("node-1", "kernel", "initrd")
	for n := range 2 {
		p.set(func() muster.BootRecord { r := enrolled(n+1, ref); r.Address = ""; return r }())
	}
	cfg := loopback(t, p)
	cfg.Proxy = true
	lease := func(b *Booter, n int, a string) {
		f := newFirmware(t, b, mac(n), 7)
		q := f.message(dhcp.Request)
		q.Set(dhcp.OptServerID, []byte{192, 0, 2, 1})
		v := netip.MustParseAddr(a).As4()
		q.Set(dhcp.OptRequestedIP, v[:])
		f.ask(q, 10*time.Millisecond) // the site's server answers
		until(t, a+" is known", func() bool { r, _ := b.dir.Record(mac(n)); return r.Address == a })
	}
	b, stop := run(t, cfg)
	until(t, "records are known", func() bool { _, ok := b.dir.Record(mac(2)); return ok })
	lease(b, 1, "192.0.2.77")
	lease(b, 2, "192.0.2.78")
	until(t, "both are kept", func() bool {
		d := newDirectory()
		d.proxy = true
		return loadCache(b.cacheFile(), d) == nil && len(d.givenAddresses()) == 2
	})
	stop()
	b, _ = run(t, cfg)
	until(t, "both are known again", func() bool {
		one, _ := b.dir.Record(mac(1))
		two, _ := b.dir.Record(mac(2))
		return one.Address == "192.0.2.77" && two.Address == "192.0.2.78"
	})
	lease(b, 2, "192.0.2.77")
	if r, _ := b.dir.Record(mac(1)); r.Address != "" {
		t.Errorf("two machines have %s", r.Address)
	}
}
