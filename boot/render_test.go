package boot

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster.internal"
	"muster.internal/dhcp"
)

func site() Site {
	return Site{HTTP: netip.MustParseAddrPort("10.77.0.1:80"), Bus: netip.MustParseAddrPort("10.77.0.1:5672"), BusUser: "guest", BusPassword: "s3cret"}
}

func smartImage(name, c string) *muster.Image {
	return &muster.Image{Name: name, Digest: digest(c), Kind: muster.SmartOSImage, Variants: []muster.ImageVariant{{Arch: "amd64",
		Files: []muster.ImageFile{{Role: "unix", Digest: digest("3"), Size: 1}, {Role: "boot_archive", Digest: digest("4"), Size: 1},
			{Role: "hash", Digest: digest("5"), Size: 1}}, Args: []string{"console=ttyb", "ttyb-mode=115200,8,n,1,-"}}}}
}

// TestRender writes each image kind in each mode; the scripts are golden files.
func TestRender(t *testing.T) {
	for _, kind := range []muster.ImageKind{muster.LinuxImage, muster.SmartOSImage} {
		for _, mode := range []Mode{Enroll, Node, Rescue} {
			t.Run(string(kind)+" "+mode.String(), func(t *testing.T) {
				d, r := decided(t, kind, mode)
				got, err := Render(d, r, site(), now, Extra{})
				if err != nil {
					t.Fatal(err)
				}
				golden(t, string(kind)+"-"+mode.String()+".ipxe", string(got))
				rescued := mode == Rescue
				for _, s := range []string{"pinned=yes", "hash", "networking.json"} {
					if rescued && strings.Contains(string(got), s) {
						t.Errorf("rescue must drop %s", s)
					}
				}
				if kind == muster.SmartOSImage && strings.Contains(string(got), "noimport=true") != (mode != Node) {
					t.Error("only a node's normal boot may import pools")
				}
			})
		}
	}
}

// A node is told of its image's root file system, and nobody else is: a machine
// that is not one yet has no pool to keep it on.
func TestRenderRoot(t *testing.T) {
	for _, mode := range []Mode{Enroll, Node, Rescue} {
		d, r := decided(t, muster.LinuxImage, mode)
		v := *d.Variant
		v.Files = append(slices.Clone(v.Files), muster.ImageFile{Role: "rootfs", Digest: digest("8"), Size: 3})
		d.Variant = &v
		got, err := Render(d, r, site(), now, Extra{})
		if err != nil {
			t.Fatal(err)
		}
		if mode == Node {
			golden(t, "linux-node-root.ipxe", string(got))
			d.Address, d.DNS = netip.Prefix{}, [3]netip.Addr{}
			got, err := Render(d, r, site(), now, Extra{})
			if want := " muster.dns=${netX/dns} muster.dhcp=site || goto failed\n"; err != nil || !strings.Contains(string(got), want) {
				t.Errorf("at an address of the site's: %v\n%s", err, got)
			}
		} else if strings.Contains(string(got), "muster.root") {
			t.Errorf("%s:\n%s", mode, got)
		}
	}
}

func decided(t testing.TB, kind muster.ImageKind, mode Mode) (Decision, *muster.BootRecord) {
	t.Helper()
	mk := linuxImage
	if kind == muster.SmartOSImage {
		mk = smartImage
	}
	r := rec(muster.Enrolled)
	r.KernelArgs = []string{"pinned=yes"}
	r.Networking = &muster.Networking{Address: "10.77.0.101/24", Gateway: "10.77.0.254", Hostname: "node7"}
	switch mode {
	case Enroll:
		r.State = muster.Enrolling
	case Rescue:
		rescue(r, now.Add(time.Hour))
	}
	d := Decide(Request{Via: HTTP, MAC: mac, Want: Script}, NewMachine(r), NewPolicy(policy()), env(mk("enroll-1", "a"), mk("node-1", "b")))
	if !d.Serve || d.Mode != mode {
		t.Fatal(d.Why())
	}
	return d, r
}

func TestFirst(t *testing.T) { golden(t, "start.ipxe", string(First(site(), mac))) }

func TestNetworking(t *testing.T) {
	d, r := decided(t, muster.SmartOSImage, Node)
	got, err := Networking(d, r)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "networking.json", string(got)+"\n")
}

func TestURL(t *testing.T) {
	s := site()
	s.HTTP = netip.MustParseAddrPort("127.0.0.1:8080")
	if got := s.URL(mac); got != "http://127.0.0.1:8080/boot/52-54-00-77-00-a1" {
		t.Error(got)
	}
}

// What the scripts name is what can be fetched, and nothing else.
func TestFind(t *testing.T) {
	d, _ := decided(t, muster.SmartOSImage, Node)
	for path, role := range map[string]string{
		"os/node-1/platform/i86pc/kernel/amd64/unix":       "unix",
		"os/node-1/platform/i86pc/amd64/boot_archive":      "boot_archive",
		"os/node-1/platform/i86pc/amd64/boot_archive.hash": "hash",
		"file/" + strings.Repeat("4", 64):                  "boot_archive",
		"file/" + strings.Repeat("6", 64):                  "",
		"file/sha256:" + strings.Repeat("4", 64):           "",
		"os/other/platform/i86pc/kernel/amd64/unix":        "",
		"os/node-1/platform/i86pc/../../../../etc/shadow":  "",
		"": "",
	} {
		f, ok := d.Find(path)
		if ok != (role != "") || f.Role != role {
			t.Errorf("%s: %+v %v, want %q", path, f, ok, role)
		}
	}
	if _, ok := (Decision{}).Find("file/" + strings.Repeat("4", 64)); ok {
		t.Error("a machine without an image found a file")
	}
}

// TestGate puts every bad value where a script would carry it: none is written.
func TestGate(t *testing.T) {
	bad := []string{"a b", "x\ny", "${mac}", "a&&b", "a||b", "#x", `"q"`, "a'b", "a;b", "a\\b", "ü", "", strings.Repeat("x", 300), "a\x00b"}
	for _, v := range bad {
		for where, f := range map[string]func(*Decision, *muster.BootRecord, *Site){
			"image argument": func(d *Decision, _ *muster.BootRecord, _ *Site) {
				i := *d.Image
				i.Variants = []muster.ImageVariant{*d.Variant}
				i.Variants[0].Args = []string{v}
				d.Image, d.Variant = &i, &i.Variants[0]
			},
			"kernel argument": func(_ *Decision, r *muster.BootRecord, _ *Site) { r.KernelArgs = []string{v} },
			"image name":      func(d *Decision, _ *muster.BootRecord, _ *Site) { i := *d.Image; i.Name = v; d.Image = &i },
			"bus password":    func(_ *Decision, _ *muster.BootRecord, s *Site) { s.BusPassword = v },
			"bus user":        func(_ *Decision, _ *muster.BootRecord, s *Site) { s.BusUser = v },
		} {
			d, r := decided(t, muster.LinuxImage, Node)
			s := site()
			f(&d, r, &s)
			if got, err := Render(d, r, s, now, Extra{}); err == nil {
				t.Errorf("%s %q got through:\n%s", where, v, got)
			}
		}
	}
	for _, p := range []string{"a:b", "a=b", "a,b"} {
		if s := site(); s.Check() != nil || func() error { s.BusPassword = p; return s.Check() }() == nil {
			t.Errorf("bus password %q: the stock agent would cut it", p)
		}
	}
}

func TestImagesMayNotHarmPools(t *testing.T) {
	d, r := decided(t, muster.SmartOSImage, Node)
	for _, a := range []string{"destroy_zpools=true", "noimport=false", "console=ttya,destroy_zpools=true"} {
		i := *d.Image
		i.Variants = []muster.ImageVariant{*d.Variant}
		i.Variants[0].Args = []string{a}
		e := d
		e.Image, e.Variant = &i, &i.Variants[0]
		if _, err := Render(e, r, site(), now, Extra{}); err == nil {
			t.Errorf("%s got through", a)
		}
	}
}

func TestCheckArg(t *testing.T) {
	tests := []struct {
		arg string
		ok  bool
	}{
		{"quiet", true}, {"console=ttyS0,115200n8", true}, {"a.b-c=d/e:f@g+h%i", true}, {"zfs.zfs_arc_max=1073741824", true},
		{"destroy_zpools", false}, {"destroy_zpools=true", false}, {"Destroy-Zpools=true", false}, {"-B=x,destroy_zpools=true", false},
		{"console=ttya,destroy_zpools=true", false}, {"noimport=false", false}, {"smartdc:factoryreset=yes", false},
		{"zfs_force=1", false}, {"zfs.zfs_autoimport_disable=0", false}, {"zfs.zfs-autoimport-disable=0", false}, {"muster.mode=node", false}, {"Muster.ip=1.2.3.4/8", false},
		{"rabbitmq=a:b:c:d", false}, {"--destroy_zpools=1", false}, {"root_shadow=x", false}, {"init=/bin/sh", false}, {"initcall_debug", true},
		{"a b", false}, {"", false}, {"${x}", false},
	}
	for _, tt := range tests {
		if err := CheckArg(tt.arg); (err == nil) != tt.ok {
			t.Errorf("%q: %v", tt.arg, err)
		}
	}
	for name := range refused {
		if CheckArg(name) == nil || CheckArg(name+"=1") == nil || CheckArg("x=1,"+strings.ToUpper(name)+"=1") == nil {
			t.Errorf("%s is listed but not refused", name)
		}
	}
}

// Whatever record, site and image hold, a script is one command a line, has no
// expansion of its own, and never a word that destroys pools.
func TestNothingBreaksOutOfAScript(t *testing.T) {
	value := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z_.:=,$ {}\n]{1,20}`),
		rapid.SampledFrom([]string{"destroy_zpools=true", "x,destroy_zpools=1", "noimport=no", "\nshell", "${ip}"}))
	rapid.Check(t, func(rt *rapid.T) {
		kind := rapid.SampledFrom([]muster.ImageKind{muster.LinuxImage, muster.SmartOSImage}).Draw(rt, "kind")
		d, r := decided(t, kind, rapid.SampledFrom([]Mode{Enroll, Node, Rescue}).Draw(rt, "mode"))
		r.KernelArgs = rapid.SliceOfN(value, 0, 3).Draw(rt, "args")
		r.Networking.Hostname = value.Draw(rt, "hostname")
		s := site()
		if rapid.Bool().Draw(rt, "bus") {
			s.BusPassword = value.Draw(rt, "password")
		}
		// The decision has been made before: look again, as a server does.
		if e := Decide(Request{Via: HTTP, MAC: mac, Want: Script}, NewMachine(r), NewPolicy(policy()), env(d.Image)); !e.Serve {
			return
		}
		got, err := Render(d, r, s, now, Extra{})
		if err != nil {
			return
		}
		for _, line := range strings.Split(string(got), "\n") {
			word, _, _ := strings.Cut(line, " ")
			switch word {
			case "", "#!ipxe", "echo", "kernel", "initrd", "module", "boot", ":failed", "sleep", "chain":
			default:
				rt.Fatalf("line %q", line)
			}
		}
		if strings.Contains(string(got), "$") || strings.Contains(string(got), "destroy_zpools") || strings.Contains(string(got), "noimport=no") {
			rt.Fatalf("%s", got)
		}
	})
}

func TestFromDHCP(t *testing.T) {
	var p dhcp.Packet
	p.CIAddr = netip.MustParseAddr("10.77.0.101")
	p.SetMAC(mac)
	p.Set(dhcp.OptMessageType, []byte{3})
	p.Set(dhcp.OptUserClass, []byte("iPXE"))
	q, ok := FromDHCP(&p)
	if !ok || q.MAC != mac || q.Type != dhcp.Request || !q.IPXE || q.Claimed != p.CIAddr || q.HasArch || q.ServerID.IsValid() {
		t.Errorf("%+v %v", q, ok)
	}
	p.Set(dhcp.OptRequestedIP, []byte{10, 77, 0, 9})
	if q, _ := FromDHCP(&p); q.Claimed != netip.MustParseAddr("10.77.0.9") {
		t.Errorf("option 50 goes before ciaddr: %v", q.Claimed)
	}
}
