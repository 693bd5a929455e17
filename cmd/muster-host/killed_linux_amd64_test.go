package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster.internal/credential"
	"muster.internal/resource"
)

// A killable is a muster-host that runs as a process of its own.
type killable struct {
	*exec.Cmd
	out lockedText
}

type lockedText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// process starts a command of the host; before comes before it, as unshare(1) may.
func (b *bench) process(before []string, args ...string) *killable {
	b.t.Helper()
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	argv := append(append(before, self), append(args, "--state", b.state)...)
	k := &killable{Cmd: exec.Command(argv[0], argv[1:]...)}
	k.Env = append(os.Environ(), asHost+"=free")
	k.Stdout, k.Stderr = &k.out, &k.out
	k.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := k.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { k.kill() })
	return k
}

// kill ends it as a power cut does.
func (k *killable) kill() {
	_ = k.Process.Kill()
	_ = k.Wait()
}

// rebooted starts the host as after a restart of the machine: the kernel names
// another run, which has just begun.
func (b *bench) rebooted(args ...string) *killable {
	b.t.Helper()
	boot := filepath.Join(b.dir, "boot-id")
	if err := os.WriteFile(boot, []byte("0b007000-0000-4000-8000-000000000001\n"), 0o644); err != nil {
		b.t.Fatal(err)
	}
	up, err := os.ReadFile("/proc/uptime")
	if err != nil {
		b.t.Fatal(err)
	}
	seconds, _, _ := strings.Cut(string(up), ".")
	return b.process([]string{"unshare", "--mount", "--time", "--fork", "--kill-child=SIGKILL", "--boottime=-" + seconds,
		"sh", "-c", `mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"`, boot}, args...)
}

// waitFor waits until something is so, and else shows what the host said.
func (k *killable) waitFor(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s: %s", what, k.out.String())
		}
	}
}

// A gate stands between a host and its control plane, and can be shut for whoever
// comes anew, as by a firewall that lets be what stands.
type gate struct {
	net.Listener
	to   string
	mu   sync.Mutex
	shut bool
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	g := &gate{Listener: listen(t, "127.0.0.1:0"), to: to}
	t.Cleanup(func() { g.Close() })
	go func() {
		for {
			c, err := g.Accept()
			if err != nil {
				return
			}
			go g.pass(c)
		}
	}()
	return g
}

func (g *gate) pass(c net.Conn) {
	defer c.Close()
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut {
		return
	}
	far, err := net.Dial("tcp", g.to)
	if err != nil {
		return
	}
	defer far.Close()
	go func() { io.Copy(far, c); far.Close() }()
	io.Copy(c, far)
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
}

// through makes the host go by a gate to its control plane.
func (b *bench) through(p *truePlane) *gate {
	b.t.Helper()
	g := newGate(b.t, strings.TrimPrefix(p.URL(), "https://"))
	c, err := credential.Load(credentialFile(b.state))
	if err == nil {
		c.URL = "https://" + g.Addr().String()
		err = credential.Store(credentialFile(b.state), c)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return g
}

// With a real control plane and a real process: a declaration that cuts the
// machine off is taken back by itself, also when the host was killed while it
// waited, and when the whole machine was; one that it is reached after stays.
func TestConfirmForTrue(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a restart of the machine is played in namespaces, which needs root")
	}
	t.Parallel()
	for name, c := range map[string]struct {
		reboot, reached bool
	}{"killed": {false, false}, "restarted": {true, false}, "restarted and reached": {true, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, b := newTruePlane(t, nil), newBench(t)
			id := p.node(b)
			g := b.through(p)
			p.declare(b, id, strings.ReplaceAll(oneFile, "GENERATION", "one"))
			k := b.process(nil, "run")
			report := func(generation int64, trigger string) func() bool {
				return func() bool {
					n, err := p.admin.NodeReport(t.Context(), id)
					return err == nil && n.Report.Generation == generation && (trigger == "" || n.Report.Trigger == trigger)
				}
			}
			k.waitFor(t, "the first is reported", report(1, ""))
			k.waitFor(t, "it asks for the next", func() bool {
				d, err := p.admin.Node(t.Context(), id)
				return err == nil && d.Link != nil && d.Link.Holds == 1
			})
			g.set(true)
			p.declare(b, id, "confirm: 6s\n"+strings.ReplaceAll(oneFile, "GENERATION", "two"))
			k.waitFor(t, "the second is applied", func() bool { return b.motd() == "two\n" })
			k.waitFor(t, "it looks for the control plane", func() bool { return strings.Contains(k.out.String(), "waiting for it") })
			k.kill()
			g.set(!c.reached)
			if c.reboot {
				k = b.rebooted("run")
			} else {
				k = b.process(nil, "run")
			}
			if c.reached {
				k.waitFor(t, "the second is reported", report(2, ""))
				k.kill()
				k = b.process(nil, "run")
				k.waitFor(t, "it is linked", func() bool { return p.asks(id) })
				if b.motd() != "two\n" {
					t.Errorf("it was reached, and now holds %q: %s", b.motd(), k.out.String())
				}
				return
			}
			k.waitFor(t, "it is taken back", func() bool { return b.motd() == "one\n" })
			g.set(false)
			k.waitFor(t, "that is reported", report(2, resource.TriggerRevert))
			p.declare(b, id, strings.ReplaceAll(oneFile, "GENERATION", "three"))
			k.waitFor(t, "it goes on", func() bool { return b.motd() == "three\n" })
			if text := k.out.String(); !strings.Contains(text, "declaration 2 was applied: it is taken back") {
				t.Errorf("it said %s", text)
			}
		})
	}
}

// asks tells whether the node's host asks what is new.
func (p *truePlane) asks(id string) bool {
	d, err := p.admin.Node(p.Context(), id)
	return err == nil && d.Link != nil && d.Link.Linked
}

// A second one on the same state ends at once, and says why; the first goes on.
func TestOneRunsOnAState(t *testing.T) {
	t.Parallel()
	p, b := newTruePlane(t, nil), newBench(t)
	id := p.node(b)
	k := b.process(nil, "run")
	k.waitFor(t, "it is linked", func() bool { return p.asks(id) })
	if code, text := b.run("", "run"); code != exitLived || !strings.Contains(text, "a machine has one") {
		t.Errorf("%d %s", code, text)
	}
	if code, text := b.run("", "owned"); code != 0 {
		t.Errorf("looking is not for it: %d %s", code, text)
	}
	p.declare(b, id, strings.ReplaceAll(oneFile, "GENERATION", "one"))
	k.waitFor(t, "it goes on", func() bool { return b.motd() == "one\n" })
	k.kill()
	k = b.process(nil, "run")
	p.declare(b, id, strings.ReplaceAll(oneFile, "GENERATION", "two"))
	k.waitFor(t, "what was killed holds nothing", func() bool { return b.motd() == "two\n" })
}

// A state directory that is read-only when the host starts is reported, and not the
// end of it; what it holds is applied as far as can be recorded, which is not at all.
func TestReadOnlyStateForTrue(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a file system is made read-only in a namespace, which needs root")
	}
	t.Parallel()
	p, b := newTruePlane(t, nil), newBench(t)
	id := p.node(b)
	p.declare(b, id, strings.ReplaceAll(oneFile, "GENERATION", "one"))
	k := b.process(nil, "run")
	k.waitFor(t, "it is applied", func() bool {
		n, err := p.admin.NodeReport(t.Context(), id)
		return err == nil && n.Report.Generation == 1
	})
	k.kill()
	readOnly := []string{"unshare", "--mount", "--fork", "--kill-child=SIGKILL", "sh", "-c", `mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"`, b.state}
	k = b.process(readOnly, "run")
	k.waitFor(t, "it is reported", func() bool {
		n, err := p.admin.NodeReport(t.Context(), id)
		return err == nil && n.Report.Outcome == resource.OutcomeFailed && strings.Contains(n.Report.Briefing().Text(), "read-only file system")
	})
	if k.ProcessState != nil || !p.asks(id) {
		t.Errorf("it does not live on: %s", k.out.String())
	}
	for _, look := range []string{"owned", "briefing"} {
		c := b.process(readOnly, look)
		if err := c.Wait(); err != nil && look == "owned" {
			t.Errorf("%s: %v %s", look, err, c.out.String())
		}
	}
	k.kill()
	k = b.process(nil, "run")
	k.waitFor(t, "all is well again", func() bool {
		n, err := p.admin.NodeReport(t.Context(), id)
		return err == nil && n.Report.Outcome == resource.OutcomeOK
	})
}
