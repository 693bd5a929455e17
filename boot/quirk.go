package boot

import (
	"math/bits"
	"strings"

	"muster.internal/dhcp"
)

// A Quirk is one row: what some firmware gets wrong, or says in its own way,
// and what is made of it. Rows are applied in their order before anything is
// decided; each has the packet that shows it in testdata/quirks.
type Quirk struct {
	Name string
	// Does is what such firmware does, and what is made of it: a sentence that
	// goes on after the machine's name.
	Does string
	// Seen is where it was seen: a capture, or who has reported it.
	Seen string

	match func(f firmware) bool
	apply func(f firmware) firmware
}

// A firmware is what rows go by, and what they correct.
type firmware struct {
	mac                   dhcp.MAC
	class                 dhcp.Class
	mark                  dhcp.IPXEMark
	features              dhcp.Features
	arch, classArch       uint16
	hasArch, hasClassArch bool
	ipxe, ubootARM64      bool
}

// quirkRows are the table.
var quirkRows = [...]Quirk{
	{"ipxe-length-prefixed-class", "says that it is iPXE by a user class with a length before it, as RFC 3004 has it; read as iPXE",
		"Tinkerbell and others compare the raw string only and would miss it",
		func(f firmware) bool { return f.mark == dhcp.IPXELengthClass }, asIPXE},
	{"ipxe-option-175-only", "says that it is iPXE by option 175 alone, without a user class; read as iPXE",
		"Mellanox FlexBoot (warewulf3 issue 104)",
		func(f firmware) bool { return f.mark == dhcp.IPXEOptions }, asIPXE},
	{"arch-only-in-class", "does not send its architecture as option 93; taken from its class",
		"PXE 2.1 has it in both places",
		func(f firmware) bool { return !f.hasArch && f.hasClassArch }, func(f firmware) firmware { return f.as(f.classArch) }},
	{"u-boot-arch-by-class", "is a 64-bit ARM U-Boot, which tells its architecture only by its class",
		"U-Boot without CONFIG_BOOTP_PXE sends no option 93",
		func(f firmware) bool { return !f.hasArch && f.ubootARM64 }, func(f firmware) firmware { return f.as(22) }},
	{"uefi-x64-as-ebc", "reports EFI byte code for 64-bit UEFI, as many boards do; taken as UEFI x64",
		"RFC 4578 and IANA disagree on 7 and 9 (xcat-core pull 7645, opnsense core issue 2223)",
		func(f firmware) bool { return f.hasArch && (f.arch == 9 || f.arch == 17) }, func(f firmware) firmware {
			if f.arch == 9 {
				return f.as(7)
			}
			return f.as(16)
		}},
	{"raspberry-pi-as-bios", "is a Raspberry Pi that reports BIOS; taken for its own boot ROM, which cannot run an x86 loader",
		"raspberrypi/firmware issue 1928",
		func(f firmware) bool {
			return f.hasArch && f.arch == 0 && !f.ipxe && f.class == dhcp.PXEClass && raspberry(f.mac)
		}, func(f firmware) firmware { return f.as(rpiArch) }},
	{"ipxe-without-linux", "runs an iPXE whose own list of features lacks HTTP or the image format; given a whole iPXE by TFTP first",
		"VirtualBox and some network cards' ROMs (warewulf3 issue 104)",
		func(f firmware) bool { return f.ipxe && f.lacks() }, func(f firmware) firmware { f.ipxe, f.class = false, dhcp.PXEClass; return f }},
}

func asIPXE(f firmware) firmware { f.ipxe = true; return f }

func (f firmware) as(arch uint16) firmware { f.arch, f.hasArch = arch, true; return f }

// lacks tells whether an iPXE says of itself that it cannot boot what it would
// be given. One that lists nothing is believed to be whole.
func (f firmware) lacks() bool {
	need := dhcp.HasHTTP | dhcp.HasEFI
	if f.arch == 0 {
		need = dhcp.HasHTTP | dhcp.HasBzImage
	}
	return f.hasArch && f.features&dhcp.ListsFeatures != 0 && f.features&need != need
}

// raspberry: the vendor's address blocks.
func raspberry(m dhcp.MAC) bool {
	switch [3]byte(m[:3]) {
	case [3]byte{0xb8, 0x27, 0xeb}, [3]byte{0xdc, 0xa6, 0x32}, [3]byte{0xe4, 0x5f, 0x01}, [3]byte{0x28, 0xcd, 0xc1}, [3]byte{0xd8, 0x3a, 0xdd}, [3]byte{0x2c, 0xcf, 0x67}:
		return true
	}
	return false
}

// Quirks is a set of rows, one bit each.
type Quirks uint32

// quirks applies the rows to a request and tells which did something.
func (q *Request) quirks() (set Quirks) {
	f := firmware{q.MAC, q.Class, q.Mark, q.Features, q.Arch, q.ClassArch, q.HasArch, q.HasClassArch, q.IPXE, q.UBootARM64}
	for i := range quirkRows {
		if r := &quirkRows[i]; r.match(f) {
			f = r.apply(f)
			set |= 1 << i
		}
	}
	q.Class, q.Arch, q.HasArch, q.IPXE = f.class, f.arch, f.hasArch, f.ipxe
	return set
}

// Rows are the rows of a set, in the table's order.
func (s Quirks) Rows() []Quirk {
	var rows []Quirk
	for ; s != 0; s &= s - 1 {
		rows = append(rows, quirkRows[bits.TrailingZeros32(uint32(s))])
	}
	return rows
}

// String is the rows' names, with commas.
func (s Quirks) String() string {
	var names []string
	for _, r := range s.Rows() {
		names = append(names, r.Name)
	}
	return strings.Join(names, ",")
}
