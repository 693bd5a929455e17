package lab

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/image"
	"muster.internal/resource"
)

// rootImage is an image with a root file system, built once; Debian's part of
// it is shared with other runs.
var rootImage = sync.OnceValues(func() (string, error) {
	b, err := built()
	if err != nil {
		return "", err
	}
	return image.Build(context.Background(), image.Options{Name: "lab-root", Root: true, Out: filepath.Join(builtDir, "image-root"), Cache: labCache(),
		Host: filepath.Join(b.programs, "muster-host"), Progress: os.Stderr})
})

const (
	serving = `{"resources": [
		{"file": {"path": "/etc/systemd/system/hello.service", "content": "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"}},
		{"package": {"name": "openssh-server"}},
		{"service": {"name": "hello.service"}},
		{"service": {"name": "systemd-networkd.service"}}]}`
	rootHash = "$6$planted$EzyXGkLX6/74vqw4BouvWjdCO8zJ6yfrM8cmLgOCCuBIWS2Ih9CNF0Qsg4phMyGj4rSSIBT3/NuLqPJnN6VU/0"
)

var (
	initTakesOver = regexp.MustCompile(`muster-host: its root file system [0-9a-f]{12} is mounted`)
	fetchesRoot   = regexp.MustCompile(`muster-host: fetching its root file system`)
	loginPrompt   = regexp.MustCompile(`^Debian GNU/Linux \S+ (\S+) ttyS0`)
)

// TestNodeRootInVM is the life of a machine that serves: set up as any other, then
// in a Debian with systemd that it keeps on its pool, where the host is a unit,
// linked, and makes it what it is declared to be; and as it was after a restart. It
// takes minutes, and runs by name: scripts/slow NodeRootInVM.
func TestNodeRootInVM(t *testing.T) {
	t.Parallel()
	ctx, s := newLabWith(t, 10*time.Minute, BIOS, rootImage)
	m := s.machine(t, ctx, 1, BIOS)
	m.PoolKind = muster.Btrfs
	var st Stages
	firstLife(t, ctx, s, m, &st)
	must[Line](t)(m.WaitFor(ctx, 0, initTakesOver))
	id := s.linked(t, ctx, m, time.Time{})
	st.Add("linked, under systemd", m.Since())
	if listed := must[string](t)(s.CLI(ctx, "node", "ls")); !regexp.MustCompile(`\blinked\b`).MatchString(listed) {
		t.Errorf("node ls:\n%s", listed)
	}
	must[muster.RootPasswordSet](t)(s.Operator.SetRootPassword(ctx, m.UUID, muster.RootPassword{Hash: rootHash}))

	file := filepath.Join(s.Dir, "serving.json")
	if err := os.WriteFile(file, []byte(serving), 0o600); err != nil {
		t.Fatal(err)
	}
	must[string](t)(s.CLI(ctx, "node", "declare", id, file))
	first := s.applied(t, ctx, m, id, time.Time{})
	st.Add("its declaration is applied", m.Since())
	if first.Outcome != resource.OutcomeChanged {
		t.Errorf("it reports %+v", first)
	}

	if err := m.PowerDown(ctx); err != nil {
		t.Fatal(err)
	}
	st.Add("switched off by its button", m.Since())
	off := time.Now()
	mark := m.Mark()
	if err := m.PowerOn(); err != nil {
		t.Fatal(err)
	}
	s.linked(t, ctx, m, off)
	if again := s.applied(t, ctx, m, id, off); again.Outcome != resource.OutcomeOK || again.Generation != first.Generation {
		t.Errorf("after a restart it reports %+v", again)
	}
	again := &Stages{}
	again.AddConsole("", m.Lines(mark))
	again.Add("linked, and as it was declared", m.Since())
	prompt := must[Line](t)(m.WaitFor(ctx, mark, loginPrompt))
	if name, want := loginPrompt.FindStringSubmatch(prompt.Text)[1], must[muster.NodeDetail](t)(s.Operator.Node(ctx, id)).Hostname; name != want {
		t.Errorf("it calls itself %q, and is called %q", name, want)
	}
	for _, l := range m.Lines(mark) {
		if fetchesRoot.MatchString(l.Text) {
			t.Error("it fetched its root file system again")
		}
	}
	m.Cut()
	checkRoot(t, m)
	t.Logf("\n%s", StageTable([]string{"first", "again"}, []*Stages{&st, again}))
}

// linked waits until the machine's node has a live link that began after a time.
func (s *Site) linked(t *testing.T, ctx context.Context, m *Machine, after time.Time) (id string) {
	t.Helper()
	err := s.Until(ctx, m.Name+" is linked", func() (bool, error) {
		r, err := s.Operator.Registration(ctx, m.UUID)
		if err != nil || r.NodeID == "" {
			return false, err
		}
		id = r.NodeID
		n, err := s.Operator.Node(ctx, id)
		return err == nil && n.Link != nil && n.Link.Linked && n.Link.LastLinked.After(after), err
	})
	if err != nil {
		t.Fatalf("%v%s", err, m.Tail())
	}
	return id
}

// applied waits for a report of an apply that began after a time.
func (s *Site) applied(t *testing.T, ctx context.Context, m *Machine, id string, after time.Time) resource.Report {
	t.Helper()
	var r muster.NodeReport
	err := s.Until(ctx, m.Name+" reports", func() (bool, error) {
		var err error
		r, err = s.Operator.NodeReport(ctx, id)
		return err == nil && r.Report.Generation > 0 && r.Report.Started.After(after), err
	})
	if err != nil {
		t.Fatalf("%v%s", err, m.Tail())
	}
	return r.Report
}

// checkRoot looks at the disks of a machine that is off: what outlives a root
// is beside it, and what the boot delivered is in it.
func checkRoot(t *testing.T, m *Machine) {
	t.Helper()
	dir := t.TempDir()
	const script = `set -eu
		cd "$1"
		loops=
		trap 'umount "$2" 2>/dev/null || true; for l in $loops; do losetup -d $l; done' EXIT
		for d in disk*.raw; do cp --sparse=always "$d" "$2.$d"; loops="$loops $(losetup --find --show "$2.$d")"; done
		with=noatime; for l in $loops; do with=$with,device=$l; first=$l; done
		mkdir "$2"
		mount -t btrfs -o $with $first "$2"
		cd "$2"/roots/*
		grep ^root: etc/shadow
		cmp etc/machine-id ../../var/machine-id && echo one machine-id
		ls ../../var/ssh ../../var/journal/$(cat etc/machine-id)
		ls ../../var
		ls etc/ssh
		cd /`
	out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", m.Dir, filepath.Join(dir, "pool")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"root:" + rootHash + ":", "one machine-id", "ssh_host_ed25519_key.pub", "system.journal", "muster-host"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("its pool has no %s:\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "ssh_host_rsa_key") {
		t.Errorf("its root has a host key of the image's:\n%s", out)
	}
}
