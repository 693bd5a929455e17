package image

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestCPIOIsWhatOthersRead(t *testing.T) {
	if _, err := exec.LookPath("cpio"); err != nil {
		t.Skip("needs GNU cpio (Debian package cpio)")
	}
	src := filepath.Join(t.TempDir(), "src")
	if err := os.WriteFile(src, []byte("from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	in := tree{}
	in.text("etc/deep/er/file", "hello\n")
	in.copy("bin/tool", src, 0o755)
	in.link("bin/sh", "tool")
	in.charDev("dev/null", 0o666, 1, 3)
	var first, second bytes.Buffer
	for _, b := range []*bytes.Buffer{&first, &second} {
		if err := in.writeCPIO(b); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same tree made different bytes")
	}
	c := exec.Command("cpio", "-itv", "--quiet", "--numeric-uid-gid")
	c.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	c.Stdin = &first
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got []string
	for line := range strings.Lines(string(out)) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"drwxr-xr-x 2 0 0 0 Jan 1 1970 bin",
		"lrwxrwxrwx 1 0 0 4 Jan 1 1970 bin/sh -> tool",
		"-rwxr-xr-x 1 0 0 11 Jan 1 1970 bin/tool",
		"drwxr-xr-x 2 0 0 0 Jan 1 1970 dev",
		"crw-rw-rw- 1 0 0 1, 3 Jan 1 1970 dev/null",
		"drwxr-xr-x 2 0 0 0 Jan 1 1970 etc",
		"drwxr-xr-x 2 0 0 0 Jan 1 1970 etc/deep",
		"drwxr-xr-x 2 0 0 0 Jan 1 1970 etc/deep/er",
		"-rw-r--r-- 1 0 0 6 Jan 1 1970 etc/deep/er/file",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

func TestCPIORefusesPathsThatLeadOut(t *testing.T) {
	for _, n := range []string{"../x", "/x", "a//b", "a/../b"} {
		in := tree{}
		in.text(n, "")
		if err := in.writeCPIO(&bytes.Buffer{}); err == nil {
			t.Errorf("%q: accepted", n)
		}
	}
}

// writeModule makes the smallest ELF object that has a .modinfo section.
func writeModule(t *testing.T, file string, info ...string) {
	t.Helper()
	names := "\x00.modinfo\x00.shstrtab\x00"
	body := strings.Join(info, "\x00") + "\x00"
	var b bytes.Buffer
	put := func(v any) {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	h := elf.Header64{Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: 1, Shoff: 64, Ehsize: 64, Shentsize: 64, Shnum: 3, Shstrndx: 2}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	put(h)
	data := uint64(64 + 3*64)
	put(elf.Section64{})
	put(elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: data, Size: uint64(len(body))})
	put(elf.Section64{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: data + uint64(len(body)), Size: uint64(len(names))})
	b.WriteString(body + names)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestModuleOrder(t *testing.T) {
	dir := t.TempDir()
	k := filepath.Join(dir, "kernel")
	writeModule(t, filepath.Join(k, "fs/btrfs/btrfs.ko"), "depends=raid6_pq,xor", "softdep=pre: crc32c", "softdep=post: later pre: blake2b-256")
	writeModule(t, filepath.Join(k, "lib/raid6/raid6_pq.ko"), "depends=")
	writeModule(t, filepath.Join(k, "crypto/xor.ko"))
	writeModule(t, filepath.Join(k, "crypto/crc32c_generic.ko"), "alias=crypto-crc32c", "alias=crc32c")
	writeModule(t, filepath.Join(k, "crypto/blake2b_generic.ko"), "alias=blake2b-256")
	writeModule(t, filepath.Join(k, "later.ko"))
	writeModule(t, filepath.Join(k, "net/virtio-net.ko"), "depends=virtio,failover")
	writeModule(t, filepath.Join(k, "net/failover.ko"))
	writeModule(t, filepath.Join(k, "bad/orphan.ko"), "depends=gone")
	writeModule(t, filepath.Join(k, "bad/a.ko"), "depends=b")
	writeModule(t, filepath.Join(k, "bad/b.ko"), "depends=a")
	if err := os.WriteFile(filepath.Join(dir, "modules.builtin"), []byte("kernel/drivers/virtio/virtio.ko\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := readModules(dir)
	if err != nil {
		t.Fatal(err)
	}
	files, absent, err := m.order([]string{"virtio_net", "btrfs", "virtio", "mlx5_core"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, moduleName(f))
	}
	if want := []string{"failover", "virtio_net", "crc32c_generic", "blake2b_generic", "raid6_pq", "xor", "btrfs"}; !slices.Equal(names, want) {
		t.Error(names)
	}
	if !slices.Equal(absent, []string{"mlx5_core"}) {
		t.Error(absent)
	}
	for name, says := range map[string]string{"orphan": "orphan needs gone", "a": "circle: a b a"} {
		if _, _, err := m.order([]string{name}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLibrariesOfAProgram(t *testing.T) {
	const prog = "bin/bash"
	if f, err := elf.Open("/" + prog); err != nil || runtime.GOARCH != "amd64" {
		t.Skip("needs a dynamic /bin/bash for amd64")
	} else {
		f.Close()
	}
	in := tree{}
	if err := in.addProgram("/", prog, prog, "amd64"); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{prog, "lib/x86_64-linux-gnu/libc.so.6", "lib64/ld-linux-x86-64.so.2"} {
		if _, ok := in[n]; !ok {
			t.Errorf("%s is missing: %v", n, in)
		}
	}
	if err := (tree{}).addProgram("/", prog, prog, "arm64"); err == nil {
		t.Error("a program of another architecture was taken")
	}
	if err := checkStatic("/"+prog, "amd64"); err == nil || !strings.Contains(err.Error(), "not a static program") {
		t.Error(err)
	}
}

func TestParseDepends(t *testing.T) {
	got := parseDepends("Package: zfs-fuse\nDepends: fuse | fuse3, lsb-base (>= 3.0-6), libc6:any (>= 2.34)\nPre-Depends: dpkg\nRecommends: x\n")
	if want := []string{"fuse", "lsb-base", "libc6", "dpkg"}; !slices.Equal(got, want) {
		t.Error(got)
	}
}

func TestParseURIs(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	got, err := parseURIs("Reading…\n'http://x/b_1%3a1%2bb1_amd64.deb' b_1%3a1+b1_amd64.deb 928188 SHA256:"+sum+"\n", "/c")
	if want := []deb{{"b", "1:1+b1", "/c/b_1%3a1+b1_amd64.deb", sum}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Error(got, err)
	}
	if _, err := parseURIs("'http://x/' ../../etc_x_y 1 SHA256:"+sum, "/c"); err == nil {
		t.Error("a file name that leads out was taken")
	}
}

// A builder that cannot get its packages says what apt said, and leaves nothing
// that looks like an image.
func TestBuildWithoutAPackage(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\necho 'W: noise' >&2\necho 'E: Temporary failure resolving deb.example.org' >&2\nexit 100\n"
	for _, n := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if err := os.WriteFile(filepath.Join(bin, n), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	host := staticHost(t)
	t.Setenv("PATH", bin)
	out := filepath.Join(t.TempDir(), "out")
	_, err := Build(t.Context(), Options{Host: host, Cache: t.TempDir(), Out: out})
	if err == nil || !strings.Contains(err.Error(), "resolving deb.example.org") {
		t.Error(err)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Error("something was made:", err)
	}
	if _, err := Build(t.Context(), Options{Host: host, Root: true, Cache: t.TempDir(), Out: out}); err == nil || !strings.Contains(err.Error(), "install the package mmdebstrap") {
		t.Error(err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Build(t.Context(), Options{Host: host, Cache: t.TempDir(), Out: out}); err == nil || !strings.Contains(err.Error(), "Debian") {
		t.Error(err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for want, o := range map[string]Options{
		"architecture": {Arches: []string{"sparc"}},
		"kernel":       {Kernel: "hurd"},
		"at most once": {Arches: []string{"arm64", "arm64"}},
		"no zfs-fuse":  {Arches: []string{"amd64", "arm64"}, ZFS: "fuse"},
		"at a time":    {Arches: []string{"amd64", "arm64"}, ZFS: "openzfs", ZFSModules: "x"},
		"zfs":          {ZFS: "maybe"},
		"openzfs":      {ZFS: "openzfs"},
		"compression":  {Compress: "rar"},
		"name":         {Name: "a b"},
		"argument":     {Args: []string{"a b"}},
		"say root":     {RootPackages: []string{"vim"}},
		"of a package": {Root: true, RootPackages: []string{"vim; rm"}},
		"mirror":       {Mirror: "/srv/debian"},
	} {
		o.Cache = t.TempDir()
		if _, err := Build(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// staticHost stands in for muster-host where only its shape matters.
func staticHost(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	src, out := filepath.Join(dir, "main.go"), filepath.Join(dir, "host")
	if err := os.WriteFile(src, []byte("package main\n\nfunc main() {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("go", "build", "-o", out, src)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, msg)
	}
	return out
}

// The real thing: what anybody gets from `muster image build`, twice.
func TestBuildForReal(t *testing.T) {
	if os.Getenv("MUSTER_LAB") == "" {
		t.Skip("downloads 35 MB of packages: set MUSTER_LAB=1 to run it")
	}
	host, cache := staticHost(t), os.Getenv("MUSTER_IMAGE_CACHE")
	if cache == "" {
		cache = t.TempDir()
	}
	var digests []string
	for range 2 {
		out := t.TempDir()
		if _, err := Build(t.Context(), Options{Name: "test", Host: host, Cache: cache, Out: out, Progress: t.Output()}); err != nil {
			t.Fatal(err)
		}
		i, blobs, err := ReadDir(out)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range Files(i) {
			if err := blobs.Check(f.Digest); err != nil {
				t.Error(err)
			}
		}
		digests = append(digests, i.Digest)
	}
	if digests[0] != digests[1] {
		t.Error("the same inputs made two images:", digests)
	}
}
