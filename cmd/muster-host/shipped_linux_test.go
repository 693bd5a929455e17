package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"muster.internal"
	"muster.internal/blueprint"
	"muster.internal/module"
)

// shippedScript applies what stands beside it twice, and looks whether what it
// declares works: the second time there is nothing to do.
const shippedScript = `set -eux
/shared/muster-host apply /shared/node.json
/shared/muster-host apply /shared/node.json | grep 'outcome: ok'
systemctl is-active chrony muster-names
chronyc -n sources | grep -q . # it answers
perl -MIO::Socket::INET -e '
 my $s = IO::Socket::INET->new(Proto => "udp", PeerAddr => "127.0.0.1:5300") or die $!;
 $s->send(pack("n6", 7, 0x100, 1, 0, 0, 0) . join("", map { chr(length) . $_ } qw(db-2 fleet internal)) . "\0" . pack("n2", 1, 1));
 $s->recv(my $a, 512);
 my $ip = join(".", unpack("C4", substr($a, -4)));
 $ip eq "192.0.2.2" or die "db-2 is at $ip"'
echo ALL WAS SO
`

// Modules that come with muster, rendered for a node and applied by the host in a
// Debian with systemd.
func TestShippedModulesForReal(t *testing.T) {
	if os.Getenv("MUSTER_LAB") == "" {
		t.Skip("starts a system in a container: set MUSTER_LAB=1 to run it")
	}
	if os.Getuid() != 0 {
		t.Skip("starts a system in a container, which needs root")
	}
	b := muster.Blueprint{Nodes: []muster.BlueprintNode{{ID: "n1", Generation: 1, Address: "192.0.2.1"}, {ID: "n2", Generation: 1, Address: "192.0.2.2"}}}
	place := func(node int, name, of string) {
		b.Nodes[node].Placements = append(b.Nodes[node].Placements, muster.BlueprintPlacement{Placement: muster.Placement{ID: name, Module: of, State: muster.PlacementPlaced}, Name: name, Version: 1})
	}
	for _, name := range []string{"chrony", "names"} {
		text, err := os.ReadFile("../muster/modules/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		m, err := module.ParseDraft(name, text)
		if err != nil {
			t.Fatal(err)
		}
		m.Version = 1
		b.Modules = append(b.Modules, m)
		place(0, name+"-1", name)
	}
	place(1, "db-2", "db")
	d, err := blueprint.NewRenderer(&b).Declaration("n1")
	if err != nil {
		t.Fatal(err)
	}
	d.Generation = 0 // as in a file
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	shared, root := t.TempDir(), ownDebian(t, debian(t))
	build := exec.Command("go", "build", "-o", filepath.Join(shared, "muster-host"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	must(t, build)
	fetched(t, root, "chrony dnsmasq-base")
	unit := filepath.Join(root, "etc/systemd/system/chrony.service.d")
	if err := errors.Join(os.WriteFile(filepath.Join(shared, "node.json"), text, 0o600), os.WriteFile(filepath.Join(shared, "inside.sh"), []byte(shippedScript), 0o644),
		// A container's clock is not its own: chrony leaves it be.
		os.WriteFile(filepath.Join(root, "etc/default/chrony"), []byte("DAEMON_OPTS=\"-x\"\n"), 0o644), os.MkdirAll(unit, 0o755),
		os.WriteFile(filepath.Join(unit, "container.conf"), []byte("[Unit]\nConditionCapability=\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	bootDebian(t, root, shared, "ALL WAS SO", "--suppress-sync=yes")
}
