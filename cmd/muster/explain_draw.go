package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	muster "muster.internal"
	"muster.internal/explain"
)

const lineWidth = 78

// wrapped breaks text that begins at column first between words; every line but the first is indented.
func wrapped(text string, first int, indent string) string {
	var b strings.Builder
	col := first
	for i, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case i == 0:
		case col+1+n > lineWidth:
			b.WriteString("\n" + indent)
			col = len(indent)
		default:
			b.WriteByte(' ')
			col++
		}
		b.WriteString(word)
		col += n
	}
	return b.String()
}

func (a *app) verdictStyle(v muster.ExplainVerdict) style {
	switch v {
	case muster.BootRunning, muster.BootBooted:
		return green
	case muster.BootUnderway, muster.BootInstall:
		return cyan
	case muster.BootWaiting:
		return yellow
	}
	return red
}

func (a *app) drawExplanation(w io.Writer, x muster.BootExplanation) {
	head := strings.ReplaceAll(string(x.Verdict), "_", " ")
	if x.Cause != "" {
		head += ": " + strings.ReplaceAll(x.Cause, "_", " ")
	}
	fmt.Fprintf(w, "%s  %s\n", a.paint(bold, x.MAC), a.paint(a.verdictStyle(x.Verdict), said(head)))
	fmt.Fprintf(w, "%s\n\n", wrapped(said(x.Summary), 0, ""))
	a.longFields(w, a.explainFields(x)...)
	if len(x.Steps) > 0 {
		fmt.Fprintf(w, "\n%s\n", a.paint(bold, "What happened"))
		a.drawSteps(w, x.Steps)
	}
	if len(x.Advice) > 0 {
		fmt.Fprintf(w, "\n%s\n", a.paint(bold, "What you can do"))
	}
	for i, v := range x.Advice {
		no := fmt.Sprintf("%2d. ", i+1)
		fmt.Fprintf(w, "%s%s\n", no, wrapped(said(v.Text), len(no), "    "))
		if v.Command != "" {
			fmt.Fprintf(w, "      %s\n", a.paint(cyan, said(v.Command)))
		}
	}
}

// explainFields are the facts, by name.
func (a *app) explainFields(x muster.BootExplanation) []string {
	fs := []string{}
	add := func(name, value string) { fs = append(fs, name, value) }
	if x.Since != nil {
		since := a.ago(x.Since)
		if x.LastAsk != nil {
			since += ", last heard " + a.ago(x.LastAsk)
		}
		add("since", since)
	}
	if f := x.Firmware; f != nil {
		add("asks", asks(f))
		add("says", f.UUID)
		by := ""
		if f.Giaddr != "" {
			by = "relay " + f.Giaddr
		}
		if f.Circuit != "" {
			by += " circuit " + f.Circuit
		}
		add("came by", strings.TrimSpace(by))
	}
	add("record", recordLine(x.Record))
	add("note", x.Record.Note)
	if v := x.Now; v != nil {
		add("decision", explain.InShort(*v))
		add("by rule", v.Rule)
		add("quirk", v.Quirk)
		if v.Image != nil {
			add("image", strings.TrimSpace(v.Image.Name+" "+v.Image.Digest[:min(19, len(v.Image.Digest))]))
		}
	}
	if m := x.Machine; m != nil {
		line := first(m.Hostname, m.Serial, m.ServerUUID) + ", " + string(m.State) + ", last heard " + a.ago(&m.LastSeen)
		add("machine", line)
	}
	for _, b := range x.Booters {
		add("booter", a.booterLine(b))
	}
	return fs
}

func asks(f *muster.BootFirmware) string {
	s := f.Message + " from " + f.Stage + ", " + f.Name
	if f.Class != "" {
		s += ", class " + f.Class
	}
	if f.Server != "" {
		s += ", to server " + f.Server
	}
	if f.Claims != "" {
		s += ", for " + f.Claims
	}
	return s
}

func recordLine(r muster.BootRecord) string {
	if r.Synthesized {
		return "none: never reported"
	}
	s := string(r.State)
	if r.Mode == muster.RescueMode {
		s += ", rescue"
	}
	if r.Address != "" {
		s += ", address " + r.Address
	} else {
		s += ", no address"
	}
	if r.Network != "" {
		s += ", network " + r.Network
	}
	if r.ServiceTag != "" {
		s += ", service tag " + r.ServiceTag
	}
	return s
}

func (a *app) booterLine(b muster.ExplainedBooter) string {
	s := b.Booter + ", "
	switch {
	case b.LastSeen == nil:
		s += "has never reported"
	case b.Alive:
		s += "alive (" + a.ago(b.LastSeen) + ")"
	default:
		s += "not heard since " + a.ago(b.LastSeen)
	}
	if b.Heard {
		s += ", heard it"
	} else {
		s += ", never heard it"
	}
	if b.Behind > 0 {
		s += fmt.Sprintf(", %d changes behind", b.Behind)
	} else {
		s += ", follows the feed"
	}
	if !b.Staged {
		s += ", has not staged its image"
	}
	return s
}

// longFields are fields whose values may take several lines.
func (a *app) longFields(w io.Writer, pairs ...string) {
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			width = max(width, len(pairs[i]))
		}
	}
	indent := strings.Repeat(" ", width+2)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(w, "%s%s  %s\n", a.paint(dim, pairs[i]), strings.Repeat(" ", width-len(pairs[i])), wrapped(said(pairs[i+1]), width+2, indent))
		}
	}
}

// drawSteps prints one line for each exchange, as long as they fit.
func (a *app) drawSteps(w io.Writer, steps []muster.ExplainedStep) {
	rows := make([][]string, len(steps))
	for i, s := range steps {
		rows[i] = a.stepCells(s)
	}
	var b strings.Builder
	grid(&b, []string{"AT (UTC)", "BOOTER", "ASKED", "ANSWER"}, rows)
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	at := strings.Index(lines[0], "ANSWER")
	for _, l := range lines {
		r := []rune(l)
		if len(r) <= lineWidth || at < 0 || at > len(r) {
			fmt.Fprintln(w, l)
			continue
		}
		rest := string(r[at:])
		fmt.Fprintln(w, string(r[:at])+wrapped(rest, at, strings.Repeat(" ", at)))
	}
}

func (a *app) stepCells(s muster.ExplainedStep) []string {
	asked := s.Via + " " + said(s.Asked)
	if s.Count > 1 {
		asked += fmt.Sprintf(" ×%d", s.Count)
	}
	return []string{s.At.UTC().Format(time.TimeOnly), said(s.Booter), asked, said(stepAnswer(s))}
}

// stepAnswer is what became of an exchange, in a few words.
func stepAnswer(s muster.ExplainedStep) string {
	if !s.Serve {
		return explain.InShort(s.BootVerdict)
	}
	switch {
	case s.Via == "DHCP" && s.Loader != "":
		return s.Address + ", load " + s.Loader
	case s.Via == "DHCP":
		return strings.TrimSuffix(s.Address+", "+map[string]string{"start": "load start.ipxe"}[s.Stage], ", ")
	case s.Outcome == "":
		return "under way"
	case s.Outcome == "done" && s.Size > 0:
		return fmt.Sprintf("done, %s in %s", size(s.Size), took(s.Millis))
	case s.Outcome == "cut":
		return fmt.Sprintf("cut after %s of %s", size(s.Sent), size(s.Size))
	}
	return s.Outcome
}

func took(ms int64) string {
	if ms < 1000 {
		return fmt.Sprintf("%d ms", ms)
	}
	return fmt.Sprintf("%.1f s", float64(ms)/1000)
}

func (a *app) drawChanges(w io.Writer, cs []explain.Change) {
	if len(cs) == 0 {
		fmt.Fprintln(a.stderr, "there is nothing to decide again: no request is stored")
		return
	}
	mac, changed := "", 0
	for _, c := range cs {
		if c.MAC != mac {
			mac = c.MAC
			fmt.Fprintln(w, a.paint(bold, mac))
		}
		asked := c.At.UTC().Format(time.TimeOnly) + "  " + c.Via + " " + said(c.Asked)
		fmt.Fprintf(w, "  %s\n", wrapped(asked, 2, "            "))
		if !c.Changed && c.Then != nil {
			fmt.Fprintf(w, "            unchanged: %s\n", wrapped(said(c.Now), 23, "            "))
			continue
		}
		fmt.Fprintf(w, "            was:  %s\n", wrapped(said(c.Was), 18, "                  "))
		now := wrapped(said(c.Now), 18, "                  ")
		if c.Changed {
			changed++
			now = a.paint(yellow, now)
		}
		fmt.Fprintf(w, "            now:  %s\n", now)
	}
	fmt.Fprintf(a.stderr, "%d of %d requests are answered differently now\n", changed, len(cs))
}
