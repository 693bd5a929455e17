package boot

import (
	"bytes"
	"fmt"
	"strings"

	"muster.internal"
)

// Why kernel arguments are refused.
const (
	destroys = "it destroys every pool at boot"
	imports  = "it decides which pools are imported, and the boot mode does that"
	reserved = "it says who the machine is or whom it talks to, and the booter does that"
	silences = "it keeps the machine from announcing itself"
	replaces = "it replaces what the image boots; assign another image"
)

// refused are kernel arguments that no record may carry, by name, with the
// reason. In names a hyphen is an underscore and case does not matter. Those
// that destroy or import pools are refused from an image too.
var refused = map[string]string{
	"destroy_zpools":             destroys,
	"factoryreset":               destroys,
	"smartdc:factoryreset":       destroys,
	"headnode":                   destroys,
	"noimport":                   imports,
	"zpools":                     imports,
	"zfs_force":                  imports,
	"zfsforce":                   imports,
	"zfs.zfs_force":              imports,
	"zfs_import_dir":             imports,
	"zfs_autoimport":             imports,
	"zfs_autoimport_disable":     imports,
	"zfs.zfs_autoimport_disable": imports,
	"smartos":                    silences,
	"standalone":                 silences,
	"rabbitmq":                   reserved,
	"rabbitmq_dns":               reserved,
	"root_shadow":                reserved,
	"admin_nic":                  reserved,
	"admin_ip":                   reserved,
	"admin_netmask":              reserved,
	"override_uuid":              reserved,
	"initrd":                     replaces,
	"init":                       replaces,
	"rdinit":                     replaces,
}

// CheckArg tells what is wrong with a kernel argument that a record should
// carry; nil: nothing.
func CheckArg(arg string) error {
	if why := argFault(arg); why != "" {
		return fmt.Errorf("kernel argument %.80q is refused: %s", arg, why)
	}
	return nil
}

// argFault allocates nothing when nothing is wrong. An argument may hold
// several properties, split at commas: each is judged.
func argFault(arg string) string {
	if !muster.ValidArg(arg) {
		return "it must be 1 to 256 letters, digits and . _ , : = / @ + - %, since a boot loader expands or splits at the rest"
	}
	if harms(arg) {
		return destroys
	}
	for rest, more := arg, true; more; {
		var part string
		part, rest, more = strings.Cut(rest, ",")
		name, _, _ := strings.Cut(part, "=")
		for len(name) > 0 && name[0] == '-' {
			name = name[1:]
		}
		if len(name) >= 7 && sameName(name[:7], "muster.") {
			return reserved
		}
		for r, why := range refused {
			if sameName(name, r) {
				return why
			}
		}
	}
	return ""
}

// harms tells whether a word that makes a platform destroy its pools stands
// anywhere in s, however it is written: in another case, with other signs
// between its letters, or percent-encoded, even more than once. It allocates
// nothing; s is at most 256 bytes long.
func harms(s string) bool {
	var raw, plain [256]byte
	n := copy(raw[:], s)
	for again := true; again; {
		again = false
		at := 0
		for i := 0; i < n; i++ {
			c := raw[i]
			if hi, lo := hexDigit(raw[:n], i+1), hexDigit(raw[:n], i+2); c == '%' && hi >= 0 && lo >= 0 {
				c, i, again = byte(hi<<4|lo), i+2, true
			}
			raw[at] = c
			at++
		}
		n = at
	}
	end := 0
	for _, c := range raw[:n] {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			plain[end] = c
			end++
		}
	}
	return bytes.Contains(plain[:end], destroyWord) || bytes.Contains(plain[:end], resetWord)
}

var destroyWord, resetWord = []byte("destroyzpool"), []byte("factoryreset")

// hexDigit is the value of a digit, -1 when there is none.
func hexDigit(b []byte, i int) int {
	switch {
	case i >= len(b):
	case b[i] >= '0' && b[i] <= '9':
		return int(b[i] - '0')
	case b[i] >= 'a' && b[i] <= 'f':
		return int(b[i]-'a') + 10
	case b[i] >= 'A' && b[i] <= 'F':
		return int(b[i]-'A') + 10
	}
	return -1
}

// HarmsPools tells whether an image's argument would destroy or import pools.
func HarmsPools(arg string) bool {
	why := argFault(arg)
	return why == destroys || why == imports
}

// sameName compares without case, hyphens counting as underscores. The second
// name is in lower case and has no hyphen.
func sameName(a, lower string) bool {
	if len(a) != len(lower) {
		return false
	}
	for i := range len(a) {
		c := a[i]
		switch {
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		case c == '-':
			c = '_'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
