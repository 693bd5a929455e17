package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"muster.internal"
)

// Problem is muster.Problem with what huma asks of an error.
type Problem muster.Problem

func (p *Problem) Error() string { return (*muster.Problem)(p).Error() }

// GetStatus is the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is that of RFC 9457 section 3.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// GetHeaders gives what a problem says in headers, too.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="muster"`)
	}
	return h
}

// huma keeps its error constructor and its casing rule in package variables.
func init() {
	huma.NewError = newError
	huma.ValidateStrictCasing = true
}

// Bounds of what a problem says of a request: an answer must not be larger than
// what was asked.
const (
	maxErrors = 20
	maxName   = 128 // bytes of a field's name, which may come from outside
)

// newError makes our problem of what huma finds wrong. Every way of being
// wrong is 400, with the fields' names. Values are never repeated: they may be
// secrets.
func newError(status int, msg string, errs ...error) huma.StatusError {
	if status == http.StatusUnsupportedMediaType {
		return (*Problem)(muster.Invalid("Content-Type", "must be application/json"))
	}
	code := muster.CodeForStatus(status)
	if msg == "cannot read request body" { // the peer went away, or lied about the length
		code = muster.CodeInvalid
	}
	p := muster.Problemf(code, "%s", sentence(status, msg))
	for _, err := range errs {
		if err == nil || code == muster.CodeInternal || msg == "cannot read request body" {
			continue
		}
		if len(p.Errors) == maxErrors {
			break
		}
		p.Errors = append(p.Errors, fieldOf(err))
	}
	if len(p.Errors) == 0 && code == muster.CodeInvalid {
		p.Errors = []muster.FieldError{{Field: "body", Message: msg}}
	}
	return (*Problem)(p)
}

func sentence(status int, msg string) string {
	switch status {
	case http.StatusRequestEntityTooLarge:
		return "the request's body is larger than this route takes"
	case http.StatusRequestTimeout:
		return "the request's body did not arrive in time"
	}
	if msg == "validation failed" || msg == "request body is required" {
		return "the request is not valid"
	}
	return msg
}

const missing = "expected required property "

// fieldOf names the field that an error of huma's is about.
func fieldOf(err error) muster.FieldError {
	var d huma.ErrorDetailer
	if !errors.As(err, &d) {
		return muster.FieldError{Field: "body", Message: err.Error()}
	}
	detail := d.ErrorDetail()
	field, msg := detail.Location, detail.Message
	if f, m, ok := splitMark(msg); ok {
		field, msg = "body."+f, m
	}
	if rest, ok := strings.CutPrefix(msg, missing); ok {
		name, _, _ := strings.Cut(rest, " ")
		field, msg = field+"."+name, "is required"
	}
	for _, where := range []string{"body.", "query.", "path.", "header."} {
		field = strings.TrimPrefix(field, where)
	}
	if msg == "unexpected property" {
		msg = "is not a field of this request"
	}
	if len(field) > maxName {
		field = strings.ToValidUTF8(field[:maxName], "") + "…"
	}
	return muster.FieldError{Field: field, Message: msg}
}

// problemOf makes a problem of whatever a service returns. Causes that are
// nobody's business are logged and not shown.
func (a *API) problemOf(ctx context.Context, err error) *Problem {
	q, _ := ctx.Value(askedKey{}).(*asked)
	if q != nil {
		q.err = err
	}
	var p *muster.Problem
	switch {
	case errors.As(err, &p):
		if p.Code == muster.CodeInternal {
			a.log.Error("a request failed", "error", err)
		}
		return (*Problem)(p)
	case a.drain.Err() != nil:
		return unavailable("muster is shutting down; come again")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return unavailable("the request was given up before it was answered; come again")
	}
	a.log.Error("a request failed", "error", err)
	return (*Problem)(muster.Problemf(muster.CodeInternal, "muster failed at this request; its log says why"))
}

func unavailable(why string) *Problem {
	p := muster.Problemf(muster.CodeUnavailable, "%s", why)
	p.RetryAfter = 1
	return (*Problem)(p)
}

// writeProblem writes a problem where huma is not at hand.
func writeProblem(w http.ResponseWriter, p *muster.Problem) {
	h := w.Header()
	for k, v := range (*Problem)(p).GetHeaders() {
		h[k] = v
	}
	h.Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the peer may be gone
}
