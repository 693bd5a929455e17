//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"muster.internal"
	"muster.internal/client"
)

// A musterd is the process that is measured, and an operator of it.
type musterd struct {
	program, dir, address string
	cmd                   *exec.Cmd
	admin                 *client.Client
	ca                    []byte
}

func start(ctx context.Context, program string) (m *musterd, err error) {
	m = &musterd{}
	if m.program, err = filepath.Abs(program); err != nil {
		return nil, err
	}
	if m.dir, err = os.MkdirTemp("", "muster-bench-control"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m.address = free.Addr().String() // the same after a restart
	free.Close()
	if err := m.serve(ctx); err != nil {
		return nil, err
	}
	return m, m.login(ctx)
}

// serve starts the process and waits until it answers.
func (m *musterd) serve(ctx context.Context) error {
	m.cmd = exec.Command(m.program, "--dir", m.dir, "--listen", m.address, "--advertise", "https://"+m.address)
	log, err := os.OpenFile(filepath.Join(m.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	m.cmd.Stdout, m.cmd.Stderr = log, log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		return err
	}
	for range 600 {
		c, err := net.DialTimeout("tcp", m.address, time.Second)
		if err == nil {
			c.Close()
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	text, _ := os.ReadFile(filepath.Join(m.dir, "log"))
	return fmt.Errorf("musterd does not listen on %s: %s", m.address, text)
}

// login makes an operator's client by what the owner of the store may do.
func (m *musterd) login(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, m.program, "--dir", m.dir, "reset-password", "admin").Output()
	if err != nil {
		return fmt.Errorf("musterd reset-password: %w", err)
	}
	if m.ca, err = os.ReadFile(filepath.Join(m.dir, "tls", "ca.pem")); err != nil {
		return err
	}
	anyone, err := m.client("", client.Trust{CA: m.ca})
	if err != nil {
		return err
	}
	t, err := anyone.Login(ctx, muster.Login{Name: "admin", Password: strings.TrimSpace(string(out))})
	if err != nil {
		return err
	}
	m.admin = anyone.WithToken(t.Token)
	return nil
}

func (m *musterd) client(token string, t client.Trust) (*client.Client, error) {
	return client.New("https://"+m.address, token, t)
}

// kill ends it as a power cut would.
func (m *musterd) kill() error {
	if err := m.cmd.Process.Kill(); err != nil {
		return err
	}
	m.cmd.Wait() // it was killed
	return nil
}

func (m *musterd) close() {
	if m.cmd != nil && m.cmd.Process != nil {
		m.kill()
	}
	os.RemoveAll(m.dir)
}

// A cost is what the process has used and holds.
type cost struct {
	cpu       time.Duration
	resident  int64 // bytes now
	peak      int64 // bytes at most
	databases int64 // bytes of the store's files
}

func (m *musterd) cost() (c cost, err error) {
	proc := fmt.Sprintf("/proc/%d/", m.cmd.Process.Pid)
	stat, err := os.ReadFile(proc + "stat")
	if err != nil {
		return c, err
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // proc(5): from field 3 on
	for _, f := range fields[11:13] {                               // user and system time, in ticks of 10 ms
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return c, err
		}
		c.cpu += time.Duration(n) * 10 * time.Millisecond
	}
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		return c, err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "VmRSS":
			c.resident = n << 10
		case "VmHWM":
			c.peak = n << 10
		}
	}
	if c.resident == 0 {
		return c, errors.New("musterd is not there any more")
	}
	files, err := filepath.Glob(filepath.Join(m.dir, "*.db*"))
	for _, f := range files {
		if i, err := os.Stat(f); err == nil {
			c.databases += i.Size()
		}
	}
	return c, err
}
