package boot

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/dhcp"
)

// A Site is what is the same for every machine that one booter serves.
type Site struct {
	// HTTP is where the booter's HTTP server is reached.
	HTTP netip.AddrPort
	// Bus is where its boot bus is reached, with the credentials of that bus.
	Bus         netip.AddrPort
	BusUser     string
	BusPassword string
}

// Check tells whether scripts can carry the site's values.
func (s Site) Check() error {
	for _, f := range []struct{ name, value string }{{"bus user", s.BusUser}, {"bus password", s.BusPassword}} {
		// The stock agent splits its boot parameter at colons and equal signs.
		if !muster.ValidArg(f.value) || strings.ContainsAny(f.value, ":=,") {
			return fmt.Errorf("the %s must be of 1 to 256 letters, digits and . _ / @ + - %%", f.name)
		}
	}
	return nil
}

// URL is what all of a machine's boot files stand below.
func (s Site) URL(m dhcp.MAC) string { return string(s.AppendURL(nil, m)) }

// AppendURL appends that URL to dst.
func (s Site) AppendURL(dst []byte, m dhcp.MAC) []byte {
	dst = append(dst, "http://"...)
	dst = s.HTTP.Addr().AppendTo(dst)
	if p := s.HTTP.Port(); p != 80 {
		dst = append(dst, ':')
		dst = strconv.AppendUint(dst, uint64(p), 10)
	}
	dst = append(dst, "/boot/"...)
	return m.AppendHyphens(dst)
}

func (s Site) bus() string { return s.BusUser + ":" + s.BusPassword + ":" + busAddr(s.Bus) }

func busAddr(a netip.AddrPort) string {
	return a.Addr().String() + ":" + strconv.Itoa(int(a.Port()))
}

// First is the first-stage script: the same for every machine but for its URL.
// It asks for the machine's own script, telling what the firmware says of the
// machine, again and again for about a minute; then it starts over by way of
// the firmware.
func First(s Site, m dhcp.MAC) []byte {
	url := s.URL(m)
	return []byte(`#!ipxe
echo muster: ` + m.String() + ` asks what to boot
set tries:int32 0
:again
chain --replace --autofree ` + url + `/script.ipxe?uuid=${uuid}&serial=${serial:uristring}&product=${product:uristring}&buildarch=${buildarch} || goto wait
:wait
inc tries
iseq ${tries} 20 && goto over ||
echo muster: nothing to boot yet, asking again
sleep 3
goto again
:over
echo muster: still nothing to boot, starting over; muster boot show ` + m.String() + ` says why
reboot
`)
}

// Render writes the boot script for a decision to serve. Every value that ends
// up in it has passed the charset gate, else there is no script.
func Render(d Decision, rec *muster.BootRecord, s Site, now time.Time) ([]byte, error) {
	if !d.Serve || d.Image == nil || d.Variant == nil {
		return nil, fmt.Errorf("machine %s has no image to boot", d.MAC)
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	r := renderers[d.Image.Kind]
	if r == nil {
		return nil, fmt.Errorf("image %s is of kind %q, which nothing can render", d.Image.Name, d.Image.Kind)
	}
	w := &script{url: s.URL(d.MAC)}
	w.line("#!ipxe")
	w.line("echo muster: " + d.MAC.String() + " boots " + w.gate("image name", d.Image.Name) + ", mode " + d.Mode.String())
	for _, a := range d.Variant.Args {
		if harmsPools(a) && w.err == nil {
			w.err = fmt.Errorf("the argument %.80q of image %s would destroy or import pools", a, d.Image.Name)
		}
	}
	r.render(w, input{d, rec, s, now})
	w.line("boot || goto failed")
	w.line(":failed")
	w.line("echo muster: that did not boot, trying again")
	w.line("sleep 5")
	w.line("chain --replace --autofree " + w.url + "/start.ipxe")
	if w.err != nil {
		return nil, fmt.Errorf("machine %s: %w", d.MAC, w.err)
	}
	return []byte(w.b.String()), nil
}

// An input is what a renderer may use.
type input struct {
	Decision
	rec  *muster.BootRecord
	site Site
	now  time.Time
}

// kernelArgs are the record's own; rescue drops them.
func (in *input) kernelArgs() []string {
	if in.Mode == Rescue {
		return nil
	}
	return in.rec.KernelArgs
}

// A renderer writes the part of a script that depends on the image's kind, and
// knows by what path its files are asked for.
type renderer interface {
	render(w *script, in input)
	// file finds the file of role that path, below the machine's URL, names.
	file(d *Decision, path string) (role string)
}

var renderers = map[muster.ImageKind]renderer{muster.LinuxImage: linux{}, muster.SmartOSImage: smartOS{}}

// Find returns the image's file that a path below the machine's URL names.
func (d Decision) Find(path string) (muster.ImageFile, bool) {
	if d.Image == nil || d.Variant == nil {
		return muster.ImageFile{}, false
	}
	role := ""
	if r := renderers[d.Image.Kind]; r != nil {
		role = r.file(&d, path)
	}
	for _, f := range d.Variant.Files {
		hash, ok := strings.CutPrefix(f.Digest, "sha256:")
		if role != "" && f.Role == role || ok && path == "file/"+hash {
			return f, true
		}
	}
	return muster.ImageFile{}, false
}

// A script collects lines, and the first value that the gate refuses.
type script struct {
	b   strings.Builder
	url string
	err error
}

func (w *script) line(s string) { w.b.WriteString(s + "\n") }

// gate passes a value through if a boot loader takes it as it is.
func (w *script) gate(what, value string) string {
	if w.err == nil && !muster.ValidArg(value) {
		w.err = fmt.Errorf("the %s %.80q cannot stand in a boot script", what, value)
	}
	return value
}

// blob is the URL of a file by role, "" when the variant has none.
func (w *script) blob(v *muster.ImageVariant, role string) string {
	for _, f := range v.Files {
		if hash, ok := strings.CutPrefix(f.Digest, "sha256:"); ok && f.Role == role {
			return w.gate("digest", w.url+"/file/"+hash)
		}
	}
	return ""
}

func (w *script) need(url, role string) string {
	if w.err == nil && url == "" {
		w.err = fmt.Errorf("the image has no %s", role)
	}
	return url
}

// linux boots a kernel with one initrd.
type linux struct{}

func (linux) file(*Decision, string) string { return "" }

func (linux) render(w *script, in input) {
	args := append([]string{"initrd=initrd"}, in.Variant.Args...)
	args = append(args, in.kernelArgs()...)
	args = append(args, "muster.mac="+in.MAC.String(), "muster.ip="+in.Address.String())
	if in.Gateway.IsValid() {
		args = append(args, "muster.gw="+in.Gateway.String())
	}
	args = append(args, "muster.bus="+in.site.bus(), "muster.mode="+in.Mode.String(),
		"muster.time="+strconv.FormatInt(in.now.Unix(), 10))
	for _, a := range args {
		w.gate("kernel argument", a)
	}
	w.line("kernel --name kernel " + w.need(w.blob(in.Variant, "kernel"), "kernel") + " " + strings.Join(args, " ") + " || goto failed")
	w.line("initrd --name initrd " + w.need(w.blob(in.Variant, "initrd"), "initrd") + " || goto failed")
}

// smartOS boots an illumos kernel with a boot archive. The kernel finds its
// modules by its own path, which must end in platform/i86pc/….
type smartOS struct{}

const (
	smartUnix    = "platform/i86pc/kernel/amd64/unix"
	smartArchive = "platform/i86pc/amd64/boot_archive"
	smartHash    = "platform/i86pc/amd64/boot_archive.hash"
	// NetworkingPath is where a SmartOS image finds its network configuration.
	NetworkingPath = "networking.json"
)

func (smartOS) file(d *Decision, path string) string {
	rest, ok := strings.CutPrefix(path, "os/"+d.Image.Name+"/")
	switch {
	case ok && rest == smartUnix:
		return "unix"
	case ok && rest == smartArchive:
		return "boot_archive"
	case ok && rest == smartHash:
		return "hash"
	}
	return ""
}

// render never emits destroy_zpools, and lets the platform import pools only
// on a node's normal boot: it imports every pool it sees.
func (smartOS) render(w *script, in input) {
	props := append([]string(nil), in.Variant.Args...)
	props = append(props, in.kernelArgs()...)
	props = append(props, "admin_nic="+in.MAC.String(), "rabbitmq="+in.site.bus())
	if n := in.rec.Networking; n != nil && muster.ValidHostname(n.Hostname) && in.Mode != Rescue {
		props = append(props, "hostname="+n.Hostname)
	}
	if in.Mode != Node {
		props = append(props, "noimport=true")
	}
	for i, p := range props {
		w.gate("boot property", p)
		name, value, ok := strings.Cut(p, "=")
		if !ok && w.err == nil {
			w.err = fmt.Errorf("the boot property %.80q has no value", p)
		}
		if strings.Contains(value, ",") { // a bare comma would begin another property
			props[i] = name + `="` + value + `"`
		}
	}
	os := w.url + "/os/" + in.Image.Name + "/"
	w.need(w.blob(in.Variant, "unix"), "unix")
	w.need(w.blob(in.Variant, "boot_archive"), "boot_archive")
	w.line("kernel " + os + smartUnix + " -B " + strings.Join(props, ",") + " || goto failed")
	w.line("module " + os + smartArchive + " type=rootfs name=ramdisk || goto failed")
	if in.Mode == Rescue {
		return
	}
	if w.blob(in.Variant, "hash") != "" {
		w.line("module " + os + smartHash + " type=hash name=ramdisk || goto failed")
	}
	w.line("module " + w.url + "/" + NetworkingPath + " type=file name=networking.json || goto failed")
}

// Networking is the networking.json of a SmartOS machine: its admin NIC with
// the reserved address. When it is there the platform asks nobody else.
func Networking(d Decision, rec *muster.BootRecord) ([]byte, error) {
	type tag struct {
		Name string `json:"name"`
		MAC  string `json:"mac"`
		MTU  int    `json:"mtu"`
	}
	type vnic struct {
		MAC      string   `json:"mac"`
		IP       string   `json:"ip"`
		Netmask  string   `json:"netmask"`
		Gateway  string   `json:"gateway,omitempty"`
		VLAN     int      `json:"vlan_id"`
		Tag      string   `json:"nic_tag"`
		Provides []string `json:"nic_tags_provided"`
		Primary  bool     `json:"primary"`
	}
	if !d.Address.IsValid() {
		return nil, fmt.Errorf("machine %s has no address", d.MAC)
	}
	m := ^uint32(0) << (32 - d.Address.Bits())
	n := vnic{MAC: d.MAC.String(), IP: d.Address.Addr().String(), Tag: "admin", Provides: []string{"admin"}, Primary: true,
		Netmask: netip.AddrFrom4([4]byte{byte(m >> 24), byte(m >> 16), byte(m >> 8), byte(m)}).String()}
	if d.Gateway.IsValid() {
		n.Gateway = d.Gateway.String()
	}
	out := struct {
		Hostname  string   `json:"hostname,omitempty"`
		AdminTag  string   `json:"admin_tag"`
		Tags      []tag    `json:"nictags"`
		VNICs     []vnic   `json:"vnics"`
		Resolvers []string `json:"resolvers"`
	}{AdminTag: "admin", Tags: []tag{{"admin", n.MAC, 1500}}, VNICs: []vnic{n}, Resolvers: []string{}}
	if rec.Networking != nil && muster.ValidHostname(rec.Networking.Hostname) {
		out.Hostname = rec.Networking.Hostname
	}
	for _, a := range d.DNS {
		if a.IsValid() {
			out.Resolvers = append(out.Resolvers, a.String())
		}
	}
	return json.MarshalIndent(out, "", "  ")
}
