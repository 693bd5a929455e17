package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"muster.internal"
)

// oneZFS lets one zfs-fuse run at a time: each leaves a directory in /, which
// must not be taken from under another.
var oneZFS sync.Mutex

// withZFS runs a shell script where zfs-fuse serves pools in files: in mount
// and process namespaces of its own, of which nothing is left afterwards.
func withZFS(t *testing.T, script string) string {
	t.Helper()
	for _, tool := range []string{"zfs-fuse", "zpool", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s (Debian packages zfs-fuse, util-linux)", tool)
		}
	}
	oneZFS.Lock()
	defer oneZFS.Unlock()
	const start = `set -eu
		mount -t tmpfs tmpfs /run
		mkdir -p /run/zfs /run/lock/zfs
		zfs-fuse --no-daemon >/dev/null 2>&1 &
		n=0
		until zpool list >/dev/null 2>&1; do n=$((n+1)); [ $n -lt 600 ]; sleep 0.1; done
	`
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private",
		"sh", "-c", start+script).CombinedOutput()
	os.Remove("/zfs-kstat") // zfs-fuse makes it; only an empty one goes
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// foreignPool makes a disk with a pool by the name of ours, of nobody we know.
func foreignPool(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "foreign.raw")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(256<<20), f.Close()); err != nil {
		t.Fatal(err)
	}
	withZFS(t, fmt.Sprintf("zpool create -m none zones %s && zfs create -o mountpoint=none zones/precious && zpool export zones", file))
	return file
}

// onDisks looks at the disks of a machine that is off, with tools of its own:
// what is stamped on the pool, and the credential kept there.
func onDisks(t *testing.T, m *Machine) (stamp, credential string) {
	t.Helper()
	if m.On() {
		t.Fatalf("%s is on", m.Name)
	}
	dir := t.TempDir() // looked at in a copy: importing writes
	for n := range m.Disks {
		to := filepath.Join(dir, filepath.Base(m.Disk(n)))
		if out, err := exec.CommandContext(t.Context(), "cp", "--sparse=always", m.Disk(n), to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	read := func(name, said string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		return string(b)
	}
	if m.Pool() == muster.Btrfs {
		said := readBtrfs(t, dir)
		return read("stamp", said), read("credential", said)
	}
	script := fmt.Sprintf(`
		zpool import -f -d %[1]s -R %[1]s/root zones >&2
		zfs get -H -o value org.smartos:server_uuid zones/var > %[1]s/stamp
		zfs mount zones/var 2>/dev/null || true
		cat $(find %[1]s/root -name credential) > %[1]s/credential
		zpool export zones >&2`, dir)
	said := withZFS(t, script)
	return read("stamp", said), read("credential", said)
}

// readBtrfs reads stamp and credential off the disks in a directory, where the
// kernel's btrfs has them mounted in a namespace of its own.
func readBtrfs(t *testing.T, dir string) string {
	t.Helper()
	const script = `set -eu
		loops=
		trap 'umount root 2>/dev/null || true; for l in $loops; do losetup -d $l; done' EXIT
		for d in disk*.raw; do loops="$loops $(losetup --find --show --read-only $d)"; done
		with=ro; for l in $loops; do with=$with,device=$l; first=$l; done
		mkdir root
		mount -t btrfs -o $with $first root
		blkid -p -s LABEL -o value $first | sed 's/^zones://' > stamp
		cat $(find root -name credential) > credential`
	c := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-c", script)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}
