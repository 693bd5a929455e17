package muster

import "strings"

// Identity is how a disk is recognised again: by WWN, EUI-64 or NGUID, else by
// vendor, model and serial number. It is empty when the disk has neither; then
// it may be shown, and not used.
func (d Disk) Identity() string {
	if w := squeeze(d.WWN); strings.Trim(w, "0.:- ") != "" {
		return "wwn " + w
	}
	serial := squeeze(d.Serial)
	if strings.Trim(serial, "0.- ") == "" {
		return ""
	}
	return "serial " + strings.Join([]string{squeeze(d.Vendor), squeeze(d.Model), serial}, "|")
}

func squeeze(s string) string { return strings.ToLower(strings.Join(strings.Fields(s), " ")) }

// Describe names a disk as people find it on the shelf.
func (d Disk) Describe() string {
	words := append(strings.Fields(d.Vendor), strings.Fields(d.Model)...)
	if s := strings.TrimSpace(d.Serial); s != "" {
		words = append(words, "serial "+s)
	} else if d.WWN != "" {
		words = append(words, "WWN "+d.WWN)
	}
	if len(words) == 0 {
		return d.Path
	}
	return strings.Join(words, " ")
}
