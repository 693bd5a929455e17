package sim

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	idhcp "github.com/insomniacslk/dhcp/dhcpv4"

	"muster.internal/boot"
	"muster.internal/dhcp"

	muster "muster.internal"
)

// segment is a small true boot server: the real decision and rendering, behind
// a wire without loss.
type segment struct {
	rec     *muster.BootRecord
	pol     muster.BootPolicy
	image   muster.Image
	files   map[string][]byte
	quiet   int // messages that are not answered at first
	started bool
	said    []string
	asked   []string
	slept   time.Duration
}

var (
	server = netip.MustParseAddr("10.77.0.1")
	site   = boot.Site{HTTP: netip.AddrPortFrom(server, 80), Bus: netip.AddrPortFrom(server, 5672), BusUser: "guest", BusPassword: "s3cret"}
)

func (s *segment) env() boot.Env {
	return boot.Env{Now: time.Unix(1795000000, 0), Server: server, HasLoader: func(string) bool { return true },
		Staged: func(string) *muster.Image { return &s.image }}
}

func (s *segment) DHCP(_ context.Context, b []byte, _ time.Duration) ([]byte, error) {
	// An independent reader must understand what our firmware says.
	if _, err := idhcp.FromBytes(b); err != nil {
		return nil, err
	}
	if s.quiet > 0 {
		s.quiet--
		return nil, ErrSilence
	}
	p := new(dhcp.Packet)
	if err := p.Parse(b); err != nil {
		return nil, err
	}
	q, _ := boot.FromDHCP(p)
	d := boot.Decide(q, boot.NewMachine(s.rec), boot.NewPolicy(&s.pol), s.env())
	if !d.Serve {
		s.said = append(s.said, d.Reason.String())
		return nil, ErrSilence
	}
	return boot.AppendOffer(nil, nil, &d, p, site, server), nil
}

func (s *segment) TFTP(_ context.Context, _ netip.Addr, name string) ([]byte, error) {
	s.asked = append(s.asked, "tftp "+name)
	return []byte("loader"), nil
}

func (s *segment) HTTP(_ context.Context, url string) ([]byte, error) {
	s.asked = append(s.asked, url)
	mac, _ := dhcp.ParseMAC(s.rec.MAC)
	d := boot.Decide(boot.Request{Via: boot.HTTP, MAC: mac, Want: boot.Script}, boot.NewMachine(s.rec), boot.NewPolicy(&s.pol), s.env())
	rest := strings.TrimPrefix(url, site.URL(mac)+"/")
	switch {
	case rest == "start.ipxe":
		return boot.First(site, mac), nil
	case strings.HasPrefix(rest, "script.ipxe?"):
		if !s.started {
			s.started = true
			return nil, errors.New("404") // asked again after a while
		}
		return boot.Render(d, s.rec, site, s.env().Now, boot.Extra{})
	}
	f, ok := d.Find(rest)
	if !ok {
		return nil, errors.New("404 for " + url)
	}
	return s.files[f.Digest], nil
}

func (s *segment) Sleep(_ context.Context, d time.Duration) error { s.slept += d; return nil }
func (s *segment) Say(line string)                                { s.said = append(s.said, line) }

func enrolling() *segment {
	k, i := "sha256:"+strings.Repeat("1", 64), "sha256:"+strings.Repeat("2", 64)
	s := &segment{pol: muster.DefaultBootPolicy(), files: map[string][]byte{k: []byte("KERNEL"), i: []byte("INITRD")},
		rec: &muster.BootRecord{MAC: "52:54:00:77:00:a1", State: muster.Enrolling, Mode: muster.NormalMode, Network: "n", Address: "10.77.0.101", Arch: 7}}
	s.pol.Networks = []muster.AdminNetwork{{Name: "n", Prefix: "10.77.0.0/24"}}
	s.pol.EnrollmentPI = &muster.ImageRef{Name: "enroll-1", Digest: "sha256:" + strings.Repeat("a", 64)}
	s.image = muster.Image{Name: "enroll-1", Digest: s.pol.EnrollmentPI.Digest, Kind: muster.LinuxImage, Variants: []muster.ImageVariant{{Arch: "amd64",
		Files: []muster.ImageFile{{Role: "kernel", Digest: k, Size: 6}, {Role: "initrd", Digest: i, Size: 6}}, Args: []string{"quiet"}}}}
	return s
}

func firmware(k FirmwareKind) *Firmware {
	mac, _ := dhcp.ParseMAC("52:54:00:77:00:a1")
	return &Firmware{Kind: k, MAC: mac, UUID: "4c4c4544-0043-5810-8032-b8c04f503533", Serial: "8CX 2P&53", Product: "PowerEdge R640"}
}

func TestFirmwareBootsWhatTheDecisionServes(t *testing.T) {
	for _, k := range []FirmwareKind{BIOSiPXE, UEFI} {
		s := enrolling()
		s.quiet = 2
		b, err := firmware(k).Run(t.Context(), s)
		if err != nil {
			t.Fatalf("%s: %v\n%s", k, err, strings.Join(s.said, "\n"))
		}
		if string(b.Kernel) != "KERNEL" || string(b.Initrd) != "INITRD" || !slices.Contains(b.Args, "muster.mode=enroll") || !slices.Contains(b.Args, "muster.ip=10.77.0.101/24") {
			t.Errorf("%s booted %+v", k, b)
		}
		all := strings.Join(s.asked, "\n")
		if got := strings.Contains(all, "tftp 52-54-00-77-00-a1/snponly.efi"); got != (k == UEFI) {
			t.Errorf("%s: loader by TFTP: %v\n%s", k, got, all)
		}
		if !strings.Contains(all, "script.ipxe?uuid=4c4c4544-0043-5810-8032-b8c04f503533&serial=8CX%202P%2653&product=PowerEdge%20R640") {
			t.Errorf("%s does not say what machine it is:\n%s", k, all)
		}
		if s.slept != 3*time.Second {
			t.Errorf("%s waited %v before asking again", k, s.slept)
		}
	}
}

func TestFirmwareHearsSilence(t *testing.T) {
	s := enrolling()
	s.rec.State = muster.BootDecommissioned
	if _, err := firmware(UEFI).Run(t.Context(), s); !errors.Is(err, ErrNothing) {
		t.Errorf("a decommissioned machine was led to %v", err)
	}
	if len(s.said) != len(defaultPatience) {
		t.Errorf("it asked %d times", len(s.said))
	}
}

func TestFirmwareRefusesALoaderThatIsNone(t *testing.T) {
	f := firmware(UEFI)
	f.Loader = func(string, []byte) bool { return false }
	if _, err := f.Run(t.Context(), enrolling()); err == nil || !strings.Contains(err.Error(), "no program for this firmware") {
		t.Error(err)
	}
}

// TestScripts runs the goldens of package boot's own rendering, and the turns
// that a script may take.
func TestScripts(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"goto and loops", "#!ipxe\nset n:int32 0\n:again\ninc n\niseq ${n} 3 && goto out ||\ngoto again\n:out\nkernel http://k n=${n}\nboot\n", "n=3"},
		{"failure is caught", "#!ipxe\nkernel http://404 || goto other\n:other\nkernel http://k x\nboot", "x"},
		{"failure is not caught", "#!ipxe\nkernel http://404\nkernel http://k x\nboot", "error: 404"},
		{"no such label", "#!ipxe\ngoto nowhere\n", `error: the boot script has no label "nowhere"`},
		{"no such command", "#!ipxe\nsanboot x\n", `error: iPXE has no command "sanboot"`},
		{"the end", "#!ipxe\necho hello\n", "error: the boot script ended without booting"},
		{"for ever", "#!ipxe\n:a\ngoto a\n", "error: the boot script runs for ever"},
		{"over", "#!ipxe\nreboot\n", "error: the boot script starts over"},
		{"not set is empty", "#!ipxe\nkernel http://k a=${serial}b ${unclosed\nboot\n", "a=b ${unclosed"},
	} {
		p := &ipxe{wire: pageWire{"http://s": c.script, "http://k": "K"}, vars: map[string]string{}}
		b, err := p.chain(t.Context(), "http://s")
		got := strings.Join(b.Args, " ")
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// FuzzScript: whatever is served, the interpreter ends.
func FuzzScript(f *testing.F) {
	for _, name := range []string{"start.ipxe", "linux-node.ipxe"} {
		if b, err := os.ReadFile("../boot/testdata/" + name); err == nil {
			f.Add(string(b))
		}
	}
	f.Add("#!ipxe\nset a b || && ||\nchain --name\nkernel --name x\n${")
	f.Fuzz(func(t *testing.T, script string) {
		p := &ipxe{wire: pageWire{"s": script}, vars: map[string]string{}}
		_, _ = p.chain(t.Context(), "s")
	})
}

// pageWire serves pages by their URL and nothing else.
type pageWire map[string]string

func (p pageWire) DHCP(context.Context, []byte, time.Duration) ([]byte, error) {
	return nil, ErrSilence
}
func (p pageWire) TFTP(context.Context, netip.Addr, string) ([]byte, error) {
	return nil, errors.New("404")
}
func (p pageWire) HTTP(_ context.Context, url string) ([]byte, error) {
	if s, ok := p[url]; ok {
		return []byte(s), nil
	}
	return nil, errors.New("404")
}
func (p pageWire) Sleep(context.Context, time.Duration) error { return nil }
func (p pageWire) Say(string)                                 {}
