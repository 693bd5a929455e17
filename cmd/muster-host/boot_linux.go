package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"muster.internal"
	"muster.internal/bus"
	"muster.internal/host"
	"muster.internal/inventory"
	"muster.internal/linux"
	"muster.internal/setup"
)

// initrd is the life of the first process: it prepares the machine, then keeps
// the host running. When that has made the node's root file system ready, the
// first process becomes the root's init.
func initrd() error {
	if err := linux.PrepareInitrd(); err != nil {
		return err
	}
	say := func(s string) { fmt.Println("muster-host: " + s) }
	say("userland")
	failed, err := linux.LoadModules("/modules.list")
	if err != nil {
		say("the list of kernel modules cannot be read: " + err.Error())
	}
	for _, f := range failed {
		say("a kernel module was not loaded: " + f)
	}
	if err := linux.Tend([]string{"/proc/self/exe", "run", "--boot"}, int(exitRootReady), say); err != nil {
		return err
	}
	return linux.SwitchRoot()
}

// started finds out what this machine is, and is that.
func started(ctx context.Context, e *env) error {
	m := e.linux()
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	args, err := host.ParseArgs(string(line))
	if err != nil {
		return err
	}
	if off := time.Since(args.Time); off < -2*time.Second || off > time.Minute {
		if err := m.SetClock(args.Time); err != nil {
			return err
		}
	}
	nic, err := m.NetworkUp(ctx, args.MAC, args.Address, args.Gateway)
	if err != nil {
		return err
	}
	e.say("network up: %s on %s (%s)", args.Address, nic, args.MAC)
	m.UUID = args.UUID // empty: what the firmware says
	f, err := m.Facts()
	if err != nil {
		return err
	}
	f.AdminMAC, f.AdminIP, f.Version = args.MAC, args.Address.Addr().String(), muster.Build
	if err := linux.WriteHostID(f.UUID); err != nil {
		return err
	}
	if args.Mode == string(host.RoleRescue) {
		return rescue(ctx, e)
	}
	b, cred := host.Start(args.Mode, f.UUID, m)
	e.say("this machine (%s) starts as %s: %s", f.UUID, b.Role, b.Reason)
	if b.Role == host.RoleNode {
		e.say("pool imported")
		password := e.rootPassword(ctx, args.Once)
		m.UUID = cred.ServerUUID // the firmware may spell it in the other byte order
		if err := m.SetHostname(cmp.Or(cred.Hostname, f.Hostname)); err != nil {
			e.say("%v", err)
		}
		if args.Root != "" {
			return rooted(ctx, e, b.Pool, args, password, cred)
		}
		// Told to enroll, it may announce itself when its credential is refused.
		err := live(ctx, e, cred, args.Mode == string(host.RoleEnroll))
		if !errors.Is(err, host.ErrRefused) {
			return ended(ctx, err)
		}
		e.say("%v; nothing is changed, and the machine announces itself for another approval", err)
		if err := m.Release(b.Pool); err != nil {
			return err
		}
	}
	return enroll(ctx, e, args, f)
}

// rootAgain is how long a node lives in its initrd before it tries again to
// live in its root file system.
const rootAgain = 2 * time.Minute

// rooted is the life of a node whose image has a root file system: there, and
// in the initrd, speaking with its own key, for as long as that cannot be.
func rooted(ctx context.Context, e *env, pool host.Pool, args host.Args, password string, c setup.Credential) error {
	m := e.linux()
	say := func(s string) { e.say("%s", s) }
	for ctx.Err() == nil {
		dir, err := m.OpenRoot(ctx, pool, args.Root, args.RootSum, say)
		if err == nil {
			err = m.EnterRoot(dir, args, password, say)
		}
		if err == nil {
			e.say("its root file system %.12s is mounted; its init takes over", args.RootSum)
			return exitRootReady
		}
		e.say("it lives in its initrd, and tries again in %s: its root file system is not there: %v", rootAgain, err)
		part, cancel := context.WithTimeout(ctx, rootAgain)
		err = live(part, e, c, false)
		cancel()
		if part.Err() == nil {
			return err
		}
	}
	return nil
}

// rescue leaves disks alone and gives the person at the console a shell.
func rescue(ctx context.Context, e *env) error {
	e.say("rescue: no pool was imported, nothing was started; a shell is on the console")
	for ctx.Err() == nil {
		sh := exec.CommandContext(ctx, "/bin/sh")
		sh.Stdin, sh.Stdout, sh.Stderr = os.Stdin, os.Stdout, os.Stderr
		sh.Run()
		pause(ctx, time.Second)
	}
	return nil
}

// enroll announces this machine on the boot bus and does what it is sent, until
// a setup asks for a restart.
func enroll(ctx context.Context, e *env, args host.Args, f inventory.Facts) error {
	machine := e.linux()
	private, public, err := setup.GenerateKey()
	if err != nil {
		return err
	}
	if err := keep(machine, private); err != nil {
		return fmt.Errorf("keeping this boot's key: %w", err)
	}
	f.PublicKey = setup.EncodePublicKey(public)
	if f.Disks, err = machine.Disks(); err != nil {
		e.say("its disks cannot be read, and are announced by size alone: %v", err)
		if f.Disks, err = linux.ReadDisks(machine.Sys, machine.Proc, machine.Dev); err != nil {
			return err
		}
	}
	said := false
	var agent *bus.Agent
	agent = &bus.Agent{
		Options: bus.Options{Addr: args.BusAddr, User: args.BusUser, Password: args.BusPassword, UUID: f.UUID, MAC: args.MAC,
			LocalAddr: &net.TCPAddr{IP: args.Address.Addr().AsSlice()}},
		Log: machine.Log,
		Sysinfo: func(context.Context) (json.RawMessage, error) {
			if !said {
				e.say("announced as %s at %s", f.UUID, args.BusAddr)
				e.say("nothing here is changed before an operator approves: muster registration approve-setup %s", named(f))
				said = true
			}
			return f.Sysinfo(), nil
		},
		Handle: func(ctx context.Context, m bus.Message) bus.Reply {
			return runScript(ctx, e.out, m, func(p setup.Progress) error { return agent.Progress(m.ID, p) })
		},
	}
	if err := agent.Run(ctx); !errors.Is(err, bus.ErrReboot) {
		return ended(ctx, err)
	}
	e.say("restarting")
	return linux.Reboot()
}

// named is what an operator calls this machine.
func named(f inventory.Facts) string {
	if f.Serial != "" {
		return f.Serial
	}
	return f.UUID
}

// keep stores the key where only this boot's processes of root can read it.
func keep(m *linux.Machine, private []byte) error {
	if err := os.MkdirAll(m.Run, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(m.Run, keyFile), private, 0o600)
}

// runScript runs what came over the bus, as the stock agent does: from a file,
// with the message's environment for its own. The console sees what it says.
func runScript(ctx context.Context, console io.Writer, m bus.Message, report func(setup.Progress) error) bus.Reply {
	failed := func(err error) bus.Reply {
		return bus.Reply{ExitStatus: 1, Stderr: "muster-host: the script was not run: " + err.Error() + "\n"}
	}
	dir, err := os.MkdirTemp("", "ur-")
	if err != nil {
		return failed(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "script")
	if err := os.WriteFile(file, []byte(m.Script), 0o700); err != nil {
		return failed(err)
	}
	cmd := exec.CommandContext(ctx, file)
	if m.Env != nil {
		cmd.Env = []string{}
		for k, v := range m.Env {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
	}
	out, bad := &tail{limit: bus.MaxOutput}, &tail{limit: bus.MaxOutput}
	cmd.Stdout, cmd.Stderr = out, bad
	if m.Script == setup.Script {
		cmd.Stdout, cmd.Stderr = io.MultiWriter(out, &shown{to: console}), io.MultiWriter(bad, &shown{to: console})
	}
	if t := tell(m, report); t != nil {
		cmd.Stdout, cmd.Stderr = io.MultiWriter(cmd.Stdout, t.writer()), io.MultiWriter(cmd.Stderr, t.writer())
		defer t.end()
	}
	// Something started in the background may hold the pipes open.
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return bus.Reply{ExitStatus: exit.ExitCode(), Stdout: out.String(), Stderr: bad.String()}
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return bus.Reply{ExitStatus: 1, Stdout: out.String(), Stderr: bad.String() + "muster-host: " + err.Error() + "\n"}
	}
	return bus.Reply{Stdout: out.String(), Stderr: bad.String()}
}

// A tail keeps the end of what is written, twice limit at most.
type tail struct {
	b     bytes.Buffer
	limit int
}

func (t *tail) Write(p []byte) (int, error) {
	t.b.Write(p)
	if over := t.b.Len() - 2*t.limit; over > 0 {
		t.b.Next(t.b.Len() - t.limit)
	}
	return len(p), nil
}

func (t *tail) String() string { return t.b.String() }

// shown writes whole lines to the console, but never the proof of a sentinel.
type shown struct {
	to   io.Writer
	line []byte
}

func (s *shown) Write(p []byte) (int, error) {
	s.line = append(s.line, p...)
	for {
		i := bytes.IndexByte(s.line, '\n')
		if i < 0 {
			if len(s.line) > 64<<10 {
				s.line = nil
			}
			return len(p), nil
		}
		if _, _, secret := setup.ParseSentinel(string(s.line[:i])); !secret {
			s.to.Write(s.line[:i+1])
		}
		s.line = append([]byte(nil), s.line[i+1:]...)
	}
}
