package inventory_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/inventory"
)

func dimm(slot, serial string) muster.DIMM {
	return muster.DIMM{Slot: slot, SizeMiB: 16384, Vendor: "Hynix", Part: "HMA82GR7", Serial: serial}
}

func plugged(slot, serial string, contents ...muster.Content) muster.HardwareDisk {
	return muster.HardwareDisk{Disk: muster.Disk{Path: "/dev/sda", Vendor: "ATA", Model: "M", Serial: serial, Size: 1e9, Contents: contents}, Firmware: "1.0", Slot: slot}
}

// Each line of a diff, as "what: part name (serial) field from -> to".
func TestDiffHardware(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b muster.Hardware
		want []string
	}{
		{"nothing", muster.Hardware{}, muster.Hardware{}, nil},
		{"a DIMM that went", muster.Hardware{MemoryMiB: 32768, DIMMs: []muster.DIMM{dimm("A1", "11"), dimm("A2", "22")}},
			muster.Hardware{MemoryMiB: 16384, DIMMs: []muster.DIMM{dimm("A1", "11")}},
			[]string{"changed memory the memory () size 32768 MiB -> 16384 MiB", "removed dimm 16384 MiB Hynix HMA82GR7 (22)  A2 -> "}},
		{"DIMMs that changed places", muster.Hardware{DIMMs: []muster.DIMM{dimm("A1", "11"), dimm("A2", "22")}},
			muster.Hardware{DIMMs: []muster.DIMM{dimm("A1", "22"), dimm("A2", "11")}},
			[]string{"moved dimm 16384 MiB Hynix HMA82GR7 (22)  A2 -> A1", "moved dimm 16384 MiB Hynix HMA82GR7 (11)  A1 -> A2"}},
		{"a DIMM in the place of another", muster.Hardware{DIMMs: []muster.DIMM{dimm("A1", "11")}},
			muster.Hardware{DIMMs: []muster.DIMM{dimm("A1", "33")}},
			[]string{"removed dimm 16384 MiB Hynix HMA82GR7 (11)  A1 -> ", "added dimm 16384 MiB Hynix HMA82GR7 (33)   -> A1"}},
		{"DIMMs without serial numbers go by their slots", muster.Hardware{DIMMs: []muster.DIMM{{Slot: "A1", SizeMiB: 8}, {Slot: "A2", SizeMiB: 8}}},
			muster.Hardware{DIMMs: []muster.DIMM{{Slot: "A1", SizeMiB: 16}}},
			[]string{"removed dimm 8 MiB ()  A2 -> ", "changed dimm 16 MiB () size 8 MiB -> 16 MiB"}},
		{"a disk in another slot", muster.Hardware{Disks: []muster.HardwareDisk{plugged("ata1", "s1")}}, muster.Hardware{Disks: []muster.HardwareDisk{plugged("ata2", "s1")}},
			[]string{"moved disk ATA M serial s1 (s1)  ata1 -> ata2"}},
		{"a disk under another path is where it was", muster.Hardware{Disks: []muster.HardwareDisk{plugged("ata1", "s1")}},
			muster.Hardware{Disks: []muster.HardwareDisk{func() muster.HardwareDisk { d := plugged("ata1", "s1"); d.Path = "/dev/sdb"; return d }()}}, nil},
		{"a disk for another", muster.Hardware{Disks: []muster.HardwareDisk{plugged("ata1", "s1")}}, muster.Hardware{Disks: []muster.HardwareDisk{plugged("ata1", "s2")}},
			[]string{"removed disk ATA M serial s1 (s1)  ata1 -> ", "added disk ATA M serial s2 (s2)   -> ata1"}},
		{"a disk that was written", muster.Hardware{Disks: []muster.HardwareDisk{plugged("ata1", "s1")}}, muster.Hardware{Disks: []muster.HardwareDisk{plugged("ata1", "s1", muster.Content{Kind: "ext4", Name: "data"})}},
			[]string{"changed disk ATA M serial s1 (s1) contents  -> ext4 data"}},
		{"firmware", muster.Hardware{BIOS: muster.BIOS{Version: "1.2"}, NICs: []muster.NIC{{MAC: "m", Firmware: "5"}}}, muster.Hardware{BIOS: muster.BIOS{Version: "1.3"}, NICs: []muster.NIC{{MAC: "m", Firmware: "6", Name: "eth7"}}},
			[]string{"changed bios the firmware () version 1.2 -> 1.3", "changed nic m () firmware 5 -> 6"}},
		{"a processor", muster.Hardware{CPUs: []muster.CPU{{Socket: "CPU1", Model: "X", Cores: 8}}}, muster.Hardware{CPUs: []muster.CPU{{Socket: "CPU1", Model: "X", Cores: 6}, {Socket: "CPU2"}}},
			[]string{"changed cpu X () cores 8 -> 6", "added cpu processor CPU2 ()   -> CPU2"}},
		{"a workload that was looked for", muster.Hardware{Looked: true}, muster.Hardware{Looked: true, Foreign: []muster.ForeignName{{Kind: "container", Name: "db"}}},
			[]string{"added workload container db ()   -> "}},
		{"a workload that nobody looked for", muster.Hardware{Looked: true, Foreign: []muster.ForeignName{{Kind: "container", Name: "db"}}}, muster.Hardware{}, nil},
	} {
		var got []string
		for _, x := range inventory.DiffHardware(c.a, c.b) {
			got = append(got, fmt.Sprintf("%s %s %s (%s) %s %s -> %s", x.Change, x.Part, x.Name, x.Serial, x.Field, x.From, x.To))
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

func TestCompareVersions(t *testing.T) {
	// Each is above the one before it.
	for _, line := range []string{"1.9 1.10 1.10.1 2", "1.rc 1.0", "GDC5302Q GDC5602Q", "HPG1 HPG2 HPG10", "F.20 F.21", "0001 0002 10", "2.1a 2.1b"} {
		versions := strings.Fields(line)
		for i := range versions {
			for j := range versions {
				want := min(max(i-j, -1), 1)
				if got := inventory.CompareVersions(versions[i], versions[j]); got != want {
					t.Errorf("%s and %s: %d, want %d", versions[i], versions[j], got, want)
				}
			}
		}
	}
	for _, same := range [][2]string{{"1.2", "1.2"}, {"v1-2", "V1.2"}, {"01.2", "1.02"}, {"", ""}, {"..", ""}} {
		if got := inventory.CompareVersions(same[0], same[1]); got != 0 {
			t.Errorf("%q and %q: %d, want 0", same[0], same[1], got)
		}
	}
}

func TestBelowMinimum(t *testing.T) {
	h := muster.Hardware{Vendor: "Dell Inc.", Product: "R640", BIOS: muster.BIOS{Version: "2.8.1"},
		NICs: []muster.NIC{{MAC: "m1", Vendor: "Intel", Part: "8086:1521", Firmware: "1.6"}, {MAC: "m2", Vendor: "Intel", Part: "8086:1521"}}, Disks: []muster.HardwareDisk{plugged("ata1", "s1")}}
	minimum := func(vendor, part, version string) muster.FirmwareMinimum {
		return muster.FirmwareMinimum{Vendor: vendor, Part: part, Version: version}
	}
	for _, c := range []struct {
		m    muster.FirmwareMinimum
		want string
	}{
		{minimum("dell  inc.", "r640", "2.10"), "the firmware of the machine, a Dell Inc. R640, is 2.8.1; 2.10 is the minimum"},
		{minimum("Dell Inc.", "R640", "2.8.1"), ""},
		{minimum("Dell Inc.", "R740", "9"), ""},
		{minimum("ATA", "M", "1.1"), "the firmware of disk ATA M serial s1 is 1.0; 1.1 is the minimum"},
		{minimum("intel", "8086:1521", "1.7"), "the firmware of network card m1 is 1.6; 1.7 is the minimum|the firmware of network card m2 is not known; 1.7 is the minimum"},
	} {
		if got := strings.Join(inventory.BelowMinimum(h, []muster.FirmwareMinimum{c.m}), "|"); got != c.want {
			t.Errorf("%+v: %s, want %s", c.m, got, c.want)
		}
	}
}

// smbios builds a structure with its strings.
func smbios(kind byte, fixed map[int]any, words ...string) []byte {
	b := make([]byte, 0x40)
	b[0], b[1] = kind, byte(len(b))
	for at, v := range fixed {
		switch v := v.(type) {
		case int:
			b[at] = byte(v)
		case uint16:
			b[at], b[at+1] = byte(v), byte(v>>8)
		case uint32:
			b[at], b[at+1], b[at+2], b[at+3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
		}
	}
	for _, w := range words {
		b = append(append(b, w...), 0)
	}
	if len(words) == 0 {
		b = append(b, 0)
	}
	return append(b, 0)
}

func board() (table []byte) {
	for _, s := range [][]byte{
		smbios(0, map[int]any{4: 1, 5: 2, 8: 3}, "Dell Inc.", "2.8.1", "06/26/2020"),
		smbios(1, map[int]any{4: 1, 5: 2, 7: 3}, "Dell Inc.", "PowerEdge R640", "8CX2P53"),
		smbios(4, map[int]any{4: 1, 0x10: 2, 0x18: 0x41, 0x23: 8, 0x25: 16}, "CPU1", "Xeon  Silver 4110"),
		smbios(4, map[int]any{4: 1, 0x18: 0, 0x23: 8}, "CPU2"), // an empty socket
		smbios(4, map[int]any{4: 1, 0x18: 0x41, 0x23: 0xff, 0x25: 0xff, 0x2a: uint16(300), 0x2e: uint16(600)}, "CPU3"),
		smbios(17, map[int]any{0xc: uint16(16384), 0x10: 1, 0x17: 2, 0x18: 3, 0x1a: 4}, "A1", "Hynix", "2C0A1B", "HMA82GR7AFR8N "),
		smbios(17, map[int]any{0xc: uint16(0), 0x10: 1}, "A2"),
		smbios(17, map[int]any{0xc: uint16(0x7fff), 0x1c: uint32(65536), 0x10: 1, 0x11: 2, 0x18: 3}, "DIMM 0", "BANK 1", "00000000"),
		smbios(17, map[int]any{0xc: uint16(0x8000 | 2048), 0x10: 9}),
		smbios(127, nil),
		smbios(17, map[int]any{0xc: uint16(1), 0x10: 1}, "after the end"),
	} {
		table = append(table, s...)
	}
	return table
}

func TestParseSMBIOS(t *testing.T) {
	want := muster.Hardware{Vendor: "Dell Inc.", Product: "PowerEdge R640", Serial: "8CX2P53",
		BIOS: muster.BIOS{Vendor: "Dell Inc.", Version: "2.8.1", Date: "06/26/2020"},
		CPUs: []muster.CPU{{Socket: "CPU1", Model: "Xeon Silver 4110", Cores: 8, Threads: 16}, {Socket: "CPU3", Cores: 300, Threads: 600}},
		DIMMs: []muster.DIMM{{Slot: "A1", SizeMiB: 16384, Vendor: "Hynix", Part: "HMA82GR7AFR8N", Serial: "2C0A1B"},
			{Slot: "BANK 1 DIMM 0", SizeMiB: 65536}, {SizeMiB: 2}}}
	if got := inventory.ParseSMBIOS(board()); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func FuzzParseSMBIOS(f *testing.F) {
	f.Add(board())
	f.Add([]byte{17, 4, 0, 0})
	f.Add([]byte{17, 0x20, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		h := inventory.ParseSMBIOS(b)
		if err := inventory.CheckHardware(h); err != nil {
			t.Errorf("what was read cannot be kept: %v", err)
		}
		if c := inventory.DiffHardware(h, h); len(c) != 0 {
			t.Errorf("a machine differs from itself: %+v", c)
		}
	})
}

func FuzzCompareVersions(f *testing.F) {
	f.Add("1.2", "1.10")
	f.Add("a-1", "A.01")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := inventory.CompareVersions(a, b), inventory.CompareVersions(b, a)
		if x != -y || inventory.CompareVersions(a, a) != 0 {
			t.Errorf("%q and %q: %d and %d", a, b, x, y)
		}
	})
}
