package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// needReal skips what builds and installs packages where that is not wanted.
func needReal(t *testing.T) {
	t.Helper()
	if os.Getenv("MUSTER_LAB") == "" {
		t.Skip("builds and installs packages: set MUSTER_LAB=1 to run it")
	}
	if os.Getuid() != 0 {
		t.Skip("installs packages, which needs root")
	}
}

// packaged builds the host as two versions and makes its packages of each, in
// one directory.
func packaged(t *testing.T) string {
	t.Helper()
	needReal(t)
	dist := t.TempDir()
	for _, version := range []string{"0.0.1", "0.0.2"} {
		pack(t, dist, version, ".", "muster.internal.Build="+version)
	}
	return dist
}

// pack makes the packages of one version of a program that is muster-host.
func pack(t *testing.T, dist, version, program, value string) {
	t.Helper()
	bin := t.TempDir()
	must(t, exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X "+value, "-o", bin+"/muster-host", program), "CGO_ENABLED=0")
	must(t, exec.Command("../../scripts/package", version, "muster-host"), "BIN="+bin, "DIST="+dist)
}

func must(t *testing.T, c *exec.Cmd, env ...string) string {
	t.Helper()
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", c.Args, err, out)
	}
	return string(out)
}

// The deb in a Debian that systemd has started: testdata/installed.sh says what
// is done and what must be so.
func TestInstalledForReal(t *testing.T) {
	inDebian(t, packaged(t), "testdata/installed.sh")
}

// Versions of the host, good ones and bad ones, by a declaration. It takes minutes,
// and runs by name: scripts/slow UpdatedByPackage.
func TestUpdatedByPackage(t *testing.T) {
	needReal(t)
	shared := t.TempDir()
	for _, version := range []string{"0.0.1", "0.0.2", "0.0.5"} {
		pack(t, shared, version, ".", "muster.internal.Build="+version)
	}
	for version, how := range map[string]string{"0.0.3": "dies", "0.0.4": "hangs"} {
		pack(t, shared, version, "./testdata/broken", "main.how="+how)
	}
	must(t, exec.Command("go", "build", "-o", shared+"/bin/", "../musterd", "../muster"), "CGO_ENABLED=0")
	scan := exec.Command("dpkg-scanpackages", "--multiversion", ".")
	scan.Dir = shared
	list, err := scan.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(shared, "Packages"), list, 0o644); err != nil {
		t.Fatal(err)
	}
	inDebian(t, shared, "testdata/updated.sh")
}

// inDebian runs a script in a Debian that systemd has started, with a directory
// at /shared.
func inDebian(t *testing.T, shared, file string) {
	t.Helper()
	script, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(shared, "inside.sh"), script, 0o644); err != nil {
		t.Fatal(err)
	}
	bootDebian(t, debian(t), shared, "ALL WAS SO", "--volatile=overlay")
}

// debian is a Debian with systemd in a directory, made once; the tests of
// package linux use the same.
func debian(t *testing.T) string { return cached(t, "debian-systemd", "systemd-sysv,dbus") }

// cached is a Debian with more packages in a directory, made once.
func cached(t *testing.T, name, packages string) string {
	t.Helper()
	cache := os.Getenv("MUSTER_LAB_CACHE")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(dir, "muster")
	}
	root := filepath.Join(cache, name)
	if _, err := os.Stat(root); err == nil {
		return root
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	must(t, exec.Command("mmdebstrap", "--variant=minbase", "--include="+packages, "bookworm", root+".new"))
	if err := os.Rename(root+".new", root); err != nil {
		t.Fatal(err)
	}
	return root
}

// The rpm and the Arch package by their own tools, and the tarball by tar, each
// into a root that holds nothing else, without a network.
func TestUnpackedForReal(t *testing.T) {
	dist := packaged(t)
	for name, unpack := range map[string]func(root string) []string{
		"rpm": func(root string) []string {
			return []string{"rpm", "--root", root, "--install", "--nodeps", "--noscripts", "--ignoreos", dist + "/muster-host-0.0.1-1.x86_64.rpm"}
		},
		"arch": func(root string) []string {
			return []string{"pacman", "--root", root, "--cachedir", t.TempDir(), "--noconfirm", "--noscriptlet", "--upgrade", dist + "/muster-host-0.0.1-1-x86_64.pkg.tar.zst"}
		},
		"tarball": func(root string) []string {
			return []string{"tar", "-C", root, "-xzf", dist + "/muster-host-0.0.1-linux-amd64.tar.gz"}
		},
	} {
		root, program := t.TempDir(), "/usr/bin/muster-host"
		if err := os.MkdirAll(filepath.Join(root, "var/lib/pacman"), 0o755); err != nil {
			t.Fatal(err)
		}
		command := unpack(root)
		must(t, exec.Command(command[0], command[1:]...))
		if name == "tarball" {
			program = "/muster-host-0.0.1/muster-host"
		}
		inside := func(in string, args ...string) string {
			c := exec.Command("unshare", append([]string{"--net", "chroot", root, program}, args...)...)
			c.Stdin = strings.NewReader(in)
			return must(t, c)
		}
		if out := inside("", "version"); !strings.HasPrefix(out, "muster-host 0.0.1 ") {
			t.Errorf("%s: %s", name, out)
		}
		if out := inside("", "profile"); !strings.Contains(out, "architecture") {
			t.Errorf("%s: %s", name, out)
		}
		inside(`{"resources":[{"file":{"path":"/hello","content":"hello\n"}}]}`, "apply", "-")
		if b, err := os.ReadFile(filepath.Join(root, "hello")); string(b) != "hello\n" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

// The same version of the same commit is the same, to the byte.
func TestReproducibleForReal(t *testing.T) {
	one, two := packaged(t), packaged(t)
	files, err := filepath.Glob(one + "/muster-host*")
	if err != nil || len(files) != 8 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		a, _ := os.ReadFile(f)
		b, err := os.ReadFile(filepath.Join(two, filepath.Base(f)))
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: %v, or not the same bytes", f, err)
		}
	}
}
