// Package inventory reads what a machine says of itself: the sysinfo object
// that stock SmartOS agents and our own host announce. It draws the facts out,
// strikes out secrets, and judges by named rules whether two descriptions are
// of one machine.
//
// It must never believe that input: everything is bounded, checked and spelled
// canonically, and nothing in it can make it panic.
package inventory

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"muster.internal"
)

// Facts are what a machine said of itself, checked and in canonical spelling.
type Facts struct {
	UUID         string
	Hostname     string
	Manufacturer string
	Product      string
	Serial       string // empty when the machine has none, or a placeholder
	MemoryMiB    int64
	CPUs         int64    // logical
	MACs         []string // of physical NICs, sorted
	AdminMAC     string   // of the NIC it booted from, if known
	AdminIP      string
	Tags         map[string][]string // what a SmartOS machine calls its NICs, by MAC
	Disks        []muster.Disk       // with serial numbers only when our own host spoke
	SetUp        bool                // it says it has been set up

	// What only our own host says.
	PublicKey string // this boot's, base64
	Version   string
	Firmware  string // bios, uefi
}

// Parse reads a sysinfo object. Errors are *muster.Problem, invalid, and name
// the field.
func Parse(b []byte) (Facts, error) {
	root, err := decode(b)
	if err != nil {
		return Facts{}, err
	}
	r := reader{object: root, path: "sysinfo"}
	f := Facts{
		Hostname: r.text("Hostname"), Manufacturer: r.text("Manufacturer"), Product: r.text("Product"),
		Serial: RealSerial(r.text("Serial Number")), MemoryMiB: r.number("MiB of Memory"), CPUs: r.number("CPU Total Cores"),
		AdminIP: r.text("Admin IP"), SetUp: r.text("Setup") == "true",
	}
	uuid := r.text("UUID")
	if r.err == nil {
		if f.UUID, err = muster.ParseUUID(uuid); err != nil {
			r.wrong("UUID", "%v", err)
		}
	}
	nics := r.child("Network Interfaces")
	f.MACs, f.AdminMAC = macs(&r, nics, tagOrDefault(r.text("Admin NIC Tag")))
	f.Tags = tags(nics)
	if mac, err := muster.ParseMAC(r.child("Boot Parameters").text("admin_nic")); err == nil {
		f.AdminMAC = mac
	}
	f.Disks = stockDisks(&r, r.child("Disks"))
	if _, ours := root["Muster"]; ours {
		f.ours(&r, r.child("Muster"))
	}
	if r.err != nil {
		return Facts{}, r.err
	}
	return f, nil
}

func tagOrDefault(tag string) string {
	if tag == "" {
		return "admin"
	}
	return tag
}

const (
	maxNICs  = 512
	maxDisks = 1024
	// of one disk: GPT has 128 partitions
	maxContents = 256
	maxWord     = 1024 // bytes
)

// macs collects the addresses of physical NICs. An aggregation has the address
// of one of its ports, so it adds none.
func macs(r *reader, nics *reader, tag string) (all []string, admin string) {
	if len(nics.object) > maxNICs {
		r.wrong("Network Interfaces", "a machine has %d at most", maxNICs)
		return nil, ""
	}
	for _, name := range slices.Sorted(maps.Keys(nics.object)) {
		nic := nics.child(name)
		spelled := nic.text("MAC Address")
		mac, err := muster.ParseMAC(spelled)
		if spelled != "" && err != nil && !errors.Is(err, muster.ErrNoCard) { // a card that was given none yet says zeros
			nic.wrong("MAC Address", "%v", err)
		}
		if err != nil {
			continue
		}
		if slices.Contains(nic.texts("NIC Names"), tag) {
			admin = mac
		}
		all = append(all, mac)
	}
	slices.Sort(all)
	return slices.Compact(all), admin
}

// tags are the names that a SmartOS machine gives to its NICs, by address.
func tags(nics *reader) map[string][]string {
	var all map[string][]string
	for _, name := range slices.Sorted(maps.Keys(nics.object)) {
		nic := nics.child(name)
		mac, err := muster.ParseMAC(nic.text("MAC Address"))
		if names := nic.texts("NIC Names"); err == nil && len(names) > 0 {
			if all == nil {
				all = map[string][]string{}
			}
			all[mac] = slices.Compact(slices.Sorted(slices.Values(append(all[mac], names...))))
		}
	}
	return all
}

// scsiName is a SmartOS device name that has the disk's WWN in it.
var scsiName = regexp.MustCompile(`^c\d+t([0-9A-F]{16})d\d+$`)

func stockDisks(r *reader, disks *reader) []muster.Disk {
	if len(disks.object) > maxDisks {
		r.wrong("Disks", "a machine has %d at most", maxDisks)
		return nil
	}
	var all []muster.Disk
	for _, name := range slices.Sorted(maps.Keys(disks.object)) {
		gb := disks.child(name).number("Size in GB")
		if gb < 0 || gb > 1<<33 {
			disks.wrong(name, "a size of %d GB cannot be", gb)
			continue
		}
		d := muster.Disk{Path: name, Size: gb * 1e9}
		if m := scsiName.FindStringSubmatch(name); m != nil {
			d.WWN = strings.ToLower(m[1])
		}
		all = append(all, d)
	}
	return all
}

// ours reads the part that only our own host sends.
func (f *Facts) ours(r, m *reader) {
	f.PublicKey, f.Version, f.Firmware = m.text("public_key"), m.text("version"), m.text("firmware")
	for _, s := range m.texts("macs") {
		mac, err := muster.ParseMAC(s)
		if errors.Is(err, muster.ErrNoCard) {
			continue
		}
		if err != nil {
			m.wrong("macs", "%v", err)
			return
		}
		f.MACs = append(f.MACs, mac)
	}
	slices.Sort(f.MACs)
	f.MACs = slices.Compact(f.MACs)
	if s := m.text("boot_mac"); s != "" {
		mac, err := muster.ParseMAC(s)
		if err != nil {
			m.wrong("boot_mac", "%v", err)
			return
		}
		f.AdminMAC = mac
	}
	v, there := m.object["disks"]
	if !there || v == nil {
		return
	}
	b, err := json.Marshal(v)
	if err == nil {
		f.Disks, err = ParseDisks(b)
	}
	if err != nil {
		m.wrong("disks", "%v", err)
	}
}

// ParseDisks reads a JSON array of disks, as a survey prints it.
func ParseDisks(b []byte) ([]muster.Disk, error) {
	if len(b) > maxBytes {
		return nil, fmt.Errorf("a list of disks has %d bytes at most", maxBytes)
	}
	var ds []muster.Disk
	if err := json.Unmarshal(b, &ds); err != nil {
		return nil, fmt.Errorf("not a list of disks: %w", err)
	}
	return ds, CheckDisks(ds)
}

// CheckDisks tells what is wrong with a list of disks, wherever it comes from;
// nil: nothing. What a machine says is written down, shown and compared, so it
// must be short and printable. Whoever can announce a list can be surveyed and
// refreshed with it: there is no other check.
func CheckDisks(ds []muster.Disk) error {
	if len(ds) > maxDisks {
		return fmt.Errorf("%d disks are more than the %d that a machine may have", len(ds), maxDisks)
	}
	for i, d := range ds {
		if d.Path == "" || d.Size < 0 || len(d.Contents) > maxContents || len(d.Paths) > maxContents {
			return fmt.Errorf("disk %d (%.40q) needs a path, a size, and no more than %d contents and paths", i, d.Path, maxContents)
		}
		words := append([]string{d.Path, d.Vendor, d.Model, d.Serial, d.WWN, d.Transport}, d.Paths...)
		for _, c := range d.Contents {
			words = append(words, c.Kind, c.Name, c.GUID, c.Stamp)
		}
		for _, w := range words {
			if len(w) > maxWord || !utf8.ValidString(w) || strings.ContainsFunc(w, func(r rune) bool { return !unicode.IsPrint(r) }) {
				return fmt.Errorf("disk %d (%.40q) is described with %.40q, which is longer than %d bytes or cannot be printed", i, d.Path, w, maxWord)
			}
		}
	}
	return nil
}

// Sysinfo spells facts as the announcement carries them: the keys of a stock
// agent, and one more of ours.
func (f Facts) Sysinfo() json.RawMessage {
	nics, disks := map[string]any{}, map[string]any{}
	for i, mac := range f.MACs {
		nic := map[string]any{"MAC Address": mac, "ip4addr": "", "Link Status": "up", "NIC Names": []string{}}
		if mac == f.AdminMAC {
			nic["ip4addr"], nic["NIC Names"] = f.AdminIP, []string{"admin"}
		}
		nics["net"+strconv.Itoa(i)] = nic
	}
	for _, d := range f.Disks {
		disks[strings.TrimPrefix(d.Path, "/dev/")] = map[string]any{"Size in GB": d.Size / 1e9}
	}
	setup := "false"
	if f.SetUp {
		setup = "true"
	}
	b, err := json.Marshal(map[string]any{
		"UUID": f.UUID, "Hostname": f.Hostname, "Manufacturer": f.Manufacturer, "Product": f.Product, "Serial Number": f.Serial,
		"MiB of Memory": strconv.FormatInt(f.MemoryMiB, 10), "CPU Total Cores": f.CPUs, "System Type": "Linux",
		"Admin NIC Tag": "admin", "Admin IP": f.AdminIP, "Setup": setup, "Disks": disks, "Network Interfaces": nics,
		"Virtual Network Interfaces": map[string]any{}, "Link Aggregations": map[string]any{}, "Boot Parameters": map[string]any{},
		"Muster": f.own(),
	})
	if err != nil {
		panic("inventory: facts are plain data: " + err.Error())
	}
	return b
}

// own is what only our own host says.
func (f Facts) own() map[string]any {
	return map[string]any{"public_key": f.PublicKey, "version": f.Version, "macs": f.MACs, "boot_mac": f.AdminMAC, "firmware": f.Firmware, "disks": f.Disks}
}

// Extend adds to a stock agent's object what only our own host says, under the
// UUID of the facts, and strikes the secrets out. Errors are *muster.Problem,
// invalid.
func Extend(sysinfo []byte, f Facts) (json.RawMessage, error) {
	root, err := decode(sysinfo)
	if err != nil {
		return nil, err
	}
	root["UUID"], root["Muster"] = f.UUID, f.own()
	b, err := json.Marshal(root)
	if err != nil {
		return nil, muster.Invalid("sysinfo", "it cannot be written again: %v", err)
	}
	return Redact(b)
}

// Rename gives a sysinfo object another UUID, or its first one.
func Rename(sysinfo []byte, uuid string) (json.RawMessage, error) {
	root, err := decode(sysinfo)
	if err != nil {
		return nil, err
	}
	root["UUID"] = uuid
	b, err := json.Marshal(root)
	if err != nil {
		return nil, muster.Invalid("sysinfo", "it cannot be written again: %v", err)
	}
	return b, nil
}
