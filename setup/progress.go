package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A Progress is what a machine says, on the boot bus, of a setup on its way:
// that a step begins, or, without Step, a line that its script wrote.
type Progress struct {
	Epoch   int64  `json:"epoch"`
	Step    string `json:"step,omitempty"`
	Percent int    `json:"percent"`
	Text    string `json:"text,omitempty"`
}

// maxProgress bounds one message, in bytes.
const maxProgress = 4 << 10

var stepName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// ParseProgress reads a message, which comes from a machine that nobody trusts.
func ParseProgress(body []byte) (Progress, error) {
	var p Progress
	if len(body) > maxProgress {
		return p, fmt.Errorf("its report of progress has %d bytes", len(body))
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return p, fmt.Errorf("its report of progress cannot be read: %v", err)
	}
	switch {
	case p.Step != "" && !stepName.MatchString(p.Step):
		return p, errors.New("its report of progress names no step")
	case p.Step == "" && strings.TrimSpace(p.Text) == "":
		return p, errors.New("its report of progress says nothing")
	}
	p.Percent = min(max(p.Percent, 0), 100)
	return p, nil
}

// StepLine is the line by which a setup says on standard output that a step
// begins. Steps count from 1.
func StepLine(step, of int, name, text string) string {
	return fmt.Sprintf("setup %d/%d %s: %s", step, of, name, text)
}

var stepLine = regexp.MustCompile(`^(?:muster-host: )?setup ([0-9]{1,3})/([0-9]{1,3}) ([a-z][a-z0-9-]{0,31}): (.*)$`)

// ParseLine makes a report of a line that a setup wrote; of one that says that a
// step begins, with how much is done by then. Percent is otherwise that of the
// line before. Words that carry the proof of success make no report.
func ParseLine(epoch int64, percent int, line string) (Progress, bool) {
	line = strings.TrimSpace(line)
	if _, _, secret := ParseSentinel(line); secret || line == "" {
		return Progress{}, false
	}
	if m := stepLine.FindStringSubmatch(line); m != nil {
		n, _ := strconv.Atoi(m[1])
		of, _ := strconv.Atoi(m[2])
		if n >= 1 && n <= of {
			return Progress{epoch, m[3], StepPercent(n, of), m[4]}, true
		}
	}
	if len(line) > 512 {
		line = strings.ToValidUTF8(line[:512], "")
	}
	return Progress{Epoch: epoch, Percent: percent, Text: line}, true
}

// StepPercent is how much is done when a step begins.
func StepPercent(step, of int) int { return (step - 1) * 100 / of }
