package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster.internal/resource"
)

// A bundle of one file, with its content beside it.
const oneBundle = `
resources:
- directory: {path: DIR/etc, OWNED}
- file: {path: DIR/etc/motd, source: files/motd, OWNED}
- file: {path: DIR/etc/where, template: "{{ address }}", OWNED}
- action: {name: once, command: [sh, -c, "echo ran >> DIR/ran"], unless: [test, -e, DIR/ran]}
`

func (b *bench) write(name, text string) {
	b.t.Helper()
	name = filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// A machine that belongs to no control plane is made as its bundle says, again
// and again, and tells how far it is.
func TestReconcileRaisesTheBundle(t *testing.T) {
	b := newBench(t)
	b.write("bundle/one.yaml", b.fill(oneBundle))
	b.write("bundle/other.yaml", "resources: []")
	code, text := b.run("", "reconcile", "--bundle", "DIR/bundle/one.yaml")
	if want := "muster-host: DIR/bundle/one.yaml: file:DIR/etc/motd: source: open DIR/bundle/files/motd: no such file or directory\n"; code != exitFailed || text != want {
		t.Errorf("without a file that it names: %d %s", code, text)
	}
	b.write("bundle/files/motd", "from the bundle\n")
	if code, text := b.run("", "reconcile", "--bundle", "DIR/bundle/one.yaml", "--dry-run"); code != 0 || strings.Contains(text, "is up") {
		t.Errorf("%d %s", code, text)
	}
	begun := "muster-host: raising a control plane from DIR/bundle/one.yaml\nmuster-host: 1 of 4: directory:DIR/etc\nmuster-host: 2 of 4: file:DIR/etc/motd\nmuster-host: 3 of 4: file:DIR/etc/where\nmuster-host: 4 of 4: action:once\n"
	up := "muster-host: the control plane is up. This machine joins it like any other:\n  muster token issue | muster-host enrol --token -\n"
	made := "changed  directory:DIR/etc  created\nchanged  file:DIR/etc/motd  created\nchanged  file:DIR/etc/where  created\nchanged  action:once  ran\noutcome: changed (4 changed)\n"
	b.expect("", 0, begun+made+up, "reconcile", "--bundle", "DIR/bundle/one.yaml")
	b.expect("", 0, begun+"outcome: ok (4 ok)\n"+up, "reconcile")
	if text, _ := os.ReadFile(filepath.Join(b.dir, "etc/motd")); string(text) != "from the bundle\n" {
		t.Errorf("the file holds %q", text)
	}
	if text, _ := os.ReadFile(filepath.Join(b.dir, "etc/where")); strings.Trim(string(text), "0123456789abcdef.:") != "" || len(text) == 0 {
		t.Errorf("the address is %q", text)
	}
	b.expect("", exitFailed, "muster-host: a control plane is being raised here from DIR/bundle/one.yaml already, so not from DIR/bundle/other.yaml; go on with muster-host reconcile\n",
		"reconcile", "--bundle", "DIR/bundle/other.yaml")
	b.write("state/credential", "")
	b.expect("", 0, "muster-host: this machine is a node, and its control plane has not told it what to be: there is nothing to do. `muster-host apply FILE` applies a file\n", "reconcile")
	b.expect("", exitFailed, "muster-host: this machine is a node already, and a bundle is for a machine that belongs to no control plane; `muster-host apply FILE` applies a file\n",
		"reconcile", "--bundle", "DIR/bundle/one.yaml")
}

// Without a bundle it says what would help.
func TestReconcileWithoutABundle(t *testing.T) {
	b := newBench(t)
	code, text := b.run("", "reconcile", "--bundle", "DIR/none.yaml")
	if code != exitFailed || !strings.Contains(text, "it carries no bundle DIR/none.yaml to raise one from (package muster-bundle). `muster-host enrol` makes it a node") {
		t.Errorf("%d %s", code, text)
	}
}

// A name that is none is answered with those that are.
func TestReconcileNamesTheBundles(t *testing.T) {
	b := newBench(t)
	b.write("bundle/embedded.yaml", "resources: []")
	b.write("bundle/postgresql.yaml", "resources: []")
	code, text := b.run("", "reconcile", "--bundle", "DIR/bundle/postgres.yaml")
	if code != exitFailed || !strings.Contains(text, "no bundle DIR/bundle/postgres.yaml to raise one from (it has embedded, postgresql). ") {
		t.Errorf("%d %s", code, text)
	}
}

// What lies beside a declaration needs a place to lie.
func TestSourceFromStandardInput(t *testing.T) {
	b := newBench(t)
	b.expect("resources: [{file: {path: DIR/x, source: y, OWNED}}]", exitFailed, "muster-host: file:DIR/x: source: nothing is beside standard input; name the declaration's file\n", "apply", "-")
}

// The bundles that the package carries are sound, and name no file that it lacks.
func TestBundlesAreWhole(t *testing.T) {
	carried, err := os.ReadFile("../../packaging/muster-bundle.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"embedded", "postgresql"} {
		file := "../../packaging/bundle/" + name + ".yaml"
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d, err := resource.Parse(file, text)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range d.Resources {
			if r.File != nil && r.File.Source != "" && !strings.Contains(string(carried), "dst: "+bundleDir+"/"+r.File.Source+"\n") {
				t.Errorf("%s: %s has the source %s, which is not in the package", file, r.Ref(), r.File.Source)
			}
		}
		if !strings.Contains(string(carried), "dst: "+bundleDir+"/"+name+".yaml\n") {
			t.Errorf("the package has no %s", file)
		}
	}
}
