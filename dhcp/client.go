package dhcp

// An IPXEMark is how iPXE says that it is iPXE.
type IPXEMark byte

const (
	NoIPXE          IPXEMark = iota
	IPXEClass                // user class, raw: what iPXE itself sends
	IPXELengthClass          // user class, length-prefixed as RFC 3004 §4 wants it
	IPXEOptions              // only option 175: vendors' builds leave the user class out
)

// IPXEMark is how the client says that it is iPXE, if it is.
func (p *Packet) IPXEMark() IPXEMark {
	class := p.Get(OptUserClass)
	if string(class) == "iPXE" {
		return IPXEClass
	}
	for len(class) > 0 && int(class[0]) < len(class) {
		n := 1 + int(class[0])
		if string(class[1:n]) == "iPXE" {
			return IPXELengthClass
		}
		class = class[n:]
	}
	if len(p.Get(OptIPXE)) > 0 {
		return IPXEOptions
	}
	return NoIPXE
}

// IPXE tells whether iPXE asks.
func (p *Packet) IPXE() bool { return p.IPXEMark() != NoIPXE }

// Features are what an iPXE has built in, of what it lists in option 175.
type Features byte

const (
	// ListsFeatures is set when it lists any feature at all.
	ListsFeatures Features = 1 << iota
	HasHTTP
	HasBzImage // Linux kernels, by BIOS
	HasEFI     // anything, by UEFI
)

// IPXEFeatures reads option 175: sub-options, of which those from 16 to 127
// name a feature each (iPXE, "DHCP encapsulated options").
func (p *Packet) IPXEFeatures() Features {
	var f Features
	v := p.Get(OptIPXE)
	for len(v) >= 2 && len(v) >= 2+int(v[1]) {
		switch sub := v[0]; {
		case sub == 0x13:
			f |= ListsFeatures | HasHTTP
		case sub == 0x18:
			f |= ListsFeatures | HasBzImage
		case sub == 0x24:
			f |= ListsFeatures | HasEFI
		case sub >= 0x10 && sub < 0x80:
			f |= ListsFeatures
		}
		v = v[2+int(v[1]):]
	}
	return f
}

// A Class is what kind of client asks, by option 60.
type Class byte

const (
	OtherClass Class = iota // an operating system, a printer, anything
	PXEClass                // "PXEClient…": firmware, and iPXE
	HTTPClass               // "HTTPClient…": UEFI HTTP boot
	SunClass                // "SUNW…": a SmartOS that configures its admin NIC
	UBootClass              // "U-Boot…": firmware of small boards
)

func (c Class) String() string {
	return [...]string{"other", "PXEClient", "HTTPClient", "SUNW", "U-Boot"}[c]
}

// Class is the client's class.
func (p *Packet) Class() Class {
	v := p.Get(OptClassID)
	for c := PXEClass; c <= UBootClass; c++ {
		if n := len(c.String()); len(v) >= n && string(v[:n]) == c.String() {
			return c
		}
	}
	return OtherClass
}

// ClassArch is the architecture that the class names: five digits after
// ":Arch:" (PXE specification 2.1, §2.1.1).
func (p *Packet) ClassArch() (arch uint16, ok bool) {
	v := p.Get(OptClassID)
	if c := p.Class(); c != PXEClass && c != HTTPClass {
		return 0, false
	}
	const mark = ":Arch:"
	i := len(PXEClass.String())
	if p.Class() == HTTPClass {
		i = len(HTTPClass.String())
	}
	if len(v) < i+len(mark)+5 || string(v[i:i+len(mark)]) != mark {
		return 0, false
	}
	n := 0
	for _, c := range v[i+len(mark):][:5] {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return uint16(n), n <= 0xffff
}
