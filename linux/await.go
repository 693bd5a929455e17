package linux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// appearing are the ways for a file to come, and those for its directory to go.
const appearing = unix.IN_CREATE | unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF

// Await returns when a file is there, when something has happened beside it, or
// with ctx's error. The kernel says when; until then no code runs. The file's
// directory is made if it is not there.
func Await(ctx context.Context, file string) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("inotify: %w", err)
	}
	events := os.NewFile(uintptr(fd), "inotify") // non-blocking, so the runtime waits for it with all else
	defer events.Close()
	if _, err := unix.InotifyAddWatch(fd, dir, appearing); errors.Is(err, unix.ENOENT) {
		return nil // it went before the watch
	} else if err != nil {
		return fmt.Errorf("inotify on %s: %w", dir, err)
	}
	if _, err := os.Lstat(file); err == nil {
		return nil // it came before the watch
	}
	stop := context.AfterFunc(ctx, func() { events.SetReadDeadline(time.Now()) })
	defer stop()
	_, err = events.Read(make([]byte, 4096))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
