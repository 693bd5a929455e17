package dhcp

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestCaptures reads what real firmware sent and compares with the golden
// transcript: what the package sees in it, and that an independent library
// sees the same.
func TestCaptures(t *testing.T) {
	var out strings.Builder
	var p Packet
	requests := 0
	for _, f := range captures(t) {
		if f.dstPort != ServerPort && f.srcPort != ServerPort {
			continue
		}
		if err := p.Parse(f.payload); err != nil {
			t.Fatalf("%s: %v", f.file, err)
		}
		agree(t, f.payload, &p)
		if p.Op != BootRequest {
			continue
		}
		requests++
		m, _ := p.MAC()
		arch, _ := p.Arch()
		fmt.Fprintf(&out, "%s %v %v %v arch=%d ipxe=%v uuid=%s giaddr=%v circuit=%q\n", f.file, p.Type(), m,
			p.Class(), arch, p.IPXE(), p.MachineUUID(), p.GIAddr, p.RelaySub(RelayCircuitID))
	}
	if requests < 20 {
		t.Fatalf("only %d requests in the captures", requests)
	}
	golden(t, "testdata/captures.golden", out.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
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

// agree compares with insomniacslk/dhcp, where it accepts the message.
func agree(t testing.TB, raw []byte, p *Packet) {
	t.Helper()
	o, err := dhcpv4.FromBytes(raw)
	if err != nil {
		return
	}
	if byte(o.OpCode) != p.Op || o.TransactionID != [4]byte{byte(p.XID >> 24), byte(p.XID >> 16), byte(p.XID >> 8), byte(p.XID)} ||
		o.NumSeconds != p.Secs || o.Flags != p.Flags || o.HopCount != p.Hops {
		t.Fatalf("header: %+v against %+v", p, o)
	}
	for _, pair := range []struct {
		ours   netip.Addr
		theirs []byte
	}{{p.CIAddr, o.ClientIPAddr}, {p.YIAddr, o.YourIPAddr}, {p.SIAddr, o.ServerIPAddr}, {p.GIAddr, o.GatewayIPAddr}} {
		if v := pair.ours.As4(); !bytes.Equal(v[:], pair.theirs[len(pair.theirs)-4:]) {
			t.Fatalf("address %v against %v", pair.ours, pair.theirs)
		}
	}
	// The library knows no option overload: what stands in file and sname is ours alone.
	if o.Options.Has(dhcpv4.GenericOptionCode(OptOverload)) {
		return
	}
	if len(o.Options) != len(p.Options) {
		t.Fatalf("%d options against %d: %v, %v", len(p.Options), len(o.Options), p.Options, o.Options)
	}
	for code, v := range o.Options {
		if !bytes.Equal(v, p.Get(code)) {
			t.Fatalf("option %d: %x against %x", code, p.Get(code), v)
		}
	}
}

func message(options ...byte) []byte {
	b := make([]byte, headerSize, 400)
	b[0], b[1], b[2] = 1, 1, 6
	copy(b[28:], []byte{0x52, 0x54, 0, 0x77, 0, 0xa1})
	return append(append(b, 99, 130, 83, 99), options...)
}

func TestParse(t *testing.T) {
	long := append(append([]byte{43, 255}, bytes.Repeat([]byte{7}, 255)...), 43, 2, 8, 9, 255)
	overload := message(52, 1, 3, 12, 1, 'a', 255)
	copy(overload[108:], []byte{12, 1, 'b', 60, 3, 'P', 'X', 'E', 255}) // file
	copy(overload[44:], []byte{12, 1, 'c'})                             // sname, no END
	bare := message(53, 1, 1, 255)
	copy(bare[108:], "file\x00rubbish")
	copy(bare[44:], "server")
	tests := []struct {
		name string
		in   []byte
		want error
		code byte
		val  string
	}{
		{"empty", nil, ErrShort, 0, ""},
		{"no cookie", make([]byte, 300), ErrCookie, 0, ""},
		{"cookie cut", message()[:239], ErrShort, 0, ""},
		{"no options", message(), nil, 53, ""},
		{"missing END", message(53, 1, 3), nil, 53, "\x03"},
		{"pads between", message(0, 0, 53, 1, 1, 0, 0, 12, 1, 'x', 255), nil, 12, "x"},
		{"rubbish after END", message(53, 1, 1, 255, 12, 200), nil, 12, ""},
		{"length cut", message(53), ErrTruncated, 0, ""},
		{"value cut", message(53, 2, 1), ErrTruncated, 0, ""},
		{"long option", message(long...), nil, 43, strings.Repeat("\x07", 255) + "\x08\x09"},
		{"overload joins across fields", overload, nil, 12, "abc"},
		{"overload reads file", overload, nil, 60, "PXE"},
		{"overload of 4", message(52, 1, 4, 255), ErrOverload, 0, ""},
		{"overload of two bytes", message(52, 2, 1, 1, 255), ErrOverload, 0, ""},
		{"split and empty", message(12, 0, 12, 0, 255), nil, 12, ""},
		{"too long", make([]byte, MaxSize+1), ErrLong, 0, ""},
		{"hardware length", func() []byte { b := message(255); b[2] = 17; return b }(), ErrHardware, 0, ""},
	}
	var p Packet
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := p.Parse(tt.in); !errors.Is(err, tt.want) {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			if tt.want == nil && string(p.Get(tt.code)) != tt.val {
				t.Errorf("option %d is %q, want %q", tt.code, p.Get(tt.code), tt.val)
			}
		})
	}
	if err := p.Parse(bare); err != nil || string(p.File) != "file" || string(p.SName) != "server" {
		t.Errorf("file %q, sname %q, %v", p.File, p.SName, err)
	}
	if err := p.Parse(overload); err != nil || len(p.File) != 0 || len(p.SName) != 0 || p.Get(OptOverload) != nil {
		t.Errorf("overloaded fields read as text: %q %q %v", p.File, p.SName, err)
	}
}

// stable is the property that an attacker must not be able to break: what is
// read, written and read again is the same, and is written the same.
func stable(t testing.TB, raw []byte, p *Packet) {
	t.Helper()
	once := p.Append(nil)
	if len(once) > MaxSize {
		return // overloaded fields became options
	}
	if len(once) < MinSize {
		t.Fatalf("written message has only %d bytes", len(once))
	}
	var q Packet
	if err := q.Parse(once); err != nil {
		t.Fatalf("own message does not parse: %v\n%x\n%x", err, raw, once)
	}
	if twice := q.Append(nil); !bytes.Equal(once, twice) {
		t.Fatalf("not stable:\n%x\n%x\n%x", raw, once, twice)
	}
	if len(q.Options) != len(p.Options) {
		t.Fatalf("options changed: %v, %v", p.Options, q.Options)
	}
	for _, o := range p.Options {
		if !bytes.Equal(q.Get(o.Code), o.Value) {
			t.Fatalf("option %d changed: %x, %x", o.Code, o.Value, q.Get(o.Code))
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range captures(f) {
		if c.dstPort == ServerPort || c.srcPort == ServerPort {
			f.Add(c.payload)
		}
	}
	f.Add(message(52, 1, 3, 43, 0, 255))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var p Packet
		if p.Parse(raw) != nil {
			return
		}
		agree(t, raw, &p)
		stable(t, raw, &p)
		// The readers of single options must stand whatever is in them.
		p.IPXE()
		p.Class()
		p.MachineUUID()
		p.RelaySub(RelayCircuitID)
		p.BootItem()
		p.MAC()
		r := Reply{Type: Offer, Your: netip.MustParsePrefix("10.77.0.101/24"), Server: netip.MustParseAddr("10.77.0.1"),
			Lease: 3600, File: []byte("http://10.77.0.1/x"), Shape: Shape(p.XID % 4), Item: p.BootItem()}
		out := AppendReply(nil, &p, &r)
		var q Packet
		if len(out) <= MaxSize {
			if err := q.Parse(out); err != nil {
				t.Fatalf("own answer does not parse: %v", err)
			}
			if !bytes.Equal(q.Get(OptRelayInfo), p.Get(OptRelayInfo)) || !bytes.Equal(q.Get(OptMachineID), p.Get(OptMachineID)) {
				t.Fatal("options 82 and 97 were not echoed")
			}
		}
	})
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Packet
		p.Op, p.HType, p.HLen = 1, 1, 6
		p.XID, p.Flags = rapid.Uint32().Draw(t, "xid"), rapid.Uint16().Draw(t, "flags")
		p.CIAddr = netip.AddrFrom4([4]byte{10, 0, 0, rapid.Byte().Draw(t, "ci")})
		for range rapid.IntRange(0, 8).Draw(t, "n") {
			code := byte(rapid.IntRange(1, 254).Draw(t, "code"))
			if code == OptOverload {
				continue
			}
			p.Set(code, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "value"))
		}
		raw := p.Append(nil)
		var q Packet
		if err := q.Parse(raw); err != nil {
			t.Fatal(err)
		}
		if q.XID != p.XID || q.Flags != p.Flags || q.CIAddr != p.CIAddr || len(q.Options) != len(p.Options) {
			t.Fatalf("%+v against %+v", q, p)
		}
		for _, o := range p.Options {
			if !bytes.Equal(o.Value, q.Get(o.Code)) {
				t.Fatalf("option %d: %x against %x", o.Code, q.Get(o.Code), o.Value)
			}
		}
	})
}

func TestSteadyStateMakesNoGarbage(t *testing.T) {
	var request []byte
	for _, c := range captures(t) {
		if c.dstPort == ServerPort && strings.HasPrefix(c.file, "gold-f") {
			request = c.payload
			break
		}
	}
	var p Packet
	buf := make([]byte, 0, 1024)
	file := []byte("52-54-00-77-00-f1/snponly.efi")
	r := Reply{Type: Offer, Your: netip.MustParsePrefix("10.78.0.118/24"), Server: netip.MustParseAddr("10.77.0.1"),
		Lease: 3600, File: file, Shape: PXE}
	src := netip.MustParseAddrPort("10.77.0.2:67")
	n := testing.AllocsPerRun(100, func() {
		if p.Parse(request) != nil {
			t.Fatal("captured request does not parse")
		}
		buf = AppendReply(buf[:0], &p, &r)
		Destination(&p, r.Your.Addr(), src)
		p.IPXE()
		p.MAC()
	})
	if n != 0 {
		t.Errorf("%v allocations for each packet", n)
	}
}

func BenchmarkExchange(b *testing.B) {
	request := captures(b)[0].payload
	var p Packet
	buf := make([]byte, 0, 1024)
	r := Reply{Type: Offer, Your: netip.MustParsePrefix("10.78.0.118/24"), Server: netip.MustParseAddr("10.77.0.1"),
		Lease: 3600, File: []byte("52-54-00-77-00-f1/snponly.efi"), Shape: PXE}
	for b.Loop() {
		p.Parse(request)
		buf = AppendReply(buf[:0], &p, &r)
	}
}
