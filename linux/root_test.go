package linux

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"muster.internal"
	"muster.internal/host"
)

// packed makes a root file system of entries, as an image carries it.
func packed(t *testing.T, entries ...tar.Header) (content []byte, sum string) {
	t.Helper()
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for _, h := range entries {
		body := ""
		if h.Typeflag == tar.TypeReg {
			h.Linkname, body = "", h.Linkname
		}
		h.Size, h.ModTime, h.Format = int64(len(body)), time.Unix(1700000000, 0), tar.FormatPAX
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	of := sha256.Sum256(b.Bytes())
	return b.Bytes(), hex.EncodeToString(of[:])
}

func dirEntry(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755, Uid: os.Getuid(), Gid: os.Getgid()}
}

func fileEntry(name, body string, mode int64) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Linkname: body, Mode: mode, Uid: os.Getuid(), Gid: os.Getgid()}
}

func linkEntry(kind byte, name, to string) tar.Header {
	return tar.Header{Typeflag: kind, Name: name, Linkname: to, Mode: 0o777, Uid: os.Getuid(), Gid: os.Getgid()}
}

// rootMachine has an open pool in a directory; the file system for the root is
// a directory there, too.
func rootMachine(t *testing.T, sum string) (*Machine, host.Pool) {
	t.Helper()
	dir := t.TempDir()
	m := &Machine{Log: slog.New(slog.DiscardHandler), Proc: os.DirFS("/proc"), Root: dir, Run: filepath.Join(dir, "run/muster-host"), UUID: me}
	for _, d := range []string{m.varDir(), m.rootDir(sum)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return m, host.Pool{Kind: muster.Btrfs, Name: muster.PoolName}
}

// A root is fetched once. What a power cut leaves of it, at any point, is not
// taken for a root, and what comes with another hash never becomes one.
func TestOpenRoot(t *testing.T) {
	content, sum := packed(t, dirEntry("etc"), fileEntry("etc/hello", "hello\n", 0o644))
	asked, answer := 0, func(w http.ResponseWriter) { w.Write(content) }
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		answer(w)
	}))
	defer s.Close()
	m, p := rootMachine(t, sum)
	part, dir := filepath.Join(m.varDir(), rootPart), m.rootDir(sum)
	open := func() error {
		got, err := m.OpenRoot(t.Context(), p, s.URL, sum, func(string) {})
		if err == nil && got != dir {
			t.Errorf("it is in %s", got)
		}
		return err
	}
	fails := func(what, want string) {
		t.Helper()
		if err := open(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Stat(part); err == nil {
			t.Errorf("%s: something is kept of it", what)
		}
		if _, err := os.Stat(filepath.Join(dir, rootMark)); err == nil {
			t.Errorf("%s: it counts as whole", what)
		}
	}
	full := answer
	answer = func(w http.ResponseWriter) { http.Error(w, "not assigned to this machine", http.StatusNotFound) }
	fails("refused", "404 Not Found: not assigned to this machine")
	answer = func(w http.ResponseWriter) { w.Write(content[:len(content)-1]) }
	fails("cut short", "what came is not what the image names")
	answer = func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", "1000000")
		w.Write(content)
	}
	fails("cut off", "unexpected EOF")
	answer = full

	for name, content := range map[string]string{part: "half", filepath.Join(dir, "half/of/it"): "x", filepath.Join(dir, "etc/hello"): "half"} {
		if err := ensure(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "etc/hello")); string(b) != "hello\n" {
		t.Errorf("%q, %v", b, err)
	}
	for _, gone := range []string{part, filepath.Join(dir, "half")} {
		if _, err := os.Lstat(gone); err == nil {
			t.Errorf("%s is left", gone)
		}
	}
	before := asked
	if err := os.WriteFile(filepath.Join(dir, "etc/hello"), []byte("changed here"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := open(); err != nil || asked != before {
		t.Errorf("the second time: %v, asked %d times", err, asked-before)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "etc/hello")); string(b) != "changed here" {
		t.Errorf("what was changed in it did not stay: %q", b)
	}
	// Cut after it was fetched, before it was unpacked.
	if err := os.Remove(filepath.Join(dir, rootMark)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(part, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(); err != nil || asked != before {
		t.Errorf("with what was fetched before: %v, asked %d times", err, asked-before)
	}
}

func TestUnpack(t *testing.T) {
	content, _ := packed(t, dirEntry("./bin"), fileEntry("./bin/su", "su", 0o4755), dirEntry("tmp"), fileEntry("tmp/x", "", 0o600),
		linkEntry(tar.TypeSymlink, "sh", "bin/su"), linkEntry(tar.TypeLink, "./other", "./bin/su"), linkEntry(tar.TypeSymlink, "away", "/nowhere"))
	file, dir := filepath.Join(t.TempDir(), "a"), t.TempDir()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unpack(file, dir); err != nil {
		t.Fatal(err)
	}
	su, err := os.Stat(filepath.Join(dir, "bin/su"))
	if err != nil || su.Mode() != os.ModeSetuid|0o755 || !su.ModTime().Equal(time.Unix(1700000000, 0)) {
		t.Errorf("%v, %v", su, err)
	}
	if other, err := os.Stat(filepath.Join(dir, "other")); err != nil || !os.SameFile(su, other) {
		t.Errorf("%v, %v", other, err)
	}
	if d, err := os.Stat(filepath.Join(dir, "bin")); err != nil || !d.ModTime().Equal(time.Unix(1700000000, 0)) {
		t.Errorf("%v, %v", d, err)
	}
	for name, want := range map[string]string{"sh": "bin/su", "away": "/nowhere"} {
		if to, err := os.Readlink(filepath.Join(dir, name)); to != want {
			t.Errorf("%s: %q, %v", name, to, err)
		}
	}
}

// Whatever an archive says, nothing outside of the directory is touched.
func TestUnpackStaysInside(t *testing.T) {
	out := t.TempDir()
	for name, entries := range map[string][]tar.Header{
		"up":              {fileEntry("../planted", "x", 0o644)},
		"an absolute one": {fileEntry(out+"/planted", "x", 0o644)},
		"through a link":  {linkEntry(tar.TypeSymlink, "d", out), fileEntry("d/planted", "x", 0o644)},
		"over a link":     {linkEntry(tar.TypeSymlink, "f", out+"/planted"), fileEntry("f", "x", 0o644)},
		"a link up":       {linkEntry(tar.TypeLink, "f", "../planted")},
		"a directory":     {linkEntry(tar.TypeSymlink, "d", out), dirEntry("d/planted")},
		"a device":        {tar.Header{Typeflag: tar.TypeChar, Name: "null", Mode: 0o666, Devmajor: 1, Devminor: 3}},
	} {
		content, _ := packed(t, entries...)
		file, dir := filepath.Join(t.TempDir(), "a"), filepath.Join(out, "in")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unpack(file, dir); err == nil {
			t.Errorf("%s: it was taken", name)
		}
		os.RemoveAll(dir)
		if left, _ := os.ReadDir(out); len(left) > 0 {
			t.Errorf("%s: it left %v", name, left)
		}
	}
}

func TestFurnish(t *testing.T) {
	m, _ := rootMachine(t, "one")
	args := host.Args{MAC: "52:54:00:00:00:01", Address: netip.MustParsePrefix("10.77.0.101/24"), Gateway: netip.MustParseAddr("10.77.0.254"),
		Resolvers: []netip.Addr{netip.MustParseAddr("9.9.9.9")}}
	read := func(name string) string {
		b, _ := os.ReadFile(name)
		return string(b)
	}
	ids := ""
	for _, root := range []string{"one", "two"} {
		dir := m.rootDir(root)
		if err := ensure(filepath.Join(dir, "etc/shadow"), "root:*:19000::::::\n", 0o640); err != nil {
			t.Fatal(err)
		}
		if err := m.furnish(dir, args, "$6$s$h"); err != nil {
			t.Fatal(err)
		}
		ids += read(filepath.Join(dir, "etc/machine-id"))
		if got := read(filepath.Join(dir, "etc/shadow")); got != "root:$6$s$h:19000::::::\n" {
			t.Errorf("shadow: %q", got)
		}
		if got := read(filepath.Join(dir, "etc/resolv.conf")); got != ours+"nameserver 9.9.9.9\n" {
			t.Errorf("resolv.conf: %q", got)
		}
	}
	if len(ids) != 66 || ids[:33] != ids[33:] {
		t.Errorf("the machine's id is not one and the same: %q", ids)
	}
	want := ours + "# Files in /etc/systemd/network go before it.\n[Match]\nMACAddress=52:54:00:00:00:01\nType=ether\n\n[Network]\n" +
		"Address=10.77.0.101/24\nKeepConfiguration=static\nGateway=10.77.0.254\nDNS=9.9.9.9\n"
	network := filepath.Join(m.Root, "run/systemd/network/10-boot.network")
	if got := read(network); got != want {
		t.Errorf("network: %s", got)
	}

	dir := m.rootDir("one")
	if err := os.WriteFile(filepath.Join(dir, "etc/resolv.conf"), []byte("nameserver 1.1.1.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	args.Leased = true
	if err := m.furnish(dir, args, ""); err != nil {
		t.Fatal(err)
	}
	if got := read(filepath.Join(dir, "etc/shadow")); got != "root:$6$s$h:19000::::::\n" {
		t.Errorf("without news of its password: %q", got)
	}
	if got := read(filepath.Join(dir, "etc/resolv.conf")); got != "nameserver 1.1.1.1\n" {
		t.Errorf("a resolv.conf of somebody's: %q", got)
	}
	if got := read(network); !strings.HasSuffix(got, "\nDHCP=ipv4\nKeepConfiguration=dhcp\n\n[DHCPv4]\nClientIdentifier=mac\n") || strings.Contains(got, "Address=10.") {
		t.Errorf("a lease: %s", got)
	}
	if err := m.furnish(dir, args, NoPassword); err != nil || read(filepath.Join(dir, "etc/shadow")) != "root:*:19000::::::\n" {
		t.Errorf("no password any more: %v, %q", err, read(filepath.Join(dir, "etc/shadow")))
	}
}

func TestPoolMounts(t *testing.T) {
	const before, after = "22 1 0:20 / ", " rw,noatime - btrfs /dev/vdb rw\n"
	for text, want := range map[string]string{
		"": "",
		before + "/proc" + after + before + "/zones" + after + before + "/sysroot" + after: "/zones",
		before + "/zones/var" + after + before + "/zones/roots/00" + after:                 "/zones/var /zones/roots/00",
		before + "/zones" + after + before + "/zones/var" + after:                          "/zones",
		before + "/zonesx" + after + before + "/x/zones" + after:                           "",
	} {
		file := filepath.Join(t.TempDir(), "mountinfo")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := poolMounts(file); err != nil || !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}
