// Package state is what a host keeps on its disk: the ledger of what it owns,
// the declarations it was given, and the originals of what it adopted. Each
// record is there twice and carries a checksum; a power cut leaves the old one
// or the new one.
//
// It must never decide what becomes of a resource, and never hold a credential
// (package credential does).
package state

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"muster.internal/durable"
)

// A Dir is a host's state directory, locked for one process.
type Dir struct {
	path string
	lock *os.File
}

// ErrBusy means that another muster-host works on this machine.
var ErrBusy = errors.New("another muster-host is at work on this machine")

// Open makes the directory where it is not there, and locks it. It waits that
// long for another process, then fails with ErrBusy.
func Open(path string, wait time.Duration) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	f, err := lock(filepath.Join(path, "lock"))
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			d := &Dir{path, f}
			durable.Sweep(d.path)
			durable.Sweep(d.Originals())
			return d, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if time.Now().After(end) {
			f.Close()
			return nil, fmt.Errorf("%w (it holds %s)", ErrBusy, f.Name())
		}
	}
}

// lock opens a file that can be locked. On a file system that is read-only it must
// be there, and all can be read.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, unix.EROFS) {
		if f, e := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0); e == nil {
			return f, nil
		}
	}
	return f, err
}

// Live holds a state directory for the process that lives by it, beside those that
// work on it now and then. ErrLived means that another one does.
func Live(path string) (end func() error, err error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	f, err := lock(filepath.Join(path, "live"))
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%w (it holds %s)", ErrLived, f.Name())
		}
		return nil, err
	}
	return f.Close, nil
}

// ErrLived means that another muster-host lives by this state.
var ErrLived = errors.New("another muster-host runs on this state directory, and a machine has one")

// Close unlocks it.
func (d *Dir) Close() error { return d.lock.Close() }

// Originals is where the first contents of adopted files are kept.
func (d *Dir) Originals() string { return filepath.Join(d.path, "originals") }

// copies are the names of the two copies of a record.
func (d *Dir) copies(name string) [2]string {
	return [2]string{filepath.Join(d.path, name+".a"), filepath.Join(d.path, name+".b")}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal puts the checksum (CRC-32C) of a line before it.
func seal(line []byte) []byte {
	b := make([]byte, 0, len(line)+len("01234567 \n")) // a record may be long: it is copied once
	b = fmt.Appendf(b, "%08x ", crc32.Checksum(line, castagnoli))
	return append(append(b, line...), '\n')
}

// unseal takes it off; false when the line is not whole.
func unseal(line []byte) ([]byte, bool) {
	sum, rest, found := bytes.Cut(line, []byte(" "))
	was, err := hex.DecodeString(string(sum))
	return rest, found && err == nil && len(was) == 4 && binary.BigEndian.Uint32(was) == crc32.Checksum(rest, castagnoli)
}

// Save keeps a record under a name, in both copies.
func (d *Dir) Save(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	b = seal(b)
	for _, path := range d.copies(name) {
		if err := durable.Replace(path, b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Load reads the record of that name from the first copy that is whole. It is
// fs.ErrNotExist when there is none, and ErrDamaged when there is and no copy
// is whole.
func (d *Dir) Load(name string, v any) error {
	there := false
	for _, path := range d.copies(name) {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		there = true
		if line, whole := unseal(bytes.TrimSuffix(b, []byte("\n"))); err == nil && whole && json.Unmarshal(line, v) == nil {
			return nil
		}
	}
	if there {
		return fmt.Errorf("%w: %s", ErrDamaged, filepath.Join(d.path, name))
	}
	return fs.ErrNotExist
}

// Drop removes the record of that name.
func (d *Dir) Drop(name string) error {
	for _, path := range d.copies(name) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// ErrDamaged means that no copy of a record can be read whole.
var ErrDamaged = errors.New("both copies of the record are damaged")
