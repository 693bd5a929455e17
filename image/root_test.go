package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// made is what mmdebstrap prints, at some time of some day.
func made(t *testing.T, at time.Time) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: "./dev/", Mode: 0o755},
		{Typeflag: tar.TypeChar, Name: "./dev/null", Mode: 0o666, Devmajor: 1, Devminor: 3},
		{Typeflag: tar.TypeDir, Name: "./run/lock/subsys", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: "./etc/hostname", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: "./etc/ssh/ssh_host_rsa_key", Mode: 0o600},
		{Typeflag: tar.TypeReg, Name: "./etc/ssh/ssh_config", Mode: 0o644},
		{Typeflag: tar.TypeReg, Name: "./etc/shadow", Mode: 0o640, Gid: 42, Gname: "shadow"},
		{Typeflag: tar.TypeReg, Name: "./etc/shadow-", Mode: 0o640, Gid: 42},
		{Typeflag: tar.TypeReg, Name: "./var/log/dpkg.log", Mode: 0o644},
		{Typeflag: tar.TypeDir, Name: "./var/cache/apt/archives", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: "./var/cache/apt/archives/lock", Mode: 0o640},
		{Typeflag: tar.TypeReg, Name: "./usr/bin/ping", Mode: 0o755, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "raw", "comment": "x"}},
		{Typeflag: tar.TypeLink, Name: "./usr/bin/ping4", Linkname: "./usr/bin/ping", Mode: 0o755},
		{Typeflag: tar.TypeSymlink, Name: "./bin", Linkname: "usr/bin", Mode: 0o777},
	} {
		h.Format, h.ModTime, h.AccessTime = tar.FormatPAX, time.Unix(1700000000, at.UnixNano()%1e9), at
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// What is the image's own is in it, with owners, modes and capabilities; what is
// each machine's, or each build's, is not. The same makes the same bytes.
func TestRootIsSettled(t *testing.T) {
	dir := t.TempDir()
	host := filepath.Join(dir, "host")
	if err := os.WriteFile(host, []byte("the host"), 0o600); err != nil {
		t.Fatal(err)
	}
	var all [2][]byte
	for n := range all {
		base, out := filepath.Join(dir, fmt.Sprint("base", n)), filepath.Join(dir, fmt.Sprint("out", n))
		from := made(t, time.Unix(1700000000, int64(n)*12345678))
		if err := writeTar(base, false, func(w *tar.Writer) error { return settle(w, from) }); err != nil {
			t.Fatal(err)
		}
		if err := finish(out, base, host, time.Unix(1700000000, 0)); err != nil {
			t.Fatal(err)
		}
		all[n], _ = os.ReadFile(out)
	}
	if !bytes.Equal(all[0], all[1]) {
		t.Error("another build made other bytes")
	}
	z, err := zstd.NewReader(bytes.NewReader(all[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var got strings.Builder
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "%c %04o %d/%d %s %s %s\n", h.Typeflag, h.Mode, h.Uid, h.Gid, h.Name, h.Linkname, h.PAXRecords["SCHILY.xattr.security.capability"])
		if !h.ModTime.Equal(time.Unix(1700000000, 0)) || h.Gname != "" || h.PAXRecords["comment"] != "" {
			t.Errorf("%+v", h)
		}
	}
	const want = `5 0755 0/0 .  
5 0755 0/0 dev  
0 0644 0/0 etc/ssh/ssh_config  
0 0640 0/42 etc/shadow  
5 0755 0/0 var/cache/apt/archives  
0 0640 0/0 var/cache/apt/archives/lock  
0 0755 0/0 usr/bin/ping  raw
1 0755 0/0 usr/bin/ping4 usr/bin/ping 
2 0777 0/0 bin usr/bin 
`
	own, ok := strings.CutPrefix(got.String(), want)
	if !ok {
		t.Errorf("got\n%s", got.String())
	}
	for _, line := range []string{"0 0755 0/0 usr/bin/muster-host  \n", "0 0644 0/0 usr/lib/systemd/system/muster-host.service  \n",
		"2 0777 0/0 etc/systemd/system/multi-user.target.wants/muster-host.service /lib/systemd/system/muster-host.service \n"} {
		if !strings.Contains(own, line) {
			t.Errorf("there is no %sin\n%s", line, own)
		}
	}
}

// The root that anybody gets, started by systemd: the host waits for its
// credential, and an operator can get in by keys that are the machine's.
func TestRootForReal(t *testing.T) {
	if os.Getenv("MUSTER_LAB") == "" {
		t.Skip("builds a root file system of Debian's packages: set MUSTER_LAB=1 to run it")
	}
	if os.Getuid() != 0 {
		t.Skip("starts a system in a container, which needs root")
	}
	out, shared, root := t.TempDir(), t.TempDir(), t.TempDir()
	if _, err := Build(t.Context(), Options{Name: "test", Root: true, Cache: os.Getenv("MUSTER_LAB_CACHE"), Out: out, Progress: t.Output()}); err != nil {
		t.Fatal(err)
	}
	i, blobs, err := ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	for _, f := range Files(i) {
		if f.Role == "rootfs" {
			path, err := blobs.Path(f.Digest)
			if err != nil {
				t.Fatal(err)
			}
			run("tar", "--zstd", "-C", root, "--numeric-owner", "--xattrs-include=*", "-xf", path)
		}
	}
	const inside = `[Unit]
After=multi-user.target
[Service]
Type=oneshot
StandardOutput=file:/shared/log
StandardError=inherit
ExecStart=/bin/sh -xec 'systemctl is-active muster-host ssh systemd-networkd; muster-host profile; journalctl -u muster-host | grep "hosted: there is no credential"; [ -s /etc/ssh/keys/ssh_host_ed25519_key ]; [ -z "$$(ls /etc/ssh/*_key)" ]; ! command -v perl5.36; systemctl --failed --no-legend; [ -z "$$(systemctl --failed --no-legend)" ]; apt-get check; ls /lib/modules/*/modules.dep; echo ALL WAS SO'
ExecStopPost=systemctl --no-block poweroff
`
	if err := os.WriteFile(filepath.Join(root, "etc/systemd/system/inside.service"), []byte(inside), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "etc/ssh/keys"), 0o700); err != nil { // as the initrd does
		t.Fatal(err)
	}
	boot := exec.CommandContext(t.Context(), "systemd-nspawn", "-q", "-b", "-D", root, "--register=no", "--keep-unit", "--private-network", "--console=read-only",
		fmt.Sprintf("--machine=muster-root-%d", os.Getpid()), "--bind="+shared+":/shared", "systemd.wants=inside.service")
	var said bytes.Buffer
	boot.Stdout, boot.Stderr, boot.WaitDelay = &said, &said, 10*time.Second
	late := time.AfterFunc(5*time.Minute, func() { boot.Process.Kill() })
	err = boot.Run()
	late.Stop()
	if log, _ := os.ReadFile(filepath.Join(shared, "log")); !strings.HasSuffix(string(log), "\nALL WAS SO\n") {
		t.Fatalf("%v\n%s\n%s", err, log, said.String())
	}
}
