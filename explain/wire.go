package explain

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/boot"
	"muster.internal/capture"
	"muster.internal/dhcp"
)

// A Wire is what a capture shows of network boots.
type Wire struct {
	Frames   int       `json:"frames"` // in the file
	Used     int       `json:"used"`   // that belong to a boot
	Attempts []Attempt `json:"attempts"`
	Servers  []Server  `json:"servers"`
	Warnings []string  `json:"warnings"`
	Faults   []Line    `json:"faults"` // frames that cannot be read
	// Incomplete says what of the capture could not be read.
	Incomplete string `json:"incomplete,omitempty"`
}

// An Attempt is one machine's way through a boot.
type Attempt struct {
	MAC      string               `json:"mac"`
	From     time.Time            `json:"from"`
	To       time.Time            `json:"to"`
	Firmware *muster.BootFirmware `json:"firmware,omitempty"` // of its first message
	Lines    []Line               `json:"lines"`
	// Verdict is what muster answers now to its last DHCP request.
	Verdict *muster.BootVerdict `json:"verdict,omitempty"`
	// Admitted is what its first message would get if the boot policy admitted
	// the machine; nil when it is admitted.
	Admitted *muster.BootVerdict `json:"admitted,omitempty"`

	rank  int // how far it came: firmware, iPXE, an operating system
	acked bool
}

// A Line is one packet.
type Line struct {
	Frame  int       `json:"frame"`
	At     time.Time `json:"at"`
	Via    string    `json:"via"`              // DHCP, TFTP, HTTP
	Server string    `json:"server,omitempty"` // the server that says this; empty: the machine does
	VLANs  []uint16  `json:"vlans,omitempty"`
	Text   string    `json:"text"`
	Times  int       `json:"times"` // the same packet, this often in a row
	// Verdict is what muster answers now to a request.
	Verdict *muster.BootVerdict `json:"verdict,omitempty"`

	xid     uint32
	payload []byte
}

// A Server is one that answers in a capture.
type Server struct {
	Address string `json:"address"`
	MAC     string `json:"mac"`    // of the frames that it answered with: a relay's, if there is one
	Muster  bool   `json:"muster"` // it answers as a booter of ours does
	Answers int    `json:"answers"`
	NAKs    int    `json:"naks,omitempty"`
	Gives   string `json:"gives"` // its last answer
}

// Sites finds what decides about a MAC.
type Sites func(mac string) Site

// ReadWire sorts the frames of a capture by machine and attempt.
func ReadWire(f capture.File, sites Sites) Wire {
	w := &wiring{sites: sites, servers: map[string]*Server{}, current: map[string]*Attempt{}, owners: map[netip.Addr]string{}, transfers: map[netip.AddrPort]*transfer{}}
	w.out.Frames, w.out.Incomplete = f.Total, f.Fault
	for i := range f.Frames {
		w.frame(&f.Frames[i])
	}
	return w.finish()
}

type wiring struct {
	out       Wire
	sites     Sites
	attempts  []*Attempt
	current   map[string]*Attempt // by MAC
	servers   map[string]*Server
	owners    map[netip.Addr]string // who holds an address
	transfers map[netip.AddrPort]*transfer
}

// A transfer is a TFTP request whose packets are counted.
type transfer struct {
	a      *Attempt
	line   int
	server netip.Addr
	blocks int
	bytes  int
	ended  bool
}

const maxFaults = 50

func (w *wiring) fault(f *capture.Frame, via, text string) {
	if len(w.out.Faults) < maxFaults {
		w.out.Faults = append(w.out.Faults, Line{Frame: f.Number, At: f.At, Via: via, VLANs: f.VLANs, Text: text, Times: 1})
	}
}

func (w *wiring) frame(f *capture.Frame) {
	ports := [2]uint16{f.Src.Port(), f.Dst.Port()}
	on := func(ps ...uint16) bool { return slices.Contains(ps, ports[0]) || slices.Contains(ps, ports[1]) }
	switch {
	case f.Fault != "":
		w.fault(f, "IP", f.Fault)
	case f.Proto == capture.UDP && on(dhcp.ServerPort, dhcp.ClientPort, dhcp.PXEPort):
		w.out.Used++
		w.dhcp(f)
	case f.Proto == capture.UDP && ports[1] == 69:
		w.out.Used++
		w.tftpRequest(f)
	case f.Proto == capture.UDP:
		if w.tftpData(f) {
			w.out.Used++
		}
	case f.Proto == capture.TCP:
		if w.http(f) {
			w.out.Used++
		}
	}
}

// attempt is the one that a machine is in.
func (w *wiring) attempt(mac string, at time.Time) *Attempt {
	a := w.current[mac]
	if a == nil {
		a = &Attempt{MAC: mac, From: at}
		w.current[mac] = a
		w.attempts = append(w.attempts, a)
	}
	a.To = at
	return a
}

// say adds a line, or counts it when it is the same packet again.
func (a *Attempt) say(l Line) int {
	if n := len(a.Lines); n > 0 {
		if o := &a.Lines[n-1]; o.Text == l.Text && o.Server == l.Server && o.Via == l.Via && slices.Equal(o.VLANs, l.VLANs) {
			if !bytes.Equal(o.payload, l.payload) || l.At.Sub(o.At) > 10*time.Millisecond { // not one packet seen at two interfaces
				o.Times++
			}
			return n - 1
		}
	}
	l.Times = 1
	a.Lines = append(a.Lines, l)
	return len(a.Lines) - 1
}

func (w *wiring) dhcp(f *capture.Frame) {
	var p dhcp.Packet
	if err := p.Parse(f.Payload); err != nil {
		w.fault(f, "DHCP", strings.TrimPrefix(err.Error(), "dhcp: ")+fmt.Sprintf(" (%v to %v, %d bytes)", f.Src, f.Dst, len(f.Payload)))
		return
	}
	m, ok := p.MAC()
	if !ok {
		w.fault(f, "DHCP", fmt.Sprintf("it is of no Ethernet card (hardware type %d, %d bytes of address)", p.HType, p.HLen))
		return
	}
	l := Line{Frame: f.Number, At: f.At, Via: "DHCP", VLANs: f.VLANs, xid: p.XID, payload: f.Payload}
	if p.Op == dhcp.BootReply {
		w.reply(f, &p, m.String(), l)
		return
	}
	w.request(&p, m.String(), l)
}

// request is a machine that asks. One that begins anew is another attempt.
func (w *wiring) request(p *dhcp.Packet, mac string, l Line) {
	fw := Firmware(p)
	rank := map[string]int{"firmware": 0, "iPXE": 1}[fw.Stage]
	if fw.Stage == "an operating system" {
		rank = 2
	}
	if a := w.current[mac]; a != nil && p.Type() == dhcp.Discover && (rank < a.rank || rank == a.rank && a.acked || l.At.Sub(a.To) > 2*time.Minute) {
		delete(w.current, mac)
	}
	a := w.attempt(mac, l.At)
	a.acked = a.acked && rank == a.rank
	a.rank = rank
	if a.Firmware == nil {
		a.Firmware = &fw
		a.Admitted = w.admitted(p, mac)
	}
	l.Text = fw.Message + " from " + describe(&fw)
	if d, ok := w.sites(mac).Decide(p); ok {
		v := d.Verdict()
		l.Verdict, a.Verdict = &v, &v
	}
	a.say(l)
}

func describe(f *muster.BootFirmware) string {
	s := f.Stage
	if f.Arch >= 0 {
		s += ", " + f.Name
	} else if f.Class != "" {
		s += ", class " + f.Class
	}
	if f.Giaddr != "" {
		s += ", by relay " + f.Giaddr
		if f.Circuit != "" {
			s += " circuit " + f.Circuit
		}
	}
	if f.Server != "" {
		s += ", to server " + f.Server
	}
	if f.Claims != "" {
		s += ", for " + f.Claims
	}
	return s
}

// admitted asks what the machine would get if it were admitted: with the
// policy's image if that is there, else with one that has every architecture.
func (w *wiring) admitted(p *dhcp.Packet, mac string) *muster.BootVerdict {
	s := w.sites(mac)
	if s.Record != nil && s.Record.State != muster.Discovered {
		return nil
	}
	if pi := s.Policy.EnrollmentPI; pi == nil || s.staged(pi.Digest) == nil {
		any := muster.Image{Name: "any", Digest: "sha256:any", Kind: muster.LinuxImage, Variants: []muster.ImageVariant{{Arch: "amd64"}, {Arch: "arm64"}}}
		s.Policy.EnrollmentPI = &muster.ImageRef{Name: any.Name, Digest: any.Digest}
		s.Image = func(string) *muster.Image { return &any }
	}
	s.Record = &muster.BootRecord{MAC: mac, State: muster.Enrolling, Mode: muster.NormalMode, Address: "192.0.2.1",
		Networking: &muster.Networking{Address: "192.0.2.1/24"}}
	d, ok := s.Decide(p)
	if !ok {
		return nil
	}
	v := d.Verdict()
	return &v
}

func (w *wiring) reply(f *capture.Frame, p *dhcp.Packet, mac string, l Line) {
	from := serverOf(p)
	if !from.IsValid() {
		from = f.Src.Addr()
	}
	l.Server, l.Text = from.String(), Reply(p)
	key := from.String()
	s := w.servers[key]
	if s == nil {
		s = &Server{Address: key, MAC: dhcp.MAC(f.SrcMAC).String()}
		w.servers[key] = s
	}
	file := bootFile(p)
	s.Muster = s.Muster || strings.Contains(file, strings.ReplaceAll(mac, ":", "-")+"/")
	s.Answers++
	s.Gives = l.Text
	a := w.attempt(mac, l.At)
	switch p.Type() {
	case dhcp.Ack:
		a.acked = true
		if !p.YIAddr.IsUnspecified() {
			w.owners[p.YIAddr] = mac
		}
	case 6: // NAK
		s.NAKs++
	}
	a.say(l)
}

// owner is the MAC of the machine at an address; across a router it is known
// by the address that it was given alone.
func (w *wiring) owner(at netip.AddrPort, eth [6]byte) string {
	if mac := w.owners[at.Addr()]; mac != "" {
		return mac
	}
	return dhcp.MAC(eth).String()
}

// finish counts, sorts and warns.
func (w *wiring) finish() Wire {
	for _, t := range w.transfers {
		t.count()
	}
	out := w.out
	out.Attempts, out.Servers = []Attempt{}, []Server{}
	for _, a := range w.attempts {
		out.Attempts = append(out.Attempts, *a)
	}
	for _, s := range w.servers {
		out.Servers = append(out.Servers, *s)
	}
	slices.SortFunc(out.Servers, func(a, b Server) int { return cmp.Compare(a.Address, b.Address) })
	if n := len(out.Servers); n > 1 {
		var names []string
		for _, s := range out.Servers {
			names = append(names, s.Address+" ("+s.MAC+")")
		}
		out.Warnings = append(out.Warnings, fmt.Sprintf("%d DHCP servers answer on this segment: %s; which of them a machine takes is chance", n, strings.Join(names, ", ")))
	}
	for _, s := range out.Servers {
		if s.NAKs > 0 {
			out.Warnings = append(out.Warnings, fmt.Sprintf("the DHCP server %s sends NAKs, which stop machines that another one serves", s.Address))
		}
	}
	if out.Warnings == nil {
		out.Warnings = []string{}
	}
	if out.Faults == nil {
		out.Faults = []Line{}
	}
	return out
}

// decide asks about a file.
func (w *wiring) decide(mac string, via boot.Via, stage boot.Stage) *muster.BootVerdict {
	m, err := dhcp.ParseMAC(mac)
	if err != nil {
		return nil
	}
	d := w.sites(mac).Ask(boot.Request{Via: via, MAC: m, Want: stage})
	v := d.Verdict()
	return &v
}
