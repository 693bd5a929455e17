package linux

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The managers of other systems, of which Debian has the real programs, work in
// a mount namespace in which they find nothing of this machine's.
func TestOtherManagersForReal(t *testing.T) {
	if os.Getenv("MUSTER_LAB") == "" {
		t.Skip("builds packages for dnf and pacman: set MUSTER_LAB=1 to run it")
	}
	if os.Getuid() != 0 {
		t.Skip("mounts an empty directory over what package managers keep, which needs root")
	}
	need(t, "dnf", "rpmbuild", "createrepo_c", "pacman")
	const mounts = `mount --make-rprivate / && for d in /var/lib/rpm /root/.rpmdb /var/lib/dnf /var/cache/dnf /etc/yum.repos.d /var/lib/pacman /var/cache/pacman /etc/pacman.d /opt; do
mkdir -p $d && mount -t tmpfs tmpfs $d || exit 1; done; exec "$@"`
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	inside := exec.Command("sh", "-c", mounts, "sh", program, "-test.run", "^TestOtherManagersInside$", "-test.v")
	inside.Env = append(os.Environ(), "MUSTER_INSIDE=1")
	inside.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	out, err := inside.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestOtherManagersInside") {
		t.Errorf("%v", err)
	}
	t.Logf("%s", out)
}

func TestOtherManagersInside(t *testing.T) {
	if os.Getenv("MUSTER_INSIDE") == "" {
		t.Skip("runs inside the namespace that TestOtherManagersForReal makes")
	}
	for name, offer := range map[string]func(*testing.T, string){"dnf": offerRPM, "pacman": offerPacman} {
		t.Run(name, func(t *testing.T) {
			p := &packages{name: name, root: "/", wait: time.Second}
			offer(t, "1.0")
			if is, err := p.read("muster-test"); is != nil || err != nil {
				t.Fatal(is, err)
			}
			install(t, p, "muster-test", "")
			install(t, p, "muster-test", "1.0-1")
			offer(t, "2.0")
			p.refreshed = false
			install(t, p, "muster-test", "2.0-1")
			if name == "dnf" {
				install(t, p, "muster-test", "1.0-1") // its repository still has it
			}
			refused(t, p, "no-such", "", "no-such")
			refused(t, p, "muster-test", "3.0-1", "3.0-1")
		})
	}
	t.Run("pacman locked", func(t *testing.T) {
		if err := os.WriteFile("/var/lib/pacman/db.lck", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		p := &packages{name: "pacman", root: "/"}
		refused(t, p, "muster-test", "", "locked by nobody who can be found", "/var/lib/pacman/db.lck")
	})
}

func sh(t *testing.T, script string) {
	t.Helper()
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func offerRPM(t *testing.T, version string) {
	t.Helper()
	os.MkdirAll("/opt/repo", 0o755)
	os.WriteFile("/opt/spec", fmt.Appendf(nil, "Name: muster-test\nVersion: %s\nRelease: 1\nSummary: a test\nLicense: none\nBuildArch: noarch\n%%description\na test\n%%files\n", version), 0o644)
	os.WriteFile("/etc/yum.repos.d/test.repo", []byte("[test]\nname=test\nbaseurl=file:///opt/repo\ngpgcheck=0\nmetadata_expire=0\n"), 0o644)
	sh(t, "rpmbuild -bb --define '_topdir /opt/build' --define '_rpmdir /opt/repo' /opt/spec && createrepo_c -q /opt/repo")
}

// offered counts what was offered to pacman.
var offered int

func offerPacman(t *testing.T, version string) {
	t.Helper()
	info := fmt.Sprintf("pkgname = muster-test\npkgbase = muster-test\npkgver = %s-1\npkgdesc = a test\nurl = none\nbuilddate = 1\npackager = nobody\nsize = 0\narch = any\nlicense = none\n", version)
	file := fmt.Sprintf("muster-test-%s-1-any.pkg.tar.gz", version)
	archive(t, "/opt/arch/"+file, ".PKGINFO", info)
	desc := fmt.Sprintf("%%FILENAME%%\n%s\n\n%%NAME%%\nmuster-test\n\n%%BASE%%\nmuster-test\n\n%%VERSION%%\n%s-1\n\n%%ARCH%%\nany\n\n", file, version)
	archive(t, "/opt/arch/test.db", "muster-test-"+version+"-1/desc", desc)
	// pacman fetches a list again only when its time, in seconds, is later.
	offered++
	if err := os.Chtimes("/opt/arch/test.db", time.Time{}, time.Now().Add(time.Duration(offered)*time.Minute)); err != nil {
		t.Fatal(err)
	}
	conf := "[options]\nArchitecture = auto\nSigLevel = Never\nCheckSpace\n[test]\nServer = file:///opt/arch\n"
	os.WriteFile("/opt/pacman.conf", []byte(conf), 0o644)
	sh(t, "touch /etc/pacman.conf && { mountpoint -q /etc/pacman.conf || mount --bind /opt/pacman.conf /etc/pacman.conf; }; mkdir -p /var/lib/pacman/local /var/lib/pacman/sync /var/cache/pacman/pkg")
}

// archive is a compressed tar file with one file in it.
func archive(t *testing.T, file, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), ModTime: time.Now()})
	w.Write([]byte(text))
	for _, c := range []func() error{w.Close, z.Close, f.Close} {
		if err := c(); err != nil {
			t.Fatal(err)
		}
	}
}
