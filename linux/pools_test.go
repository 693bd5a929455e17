package linux

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"muster.internal"
	"muster.internal/host"
	"muster.internal/layout"
	"muster.internal/setup"
)

const (
	me       = "00112233-4455-6677-8899-aabbccddeea1"
	stranger = "00112233-4455-6677-8899-aabbccddeea2"
	poolDisk = 640 << 20
)

// A lab is this machine with a clock of its own, so that a test does not set
// the real one.
type lab struct {
	*Machine
	now time.Time
}

func (l *lab) SetClock(t time.Time) error { l.now = t; return nil }
func (l *lab) Now() time.Time             { return l.now }

// newLab makes a machine whose disks are these, and whose pools mount below dir.
func newLab(dir, dev string, names ...string) (*lab, []byte) {
	sys := fstest.MapFS{}
	for i, n := range names {
		for k, v := range map[string]string{"device/type": "0", "device/vendor": "LAB", "device/model": "DISK", "size": fmt.Sprint(poolDisk / 512), "queue/rotational": "1",
			"device/vpd_pg80": "\x00\x80\x00\x06serial", "device/wwid": fmt.Sprintf("naa.500000000000000%d", i)} {
			sys["block/"+n+"/"+k] = &fstest.MapFile{Data: []byte(v)}
		}
	}
	private, public, err := setup.GenerateKey()
	if err != nil {
		panic(err)
	}
	m := &Machine{Log: slog.New(slog.DiscardHandler), Sys: sys, Proc: os.DirFS("/proc"), Dev: dev, Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "run"), UUID: me, Key: private}
	return &lab{Machine: m, now: time.Unix(1000, 0)}, public
}

// approve is the control plane's side, for machine uuid.
func approve(t testing.TB, l *lab, public []byte, q muster.SetupRequest) (setup.Order, error) {
	t.Helper()
	disks, err := l.Disks()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(disks) // as it travels
	disks = nil
	json.Unmarshal(b, &disks)
	p, err := layout.Realize(l.UUID, "S1", disks, q)
	if err != nil {
		return setup.Order{}, err
	}
	p.Digest = setup.PlanDigest(p)
	sealed, err := setup.Seal(public, setup.Bundle{ServerUUID: l.UUID, Epoch: 1, Plan: p.Digest, ProofKey: bytes.Repeat([]byte{1}, 32), URL: "https://m", APIKey: "mus_planted"})
	if err != nil {
		t.Fatal(err)
	}
	return setup.Order{ServerUUID: l.UUID, Epoch: 1, Time: time.Unix(1700000000, 0), Plan: p, Bundle: sealed}, nil
}

// lifetime is the first life of a machine, on real pools of a kind: set up,
// started again, refused, rebuilt, and strange to another machine.
func lifetime(t *testing.T, l *lab, public []byte, kind muster.PoolKind) {
	q := muster.SetupRequest{Pool: kind}
	quiet := func(host.Progress) {}
	o, err := approve(t, l, public, q)
	if err != nil {
		t.Fatal(err)
	}
	if r := host.Setup(o, l, quiet); !r.OK {
		t.Fatal(r.Line)
	}
	start := func() host.Boot {
		b, c := host.Start("enroll", me, l)
		if b.Role != host.RoleNode || c.APIKey != "mus_planted" || b.Pool.Kind != kind {
			t.Fatalf("it starts as %+v", b)
		}
		return b
	}
	b := start()
	st, err := os.Stat(l.credentialPath())
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the credential's file: %v, %v", st, err)
	}
	// Starting the host again while the pool is open finds it as it is.
	start()
	if err := l.Release(b.Pool); err != nil {
		t.Fatal(err)
	}
	if _, err := approve(t, l, public, q); !muster.IsCode(err, muster.CodeConflict) || !strings.Contains(err.Error(), "ask for a rebuild") {
		t.Errorf("a second setup: %v", err)
	}
	// The approval is of what was seen: with the pool changed, it is not that.
	q.Rebuild = true
	if o, err = approve(t, l, public, q); err != nil {
		t.Fatal(err)
	}
	if r := host.Setup(o, l, quiet); !r.OK {
		t.Fatal(r.Line)
	}
	if r := host.Setup(o, l, quiet); r.OK || !strings.Contains(r.Line, "not what was approved") {
		t.Errorf("the same order twice: %+v", r)
	}
	b = start()
	if err := l.Release(b.Pool); err != nil {
		t.Fatal(err)
	}
	l.UUID = stranger
	if _, err := approve(t, l, public, q); !muster.IsCode(err, muster.CodeConflict) || !strings.Contains(err.Error(), "stamped by machine "+me) {
		t.Errorf("another machine's setup: %v", err)
	}
	if b, _ := host.Start("node", stranger, l); b.Role != host.RoleEnroll || !strings.Contains(b.Reason, "does not carry this machine's stamp") {
		t.Errorf("in another machine it starts as %+v", b)
	}
	if err := l.Destroy(host.Pool{Kind: kind, Name: "zones", GUID: b.Pool.GUID, Stamp: stranger}); err == nil {
		t.Error("a stranger destroyed the pool")
	}
	l.UUID = me
	if err := l.Release(start().Pool); err != nil {
		t.Fatal(err)
	}
}

// TestSetupOnZFS runs in a mount and process namespace of its own: zfs-fuse
// wants fixed places, and must be gone afterwards.
func TestSetupOnZFS(t *testing.T) {
	tool(t, "zfs-fuse", "zpool", "zfs")
	dir := t.TempDir()
	prepare := func() {
		private(t)
		mount(t, "proc", "/proc", 0)
		mount(t, "tmpfs", "/run", 0)
		mount(t, "tmpfs", dir, 0)
		t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	}
	// zfs-fuse makes a directory there; it is removed if it is empty.
	if !inside(t, syscall.CLONE_NEWNS|syscall.CLONE_NEWPID, prepare, func() { os.Remove("/zfs-kstat") }) {
		return
	}
	os.Mkdir(filepath.Join(dir, "dev"), 0o755)
	for _, n := range []string{"sdb", "sdc"} {
		sparse(t, filepath.Join(dir, "dev", n), poolDisk)
	}
	l, public := newLab(dir, filepath.Join(dir, "dev"), "sdb", "sdc")
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-L", "home", filepath.Join(dir, "dev/sdb")).CombinedOutput(); err != nil {
		t.Logf("sdb stays empty: %v %s", err, out)
	}
	lifetime(t, l, public, muster.ZFS)
}

func TestSetupOnBtrfs(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("it takes root to mount a btrfs")
	}
	tool(t, "mkfs.btrfs", "losetup")
	if known, _ := os.ReadFile("/proc/filesystems"); !strings.Contains(string(known), "\tbtrfs\n") {
		t.Skip("this kernel has no btrfs")
	}
	dir := t.TempDir()
	var names []string
	for _, n := range []string{"a", "b"} {
		out, err := exec.Command("losetup", "-f", "--show", sparse(t, filepath.Join(dir, n), poolDisk)).CombinedOutput()
		if err != nil {
			t.Skipf("there is no loop device: %v %s", err, out)
		}
		dev := strings.TrimSpace(string(out))
		t.Cleanup(func() { exec.Command("losetup", "-d", dev).Run() })
		names = append(names, filepath.Base(dev))
	}
	l, public := newLab(dir, "/dev", names...)
	t.Cleanup(func() { (&btrfs{l.Machine}).close("") })
	lifetime(t, l, public, muster.Btrfs)
}
