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
	{"root file system wanted", regexp.MustCompile(`muster-host: fetching its root`)},
	{"root file system fetched", regexp.MustCompile(`muster-host: unpacking its root`)},
	{"root file system entered", regexp.MustCompile(`muster-host: its root file system .* is mounted`)},
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

// inOrder are the stages as they came, as indexes.
func (s *Stages) inOrder() []int {
	order := make([]int, len(s.name))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.at[a], s.at[b]) })
	return order
}

// StageTable is the stages of several machines side by side, a row a stage,
// with seconds from power-on. A stage that only some machines have stands before
// the one that came next in the first of them.
func StageTable(heads []string, columns []*Stages) string {
	var rows []string
	for _, c := range columns {
		order := c.inOrder()
		for n, i := range order {
			if slices.Contains(rows, c.name[i]) {
				continue
			}
			at := len(rows)
			for _, later := range order[n:] {
				if k := slices.Index(rows, c.name[later]); k >= 0 {
					at = k
					break
				}
			}
			rows = slices.Insert(rows, at, c.name[i])
		}
	}
	var b strings.Builder
	for _, h := range heads {
		fmt.Fprintf(&b, "%11s", h)
	}
	b.WriteString("  seconds from power-on\n")
	for _, r := range rows {
		for _, c := range columns {
			cell := "-"
			if n := slices.Index(c.name, r); n >= 0 {
				cell = fmt.Sprintf("%.1f", c.at[n].Seconds())
			}
			fmt.Fprintf(&b, "%11s", cell)
		}
		b.WriteString("  " + r + "\n")
	}
	return b.String()
}
