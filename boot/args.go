package boot

import (
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

// harmsPools tells whether an image's argument would destroy or import pools.
func harmsPools(arg string) bool {
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
