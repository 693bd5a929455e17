package linux

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster.internal/resource"
)

func TestNotSystemd(t *testing.T) {
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		t.Skip("this machine was started by systemd")
	}
	if _, err := newServices().read("ssh.service"); err == nil || !strings.Contains(err.Error(), "not started by systemd") {
		t.Error(err)
	}
}

// systemdRoot is a Debian with systemd in a directory, made once.
func systemdRoot(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("MUSTER_LAB_CACHE")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(dir, "muster")
	}
	root := filepath.Join(cache, "debian-systemd")
	if _, err := os.Stat(root); err == nil {
		return root
	}
	need(t, "mmdebstrap")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("mmdebstrap", "--variant=minbase", "--include=systemd-sysv,dbus", "bookworm", root+".new").CombinedOutput()
	if err != nil {
		t.Fatalf("mmdebstrap: %v: %s", err, out)
	}
	if err := os.Rename(root+".new", root); err != nil {
		t.Fatal(err)
	}
	return root
}

// This test starts a Debian with systemd in a container, and itself in there.
func TestServicesForReal(t *testing.T) {
	if os.Getenv("MUSTER_LAB") == "" {
		t.Skip("starts a system in a container: set MUSTER_LAB=1 to run it")
	}
	if os.Getuid() != 0 {
		t.Skip("starts a system in a container, which needs root")
	}
	need(t, "systemd-nspawn")
	root, shared := systemdRoot(t), t.TempDir()
	unit := "[Service]\nType=oneshot\nEnvironment=MUSTER_INSIDE=1\nStandardOutput=file:/shared/log\nStandardError=inherit\n" +
		"ExecStart=/shared/test -test.run ^TestServicesInside$ -test.v\n" +
		"ExecStopPost=/bin/sh -c 'echo $EXIT_STATUS >/shared/status; systemctl --no-block poweroff'\n"
	if err := os.WriteFile(filepath.Join(shared, "inside.service"), []byte(unit), 0o644); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", program, filepath.Join(shared, "test")).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	boot := exec.Command("systemd-nspawn", "-q", "-b", "-D", root, "--volatile=overlay", "--register=no", "--keep-unit", "--private-network", "--console=read-only",
		fmt.Sprintf("--machine=muster-%d", os.Getpid()), "--bind="+shared+":/shared", "--bind-ro="+shared+"/inside.service:/etc/systemd/system/inside.service", "systemd.wants=inside.service")
	said := &bytes.Buffer{}
	boot.Stdout, boot.Stderr = said, said
	boot.WaitDelay = 10 * time.Second
	late := time.AfterFunc(5*time.Minute, func() { boot.Process.Kill() })
	err = boot.Run()
	late.Stop()
	log, _ := os.ReadFile(filepath.Join(shared, "log"))
	status, e := os.ReadFile(filepath.Join(shared, "status"))
	t.Logf("%s", log)
	if strings.TrimSpace(string(status)) != "0" || !strings.Contains(string(log), "--- PASS: TestServicesInside") {
		t.Fatalf("%v, %v, status %q\n%s", err, e, status, said)
	}
}

const (
	trap = "/bin/sh -c 'trap \"exit 0\" TERM; while :; do sleep 0.1; done'"
	wish = "\n[Install]\nWantedBy=multi-user.target\n"
)

func TestServicesInside(t *testing.T) {
	if os.Getenv("MUSTER_INSIDE") == "" {
		t.Skip("runs inside the container that TestServicesForReal starts")
	}
	s := newServices()
	defer s.close()
	t.Run("life", func(t *testing.T) { serviceLife(t, s) })
	t.Run("changed unit file", func(t *testing.T) { changedUnit(t, s) })
	t.Run("refused", func(t *testing.T) { refusedUnits(t, s) })
}

func writeUnit(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile("/etc/systemd/system/"+name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func serviceIs(t *testing.T, s *services, name, enabled, running string) {
	t.Helper()
	is, err := s.read(name)
	if d := cmp.Diff(resource.State{resource.FieldEnabled: enabled, resource.FieldRunning: running}, is); d != "" || err != nil {
		t.Error(name, d, err)
	}
}

func declare(t *testing.T, s *services, name string, enabled, running bool) {
	t.Helper()
	if err := s.put(&resource.Service{Name: name, Enabled: &enabled, Running: &running}); err != nil {
		t.Error(err)
	}
	serviceIs(t, s, name, resource.YesNo(enabled), resource.YesNo(running))
}

func serviceLife(t *testing.T, s *services) {
	if is, err := s.read("a.service"); is != nil || err != nil {
		t.Errorf("there is no such unit: %v, %v", is, err)
	}
	writeUnit(t, "a.service", "[Service]\nExecStart="+trap+wish)
	serviceIs(t, s, "a.service", "no", "no")
	declare(t, s, "a.service", true, true)
	declare(t, s, "a.service", false, true)
	declare(t, s, "a.service", true, false)
	declare(t, s, "a.service", true, true)
	before := pidOf(t, s)
	if err := s.restart("a.service"); err != nil {
		t.Error(err)
	}
	if after := pidOf(t, s); after == before || after == 0 {
		t.Errorf("it was not restarted: %d", after)
	}
	if err := s.stop("a.service"); err != nil {
		t.Error(err)
	}
	serviceIs(t, s, "a.service", "no", "no")
	if err := s.restore("a.service", resource.State{resource.FieldEnabled: "yes", resource.FieldRunning: "yes"}); err != nil {
		t.Error(err)
	}
	serviceIs(t, s, "a.service", "yes", "yes")
	if err := s.stop("no-such.service"); err != nil {
		t.Error(err)
	}
}

func pidOf(t *testing.T, s *services) uint32 {
	t.Helper()
	p, err := s.bus.GetServicePropertyContext(t.Context(), "a.service", "MainPID")
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := p.Value.Value().(uint32)
	return pid
}

// systemd reads a unit's file again only when it is told to.
func changedUnit(t *testing.T, s *services) {
	writeUnit(t, "b.service", "[Service]\nEnvironment=WHICH=one\nExecStart=/bin/sh -c 'echo $WHICH >/run/which; exec sleep 1000'"+wish)
	declare(t, s, "b.service", true, true)
	writeUnit(t, "b.service", "[Service]\nEnvironment=WHICH=two\nExecStart=/bin/sh -c 'echo $WHICH >/run/which; exec sleep 1000'"+wish)
	if err := s.restart("b.service"); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile("/run/which"); string(b) != "two\n" {
		t.Errorf("it runs as its file was before: %s", b)
	}
	declare(t, s, "b.service", false, false)
	if err := os.Remove("/etc/systemd/system/b.service"); err != nil {
		t.Fatal(err)
	}
}

func refusedUnits(t *testing.T, s *services) {
	if err := os.Symlink("/dev/null", "/etc/systemd/system/masked.service"); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"exits.service": "[Service]\nExecStart=/bin/sh -c 'exit 3'" + wish, "notify.service": "[Service]\nType=notify\nTimeoutStartSec=1\nExecStart=" + trap + wish,
		"absent.service": "[Service]\nExecStart=/no/such/program" + wish, "once.service": "[Service]\nType=oneshot\nExecStart=/bin/true" + wish,
		"static.service": "[Service]\nExecStart=" + trap, "needs.service": "[Unit]\nRequires=exits-first.service\nAfter=exits-first.service\n[Service]\nExecStart=" + trap + wish,
		"exits-first.service": "[Service]\nType=oneshot\nExecStart=/bin/false", "bad.service": "[Service]\nType=nonsense" + wish,
		"killed.service":      "[Service]\nExecStart=/bin/sh -c 'kill -9 $$$$'" + wish,
		"passed-over.service": "[Unit]\nConditionPathExists=/\nConditionPathExists=!/etc\n[Service]\nExecStart=" + trap + wish,
	} {
		writeUnit(t, name, text)
	}
	for name, words := range map[string]string{
		"exits.service": "its program failed (exit status 3)", "notify.service": "it did not come up in its time", "absent.service": "exit status 203",
		"once.service": "declare \"running\": false", "static.service": "has no [Install] section", "needs.service": "a unit that it needs did not start",
		"masked.service": "systemctl unmask masked.service", "bad.service": "cannot use the unit file", "killed.service": "ended by a signal (signal 9)",
		"passed-over.service": "the start was passed over by systemd, because ConditionPathExists=!/etc does not hold", "nowhere.service": "this machine has no unit nowhere.service",
	} {
		err := s.put(&resource.Service{Name: name})
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", name, err)
		} else {
			t.Log(err)
		}
	}
	declare(t, s, "static.service", false, true)
	declare(t, s, "once.service", true, false)
}
