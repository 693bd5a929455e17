//go:build linux

// Package plane runs a real musterd with the embedded store on loopback, for
// benchmarks of what is on either side of it.
//
// It must never measure anything itself: each benchmark does that in its own way.
package plane

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"muster.internal"
	"muster.internal/client"
)

// A Musterd is the process, and an operator of it.
type Musterd struct {
	Dir   string
	CA    []byte
	Admin *client.Client

	program, address string
	cmd              *exec.Cmd
}

// Start makes a new control plane in a directory of its own, and logs in.
func Start(ctx context.Context, program string) (m *Musterd, err error) {
	m = &Musterd{}
	if m.program, err = filepath.Abs(program); err != nil {
		return nil, err
	}
	if m.Dir, err = os.MkdirTemp("", "muster-bench-plane"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m.address = free.Addr().String() // the same after a restart
	free.Close()
	if err := m.Serve(ctx); err != nil {
		return nil, err
	}
	return m, m.login(ctx)
}

// Serve starts the process and waits until it answers.
func (m *Musterd) Serve(ctx context.Context) error {
	m.cmd = exec.Command(m.program, "--dir", m.Dir, "--listen", m.address, "--advertise", "https://"+m.address)
	log, err := os.OpenFile(filepath.Join(m.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
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
	text, _ := os.ReadFile(filepath.Join(m.Dir, "log"))
	return fmt.Errorf("musterd does not listen on %s: %s", m.address, text)
}

// login makes an operator's client by what the owner of the store may do.
func (m *Musterd) login(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, m.program, "--dir", m.Dir, "reset-password", "admin").Output()
	if err != nil {
		return fmt.Errorf("musterd reset-password: %w", err)
	}
	if m.CA, err = os.ReadFile(filepath.Join(m.Dir, "tls", "ca.pem")); err != nil {
		return err
	}
	anyone, err := m.Client("", client.Trust{CA: m.CA})
	if err != nil {
		return err
	}
	t, err := anyone.Login(ctx, muster.Login{Name: "admin", Password: strings.TrimSpace(string(out))})
	if err != nil {
		return err
	}
	m.Admin = anyone.WithToken(t.Token)
	return nil
}

// URL is where it answers.
func (m *Musterd) URL() string { return "https://" + m.address }

// Client is one of this control plane, with a bearer token or without.
func (m *Musterd) Client(token string, t client.Trust) (*client.Client, error) {
	return client.New(m.URL(), token, t)
}

// Kill ends it as a power cut would.
func (m *Musterd) Kill() error {
	if err := m.cmd.Process.Kill(); err != nil {
		return err
	}
	m.cmd.Wait() // it was killed
	return nil
}

// Pid is that of the process, another one after each Serve.
func (m *Musterd) Pid() int { return m.cmd.Process.Pid }

// Close ends it and removes all that it kept.
func (m *Musterd) Close() {
	if m.cmd != nil && m.cmd.Process != nil {
		m.Kill()
	}
	os.RemoveAll(m.Dir)
}
