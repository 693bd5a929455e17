package linux

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links a path may go over, as in the kernel.
const maxLinks = 40

// openParent opens the directory that a path is in, without going over a
// symbolic link that somebody else may have put there: root's own links, such
// as /bin, are followed, those of other accounts, or in directories that others
// can write to, are not (CWE-59). It returns the last name of the path, too.
func openParent(p string) (dir int, name string, err error) {
	parent, name := path.Split(p)
	dir, err = unix.Openat2(unix.AT_FDCWD, parent, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		dir, err = walk(parent)
	}
	if err != nil {
		return -1, "", wrap("open", parent, err)
	}
	return dir, name, nil
}

func wrap(op, p string, err error) error {
	var e unix.Errno
	if errors.As(err, &e) {
		return &os.PathError{Op: op, Path: p, Err: err}
	}
	return err
}

// walk goes down a path name by name.
func walk(p string) (int, error) {
	links := 0
	at, err := openRoot()
	if err != nil {
		return -1, err
	}
	seen := "/"
	rest := strings.Split(strings.Trim(p, "/"), "/")
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			unix.Close(at)
			return -1, err
		}
		var st unix.Stat_t
		if err := unix.Fstat(next, &st); err != nil {
			unix.Close(at)
			unix.Close(next)
			return -1, err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFLNK {
			unix.Close(at)
			at, seen = next, path.Join(seen, name)
			continue
		}
		unix.Close(next)
		target, err := trusted(at, name, path.Join(seen, name), st)
		if links++; err == nil && links > maxLinks {
			err = unix.ELOOP
		}
		if err == nil && path.IsAbs(target) {
			unix.Close(at)
			seen = "/"
			at, err = openRoot()
		}
		if err != nil {
			unix.Close(at)
			return -1, err
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, nil
}

func openRoot() (int, error) {
	return unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// trusted reads a link that root, or this account itself, made where nobody
// else can write.
func trusted(dir int, name, full string, st unix.Stat_t) (string, error) {
	ours := func(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }
	var d unix.Stat_t
	if err := unix.Fstat(dir, &d); err != nil {
		return "", err
	}
	if !ours(st.Uid) || !ours(d.Uid) || d.Mode&0o022 != 0 && d.Mode&unix.S_ISVTX == 0 {
		return "", fmt.Errorf("%s is a symbolic link that account %d could have put there, and is not followed", full, st.Uid)
	}
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, b)
	if err != nil {
		return "", err
	}
	return string(b[:n]), nil
}
