package resource

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const whole = `{"generation":7,"confirm":"2m","values":{"peer":"10.0.0.2"},"resources":[
 {"directory":{"path":"/etc/app","mode":"0750","group":"adm"}},
 {"file":{"path":"/etc/app/app.conf","template":"peer = {{ peer }}\nhost = {{hostname}}\n","mode":"0600"},"adopt":true},
 {"package":{"name":"chrony","version":"4.3-2+deb12u1"}},
 {"service":{"name":"chrony","restart_on":["file:/etc/app/app.conf"]},"after":["package:chrony"]},
 {"container":{"name":"web","image":"nginx:1.27","command":["nginx","-g","daemon off;"],"environment":{"A":"1"},
  "mounts":[{"source":"/etc/app","target":"/app","read_only":true}],"ports":[{"host":8080,"container":80}]},"after":["service:chrony"]},
 {"action":{"name":"migrate","command":["/bin/true"],"unless":["/bin/false"],"timeout":"10s"}},
 {"disk":{"id":"00112233-4455-4677-8899-aabbccddeeff","identity":"wwn naa.5000","path":"/srv/disk","filesystem":"xfs"}}],
 "checks":[{"id":"p1","port":8080,"path":"/up","caught_up":"/caught-up"}]}`

func TestParse(t *testing.T) {
	d, err := Parse("node.json", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	var refs []Ref
	for _, r := range d.Resources {
		refs = append(refs, r.Ref())
	}
	want := []Ref{"directory:/etc/app", "file:/etc/app/app.conf", "package:chrony", "service:chrony.service", "container:web", "action:migrate", "disk:/srv/disk"}
	if diff := cmp.Diff(want, refs); diff != "" {
		t.Error(diff)
	}
	if got := d.Resources[4].After; got[0] != "service:chrony.service" {
		t.Errorf("a reference to a service is not in full: %v", got)
	}
	if d.ConfirmWithin().Seconds() != 120 || d.Resources[5].Action.TimeoutAfter().Seconds() != 10 {
		t.Error("times are not read")
	}
	if got := d.LocalOnly(); len(got) != 1 || got[0] != "action:migrate" {
		t.Errorf("for a local file alone: %v", got)
	}
}

// The same by hand, in YAML.
func TestParseYAML(t *testing.T) {
	y := `
generation: 7
confirm: 2m
values: {peer: 10.0.0.2}
resources:
- directory: {path: /etc/app, mode: "0750", group: adm}
- file:
    path: /etc/app/app.conf
    template: |
      peer = {{ peer }}
      host = {{hostname}}
    mode: "0600"
  adopt: true
- package: {name: chrony, version: 4.3-2+deb12u1}
- service: {name: chrony, restart_on: ["file:/etc/app/app.conf"]}
  after: ["package:chrony"]
- container:
    name: web
    image: nginx:1.27
    command: [nginx, -g, daemon off;]
    environment: {A: "1"}
    mounts: [{source: /etc/app, target: /app, read_only: true}]
    ports: [{host: 8080, container: 80}]
  after: ["service:chrony"]
- action: {name: migrate, command: [/bin/true], unless: [/bin/false], timeout: 10s}
- disk: {id: 00112233-4455-4677-8899-aabbccddeeff, identity: wwn naa.5000, path: /srv/disk, filesystem: xfs}
checks: [{id: p1, port: 8080, path: /up, caught_up: /caught-up}]
`
	a, err := Parse("node.yaml", []byte(y))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Parse("node.json", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, a); diff != "" {
		t.Error(diff)
	}
}

// Every mistake names the source, the resource and the field.
func TestParseMistakes(t *testing.T) {
	file := func(fields string) string { return `{"resources":[{"file":{` + fields + `}}]}` }
	disk := func(field string) string { // the last of two fields counts
		return `{"resources":[{"disk":{"id":"00112233-4455-4677-8899-aabbccddeeff","identity":"wwn 1","path":"/a","filesystem":"xfs",` + field + `}}]}`
	}
	for _, c := range []struct{ text, want string }{
		{``, `d: it is empty; a declaration that names nothing is {"resources":[]}`},
		{`[]`, `d: it must be an object with "resources"`},
		{`{}`, `d: it has no "resources"; a declaration that names nothing says "resources":[]`},
		{"{\"resources\":[\n{\"file\":{\"path\":\"/a\",}}]}", `d: resources: line 2: invalid character '}' looking for beginning of object key string`},
		{"{\"resources\":[\n", `d: resources: line 2: it ends too early`},
		{`{"resources":[]} x`, `d: something follows after its end`},
		{`{"resources":[],"resources":[]}`, `d: "resources" is there twice`},
		{`{"resource":[]}`, `d: it has an unknown field "resource"; there is generation, confirm, values, resources and checks`},
		{`{"resources":{}}`, `d: resources: must be a list`},
		{file(`"path":"/a","template":"{{ grant_app_password }}"`), `d: resource 1 (file:/a): file.secret: its template uses a grant, so it must be "secret": true`},
		{file(`"path":"/a","template":"{{ grant_app_salt }}","secret":true`), `d: resource 1 (file:/a): file.template: line 1: nothing is called "grant_app_salt"; there is address, arch, firmware, hostname, kernel, node_id, os, os_version, server_uuid`},
		{`{"resources":[{}]}`, `d: resource 1: kind: it must be one of file, directory, package, service, container, action and disk, and is 0 of them`},
		{`{"resources":[{"file":{"path":"/a"},"directory":{"path":"/b"}}]}`, `d: resource 1 (file:/a): kind: it must be one of file, directory, package, service, container, action and disk, and is 2 of them`},
		{`{"resources":[{"fiel":{}}]}`, `d: resource 1: unknown field "fiel"`},
		{file(`"path":"/a","mode":644`), `d: resource 1 (file:/a): file.mode: must be a text, in quotes, not a number`},
		{file(`"path":"/a","mode":"0888"`), `d: resource 1 (file:/a): file.mode: "0888" is no mode; say it in octal, such as "0644"`},
		{file(`"path":"/a","mode":"rw"`), `d: resource 1 (file:/a): file.mode: "rw" is no mode; say it in octal, such as "0644"`},
		{file(`"path":""`), `d: resource 1: file.path: must be said`},
		{file(`"path":"etc/a"`), `d: resource 1 (file:etc/a): file.path: "etc/a" must begin with /`},
		{file(`"path":"/etc/../a"`), `d: resource 1 (file:/etc/../a): file.path: "/etc/../a" must be a plain path, without . or .. or a slash at its end`},
		{file(`"path":"/proc/sys/kernel"`), `d: resource 1 (file:/proc/sys/kernel): file.path: /proc is not for declarations`},
		{file(`"path":"/var/lib/muster-host/x"`), `d: resource 1 (file:/var/lib/muster-host/x): file.path: /var/lib/muster-host is not for declarations`},
		{file(`"path":"/a","owner":"a:b"`), `d: resource 1 (file:/a): file.owner: "a:b" cannot be the name or number of an account`},
		{file(`"path":"/a","content":"x","template":"y"`), `d: resource 1 (file:/a): file.template: a file has a content or a template, not both`},
		{file(`"path":"/a","content":"x","source":"y"`), `d: resource 1 (file:/a): file.source: a file has a source, a content or a template, and only one of them`},
		{file(`"path":"/a","source":"/etc/shadow"`), `d: resource 1 (file:/a): file.source: "/etc/shadow" must be a plain path to a file beside the declaration`},
		{file(`"path":"/a","source":"../b"`), `d: resource 1 (file:/a): file.source: "../b" must be a plain path to a file beside the declaration`},
		{file(`"path":"/a","source":"b/../c"`), `d: resource 1 (file:/a): file.source: "b/../c" must be a plain path to a file beside the declaration`},
		{file(`"path":"/a","template":"x\n{{ hostnam }}"`), `d: resource 1 (file:/a): file.template: line 2: nothing is called "hostnam"; there is address, arch, firmware, hostname, kernel, node_id, os, os_version, server_uuid`},
		{file(`"path":"/a","template":"{{ hostname"`), `d: resource 1 (file:/a): file.template: line 1: {{ is not closed`},
		{`{"resources":[{"file":{"path":"/a"}},{"file":{"path":"/a"}}]}`, `d: resource 2 (file:/a): file.path: resource 1 is file:/a, too`},
		{`{"resources":[{"file":{"path":"/a"}},{"directory":{"path":"/a"}}]}`, `d: resource 2 (directory:/a): directory.path: resource 1 is at this path, too`},
		{`{"resources":[{"file":{"path":"/a/b"}},{"directory":{"path":"/a"}}]}`, `d: resource 1 (file:/a/b): file.path: its directory /a comes later, as resource 2; put it first`},
		{`{"resources":[{"file":{"path":"/a"}},{"file":{"path":"/a/b"}}]}`, `d: resource 2 (file:/a/b): file.path: it is inside of /a, which resource 1 makes a file`},
		{`{"resources":[{"package":{"name":"a b"}}]}`, `d: resource 1 (package:a b): package.name: "a b" cannot be the name of a package`},
		{`{"resources":[{"package":{"name":"-y"}}]}`, `d: resource 1 (package:-y): package.name: "-y" cannot be the name of a package`},
		{`{"resources":[{"package":{"name":"a","version":"--force"}}]}`, `d: resource 1 (package:a): package.version: "--force" is no version`},
		{`{"resources":[{"service":{"name":"a/b"}}]}`, `d: resource 1 (service:a/b.service): service.name: "a/b.service" cannot be the name of a unit`},
		{`{"resources":[{"service":{"name":"a","running":"yes"}}]}`, `d: resource 1 (service:a): service.running: must be true or false, not a string`},
		{`{"resources":[{"service":{"name":"a","restart_on":["file:/a"]}}]}`, `d: resource 1 (service:a.service): service.restart_on: there is no file:/a in this declaration`},
		{`{"resources":[{"service":{"name":"a"},"after":["file:/a"]},{"file":{"path":"/a"}}]}`, `d: resource 1 (service:a.service): after: file:/a comes later; put it first`},
		{`{"resources":[{"service":{"name":"a"},"after":["/a"]}]}`, `d: resource 1 (service:a.service): after: "/a" names no resource; say KIND:NAME, such as file:/etc/motd`},
		{`{"resources":[{"container":{"name":"aa","image":""}}]}`, `d: resource 1 (container:aa): container.image: "" cannot be the name of an image`},
		{`{"resources":[{"container":{"name":"aa","image":"i","ports":[{"host":0,"container":80}]}}]}`, `d: resource 1 (container:aa): container.ports: port 1: host and container must be from 1 to 65535`},
		{`{"resources":[{"container":{"name":"aa","image":"i","restart":"sometimes"}}]}`, `d: resource 1 (container:aa): container.restart: is one of no, on-failure, always, unless-stopped, not "sometimes"`},
		{`{"resources":[{"container":{"name":"aa","image":"i","mounts":[{"source":"data","target":"/d"}]}}]}`, `d: resource 1 (container:aa): container.mounts: mount 1: "data" must be a plain path that begins with /`},
		{`{"resources":[{"action":{"name":"a","command":"ls"}}]}`, `d: resource 1 (action:a): action.command: must be a list, not a string`},
		{`{"resources":[{"action":{"name":"a","command":[]}}]}`, `d: resource 1 (action:a): action.command: must be a program and its arguments, as a list`},
		{`{"resources":[{"action":{"name":"a","command":["x"],"timeout":"2"}}]}`, `d: resource 1 (action:a): action.timeout: "2" must be a time such as "2m", from 1s to 24h0m0s`},
		{`{"resources":[{"action":{"name":"a","command":["x"]},"adopt":true}]}`, `d: resource 1 (action:a): adopt: an action leaves nothing that could be adopted`},
		{disk(`"id":"x"`), `d: resource 1 (disk:/a): disk.id: "x" must be a UUID, in small letters`},
		{disk(`"identity":"/dev/sda"`), `d: resource 1 (disk:/a): disk.identity: "/dev/sda" must be "wwn …" or "serial …", as muster inventory shows it`},
		{disk(`"path":"/dev/x"`), `d: resource 1 (disk:/dev/x): disk.path: /dev is not for declarations`},
		{disk(`"filesystem":"zfs"`), `d: resource 1 (disk:/a): disk.filesystem: is one of xfs, ext4, btrfs, not "zfs"`},
		{strings.Replace(disk(`"path":"/b"`), `}}]`, `},"adopt":true}]`, 1), `d: resource 1 (disk:/b): adopt: a disk that carries its id is the host's, and no other is touched`},
		{strings.Replace(disk(`"path":"/b"`), `]`, `,{"directory":{"path":"/b"}}]`, 1), `d: resource 2 (directory:/b): directory.path: resource 1 is at this path, too`},
		{strings.Replace(disk(`"path":"/b"`), `[`, `[{"directory":{"path":"/b/c"}},`, 1), `d: resource 1 (directory:/b/c): directory.path: its directory /b comes later, as resource 2; put it first`},
		{`{"resources":[],"checks":[{"id":"","port":1}]}`, `d: check 1 (): id: must be the placement's, at most 64 bytes`},
		{`{"resources":[],"checks":[{"id":"a","port":1},{"id":"a","port":1}]}`, `d: check 2 (a): id: is there twice`},
		{`{"resources":[],"checks":[{"id":"a","port":0}]}`, `d: check 1 (a): port: 0 must be from 1 to 65535`},
		{`{"resources":[],"checks":[{"id":"a","port":1,"caught_up":"x y"}]}`, `d: check 1 (a): caught_up: "x y" must be a path that begins with /`},
		{`{"resources":[],"checks":[{"id":"a","port":1,"prot":2}]}`, `d: checks: unknown field "prot"`},
		{`{"confirm":"2h","resources":[]}`, `d: confirm: "2h" must be a time such as "2m", from 1s to 1h0m0s`},
		{`{"values":{"os":"x"},"resources":[]}`, `d: values: "os" cannot be a name: small letters, digits, dots and underlines, and none of the facts`},
		{"resources:\n- file: {path: /a, mode: 0644}\n", `d: resource 1 (file:/a): file.mode: must be a text, in quotes, not a number`},
	} {
		_, err := Parse("d", []byte(c.text))
		if err == nil {
			t.Errorf("%s\nis taken", c.text)
		} else if err.Error() != c.want {
			t.Errorf("%s\n got: %v\nwant: %s", c.text, err, c.want)
		}
	}
}

// All that is wrong is said at once.
func TestParseAllMistakes(t *testing.T) {
	_, err := Parse("d", []byte(`{"resources":[{"file":{"path":"a"}},{"file":{"path":"/b","mode":"9"}},{"package":{"name":""}}]}`))
	if n := len(strings.Split(err.Error(), "\n")); n != 3 {
		t.Errorf("%d lines, not 3: %v", n, err)
	}
}

func TestParseTooLarge(t *testing.T) {
	if _, err := Parse("d", make([]byte, MaxBytes+1)); err == nil || !strings.Contains(err.Error(), "at most 32 MiB") {
		t.Error(err)
	}
	many := `{"resources":[` + strings.Repeat(`{"package":{"name":"a"}},`, MaxResources) + `{"package":{"name":"a"}}]}`
	if _, err := Parse("d", []byte(many)); err == nil || !strings.Contains(err.Error(), "more than 20000") {
		t.Error(err)
	}
}

// What was taken keeps its promises: names are unique, references point back,
// everything wanted can be said, and it survives being written and read.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"resources":[]}`))
	f.Add([]byte("resources:\n- file: {path: /a, content: x}\n"))
	f.Add([]byte(`{"resources":[{"service":{"name":"a"},"after":["package:b"]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := Parse("d", text)
		if err != nil {
			if len(d.Resources) != 0 {
				t.Error("an error, and resources")
			}
			return
		}
		names := map[string]string{}
		for _, n := range factNames {
			names[n] = n
		}
		for n, v := range d.Values {
			names[n] = v
		}
		seen := map[Ref]bool{}
		for i := range d.Resources {
			r := &d.Resources[i]
			if seen[r.Ref()] {
				t.Errorf("%s is there twice", r.Ref())
			}
			for _, ref := range append(r.After, r.RestartOn()...) {
				if !seen[ref] {
					t.Errorf("%s refers to %s, which is not before it", r.Ref(), ref)
				}
			}
			seen[r.Ref()] = true
			if w, err := r.Want(names); err != nil || len(w) == 0 {
				t.Errorf("%s wants %v, %v", r.Ref(), w, err)
			}
		}
		again, err := Parse("again", mustJSON(t, d))
		if err != nil {
			t.Fatalf("what was taken is not taken again: %v", err)
		}
		if diff := cmp.Diff(d, again, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	})
}
