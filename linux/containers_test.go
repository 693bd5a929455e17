package linux

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster.internal/resource"
)

// Containers are tried on the runtimes themselves: what one says of a container
// cannot be guessed.
func TestContainersForReal(t *testing.T) {
	if os.Getenv("MUSTER_LAB") == "" {
		t.Skip("starts container runtimes: set MUSTER_LAB=1 to run it")
	}
	if os.Getuid() != 0 {
		t.Skip("starts container runtimes, which needs root")
	}
	for name, start := range map[string]func(*testing.T, string) *exec.Cmd{"docker": dockerd, "podman": podman} {
		t.Run(name, func(t *testing.T) {
			c := startRuntime(t, start)
			importBusybox(t, c)
			t.Run("declared", func(t *testing.T) { testDeclared(t, c) })
			t.Run("rolled back", func(t *testing.T) { testRolledBack(t, c) })
			t.Run("somebody else's", func(t *testing.T) { testSomebodyElses(t, c) })
			t.Run("cut short", func(t *testing.T) { testCutShort(t, c) })
		})
	}
}

// startRuntime starts a container runtime in a network of its own.
func startRuntime(t *testing.T, start func(*testing.T, string) *exec.Cmd) *containers {
	t.Helper()
	dir, err := os.MkdirTemp("", "mc") // a short path, for its sockets
	if err != nil {
		t.Fatal(err)
	}
	cmd := start(t, dir)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &containers{sockets: []string{filepath.Join(dir, "s")}}
	t.Cleanup(func() {
		if e, err := c.engine(); err == nil {
			var all []instance
			_ = e.call("GET", "/containers/json", url.Values{"all": {"true"}}, nil, &all)
			for _, i := range all {
				_ = e.remove(&i)
			}
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("%s", b[max(0, len(b)-3000):])
		}
		_ = exec.Command("sh", "-c", `for m in $(awk -v d="$1/" 'index($5,d)==1{print $5}' /proc/self/mountinfo); do umount -l "$m"; done`, "sh", dir).Run()
		os.RemoveAll(dir)
	})
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if e, err := c.engine(); err == nil && e.call("GET", "/_ping", nil, nil, nil) == nil {
			return c
		}
		if time.Now().After(until) {
			t.Fatal("it does not come up")
		}
	}
}

func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("needs %s", p)
		}
	}
}

func dockerd(t *testing.T, dir string) *exec.Cmd {
	need(t, "dockerd", "busybox")
	return exec.Command("dockerd", "--data-root", dir+"/d", "--exec-root", dir+"/e", "--pidfile", dir+"/p", "-H", "unix://"+dir+"/s")
}

func podman(t *testing.T, dir string) *exec.Cmd {
	need(t, "podman", "runc", "busybox")
	conf := filepath.Join(dir, "containers.conf")
	os.WriteFile(conf, []byte("[containers]\ndefault_ulimits=[\"nofile=1024:1024\",\"nproc=1000:1000\"]\n[engine]\nruntime=\"runc\"\ncgroup_manager=\"cgroupfs\"\nevents_logger=\"file\"\n"), 0o600)
	os.WriteFile(filepath.Join(dir, "storage.conf"), []byte("[storage]\ndriver=\"vfs\"\nrunroot=\""+dir+"/e\"\ngraphroot=\""+dir+"/d\"\n"), 0o600)
	cmd := exec.Command("podman", "--tmpdir", dir+"/t", "--network-config-dir", dir+"/n", "system", "service", "--time=0", "unix://"+dir+"/s")
	cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+conf, "CONTAINERS_STORAGE_CONF="+filepath.Join(dir, "storage.conf"))
	return cmd
}

// importBusybox makes the image bb:1, whose own command and environment are not
// those that are declared.
func importBusybox(t *testing.T, c *containers) {
	t.Helper()
	program, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("needs busybox")
	}
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	image := &bytes.Buffer{}
	w := tar.NewWriter(image)
	for _, dir := range []string{"bin/", "data/", "tmp/", "etc/"} {
		w.WriteHeader(&tar.Header{Name: dir, Mode: 0o755, Typeflag: tar.TypeDir})
	}
	w.WriteHeader(&tar.Header{Name: "bin/busybox", Mode: 0o755, Size: int64(len(b))})
	w.Write(b)
	w.WriteHeader(&tar.Header{Name: "bin/sh", Linkname: "busybox", Typeflag: tar.TypeSymlink})
	w.Close()
	changes := url.Values{"fromSrc": {"-"}, "repo": {"docker.io/library/bb"}, "tag": {"1"}, "changes": {`CMD ["/bin/sh","-c","trap exit TERM; /bin/busybox sleep 1000 & wait"]`, "ENV FROM=image"}}
	e, err := c.engine()
	if err != nil {
		t.Fatal(err)
	}
	res, err := e.client.Post("http://engine/images/create?"+changes.Encode(), "application/x-tar", image)
	if err != nil {
		t.Fatal(err)
	}
	said := &bytes.Buffer{}
	said.ReadFrom(res.Body)
	if res.StatusCode != http.StatusOK || strings.Contains(said.String(), `"error"`) {
		t.Fatal(said)
	}
	id := regexp.MustCompile(`[0-9a-f]{64}`).FindString(said.String())
	if err := e.call("POST", "/images/"+id+"/tag", url.Values{"repo": {"docker.io/library/bb"}, "tag": {"1"}}, nil, nil); err != nil {
		t.Fatal(err) // Podman does not give an imported image the name that is asked for
	}
}

// have puts a container and sees that it reads back as declared.
func have(t *testing.T, c *containers, r *resource.Container) {
	t.Helper()
	was, err := c.read(r.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.put(r, was); err != nil {
		t.Fatal(err)
	}
	stands(t, c, r)
}

func stands(t *testing.T, c *containers, r *resource.Container) {
	t.Helper()
	is, err := c.read(r.Name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(r.State(true), is); d != "" {
		t.Error(d)
	}
}

// names are the containers that there are.
func names(t *testing.T, c *containers) []string {
	t.Helper()
	e, err := c.engine()
	if err != nil {
		t.Fatal(err)
	}
	var all []struct{ Names []string }
	if err := e.call("GET", "/containers/json", url.Values{"all": {"true"}}, nil, &all); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, c := range all {
		for _, n := range c.Names {
			list = append(list, strings.TrimPrefix(n, "/"))
		}
	}
	slices.Sort(list)
	return list
}

func only(t *testing.T, c *containers, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, names(t, c)); d != "" {
		t.Error(d)
	}
}

// sleep ends when it is told to, so that no test waits for a container to be
// killed.
var sleep = sleeping(1001)

func sleeping(seconds int) []string {
	return []string{"/bin/sh", "-c", fmt.Sprintf("trap exit TERM; /bin/busybox sleep %d & wait", seconds)}
}

func testDeclared(t *testing.T, c *containers) {
	dir := t.TempDir()
	forms := []*resource.Container{
		{Name: "aa", Image: "bb:1"},
		{Name: "aa", Image: "bb:1", Command: sleep, Environment: map[string]string{"A": "1=2", "FROM": "image"}},
		{Name: "aa", Image: "docker.io/library/bb:1", Command: sleeping(1000), Network: "host", Restart: "no"},
		{Name: "aa", Image: "bb:1", Network: "none", Restart: "on-failure", Mounts: []resource.Mount{{Source: dir, Target: "/tmp"}, {Source: dir, Target: "/data", ReadOnly: true}}},
		{Name: "aa", Image: "bb:1", Ports: []resource.Port{{Host: 8080, Container: 80}, {Host: 8080, Container: 80, Protocol: "udp"}, {Host: 8081, Container: 80}}, Restart: "unless-stopped"},
	}
	for i, r := range forms {
		have(t, c, r)
		before := idOf(t, c, "aa")
		have(t, c, r)
		if after := idOf(t, c, "aa"); after != before {
			t.Errorf("%d: it was replaced, and nothing had changed", i)
		}
	}
	only(t, c, "aa")
	e, _ := c.engine()
	i, _ := e.inspect("aa")
	if err := e.stop(i); err != nil {
		t.Fatal(err)
	}
	if is, _ := c.read("aa"); is[resource.FieldRunning] != resource.No {
		t.Error(is)
	}
	have(t, c, forms[len(forms)-1])
	if idOf(t, c, "aa") != i.ID {
		t.Error("it was replaced, and only had to be started")
	}
	if err := c.restart("aa"); err != nil {
		t.Error(err)
	}
	if is, err := c.read(i.ID[:12]); is != nil || err != nil {
		t.Errorf("an id is not a name: %v, %v", is, err)
	}
	if err := c.remove("aa"); err != nil {
		t.Error(err)
	}
	if err := c.remove("aa"); err != nil {
		t.Error(err)
	}
	only(t, c)
	err := c.put(&resource.Container{Name: "bb", Image: "127.0.0.1:1/no/such:1"}, nil)
	if err == nil || !strings.Contains(err.Error(), "image 127.0.0.1:1/no/such:1 cannot be fetched: ") {
		t.Error(err)
	}
	only(t, c)
}

func idOf(t *testing.T, c *containers, name string) string {
	t.Helper()
	e, err := c.engine()
	if err != nil {
		t.Fatal(err)
	}
	i, err := e.inspect(name)
	if i == nil || err != nil {
		t.Fatal(i, err)
	}
	return i.ID
}

func testRolledBack(t *testing.T, c *containers) {
	good := &resource.Container{Name: "aa", Image: "bb:1", Network: "none", Restart: "no"}
	have(t, c, good)
	before := idOf(t, c, "aa")
	for _, command := range [][]string{{"/bin/busybox", "false"}, {"/no/such/program"}} {
		bad := *good
		bad.Command = command
		err := c.put(&bad, good.State(true))
		if err == nil || !strings.Contains(err.Error(), "the container before it is as it was") {
			t.Error(err)
		}
		stands(t, c, good)
		only(t, c, "aa")
		if idOf(t, c, "aa") != before {
			t.Error("it is another one now")
		}
	}
	crashing := &resource.Container{Name: "bb", Image: "bb:1", Network: "none", Command: []string{"/bin/busybox", "sh", "-c", "exit 3"}}
	if err := c.put(crashing, nil); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Error(err)
	}
	for _, name := range []string{"aa", "bb"} {
		if err := c.remove(name); err != nil {
			t.Error(err)
		}
	}
}

func testSomebodyElses(t *testing.T, c *containers) {
	e, _ := c.engine()
	theirs := creation{Image: "bb:1", Env: []string{"A=1"}}
	theirs.HostConfig.NetworkMode, theirs.HostConfig.RestartPolicy.Name = "none", "no"
	if err := e.call("POST", "/containers/create", url.Values{"name": {"aa"}}, theirs, nil); err != nil {
		t.Fatal(err)
	}
	i, err := e.inspect("aa")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.start(i); err != nil {
		t.Fatal(err)
	}
	r := &resource.Container{Name: "aa", Image: "bb:1", Environment: map[string]string{"A": "1"}, Network: "none", Restart: "no"}
	stands(t, c, r)
	if err := c.remove("aa"); err == nil || !strings.Contains(err.Error(), "somebody else made it") {
		t.Error(err)
	}
	r.Environment["A"] = "2"
	if err := c.put(r, nil); err == nil || !strings.Contains(err.Error(), "is there by now") {
		t.Error(err)
	}
	have(t, c, r)
	only(t, c, "aa", "aa.before-muster")
	if i, err := e.inspect("aa.before-muster"); err != nil || i.State.Running {
		t.Errorf("%+v, %v", i, err)
	}
	i, _ = e.inspect("aa.before-muster")
	if err := e.remove(i); err != nil {
		t.Error(err)
	}
	if err := c.remove("aa"); err != nil {
		t.Error(err)
	}
}

// A cut lets some calls that change something through, and no other call after.
type cut struct {
	left int
	to   http.RoundTripper
}

func (c *cut) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != "GET" {
		c.left--
	}
	if c.left < 0 {
		return nil, errors.New("the power is gone")
	}
	return c.to.RoundTrip(r)
}

// A replacement that ends after any of its steps is finished by the next one,
// and at no time are both gone.
func testCutShort(t *testing.T, c *containers) {
	old := &resource.Container{Name: "aa", Image: "bb:1", Network: "none", Command: sleep}
	now := &resource.Container{Name: "aa", Image: "bb:1", Network: "none"}
	points := 0
	for left := 0; ; left++ {
		have(t, c, old)
		e, _ := c.engine()
		cutClient := *e.client
		cutClient.Transport = &cut{left, e.client.Transport}
		cutShort := &containers{found: &engine{e.socket, &cutClient}}
		err := cutShort.put(now, old.State(true))
		if len(names(t, c)) == 0 {
			t.Fatalf("after %d steps nothing is there", left)
		}
		is, e2 := c.read("aa")
		if e2 != nil {
			t.Fatal(e2)
		}
		if e3 := c.put(now, is); e3 != nil {
			t.Fatalf("after %d steps: %v", left, e3)
		}
		stands(t, c, now)
		only(t, c, "aa")
		if err == nil {
			break
		}
		points++
	}
	t.Logf("cut short at %d points", points)
	if points < 5 {
		t.Error("a replacement has more steps")
	}
	if err := c.remove("aa"); err != nil {
		t.Error(err)
	}
}

func TestSplitImage(t *testing.T) {
	for image, want := range map[string][2]string{
		"nginx": {"nginx", "latest"}, "nginx:1": {"nginx", "1"}, "r:5000/a/b": {"r:5000/a/b", "latest"}, "r:5000/a:2": {"r:5000/a", "2"},
		"a@sha256:12": {"a", "sha256:12"},
	} {
		if name, tag := splitImage(image); name != want[0] || tag != want[1] {
			t.Errorf("%s: %s, %s", image, name, tag)
		}
	}
}

func TestNoContainerRuntime(t *testing.T) {
	c := &containers{sockets: []string{"/no/such/socket"}}
	t.Setenv("PATH", t.TempDir())
	if is, err := c.read("aa"); is != nil || err != nil {
		t.Errorf("without a runtime there is no container: %v, %v", is, err)
	}
	if err := c.put(&resource.Container{Name: "aa"}, nil); !errors.Is(err, errNoRuntime) {
		t.Error(err)
	}
	os.WriteFile(filepath.Join(os.Getenv("PATH"), "podman"), []byte("#!/bin/sh\n"), 0o700)
	if _, err := c.read("aa"); err == nil || !strings.Contains(err.Error(), "podman is installed and listens neither at /no/such/socket") {
		t.Error(err)
	}
}
