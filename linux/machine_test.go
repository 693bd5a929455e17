package linux

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"
)

func text(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }

func TestFacts(t *testing.T) {
	sys := fstest.MapFS{
		"class/dmi/id/sys_vendor": text("Dell Inc.\n"), "class/dmi/id/product_name": text("PowerEdge R710\n"),
		"class/dmi/id/product_serial": text("4QENZE2\n"), "class/dmi/id/product_uuid": text("44454C4C-5100-1045-804E-B4C04F5A4532\n"),
		"firmware/efi/x": text(""),
	}
	proc := fstest.MapFS{"meminfo": text("MemTotal:       49139200 kB\nMemFree: 1 kB\n")}
	f := factsFrom(sys, proc, fstest.MapFS{})
	if f.UUID != "44454c4c-5100-1045-804e-b4c04f5a4532" || f.Serial != "4QENZE2" || f.Manufacturer != "Dell Inc." || f.Product != "PowerEdge R710" || f.MemoryMiB != 47987 || f.Firmware != "uefi" || f.CPUs < 1 {
		t.Errorf("%+v", f)
	}
	// Firmware that was never programmed: the system's own id stands in.
	f = factsFrom(fstest.MapFS{
		"class/dmi/id/product_uuid": text("00000000-0000-0000-0000-000000000000\n"), "class/dmi/id/product_serial": text("To Be Filled By O.E.M.\n"),
	}, proc, fstest.MapFS{"etc/machine-id": text("0123456789abcdef0123456789abcdef\n")})
	if f.UUID != "01234567-89ab-cdef-0123-456789abcdef" || f.Serial != "" || f.Firmware != "bios" {
		t.Errorf("%+v", f)
	}
}

func TestProfile(t *testing.T) {
	root := fstest.MapFS{
		"etc/os-release": text("NAME=\"Debian\"\nID=debian\nVERSION_ID=\"12\"\n"), "run/systemd/system/x": text(""),
		"usr/bin/apt-get": text(""), "usr/bin/podman": text(""), "tmp/.X11-unix/X0": text(""),
	}
	p := profileFrom(fstest.MapFS{"module/zfs/x": text("")}, fstest.MapFS{"cpuinfo": text("flags : fpu hypervisor\n")}, root)
	p.Arch = ""
	golden(t, "testdata/profile-debian.json", p)
	p = profileFrom(fstest.MapFS{}, fstest.MapFS{"1/comm": text("init\n")}, fstest.MapFS{"etc/os-release": text("ID=muster\n"), "sbin/zfs-fuse": text("")})
	p.Arch = ""
	golden(t, "testdata/profile-initrd.json", p)
}

func TestModules(t *testing.T) {
	list := filepath.Join(t.TempDir(), "modules.list")
	if failed, err := LoadModules(list); err != nil || len(failed) > 0 {
		t.Errorf("an image without modules: %v, %v", failed, err)
	}
	os.WriteFile(list, []byte("# none\n\n/no/such.ko\n/no/other.ko debug=1\n"), 0o600)
	if failed, err := LoadModules(list); err != nil || len(failed) != 2 || !strings.Contains(failed[0], "/no/such.ko") {
		t.Errorf("%v, %v", failed, err)
	}
	ko := filepath.Join(t.TempDir(), "hv-netvsc.ko")
	os.WriteFile(ko, []byte("\x7fELF\x00license=GPL\x00depends=netdev,hv_vmbus\x00name=hv_netvsc\x00"), 0o600)
	if !dependsOn(ko, map[string]bool{"hv_vmbus": true}) || dependsOn(ko, map[string]bool{"spl": true, "": true}) || moduleName(ko) != "hv_netvsc" {
		t.Error("a module's list of what it needs was not read")
	}
}

func TestOrphansAreBuried(t *testing.T) {
	start := func(script string) int {
		pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	orphan := start("exit 7")
	if got, err := bury(start("exit 3")); err != nil || ending(got) != "exit status 3" {
		t.Errorf("%q, %v", ending(got), err)
	}
	syscall.Wait4(orphan, nil, 0, nil) // it may have ended later
	if got, err := bury(start("kill -9 $$")); err != nil || ending(got) != "killed" {
		t.Errorf("%q, %v", ending(got), err)
	}
}

// inside runs a test again in namespaces of its own, and tells whether this is
// that run.
func inside(t *testing.T, flags uintptr, before func(), leave func()) bool {
	const mark = "MUSTER_TEST_NAMESPACE"
	if os.Getenv(mark) == t.Name() {
		before()
		return true
	}
	if os.Getuid() != 0 {
		t.Skip("it takes root to make a namespace")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	out, err := cmd.CombinedOutput()
	leave()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

func mount(t *testing.T, kind, on string, flags uintptr) {
	t.Helper()
	if err := unix.Mount("none", on, kind, flags, ""); err != nil {
		t.Fatalf("mounting %s on %s: %v", kind, on, err)
	}
}

// private makes what is mounted from here on invisible to everybody else.
func private(t *testing.T) { mount(t, "", "/", unix.MS_REC|unix.MS_PRIVATE) }

func TestNetworkUp(t *testing.T) {
	tool(t, "ip")
	if !inside(t, syscall.CLONE_NEWNS|syscall.CLONE_NEWNET, func() { private(t); mount(t, "sysfs", "/sys", 0) }, func() {}) {
		return
	}
	do(t, "ip", "link", "add", "lab0", "address", "52:54:00:00:00:01", "type", "veth", "peer", "name", "lab1")
	do(t, "ip", "link", "set", "lab1", "up")
	m := New(slog.New(slog.DiscardHandler))
	addr, gw := netip.MustParsePrefix("10.77.0.101/24"), netip.MustParseAddr("10.77.0.1")
	for range 2 { // a host that was started again finds the network as it left it
		nic, err := m.NetworkUp(t.Context(), "52:54:00:00:00:01", addr, gw)
		if err != nil || nic != "lab0" {
			t.Fatalf("%q, %v", nic, err)
		}
	}
	for _, c := range [][2]string{{"addr", "inet 10.77.0.101/24"}, {"route", "default via 10.77.0.1 dev lab0"}, {"link", "lo: <LOOPBACK,UP"}} {
		out, err := exec.Command("ip", "-4", "-o", c[0]).CombinedOutput()
		if c[0] == "link" {
			out, err = exec.Command("ip", "-o", "link").CombinedOutput()
		}
		if err != nil || !strings.Contains(string(out), c[1]) {
			t.Errorf("ip %s: %v, no %q in\n%s", c[0], err, c[1], out)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.NetworkUp(ctx, "52:54:00:00:00:99", addr, gw); err == nil || !strings.Contains(err.Error(), "lab0 (52:54:00:00:00:01)") {
		t.Errorf("a NIC that is not there: %v", err)
	}
}
