package boot

import (
	"bytes"
	"net/netip"
	"testing"

	"muster.internal"
	"muster.internal/dhcp"
)

// firmwareSays is a DISCOVER of UEFI firmware.
func firmwareSays(options ...dhcp.Option) *dhcp.Packet {
	p := &dhcp.Packet{Op: dhcp.BootRequest, XID: 7}
	p.SetMAC(mac)
	p.Set(dhcp.OptMessageType, []byte{byte(dhcp.Discover)})
	p.Set(dhcp.OptClassID, []byte("PXEClient"))
	for _, o := range options {
		p.Set(o.Code, o.Value)
	}
	return p
}

// TestSeveralArchitectures: option 93 is a list; the first that something is
// served to counts.
func TestSeveralArchitectures(t *testing.T) {
	for _, tt := range []struct {
		list []byte
		want uint16
		ok   bool
	}{
		{nil, 0, false}, {[]byte{7}, 0, false}, {[]byte{0, 7}, 7, true}, {[]byte{0, 6, 0, 7}, 7, true}, {[]byte{0, 11, 0, 7}, 11, true},
		{[]byte{0, 6, 0, 10}, 6, true}, {[]byte{0, 6, 0}, 6, true}, {[]byte{3, 231, 0, 0}, 0, true}, {[]byte{0, 1, 0, 2, 0, 9}, 9, true},
	} {
		q, ok := FromDHCP(firmwareSays(dhcp.Option{Code: dhcp.OptArch, Value: tt.list}))
		if !ok || q.Arch != tt.want || q.HasArch != tt.ok {
			t.Errorf("%x: %d %v, want %d %v", tt.list, q.Arch, q.HasArch, tt.want, tt.ok)
		}
	}
}

// exchange gives a message what a booter would answer it.
func exchange(t *testing.T, raw []byte, atPXE bool) *dhcp.Packet {
	t.Helper()
	e := env(linuxImage("enroll-1", "a"))
	e.Server = server
	var x Exchange
	out, err := x.Answer(raw, atPXE, func(q Request) (Decision, *muster.BootRecord) {
		r := rec(muster.Enrolling)
		return Decide(q, NewMachine(r), NewPolicy(policy()), e), r
	}, Site{HTTP: netip.AddrPortFrom(server, 80)}, server)
	if err != nil || out == nil {
		t.Fatalf("%v, %s", err, x.Decision.Why())
	}
	var a dhcp.Packet
	if err := a.Parse(bytes.Clone(out)); err != nil {
		t.Fatal(err)
	}
	return &a
}

// TestOptionsInOverloadedFields: class, architecture and vendor options may
// stand in the file and sname fields, and in several parts.
func TestOptionsInOverloadedFields(t *testing.T) {
	q := firmwareSays()
	q.Delete(dhcp.OptClassID)
	q.Set(dhcp.OptOverload, []byte{3})
	raw := q.Append(nil)
	copy(raw[108:], []byte{dhcp.OptClassID, 4, 'P', 'X', 'E', 'C', dhcp.OptArch, 1, 0, dhcp.OptEnd}) // file
	copy(raw[44:], []byte{dhcp.OptClassID, 5, 'l', 'i', 'e', 'n', 't', dhcp.OptArch, 1, 7, dhcp.OptEnd})
	a := exchange(t, raw, false)
	if string(a.File) != "52-54-00-77-00-a1/snponly.efi" || string(a.Get(dhcp.OptClassID)) != "PXEClient" || a.Get(dhcp.OptOverload) != nil {
		t.Errorf("file %q, %+v", a.File, a.Options)
	}
}

// TestBootItem: a PXE client that names a boot item finds it in the answer of
// the boot server, and nowhere else.
func TestBootItem(t *testing.T) {
	item := []byte{dhcp.OptPad, 9, 1, 0, 71, 4, 0x80, 1, 0, 0, 255}
	for _, tt := range []struct {
		name  string
		class string
		info  []byte
		atPXE bool
		want  string
	}{
		{"at the boot server", "PXEClient:Arch:00007:UNDI:003016", item, true, "\x06\x01\x08\x47\x04\x80\x01\x00\x00\xff"},
		{"without one", "PXEClient:Arch:00007:UNDI:003016", nil, true, "\x06\x01\x08\xff"},
		{"to the DHCP server", "PXEClient:Arch:00007:UNDI:003016", item, false, "\x06\x01\x08\xff"},
		{"cut off", "PXEClient:Arch:00007:UNDI:003016", item[:8], true, "\x06\x01\x08\xff"},
		{"after the end", "PXEClient:Arch:00007:UNDI:003016", append([]byte{255}, item...), true, "\x06\x01\x08\xff"},
	} {
		q := firmwareSays(dhcp.Option{Code: dhcp.OptArch, Value: []byte{0, 7}}, dhcp.Option{Code: dhcp.OptClassID, Value: []byte(tt.class)})
		if tt.info != nil {
			q.Set(dhcp.OptVendorInfo, tt.info)
		}
		q.Set(dhcp.OptMessageType, []byte{byte(dhcp.Request)})
		if tt.atPXE {
			q.CIAddr = netip.MustParseAddr("192.0.2.7")
		}
		if got := string(exchange(t, q.Append(nil), tt.atPXE).Get(dhcp.OptVendorInfo)); got != tt.want {
			t.Errorf("%s: %x, want %x", tt.name, got, tt.want)
		}
	}
	q := firmwareSays(dhcp.Option{Code: dhcp.OptClassID, Value: []byte("SUNW.i86pc")}, dhcp.Option{Code: dhcp.OptVendorInfo, Value: item})
	if q.BootItem() != (dhcp.BootItem{}) {
		t.Error("another vendor's options are read as PXE's")
	}
}
