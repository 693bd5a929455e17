package booter

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"muster.internal"
)

// brittleDisk is a real disk whose power fails at a certain operation. Writes
// are cut off in the middle. Nothing works after that.
type brittleDisk struct {
	osDisk
	mu      sync.Mutex
	left    int // operations until the power fails; below 0: never
	dead    bool
	failed  bool   // fail that one operation and go on: a full disk
	onDeath func() // called once
}

var errPower = errors.New("the power is gone")

// step counts an operation; false: it must not happen, or only in part.
func (d *brittleDisk) step() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return false
	}
	if d.left < 0 {
		return true
	}
	if d.left--; d.left >= 0 {
		return true
	}
	if d.failed {
		return false
	}
	d.dead = true
	if d.onDeath != nil {
		d.onDeath()
	}
	return false
}

func (d *brittleDisk) Append(path string, create bool) (diskFile, error) {
	if !d.step() {
		return nil, errPower
	}
	f, err := d.osDisk.Append(path, create)
	return brittleFile{f, d}, err
}

func (d *brittleDisk) Rename(from, to string) error {
	if !d.step() {
		return errPower
	}
	return os.Rename(from, to)
}

// quickDisk does not wait for the real disk, and its power never fails.
func quickDisk() *brittleDisk { return &brittleDisk{left: -1} }

type brittleFile struct {
	diskFile
	d *brittleDisk
}

func (f brittleFile) Write(b []byte) (int, error) {
	if f.d.isDead() {
		return 0, errPower
	}
	if !f.d.step() {
		n, _ := f.diskFile.Write(b[:len(b)/2])
		return n, errPower
	}
	return f.diskFile.Write(b)
}

func (d *brittleDisk) isDead() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dead
}

func (f brittleFile) Sync() error {
	if !f.d.step() {
		return errPower
	}
	return nil // a process that is killed leaves its writes to the kernel
}

func (f brittleFile) Truncate(size int64) error {
	if f.d.isDead() {
		return errPower
	}
	return f.diskFile.Truncate(size)
}

// life writes the whole life of some installs and returns what was made
// durable, by machine, and the entry that was being written when it ended.
func life(j *journal) (done map[string]entry, cut entry, err error) {
	done = map[string]entry{}
	for epoch := range int64(1) {
		for _, uuid := range []string{uuidA, uuidB} {
			from := step("")
			for _, to := range []step{stepTaking, stepTaken, stepSent, stepOutcome, stepReported, stepGone} {
				e := entry{ServerUUID: uuid, Epoch: epoch, Step: to, At: noon, Session: strings.Repeat("s", 20),
					Outcome: &muster.SetupOutcome{Epoch: epoch, Log: strings.Repeat("log ", 500)}}
				if err := j.put(from, e); err != nil {
					return done, e, err
				}
				done[uuid] = e
				if to == stepGone {
					delete(done, uuid)
				}
				from = to
			}
		}
	}
	return done, entry{}, nil
}

func remembered(j *journal) map[string]entry {
	m := map[string]entry{}
	for _, e := range j.all() {
		m[e.ServerUUID] = e
	}
	return m
}

// TestJournalSurvivesPowerCut cuts the power at every operation there is. What
// put had promised is there; what it was about to promise may be.
func TestJournalSurvivesPowerCut(t *testing.T) {
	for n := 0; ; n++ {
		path := filepath.Join(t.TempDir(), "journal")
		d := &brittleDisk{left: n}
		j, err := openJournal(path, d)
		done := map[string]entry{}
		var cut entry
		if err == nil {
			done, cut, err = life(j)
		}
		if err == nil {
			if n < 12*2 {
				t.Fatalf("only %d operations", n)
			}
			return // the power lasted for all of it
		}
		again, err := openJournal(path, quickDisk())
		if err != nil {
			t.Fatalf("power cut at operation %d: %v", n, err)
		}
		got := remembered(again)
		want := maps.Clone(done)
		if cut.Step == "" || cmp.Equal(got, want) { // cut while opening: there was nothing yet
			if len(got) != len(want) {
				t.Fatalf("power cut at operation %d: %v", n, got)
			}
			continue
		}
		if cut.Step == stepGone {
			delete(want, cut.ServerUUID)
		} else {
			want[cut.ServerUUID] = cut
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("power cut at operation %d: %s", n, d)
		}
	}
}

// TestJournalOnAFullDisk fails one operation and goes on: the entry is not
// true, and the next ones are whole.
func TestJournalOnAFullDisk(t *testing.T) {
	for n := range 16 { // below four: while it is opened
		path := filepath.Join(t.TempDir(), "journal")
		d := &brittleDisk{left: n, failed: true}
		j, err := openJournal(path, d)
		if err != nil {
			t.Fatal(err)
		}
		from, failures := step(""), 0
		for _, to := range []step{stepTaking, stepTaken, stepSent, stepOutcome, stepReported} {
			e := entry{ServerUUID: uuidA, Epoch: 1, Step: to, At: noon}
			for j.put(from, e) != nil {
				failures++
				if now, _ := j.get(uuidA); now.Step != from {
					t.Fatalf("operation %d: %s is true though it was not written", n, now.Step)
				}
				d.left = -1 // room again
			}
			from = to
		}
		again, err := openJournal(path, quickDisk())
		if err != nil {
			t.Fatalf("operation %d: %v", n, err)
		}
		if e, _ := again.get(uuidA); e.Step != stepReported || failures > 1 {
			t.Errorf("operation %d: %d failures, then %s", n, failures, e.Step)
		}
	}
}

// lateDisk renames, and says that it failed: the directory could not be synced.
type lateDisk struct {
	*brittleDisk
	fail int // renames that say so
}

func (d *lateDisk) Rename(from, to string) error {
	err := d.brittleDisk.Rename(from, to)
	if d.fail--; d.fail >= 0 {
		return errors.Join(err, errPower)
	}
	return err
}

// TestJournalIsWrittenWhereItIsRead: when a rewritten journal has taken the
// place of the old one though it was called a failure, no line goes to the file
// that nobody will find again.
func TestJournalIsWrittenWhereItIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	d := &lateDisk{brittleDisk: quickDisk(), fail: 1}
	j, err := openJournal(path, d)
	if err != nil {
		t.Fatal(err)
	}
	put := func(from, to step) {
		t.Helper()
		if err := j.put(from, entry{ServerUUID: uuidA, Epoch: 1, Step: to, At: noon}); err != nil {
			t.Fatal(err)
		}
		again, err := openJournal(path, quickDisk())
		if e, _ := again.get(uuidA); err != nil || e.Step != to {
			t.Fatalf("%s was promised, %q is read (%v)", to, e.Step, err)
		}
		j.mu.Lock()
		j.broken = errPower // the reader has replaced the file
		j.mu.Unlock()
	}
	put("", stepTaking)
	put(stepTaking, stepTaken)
	d.fail = 1
	j.broken = nil
	if err := j.rewrite(); err == nil {
		t.Fatal("the rewrite did not fail")
	}
	put(stepTaken, stepSent)
}

// TestJournalCutAnywhere truncates a journal at every byte.
func TestJournalCutAnywhere(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "journal")
	j, err := openJournal(path, quickDisk())
	if err != nil {
		t.Fatal(err)
	}
	steps := []step{stepTaking, stepTaken, stepSent, stepOutcome}
	from := step("")
	for _, to := range steps {
		if err := j.put(from, entry{ServerUUID: uuidA, Epoch: 1, Step: to, At: noon, Session: "s"}); err != nil {
			t.Fatal(err)
		}
		from = to
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) + 1 {
		p := filepath.Join(dir, "cut")
		if err := os.WriteFile(p, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := openJournal(p, quickDisk())
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		want := step("")
		if lines := bytes.Count(whole[:cut], []byte("\n")); lines > 0 {
			want = steps[lines-1]
		}
		if e, _ := j.get(uuidA); e.Step != want {
			t.Errorf("cut at %d: %q, want %q", cut, e.Step, want)
		}
		if b, _ := os.ReadFile(p); len(b) > 0 && b[len(b)-1] != '\n' {
			t.Errorf("cut at %d: the piece is still there", cut)
		}
		j.close()
	}
}

// TestJournalRefusesDamage: a line in the middle that cannot be read may have
// said that a script was sent.
func TestJournalRefusesDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	line := `{"server_uuid":"` + uuidA + `","setup_epoch":1,"step":"sent","at":"2026-11-30T12:00:00Z"}` + "\n"
	for _, bad := range []string{"x\n", "{}\n", `{"server_uuid":"x"}` + "\n", "\x00\x00\n"} {
		os.WriteFile(path, []byte(line+bad+line), 0o600)
		if _, err := openJournal(path, osDisk{}); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestJournalStepsFollow(t *testing.T) {
	j, err := openJournal(filepath.Join(t.TempDir(), "journal"), osDisk{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(from step, epoch int64, to step) error {
		return j.put(from, entry{ServerUUID: uuidA, Epoch: epoch, Step: to})
	}
	for _, c := range []struct {
		from  step
		epoch int64
		to    step
		stale bool
	}{
		{stepTaking, 1, stepTaken, true}, {"", 1, stepTaking, false}, {"", 1, stepTaking, true}, {"", 2, stepTaking, true}, {stepTaking, 2, stepTaken, true},
		{stepTaking, 1, stepTaken, false}, {stepTaken, 1, stepSent, false}, {stepTaken, 1, stepSent, true}, {stepSent, 1, stepOutcome, false},
		{stepSent, 1, stepOutcome, true}, {stepOutcome, 1, stepGone, false}, {"", 2, stepTaking, false},
	} {
		if err := put(c.from, c.epoch, c.to); errors.Is(err, errStale) != c.stale || err != nil && !c.stale {
			t.Errorf("from %q to %q of epoch %d: %v", c.from, c.to, c.epoch, err)
		}
	}
}

func TestJournalStaysSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := openJournal(path, quickDisk())
	if err != nil {
		t.Fatal(err)
	}
	for n := range 300 {
		uuid := fmt.Sprintf("machine-%d", n%5)
		from := step("")
		if e, ok := j.get(uuid); ok {
			from = e.Step
		}
		if err := j.put(from, entry{ServerUUID: uuid, Step: step(fmt.Sprintf("step-%d", n)), At: time.Unix(int64(n), 0), Script: strings.Repeat("x", 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	if i, err := os.Stat(path); err != nil || i.Size() > 2*compactAt || i.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", i, err)
	}
	again, err := openJournal(path, quickDisk())
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(remembered(again))); len(got) != 5 {
		t.Errorf("remembers %v", got)
	}
	if e, _ := again.get("machine-4"); e.Step != "step-299" {
		t.Errorf("remembers %s", e.Step)
	}
}
