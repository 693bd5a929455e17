package module_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"muster.internal/inventory"
	"muster.internal/module"
	"muster.internal/resource"
)

const whole = `
module: db
version: 3
place: {replicas: 3, spread: rack, minimum: 2, where: {role: storage}}
needs: {arch: [amd64, arm64], container_runtime: any, virtualised: false}
asks: {cpu_millis: 500, memory_mib: 1024, durable_mib: 10240, transient_mib: 100}
moves: surge
health: {port: 5432, path: /up, caught_up: /caught-up}
on_expunge: [{webhook: "https://example.net/gone"}, {event: db_lost}]
after: [time]
resources:
- directory: {path: "/srv/{{ placement.name }}"}
- file: {path: "/srv/{{ placement.name }}/peers", template: "{{ peers.addresses }} of {{ module.time.names }} on {{ hostname }}"}
- container: {name: "{{placement.name}}", image: "postgres:17", environment: {DISK: "{{ disk.id }}"}, restart_on: ["file:/srv/{{ placement.name }}/peers"]}
`

func TestParse(t *testing.T) {
	m, err := module.Parse("db.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if !m.Surges() || m.Movable() || m.Minimum() != 2 || !m.Twice() || m.Asks.DurableMiB != 10240 || m.Needs["virtualised"][0] != "false" {
		t.Errorf("%+v", m)
	}
	text, _ := json.Marshal(m)
	again, err := module.Parse("again", text)
	if err != nil || !m.Equal(&again) {
		t.Errorf("it does not survive: %v\n%s", err, text)
	}
	again.Version++
	if m.Equal(&again) {
		t.Error("another version is equal")
	}
	if got, want := m.Names(), []string{"disk.id", "module.time.names", "peers.addresses", "placement.name"}; !slices.Equal(got, want) {
		t.Errorf("names %v, want %v", got, want)
	}
}

// TestErrors: each names the file, the module and the field.
func TestErrors(t *testing.T) {
	const rest = `,"resources":[{"package":{"name":"x"}}]}`
	for _, c := range []struct{ text, want string }{
		{``, `m: it must be an object with "resources"`},
		{`[]`, `m: it must be an object with "resources"`},
		{`{"module":"a","version":"x"}`, `m: module a: version: must be a whole number, not a string`},
		{`{"module":"a","versoin":1}`, `m: module a: unknown field "versoin"`},
		{`{"module":"a"`, `m: line 1: it ends too early`},
		{`{"module":"a"} {}`, `m: module a: something follows after its end`},
		{`{"module":"A","version":1,"place":{"replicas":1}` + rest, `m: module A: module: "A" cannot be its name: at most 40 small letters, digits and hyphens, the first a letter`},
		{`{"module":"fleet","version":1,"place":{"replicas":1}` + rest, `m: module fleet: module: "fleet" means something else in templates`},
		{`{"module":"a","place":{"replicas":1}` + rest, `m: module a: version: must be 1 or more, and grow with every change`},
		{`{"module":"a","version":9223372036854775807,"place":{"replicas":1}` + rest, `m: module a: version: must be at most 1000000000000, so that a next one is possible`},
		{`{"module":"a","version":1` + rest, `m: module a: place: must be one of each_node, each_disk, replicas and pinned, and is 0 of them`},
		{`{"module":"a","version":1,"place":{"replicas":2,"each_node":true}` + rest, `m: module a: place: must be one of each_node, each_disk, replicas and pinned, and is 2 of them`},
		{`{"module":"a","version":1,"place":{"replicas":-1}` + rest, `m: module a: place.replicas: -1 must be from 1 to 100,000`},
		{`{"module":"a","version":1,"place":{"replicas":1},"resources":[{"file":{"path":"/x","source":"y"}}]}`, `m: module a: resources: file:/x may not be declared from afar: actions, and files with a source, come to a machine with a bundle, or with a file and muster-host apply`},
		{`{"module":"a","version":1,"base":true,"place":{"replicas":1}` + rest, `m: module a: base: a base module is on each_node`},
		{`{"module":"a","version":1,"place":{"each_node":true,"spread":"rack"}` + rest, `m: module a: place.spread: only replicas can be spread`},
		{`{"module":"a","version":1,"place":{"replicas":2,"minimum":3},"moves":"surge"` + rest, `m: module a: place.minimum: 3 cannot stay available of 2`},
		{`{"module":"a","version":1,"place":{"replicas":2,"minimum":-1}` + rest, `m: module a: place.minimum: must not be negative`},
		{`{"module":"a","version":1,"place":{"replicas":2,"minimum":2}` + rest, `m: module a: place.minimum: when all of 2 must stay available, none can ever be moved or get a new version: say less, or let it surge`},
		{`{"module":"a","version":1,"place":{"pinned":["x","x"]}` + rest, `m: module a: place.pinned: "x" must be a node's id, once`},
		{`{"module":"a","version":1,"place":{"replicas":2,"where_disk":{"a":"b"}}` + rest, `m: module a: place.where_disk: it uses no disk`},
		{`{"module":"a","version":1,"place":{"each_disk":true},"asks":{"transient_mib":1}` + rest, `m: module a: asks.transient_mib: a module on each disk has that disk, and no other`},
		{`{"module":"a","version":1,"place":{"replicas":2},"asks":{"cpu_millis":-1}` + rest, `m: module a: asks.cpu_millis: -1 must be from 0 to 2^40`},
		{`{"module":"a","version":1,"place":{"replicas":2},"moves":"fly"` + rest, `m: module a: moves: "fly" is none of restart, surge and live`},
		{`{"module":"a","version":1,"place":{"each_node":true},"moves":"surge"` + rest, `m: module a: moves: only replicas can surge: what is on each node, on each disk or pinned is where it is`},
		{`{"module":"a","version":1,"place":{"replicas":2},"moves":"live"` + rest, `m: module a: hand_over: a live move needs what both ends are told meanwhile`},
		{`{"module":"a","version":1,"place":{"replicas":2},"needs":{"colour":"red"}` + rest, `m: module a: needs: a profile has no "colour"; it has arch, container_runtime, firmware, graphical_session, kernel, os, os_version, package_manager, service_manager, virtualised, zfs`},
		{`{"module":"a","version":1,"place":{"replicas":2},"needs":{"arch":[]}` + rest, `m: module a: needs: arch: say a word, several as a list, or any`},
		{`{"module":"a","version":1,"place":{"replicas":2},"health":{"port":0}` + rest, `m: module a: health.port: 0 must be from 1 to 65535`},
		{`{"module":"a","version":1,"place":{"replicas":2},"health":{"port":1,"path":"x"}` + rest, `m: module a: health.path: "x" must be a path that begins with /`},
		{`{"module":"a","version":1,"place":{"replicas":2},"on_expunge":[{}]` + rest, `m: module a: on_expunge: hook 1 must be one of webhook and event`},
		{`{"module":"a","version":1,"place":{"replicas":2},"on_expunge":[{"webhook":"rm -rf /"}]` + rest, `m: module a: on_expunge: hook 1: "rm -rf /" is no http or https URL`},
		{`{"module":"a","version":1,"place":{"replicas":2},"after":["a"]` + rest, `m: module a: after: "a" cannot be a module that comes before it, once`},
		{`{"module":"a","version":1,"place":{"replicas":2},"resources":[]}`, `m: module a: resources: must be a list of resources`},
		{`{"module":"a","version":1,"place":{"replicas":2},"resources":[{"action":{"name":"x","command":["true"]}}]}`, `m: module a: resources: resource 1 (action:x): a module may not carry an action: no host takes one over the link`},
		{`{"module":"a","version":1,"place":{"replicas":2},"resources":[{"file":{"path":"etc"}}]}`, `m: module a: resources: resource 1 (file:etc): file.path: "etc" must begin with /`},
		{`{"module":"a","version":1,"place":{"replicas":2},"resources":[{"container":{"name":"xx","image":"x","command":["{{ hostname }}"]}}]}`, `{{ hostname }}: only a file's template is filled in by the host`},
		{`{"module":"a","version":1,"place":{"replicas":2},"resources":[{"file":{"path":"/x","template":"{{ placement.colour }}"}}]}`, `m: module a: resources: file:/x: nothing is called "placement.colour"; there is disk.id, disk.identity, node.address,`},
		{`{"module":"a","version":1,"place":{"replicas":2},"resources":[{"file":{"path":"/x","template":"{{ module.b.names }}"}}]}`, `nothing is called "module.b.names"`},
		{`{"module":"a","version":1,"place":{"replicas":2},"resources":[{"file":{"path":"/x","template":"{{ colour }}"}}]}`, `m: module a: resources: resource 1 (file:/x): file.template: line 1: nothing is called "colour"`},
		{`{"module":"a","version":1,"place":{"replicas":2},"resources":[{"file":{"path":"/{{x","template":"x"}}]}`, `it is not closed`},
	} {
		_, err := module.Parse("m", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n%v, want\n%s", c.text, err, c.want)
		}
	}
}

// TestNeedNames: what a module can need is what a profile says.
func TestNeedNames(t *testing.T) {
	var names []string
	for f := range reflect.TypeFor[inventory.Profile]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	slices.Sort(names)
	if !slices.Equal(names, module.NeedNames) {
		t.Errorf("a profile has %v, a module can need %v", names, module.NeedNames)
	}
}

func TestLacks(t *testing.T) {
	profile := func(name string) string { return map[string]string{"arch": "amd64", "zfs": "openzfs"}[name] }
	for _, c := range []struct {
		needs module.Needs
		want  string
	}{
		{nil, ""},
		{module.Needs{"arch": {"amd64"}}, ""},
		{module.Needs{"arch": {"arm64", "amd64"}, "zfs": {module.Any}}, ""},
		{module.Needs{"arch": {"arm64", "riscv64"}}, "arch arm64 or riscv64"},
		{module.Needs{"arch": {"amd64"}, "container_runtime": {module.Any}}, "container_runtime any"},
	} {
		if got := c.needs.Lacks(profile); got != c.want {
			t.Errorf("%v lacks %q, want %q", c.needs, got, c.want)
		}
	}
}

// TestTwice: whether two can be on one node follows from what they declare.
func TestTwice(t *testing.T) {
	for _, c := range []struct {
		resources string
		want      bool
	}{
		{`{"package":{"name":"x"}}`, false},
		{`{"service":{"name":"x"}}`, false},
		{`{"file":{"path":"/x","template":"{{ placement.id }}"}}`, false},
		{`{"file":{"path":"/x-{{ placement.id }}"}}`, true},
		{`{"package":{"name":"x"}},{"container":{"name":"{{ placement.name }}","image":"x"}}`, true},
		{`{"container":{"name":"{{ placement.name }}","image":"x","ports":[{"host":80,"container":80}]}}`, false},
		{`{"file":{"path":"/x-{{ placement.number }}","content":"x"}}`, true},
	} {
		m, err := module.Parse("m", []byte(`{"module":"m","version":1,"place":{"replicas":2},"resources":[`+c.resources+`]}`))
		if err != nil || m.Twice() != c.want {
			t.Errorf("%s: twice %v %v, want %v", c.resources, m.Twice(), err, c.want)
		}
	}
}

// TestFill: names with a dot are filled in, all others are left to the host, and
// the module stays as it was.
func TestFill(t *testing.T) {
	m, err := module.Parse("m", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	before, _ := json.Marshal(m)
	filled, err := module.Fill(m.Resources, func(name string) (string, bool) { return "<" + name + ">", true })
	if err != nil {
		t.Fatal(err)
	}
	if got, want := filled[1].File.Template, "<peers.addresses> of <module.time.names> on {{ hostname }}"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := filled[2].Container.RestartOn[0], resource.Ref("file:/srv/<placement.name>/peers"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if after, _ := json.Marshal(m); string(before) != string(after) {
		t.Errorf("the module changed: %s", after)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"module":"a","version":1,"place":{"replicas":2},"resources":[{"file":{"path":"/{{ node.id }}","template":"{{ \"{{\" }}"}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := module.Parse("fuzz", text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "fuzz: ") {
				t.Errorf("it does not name the source: %v", err)
			}
			return
		}
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		again, err := module.Parse("again", b)
		if err != nil || !m.Equal(&again) {
			t.Errorf("what was parsed cannot be: %v\n%s", err, b)
		}
		m.Twice()
	})
}
