package lab

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Stages is how far a machine came, and when: seconds from power-on.
type Stages struct {
	name []string
	at   []time.Duration
}

// Add notes a stage.
func (s *Stages) Add(name string, at time.Duration) {
	s.name, s.at = append(s.name, name), append(s.at, at)
}

// consoleStages are what a serial console tells of a boot.
var consoleStages = []struct {
	name string
	re   *regexp.Regexp
}{
	{"iPXE has started", regexp.MustCompile(`^iPXE initialising devices`)},
	{"iPXE has its address", regexp.MustCompile(`^Configuring .*ok$`)},
	{"boot script rendered", regexp.MustCompile(`script\.ipxe.*ok$`)},
	// A URL that is longer than a line of the screen is broken there.
	{"kernel and initrd fetched", regexp.MustCompile(`(/file/.*|^[0-9a-f]+)\.\.\. .*ok$`)},
	{"muster-host runs", regexp.MustCompile(`muster-host`)},
}

// AddConsole notes what the lines tell; of repeated lines the last one before
// the next stage counts. The prefix tells first and second boot apart.
func (s *Stages) AddConsole(prefix string, lines []Line) {
	for i, st := range consoleStages {
		at := time.Duration(-1)
		for _, l := range lines {
			if i+1 < len(consoleStages) && at >= 0 && consoleStages[i+1].re.MatchString(l.Text) {
				break
			}
			if st.re.MatchString(l.Text) && (at < 0 || i+1 < len(consoleStages)) {
				at = l.At
			}
		}
		if at >= 0 {
			s.Add(prefix+st.name, at)
		}
	}
}

// String is the table, one stage a line.
func (s *Stages) String() string {
	var b strings.Builder
	for i, n := range s.name {
		fmt.Fprintf(&b, "%8.1f s  %s\n", s.at[i].Seconds(), n)
	}
	return b.String()
}
