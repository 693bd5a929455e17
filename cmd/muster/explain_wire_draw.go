package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	muster "muster.internal"
	"muster.internal/explain"
)

func (a *app) drawWire(w io.Writer, x explain.Wire) {
	if len(x.Attempts) == 0 {
		fmt.Fprintf(w, "none of the %d frames belongs to a network boot: no DHCP, TFTP or HTTP\n", x.Frames)
	}
	for i, t := range x.Attempts {
		if i > 0 {
			fmt.Fprintln(w)
		}
		a.drawAttempt(w, t)
	}
	if len(x.Servers) > 0 {
		fmt.Fprintf(w, "\n%s\n", a.paint(bold, "DHCP servers that answer"))
	}
	for _, s := range x.Servers {
		kind := "not muster"
		if s.Muster {
			kind = "a muster booter"
		}
		line := fmt.Sprintf("%s (frames from %s): %s, %d answers; the last: %s", s.Address, s.MAC, kind, s.Answers, said(s.Gives))
		fmt.Fprintf(w, "  %s\n", wrapped(line, 2, "    "))
	}
	if len(x.Faults) > 0 {
		fmt.Fprintf(w, "\n%s\n", a.paint(bold, "Frames that cannot be read"))
	}
	for _, l := range x.Faults {
		fmt.Fprintf(w, "  %s\n", wrapped(fmt.Sprintf("frame %d, %s: %s", l.Frame, l.Via, said(l.Text)), 2, "    "))
	}
	for _, s := range x.Warnings {
		fmt.Fprintln(w)
		fmt.Fprintln(w, a.paint(yellow, wrapped("warning: "+said(s), 0, "  ")))
	}
}

func (a *app) drawAttempt(w io.Writer, t explain.Attempt) {
	head := a.paint(bold, t.MAC)
	if t.Firmware != nil {
		head += "  " + said(t.Firmware.Stage) + ", " + said(t.Firmware.Name)
		if t.Firmware.UUID != "" {
			head += "\n                   UUID " + said(t.Firmware.UUID)
		}
	}
	fmt.Fprintln(w, head)
	for _, l := range t.Lines {
		who := "asks"
		if l.Server != "" {
			who = l.Server
		}
		text := l.Via + " " + said(l.Text)
		if l.Times > 1 {
			text += fmt.Sprintf(" ×%d", l.Times)
		}
		if len(l.VLANs) > 0 {
			text += fmt.Sprintf(" (VLAN %s)", strings.Trim(fmt.Sprint(l.VLANs), "[]"))
		}
		start := fmt.Sprintf("%5d  %s  %-10s  ", l.Frame, l.At.Format(time.TimeOnly+".000"), who)
		indent := strings.Repeat(" ", len(start))
		fmt.Fprintln(w, start+wrapped(text, len(start), indent))
		if l.Verdict != nil {
			v := explain.InShort(*l.Verdict)
			if l.Verdict.Quirk != "" {
				v += ", quirk " + l.Verdict.Quirk
			}
			fmt.Fprintln(w, indent+a.paint(a.answerStyle(*l.Verdict), wrapped("muster: "+said(v), len(start), indent+"  ")))
		}
	}
	if v := t.Verdict; v != nil && !v.Serve {
		fmt.Fprintln(w, "  "+wrapped("muster would not answer its last request: "+said(v.Why), 2, "  "))
	}
	if v := t.Admitted; v != nil && v.Serve {
		fmt.Fprintln(w, "  "+wrapped("once the boot policy admits it, muster "+said(admitted(*v)), 2, "  "))
	} else if v != nil {
		fmt.Fprintln(w, "  "+wrapped("even if the boot policy admitted it, muster would not answer its first request: "+said(v.Why), 2, "  "))
	}
}

// admitted leaves out the address, which is made up.
func admitted(v muster.BootVerdict) string {
	v.Address = ""
	if v.Image != nil && v.Image.Name == "any" {
		v.Image = nil
	}
	return explain.InShort(v) + " to its first request"
}

func (a *app) answerStyle(v muster.BootVerdict) style {
	if v.Serve {
		return green
	}
	return yellow
}
