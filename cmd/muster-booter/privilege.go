package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// An identity is the user to become; the zero value is whoever we are.
type identity struct {
	name     string
	uid, gid int
}

func lookup(name string) (identity, error) {
	if name == "" {
		return identity{}, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return identity{}, fmt.Errorf("--user: %w; create it with: useradd --system --no-create-home %s", err, name)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return identity{}, err
	}
	if uid == 0 {
		return identity{}, errors.New("--user: root is what this flag is to get away from; name another user")
	}
	return identity{name, uid, gid}, nil
}

// makeDir makes the booter's directory if it is not there, and gives it to the
// user if it is root's and empty. One that is in use is left as it is.
func makeDir(dir string, who identity) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; make the directory above it", err)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if who.name == "" {
		return nil
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	in, err := os.ReadDir(dir)
	if err != nil || len(in) > 0 || st.Sys().(*syscall.Stat_t).Uid != 0 {
		return err
	}
	return os.Lchown(dir, who.uid, who.gid)
}

// own gives a file below root to the user.
func (who identity) own(root *os.Root, name string) error {
	if who.name == "" {
		return nil
	}
	return root.Lchown(name, who.uid, who.gid)
}

// become gives up root for good: no group, no capability, no way back. The
// sockets that are bound go on working.
func (who identity) become() error {
	if who.name == "" {
		return nil
	}
	if os.Geteuid() != 0 {
		if os.Geteuid() == who.uid {
			return nil
		}
		return fmt.Errorf("--user %s needs root to start with; start as %s and leave the flag out", who.name, who.name)
	}
	// These act on every thread of the process; the last one cannot when the
	// program is linked with cgo, and then the kernel's rule has to do that no
	// capability outlives the change of user.
	if err := syscall.Setgroups([]int{who.gid}); err != nil {
		return fmt.Errorf("leaving root's groups: %w", err)
	}
	if err := syscall.Setresgid(who.gid, who.gid, who.gid); err != nil {
		return fmt.Errorf("becoming group %d: %w", who.gid, err)
	}
	if err := syscall.Setresuid(who.uid, who.uid, who.uid); err != nil {
		return fmt.Errorf("becoming user %s: %w", who.name, err)
	}
	if _, _, errno := syscall.AllThreadsSyscall6(syscall.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 && errno != syscall.ENOTSUP {
		return fmt.Errorf("giving up new privileges: %w", errno)
	}
	if os.Geteuid() == 0 || syscall.Setuid(0) == nil {
		return errors.New("root could not be given up; nothing is served")
	}
	return nil
}
