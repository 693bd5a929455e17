package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/term"

	muster "muster.internal"
	"muster.internal/control"
)

// env is everything that the command line takes from outside, so that a test
// can be its outside.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	now            func() time.Time
	// colour says that standard output is a terminal that takes colours.
	colour bool
	// terminal says that lines on standard output can be taken back.
	terminal bool
	// configDir holds what login keeps; empty: nothing can be kept.
	configDir string
	// controlDir is where a control plane of this very user, on this machine, has
	// its first login; empty: there is none.
	controlDir string
	// dial makes a client; it sends nothing.
	dial func(connection) (fleet, error)
	// abs finds a file that was named relative to the working directory.
	abs func(path string) string
	// readSecret asks for a line without showing it.
	readSecret func(prompt string) (string, error)
	// unhide lets the terminal show again what is typed, after a prompt that was
	// interrupted; nil: there is nothing to do.
	unhide func()
}

// errInterrupted is the end of a question that was answered with ^C.
var errInterrupted = errors.New("interrupted")

// asked waits for an answer, or for ^C: a read of the terminal hears no signal.
func asked(ctx context.Context, read func() (string, error)) (string, error) {
	type answer struct {
		line string
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		line, err := read()
		got <- answer{line, err}
	}()
	select {
	case a := <-got:
		return a.line, a.err
	case <-ctx.Done():
		return "", errInterrupted
	}
}

// secret asks for a line without showing it.
func (a *app) secret(ctx context.Context, prompt string) (string, error) {
	line, err := asked(ctx, func() (string, error) { return a.readSecret(prompt) })
	if err == errInterrupted {
		if a.unhide != nil {
			a.unhide()
		}
		fmt.Fprintln(a.stderr)
	}
	return line, err
}

// fleet is what the commands need: the operator's interface, and the way in.
type fleet interface {
	muster.Fleet
	muster.Accounts
}

// connection is where the control plane is, and as whom to speak.
type connection struct {
	url   string
	token string // a key or an operator's token
	ca    []byte // PEM; nil: the system's roots
	// first is set when this is the control plane on this machine that still has
	// its first login.
	first *control.FirstLogin
	// fingerprint of the authority, when its certificate is not at hand.
	fingerprint string
}

func osEnv() env {
	e := env{
		stdin:  os.Stdin,
		stdout: os.Stdout,
		stderr: os.Stderr,
		getenv: os.Getenv,
		now:    time.Now,
		dial:   dial,
		abs:    func(path string) string { return path },

		controlDir: control.DefaultDir(),
	}
	e.terminal = term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("TERM") != "dumb"
	e.colour = term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if dir, err := os.UserConfigDir(); err == nil {
		e.configDir = filepath.Join(dir, "muster")
	}
	if in := int(os.Stdin.Fd()); term.IsTerminal(in) {
		if shown, err := term.GetState(in); err == nil {
			e.unhide = func() { term.Restore(in, shown) }
		}
	}
	e.readSecret = func(prompt string) (string, error) {
		in := int(os.Stdin.Fd())
		if !term.IsTerminal(in) {
			return readLine(os.Stdin)
		}
		fmt.Fprint(os.Stderr, prompt)
		b, err := term.ReadPassword(in)
		fmt.Fprintln(os.Stderr)
		return string(b), err
	}
	return e
}

// readLine reads one line byte by byte, so that what follows stays unread for
// whoever reads next.
func readLine(r io.Reader) (string, error) {
	var line []byte
	for b := make([]byte, 1); ; {
		n, err := r.Read(b)
		switch {
		case n == 1 && b[0] == '\n':
			return trimCR(line), nil
		case n == 1:
			if line = append(line, b[0]); len(line) > 4096 {
				return "", fmt.Errorf("the line is longer than 4096 bytes")
			}
		case err == io.EOF && len(line) > 0:
			return trimCR(line), nil
		case err == io.EOF:
			return "", fmt.Errorf("nothing to read on standard input")
		case err != nil:
			return "", err
		}
	}
}

func trimCR(b []byte) string {
	if n := len(b); n > 0 && b[n-1] == '\r' {
		b = b[:n-1]
	}
	return string(b)
}
