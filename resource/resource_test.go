package resource

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The removal table, whole.
func TestRemoval(t *testing.T) {
	want := map[Kind]map[Origin]Removal{
		KindFile:      {OriginCreated: "remove", OriginAdopted: "restore", OriginFound: "forget"},
		KindDirectory: {OriginCreated: "remove", OriginAdopted: "restore", OriginFound: "forget"},
		KindPackage:   {OriginCreated: "forget", OriginAdopted: "forget", OriginFound: "forget"},
		KindService:   {OriginCreated: "stop", OriginAdopted: "restore", OriginFound: "forget"},
		KindContainer: {OriginCreated: "remove", OriginAdopted: "forget", OriginFound: "forget"},
		KindAction:    {OriginCreated: "forget", OriginAdopted: "forget", OriginFound: "forget"},
		KindDisk:      {OriginCreated: "unmount", OriginAdopted: "unmount", OriginFound: "unmount"},
	}
	for _, k := range Kinds {
		for _, o := range []Origin{OriginCreated, OriginAdopted, OriginFound} {
			if got := (Owned{Ref: NewRef(k, "x"), Origin: o}).Removal(); got != want[k][o] {
				t.Errorf("%s %s: %s, not %s", o, k, got, want[k][o])
			}
		}
	}
}

func TestWorst(t *testing.T) {
	for _, c := range []struct {
		all  []Outcome
		want Outcome
	}{
		{nil, "ok"},
		{[]Outcome{"ok", "changed", "ok"}, "changed"},
		{[]Outcome{"kept", "changed"}, "kept"},
		{[]Outcome{"kept", "unknown"}, "unknown"},
		{[]Outcome{"failed", "unknown", "ok"}, "failed"},
		{[]Outcome{"ok", "a word of tomorrow"}, "unknown"},
	} {
		if got := Worst(c.all...); got != c.want {
			t.Errorf("%v: %s, not %s", c.all, got, c.want)
		}
	}
}

func TestText(t *testing.T) {
	names := map[string]string{"hostname": "db1", "peer": "10.0.0.2"}
	for _, c := range []struct{ template, want, err string }{
		{"plain", "plain", ""},
		{"a {{hostname}} b {{ peer }}{{hostname}}", "a db1 b 10.0.0.2db1", ""},
		{`{{ "{{" }} {{ "a" }}`, "{{ a", ""},
		{"}} {", "}} {", ""},
		{"{{ os }}", "", `line 1: nothing is called "os"; there is hostname, peer`},
		{"\n\n{{ }}", "", `line 3: nothing is called ""; there is hostname, peer`},
		{"{{ hostname\n}}", "", "line 1: {{ is not closed"},
	} {
		got, err := (&File{Template: c.template}).Text(names)
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%q: %v, not %s", c.template, err, c.err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%q: %q, %v, not %q", c.template, got, err, c.want)
		}
	}
}

func TestWant(t *testing.T) {
	d, err := Parse("d", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{"peer": "10.0.0.2", "hostname": "db1"}
	want := []State{
		{"type": "directory", "mode": "0750", "owner": "root", "group": "adm"},
		{"type": "file", "mode": "0600", "owner": "root", "group": "root", "content": Hash("peer = 10.0.0.2\nhost = db1\n")},
		{"type": "installed", "version": "4.3-2+deb12u1"},
		{"enabled": "yes", "running": "yes"},
		{"image": "nginx:1.27", "command": `["nginx","-g","daemon off;"]`, "environment": Hash(`{"A":"1"}`),
			"mounts": `[{"source":"/etc/app","target":"/app","read_only":true}]`, "ports": `[{"host":8080,"container":80,"protocol":"tcp"}]`,
			"network": "", "restart": "always", "running": "yes"},
		{"done": "yes"},
		{"type": "disk", "identity": "wwn naa.5000", "filesystem": "xfs", "id": "00112233-4455-4677-8899-aabbccddeeff"},
	}
	for i := range d.Resources {
		got, err := d.Resources[i].Want(names)
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Errorf("%s: %s", d.Resources[i].Ref(), diff)
		}
	}
}

// An account is compared as it was declared, by name or by number.
func TestWantAccounts(t *testing.T) {
	r := Resource{File: &File{Path: "/a", Owner: "33", Group: "www-data"}}
	got, err := r.Want(nil)
	if diff := cmp.Diff(State{"type": "file", "mode": "0644", "owner_id": "33", "group": "www-data", "content": Hash("")}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestDifferences(t *testing.T) {
	is := State{"type": "file", "mode": "0644", "owner": "root", "label": "x"}
	want := State{"type": "file", "mode": "0600", "owner": "app"}
	got := Differences(is, want)
	if diff := cmp.Diff([]Difference{{"mode", "0644", "0600"}, {"owner", "root", "app"}}, got); diff != "" {
		t.Error(diff)
	}
	if is.Satisfies(want) || !is.Satisfies(State{"mode": "0644"}) || State(nil).Satisfies(want) || !State(nil).Satisfies(nil) {
		t.Error("Satisfies is wrong")
	}
	if len(Differences(nil, want)) != 3 {
		t.Error("what is absent differs in every field")
	}
}

// Two spellings of the same container appear the same.
func TestContainerState(t *testing.T) {
	a := Container{Name: "aa", Image: "nginx", Network: "bridge", Mounts: []Mount{{"/b", "/b", false}, {"/z", "/a", true}}, Ports: []Port{{80, 80, ""}, {53, 53, "udp"}, {53, 53, "tcp"}}}
	b := Container{Name: "aa", Image: "docker.io/library/nginx:latest", Restart: "always", Mounts: []Mount{{"/z", "/a", true}, {"/b", "/b", false}}, Ports: []Port{{53, 53, "tcp"}, {53, 53, "udp"}, {80, 80, "tcp"}}}
	if d := Differences(a.State(true), b.State(true)); len(d) > 0 {
		t.Error(d)
	}
	if a.Mounts[0].Target != "/b" || a.Ports[0].Protocol != "" {
		t.Error("the declaration itself was changed")
	}
	for name, want := range map[string]string{
		"nginx": "nginx:latest", "docker.io/a/b:1": "a/b:1", "r:5000/a": "r:5000/a:latest", "localhost/a": "localhost/a:latest",
		"nginx@sha256:12": "nginx@sha256:12", "docker.io/library/": "library/:latest", "sha256:12": "sha256:12",
	} {
		if got := imageName(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		if again := imageName(want); again != want {
			t.Errorf("%s becomes %s", want, again)
		}
	}
}
