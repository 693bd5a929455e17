package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"muster.internal/durable"
	"muster.internal/resource"
)

const (
	ledgerName = "owned"
	lineUsual  = 300 // bytes of one record of a file, so that the text does not grow by copying
)

// An entry is one line of the ledger: a resource as it stands now, or that it
// is forgotten.
type entry struct {
	Number int64           `json:"n"`
	Put    *resource.Owned `json:"put,omitempty"`
	Forget resource.Ref    `json:"forget,omitempty"`
}

// A Ledger is the record of what the host owns, a journal in two copies that
// only grows until it is compacted.
type Ledger struct {
	dir    *Dir
	owned  map[resource.Ref]resource.Owned
	files  [2]*os.File
	sizes  [2]int64
	number int64
	lines  int    // in each file
	ahead  []byte // lines that are in no file yet
	dirty  bool
	// Lost says what could not be read back, for people; empty when all was. It
	// is said until Recovered.
	Lost string
}

// Ledger reads it. Each copy counts up to its first line that is not whole; the
// copy that got further wins, and both are made to be that one.
func (d *Dir) Ledger() (*Ledger, error) {
	l := &Ledger{dir: d, owned: map[resource.Ref]resource.Owned{}}
	var best, entries []entry
	var last [2]int64
	var before []byte
	bad, damaged := "", 0
	for i, path := range d.copies(ledgerName) {
		b, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if i == 0 || !bytes.Equal(b, before) { // as a rule they are the same
			entries, bad = readEntries(b)
		}
		before = b
		if bad != "" || err != nil {
			damaged++
			last[i] = -1
		}
		if bad == midway {
			l.Lost = fmt.Sprintf("%s is damaged after %d lines", path, len(entries))
		}
		if len(entries) == 0 {
			continue
		}
		if bad == "" {
			last[i] = entries[len(entries)-1].Number
		}
		if n := len(best); n == 0 || entries[len(entries)-1].Number > best[n-1].Number {
			best = entries
		}
	}
	if damaged < 2 {
		l.Lost = "" // the other copy is whole
	}
	if err := l.keepLost(); err != nil {
		return nil, err
	}
	for _, e := range best {
		if e.Put != nil {
			l.owned[e.Put.Ref] = *e.Put
		} else {
			delete(l.owned, e.Forget)
		}
		l.number = e.Number
	}
	l.lines = len(best)
	l.dirty = true // what a killed process wrote is there, and perhaps not durable
	if damaged == 0 && last[0] == last[1] {
		return l, nil // it is opened once there is something to write: it may be for reading alone
	}
	return l, l.rewrite()
}

const lostName = "lost"

// keepLost remembers a loss before the copies are made whole again.
func (l *Ledger) keepLost() error {
	if l.Lost != "" {
		return l.dir.Save(lostName, l.Lost)
	}
	err := l.dir.Load(lostName, &l.Lost)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, ErrDamaged):
		l.Lost = "part of it was lost before"
		return nil
	}
	return err
}

// Recovered ends a loss: what could be found again was.
func (l *Ledger) Recovered() error {
	l.Lost = ""
	return l.dir.Drop(lostName)
}

// How a copy is bad: its last line is cut short, as a crash leaves it, or a
// line in between is not what was written.
const (
	atEnd  = "at its end"
	midway = "midway"
)

// readEntries reads the lines up to the first that is not whole or out of turn.
func readEntries(b []byte) (entries []entry, bad string) {
	for len(b) > 0 {
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		if !ended {
			return entries, atEnd
		}
		var e entry
		text, whole := unseal(line)
		if !whole || json.Unmarshal(text, &e) != nil || (e.Put == nil) == (e.Forget == "") {
			return entries, midway
		}
		if n := len(entries); n > 0 && e.Number <= entries[n-1].Number {
			return entries, midway
		}
		entries, b = append(entries, e), rest
	}
	return entries, ""
}

func (l *Ledger) open() (err error) {
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	for i, path := range l.dir.copies(ledgerName) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return err
		}
		l.files[i] = f
		if l.sizes[i], err = f.Seek(0, io.SeekEnd); err != nil {
			return err
		}
	}
	return nil
}

// rewrite makes both copies anew from what is known, one after the other.
func (l *Ledger) rewrite() error {
	l.close()
	var b bytes.Buffer
	b.Grow(len(l.owned) * lineUsual)
	l.lines = 0
	for _, o := range l.All() {
		l.number++
		l.lines++
		line, err := json.Marshal(entry{Number: l.number, Put: &o})
		if err != nil {
			return err
		}
		b.Write(seal(line))
	}
	for _, path := range l.dir.copies(ledgerName) {
		if err := durable.Replace(path, b.Bytes(), 0o600); err != nil {
			return err
		}
	}
	return l.open()
}

// Get is the record of one resource.
func (l *Ledger) Get(ref resource.Ref) (resource.Owned, bool) {
	o, known := l.owned[ref]
	return o, known
}

// All are the records, by name.
func (l *Ledger) All() []resource.Owned {
	all := make([]resource.Owned, 0, len(l.owned))
	for _, o := range l.owned {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b resource.Owned) int { return strings.Compare(string(a.Ref), string(b.Ref)) })
	return all
}

// Write records a resource, on the disk from the next Sync on.
func (l *Ledger) Write(o resource.Owned) error {
	if err := l.append(entry{Put: &o}); err != nil {
		return err
	}
	l.owned[o.Ref] = o
	return nil
}

// Forget takes a resource off the record, in the same way.
func (l *Ledger) Forget(ref resource.Ref) error {
	if _, known := l.owned[ref]; !known {
		return nil
	}
	if err := l.append(entry{Forget: ref}); err != nil {
		return err
	}
	delete(l.owned, ref)
	return nil
}

func (l *Ledger) append(e entry) error {
	e.Number = l.number + 1
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	l.ahead = append(l.ahead, seal(line)...)
	l.dirty = true
	l.number++
	l.lines++
	return nil
}

// Sync writes what is to be recorded, and makes it survive a power cut.
func (l *Ledger) Sync() error {
	if !l.dirty {
		return nil
	}
	if l.files[0] == nil {
		if err := l.open(); err != nil {
			return fmt.Errorf("the record of what this host owns cannot be written: %w", err)
		}
	}
	for _, f := range l.files {
		if len(l.ahead) == 0 {
			break
		}
		if _, err := f.Write(l.ahead); err != nil {
			for i, f := range l.files { // half a line may be there, and nothing may follow it
				err = errors.Join(err, f.Truncate(l.sizes[i]))
			}
			return fmt.Errorf("the record of what this host owns cannot be written: %w", err)
		}
	}
	for i := range l.sizes {
		l.sizes[i] += int64(len(l.ahead))
	}
	l.ahead = l.ahead[:0]
	for _, f := range l.files {
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return fmt.Errorf("the record of what this host owns cannot be made durable: %w", err)
		}
	}
	l.dirty = false
	return nil
}

// Close makes what was written durable, and compacts it when most of its lines are
// history.
func (l *Ledger) Close() error {
	if len(l.ahead) == 0 && l.files[0] == nil {
		return nil
	}
	err := l.Sync()
	if err == nil && l.lines > 64+len(l.owned)+len(l.owned)/4 {
		err = l.rewrite()
	}
	l.close()
	return err
}

func (l *Ledger) close() {
	for i, f := range l.files {
		if f != nil {
			f.Close()
			l.files[i] = nil
		}
	}
}
