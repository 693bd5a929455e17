package boot

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/dhcp"
)

var update = flag.Bool("update", false, "rewrite golden files")

var (
	now    = time.Unix(1795000000, 0)
	server = netip.MustParseAddr("10.77.0.1")
	mac    = dhcp.MAC{0x52, 0x54, 0, 0x77, 0, 0xa1}
)

func digest(c string) string { return "sha256:" + strings.Repeat(c, 64) }

// bothArches adds a variant for arm64 to an image.
func bothArches(i *muster.Image) *muster.Image {
	v := i.Variants[0]
	v.Arch = "arm64"
	i.Variants = append(i.Variants, v)
	return i
}

func linuxImage(name, c string) *muster.Image {
	return &muster.Image{Name: name, Digest: digest(c), Kind: muster.LinuxImage, Variants: []muster.ImageVariant{{Arch: "amd64",
		Files: []muster.ImageFile{{Role: "kernel", Digest: digest("1"), Size: 7}, {Role: "initrd", Digest: digest("2"), Size: 9}},
		Args:  []string{"console=ttyS0,115200n8", "quiet"}}}}
}

func env(images ...*muster.Image) Env {
	return Env{Now: now, Server: server, HasLoader: func(string) bool { return true },
		Staged: func(d string) *muster.Image {
			for _, i := range images {
				if i.Digest == d {
					return i
				}
			}
			return nil
		}}
}

func policy() *muster.BootPolicy {
	p := muster.DefaultBootPolicy()
	p.EnrollmentPI = &muster.ImageRef{Name: "enroll-1", Digest: digest("a")}
	p.Networks = []muster.AdminNetwork{{Name: "admin", Prefix: "10.77.0.0/24", Gateway: "10.77.0.254", Resolvers: []string{"9.9.9.9", "::1", "1.1.1.1"}, Lease: 600}}
	return &p
}

func rec(state muster.BootState) *muster.BootRecord {
	return &muster.BootRecord{MAC: mac.String(), State: state, Mode: muster.NormalMode, Network: "admin", Address: "10.77.0.101",
		AssignedPI: &muster.ImageRef{Name: "node-1", Digest: digest("b")}}
}

func rescue(r *muster.BootRecord, until time.Time) *muster.BootRecord {
	r.Mode, r.RescueUntil = muster.RescueMode, &until
	return r
}

func discover(arch uint16) Request {
	return Request{Via: DHCP, MAC: mac, Type: dhcp.Discover, Class: dhcp.PXEClass, Arch: arch, HasArch: true}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	name = "testdata/" + name
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

// TestDecide is the rules as a document: a case, and the sentence an operator
// would read. One line each, in testdata/decide.golden.
func TestDecide(t *testing.T) {
	images := env(linuxImage("enroll-1", "a"), linuxImage("node-1", "b"), linuxImage("rescue-1", "c"))
	var out strings.Builder
	show := func(name string, q Request, r *muster.BootRecord, p *muster.BootPolicy, e Env) {
		d := Decide(q, NewMachine(r), NewPolicy(p), e)
		verdict := "silence " + d.Reason.String()
		if d.Serve {
			verdict = fmt.Sprintf("%s %v lease %d", d.Stage, d.Address, d.Lease)
			if d.Loader != "" {
				verdict += " " + d.Loader
			}
			verdict += " shape " + d.Shape.String()
			if d.Variant != nil {
				verdict += " for " + d.Variant.Arch
			}
		}
		if d.Quirks != 0 {
			verdict += " quirks " + d.Quirks.String()
		}
		fmt.Fprintf(&out, "%s\n    %s [%s]%s\n    %s\n", name, verdict, d.Rule, map[bool]string{true: " sight"}[d.Sight], d.Why())
	}
	bare := policy()
	bare.EnrollmentPI = nil
	open := policy()
	open.AnswerOnlyPXE = false
	saves := policy()
	saves.RescuePI = &muster.ImageRef{Name: "rescue-1", Digest: digest("c")}
	noNet := policy()
	noNet.Networks = nil
	with := func(q Request, f func(*Request)) Request { f(&q); return q }
	mut := func(r *muster.BootRecord, f func(*muster.BootRecord)) *muster.BootRecord { f(r); return r }
	noLoader := images
	noLoader.HasLoader = func(string) bool { return false }

	show("a machine never heard of", discover(0), nil, policy(), images)
	for _, s := range muster.BootStates {
		show(string(s)+", BIOS", discover(0), rec(s), policy(), images)
		show(string(s)+", rescue, rescue image", discover(7), rescue(rec(s), now.Add(time.Hour)), saves, images)
		show(string(s)+", rescue, no rescue image", discover(7), rescue(rec(s), now.Add(time.Hour)), policy(), images)
		show(string(s)+", rescue is over", discover(7), rescue(rec(s), now), saves, images)
		show(string(s)+", rescue without an expiry", discover(7), mut(rec(s), func(r *muster.BootRecord) { r.Mode = muster.RescueMode }), saves, images)
	}
	show("rescue falls back to the enrollment image", discover(7), mut(rescue(rec(muster.Enrolled), now.Add(time.Hour)), func(r *muster.BootRecord) { r.AssignedPI = nil }), policy(), images)
	show("rescue without any image", discover(7), mut(rescue(rec(muster.BootDecommissioned), now.Add(time.Hour)), func(r *muster.BootRecord) { r.AssignedPI = nil }), bare, images)
	show("rescue without an address", discover(7), mut(rescue(rec(muster.Discovered), now.Add(time.Hour)), func(r *muster.BootRecord) { r.Address = "" }), saves, images)
	show("probe, firmware", discover(7), mut(rec(muster.Discovered), func(r *muster.BootRecord) { r.Probe = true }), policy(), images)
	show("probe, first stage", Request{Via: HTTP, MAC: mac, Want: Start}, mut(rec(muster.Discovered), func(r *muster.BootRecord) { r.Probe = true }), policy(), images)
	show("probe, second stage", Request{Via: HTTP, MAC: mac, Want: Script}, mut(rec(muster.Discovered), func(r *muster.BootRecord) { r.Probe = true }), policy(), images)
	show("probe of a decommissioned record", discover(7), mut(rec(muster.BootDecommissioned), func(r *muster.BootRecord) { r.Probe = true }), policy(), images)
	both := env(bothArches(linuxImage("enroll-1", "a")))
	for _, a := range []uint16{0, 6, 7, 9, 10, 11, 15, 16, 17, 18, 19, 20, 21, 22, 27, 41, 999} {
		show(fmt.Sprintf("architecture %d, firmware", a), discover(a), rec(muster.Enrolling), policy(), both)
		show(fmt.Sprintf("architecture %d, HTTP boot", a), with(discover(a), func(q *Request) { q.Class = dhcp.HTTPClass }), rec(muster.Enrolling), policy(), both)
		show(fmt.Sprintf("architecture %d, iPXE", a), with(discover(a), func(q *Request) { q.IPXE = true }), rec(muster.Enrolling), policy(), both)
	}
	show("arm64, image for amd64 only", discover(11), rec(muster.Enrolling), policy(), images)
	old := both
	old.HasLoader = func(name string) bool { return !strings.Contains(name, "arm64") && name != "snponly.efi" }
	show("arm64, loader missing", discover(11), rec(muster.Enrolling), policy(), old)
	show("x64, only the second loader is there", discover(7), rec(muster.Enrolling), policy(), old)
	show("arm64 HTTP boot, loader missing", with(discover(19), func(q *Request) { q.Class = dhcp.HTTPClass }), rec(muster.Enrolling), policy(), old)
	show("U-Boot", with(discover(22), func(q *Request) { q.Class = dhcp.UBootClass }), rec(muster.Enrolling), policy(), both)
	show("U-Boot by plain BOOTP", with(discover(22), func(q *Request) { q.Class, q.Type = dhcp.UBootClass, 0 }), rec(muster.Enrolling), policy(), both)
	show("no architecture", with(discover(0), func(q *Request) { q.HasArch = false }), rec(muster.Enrolling), policy(), images)
	show("an operating system", with(discover(0), func(q *Request) { q.Class = dhcp.OtherClass }), rec(muster.Enrolled), policy(), images)
	show("an operating system, all are answered", with(discover(0), func(q *Request) { q.Class, q.HasArch = dhcp.OtherClass, false }), rec(muster.Enrolled), open, images)
	show("an unknown operating system, all are answered", with(discover(0), func(q *Request) { q.Class = dhcp.OtherClass }), nil, open, images)
	show("SmartOS configures its NIC", with(discover(0), func(q *Request) { q.Class, q.HasArch = dhcp.SunClass, false }), rec(muster.Enrolled), policy(), images)
	show("REQUEST to us", with(discover(0), func(q *Request) {
		q.Type, q.ServerID, q.Claimed = dhcp.Request, server, netip.MustParseAddr("10.77.0.101")
	}), rec(muster.Enrolled), policy(), images)
	show("REQUEST to another server", with(discover(0), func(q *Request) { q.Type, q.ServerID = dhcp.Request, netip.MustParseAddr("10.77.0.2") }), rec(muster.Enrolled), policy(), images)
	show("REQUEST for another address", with(discover(0), func(q *Request) { q.Type, q.Claimed = dhcp.Request, netip.MustParseAddr("10.77.0.9") }), rec(muster.Enrolled), policy(), images)
	show("DISCOVER that wishes for another address", with(discover(0), func(q *Request) { q.Claimed = netip.MustParseAddr("10.77.0.9") }), rec(muster.Enrolled), policy(), images)
	for _, m := range []dhcp.MessageType{dhcp.Decline, dhcp.Release, dhcp.Inform, 0} {
		show(m.String(), with(discover(0), func(q *Request) { q.Type = m }), rec(muster.Enrolled), policy(), images)
	}
	show("no enrollment image", discover(0), rec(muster.Enrolling), bare, images)
	show("no assigned image", discover(0), mut(rec(muster.Enrolled), func(r *muster.BootRecord) { r.AssignedPI = nil }), policy(), images)
	show("image name with a newline", discover(0), mut(rec(muster.Enrolled), func(r *muster.BootRecord) { r.AssignedPI.Name = "x\nshell" }), policy(), images)
	show("image without a digest", discover(0), mut(rec(muster.Enrolled), func(r *muster.BootRecord) { r.AssignedPI.Digest = "" }), policy(), images)
	show("image not staged", discover(0), rec(muster.Enrolled), policy(), env())
	show("no address", discover(0), mut(rec(muster.Enrolled), func(r *muster.BootRecord) { r.Address = "" }), policy(), images)
	show("network gone", discover(0), rec(muster.Enrolled), noNet, images)
	show("network gone, networking kept", discover(0), mut(rec(muster.Enrolled), func(r *muster.BootRecord) {
		r.Networking = &muster.Networking{Address: "10.77.0.101/22"}
	}), noNet, images)
	show("kernel argument that destroys", discover(0), mut(rec(muster.Enrolled), func(r *muster.BootRecord) { r.KernelArgs = []string{"destroy_zpools=true"} }), policy(), images)
	show("the same in rescue", discover(0), mut(rescue(rec(muster.Enrolled), now.Add(time.Hour)), func(r *muster.BootRecord) { r.KernelArgs = []string{"destroy_zpools=true"} }), policy(), images)
	show("loader missing", discover(0), rec(muster.Enrolled), policy(), noLoader)
	show("HTTP script", Request{Via: HTTP, MAC: mac, Want: Script}, rec(muster.Enrolled), policy(), images)
	show("HTTP script after HTTP boot was seen", Request{Via: HTTP, MAC: mac, Want: Script}, mut(rec(muster.Enrolled), func(r *muster.BootRecord) { r.Arch = 16 }), policy(), images)
	show("HTTP file, decommissioned", Request{Via: HTTP, MAC: mac, Want: File}, rec(muster.BootDecommissioned), policy(), images)
	show("TFTP, discovered", Request{Via: TFTP, MAC: mac, Want: Loader}, rec(muster.Discovered), policy(), images)
	golden(t, "decide.golden", out.String())
}

// TestPromises goes through every combination of state, probe, mode, images,
// address, firmware and protocol, and holds each answer against what must
// never happen.
func TestPromises(t *testing.T) {
	asks := []Request{}
	for _, a := range []uint16{0, 7, 9, 6, 11, 16} {
		for _, ipxe := range []bool{false, true} {
			for _, m := range []dhcp.MessageType{dhcp.Discover, dhcp.Request, dhcp.Inform} {
				q := discover(a)
				q.IPXE, q.Type = ipxe, m
				asks = append(asks, q)
			}
		}
	}
	for _, s := range []Stage{Loader, Autoexec} {
		asks = append(asks, Request{Via: TFTP, MAC: mac, Want: s})
	}
	for _, s := range []Stage{Start, Script, File} {
		asks = append(asks, Request{Via: HTTP, MAC: mac, Want: s})
	}
	n := 0
	for bits := range 1 << 9 {
		on := func(i int) bool { return bits>>i&1 == 1 }
		var staged []*muster.Image
		p := policy()
		if on(0) {
			p.RescuePI = &muster.ImageRef{Name: "rescue-1", Digest: digest("c")}
		}
		if on(1) {
			p.EnrollmentPI = nil
		}
		for i, c := range []string{"a", "b", "c"} {
			if on(2 + i) {
				staged = append(staged, linuxImage("i"+c, c))
			}
		}
		for _, state := range append([]muster.BootState{""}, muster.BootStates...) {
			for _, until := range []time.Time{{}, now, now.Add(time.Second)} {
				r := rec(state)
				if !until.IsZero() {
					rescue(r, until)
				}
				r.Probe = on(5)
				if on(6) {
					r.Address = ""
				}
				if on(7) {
					r.AssignedPI = nil
				}
				p.AnswerOnlyPXE = on(8)
				if state == "" {
					r = nil
				}
				for _, q := range asks {
					keepsPromises(t, q, r, p, env(staged...))
					n++
				}
			}
		}
	}
	t.Logf("%d combinations", n)
}

func keepsPromises(t *testing.T, q Request, r *muster.BootRecord, p *muster.BootPolicy, e Env) {
	t.Helper()
	d := Decide(q, NewMachine(r), NewPolicy(p), e)
	inRescue := r != nil && r.Mode == muster.RescueMode && r.RescueUntil.After(e.Now)
	fail := func(what string) {
		t.Helper()
		t.Fatalf("%s: request %+v, record %+v, decision %+v", what, q, r, d)
	}
	switch {
	case d.Serve != (d.Reason == Served):
		fail("a verdict without its reason")
	case d.Rule == "" || !strings.HasPrefix(d.Why(), mac.String()) || len(d.Why()) < 40:
		fail("nothing to tell people")
	case !d.Serve:
	case r == nil:
		fail("a machine never heard of is served")
	case !inRescue && r.State == muster.BootDecommissioned:
		fail("a decommissioned machine is served")
	case !inRescue && r.State == muster.Discovered && (!r.Probe || d.Stage > Start):
		fail("a discovered machine is served")
	case r.Address == "" || !d.Address.IsValid():
		fail("served without an address")
	case d.Mode != Probe && d.Stage != Address && (d.Image == nil || d.Variant == nil || e.Staged(d.Image.Digest) == nil || d.Variant.Arch != "amd64"):
		fail("served what is not staged")
	case inRescue != (d.Mode == Rescue):
		fail("rescue goes before every state, and ends")
	case d.Mode == Enroll && d.Named != p.EnrollmentPI, d.Mode == Node && d.Named != r.AssignedPI:
		fail("the wrong image")
	case q.Type == dhcp.Inform:
		fail("an INFORM is answered")
	}
	// One decision for every protocol: what firmware is offered it can fetch.
	if d.Serve && q.Via == DHCP {
		for _, then := range []Request{{Via: TFTP, MAC: mac, Want: Loader}, {Via: HTTP, MAC: mac, Want: Start},
			{Via: HTTP, MAC: mac, Want: Script}, {Via: HTTP, MAC: mac, Want: File}} {
			if d.Mode == Probe && then.Want > Start {
				continue
			}
			if f := Decide(then, NewMachine(r), NewPolicy(p), e); !f.Serve || f.Image != d.Image || f.Mode != d.Mode {
				fail(fmt.Sprintf("offered by DHCP, refused by %v: %s", then.Via, f.Why()))
			}
		}
	}
}

func TestReasonsAreTold(t *testing.T) {
	names := map[string]bool{}
	for _, r := range Reasons() {
		d := Decision{MAC: mac, Reason: r, Named: &muster.ImageRef{Name: "n"}, Address: netip.MustParsePrefix("10.77.0.101/24")}
		if r.String() == "" || names[r.String()] || len(d.Why()) < 40 || !strings.Contains(d.Why(), mac.String()) {
			t.Errorf("reason %d %q: %q", r, r, d.Why())
		}
		names[r.String()] = true
	}
}

func TestDecideAndOfferMakeNoGarbage(t *testing.T) {
	e := env(linuxImage("enroll-1", "a"), linuxImage("node-1", "b"))
	r, p := rec(muster.Enrolled), policy()
	r.KernelArgs = []string{"mitigations=auto,nosmt", "console=ttyS1"}
	r.Networking = &muster.Networking{Address: "10.77.0.101/24", Gateway: "10.77.0.254", Resolvers: []string{"9.9.9.9"}}
	m, pol, s := NewMachine(r), NewPolicy(p), site()
	var req dhcp.Packet
	req.Op, req.XID = dhcp.BootRequest, 7
	req.SetMAC(mac)
	req.Set(dhcp.OptMessageType, []byte{byte(dhcp.Discover)})
	dst, buf := make([]byte, 0, 1024), make([]byte, 0, 256)
	for _, q := range []Request{discover(7), {Via: DHCP, MAC: mac, Type: dhcp.Discover, IPXE: true, HasArch: true}, {Via: DHCP, MAC: mac, Type: dhcp.Inform}} {
		n := testing.AllocsPerRun(100, func() {
			d := Decide(q, m, pol, e)
			if d.Serve {
				dst = AppendOffer(dst[:0], buf, &d, &req, s, server)
			}
		})
		if n != 0 {
			t.Errorf("%v allocations for %+v", n, q)
		}
	}
}

func BenchmarkDecideAndOffer(b *testing.B) {
	e := env(linuxImage("enroll-1", "a"), linuxImage("node-1", "b"))
	m, pol, q, s := NewMachine(rec(muster.Enrolled)), NewPolicy(policy()), discover(7), site()
	var req dhcp.Packet
	req.SetMAC(mac)
	req.Set(dhcp.OptMessageType, []byte{byte(dhcp.Discover)})
	dst, buf := make([]byte, 0, 1024), make([]byte, 0, 256)
	for b.Loop() {
		d := Decide(q, m, pol, e)
		dst = AppendOffer(dst[:0], buf, &d, &req, s, server)
	}
}
