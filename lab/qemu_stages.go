package lab

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
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
	{"muster-host runs", regexp.MustCompile(`muster-host: userland`)},
	{"network up", regexp.MustCompile(`muster-host: network up`)},
	{"announced on the bus", regexp.MustCompile(`muster-host: announced`)},
	{"setup begins", regexp.MustCompile(`muster-host: setup 1/`)},
	{"pool is being built", regexp.MustCompile(`muster-host: setup .*building the pool`)},
	{"setup done, restarting", regexp.MustCompile(`muster-host: restarting`)},
	{"pool imported", regexp.MustCompile(`muster-host: pool imported`)},
}

// AddConsole notes what the lines tell, the last of repeated lines. The prefix
// tells first and second boot apart.
func (s *Stages) AddConsole(prefix string, lines []Line) {
	for _, st := range consoleStages {
		at := time.Duration(-1)
		for _, l := range lines {
			if st.re.MatchString(l.Text) {
				at = l.At
			}
		}
		if at >= 0 {
			s.Add(prefix+st.name, at)
		}
	}
}

// String is the table, one stage a line, in the order in which they came.
func (s *Stages) String() string {
	order := make([]int, len(s.name))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.at[a], s.at[b]) })
	var b strings.Builder
	for _, i := range order {
		fmt.Fprintf(&b, "%8.1f s  %s\n", s.at[i].Seconds(), s.name[i])
	}
	return b.String()
}
