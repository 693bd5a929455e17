package boot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster.internal"

	"pgregory.net/rapid"
)

// reader does what the platform's services do with the file $1, in bash, and
// prints the value of every other argument, each ended by a NUL. Nothing of the
// file is quoted when it is collected: that is the point.
const reader = `file=$1; shift
eval $( (cat "$file"; echo config_inc_dir=/somewhere) | sed -e 's/^ *//' | grep -v '^#' | grep '^[a-zA-Z]' | sed -e 's/^/CONFIG_/' )
for name; do
	variable=CONFIG_$name
	printf '%s\0' "${!variable}"
done
[ "$CONFIG_config_inc_dir" = /somewhere ] || echo 'what follows was lost' >&2
compgen -v CONFIG_ | grep -vc '^CONFIG_config_inc_dir$' >&2
:`

// read has bash read a node.config, in a directory with files for patterns to
// find, and returns what it makes of it.
func read(t testing.TB, dir string, config []byte, entries map[string]string) map[string]string {
	t.Helper()
	file := filepath.Join(dir, "node.config")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	keys := []string{}
	for k := range entries {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	cmd := exec.Command("bash", append([]string{"-c", reader, "reader", file}, keys...)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	var out, bad bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &bad
	err := cmd.Run()
	if err != nil || strings.TrimSpace(bad.String()) != fmt.Sprint(len(entries)) {
		t.Fatalf("bash: %v; it says %q, and should have set %d variables, from\n%s", err, bad.String(), len(entries), config)
	}
	values := strings.Split(out.String(), "\x00")
	got := map[string]string{}
	for i, k := range keys {
		got[k] = values[i]
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "escaped*")); len(left) > 0 {
		t.Fatalf("a command ran: %v, from\n%s", left, config)
	}
	return got
}

// place is a directory that holds what patterns might find.
func place(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash to read node.config with")
	}
	dir := t.TempDir()
	for _, name := range []string{"a", "CONFIG_v='ab'", "b'", "x"} {
		os.WriteFile(filepath.Join(dir, name), nil, 0o600)
	}
	return dir
}

// Every value either comes back from the platform's own way of reading the file
// exactly, or is refused with a reason that names what is wrong with it.
func TestNodeConfigValues(t *testing.T) {
	dir, all := place(t), map[string]string{}
	for i, c := range []struct{ value, refused string }{
		{"us-east-1", ""},
		{"", ""},
		{"8.8.8.8,8.8.4.4", ""},
		{"two words", ""},
		{"$(touch escaped)", ""},
		{"`touch escaped`", ""},
		{"${HOME}", ""},
		{"$HOME $$ $! $0", ""},
		{"a;touch escaped", ""},
		{"a & touch escaped &", ""},
		{"a | touch escaped", ""},
		{"a > escaped", ""},
		{"a && touch escaped || b", ""},
		{"(touch escaped)", ""},
		{"{a,b}", ""},
		{"~root", ""},
		{"!! !1", ""},
		{"# no comment", ""},
		{"a #b", ""},
		{"x=y", ""},
		{"$6$salt$abc./", ""},
		{"a]b^c%d@e", ""},
		{strings.Repeat("x", 1024), ""},
		{"'; touch escaped; '", "single quote"},
		{"it's", "single quote"},
		{`'\''`, "single quote"},
		{`say "x"`, "JSON"},
		{`a\b`, "JSON"},
		{`a\`, "JSON"},
		{"*", "names of files"},
		{"a?", "names of files"},
		{"[ab]", "names of files"},
		{"a\ntouch escaped", "a line ends"},
		{"a\rb", "a line ends"},
		{"a\x00b", "0x00 is not printable"},
		{"a\tb", "0x09 is not printable"},
		{"\x1b[2J", "0x1b is not printable"},
		{"caf\xc3\xa9", "0xc3 is not printable"},
		{"\xff\xfe", "0xff is not printable"},
		{"two  spaces", "one space"},
		{" first", "one space"},
		{"last ", "one space"},
		{strings.Repeat("x", 1025), "1025 bytes"},
		{strings.Repeat("x", 1<<20), "1048576 bytes"},
	} {
		entries := map[string]string{"v": c.value, "w": "after"}
		key, err := CheckNodeConfig(entries)
		if c.refused != "" {
			if err == nil || key != "v" || !strings.Contains(err.Error(), c.refused) || len(err.Error()) > 200 {
				t.Errorf("%.40q: refused with %v, want %q", c.value, err, c.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%.40q: %v", c.value, err)
			continue
		}
		all[fmt.Sprintf("v%d", i)] = c.value
	}
	for k, v := range read(t, dir, writeConfig(all), all) {
		if v != all[k] {
			t.Errorf("%.40q came back as %.40q", all[k], v)
		}
	}
}

func TestNodeConfigKeys(t *testing.T) {
	for key, want := range map[string]string{
		"datacenter_name": "", "ntp_hosts": "", "a1": "",
		"": "must be", "1a": "must be", "_a": "must be", "A": "must be", "a-b": "must be", "a b": "must be", "a=b;x": "must be", "a'": "must be", "a\nb": "must be",
		strings.Repeat("a", 65): "must be", "layout": "how a pool is built", "rabbitmq": "the booter does that", "root_shadow": "the booter does that",
		"destroy_zpools": "destroys every pool", "x_factory_reset": "destroys every pool",
	} {
		_, err := CheckNodeConfig(map[string]string{key: "x"})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", key, err, want)
		}
	}
	many := map[string]string{}
	for i := range 65 {
		many[fmt.Sprintf("k%d", i)] = "x"
	}
	if _, err := CheckNodeConfig(many); err == nil {
		t.Error("65 entries are no file of settings")
	}
}

// hostile draws values that try to escape, and some that do not.
func hostile() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(),
		rapid.StringMatching(`[ -~]{0,40}`),
		rapid.StringMatching(`[a-z$(){};|&<> ]{0,40}`),
		rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{"$(", ")", "`", "'", `"`, "\\", ";", " ", "touch escaped", "${x}", "\n", "*", "x", "#", "=", "&&", "<<E", "!", "~", "$'", "%s", "\x00"}), 0, 8),
			func(parts []string) string { return strings.Join(parts, "") }),
	)
}

// Whatever a site writes, the platform reads exactly that, runs nothing, and
// makes valid JSON of it; or the value is refused.
func TestNodeConfigComesBack(t *testing.T) {
	dir, kept, refused := place(t), []string{}, 0
	rapid.Check(t, func(rt *rapid.T) {
		for _, v := range rapid.SliceOfN(hostile(), 1, 30).Draw(rt, "values") {
			if _, err := CheckNodeConfig(map[string]string{"k": v}); err != nil {
				refused++
				continue
			}
			kept = append(kept, v)
			var said string
			if err := json.Unmarshal([]byte(`"`+v+`"`), &said); err != nil || said != v {
				rt.Fatalf("%q pasted into JSON is %q, %v", v, said, err)
			}
		}
	})
	for batch := range slices.Chunk(kept, maxConfigKeys) { // a shell for each would take long
		entries := map[string]string{}
		for i, v := range batch {
			entries[fmt.Sprintf("k%d", i)] = v
		}
		if _, err := CheckNodeConfig(entries); err != nil {
			t.Fatal(err)
		}
		for k, v := range read(t, dir, writeConfig(entries), entries) {
			if v != entries[k] {
				t.Errorf("%q came back as %q", entries[k], v)
			}
		}
	}
	t.Logf("%d values came back, %d were refused", len(kept), refused)
}

// FuzzNodeConfig holds the gate to what the shell would do: a value that passes
// has nothing that ends a single-quoted word, splits or is expanded.
func FuzzNodeConfig(f *testing.F) {
	for _, v := range []string{"us-east-1", "it's", "$(x)", "a\nb", "a  b", "\xff", "*", strings.Repeat("x", 2000)} {
		f.Add("k", v)
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		if _, err := CheckNodeConfig(map[string]string{key: value}); err != nil {
			return
		}
		line, ok := bytes.CutPrefix(writeConfig(map[string]string{key: value}), []byte("# made by muster for this boot: muster policy set --node-config\n"))
		if !ok || string(line) != key+"='"+value+"'\n" || bytes.Count(line, []byte("'")) != 2 || bytes.Count(line, []byte("\n")) != 1 || bytes.ContainsAny(line, "*?[\\\"") {
			t.Errorf("%q", line)
		}
		if words := strings.Fields(value); strings.Join(words, " ") != value {
			t.Errorf("%q does not survive splitting", value)
		}
	})
}

func TestNodeConfig(t *testing.T) {
	d, r := decided(t, muster.SmartOSImage, Node)
	d.NodeConfig = map[string]string{"ntp_hosts": "10.77.0.1", "datacenter_name": "east-1", "dns_domain": "example.com"}
	d.DNS[0] = netip.MustParseAddr("10.77.0.2")
	got, err := NodeConfig(d)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "node.config", string(got))
	script, err := Render(d, r, site(), now, Extra{})
	if err != nil || strings.Count(string(script), "/node.config type=file name=node.config ") != 1 || strings.Count(string(script), "/node.config.hash type=hash name=node.config ") != 1 {
		t.Errorf("%v\n%s", err, script)
	}
	n, err := Networking(d, r)
	if err != nil || !strings.Contains(string(n), `"datacenter_name": "east-1"`) || !strings.Contains(string(n), `"dns_domain": "example.com"`) {
		t.Errorf("%v\n%s", err, n)
	}
	d.NodeConfig["x"] = "it's"
	if _, err := Render(d, r, site(), now, Extra{}); err == nil || !strings.Contains(err.Error(), "value of x") {
		t.Errorf("a policy from before the gate: %v", err)
	}
	d.Mode = Rescue
	if script, err := Render(d, r, site(), now, Extra{}); err != nil || strings.Contains(string(script), "node.config") {
		t.Errorf("a rescue needs none of it: %v\n%s", err, script)
	}
	if got, err := NodeConfig(Decision{}); err != nil || got != nil {
		t.Errorf("nothing to say: %q, %v", got, err)
	}
	if h := string(FileHash([]byte("abc"))); h != "a9993e364706816aba3e25717850c26c9cd0d89d\n" {
		t.Errorf("hash %q", h)
	}
}
