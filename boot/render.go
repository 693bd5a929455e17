package boot

import (
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
	if a := s.Bus.Addr(); a.IsValid() && !a.Is4() { // the same agent resolves no names, and colons end its fields
		return fmt.Errorf("the boot bus must be named by an IPv4 address, not by %q", s.Bus.Addr())
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

// OncePath is below what a machine finds, by its nonce, what is handed to one
// boot of it.
const OncePath = "once/"

// Extra is what one boot carries, and no other: on Linux a nonce with which the
// machine fetches the hash of its root password, on SmartOS that hash itself.
type Extra struct {
	Nonce      string
	RootShadow string
}

// ValidShadow is the gate of a crypt(3) hash: the platform sets it with sed and
// finds its properties by commas, equal signs and quotes.
func ValidShadow(hash string) bool {
	if !strings.HasPrefix(hash, "$6$") || len(hash) > 160 {
		return false
	}
	for _, c := range []byte(hash) {
		switch {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c == '$', c == '.', c == '/':
		default:
			return false
		}
	}
	return true
}

// Render writes the boot script for a decision to serve. Every value that ends
// up in it has passed the charset gate, else there is no script.
func Render(d Decision, rec *muster.BootRecord, s Site, now time.Time, x Extra) ([]byte, error) {
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
		if HarmsPools(a) && w.err == nil {
			w.err = fmt.Errorf("the argument %.80q of image %s would destroy or import pools", a, d.Image.Name)
		}
	}
	r.render(w, input{d, rec, s, now, x})
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
	x    Extra
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

// linux boots a kernel with one initrd. A node whose image has a root file
// system is told where that is; its name there is its hash.
type linux struct{}

func (linux) file(*Decision, string) string { return "" }

func (linux) render(w *script, in input) {
	args := append([]string{"initrd=initrd"}, in.Variant.Args...)
	args = append(args, in.kernelArgs()...)
	args = append(args, "muster.mac="+in.MAC.String())
	own := []string(nil)
	if in.Address.IsValid() {
		args = append(args, "muster.ip="+in.Address.String())
	} else { // another server gave the address, and iPXE knows it: its own words, not through the gate
		own = []string{"muster.ip=${netX/ip}/${netX/netmask}", "muster.gw=${netX/gateway}"}
	}
	if in.Gateway.IsValid() {
		args = append(args, "muster.gw="+in.Gateway.String())
	}
	if in.rec.OwnUUID != "" {
		args = append(args, "muster.uuid="+in.rec.OwnUUID)
	}
	args = append(args, "muster.bus="+in.site.bus(), "muster.mode="+in.Mode.String(),
		"muster.time="+strconv.FormatInt(in.now.Unix(), 10))
	if in.x.Nonce != "" && in.Mode == Node {
		args = append(args, "muster.once="+w.url+"/"+OncePath+in.x.Nonce)
	}
	if root := w.blob(in.Variant, "rootfs"); root != "" && in.Mode == Node {
		args = append(args, "muster.root="+root)
		if list := in.resolvers(); list != "" {
			args = append(args, "muster.dns="+list)
		}
		if !in.Address.IsValid() {
			own = append(own, "muster.dns=${netX/dns}", "muster.dhcp=site")
		}
	}
	for _, a := range args {
		w.gate("kernel argument", a)
	}
	args = append(args, own...)
	w.line("kernel --name kernel " + w.need(w.blob(in.Variant, "kernel"), "kernel") + " " + strings.Join(args, " ") + " || goto failed")
	w.line("initrd --name initrd " + w.need(w.blob(in.Variant, "initrd"), "initrd") + " || goto failed")
}

// resolvers are the network's name servers, joined by commas.
func (in *input) resolvers() string {
	var all []string
	for _, a := range in.DNS {
		if a.IsValid() {
			all = append(all, a.String())
		}
	}
	return strings.Join(all, ",")
}
