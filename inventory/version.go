package inventory

import (
	"cmp"
	"fmt"
	"strings"

	"muster.internal"
)

// CompareVersions compares firmware versions part by part: runs of digits as
// numbers, all else without case; what one has more of is newer. So 2.10 is
// above 2.9, and GDC5602Q above GDC5302Q.
func CompareVersions(a, b string) int {
	for {
		a, b = strings.TrimLeft(a, separators), strings.TrimLeft(b, separators)
		if a == "" || b == "" {
			return cmp.Compare(len(a), len(b))
		}
		var x, y string
		x, a = part(a)
		y, b = part(b)
		if c := compareParts(x, y); c != 0 {
			return c
		}
	}
}

const separators = " .-_/:,+()"

// part cuts off the run of digits, or of anything else, that s begins with.
func part(s string) (first, rest string) {
	digits := digit(s[0])
	for i := range len(s) {
		if digit(s[i]) != digits || strings.IndexByte(separators, s[i]) >= 0 {
			return s[:i], s[i:]
		}
	}
	return s, ""
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

func compareParts(x, y string) int {
	switch {
	case digit(x[0]) && digit(y[0]):
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y))
	case digit(x[0]) != digit(y[0]): // a number is above a word: 1.0 is above 1.rc
		return cmp.Compare(btoi(digit(x[0])), btoi(digit(y[0])))
	}
	return strings.Compare(strings.ToLower(x), strings.ToLower(y))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// BelowMinimum says of each part whose firmware is below a stated minimum, or
// cannot be compared with it because it is not known.
func BelowMinimum(h muster.Hardware, minimums []muster.FirmwareMinimum) []string {
	var all []string
	check := func(what, vendor, part, version string) {
		for _, m := range minimums {
			if !sameWord(m.Part, part) || !sameWord(m.Vendor, vendor) {
				continue
			}
			switch {
			case version == "":
				all = append(all, fmt.Sprintf("the firmware of %s is not known; %s is the minimum", what, m.Version))
			case CompareVersions(version, m.Version) < 0:
				all = append(all, fmt.Sprintf("the firmware of %s is %s; %s is the minimum", what, version, m.Version))
			}
		}
	}
	if h.BIOS.Version != "" {
		check(strings.TrimSpace("the machine, a "+h.Vendor+" "+h.Product)+",", h.Vendor, h.Product, h.BIOS.Version)
	}
	for _, n := range h.NICs {
		check("network card "+n.MAC, n.Vendor, n.Part, n.Firmware)
	}
	for _, d := range h.Disks {
		check("disk "+d.Describe(), d.Vendor, d.Model, d.Firmware)
	}
	return all
}

// sameWord compares names of vendors and parts as people write them.
func sameWord(a, b string) bool {
	return strings.EqualFold(strings.Join(strings.Fields(a), " "), strings.Join(strings.Fields(b), " "))
}
