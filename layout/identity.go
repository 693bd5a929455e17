package layout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"muster.internal"
)

// Kinds of content that mean more than "this will be destroyed".
const (
	ContentPool    = "zpool"
	ContentBtrfs   = "btrfs"
	ContentMounted = "mounted"    // Name is where
	ContentInUse   = "in_use"     // Name is by what: another block device, swap
	ContentHidden  = "unreadable" // Name is why
)

// Same tells whether what was planned is what is there: identity, size and
// contents. It returns what differs, for people, or "".
func Same(planned, found muster.Disk) string {
	switch {
	case planned.Identity() == "" || planned.Identity() != found.Identity():
		return fmt.Sprintf("it is %s, not %s", found.Describe(), planned.Describe())
	case planned.Size != found.Size:
		return fmt.Sprintf("it has %d bytes, not %d", found.Size, planned.Size)
	case contents(planned) != contents(found):
		return fmt.Sprintf("it now contains %s, not %s", contents(found), contents(planned))
	}
	return ""
}

// Contains says what is on a disk, for people.
func Contains(c muster.Content) string {
	s := c.Kind
	if c.Name != "" {
		s += fmt.Sprintf(" '%s'", c.Name)
	}
	if c.GUID != "" {
		s += " (guid " + c.GUID + ")"
	}
	return s
}

func contents(d muster.Disk) string {
	var all []string
	for _, c := range d.Contents {
		s := Contains(c)
		if c.Stamp != "" {
			s += " of machine " + c.Stamp
		}
		all = append(all, s)
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}

// Distinct makes one disk of several paths to the same one, and sets aside,
// with a reason each, those that cannot be recognised again. Both lists are in
// order of path.
func Distinct(disks []muster.Disk) (usable []muster.Disk, unused []muster.UnusedDisk) {
	sorted := slices.Clone(disks)
	slices.SortStableFunc(sorted, func(a, b muster.Disk) int { return comparePaths(a.Path, b.Path) })
	at := map[string]int{}
	differs := map[string]string{}
	for _, d := range sorted {
		id := d.Identity()
		i, known := at[id]
		switch {
		case id == "":
			unused = append(unused, muster.UnusedDisk{Disk: d, Why: "it has no WWN, EUI or NGUID and no serial number: it could not be recognised again"})
		case !known:
			at[id] = len(usable)
			usable = append(usable, d)
		default:
			first := &usable[i]
			if d.Size != first.Size {
				differs[id] = fmt.Sprintf("%s and %s say they are the same disk (%s), but differ in size", first.Path, d.Path, d.Describe())
			}
			if len(first.Paths) == 0 {
				first.Paths = []string{first.Path}
			}
			first.Paths = append(slices.Clone(first.Paths), d.Path)
			first.Contents = union(first.Contents, d.Contents)
		}
	}
	usable = slices.DeleteFunc(usable, func(d muster.Disk) bool {
		why, bad := differs[d.Identity()]
		if bad {
			unused = append(unused, muster.UnusedDisk{Disk: d, Why: why})
		}
		return bad
	})
	return usable, unused
}

func union(a, b []muster.Content) []muster.Content {
	all := slices.Clone(a)
	for _, c := range b {
		if !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	return all
}

// comparePaths puts /dev/sdb before /dev/sdaa, as the kernel counted them.
func comparePaths(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// AtRest is a disk without what only uses it now.
func AtRest(d muster.Disk) muster.Disk {
	var kept []muster.Content
	for _, c := range d.Contents {
		if c.Kind != ContentMounted && c.Kind != ContentInUse {
			kept = append(kept, c)
		}
	}
	d.Contents = kept
	return d
}
