package boot

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A SmartOS platform's services read node.config by a shell function that
// collects the lines which begin with a letter, puts a prefix before each, lets
// the shell split the result into words and join them again, and evaluates it,
// as root, at every boot. The same values are then pasted into JSON without
// escaping. So a value is written between single quotes, and what would not
// come back as it is, is refused with the reason.
//
// The file travels as a module of the boot, type=file, and appears as
// /system/boot/node.config: behind the one decision that gates everything, with
// a hash, the same at every boot of the machine, before there is a pool and
// without the boot bus. No stock service looks there. muster-host puts it where
// a machine's services look that has no configuration of its own
// (/var/tmp/node.config/node.config); one of its own goes before it.

const (
	maxConfigKeys  = 64
	maxConfigKey   = 64   // bytes
	maxConfigValue = 1024 // bytes; a line must pass through tools that end at 2048
)

// Why keys of node.config are refused.
const (
	laysOut   = "it decides how a pool is built, and an approved setup does that"
	tellsBoot = "it says who the machine is or whom it talks to, and the booter does that"
)

var refusedConfig = map[string]string{
	"layout": laysOut, "cache": laysOut, "spares": laysOut, "width": laysOut, "disk_exclude": laysOut, "encryption_enabled": laysOut,
	"rabbitmq": tellsBoot, "rabbitmq_dns": tellsBoot, "root_shadow": tellsBoot, "hostname": tellsBoot, "dns_resolvers": tellsBoot,
	"admin_nic": tellsBoot, "admin_ip": tellsBoot, "admin_netmask": tellsBoot, "config_inc_dir": tellsBoot,
}

// CheckNodeConfig tells what is wrong with the entries that a site wants in its
// machines' node.config; nil: nothing. The key is the first that is refused.
func CheckNodeConfig(entries map[string]string) (key string, err error) {
	if len(entries) > maxConfigKeys {
		return "", fmt.Errorf("there are more than %d entries", maxConfigKeys)
	}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if why := refusedConfig[key]; why != "" {
			return key, fmt.Errorf("the key %s is refused: %s", key, why)
		}
		if !configKey(key) {
			return key, fmt.Errorf("the key %.80q must be at most %d lower-case letters, digits and underscores after a letter", key, maxConfigKey)
		}
		if harms(key) {
			return key, fmt.Errorf("the key %s is refused: %s", key, destroys)
		}
		if why := configFault(entries[key]); why != "" {
			return key, fmt.Errorf("the value of %s cannot be carried: %s", key, why)
		}
	}
	return "", nil
}

func configKey(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z') && (i == 0 || !(c >= '0' && c <= '9' || c == '_')) {
			return false
		}
	}
	return len(s) > 0 && len(s) <= maxConfigKey
}

// configFault is why a value would not come back as it is; "": it does.
func configFault(v string) string {
	if len(v) > maxConfigValue {
		return fmt.Sprintf("it is %d bytes, and may be %d", len(v), maxConfigValue)
	}
	for i := range len(v) {
		switch c := v[i]; {
		case c == '\'':
			return "a single quote would end the quotation, and the rest be run"
		case c == '"', c == '\\':
			return fmt.Sprintf("%q breaks the JSON that the platform makes of it", c)
		case c == '*', c == '?', c == '[':
			return fmt.Sprintf("%q may be replaced by names of files", c)
		case c == '\n', c == '\r':
			return "a line ends there"
		case c < ' ' || c > '~':
			return fmt.Sprintf("byte %#02x is not printable ASCII", c)
		}
	}
	if strings.TrimSpace(v) != v || strings.Contains(v, "  ") {
		return "the platform leaves one space of several, and none at the ends"
	}
	return ""
}

// NodeConfig is the node.config of a decision to serve a SmartOS image; empty:
// there is nothing to say.
func NodeConfig(d Decision) ([]byte, error) {
	if _, err := CheckNodeConfig(d.NodeConfig); err != nil {
		return nil, fmt.Errorf("node.config of machine %s: %w", d.MAC, err)
	}
	all := map[string]string{}
	maps.Copy(all, d.NodeConfig)
	var dns []string
	for _, a := range d.DNS {
		if a.IsValid() {
			dns = append(dns, a.String())
		}
	}
	if len(dns) > 0 {
		all["dns_resolvers"] = strings.Join(dns, ",")
	}
	return writeConfig(all), nil
}

// writeConfig quotes entries that have been checked.
func writeConfig(entries map[string]string) []byte {
	if len(entries) == 0 {
		return nil
	}
	b := []byte("# made by muster for this boot: muster policy set --node-config\n")
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		b = append(b, key+"='"+entries[key]+"'\n"...)
	}
	return b
}
