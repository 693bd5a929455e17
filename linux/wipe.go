package linux

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"muster.internal"
	"muster.internal/layout"
)

// exclusive fails when the kernel uses a disk, or a partition of it.
func exclusive(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_EXCL, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// wipe clears what says that something is on a disk: tables, superblocks and
// labels of the disk and of its partitions. The data in between stays; erasing
// it is another operation. What was opened is looked at once more by is: a path
// may lead to another disk than it did a moment ago.
func wipe(name string, size int64, is func(*os.File) error) error {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_EXCL|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.EBUSY) {
		return errors.New("it is in use")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := is(f); err != nil {
		return err
	}
	whole := &region{r: f, size: size}
	_, parts := partitions(whole)
	if whole.err != nil {
		return whole.err
	}
	for _, g := range append(parts, whole) { // the table last: a cut must not hide the rest
		if err := clear(f, g); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	left, err := Contents(f, size)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("it still contains %s", layout.Contains(left[0]))
	}
	if len(parts) > 0 {
		// Let the kernel forget the partitions; a file has none.
		unix.IoctlSetInt(int(f.Fd()), unix.BLKRRPART, 0)
	}
	return err
}

// still returns a check that an open disk is the one that was planned: what the
// kernel says now of the device that is open.
func (m *Machine) still(d muster.Disk) func(*os.File) error {
	return func(f *os.File) error {
		now, err := ReadDisks(m.Sys, m.Proc, m.Dev)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(now, func(n muster.Disk) bool { return n.Path == d.Path })
		switch {
		case i < 0:
			return errors.New("it is gone")
		case d.Identity() == "" || now[i].Identity() != d.Identity() || now[i].Size != d.Size:
			return fmt.Errorf("this path leads to another disk now: %s, %d bytes", now[i].Describe(), now[i].Size)
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return err
		}
		name := strings.ReplaceAll(strings.TrimPrefix(d.Path, m.Dev+"/"), "/", "!")
		number := fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
		if want := attribute(m.Sys, path.Join("block", name, "dev")); want != "" && want != number {
			return fmt.Errorf("%s is device %s, and the disk is %s", d.Path, number, want)
		}
		return nil
	}
}

// clear writes zeros wherever a superblock may stand.
func clear(f *os.File, g *region) error {
	const piece = 1 << 20
	zeros := make([]byte, piece)
	for _, off := range []int64{
		0,
		64 << 20, 256 << 30, // btrfs keeps copies here
		g.size - piece, // ZFS, GPT and md keep theirs at the end
	} {
		off = max(off, 0)
		if n := min(piece, g.size-off); n > 0 {
			if _, err := f.WriteAt(zeros[:n], g.from+off); err != nil {
				return err
			}
		}
	}
	return nil
}
