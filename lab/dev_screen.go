package lab

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// A Screen shows happenings as they come: one line each, and on a terminal,
// below the lines, one row for each machine with where it is now.
type Screen struct {
	W        io.Writer
	Terminal bool // lines may be taken back
	Colour   bool
	Rows     int    // machines that fit below the lines; more become one line of counts
	Columns  int    // of the terminal; 0: 80
	Foot     string // stands below everything: what to do next

	state map[string]Happening
	order []string
	drawn int // lines below that the next happening takes back
}

var stageColour = map[Stage]string{
	StageOff: "2", StageFirmware: "36", StageEnroll: "33", StageSetup: "35", StageNode: "32", StageRescue: "31", StageControl: "34",
}

func (s *Screen) paint(code, text string) string {
	if !s.Colour || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Tell shows one happening.
func (s *Screen) Tell(h Happening) {
	var b strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", s.drawn)
	}
	name := h.Machine
	if name == "" {
		name = "muster"
	}
	fmt.Fprintf(&b, "%s  %-6s  %s  %s\n", s.paint("2", h.At.Local().Format("15:04:05")), printable(name),
		s.paint(stageColour[h.Stage], fmt.Sprintf("%-8s", h.Stage)), printable(h.Text))
	s.note(h)
	if s.Terminal {
		s.draw(&b)
	}
	io.WriteString(s.W, b.String())
}

func (s *Screen) note(h Happening) {
	if h.Machine == "" || h.Stage == StageControl {
		return
	}
	if s.state == nil {
		s.state = map[string]Happening{}
	}
	if _, known := s.state[h.Machine]; !known {
		s.order = append(s.order, h.Machine)
		slices.Sort(s.order)
	}
	s.state[h.Machine] = h
}

// draw writes what stands below the lines.
func (s *Screen) draw(b *strings.Builder) {
	rows := []string{"", s.counts()}
	room := s.Columns - 20 // what stands before the text
	if s.Columns == 0 {
		room = 60
	}
	if len(s.order) <= s.Rows {
		for _, name := range s.order {
			h := s.state[name]
			rows = append(rows, fmt.Sprintf("  %-6s  %s  %s", printable(name), s.paint(stageColour[h.Stage], fmt.Sprintf("%-8s", h.Stage)), clipped(printable(h.Text), room)))
		}
	}
	if s.Foot != "" {
		rows = append(rows, "", clipped(s.Foot, room+19))
	}
	for _, r := range rows {
		b.WriteString(r + "\n")
	}
	s.drawn = len(rows)
}

// counts is how many machines are where.
func (s *Screen) counts() string {
	n := map[Stage]int{}
	for _, h := range s.state {
		n[h.Stage]++
	}
	parts := []string{fmt.Sprintf("%d machines", len(s.order))}
	if len(s.order) == 1 {
		parts[0] = "1 machine"
	}
	for _, st := range []Stage{StageOff, StageFirmware, StageEnroll, StageSetup, StageNode, StageRescue} {
		if n[st] > 0 {
			parts = append(parts, s.paint(stageColour[st], fmt.Sprintf("%d %s", n[st], st)))
		}
	}
	return strings.Join(parts, ", ")
}

// printable keeps what a machine says from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return '·'
		}
		return r
	}, s)
}

func clipped(s string, n int) string {
	r := []rune(s)
	switch {
	case n <= 0:
		return ""
	case len(r) > n:
		return string(r[:n-1]) + "…"
	}
	return s
}
