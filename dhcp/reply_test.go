package dhcp

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
)

func request(options ...Option) *Packet {
	p := &Packet{Op: BootRequest, XID: 0x01020304, Flags: BroadcastFlag, CIAddr: addr(zeros[:]), YIAddr: addr(zeros[:]),
		SIAddr: addr(zeros[:]), GIAddr: addr(zeros[:])}
	p.SetMAC(MAC{0x52, 0x54, 0, 0x77, 0, 0xa1})
	for _, o := range options {
		p.Set(o.Code, o.Value)
	}
	return p
}

func answer(t *testing.T, req *Packet, r Reply) *Packet {
	t.Helper()
	raw := AppendReply(nil, req, &r)
	var p Packet
	if err := p.Parse(raw); err != nil {
		t.Fatal(err)
	}
	end := bytes.LastIndexByte(raw, OptEnd)
	if len(raw) < MinSize || len(bytes.Trim(raw[end+1:], "\x00")) != 0 {
		t.Errorf("%d bytes, and after END: %x", len(raw), raw[end+1:])
	}
	return &p
}

func TestReplyShapes(t *testing.T) {
	base := Reply{Type: Offer, Your: netip.MustParsePrefix("10.77.0.101/24"), Server: netip.MustParseAddr("10.77.0.1"),
		Router: netip.MustParseAddr("10.77.0.254"), DNS: [3]netip.Addr{netip.MustParseAddr("9.9.9.9")}, Lease: 3600}
	uuid := append([]byte{0}, bytes.Repeat([]byte{3}, 16)...)
	relay := []byte{1, 3, 'b', 'r', '1'}
	req := request(Option{OptMachineID, uuid}, Option{OptRelayInfo, relay})
	tests := []struct {
		shape       Shape
		file        string
		class, info string
		ipxe, tftp  string
	}{
		{Plain, "", "", "", "", ""},
		{PXE, "52-54-00-77-00-a1/snponly.efi", "PXEClient", "\x06\x01\x08\xff", "", "10.77.0.1"},
		{HTTP, "http://10.77.0.1/snponly.efi", "HTTPClient", "", "", ""},
		{IPXE, "http://10.77.0.1/boot/52-54-00-77-00-a1/start.ipxe", "", "", "\xb0\x01\x01", ""},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.shape), func(t *testing.T) {
			r := base
			r.Shape, r.File = tt.shape, []byte(tt.file)
			p := answer(t, req, r)
			for code, want := range map[byte]string{OptClassID: tt.class, OptVendorInfo: tt.info, OptIPXE: tt.ipxe,
				OptTFTPServer: tt.tftp, OptBootFile: tt.file, OptMachineID: string(uuid), OptRelayInfo: string(relay),
				OptSubnetMask: "\xff\xff\xff\x00", OptRouter: "\x0a\x4d\x00\xfe", OptDNS: "\x09\x09\x09\x09",
				OptLeaseTime: "\x00\x00\x0e\x10", OptServerID: "\x0a\x4d\x00\x01", OptMessageType: "\x02"} {
				if got := string(p.Get(code)); got != want {
					t.Errorf("option %d is %q, want %q", code, got, want)
				}
			}
			if string(p.File) != tt.file || p.Flags != BroadcastFlag || p.XID != req.XID || p.CHAddr != req.CHAddr ||
				p.SIAddr != base.Server || p.YIAddr != base.Your.Addr() {
				t.Errorf("header %+v", p)
			}
			if last := p.Options[len(p.Options)-1]; last.Code != OptRelayInfo {
				t.Errorf("option 82 must come last, not %d", last.Code)
			}
		})
	}
}

// The class never goes without the PXE options, and they never without it.
func TestClassAndVendorOptionsAreOne(t *testing.T) {
	for s := Plain; s <= IPXE; s++ {
		p := answer(t, request(), Reply{Type: Ack, Server: netip.MustParseAddr("10.77.0.1"), Shape: s})
		if (string(p.Get(OptClassID)) == "PXEClient") != (p.Get(OptVendorInfo) != nil) {
			t.Errorf("shape %d: class %q, vendor options %x", s, p.Get(OptClassID), p.Get(OptVendorInfo))
		}
	}
}

func TestLongFileGoesIntoTheOptionAlone(t *testing.T) {
	long := bytes.Repeat([]byte{'x'}, 300)
	p := answer(t, request(), Reply{Type: Ack, Server: netip.MustParseAddr("10.77.0.1"), File: long})
	if len(p.File) != 0 || !bytes.Equal(p.Get(OptBootFile), long) {
		t.Errorf("file %q, option 67 %q", p.File, p.Get(OptBootFile))
	}
}

// TestDestination covers every combination of giaddr, ciaddr, broadcast flag
// and relay source port.
func TestDestination(t *testing.T) {
	src := netip.MustParseAddrPort("10.9.9.9:4067")
	relay, client := netip.MustParseAddr("10.78.0.1"), netip.MustParseAddr("10.77.0.101")
	for i := range 16 {
		p := request()
		want, frame := "255.255.255.255:68", false
		if i&1 == 0 {
			p.Flags = 0
			want, frame = "10.77.0.101:68", true
		}
		if i&2 != 0 {
			p.CIAddr = client
			want, frame = "10.77.0.101:68", false
		}
		if i&4 != 0 {
			p.GIAddr = relay
			want, frame = "10.78.0.1:67", false
		}
		if i&8 != 0 {
			p.Set(OptRelayInfo, []byte{RelayCircuitID, 1, 'x', RelaySourcePort, 0})
			if i&4 != 0 {
				want = "10.78.0.1:4067"
			}
		}
		if got := Destination(p, client, src); got.To.String() != want || got.Frame != frame {
			t.Errorf("flags %x, ciaddr %v, giaddr %v, source port %v: %v, want %v", p.Flags, p.CIAddr, p.GIAddr, i&8 != 0, got, want)
		}
	}
}

func TestIPXE(t *testing.T) {
	tests := []struct {
		name    string
		options []Option
		want    bool
	}{
		{"nothing", nil, false},
		{"raw user class", []Option{{OptUserClass, []byte("iPXE")}}, true},
		{"length-prefixed", []Option{{OptUserClass, []byte("\x04iPXE")}}, true},
		{"second of two classes", []Option{{OptUserClass, []byte("\x03foo\x04iPXE")}}, true},
		{"option 175 alone", []Option{{OptIPXE, []byte{0xb1, 5, 1, 0x1a, 0xf4, 0x10, 0}}}, true},
		{"empty option 175", []Option{{OptIPXE, nil}}, false},
		{"another class", []Option{{OptUserClass, []byte("iPXE2")}}, false},
		{"prefix too long", []Option{{OptUserClass, []byte("\x09iPXE")}}, false},
		{"zero lengths", []Option{{OptUserClass, []byte("\x00\x00\x04iPXE")}}, true},
	}
	for _, tt := range tests {
		if got := request(tt.options...).IPXE(); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestMachineUUID(t *testing.T) {
	tests := []struct{ wire, want string }{
		{"\x00\x33\x22\x11\x00\x55\x44\x77\x66\x88\x99\xaa\xbb\xcc\xdd\xee\xa1", "00112233-4455-6677-8899-aabbccddeea1"},
		{"\x01\x33\x22\x11\x00\x55\x44\x77\x66\x88\x99\xaa\xbb\xcc\xdd\xee\xa1", ""}, // another kind of id
		{"\x00" + string(zeros[:16]), ""},
		{"\x00\x01", ""},
	}
	for _, tt := range tests {
		if got := request(Option{OptMachineID, []byte(tt.wire)}).MachineUUID(); got != tt.want {
			t.Errorf("%x: %q, want %q", tt.wire, got, tt.want)
		}
	}
}

func TestMAC(t *testing.T) {
	for in, want := range map[string]string{"52-54-00-77-00-A1": "52:54:00:77:00:a1", "0:21:28:0:1:2": "00:21:28:00:01:02", "nonsense": ""} {
		m, err := ParseMAC(in)
		if (err == nil) != (want != "") || err == nil && m.String() != want {
			t.Errorf("%s: %v, %v", in, m, err)
		}
	}
	p := request()
	if m, ok := p.MAC(); !ok || string(m.AppendHyphens(nil)) != "52-54-00-77-00-a1" {
		t.Errorf("%v %v", m, ok)
	}
	p.CHAddr[0] = 1 // multicast
	if _, ok := p.MAC(); ok {
		t.Error("a multicast address is no machine's")
	}
	p = request()
	p.HType = 32 // InfiniBand
	if _, ok := p.MAC(); ok {
		t.Error("an InfiniBand address is not six octets")
	}
}
