package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"strings"

	muster "muster.internal"
	"muster.internal/client"
)

// Exit codes, documented in the root command's help.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitNotFound    = 4
	exitForbidden   = 5
	exitConflict    = 6
)

// usageError is a mistake in what was typed.
type usageError struct{ msg string }

func (e *usageError) Error() string { return e.msg }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// hinted carries what to do next beside what went wrong.
type hinted struct {
	err  error
	hint string
}

func (e *hinted) Error() string { return e.err.Error() }
func (e *hinted) Unwrap() error { return e.err }

// exitCode says what an error means to a script.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	var use *usageError
	if errors.As(err, &use) {
		return exitUsage
	}
	var p *muster.Problem
	if errors.As(err, &p) {
		switch p.Code {
		case muster.CodeNotFound:
			return exitNotFound
		case muster.CodeUnauthenticated, muster.CodeForbidden:
			return exitForbidden
		case muster.CodeConflict:
			return exitConflict
		case muster.CodeUnavailable:
			return exitUnreachable
		}
		return exitFailed
	}
	if unreachable(err) {
		return exitUnreachable
	}
	return exitFailed
}

// unreachable tells whether no answer came at all.
func unreachable(err error) bool { return errors.As(err, new(*client.Unreachable)) }

// complain writes an error as people read it: what happened, what is allowed,
// what to do next. One fact a line, on standard error.
func (a *app) complain(err error) {
	if errors.Is(err, context.Canceled) {
		fmt.Fprintln(a.stderr, "muster: interrupted")
		return
	}
	if a.output == "json" {
		a.complainJSON(err)
		return
	}
	say := func(kind, s string) {
		for line := range strings.Lines(s) {
			fmt.Fprintf(a.stderr, "muster: %s: %s\n", kind, said(strings.TrimSuffix(line, "\n")))
		}
	}
	var p *muster.Problem
	switch {
	case errors.As(err, &p):
		say("error", first(p.Detail, p.Title))
		for _, f := range p.Errors {
			say("error", f.Field+": "+f.Message)
		}
		if p.State != "" {
			say("state", p.State)
		}
		if len(p.Allowed) > 0 {
			say("allowed now", strings.Join(p.Allowed, ", "))
		}
		if p.RetryAfter > 0 {
			say("hint", fmt.Sprintf("try again in %d seconds", p.RetryAfter))
		}
	default:
		say("error", err.Error())
	}
	if h := a.hintFor(err); h != "" {
		say("hint", h)
	}
}

// complainJSON writes an error as programs read it: the problem, if it is one,
// with the hint that people get, on standard error.
func (a *app) complainJSON(err error) {
	var out struct {
		muster.Problem
		Hint string `json:"hint,omitempty"`
	}
	if p := new(muster.Problem); errors.As(err, &p) {
		out.Problem = *p
	} else {
		out.Problem = *muster.Problemf(muster.CodeInternal, "%s", err)
		switch out.Status = 0; exitCode(err) { // no server said so
		case exitUsage:
			out.Code, out.Title = muster.CodeInvalid, "wrong use"
		case exitUnreachable:
			out.Code, out.Title = muster.CodeUnavailable, "unreachable"
		default:
			out.Code, out.Title = "failed", "failed"
		}
	}
	out.Hint = a.hintFor(err)
	_ = writeJSON(a.stderr, out) // there is nowhere to complain about this
}

func (a *app) hintFor(err error) string {
	var h *hinted
	var use *usageError
	switch {
	case errors.As(err, &h):
		return h.hint
	case errors.As(err, &use) && a.lastCommand != "":
		return a.lastCommand + " --help"
	case muster.IsCode(err, muster.CodeUnauthenticated):
		return "the credential was not accepted: log in again with muster login, or look at MUSTER_KEY"
	case errors.Is(err, client.ErrUntrusted):
		return "do not log in there; compare the address and the fingerprint with what \"musterd ca\" shows on the control plane's host"
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return "the control plane has an authority of its own: muster login --fingerprint HEX, with what \"musterd ca\" shows there"
	case unreachable(err):
		return "look at MUSTER_URL, and whether musterd runs"
	}
	return ""
}

// warn is for what is worth knowing and stops nothing.
func (a *app) warn(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, a.paint(red, "warning: "+fmt.Sprintf(format, args...)))
}
