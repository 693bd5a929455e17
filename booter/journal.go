package booter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/durable"
)

// A step is how far an install has come. Each is on disk before what it
// permits is done; that is how a booter that was killed knows what it may
// still do.
type step string

const (
	stepTaking   step = "taking"   // the bundle is being asked for
	stepTaken    step = "taken"    // the control plane has handed it out; nothing was sent
	stepSent     step = "sent"     // the script may have reached the machine: never again
	stepOutcome  step = "outcome"  // how it ended is known
	stepReported step = "reported" // and the control plane knows it too
	stepGone     step = "gone"     // tombstone: nothing is remembered of this machine
)

// An entry is what the journal remembers of one machine: its newest install.
// It holds no secret of the bundle.
type entry struct {
	ServerUUID string               `json:"server_uuid"`
	Epoch      int64                `json:"setup_epoch,omitempty"`
	Step       step                 `json:"step"`
	At         time.Time            `json:"at"`
	Session    string               `json:"session,omitempty"`
	MAC        string               `json:"mac,omitempty"`
	PublicKey  string               `json:"public_key,omitempty"`
	Request    string               `json:"request,omitempty"`  // id of the execute
	FeedSeq    int64                `json:"feed_seq,omitempty"` // of the feed that showed the install
	GiveUp     time.Time            `json:"give_up,omitzero"`   // no answer is awaited after this
	Script     string               `json:"script,omitempty"`   // digest of what was taken
	Success    bool                 `json:"success,omitempty"`
	Outcome    *muster.SetupOutcome `json:"outcome,omitempty"`
}

// finished: it went well, and the control plane may not have said so yet.
func (e *entry) finished() bool {
	return e.Success && e.Outcome != nil && (e.Step == stepOutcome || e.Step == stepReported)
}

// A disk is where a journal lives; tests pull its plug.
type disk interface {
	ReadFile(path string) ([]byte, error)
	// Append opens a file to write at its end; create empties it first.
	Append(path string, create bool) (diskFile, error)
	// Rename replaces to, for good.
	Rename(from, to string) error
}

type diskFile interface {
	io.WriteCloser
	Sync() error
	Truncate(size int64) error
}

// compactAt is the size, in bytes, above which a journal is rewritten when
// most of it is history.
const compactAt = 64 << 10

// errStale refuses a step that does not follow from what is true now.
var errStale = errors.New("the install has moved on")

// A journal is an append-only file of JSON lines, one entry a line, the last
// one of a machine being true.
type journal struct {
	path string
	disk disk

	writing sync.Mutex // held while the disk works; readers need not wait for it
	file    diskFile
	size    int64 // of the whole lines in file
	broken  error // file is not to be written to: the journal must be rewritten first

	rewritten int64 // size after the last rewrite

	mu      sync.Mutex
	entries map[string]entry
}

// openJournal reads a journal; a file that does not exist is an empty one. A
// last line that was cut off while it was written never happened. Any other
// line that cannot be read is an error: what it said could be that a script
// was sent.
func openJournal(path string, d disk) (*journal, error) {
	j := &journal{path: path, disk: d, entries: map[string]entry{}}
	b, err := d.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the install journal: %w", err)
	}
	for n := 1; len(b) > 0; n++ {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		var e entry
		if err := json.Unmarshal(line, &e); err != nil || e.ServerUUID == "" || e.Step == "" {
			if whole && len(rest) > 0 {
				return nil, fmt.Errorf("the install journal %s is damaged at line %d: if no install is under way, move it away and start the booter again", path, n)
			}
			break
		}
		if !whole {
			break
		}
		j.apply(e)
		b = rest
	}
	// Beginning with a fresh file also gets rid of a cut-off line. A full disk
	// keeps nobody from reading what is true, nor machines of the fleet from
	// booting: no install goes on until it can be written down.
	j.broken = j.rewrite()
	return j, nil
}

func (j *journal) apply(e entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.Step == stepGone {
		delete(j.entries, e.ServerUUID)
		return
	}
	j.entries[e.ServerUUID] = e
}

// put makes an entry durable, then true, provided that the machine's entry is
// of the same epoch and at step from; "" means that there must be none.
func (j *journal) put(from step, e entry) error {
	j.writing.Lock()
	defer j.writing.Unlock()
	if now, ok := j.get(e.ServerUUID); ok != (from != "") || ok && (now.Step != from || now.Epoch != e.Epoch) {
		return errStale
	}
	if j.broken != nil {
		if err := j.rewrite(); err != nil {
			return fmt.Errorf("the install journal %s cannot be written: %w", j.path, err)
		}
	}
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding a line of the install journal: %w", err)
	}
	if err := j.append(append(line, '\n')); err != nil {
		return fmt.Errorf("the install journal %s cannot be written: %w", j.path, err)
	}
	j.apply(e)
	if j.size > compactAt && j.size > 4*j.rewritten {
		j.rewrite() // if it fails, the next line tries again first
	}
	return nil
}

// append writes a line and waits for the disk. A line that may be there in
// part is taken back: the next one must not be glued to it.
func (j *journal) append(line []byte) error {
	_, err := j.file.Write(line)
	if err == nil {
		err = j.file.Sync()
	}
	if err == nil {
		j.size += int64(len(line))
		return nil
	}
	if terr := errors.Join(j.file.Truncate(j.size), j.file.Sync()); terr != nil {
		j.broken = terr
	}
	return err
}

// rewrite replaces the file by one that holds only what is true now.
func (j *journal) rewrite() error {
	var b bytes.Buffer
	for _, e := range j.all() {
		if err := json.NewEncoder(&b).Encode(e); err != nil {
			return err
		}
	}
	f, err := j.disk.Append(j.path+".new", true)
	if err != nil {
		return err
	}
	_, err = f.Write(b.Bytes())
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = j.disk.Rename(j.path+".new", j.path)
	}
	if err != nil {
		f.Close()
		j.broken = err // the old file may have been replaced all the same: it is not written to again
		return err
	}
	if j.file != nil {
		j.file.Close()
	}
	j.file, j.size, j.rewritten, j.broken = f, int64(b.Len()), int64(b.Len()), nil
	return nil
}

func (j *journal) get(uuid string) (entry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e, ok := j.entries[uuid]
	return e, ok
}

func (j *journal) all() []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]entry, 0, len(j.entries))
	for _, e := range j.entries {
		out = append(out, e)
	}
	return out
}

// any tells whether there is an entry like that; it makes no garbage.
func (j *journal) any(like func(*entry) bool) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.entries {
		if like(&e) {
			return true
		}
	}
	return false
}

func (j *journal) close() error {
	j.writing.Lock()
	defer j.writing.Unlock()
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}

// osDisk is the real one.
type osDisk struct{}

func (osDisk) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

func (osDisk) Append(path string, create bool) (diskFile, error) {
	flags := os.O_WRONLY | os.O_APPEND | os.O_CREATE
	if create {
		flags |= os.O_TRUNC
	}
	return os.OpenFile(path, flags, 0o600)
}

func (osDisk) Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(to))
}
