package linux

import (
	"errors"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// lasting is what was changed and may be undone by a power cut yet: by path, how
// it is opened to be made durable. A name that a file was given is the
// directory's; its access is its own.
type lasting map[string]int

func (l lasting) name(full string)   { l[path.Dir(full)] = unix.O_DIRECTORY }
func (l lasting) access(full string) { l[full] = unix.O_NOFOLLOW }

// services are enabled by links in these directories.
func (l lasting) services() { l[unitDir] = unix.O_DIRECTORY }

const unitDir = "/etc/systemd/system"

// needNot are the errors of what is something else by now, of a user who may not
// open what others made, and of file systems that cannot.
var needNot = []unix.Errno{unix.ELOOP, unix.EACCES, unix.EINVAL, unix.ENOSYS}

// sync makes it durable. What is not there any more, or is something else by now,
// need not be.
func (l lasting) sync() error {
	if _, units := l[unitDir]; units {
		for _, pattern := range []string{"*.wants", "*.requires"} {
			dirs, _ := filepath.Glob(path.Join(unitDir, pattern))
			for _, dir := range dirs {
				l[dir] = unix.O_DIRECTORY
			}
		}
	}
	for full, how := range l {
		fd, err := unix.Open(full, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC|how, 0)
		if err == nil {
			err = unix.Fsync(fd)
			unix.Close(fd)
		}
		if err != nil && !gone(err) && !slices.ContainsFunc(needNot, func(e unix.Errno) bool { return errors.Is(err, e) }) {
			return wrap("sync", full, err)
		}
		delete(l, full)
	}
	return nil
}

// Sync makes names and access of what was changed last; contents do already, and
// package managers and container engines see to theirs.
func (m *Resources) Sync() error { return m.paths.lasting.sync() }
