package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	muster "muster.internal"
)

type style string

const (
	red    style = "31"
	green  style = "32"
	yellow style = "33"
	cyan   style = "36"
	bold   style = "1"
	dim    style = "2"
)

// paint colours s on a terminal and leaves it alone elsewhere.
func (a *app) paint(c style, s string) string {
	if !a.colour || s == "" {
		return s
	}
	return "\x1b[" + string(c) + "m" + s + "\x1b[0m"
}

// written remembers that its writer failed: most of what prints does not ask.
type written struct {
	w   io.Writer
	err error
}

func (o *written) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// show prints v as JSON when that was asked for, else what eyes draws.
func (a *app) show(v any, eyes func(w io.Writer)) error {
	if a.output == "json" {
		return writeJSON(a.stdout, v)
	}
	eyes(a.stdout)
	return nil
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// list is JSON's face of a list: never null.
func list[T any](ts []T) []T {
	if ts == nil {
		return []T{}
	}
	return ts
}

// grid is a table without lines: one header, aligned columns.
func grid(w io.Writer, header []string, rows [][]string) {
	t := table.NewWriter()
	st := table.StyleDefault
	st.Options = table.OptionsNoBordersAndSeparators
	st.Box.PaddingLeft, st.Box.PaddingRight = "", "  "
	st.Format.Header = 0
	t.SetStyle(st)
	t.AppendHeader(cells(header))
	for _, r := range rows {
		t.AppendRow(cells(r))
	}
	for _, line := range strings.Split(t.Render(), "\n") {
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

func cells(ss []string) table.Row {
	r := make(table.Row, len(ss))
	for i, s := range ss {
		r[i] = clean(s)
	}
	return r
}

// clean keeps what a machine said of itself from steering the terminal; the
// colours that this program put there stay.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == 0x1b || r >= 0x20 && r != 0x7f && !(r >= 0x80 && r < 0xa0) {
			return r
		}
		return '·'
	}, s)
}

// said is text from outside: it loses even the escape character.
func said(s string) string {
	return clean(strings.ReplaceAll(s, "\x1b", "·"))
}

// fields prints "name: value" lines, aligned, leaving out what is empty.
func (a *app) fields(w io.Writer, pairs ...string) {
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			width = max(width, len(pairs[i]))
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(w, "%s%s  %s\n", a.paint(dim, pairs[i]), strings.Repeat(" ", width-len(pairs[i])), clean(pairs[i+1]))
		}
	}
}

// ago writes a moment as people talk of it, and the exact one on request of
// nobody: --output json has it.
func (a *app) ago(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "never"
	}
	d := a.now().Sub(*t)
	switch {
	case d < 0:
		return "in " + left(-d)
	case d < time.Second:
		return "now"
	}
	return span(d) + " ago"
}

// left writes how long something still lasts. It rounds: an hour that was opened
// a moment ago is an hour, not 59 minutes.
func left(d time.Duration) string {
	if d = d.Round(time.Second); d >= time.Minute {
		d = d.Round(time.Minute)
	}
	return span(d)
}

func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// size writes bytes as disk makers do: powers of a thousand.
func size(n int64) string {
	f, unit := float64(n), 0
	units := []string{"B", "kB", "MB", "GB", "TB", "PB"}
	for f >= 999.5 && unit < len(units)-1 {
		f, unit = f/1000, unit+1
	}
	if f >= 99.5 || unit == 0 {
		return fmt.Sprintf("%.0f %s", f, units[unit])
	}
	return fmt.Sprintf("%.3g %s", f, units[unit])
}

// brief shortens the UUIDs of a list to what still tells them apart: whole
// groups, because one maker's machines begin alike. Empty ones stay empty.
func brief(uuids []string) func(string) string {
	for _, n := range []int{8, 13, 18, 23} {
		seen, twice := map[string]string{}, false
		for _, u := range uuids {
			head := u[:min(n, len(u))]
			twice = twice || seen[head] != "" && seen[head] != u
			seen[head] = u
		}
		if !twice {
			return func(u string) string { return u[:min(n, len(u))] }
		}
	}
	return func(u string) string { return u }
}

// short is enough of a UUID to recognise it in passing.
func short(uuid string) string {
	if len(uuid) > 8 {
		return uuid[:8]
	}
	return uuid
}

func (a *app) registrationState(s muster.RegistrationState) string {
	switch s {
	case muster.Approved:
		return a.paint(green, string(s))
	case muster.AwaitingSetup, muster.Pending:
		return a.paint(yellow, string(s))
	case muster.SettingUp:
		return a.paint(cyan, string(s))
	case muster.Disabled:
		return a.paint(red, string(s))
	}
	return said(string(s)) // a state newer than this program
}

func (a *app) bootState(s muster.BootState) string {
	switch s {
	case muster.Enrolled:
		return a.paint(green, string(s))
	case muster.Enrolling:
		return a.paint(cyan, string(s))
	case muster.BootDecommissioned:
		return a.paint(red, string(s))
	case muster.Discovered:
		return a.paint(yellow, string(s))
	}
	return said(string(s))
}

func imageName(r *muster.ImageRef) string {
	if r == nil || r.Name == "" {
		return "-"
	}
	return said(r.Name)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return said(s)
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
