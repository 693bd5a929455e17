package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// readmeCommands are the indented lines of one of the README's sections.
func readmeCommands(t *testing.T, section string) string {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(b), "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var all strings.Builder
	for line := range strings.Lines(text) {
		if command, indented := strings.CutPrefix(line, "    "); indented {
			all.WriteString(command)
		}
	}
	if !found || all.Len() == 0 {
		t.Fatalf("the README has no section %q with commands", section)
	}
	return all.String()
}

// A Debian of its own for a test, over the one that all share.
func ownDebian(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	for _, d := range []string{"root", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	must(t, exec.Command("mount", "-t", "overlay", "overlay", "-o", fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", debian(t), dir, dir), root))
	t.Cleanup(func() { must(t, exec.Command("umount", "-l", root)) })
	return root
}

// On an empty machine, the README's three commands make a control plane and its
// first node: testdata/first.sh says what is done and what must be so. There is
// no network; for PostgreSQL, apt has its packages.
func TestFirstNodeForReal(t *testing.T) {
	needReal(t)
	dist := t.TempDir()
	bin := t.TempDir()
	must(t, exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X muster.internal.Build=0.0.1", "-o", bin, ".", "../musterd", "../muster", "../muster-booter"), "CGO_ENABLED=0")
	must(t, exec.Command("../../scripts/package", "0.0.1", "muster-host", "muster-bundle"), "BIN="+bin, "DIST="+dist, "PACKAGERS=deb")
	for _, bundle := range []string{"embedded", "postgresql"} {
		t.Run(bundle, func(t *testing.T) { firstNode(t, dist, bundle) })
	}
}

func firstNode(t *testing.T, dist, bundle string) {
	root := ownDebian(t)
	commands := readmeCommands(t, "The first node")
	if bundle == "postgresql" {
		commands = strings.Replace(commands, "muster-host reconcile\n", "muster-host reconcile --bundle postgresql\n", 1)
		fetched(t, root, "postgresql")
	}
	script, err := os.ReadFile("testdata/first.sh")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"inside.sh": string(script), "commands": commands, "bundle": bundle} {
		if err := os.WriteFile(filepath.Join(dist, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, start := range []string{"FIRST", "SECOND"} {
		began := time.Now()
		bootDebian(t, root, dist, start+" START WAS SO", "--suppress-sync=yes")
		t.Logf("the %s start took %v", start, time.Since(began).Round(time.Second))
	}
}

// fetched leaves a package in the cache of a Debian's apt, with what it needs.
func fetched(t *testing.T, root, name string) {
	t.Helper()
	must(t, exec.Command("systemd-nspawn", "-q", "-D", root, "--register=no", "--keep-unit", "--bind-ro=/etc/resolv.conf",
		"sh", "-euc", "apt-get -qq update; apt-get -qq -y install --download-only "+name))
}

// bootDebian starts a Debian with systemd and runs inside.sh of the shared
// directory in it, whose last line must be the one that is wanted.
func bootDebian(t *testing.T, root, shared, want string, more ...string) {
	t.Helper()
	unit := "[Unit]\nAfter=multi-user.target\n[Service]\nType=oneshot\nStandardOutput=file:/shared/log\nStandardError=inherit\n" +
		"ExecStart=/bin/sh /shared/inside.sh\nExecStopPost=systemctl --no-block poweroff\n"
	if err := os.WriteFile(filepath.Join(shared, "inside.service"), []byte(unit), 0o644); err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(shared, "log"))
	boot := exec.Command("systemd-nspawn", append([]string{"-q", "-b", "-D", root, "--register=no", "--keep-unit", "--private-network", "--console=read-only",
		fmt.Sprintf("--machine=muster-%d", os.Getpid()), "--bind=" + shared + ":/shared", "--bind-ro=" + shared + "/inside.service:/etc/systemd/system/inside.service"},
		append(more, "systemd.wants=inside.service")...)...)
	said := &bytes.Buffer{}
	boot.Stdout, boot.Stderr = said, said
	boot.WaitDelay = 10 * time.Second
	late := time.AfterFunc(15*time.Minute, func() { boot.Process.Kill() })
	err := boot.Run()
	late.Stop()
	log, _ := os.ReadFile(filepath.Join(shared, "log"))
	t.Logf("%s", log)
	if !strings.HasSuffix(string(log), "\n"+want+"\n") {
		t.Fatalf("%v\n%.2000s", err, said)
	}
}
