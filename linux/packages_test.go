package linux

import (
	"crypto/sha256"
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

func TestParseDpkg(t *testing.T) {
	got, err := parseDpkg(strings.NewReader(`Package: dpkg
Status: install ok installed
Architecture: amd64
Version: 1.21.22
Description: ` + strings.Repeat("a line that is longer than the reader's buffer ", 3000) + `Version: 8
 Version: 9

Package: held
Status: hold ok installed
Architecture: all
Version: 1:2~rc1-3

Package: leaving
Status: deinstall ok installed
Architecture: amd64
Version: 1

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: half
Status: install ok half-configured
Architecture: amd64
Version: 1

Package: both
Status: install ok installed
Architecture: amd64
Version: 1

Package: both
Status: install ok installed
Architecture: i386
Version: 2

Package: foreign
Status: install ok installed
Architecture: i386
Version: 3`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"dpkg": "1.21.22", "dpkg:amd64": "1.21.22", "held": "1:2~rc1-3", "held:all": "1:2~rc1-3", "leaving": "1", "leaving:amd64": "1",
		"both": "1", "both:amd64": "1", "both:i386": "2", "foreign:i386": "3"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestParseApk(t *testing.T) {
	got, err := parseApk(strings.NewReader("C:Q1=\nP:musl\nV:1.2.5-r9\nF:lib\nR:ld.so\n\nP:busybox\nV:1.37.0-r12\n"))
	if d := cmp.Diff(map[string]string{"musl": "1.2.5-r9", "busybox": "1.37.0-r12"}, got); d != "" || err != nil {
		t.Error(d, err)
	}
}

func FuzzParseDpkg(f *testing.F) {
	f.Add("Package: a\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseDpkg(strings.NewReader(text))
		if err != nil {
			t.Error(err)
		}
		if !strings.Contains(text, "ok installed") && len(all) > 0 {
			t.Errorf("nothing says that these are installed: %v", all)
		}
	})
}

// Debian's own tools work on a root directory that holds nothing else, and take
// packages from a directory.
func apt(t *testing.T) (*packages, string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("dpkg changes nothing unless it is root")
	}
	need(t, "apt-get", "dpkg-deb")
	root := t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/updates", "var/lib/dpkg/info", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/log/apt", "etc/apt/apt.conf.d", "etc/apt/preferences.d", "repo", "usr", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]string{
		"var/lib/dpkg/status":  "",
		"etc/apt/sources.list": "deb [trusted=yes] file:" + root + "/repo ./\n",
		"apt.conf": fmt.Sprintf("Dir %q;\nDir::State::status %q;\nDPkg::Options:: \"--root=%s\";\nDPkg::Options:: \"--force-script-chrootless\";\nDPkg::Options:: \"--log=/dev/null\";\nDPkg::Options:: \"--force-unsafe-io\";\nAPT::Sandbox::User \"root\";\nAPT::Architecture \"amd64\";\n"+
			"Dir::Bin::Methods \"/usr/lib/apt/methods\";\nDir::Bin::dpkg \"/usr/bin/dpkg\";\nDPkg::Path \"%s\";\n", root, root+"/var/lib/dpkg/status", root, Path),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := &packages{name: "apt", root: root, environment: []string{"APT_CONFIG=" + root + "/apt.conf", "DPKG_ROOT=" + root}}
	return p, root
}

// offer builds packages and lists them in the repository, and takes away those
// of before.
func offer(t *testing.T, root string, controls ...string) {
	t.Helper()
	index := &strings.Builder{}
	for i, control := range controls {
		tree := t.TempDir()
		control, script, _ := strings.Cut(control, "\n#!")
		control = "Maintainer: nobody <nobody@example.invalid>\nDescription: a test\nArchitecture: all\n" + control + "\n"
		os.MkdirAll(filepath.Join(tree, "DEBIAN"), 0o755)
		os.WriteFile(filepath.Join(tree, "DEBIAN", "control"), []byte(control), 0o644)
		if script != "" {
			os.WriteFile(filepath.Join(tree, "DEBIAN", "postinst"), []byte("#!"+script), 0o755)
		}
		os.MkdirAll(filepath.Join(tree, "etc"), 0o755)
		os.WriteFile(filepath.Join(tree, "etc", fmt.Sprintf("%d.conf", i)), []byte(control), 0o644)
		os.WriteFile(filepath.Join(tree, "DEBIAN", "conffiles"), fmt.Appendf(nil, "/etc/%d.conf\n", i), 0o644)
		deb := filepath.Join(root, "repo", fmt.Sprintf("%d-%x.deb", i, sha256.Sum256([]byte(control)))[:20]+".deb")
		if out, err := exec.Command("dpkg-deb", "-Znone", "--root-owner-group", "-b", tree, deb).CombinedOutput(); err != nil {
			t.Fatalf("%s", out)
		}
		b, err := os.ReadFile(deb)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(index, "%sFilename: ./%s\nSize: %d\nSHA256: %x\n\n", control, filepath.Base(deb), len(b), sha256.Sum256(b))
	}
	if err := os.WriteFile(filepath.Join(root, "repo", "Packages"), []byte(index.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func install(t *testing.T, p *packages, name, version string) {
	t.Helper()
	if err := p.install(&resource.Package{Name: name, Version: version}); err != nil {
		t.Fatal(err)
	}
	is, err := p.read(name)
	if err != nil || is[resource.FieldType] != "installed" || version != "" && is[resource.FieldVersion] != version {
		t.Errorf("%s: %v, %v", name, is, err)
	}
}

func refused(t *testing.T, p *packages, name, version string, words ...string) {
	t.Helper()
	err := p.install(&resource.Package{Name: name, Version: version})
	if err == nil {
		t.Fatalf("%s %s was installed", name, version)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not in: %v", w, err)
		}
	}
}

func TestApt(t *testing.T) {
	p, root := apt(t)
	offer(t, root, "Package: tool\nVersion: 1.0", "Package: tool\nVersion: 2.0")
	if is, err := p.read("tool"); is != nil || err != nil {
		t.Fatal(is, err)
	}
	install(t, p, "tool", "") // its lists are empty until now
	if is, _ := p.read("tool:all"); is[resource.FieldVersion] != "2.0" {
		t.Error(is)
	}
	install(t, p, "tool", "1.0")
	// A file that a person changed stays, and nobody is asked.
	conf := filepath.Join(root, "etc", "0.conf")
	if err := os.WriteFile(conf, []byte("mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	offer(t, root, "Package: tool\nVersion: 3.0", "Package: rival\nVersion: 1\nConflicts: tool", "Package: real\nVersion: 1\nProvides: virtual",
		"Package: asks\nVersion: 1\n#!/bin/sh\nread answer && exit 7\n[ \"$DEBIAN_FRONTEND\" = noninteractive ]\n", "Package: fails\nVersion: 1\n#!/bin/sh\nexit 9\n")
	p.refreshed = false
	install(t, p, "tool", "3.0")
	if b, _ := os.ReadFile(conf); string(b) != "mine\n" {
		t.Errorf("%s", b)
	}
	install(t, p, "asks", "")
	refused(t, p, "rival", "", "remove")
	refused(t, p, "virtual", "", "no package is called virtual now")
	refused(t, p, "nowhere", "", "Unable to locate package nowhere")
	refused(t, p, "fails", "", "fails")
	if is, err := p.read("fails"); is != nil || err != nil {
		t.Errorf("it is not installed: %v, %v", is, err)
	}
}

func TestAptHeldPackage(t *testing.T) {
	p, root := apt(t)
	offer(t, root, "Package: tool\nVersion: 1.0", "Package: tool\nVersion: 2.0")
	install(t, p, "tool", "1.0")
	hold := exec.Command("dpkg", "--root="+root, "--set-selections")
	hold.Stdin = strings.NewReader("tool hold\n")
	if out, err := hold.CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	p.installed = nil
	if is, err := p.read("tool"); err != nil || is[resource.FieldVersion] != "1.0" {
		t.Errorf("what is held is installed: %v, %v", is, err)
	}
	refused(t, p, "tool", "2.0", "Held packages")
}

// A dpkg that was killed leaves what it was about to note.
func TestAptCutShort(t *testing.T) {
	p, root := apt(t)
	offer(t, root, "Package: tool\nVersion: 1.0", "Package: other\nVersion: 1.0")
	install(t, p, "tool", "")
	status, err := os.ReadFile(filepath.Join(root, "var/lib/dpkg/status"))
	if err != nil {
		t.Fatal(err)
	}
	half := strings.Replace(string(status), "ok installed", "ok unpacked", 1)
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/updates/0000"), []byte(half), 0o644); err != nil {
		t.Fatal(err)
	}
	install(t, p, "other", "")
	if is, _ := p.read("tool"); is == nil {
		t.Error("what was cut short was not ended")
	}
}

func TestAptLocked(t *testing.T) {
	p, root := apt(t)
	offer(t, root, "Package: tool\nVersion: 1.0")
	install(t, p, "tool", "")
	// Another process must hold it: a process never waits for its own locks.
	need(t, "python3")
	lock := filepath.Join(root, "var/lib/dpkg/lock-frontend")
	holder := exec.Command("python3", "-c", "import fcntl,sys;f=open(sys.argv[1],'w');fcntl.lockf(f,fcntl.LOCK_EX);print('held',flush=True);sys.stdin.read()", lock)
	in, _ := holder.StdinPipe()
	out, _ := holder.StdoutPipe()
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	out.Read(make([]byte, 5))
	saved := managers["apt"]
	quick := *saved
	quick.install = func(name, version string) []string {
		return append(saved.install(name, version), "-o", "DPkg::Lock::Timeout=0")
	}
	managers["apt"] = &quick
	defer func() { managers["apt"] = saved }()
	refused(t, p, "tool", "", fmt.Sprintf("locked by process %d (python3)", holder.Process.Pid))
	go func() {
		time.Sleep(lockRest / 2)
		in.Close()
	}()
	p.wait = time.Minute
	install(t, p, "tool", "")
	holder.Wait()
}

func TestLockHolder(t *testing.T) {
	root := t.TempDir()
	if got := lockHolder(root, []string{"/no"}); !strings.Contains(got, "nobody") {
		t.Error(got)
	}
	os.WriteFile(filepath.Join(root, "pid"), fmt.Appendf(nil, "%d\n", os.Getpid()), 0o600)
	if got := lockHolder(root, []string{"/no", "/pid"}); !strings.HasPrefix(got, fmt.Sprintf("process %d (", os.Getpid())) {
		t.Error(got)
	}
	os.WriteFile(filepath.Join(root, "stale"), nil, 0o600)
	if got := lockHolder(root, []string{"/stale"}); !strings.Contains(got, "see what "+root+"/stale is") {
		t.Error(got)
	}
}
