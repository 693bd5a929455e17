package muster_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"muster.internal"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with testdata/name, or rewrites it.
func golden(t *testing.T, name string, have []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile("testdata/"+name, have, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Errorf("testdata/%s differs; have:\n%s", name, have)
	}
}

// TestGoldenIdentities reads what people, firmware and switches write, a line
// each, and compares with what became of it.
func TestGoldenIdentities(t *testing.T) {
	for name, parse := range map[string]func(string) (string, error){"macs": muster.ParseMAC, "uuids": muster.ParseUUID} {
		lines, err := os.ReadFile("testdata/" + name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		out := new(bytes.Buffer)
		for _, line := range strings.Split(strings.TrimSuffix(string(lines), "\n"), "\n") {
			got, err := parse(line)
			if err != nil {
				got = "! " + err.Error()
			}
			fmt.Fprintf(out, "%-45q %s\n", line, got)
		}
		golden(t, name+".golden", out.Bytes())
	}
}

// TestMACSpellings: every usual spelling of one address is the same address, or
// is refused as no card's.
func TestMACSpellings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(t, "octets")
		text := fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4], b[5])
		want, noCard := text, b[0]&1 == 1 || [6]byte(b) == [6]byte{}
		if noCard {
			want = ""
		}
		for _, s := range []string{
			text, strings.ToUpper(text), strings.ReplaceAll(text, ":", "-"), strings.ReplaceAll(text, ":", ""),
			fmt.Sprintf("%x:%x:%x:%x:%x:%x", b[0], b[1], b[2], b[3], b[4], b[5]),
			fmt.Sprintf("%X-%X-%X-%X-%X-%X", b[0], b[1], b[2], b[3], b[4], b[5]),
			fmt.Sprintf("%02x%02x.%02x%02x.%02x%02x", b[0], b[1], b[2], b[3], b[4], b[5]),
			" " + text + "\n",
		} {
			if got, err := muster.ParseMAC(s); errors.Is(err, muster.ErrNoCard) != noCard || (err != nil) != noCard || got != want {
				t.Fatalf("%q: %q, %v, want %q", s, got, err, want)
			}
		}
	})
}

// TestCanonical: what was parsed is canonical, and parses to itself.
func TestCanonical(t *testing.T) {
	near := rapid.OneOf(rapid.String(), rapid.StringMatching(`[0-9A-Fa-f:.\- ]{0,40}`), rapid.StringMatching(`[0-9a-fF]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`))
	for name, parse := range map[string]func(string) (string, error){"MAC": muster.ParseMAC, "UUID": muster.ParseUUID, "claim code": muster.ParseClaimCode} {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			s := near.Draw(t, "text")
			a, err := parse(s)
			if err != nil {
				return
			}
			if b, err := parse(a); err != nil || a != b {
				t.Fatalf("%q became %q, and that %q, %v", s, a, b, err)
			}
		}))
	}
}

// TestClaimCodes: a code says 30 bits, people may write it as they like, and
// what the alphabet leaves out is never guessed.
func TestClaimCodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint32().Draw(t, "random")
		code := muster.ClaimCode(n)
		if len(code) != 6 || strings.ContainsAny(code, "ILOU") {
			t.Fatalf("%d: code %q", n, code)
		}
		if muster.ClaimCode(n|3<<30) != code {
			t.Fatal("more than 30 bits count")
		}
		if bit := rapid.IntRange(0, 29).Draw(t, "bit"); muster.ClaimCode(n^1<<bit) == code {
			t.Fatalf("bit %d of %d does not count", bit, n)
		}
		shown := muster.ShowClaimCode(code)
		if len(shown) != 7 || shown[3] != '-' {
			t.Fatalf("shown as %q", shown)
		}
		for _, s := range []string{code, shown, strings.ToLower(shown), " " + code[:3] + " " + code[3:] + " "} {
			if got, err := muster.ParseClaimCode(s); err != nil || got != code {
				t.Fatalf("%q: %q, %v", s, got, err)
			}
		}
		i := rapid.IntRange(0, 5).Draw(t, "place")
		bad := rapid.SampledFrom([]string{"I", "L", "O", "U", "i", "o", "!", "é"}).Draw(t, "letter")
		if got, err := muster.ParseClaimCode(code[:i] + bad + code[i+1:]); err == nil {
			t.Fatalf("%q in place %d became %q", bad, i, got)
		}
		if got, err := muster.ParseClaimCode(code[:i]); err == nil {
			t.Fatalf("%d characters became %q", i, got)
		}
	})
}

func TestValidNames(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, c := range []struct {
		s               string
		stamp, hostname bool
	}{
		{"node-1", true, true},
		{"N0DE", true, true},
		{"1", true, true},
		{"debian12_20260101.1", true, false},
		{long[:63], true, true},
		{long, true, false},
		{long + "a", false, false},
		{"", false, false},
		{"-a", false, false},
		{"a-", true, false},
		{".a", false, false},
		{"a.b", true, false},
		{"a b", false, false},
		{"a\n", false, false},
		{"a\x00", false, false},
		{"a;reboot", false, false},
		{"$(reboot)", false, false},
		{"../../etc/passwd", false, false},
		{"é", false, false},
		{"a'b", false, false},
	} {
		if got := muster.ValidStamp(c.s); got != c.stamp {
			t.Errorf("stamp %q: %v", c.s, got)
		}
		if got := muster.ValidHostname(c.s); got != c.hostname {
			t.Errorf("hostname %q: %v", c.s, got)
		}
	}
}

// TestArgs: what may stand in a boot script, where nothing quotes.
func TestArgs(t *testing.T) {
	for s, want := range map[string]bool{
		"quiet": true, "console=ttyS0,115200n8": true, "a/b@c+d-e%f:g_h.i": true, strings.Repeat("a", 256): true,
		"": false, strings.Repeat("a", 257): false, "a b": false, "a\tb": false, "a\nb": false, "a\x00": false,
		"${net0/ip}": false, "a;b": false, "a|b": false, "a&&b": false, "#": false, `"a"`: false, "'a'": false, `a\b`: false, "é": false, "\xff": false,
	} {
		if got := muster.ValidArg(s); got != want {
			t.Errorf("%.40q: %v", s, got)
		}
	}
}

// TestDiskIdentity: a disk is known by what does not move with the cable.
func TestDiskIdentity(t *testing.T) {
	for _, c := range []struct {
		name string
		d    muster.Disk
		id   string
		says string
	}{
		{"WWN first", muster.Disk{Path: "/dev/sda", Vendor: "ATA", Model: "X", Serial: "S1", WWN: "0x5000C500A1B2C3D4"}, "wwn 0x5000c500a1b2c3d4", "ATA X serial S1"},
		{"then vendor, model, serial", muster.Disk{Path: "/dev/sda", Vendor: "ATA ", Model: "Samsung  SSD", Serial: " S1"}, "serial ata|samsung ssd|s1", "ATA Samsung SSD serial S1"},
		{"a WWN of zeros is none", muster.Disk{WWN: "0000000000000000", Serial: "S1"}, "serial ||s1", "serial S1"},
		{"a serial of zeros is none", muster.Disk{Path: "/dev/vda", Serial: "00000000", Model: "M"}, "", "M serial 00000000"},
		{"nothing to know it by", muster.Disk{Path: "/dev/vda"}, "", "/dev/vda"},
		{"only a WWN", muster.Disk{Path: "/dev/sdb", Model: "M", WWN: "eui.0025385881b0a1c2"}, "wwn eui.0025385881b0a1c2", "M WWN eui.0025385881b0a1c2"},
	} {
		if got := c.d.Identity(); got != c.id {
			t.Errorf("%s: identity %q, want %q", c.name, got, c.id)
		}
		if got := c.d.Describe(); got != c.says {
			t.Errorf("%s: described as %q, want %q", c.name, got, c.says)
		}
	}
}
