package linux

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Path is where tools are, in an image and elsewhere.
const Path = "/usr/sbin:/usr/bin:/sbin:/bin"

// PrepareInitrd does what the first process of an initrd has to do before
// anything else can be done: the kernel's file systems and a console.
func PrepareInitrd() error {
	os.Setenv("PATH", Path)
	unix.Umask(0o022)
	for _, m := range []struct {
		kind, on string
		flags    uintptr
		data     string
	}{
		{"proc", "/proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"sysfs", "/sys", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"devtmpfs", "/dev", unix.MS_NOSUID, "mode=0755"},
		{"tmpfs", "/run", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
		{"tmpfs", "/tmp", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	} {
		if err := os.MkdirAll(m.on, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.on, m.kind, m.flags, m.data); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mounting %s: %w", m.on, err)
		}
	}
	return openConsole()
}

// openConsole makes /dev/console standard input, output and error: the kernel
// may have started this process without.
func openConsole() error {
	fd, err := unix.Open("/dev/console", unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil // a machine without a console works in silence
	}
	for i := range 3 {
		if err := unix.Dup3(fd, i, 0); err != nil && fd != i {
			return err
		}
	}
	if fd > 2 {
		unix.Close(fd)
	}
	return nil
}

// LoadModules loads the kernel modules listed in a file, a path a line, in
// order. It says which could not be loaded: a machine can live without most.
// Those for hardware that is not here, and what is built on them, are no
// failures: an image carries the drivers of every hypervisor.
func LoadModules(list string) (failed []string, err error) {
	f, err := os.Open(list)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	absent := map[string]bool{}
	for s := bufio.NewScanner(f); s.Scan(); {
		path, params, _ := strings.Cut(strings.TrimSpace(s.Text()), " ")
		if path == "" || strings.HasPrefix(path, "#") {
			continue
		}
		switch err := loadModule(path, params); {
		case err == nil, errors.Is(err, unix.EEXIST):
		case err == unix.ENODEV, err == unix.ENOENT && dependsOn(path, absent):
			absent[moduleName(path)] = true
		default:
			failed = append(failed, fmt.Sprintf("%s: %v", path, err))
		}
	}
	return failed, nil
}

func moduleName(path string) string {
	return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(path), ".ko"), "-", "_")
}

// dependsOn tells whether a module's own list of what it needs has one of these
// names. The kernel only says that a symbol is missing.
func dependsOn(path string, names map[string]bool) bool {
	b, err := os.ReadFile(path)
	_, after, found := bytes.Cut(b, []byte("\x00depends="))
	if err != nil || !found {
		return false
	}
	list, _, _ := bytes.Cut(after, []byte{0})
	for name := range strings.SplitSeq(string(list), ",") {
		if names[name] {
			return true
		}
	}
	return false
}

func loadModule(path, params string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), params, 0)
}

// WriteHostID gives the machine the host id that pools are marked with, drawn
// from its UUID, so that it is the same at every start and differs from others'.
func WriteHostID(uuid string) error {
	sum := sha256.Sum256([]byte("muster hostid\n" + uuid))
	sum[0] |= 1 // zero means that there is none
	return os.WriteFile("/etc/hostid", sum[:4], 0o644)
}

// Tend is the life of the first process: it starts a program again whenever
// that ends, and buries orphans. It returns when the program ends with the
// status that says that its work in the initrd is done.
func Tend(argv []string, done int, say func(string)) error {
	start := func() (int, error) {
		return syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	}
	for {
		began := time.Now()
		child, err := start()
		if err != nil {
			return fmt.Errorf("starting %s: %w", argv[0], err)
		}
		status, err := bury(child)
		if err != nil || status.Exited() && status.ExitStatus() == done {
			return err
		}
		say(fmt.Sprintf("the host ended (%s) and is started again", ending(status)))
		if time.Since(began) < 5*time.Second {
			time.Sleep(5 * time.Second) // not in a circle as fast as it can
		}
	}
}

// bury waits for orphans until the child itself has ended.
func bury(child int) (syscall.WaitStatus, error) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil || pid == child:
			return ws, err
		}
	}
}

func ending(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return ws.Signal().String()
	}
	return fmt.Sprintf("exit status %d", ws.ExitStatus())
}

// Restart has what runs this machine restart it: systemd, or this program where
// it is the first process.
func (m *Machine) Restart() error {
	switch m.Profile().ServiceManager {
	case "systemd":
		_, err := m.run("systemctl", "reboot")
		return err
	case "muster-host":
		return Reboot()
	}
	return errors.New("it has neither systemd nor muster-host as its first process")
}

// Reboot restarts the machine, with everything written.
func Reboot() error {
	unix.Sync()
	return unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}
