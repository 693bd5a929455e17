package sim

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"muster.internal/dhcp"
)

// Firmware kinds: what stands between power-on and iPXE.
type FirmwareKind string

const (
	// BIOSiPXE is a BIOS whose network card has iPXE in its ROM.
	BIOSiPXE FirmwareKind = "bios"
	// UEFI is a UEFI x64 PXE client that loads its iPXE by TFTP.
	UEFI FirmwareKind = "uefi"
)

// defaultPatience is how long firmware waits for each answer before it asks again, and
// how often; after the last it gives up.
var defaultPatience = []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}

// Firmware boots one machine from the network.
type Firmware struct {
	Kind     FirmwareKind
	MAC      dhcp.MAC
	UUID     string // as SMBIOS has it
	Serial   string
	Product  string
	Patience []time.Duration // nil: a real firmware's
	// Loader tells whether a file got by TFTP is an iPXE that this firmware can
	// run; nil: every file is.
	Loader func(name string, content []byte) bool
}

// ErrNothing means that the network offered nothing to boot.
var ErrNothing = errors.New("no boot offer: nobody answered DHCP")

// Run goes from power-on to a loaded kernel.
func (f *Firmware) Run(ctx context.Context, w Wire) (Boot, error) {
	if f.Kind == UEFI {
		l, err := f.lease(ctx, w, false)
		if err != nil {
			return Boot{}, err
		}
		w.Say("PXE: " + l.address.String() + ", loading " + l.file + " by TFTP")
		content, err := w.TFTP(ctx, l.server, l.file)
		if err != nil {
			return Boot{}, fmt.Errorf("loading %s by TFTP from %s: %w", l.file, l.server, err)
		}
		if f.Loader != nil && !f.Loader(l.file, content) {
			return Boot{}, fmt.Errorf("%s (%d bytes) is no program for this firmware", l.file, len(content))
		}
	}
	l, err := f.lease(ctx, w, true)
	if err != nil {
		return Boot{}, err
	}
	if !strings.HasPrefix(l.file, "http://") {
		return Boot{}, fmt.Errorf("iPXE was offered %q, which is no URL", l.file)
	}
	w.Say("iPXE: " + l.address.String() + ", " + l.file)
	p := &ipxe{wire: w, vars: map[string]string{"uuid": f.UUID, "serial": f.Serial, "product": f.Product, "net0/mac": f.MAC.String(), "mac": f.MAC.String()}}
	return p.chain(ctx, l.file)
}

// A lease is what DHCP led to.
type lease struct {
	address, server netip.Addr
	file            string
}

// lease asks for an address until there is one or patience ends.
func (f *Firmware) lease(ctx context.Context, w Wire, ipxe bool) (lease, error) {
	patience := f.Patience
	if patience == nil {
		patience = defaultPatience
	}
	for try, wait := range patience {
		offer, err := f.exchange(ctx, w, f.message(dhcp.Discover, uint32(try), ipxe), dhcp.Offer, wait)
		if errors.Is(err, ErrSilence) {
			continue
		}
		if err != nil {
			return lease{}, err
		}
		l := read(offer)
		if l.file == "" {
			continue // an address and nothing to boot: not for firmware
		}
		req := f.message(dhcp.Request, uint32(try), ipxe)
		your, server := offer.YIAddr.As4(), offer.Addr(dhcp.OptServerID).As4()
		req.Set(dhcp.OptRequestedIP, your[:])
		req.Set(dhcp.OptServerID, server[:])
		ack, err := f.exchange(ctx, w, req, dhcp.Ack, wait)
		if errors.Is(err, ErrSilence) {
			continue
		}
		if err != nil {
			return lease{}, err
		}
		if got := read(ack); got.address == l.address {
			return got, nil
		}
	}
	return lease{}, ErrNothing
}

// exchange sends a message and returns the answer of the wanted type.
func (f *Firmware) exchange(ctx context.Context, w Wire, m *dhcp.Packet, want dhcp.MessageType, wait time.Duration) (*dhcp.Packet, error) {
	b, err := w.DHCP(ctx, m.Append(nil), wait)
	if err != nil {
		return nil, err
	}
	p := new(dhcp.Packet)
	if err := p.Parse(b); err != nil {
		return nil, fmt.Errorf("the DHCP answer: %w", err)
	}
	if p.XID != m.XID || p.Op != dhcp.BootReply || p.Type() != want || !p.Addr(dhcp.OptServerID).IsValid() {
		return nil, ErrSilence // for somebody else, or not what was asked
	}
	return p, nil
}

func read(p *dhcp.Packet) lease {
	l := lease{address: p.YIAddr, server: p.SIAddr, file: string(p.File)}
	if b := p.Get(dhcp.OptBootFile); len(b) > 0 {
		l.file = strings.TrimRight(string(b), "\x00")
	}
	if !l.server.IsValid() || l.server.IsUnspecified() {
		l.server = p.Addr(dhcp.OptServerID)
	}
	return l
}

// message is what a real firmware of this kind sends, byte for byte where it
// matters: class, architecture, UUID in SMBIOS order, and iPXE's user class.
func (f *Firmware) message(t dhcp.MessageType, try uint32, ipxe bool) *dhcp.Packet {
	p := &dhcp.Packet{Op: dhcp.BootRequest, HType: 1, HLen: 6, Flags: dhcp.BroadcastFlag,
		CIAddr: netip.IPv4Unspecified(), YIAddr: netip.IPv4Unspecified(), SIAddr: netip.IPv4Unspecified(), GIAddr: netip.IPv4Unspecified()}
	p.SetMAC(f.MAC)
	p.XID = binary.BigEndian.Uint32(f.MAC[2:]) + try
	if ipxe {
		p.XID ^= 0x1b << 24
	}
	arch := byte(0)
	if f.Kind == UEFI {
		arch = 7
	}
	p.Set(dhcp.OptMessageType, []byte{byte(t)})
	p.Set(dhcp.OptMaxSize, []byte{1472 >> 8, 1472 & 0xff})
	p.Set(dhcp.OptArch, []byte{0, arch})
	p.Set(dhcp.OptUNDI, []byte{1, 3, 16})
	p.Set(dhcp.OptClassID, fmt.Appendf(nil, "PXEClient:Arch:%05d:UNDI:003016", arch))
	p.Set(dhcp.OptParameters, []byte{1, 3, 6, 7, 12, 15, 17, 43, 60, 66, 67, 119, 128, 129, 130, 131, 132, 133, 134, 135, 175, 203})
	if raw, err := hex.DecodeString(strings.ReplaceAll(f.UUID, "-", "")); err == nil && len(raw) == 16 {
		raw[0], raw[1], raw[2], raw[3] = raw[3], raw[2], raw[1], raw[0]
		raw[4], raw[5] = raw[5], raw[4]
		raw[6], raw[7] = raw[7], raw[6]
		p.Set(dhcp.OptMachineID, append([]byte{0}, raw...))
	}
	if ipxe {
		p.Set(dhcp.OptUserClass, []byte("iPXE"))
		format := byte(0x18) // Linux kernels by BIOS
		if arch != 0 {
			format = 0x24 // anything by UEFI
		}
		p.Set(dhcp.OptIPXE, []byte{0xeb, 3, 1, 0, 0, 0x17, 1, 1, 0x13, 1, 1, format, 1, 1}) // version, DNS, HTTP: what a stock build says
	}
	return p
}
