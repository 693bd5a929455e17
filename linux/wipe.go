package linux

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

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
// it is another operation.
func wipe(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		return errors.New("it is in use")
	}
	if err != nil {
		return err
	}
	defer f.Close()
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
