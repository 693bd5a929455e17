package lab

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"
)

// A Transcript is what a machine or a program says, line by line, with times.
// It is an io.Writer for the one who speaks, and can be waited on by others.
type Transcript struct {
	who string

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when a line comes
	lines   []Line
	partial string
	start   time.Time
	ended   string // why nothing more comes; empty while more may
	copy    io.Writer
	watch   func(who string, l Line)
}

// A Line is something that was said.
type Line struct {
	At   time.Duration // since the start
	Text string
}

func newTranscript(who string) *Transcript {
	return &Transcript{who: who, changed: make(chan struct{}), ended: "was never started"}
}

// begin starts the clock; everything is also written to w as it comes.
func (t *Transcript) begin(at time.Time, w io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.start, t.copy, t.ended, t.partial = at, w, "", ""
}

func (t *Transcript) end(why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended, t.copy = why, nil
	t.wake()
}

func (t *Transcript) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// Watch has f called with every line from now on. It must be quick.
func (t *Transcript) Watch(f func(who string, l Line)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watch = f
}

var escapes = regexp.MustCompile(`\x1b\[[0-9;?=]*[A-Za-z]|\x1b[=>()c78][0-9A-B]?|[\x00-\x08\x0b\x0c\x0e-\x1a]`)

// Write takes what is said. Lines end with any mix of CR and LF; screen
// control is left out, and so are empty lines.
func (t *Transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.copy != nil {
		t.copy.Write(p) // the file is for people; a full disk must not stop a machine
	}
	at := time.Since(t.start)
	t.partial += string(p)
	for {
		i := strings.IndexAny(t.partial, "\r\n")
		if i < 0 {
			break
		}
		if text := strings.TrimSpace(escapes.ReplaceAllString(t.partial[:i], "")); text != "" {
			t.lines = append(t.lines, Line{at, text})
			if t.watch != nil {
				t.watch(t.who, Line{at, text})
			}
		}
		t.partial = t.partial[i+1:]
	}
	if len(t.partial) > 8192 {
		t.partial = t.partial[4096:]
	}
	t.wake()
	return len(p), nil
}

// Since is the time since the start: of a machine, since it was switched on.
func (t *Transcript) Since() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.start)
}

// Lines returns what was said, from a mark on.
func (t *Transcript) Lines(mark int) []Line {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Line(nil), t.lines[min(mark, len(t.lines)):]...)
}

// Mark is the present end, for WaitFor.
func (t *Transcript) Mark() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.lines)
}

// WaitFor waits until a line after the mark matches.
func (t *Transcript) WaitFor(ctx context.Context, mark int, re *regexp.Regexp) (Line, error) {
	for {
		t.mu.Lock()
		changed, lines, ended := t.changed, t.lines, t.ended
		t.mu.Unlock()
		for ; mark < len(lines); mark++ {
			if re.MatchString(lines[mark].Text) {
				return lines[mark], nil
			}
		}
		if ended != "" {
			return Line{}, fmt.Errorf("%s %s; it never said %q%s", t.who, ended, re, t.Tail())
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Line{}, fmt.Errorf("%s has not said %q: %w%s", t.who, re, ctx.Err(), t.Tail())
		}
	}
}

// Tail is the end of what was said, for an error.
func (t *Transcript) Tail() string {
	var b strings.Builder
	b.WriteString("; its last words:")
	for _, l := range t.Lines(max(0, t.Mark()-15)) {
		fmt.Fprintf(&b, "\n  %7.1f %s", l.At.Seconds(), l.Text)
	}
	return b.String()
}
