package inventory

import (
	"encoding/hex"
	"strings"
)

// placeholders are what vendors leave where a serial number belongs, in lower
// case.
var placeholders = map[string]bool{
	"0123456789":                   true,
	"123456789":                    true,
	"1234567890":                   true,
	"12345678":                     true,
	"asset-1234567890":             true,
	"base board serial number":     true,
	"chassis serial number":        true,
	"default string":               true,
	"empty":                        true,
	"invalid":                      true,
	"n/a":                          true,
	"na":                           true,
	"none":                         true,
	"not applicable":               true,
	"not available":                true,
	"not specified":                true,
	"null":                         true,
	"o.e.m.":                       true,
	"oem":                          true,
	"sernum0":                      true,
	"serial number":                true,
	"serial":                       true,
	"system serial number":         true,
	"to be filled by o.e.m":        true,
	"to be filled by o.e.m.":       true,
	"to be filled by oem":          true,
	"type1productconfigid":         true,
	"undefined":                    true,
	"unknown":                      true,
	"unspecified system serial no": true,
}

// RealSerial returns a machine's serial number, or "" when what stands there
// tells nothing: a placeholder, or one sign repeated.
func RealSerial(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	low := strings.ToLower(s)
	if placeholders[low] || strings.Trim(low, "-. ") == "" || strings.Count(low, low[:1]) == len(low) {
		return ""
	}
	return s
}

// sharedUUIDs are vendors' defaults, the same on every board of a product. The
// other byte order of each counts too.
var sharedUUIDs = []string{
	"00020003-0004-0005-0006-000700080009",
	"03000200-0400-0500-0006-000700080009",
	"12345678-1234-5678-90ab-cddeefaabbcc",
	"fefefefe-fefe-fefe-fefe-fefefefefefe",
	"01234567-8910-1112-1314-151617181920",
	"00000000-0000-0000-0000-000000000001",
	"ffffffff-ffff-ffff-ffff-fffffffffffe",
	"11111111-2222-3333-4444-555555555555",
	"00112233-4455-6677-8899-aabbccddeeff",
}

// SharedUUID tells whether a UUID is known to be on many boards, so that it
// says nothing of which machine this is.
func SharedUUID(uuid string) bool {
	for _, s := range sharedUUIDs {
		if uuid == s || SwapUUID(uuid) == s {
			return true
		}
	}
	return false
}

// SwapUUID is the same UUID in the other byte order: SMBIOS stores the first
// three fields little-endian, and not everybody turns them round (DHCP option
// 97 does not).
func SwapUUID(uuid string) string {
	b, err := hex.DecodeString(strings.ReplaceAll(uuid, "-", ""))
	if err != nil || len(b) != 16 {
		return uuid
	}
	b[0], b[1], b[2], b[3] = b[3], b[2], b[1], b[0]
	b[4], b[5], b[6], b[7] = b[5], b[4], b[7], b[6]
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// sharedMACs are on many adapters.
var sharedMACs = map[string]bool{
	"00:00:00:00:00:00": true,
	"ff:ff:ff:ff:ff:ff": true,
	"00:e0:4c:68:00:01": true, // USB adapters without an EEPROM
	"00:e0:4c:53:44:58": true,
	"00:11:22:33:44:55": true,
}
