package inventory

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"muster.internal"
)

// HardwareOf is what a machine said of itself at a door, as a collection has it.
func HardwareOf(f Facts) muster.Hardware {
	h := muster.Hardware{Vendor: f.Manufacturer, Product: f.Product, Serial: f.Serial, MemoryMiB: f.MemoryMiB}
	if f.CPUs > 0 {
		h.CPUs = []muster.CPU{{Threads: f.CPUs}}
	}
	for _, mac := range f.MACs {
		h.NICs = append(h.NICs, muster.NIC{MAC: mac, Tags: f.Tags[mac]})
	}
	for _, d := range f.Disks {
		d.Contents = nil // nobody opened it
		h.Disks = append(h.Disks, muster.HardwareDisk{Disk: d})
	}
	return h
}

// CheckHardware tells what is wrong with what a host says of its hardware; nil:
// nothing.
func CheckHardware(h muster.Hardware) error {
	if len(h.CPUs) > maxModules || len(h.DIMMs) > maxModules || len(h.NICs) > maxNICs || len(h.Foreign) > maxDisks {
		return fmt.Errorf("a machine has at most %d processors, memory modules and cards, and %d workloads", maxModules, maxDisks)
	}
	words := []string{h.Vendor, h.Product, h.Serial, h.BIOS.Vendor, h.BIOS.Version, h.BIOS.Date}
	for _, c := range h.CPUs {
		words = append(words, c.Socket, c.Model)
	}
	for _, d := range h.DIMMs {
		words = append(words, d.Slot, d.Vendor, d.Part, d.Serial)
	}
	for _, n := range h.NICs {
		words = append(words, n.Name, n.MAC, n.Vendor, n.Part, n.Driver, n.Firmware)
		words = append(words, n.Tags...)
	}
	disks := make([]muster.Disk, len(h.Disks))
	for i, d := range h.Disks {
		disks[i] = d.Disk
		words = append(words, d.Firmware, d.Slot)
	}
	for _, f := range h.Foreign {
		words = append(words, f.Kind, f.Name)
	}
	for _, w := range words {
		if len(w) > maxWord || !utf8.ValidString(w) || strings.ContainsFunc(w, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return fmt.Errorf("%.40q is longer than %d bytes or cannot be printed", w, maxWord)
		}
	}
	return CheckDisks(disks)
}

// DiffHardware is what differs from a to b: what went, what came, what is in
// another slot, what is otherwise.
func DiffHardware(a, b muster.Hardware) []muster.HardwareChange {
	d := differ{all: []muster.HardwareChange{}}
	d.field("machine", "the machine", "vendor", a.Vendor, b.Vendor)
	d.field("machine", "the machine", "product", a.Product, b.Product)
	d.field("machine", "the machine", "serial", a.Serial, b.Serial)
	d.field("bios", "the firmware", "version", a.BIOS.Version, b.BIOS.Version)
	d.field("memory", "the memory", "size", mebibytes(a.MemoryMiB), mebibytes(b.MemoryMiB))
	parts(&d, a.CPUs, b.CPUs, cpuParts)
	parts(&d, a.DIMMs, b.DIMMs, dimmParts)
	parts(&d, a.NICs, b.NICs, nicParts)
	parts(&d, a.Disks, b.Disks, diskParts)
	if a.Looked && b.Looked {
		parts(&d, a.Foreign, b.Foreign, foreignParts)
	}
	return d.all
}

type differ struct{ all []muster.HardwareChange }

func (d *differ) field(part, name, field, from, to string) {
	if from != to {
		d.all = append(d.all, muster.HardwareChange{Part: part, Change: "changed", Name: name, Field: field, From: from, To: to})
	}
}

// A kind says how parts of one kind are told apart and described.
type kind[T any] struct {
	part string
	// key is by what one is known again; empty: by its place alone.
	key, place, name, serial func(T) string
	identity                 func(T) string // of a disk
	fields                   func(T) [][2]string
}

func none[T any](T) string { return "" }

var (
	cpuParts = kind[muster.CPU]{part: "cpu", key: none[muster.CPU], place: func(c muster.CPU) string { return c.Socket },
		name: func(c muster.CPU) string { return describe(c.Model, "processor", c.Socket) }, serial: none[muster.CPU], identity: none[muster.CPU],
		fields: func(c muster.CPU) [][2]string {
			return [][2]string{{"model", c.Model}, {"cores", fmt.Sprint(c.Cores)}, {"threads", fmt.Sprint(c.Threads)}}
		}}
	dimmParts = kind[muster.DIMM]{part: "dimm",
		key: func(d muster.DIMM) string {
			if d.Serial == "" {
				return ""
			}
			return strings.ToLower(d.Vendor + "|" + d.Part + "|" + d.Serial)
		},
		place: func(d muster.DIMM) string { return d.Slot },
		name: func(d muster.DIMM) string {
			return describe(strings.TrimSpace(mebibytes(d.SizeMiB)+" "+d.Vendor+" "+d.Part), "memory module", d.Slot)
		},
		serial: func(d muster.DIMM) string { return d.Serial }, identity: none[muster.DIMM],
		fields: func(d muster.DIMM) [][2]string {
			return [][2]string{{"size", mebibytes(d.SizeMiB)}, {"part", d.Part}, {"serial", d.Serial}}
		}}
	nicParts = kind[muster.NIC]{part: "nic", key: func(n muster.NIC) string { return n.MAC }, place: none[muster.NIC],
		name: func(n muster.NIC) string { return n.MAC }, serial: none[muster.NIC], identity: none[muster.NIC],
		fields: func(n muster.NIC) [][2]string {
			return [][2]string{{"firmware", n.Firmware}, {"tags", strings.Join(n.Tags, " ")}}
		}}
	diskParts = kind[muster.HardwareDisk]{part: "disk", key: func(d muster.HardwareDisk) string { return d.Identity() },
		place: func(d muster.HardwareDisk) string { return cmp.Or(d.Slot, d.Path) },
		name:  func(d muster.HardwareDisk) string { return d.Describe() }, serial: func(d muster.HardwareDisk) string { return d.Serial },
		identity: func(d muster.HardwareDisk) string { return d.Identity() },
		fields: func(d muster.HardwareDisk) [][2]string {
			return [][2]string{{"size", fmt.Sprint(d.Size)}, {"firmware", d.Firmware}, {"contents", contents(d.Contents)}}
		}}
	foreignParts = kind[muster.ForeignName]{part: "workload", key: func(f muster.ForeignName) string { return f.Kind + " " + f.Name }, place: none[muster.ForeignName],
		name: func(f muster.ForeignName) string { return f.Kind + " " + f.Name }, serial: none[muster.ForeignName], identity: none[muster.ForeignName],
		fields: func(muster.ForeignName) [][2]string { return nil }}
)

// parts compares the parts of one kind. One that is known again is the same
// wherever it is; of others, the place tells which is which.
func parts[T any](d *differ, was, is []T, k kind[T]) {
	id := func(t T) string {
		if key := k.key(t); key != "" {
			return "known " + key
		}
		return "in " + k.place(t)
	}
	before := map[string][]T{}
	for _, t := range was {
		before[id(t)] = append(before[id(t)], t)
	}
	var came []muster.HardwareChange
	for _, t := range is {
		same := before[id(t)]
		if len(same) == 0 {
			came = append(came, muster.HardwareChange{Part: k.part, Change: "added", Name: k.name(t), Serial: k.serial(t), To: k.place(t), Identity: k.identity(t)})
			continue
		}
		old := same[0]
		before[id(t)] = same[1:]
		if k.place(old) != k.place(t) {
			came = append(came, muster.HardwareChange{Part: k.part, Change: "moved", Name: k.name(t), Serial: k.serial(t), From: k.place(old), To: k.place(t), Identity: k.identity(t)})
		}
		then := k.fields(old)
		for i, f := range k.fields(t) {
			if then[i][1] != f[1] {
				came = append(came, muster.HardwareChange{Part: k.part, Change: "changed", Name: k.name(t), Serial: k.serial(t), Field: f[0], From: then[i][1], To: f[1]})
			}
		}
	}
	for _, t := range was {
		if left := before[id(t)]; len(left) > 0 {
			before[id(t)] = left[1:]
			d.all = append(d.all, muster.HardwareChange{Part: k.part, Change: "removed", Name: k.name(t), Serial: k.serial(t), From: k.place(t), Identity: k.identity(t)})
		}
	}
	d.all = append(d.all, came...)
}

func mebibytes(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d MiB", n)
}

func describe(name, otherwise, place string) string {
	return strings.TrimSpace(cmp.Or(name, otherwise+" "+place))
}

// contents are those of a disk, in words.
func contents(cs []muster.Content) string {
	var words []string
	for _, c := range cs {
		words = append(words, strings.TrimSpace(c.Kind+" "+c.Name))
	}
	return strings.Join(words, ", ")
}

// Occupied says why a disk cannot be adopted as it is; empty: it can. Whatever
// is on it may be somebody's.
func Occupied(d muster.Disk) string {
	if d.Identity() == "" {
		return "it has neither a serial number nor a WWN, so that it could not be known again"
	}
	if len(d.Contents) == 0 {
		return ""
	}
	return "it holds " + contents(d.Contents) + ": look whose that is, and empty it first"
}
