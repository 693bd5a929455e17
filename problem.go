package muster

import (
	"errors"
	"fmt"
	"strings"
)

// A Problem is an error for people and for programs: the body of every HTTP
// error (RFC 9457). Causes that are nobody's business go to the log instead.
type Problem struct {
	Type   string `json:"type,omitempty"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Code   Code   `json:"code"`
	// State and Allowed come with a conflict: what the subject is, and what
	// could be done instead.
	State   string   `json:"state,omitempty"`
	Allowed []string `json:"allowed,omitempty"`
	// Errors name the fields that are wrong.
	Errors []FieldError `json:"errors,omitempty"`
	// RetryAfter is in seconds, with too_many_requests and unavailable.
	RetryAfter int `json:"retry_after,omitempty"`
}

// Code is a problem's kind, for programs.
type Code string

const (
	CodeInvalid         Code = "invalid"
	CodeUnauthenticated Code = "unauthenticated"
	CodeForbidden       Code = "forbidden"
	CodeNotFound        Code = "not_found"
	CodeNotAllowed      Code = "method_not_allowed"
	CodeConflict        Code = "conflict"
	CodeGone            Code = "gone"
	CodeTooLarge        Code = "too_large"
	CodeTooMany         Code = "too_many_requests"
	CodeInternal        Code = "internal"
	CodeUnavailable     Code = "unavailable"
)

var statuses = map[Code]int{
	CodeInvalid:         400,
	CodeUnauthenticated: 401,
	CodeForbidden:       403,
	CodeNotFound:        404,
	CodeNotAllowed:      405,
	CodeConflict:        409,
	CodeGone:            410,
	CodeTooLarge:        413,
	CodeTooMany:         429,
	CodeInternal:        500,
	CodeUnavailable:     503,
}

// CodeForStatus is the code that goes with an HTTP status, or the nearest.
func CodeForStatus(status int) Code {
	for c, s := range statuses {
		if s == status {
			return c
		}
	}
	if status >= 400 && status < 500 {
		return CodeInvalid
	}
	return CodeInternal
}

// A FieldError names one field of a request and what is wrong with it.
type FieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

func (p *Problem) Error() string {
	b := new(strings.Builder)
	b.WriteString(p.Detail)
	if p.Detail == "" {
		b.WriteString(p.Title)
	}
	for _, e := range p.Errors {
		fmt.Fprintf(b, "; %s: %s", e.Field, e.Message)
	}
	if len(p.Allowed) > 0 {
		fmt.Fprintf(b, " (allowed now: %s)", strings.Join(p.Allowed, ", "))
	}
	return b.String()
}

// Problemf makes a problem of a kind; the sentence says what happened, to
// which machine, why, and what to do next.
func Problemf(c Code, format string, args ...any) *Problem {
	return &Problem{Title: strings.ReplaceAll(string(c), "_", " "), Status: statuses[c], Code: c, Detail: fmt.Sprintf(format, args...)}
}

// TypeExpunged is the type of the problem that a machine gets which was cut off
// for good and comes with a key of its own.
const TypeExpunged = "urn:muster:problem:expunged"

// Invalid is a request whose named field is wrong.
func Invalid(field, format string, args ...any) *Problem {
	p := Problemf(CodeInvalid, "the request is not valid")
	p.Errors = []FieldError{{field, fmt.Sprintf(format, args...)}}
	return p
}

// IsCode tells whether err is a problem of kind c.
func IsCode(err error, c Code) bool {
	var p *Problem
	return errors.As(err, &p) && p.Code == c
}
