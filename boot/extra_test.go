package boot

import (
	"strings"
	"testing"

	"muster.internal"
)

// TestExtra: a nonce on Linux and a hash on SmartOS, for a node's own boot
// alone, and nothing that the platform would trip over.
func TestExtra(t *testing.T) {
	shadow := "$6$salt$" + strings.Repeat("a/.Z", 21) + "ab"
	x := Extra{Nonce: strings.Repeat("ab", 16), RootShadow: shadow}
	for _, kind := range []muster.ImageKind{muster.LinuxImage, muster.SmartOSImage} {
		for _, mode := range []Mode{Enroll, Node, Rescue} {
			d, r := decided(t, kind, mode)
			b, err := Render(d, r, site(), now, x)
			if err != nil {
				t.Fatal(err)
			}
			got := string(b)
			if on := strings.Contains(got, "muster.once="+site().URL(mac)+"/once/"+x.Nonce); on != (kind == muster.LinuxImage && mode == Node) {
				t.Errorf("%s %s: nonce %v", kind, mode, on)
			}
			if on := strings.Contains(got, ",root_shadow='"+shadow+"'"); on != (kind == muster.SmartOSImage && mode == Node) || !on && strings.Contains(got, "$6$") {
				t.Errorf("%s %s: hash %v", kind, mode, on)
			}
		}
	}
	d, r := decided(t, muster.SmartOSImage, Node)
	for _, bad := range []string{"|", "&", "\n", "'", `"`, ",", "=", " ", "{", "\\"} {
		if _, err := Render(d, r, site(), now, Extra{RootShadow: shadow + bad}); err == nil || strings.Contains(err.Error(), shadow) {
			t.Errorf("a hash with %q: %v", bad, err)
		}
	}
}
