package boot

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/dhcp"
)

// fixture reads a packet: a line that says where it is from, then its bytes.
func fixture(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	source, bytes, ok := strings.Cut(string(raw), "\n")
	if !ok || !strings.HasPrefix(source, "# ") || len(source) < 30 {
		t.Fatalf("%s does not say in its first line where the packet is from", name)
	}
	msg, err := hex.DecodeString(strings.ReplaceAll(bytes, "\n", ""))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return msg
}

// TestQuirksHaveTheirPackets: each row has a packet that it applies to, and
// which no other row does; each packet has its row. The golden file tells what
// becomes of the machine, without the row and with it.
func TestQuirksHaveTheirPackets(t *testing.T) {
	files, err := filepath.Glob("testdata/quirks/*.hex")
	if err != nil {
		t.Fatal(err)
	}
	unclaimed := map[string]bool{}
	for _, f := range files {
		unclaimed[strings.TrimSuffix(filepath.Base(f), ".hex")] = true
	}
	e := env(bothArches(linuxImage("enroll-1", "a")))
	var out strings.Builder
	for i, row := range quirkRows {
		if !unclaimed[row.Name] {
			t.Errorf("quirk %s has no packet in testdata/quirks", row.Name)
			continue
		}
		delete(unclaimed, row.Name)
		var p dhcp.Packet
		if err := p.Parse(fixture(t, "testdata/quirks/"+row.Name+".hex")); err != nil {
			t.Errorf("%s: %v", row.Name, err)
			continue
		}
		q, ok := FromDHCP(&p)
		if !ok || p.Op != dhcp.BootRequest {
			t.Errorf("%s: not a request of an Ethernet machine", row.Name)
			continue
		}
		r := rec(muster.Enrolling)
		r.MAC = q.MAC.String()
		m, pol := NewMachine(r), NewPolicy(policy())
		plain := decide(&q, m, pol, &e)
		d := Decide(q, m, pol, e)
		if d.Quirks != 1<<i {
			t.Errorf("the packet of %s shows %q", row.Name, d.Quirks)
		}
		fmt.Fprintf(&out, "%s\n    without the row: %s\n    with it: %s\n", row.Name, outcome(plain), outcome(d))
		if outcome(plain) == outcome(d) {
			t.Errorf("%s changes nothing: %s", row.Name, outcome(d))
		}
		if row.Does == "" || row.Seen == "" {
			t.Errorf("%s does not say what such firmware does, or where it was seen", row.Name)
		}
	}
	for name := range unclaimed {
		t.Errorf("testdata/quirks/%s.hex belongs to no row", name)
	}
	golden(t, "quirks.golden", out.String())
}

func outcome(d Decision) string {
	if !d.Serve {
		return fmt.Sprintf("silence %s, %s", d.Reason, ArchName(d.Arch))
	}
	return strings.TrimSpace(fmt.Sprintf("%s, %s, shape %s %s", d.Stage, ArchName(d.Arch), d.Shape, d.Loader))
}
