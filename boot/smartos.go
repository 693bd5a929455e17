package boot

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"muster.internal"
)

// smartOS boots an illumos kernel with a boot archive. The kernel finds its
// modules by its own path, which must end in platform/i86pc/….
type smartOS struct{}

const (
	smartUnix    = "platform/i86pc/kernel/amd64/unix"
	smartArchive = "platform/i86pc/amd64/boot_archive"
	smartHash    = "platform/i86pc/amd64/boot_archive.hash"
	// NetworkingPath is where a SmartOS image finds its network configuration,
	// below the machine's URL, and NodeConfigPath where it finds the rest. The
	// platform shows both in /system/boot.
	NetworkingPath = "networking.json"
	NodeConfigPath = "node.config"
	// HashSuffix is added for a file's hash.
	HashSuffix = ".hash"
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
// on a node's normal boot: it imports every pool it sees. For a rescue it drops
// whatever the record and the policy add.
func (smartOS) render(w *script, in input) {
	os := w.url + "/os/" + in.Image.Name + "/"
	w.need(w.blob(in.Variant, "unix"), "unix")
	w.need(w.blob(in.Variant, "boot_archive"), "boot_archive")
	w.line("kernel " + os + smartUnix + " -B " + properties(w, in) + " || goto failed")
	w.line("module " + os + smartArchive + " type=rootfs name=ramdisk || goto failed")
	if in.Mode == Rescue {
		return
	}
	if w.blob(in.Variant, "hash") != "" {
		w.line("module " + os + smartHash + " type=hash name=ramdisk || goto failed")
	}
	var names []string
	if in.Address.IsValid() { // else the platform asks the site's server itself
		names = append(names, NetworkingPath)
	}
	switch config, err := NodeConfig(in.Decision); {
	case err != nil && w.err == nil:
		w.err = err
	case len(config) > 0:
		names = append(names, NodeConfigPath)
	}
	for _, n := range names {
		w.line("module " + w.url + "/" + n + " type=file name=" + n + " || goto failed")
		w.line("module " + w.url + "/" + n + HashSuffix + " type=hash name=" + n + " || goto failed")
	}
}

// properties are what follows -B. A secret of this boot alone (root_shadow)
// belongs at the end of own: the platform reads it before any file.
func properties(w *script, in input) string {
	own := []string{"admin_nic=" + in.MAC.String(), "rabbitmq=" + in.site.bus()}
	if n := in.rec.Networking; n != nil && muster.ValidHostname(n.Hostname) && in.Mode != Rescue {
		own = append(own, "hostname="+n.Hostname)
	}
	if in.rec.OwnUUID != "" && in.Mode != Rescue {
		own = append(own, "override_uuid="+in.rec.OwnUUID)
	}
	if in.Mode != Node {
		own = append(own, "noimport=true")
	}
	props := append([]string(nil), in.Variant.Args...)
	props = append(append(props, in.kernelArgs()...), own...)
	for i, p := range props {
		w.gate("boot property", p)
		if why := propertyFault(p); why != "" && w.err == nil {
			w.err = fmt.Errorf("the boot property %.80q is refused: %s", p, why)
		}
		name, value, _ := strings.Cut(p, "=")
		if strings.Contains(value, ",") { // a bare comma would begin another property
			props[i] = name + `="` + value + `"`
		}
	}
	if in.x.RootShadow != "" && in.Mode == Node {
		if !ValidShadow(in.x.RootShadow) && w.err == nil {
			w.err = errors.New("the root password's hash cannot stand behind -B") // an error never holds it
		}
		props = append(props, "root_shadow='"+in.x.RootShadow+"'")
	}
	return strings.Join(props, ",")
}

// propertyFault is why something cannot stand behind -B; "": nothing.
func propertyFault(p string) string {
	name, value, ok := strings.Cut(p, "=")
	switch {
	case !ok || value == "":
		return "a property is NAME=VALUE"
	case strings.Contains(value, "="):
		return "the platform cuts its value at the second equal sign"
	}
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || !(c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.')) {
			return "its name must be letters, digits and _ - . after a letter"
		}
	}
	if name == "" {
		return "a property is NAME=VALUE"
	}
	return ""
}

// FileHash is the hash of a file as the kernel takes it from a module of type
// hash: it shows damage on the way, and proves nothing.
func FileHash(b []byte) []byte {
	sum := sha1.Sum(b)
	return []byte(hex.EncodeToString(sum[:]) + "\n")
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
		Site      string   `json:"datacenter_name,omitempty"`
		Domain    string   `json:"dns_domain,omitempty"`
		AdminTag  string   `json:"admin_tag"`
		Tags      []tag    `json:"nictags"`
		VNICs     []vnic   `json:"vnics"`
		Resolvers []string `json:"resolvers"`
	}{AdminTag: "admin", Tags: []tag{{"admin", n.MAC, 1500}}, VNICs: []vnic{n}, Resolvers: []string{},
		Site: d.NodeConfig["datacenter_name"], Domain: d.NodeConfig["dns_domain"]}
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
