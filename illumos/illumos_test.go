package illumos_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster.internal/illumos"
	"muster.internal/inventory"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func machine(t *testing.T, script string) *illumos.Machine {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sysinfo")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return &illumos.Machine{Log: slog.New(slog.DiscardHandler), Sysinfo: path, Root: t.TempDir()}
}

func printing(t *testing.T, sample string) *illumos.Machine {
	t.Helper()
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return machine(t, "exec /bin/cat "+filepath.Join(wd, "testdata", sample))
}

// What real machines' sysinfo comes to.
func TestFacts(t *testing.T) {
	for _, sample := range []string{"supermicro", "dell", "unsetup", "lacp"} {
		m := printing(t, sample+".json")
		if _, err := m.Facts(); err != nil { // two samples lack a UUID
			if !strings.Contains(err.Error(), "sysinfo.UUID") || !strings.Contains(err.Error(), "cannot be used") {
				t.Errorf("%s: %v", sample, err)
			}
			m.Identify("00112233-4455-6677-8899-aabbccddeea1")
		}
		f, err := m.Facts()
		if err != nil {
			t.Fatalf("%s: %v", sample, err)
		}
		d, err := m.Describe(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"guest:guest", "$6$salt"} {
			if strings.Contains(string(d), secret) {
				t.Errorf("%s: %q is left in %s", sample, secret, d)
			}
		}
		again, err := inventory.Parse(d)
		if err != nil || again.UUID != f.UUID || again.Serial != f.Serial || len(again.MACs) != len(f.MACs) || len(again.Disks) != len(f.Disks) {
			t.Errorf("%s: described as %+v, %v; it is %+v", sample, again, err, f)
		}
		got, _ := json.MarshalIndent(map[string]any{"facts": f, "profile": profile(m)}, "", " ")
		golden := filepath.Join("testdata", sample+".golden")
		if *update {
			os.WriteFile(golden, append(got, '\n'), 0o644)
		}
		if want, _ := os.ReadFile(golden); string(want) != string(got)+"\n" {
			t.Errorf("%s: got\n%s", golden, got)
		}
	}
}

func profile(m *illumos.Machine) inventory.Profile {
	p := m.Profile()
	p.Arch = ""
	return p
}

// A sysinfo that does not behave gives a reason, and no secret.
func TestOddSysinfo(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"fails":          {"echo 'boot: rabbitmq=u:planted:1.2.3.4:5672 is odd' >&2; exit 7", "failed: exit status 7: boot: rabbitmq=REDACTED"},
		"prints nothing": {"exit 0", "not JSON"},
		"bad string":     {`echo '{"UUID": "a", "Product": "19" rack"}'`, "not JSON"},
		"two objects":    {`echo '{} {}'`, "more follows"},
		"no machine":     {`echo '{"UUID": "00000000-0000-0000-0000-000000000000"}'`, "never given one"},
		"endless":        {`head -c 6000000 /dev/zero | tr '\0' '['`, "it is 5242881 bytes"},
		"memory in GiB":  {`echo '{"UUID": "00112233-4455-6677-8899-aabbccddeea1", "MiB of Memory": "32.5"}'`, "MiB of Memory"},
	} {
		_, err := machine(t, c.script).Facts()
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "planted") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	m := &illumos.Machine{Sysinfo: "/no/such/sysinfo"}
	if _, err := m.Facts(); err == nil || !strings.Contains(err.Error(), illumos.SysinfoVar) {
		t.Errorf("without sysinfo: %v", err)
	}
}

func TestSysinfoIsNamedByTheEnvironment(t *testing.T) {
	if m := illumos.New(nil); m.Sysinfo != illumos.SysinfoPath {
		t.Errorf("usually %s", m.Sysinfo)
	}
	t.Setenv(illumos.SysinfoVar, "/opt/custom/sysinfo")
	if m := illumos.New(nil); m.Sysinfo != "/opt/custom/sysinfo" {
		t.Errorf("when named, %s", m.Sysinfo)
	}
}

// Disks without serial numbers are no survey; a name that holds a WWN is one
// way to know a disk again.
func TestDisks(t *testing.T) {
	m := printing(t, "unsetup.json")
	m.Identify("00112233-4455-6677-8899-aabbccddeea1")
	ds, err := m.Disks()
	if err != nil || len(ds) != 14 || ds[0].WWN == "" {
		t.Errorf("%+v, %v", ds, err)
	}
	if _, err := m.Survey(); !errors.Is(err, illumos.ErrSurvey) {
		t.Errorf("a survey: %v", err)
	}
}

// The boot's node.config goes where config.sh looks when there is no other.
func TestPrepare(t *testing.T) {
	m := printing(t, "dell.json")
	if err := m.Prepare(); err != nil {
		t.Errorf("without one: %v", err)
	}
	from, to := filepath.Join(m.Root, "system/boot/node.config"), filepath.Join(m.Root, "var/tmp/node.config/node.config")
	if _, err := os.Stat(to); err == nil {
		t.Error("a file came out of nothing")
	}
	os.MkdirAll(filepath.Dir(from), 0o755)
	os.WriteFile(from, []byte("a='b'\n"), 0o444)
	if err := m.Prepare(); err != nil {
		t.Error(err)
	}
	b, err := os.ReadFile(to)
	st, _ := os.Stat(to)
	if err != nil || string(b) != "a='b'\n" || st.Mode().Perm() != 0o600 {
		t.Errorf("%q, %v, %v", b, err, st)
	}
}

// The manifest is XML, and names what is there.
func TestManifest(t *testing.T) {
	d, starts := xml.NewDecoder(strings.NewReader(string(illumos.Manifest))), map[string]int{}
	d.Strict = true
	for {
		tok, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := tok.(xml.StartElement); ok {
			starts[s.Name.Local]++
		}
	}
	if starts["service"] != 1 || starts["exec_method"] != 2 || starts["dependency"] != 2 {
		t.Errorf("%v", starts)
	}
	for _, want := range []string{`exec="/opt/custom/bin/muster-host run"`, "muster-host register", illumos.Path} {
		if !strings.Contains(string(illumos.Manifest), want) {
			t.Errorf("it lacks %s", want)
		}
	}
}
