package inventory_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/inventory"
)

// What boards say of themselves, and what each is called because of it: its own
// UUID, a derived one, or none, when nothing that it says is its own. A machine
// announces itself by these words for years: a line of the golden file never
// changes.
func TestGoldenBoards(t *testing.T) {
	in, err := os.ReadFile("testdata/boards.tsv")
	if err != nil {
		t.Fatal(err)
	}
	s := inventory.BuiltinShared()
	var out bytes.Buffer
	seen := map[string]string{}
	for line := range strings.Lines(string(in)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 3 {
			t.Fatalf("a board has a UUID, a serial number and a MAC address: %q", line)
		}
		called, how := f[0], "its own"
		if u, err := muster.ParseUUID(f[0]); err != nil {
			called, how = "-", "refused"
		} else if _, is := s.UUID(u); is {
			mac, _ := muster.ParseMAC(f[2])
			how = "derived"
			if own, ok := s.Own(f[1], mac); ok {
				called = own
			} else {
				called, how = "-", "an operator gives it one"
			}
		}
		if was, twice := seen[called]; twice && called != "-" {
			fmt.Fprintf(&out, "# the same machine as %s\n", was)
		}
		seen[called] = strings.Join(f, " ")
		fmt.Fprintf(&out, "%s\t%s\t%s\n", strings.TrimSuffix(line, "\n"), how, called)
	}
	const golden = "testdata/boards.golden"
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(want, out.Bytes()) {
		t.Errorf("%s differs (%v); have:\n%s", golden, err, out.Bytes())
	}
}
