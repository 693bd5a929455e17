package host

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"muster.internal/resource"
)

const onDisk = `resources:
- disk: {id: 00112233-4455-4677-8899-aabbccddeeff, identity: wwn 1, path: /srv/d, filesystem: xfs}
- directory: {path: /srv/d/objects}
- service: {name: objects}
  after: ["disk:/srv/d"]
- container: {name: cc, image: i}
  after: ["directory:/srv/d/objects"]
- service: {name: other}
- service: {name: found}
  after: ["disk:/srv/d"]
`

// A disk that goes takes along what the host runs on it, once, and nothing else;
// when it is back they are started, and nobody is said to have changed anything,
// however often that is so.
func TestDiskGoesAndComesBack(t *testing.T) {
	m, l := newFake(), newLedger(&plug{1 << 30})
	m.there["service:found.service"] = resource.State{"enabled": "yes", "running": "yes"}
	d, err := resource.Parse("d", []byte(onDisk))
	if err != nil {
		t.Fatal(err)
	}
	apply := func(dry bool) string {
		m.log, m.now = nil, m.now.Add(time.Minute)
		r, err := Apply(Work{Declaration: &d, Trigger: TriggerDisk, DryRun: dry}, m, l)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, line := range r.Lines {
			if line.Drift || line.Fought {
				t.Errorf("somebody else changed %s", line.Ref)
			}
			if line.Outcome != resource.OutcomeOK {
				text += fmt.Sprintf("%s %s %s; ", line.Outcome, line.Ref, line.Did)
			}
		}
		return text + strings.Join(m.log, ", ")
	}
	first := "changed disk:/srv/d mounted; changed directory:/srv/d/objects created; changed service:objects.service created; changed container:cc created; changed service:other.service created; " +
		"create disk:/srv/d, create directory:/srv/d/objects, create service:objects.service, create container:cc, create service:other.service"
	lost := func(did string) string {
		return "failed disk:/srv/d ; unknown directory:/srv/d/objects ; unknown service:objects.service " + did + "; unknown container:cc " + did + "; unknown service:found.service ; "
	}
	check := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s:\n got: %s\nwant: %s", what, got, want)
		}
	}
	check("at first", apply(false), first)
	for range 4 {
		delete(m.there, "disk:/srv/d")
		m.broken["disk:/srv/d"] = "it is not there"
		check("what would be", apply(true), "changed disk:/srv/d mounted; ")
		check("it is gone", apply(false), lost("stopped")+"halt service:objects.service, halt container:cc")
		check("still", apply(false), lost(""))
		if o, _ := l.Get("service:objects.service"); !o.Halted {
			t.Error("nothing says why it does not run")
		}
		delete(m.broken, "disk:/srv/d")
		check("it is back", apply(false), "changed disk:/srv/d mounted; changed service:objects.service started; changed container:cc started; create disk:/srv/d, update service:objects.service, update container:cc")
		check("then", apply(false), "")
	}
	// One that cannot be told from a good one stops nothing.
	m.blind["disk:/srv/d"] = 1
	if got := apply(false); strings.Contains(got, "halt") || !strings.Contains(got, "unknown disk:/srv/d") {
		t.Error(got)
	}
	// What is mounted there is let go with the declaration, unless it is another's.
	d.Resources = []resource.Resource{}
	check("removed", apply(false), "changed container:cc removed; changed service:other.service stopped; changed service:objects.service stopped; changed directory:/srv/d/objects removed; changed disk:/srv/d unmounted; "+
		"remove container:cc, stop service:other.service, stop service:objects.service, remove directory:/srv/d/objects, remove disk:/srv/d")
}

// A disk that was mounted before the host knew of it is the host's, since it
// carries its id; and where another is mounted by now nothing is unmounted.
func TestDiskThatIsThere(t *testing.T) {
	d, err := resource.Parse("d", []byte(strings.SplitAfter(onDisk, "xfs}\n")[0]))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		there         func(resource.State)
		outcome, gone string
	}{
		"as declared":     {func(resource.State) {}, "ok", "unmounted"},
		"another":         {func(s resource.State) { s["id"] = "x" }, "kept", ""},
		"another by then": {nil, "ok", "forgotten"},
		"gone by then":    {nil, "ok", "unmounted"},
	} {
		m, l := newFake(), newLedger(&plug{1 << 30})
		is, err := d.Resources[0].Want(nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.there != nil {
			c.there(is)
		}
		m.there["disk:/srv/d"] = is
		r, err := Apply(Work{Declaration: &d}, m, l)
		if err != nil || string(r.Outcome) != c.outcome {
			t.Errorf("%s: %+v %v", name, r, err)
		}
		switch name {
		case "another by then":
			is["id"] = "x"
		case "gone by then":
			is["id"], is["identity"] = resource.Gone, ""
		}
		r, err = Apply(Work{Declaration: &resource.Declaration{}}, m, l)
		did := ""
		if len(r.Lines) > 0 {
			did = r.Lines[0].Did
		}
		if err != nil || did != c.gone || (m.there["disk:/srv/d"] == nil) != (did == "unmounted") {
			t.Errorf("%s: removed: %+v %v", name, r, err)
		}
	}
}
