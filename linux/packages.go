package linux

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"muster.internal/resource"
)

const (
	// lockWait is how long another run of the package manager is waited for.
	lockWait = 2 * time.Minute
	lockRest = 2 * time.Second
	// installWithin is the time for one package, its download included.
	installWithin = 30 * time.Minute
)

// packages is the hand for packages. What is installed is read once, and again
// after each change; lists are fetched once an apply, and only when they do not
// have what is declared.
type packages struct {
	name        string // of the manager; empty until it is first asked
	root        string
	environment []string
	wait        time.Duration
	installed   map[string]string
	refreshed   bool
}

func newPackages() *packages { return &packages{root: "/", wait: lockWait} }

func (p *packages) manager() (*manager, error) {
	if p.name == "" {
		p.name = New(slog.New(slog.DiscardHandler)).Profile().PackageManager
	}
	m := managers[p.name]
	if m == nil {
		return nil, errors.New("this machine has no package manager that the host knows: apt, dnf, pacman or apk")
	}
	return m, nil
}

// read tells whether a package is installed, and in which version.
func (p *packages) read(name string) (resource.State, error) {
	m, err := p.manager()
	if err != nil {
		return nil, err
	}
	if p.installed == nil {
		if p.installed, err = m.list(p.root); err != nil {
			return nil, fmt.Errorf("what %s has installed cannot be read: %w", p.name, err)
		}
	}
	version, is := p.installed[name]
	if !is {
		return nil, nil
	}
	return resource.State{resource.FieldType: "installed", resource.FieldVersion: version}, nil
}

// install puts a package on the machine, newer or older than what is there. It
// takes care of what can be in the way: lists that are old, an earlier run that
// was cut short, another one that is at work.
func (p *packages) install(want *resource.Package) error {
	m, err := p.manager()
	if err != nil {
		return err
	}
	p.installed = nil
	command := m.install(want.Name, want.Version)
	out, err := p.run(m, command)
	if err != nil && m.broken.in(out) {
		if out, err := p.run(m, m.repair); err != nil {
			return withOutput(fmt.Errorf("an earlier run was cut short, and %s could not end it: %w", strings.Join(m.repair, " "), err), out)
		}
		out, err = p.run(m, command)
	}
	if err != nil && m.unknown.in(out) && !p.refreshed {
		p.refreshed = true
		if out, err := p.run(m, m.refresh); err != nil {
			return withOutput(fmt.Errorf("%s does not know %s, and its lists could not be fetched anew: %w", p.name, joined(want.Name, " ", want.Version), err), out)
		}
		out, err = p.run(m, command)
	}
	if err != nil {
		return withOutput(fmt.Errorf("%s: %w", command[0], err), out)
	}
	if is, err := p.read(want.Name); err == nil && is == nil {
		return fmt.Errorf("%s ended well, and no package is called %s now; if that is a name that others provide, declare the one that is meant", command[0], want.Name)
	}
	return nil
}

// run runs one command of the manager, and waits while another run holds its
// lock.
func (p *packages) run(m *manager, command []string) (string, error) {
	until := time.Now().Add(p.wait)
	for {
		out, err := runBounded(command, installWithin, append(p.environment, m.environment...))
		if err == nil || !m.locked.in(out) {
			return out, err
		}
		if time.Now().After(until) {
			return out, fmt.Errorf("the package manager is locked by %s, and was for %v: %w", lockHolder(p.root, m.locks), p.wait, err)
		}
		time.Sleep(lockRest)
	}
}

// lockHolder names who holds one of the lock files: by the lock itself, or by
// the process number in it.
func lockHolder(root string, locks []string) string {
	left := ""
	for _, name := range locks {
		name = filepath.Join(root, name)
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		err = unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock)
		b := make([]byte, 16)
		n, _ := f.Read(b)
		f.Close()
		if pid, e := strconv.Atoi(strings.TrimSpace(string(b[:n]))); e == nil && (err != nil || lock.Type == unix.F_UNLCK) {
			lock.Type, lock.Pid = unix.F_WRLCK, int32(pid)
		}
		if lock.Type == unix.F_UNLCK {
			left = name
			continue
		}
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", lock.Pid)); err == nil {
			return fmt.Sprintf("process %d (%s)", lock.Pid, strings.TrimSpace(string(comm)))
		}
		left = name
	}
	if left != "" {
		return fmt.Sprintf("nobody who can be found (if none of its programs runs, see what %s is)", left)
	}
	return "nobody who can be found"
}
