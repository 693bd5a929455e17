package main

import (
	"bytes"
	"flag"
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

// ownDebian is a Debian of its own for a test, over one that all share.
func ownDebian(t *testing.T, from string) string {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	for _, d := range []string{"root", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	must(t, exec.Command("mount", "-t", "overlay", "overlay", "-o", fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", from, dir, dir), root))
	t.Cleanup(func() { must(t, exec.Command("umount", "-l", root)) })
	return root
}

// On an empty machine, the README's three commands make a control plane and its
// first node: testdata/first.sh says what is done and what must be so. There is
// no network; for PostgreSQL, apt has its packages.
func TestFirstNodeForReal(t *testing.T) {
	dist := bundled(t)
	for _, bundle := range bundles {
		t.Run(bundle, func(t *testing.T) {
			root := ownDebian(t, debian(t))
			prepare(t, root, dist, bundle)
			for _, start := range []string{"FIRST", "SECOND"} {
				bootDebian(t, root, dist, start+" START WAS SO", "--suppress-sync=yes")
			}
		})
	}
}

// The same in a virtual machine, with a kernel and a disk of its own. With
// -update, what a person sees there becomes a page of the documentation.
func TestFirstNodeInVM(t *testing.T) {
	dist := bundled(t)
	page := "# The first node\n\nWhat the README's three commands said in a virtual machine without a network.\n" +
		"For PostgreSQL, apt had its packages. It is recorded anew by\n" +
		"`MUSTER_LAB=1 go test ./cmd/muster-host -run FirstNodeInVM -update`, as root.\n"
	for _, bundle := range bundles {
		t.Run(bundle, func(t *testing.T) {
			root := ownDebian(t, debianVM(t))
			shared := filepath.Join(root, "shared")
			if err := os.CopyFS(shared, os.DirFS(dist)); err != nil {
				t.Fatal(err)
			}
			prepare(t, root, shared, bundle)
			for _, name := range []string{"inside.service", "multi-user.target.wants/inside.service"} {
				if err := os.Symlink("/shared/inside.service", filepath.Join(root, "etc/systemd/system", name)); err != nil {
					t.Fatal(err)
				}
			}
			disk := filepath.Join(t.TempDir(), "disk")
			must(t, exec.Command("mkfs.ext4", "-q", "-d", root, disk, "3G"))
			for _, start := range []string{"FIRST", "SECOND"} {
				bootVM(t, root, disk, start+" START WAS SO")
			}
			page += "\n## " + bundle + "\n\n```text\n" + onDisk(t, disk, "/shared/transcript") + "```\n"
		})
	}
	if *update && !t.Failed() {
		if err := os.WriteFile("../../docs/first-node.md", []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var update = flag.Bool("update", false, "record docs/first-node.md")

var bundles = []string{"embedded", "postgresql"}

// bundled builds the packages that an empty machine needs.
func bundled(t *testing.T) string {
	t.Helper()
	needReal(t)
	dist, bin := t.TempDir(), t.TempDir()
	must(t, exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X muster.internal.Build=0.0.1", "-o", bin, ".", "../musterd", "../muster", "../muster-booter"), "CGO_ENABLED=0")
	must(t, exec.Command("../../scripts/package", "0.0.1", "muster-host", "muster-bundle"), "BIN="+bin, "DIST="+dist, "PACKAGERS=deb")
	return dist
}

// prepare puts what a first node is made by into a Debian and into its shared
// directory.
func prepare(t *testing.T, root, shared, bundle string) {
	t.Helper()
	commands := readmeCommands(t, "The first node")
	if bundle == "postgresql" {
		commands = strings.Replace(commands, "muster-host reconcile\n", "muster-host reconcile --bundle postgresql\n", 1)
		fetched(t, root, "postgresql")
	}
	script, err := os.ReadFile("testdata/first.sh")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"inside.sh": string(script), "inside.service": insideUnit, "commands": commands, "bundle": bundle} {
		if err := os.WriteFile(filepath.Join(shared, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// insideUnit runs inside.sh of the shared directory once all is up, and ends
// the machine.
const insideUnit = "[Unit]\nAfter=multi-user.target\n[Service]\nType=oneshot\nStandardOutput=append:/shared/log\nStandardError=inherit\n" +
	"ExecStart=/bin/sh /shared/inside.sh\nExecStopPost=systemctl --no-block poweroff\n"

// debianVM is a Debian with a kernel in a directory, made once.
func debianVM(t *testing.T) string {
	return cached(t, "debian-vm", "systemd-sysv,dbus,udev,initramfs-tools,linux-image-cloud-amd64")
}

// bootVM starts a virtual machine from a disk, whose script must end well.
func bootVM(t *testing.T, root, disk, want string) {
	t.Helper()
	console := filepath.Join(t.TempDir(), "console")
	vm := exec.Command("qemu-system-x86_64", "-machine", "q35", "-accel", "tcg", "-cpu", "max", "-m", "1024", "-nographic", "-nic", "none", "-no-reboot",
		"-serial", "file:"+console, "-monitor", "none", "-kernel", root+"/vmlinuz", "-initrd", root+"/initrd.img",
		"-append", "root=/dev/vda rw console=ttyS0 panic=-1 systemd.hostname=vm", "-drive", "file="+disk+",format=raw,if=virtio,cache=unsafe")
	late := time.AfterFunc(30*time.Minute, func() { vm.Process.Kill() })
	out, err := vm.CombinedOutput()
	late.Stop()
	log := onDisk(t, disk, "/shared/log")
	t.Logf("%s", log)
	if !strings.HasSuffix(log, "\n"+want+"\n") {
		said, _ := os.ReadFile(console)
		t.Fatalf("%v %s\n%s", err, out, said[max(0, len(said)-4000):])
	}
}

// onDisk is a file on a disk that no machine has.
func onDisk(t *testing.T, disk, name string) string {
	t.Helper()
	must(t, exec.Command("sh", "-c", `e2fsck -fp "$0" >/dev/null || [ $? = 1 ]`, disk)) // its journal
	out, err := exec.Command("debugfs", "-R", "cat "+name, disk).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
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
	if err := os.WriteFile(filepath.Join(shared, "inside.service"), []byte(insideUnit), 0o644); err != nil {
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
